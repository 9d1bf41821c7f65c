//! Not PID 1: the agent is a pair (design section 6). The parent waits, passes signals on, adopts what the
//! child leaves behind, ends it when the child is dead, and ends as the child did.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, raise, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid};
use proto::exit::AgentExit;

use super::signals::STOP;
use super::tree;
use crate::timing::{Roots, Timings};

/// Between two looks of the sweep.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the trial in this process as PID 1, otherwise in a child of it.
///
/// The process must have a single thread.
pub(super) fn run(timings: &Timings, grace_sec: u64, roots: &Roots, trial: impl FnOnce() -> AgentExit) -> AgentExit {
    // Whatever loses its parent below us comes to us, in both halves of the pair.
    let _ = set_child_subreaper(true);
    if Pid::this().as_raw() == 1 {
        return trial();
    }
    let parent_pid = Pid::this();
    #[expect(unsafe_code, reason = "fork of a process that has one thread")]
    // SAFETY: no other thread exists yet, so no lock can be held by one that is not copied.
    let forked = unsafe { fork() };
    match forked {
        // Alone it still works; only its own death by SIGKILL would go unnoticed.
        Err(_) => trial(),
        Ok(ForkResult::Child) => {
            let _ = set_child_subreaper(true);
            // The parent's death is a reason to end in order; its main thread is its only one (FS-32).
            let _ = set_pdeathsig(Signal::SIGTERM);
            if getppid() != parent_pid {
                let _ = kill(Pid::this(), Signal::SIGTERM);
            }
            trial()
        }
        Ok(ForkResult::Parent { child }) => parent(child, timings, grace_sec, roots),
    }
}

fn parent(child: Pid, timings: &Timings, grace_sec: u64, roots: &Roots) -> AgentExit {
    let status = wait(child);
    sweep(timings, grace_sec, roots);
    match status {
        WaitStatus::Exited(_, code) => AgentExit::from_code(code).unwrap_or(AgentExit::Internal),
        WaitStatus::Signaled(_, by, _) => {
            die(by);
            AgentExit::Internal
        }
        // `wait` returns none of these.
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive => AgentExit::Internal,
    }
}

/// Waits for the child, reaps whatever else comes along, passes stop signals on.
fn wait(child: Pid) -> WaitStatus {
    let wanted: SigSet = STOP.into_iter().chain([Signal::SIGCHLD]).collect();
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))) if pid == child => {
                    return status;
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::EINTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        if let Ok(arrived) = wanted.wait()
            && arrived != Signal::SIGCHLD
        {
            let _ = kill(child, arrived);
        }
    }
}

/// Ends everything below this process: TERM, the server's grace, KILL. After a child that ended in order there
/// is nothing to do.
fn sweep(timings: &Timings, grace_sec: u64, roots: &Roots) {
    let rungs = [(Signal::SIGTERM, timings.seconds(grace_sec)), (Signal::SIGKILL, timings.kill_wait)];
    for (rung, limit) in rungs {
        let until = Instant::now() + limit;
        let mut told = false;
        loop {
            while matches!(
                waitpid(None, Some(WaitPidFlag::WNOHANG)),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
            ) {}
            let left = tree::strays(&roots.proc).unwrap_or_default();
            if left.is_empty() {
                return;
            }
            // SIGKILL again and again: whoever forks meanwhile gets it too.
            if !told || rung == Signal::SIGKILL {
                for process in &left {
                    let _ = kill(Pid::from_raw(process.pid), rung);
                    let _ = kill(Pid::from_raw(process.pid), Signal::SIGCONT);
                }
                told = true;
            }
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    let left = tree::strays(&roots.proc).unwrap_or_default();
    eprintln!("agent: SIGKILL did not end {}", tree::describe(&left));
}

/// Dies by a signal, as the child did, so that whoever waits for us sees the same.
fn die(by: Signal) {
    #[expect(unsafe_code, reason = "back to the default action")]
    // SAFETY: no handler is installed, only the default action.
    unsafe {
        let _ = signal(by, SigHandler::SigDfl);
    }
    let mut set = SigSet::empty();
    set.add(by);
    let _ = set.thread_unblock();
    let _ = raise(by);
}
