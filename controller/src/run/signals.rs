//! Signals at the controller (design section 6): one thread receives them and, from the first on, holds the process
//! to its hour of death, whatever the event loop is stuck in. Nothing else in the process handles signals.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, pthread_sigmask, sigaction};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::mpsc;

/// What told the controller to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A signal.
    Signal(Signal),
    /// The parent ended without a word (`--follow-parent`): counts as SIGTERM.
    ParentGone,
}

impl Stop {
    /// The signal to die by.
    pub const fn signal(self) -> Signal {
        match self {
            Self::Signal(signal) => signal,
            Self::ParentGone => Signal::SIGTERM,
        }
    }

    /// Its name in the document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::ParentGone => "parent gone",
        }
    }
}

/// One arrival.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// What.
    pub stop: Stop,
    /// When.
    pub at: Instant,
}

/// The receiving thread's end of the channel, and a way to add arrivals that are no signals.
#[derive(Debug)]
pub struct Stops {
    /// Arrivals, in order.
    pub arrivals: mpsc::UnboundedReceiver<Arrival>,
    tell: Teller,
}

#[derive(Debug, Clone)]
struct Teller {
    channel: mpsc::UnboundedSender<Arrival>,
    death: Duration,
}

impl Teller {
    /// Passes an arrival on; `false` when nobody listens any more.
    fn tell(&self, stop: Stop) -> bool {
        self.channel.send(Arrival { stop, at: Instant::now() }).is_ok()
    }

    /// The process dies by this at its hour, done or not.
    fn hold_to_death(&self, stop: Stop) {
        let death = self.death;
        let spawned = thread::Builder::new().name("last-resort".into()).spawn(move || {
            thread::sleep(death);
            die_by(stop.signal());
        });
        if spawned.is_err() {
            tracing::warn!("no thread for the last resort; a hanging cleanup would hang the controller");
        }
    }
}

/// Takes over SIGTERM, SIGHUP and SIGINT, also where they were inherited as ignored or blocked.
///
/// `death` is the time from the first signal to the process's end at the latest.
pub fn listen(death: Duration) -> io::Result<Stops> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT])?;
    // After the handlers are in: what was pending behind an inherited mask arrives as an event, not as death.
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGCHLD] {
        set.add(signal);
    }
    pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None)?;
    let (channel, arrivals) = mpsc::unbounded_channel();
    let tell = Teller { channel, death };
    let teller = tell.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = true;
        for number in signals.forever() {
            let Ok(signal) = Signal::try_from(number) else { continue };
            let heard = teller.tell(Stop::Signal(signal));
            if first && heard {
                teller.hold_to_death(Stop::Signal(signal));
            }
            first = false;
        }
    })?;
    Ok(Stops { arrivals, tell })
}

impl Stops {
    /// From now on the parent's end counts as SIGTERM. A parent that is gone already counts at once.
    pub fn follow_parent(&self) -> io::Result<()> {
        let parent = nix::unistd::getppid();
        let Some(pid) = rustix::process::Pid::from_raw(parent.as_raw()) else { return Ok(()) };
        let tell = self.tell.clone();
        let gone = move || {
            if tell.tell(Stop::ParentGone) {
                tell.hold_to_death(Stop::ParentGone);
            }
        };
        let handle = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => {
                gone();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        // Between the two calls the number could have become another process's.
        if nix::unistd::getppid() != parent {
            gone();
            return Ok(());
        }
        thread::Builder::new().name("parent".into()).spawn(move || {
            use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
            use std::os::fd::AsFd;
            loop {
                let mut waited = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
                match poll(&mut waited, PollTimeout::NONE) {
                    Ok(n) if n > 0 => break,
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(_) => return,
                }
            }
            gone();
        })?;
        // A parent that asked the kernel for the time before this watch (the sweep) must not be heard of twice.
        let _ = nix::sys::prctl::set_pdeathsig(None);
        Ok(())
    }
}

/// Restores the default disposition (not the inherited one: under nohup SIGHUP came as ignored, and raising it again
/// would be lost), unblocks and raises. Does not return: a process that the signal cannot end (PID 1) exits with
/// 128 + n.
pub fn die_by(signal: Signal) -> ! {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_DFL installs no handler.
    #[expect(unsafe_code, reason = "sigaction is unsafe for its handlers; this removes one")]
    let _ = unsafe { sigaction(signal, &default) };
    let mut set = SigSet::empty();
    set.add(signal);
    let _ = pthread_sigmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None);
    let _ = kill(Pid::this(), signal);
    // The signal may be delivered to another thread a moment later.
    thread::sleep(Duration::from_secs(1));
    #[expect(clippy::exit, reason = "the last resort of a process that its signal cannot end")]
    std::process::exit(128 + signal as i32)
}
