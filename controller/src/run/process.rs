//! The process runtime: the agent is our direct child in a session of its own, we are the subreaper, and what outlives
//! it is ours to find and end (design section 4; issue 4, process trees).

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::identity::{Stat, descendants};
use super::runtime::{Look, RemoveAnswer, Runtime};
use crate::result::observed::Survivor;

/// A process, told apart from a later one with its number.
type Key = (i32, u64);

/// The agent's process tree.
#[derive(Debug)]
pub struct ProcessTree {
    /// Descendants of ours that were there before the spawn: none of the trial's business.
    before: BTreeSet<Key>,
    killed: Mutex<Vec<Survivor>>,
}

/// Makes orphans of the trial ours. To be called before the spawn.
pub fn become_subreaper() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

impl Default for ProcessTree {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessTree {
    /// Notes what is there before the spawn.
    pub fn new() -> Self {
        let own = Pid::this().as_raw();
        Self { before: descendants(own).iter().map(|s| (s.pid, s.start_time)).collect(), killed: Mutex::default() }
    }

    /// Descendants of the trial that live; zombies of ours are reaped on the way.
    fn living(&self) -> Vec<Stat> {
        let own = Pid::this().as_raw();
        let (zombies, living): (Vec<_>, Vec<_>) = descendants(own)
            .into_iter()
            .filter(|s| !self.before.contains(&(s.pid, s.start_time)))
            .partition(Stat::is_zombie);
        for zombie in zombies.iter().filter(|z| z.parent == own) {
            // Only orphans come here: the agent itself is waited for by its owner before the first look.
            let _ = waitpid(Pid::from_raw(zombie.pid), Some(WaitPidFlag::WNOHANG));
        }
        living
    }

    /// What had to be killed, and whether it is gone.
    pub fn survivors(&self) -> Vec<Survivor> {
        let living: BTreeSet<i32> = self.living().iter().map(|s| s.pid).collect();
        let mut killed = self.killed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for survivor in &mut killed {
            survivor.killed = !living.contains(&survivor.pid);
        }
        killed
    }
}

impl Runtime for ProcessTree {
    fn look(&self, _limit: Duration) -> BoxFuture<'_, Look> {
        let found = match self.living().first() {
            None => Look::Absent,
            Some(stat) => Look::Ours { id: format!("{} {}", stat.pid, stat.name), running: true },
        };
        Box::pin(std::future::ready(found))
    }

    fn remove<'a>(&'a self, _id: Option<&'a str>, _limit: Duration) -> BoxFuture<'a, RemoveAnswer> {
        let living = self.living();
        let mut killed = self.killed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for stat in &living {
            // The number is a child's of ours or a descendant's that was just seen: it cannot be anybody else's yet.
            let _ = kill(Pid::from_raw(stat.pid), Signal::SIGKILL);
            if !killed.iter().any(|s| s.pid == stat.pid) {
                killed.push(Survivor { pid: stat.pid, name: stat.name.clone(), killed: false });
            }
        }
        drop(killed);
        Box::pin(std::future::ready(if living.is_empty() { RemoveAnswer::NoSuch } else { RemoveAnswer::Accepted }))
    }

    fn by_hand(&self) -> String {
        let pids: Vec<_> = self.living().iter().map(|s| s.pid.to_string()).collect();
        format!("kill -9 {}", pids.join(" "))
    }
}
