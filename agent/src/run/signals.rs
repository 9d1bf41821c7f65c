//! Signals as data: blocked from the first instruction, read from one descriptor.
//!
//! A blocked signal is kept even for PID 1, whose default action would be to ignore it; nothing can be
//! lost between the start of the process and the moment when somebody reads (failure scenario FS-26).

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The signals that end a trial.
pub(super) const STOP: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

fn set() -> SigSet {
    STOP.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Blocks every signal that the supervisor handles. First thing in `main`: threads inherit it.
pub fn block() -> io::Result<()> {
    set().thread_block().map_err(io::Error::from)
}

/// Back to the defaults, for commands that are not supervised.
pub fn restore() -> io::Result<()> {
    set().thread_unblock().map_err(io::Error::from)
}

/// What arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Arrived {
    /// A child may be reaped.
    pub(super) child: bool,
    /// Somebody wants the trial to stop.
    pub(super) stop: Option<Signal>,
}

/// The descriptor that signals are read from.
#[derive(Debug)]
pub(super) struct Signals {
    fd: AsyncFd<SignalFd>,
}

impl Signals {
    /// Opens it; the signals must be blocked.
    pub(super) fn open() -> io::Result<Self> {
        let fd = SignalFd::with_flags(&set(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        #[expect(unsafe_code, reason = "the descriptor must outlive its registration")]
        // SAFETY: the `AsyncFd` owns the `SignalFd`, which owns the descriptor.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self { fd })
    }

    /// Waits for signals and takes all that are pending. Cancel-safe.
    pub(super) async fn arrived(&mut self) -> io::Result<Arrived> {
        let mut guard = self.fd.readable_mut().await?;
        let mut arrived = Arrived::default();
        while let Some(info) = guard.get_inner_mut().read_signal()? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            match signal {
                Some(Signal::SIGCHLD) => arrived.child = true,
                Some(signal) => arrived.stop = arrived.stop.or(Some(signal)),
                None => {}
            }
        }
        guard.clear_ready();
        Ok(arrived)
    }
}
