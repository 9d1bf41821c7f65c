//! Signals to process groups, and whether one is alive (review finding C-04).

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getppid};

/// A process group that may be signalled: never 0 or 1, never our own or our parent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(Pid);

impl Group {
    /// A group by its leader; `None` for one that a signal of ours must never reach.
    pub(crate) fn of(leader: Pid) -> Option<Self> {
        let parents = getpgid(Some(getppid())).ok();
        let forbidden = leader.as_raw() <= 1 || leader == getpgrp() || Some(leader) == parents;
        (!forbidden).then_some(Self(leader))
    }

    /// Its number.
    pub(crate) const fn pid(self) -> Pid {
        self.0
    }

    /// Sends a signal; a group that is gone is no error.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    /// SIGTERM, and SIGCONT so that stopped members see it (failure scenario FS-31).
    pub(crate) fn terminate(self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Whether the group has a member. A zombie is one: reap first, then ask.
    pub(crate) fn is_populated(self) -> bool {
        killpg(self.0, None) != Err(Errno::ESRCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_groups_are_refused() {
        for pid in [Pid::from_raw(0), Pid::from_raw(1), Pid::from_raw(-5), getpgrp()] {
            assert_eq!(Group::of(pid), None, "{pid}");
        }
    }

    #[test]
    fn a_vanished_group_is_no_error() {
        // Above the largest pid that Linux ever gives out.
        let group = Group::of(Pid::from_raw(4_194_305)).unwrap();
        group.terminate();
        assert!(!group.is_populated());
    }
}
