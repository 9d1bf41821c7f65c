//! A trial as a child `controller run` on this machine, which neither outlives the sweep nor starts before the sweep
//! has written down that it did.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::plan::Plan;
use crate::run::identity::ProcessIdentity;
use crate::run::signals::{Stop, Stops};

/// A signalled trial is gone after 3.9 s (design section 6); this leaves room for a busy machine.
const STOP_LIMIT: Duration = Duration::from_secs(8);
/// Between two looks at what the trial said.
const LOOK: Duration = Duration::from_millis(250);

/// A trial that was started and has not been told its configuration yet.
#[derive(Debug)]
pub struct Started {
    child: Child,
    pid: Pid,
    /// Who it is.
    pub identity: Option<ProcessIdentity>,
}

/// How the wait for a trial ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself.
    Alone(ExitStatus),
    /// After the sweep was told to stop, and the trial with it.
    Stopped(Stop),
}

/// Where a trial writes.
#[derive(Debug)]
pub struct Places {
    /// Its result document.
    pub result: PathBuf,
    /// Its stderr.
    pub log: PathBuf,
}

/// Starts `controller run`, which waits for its configuration.
pub fn start(plan: &Plan, places: &Places) -> io::Result<Started> {
    let log = File::create(&places.log)?;
    // This very program, even where its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("controller").args(["run", "--config", "-", "--follow-parent", "--progress", "plain", "--result"]);
    command.arg(&places.result);
    if let Some(runtime) = plan.overrides.runtime {
        command.args(["--runtime", runtime.as_str()]);
    }
    if let Some(agent) = &plan.overrides.agent_path {
        command.arg("--agent").arg(agent);
    }
    // A group of its own: Ctrl-C at the terminal reaches it through us, once.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).process_group(0);
    let parent = nix::unistd::getpid();
    // SAFETY: between fork and exec, two async-signal-safe system calls.
    #[expect(unsafe_code, reason = "until it watches its parent, the kernel does it")]
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            // Killed between fork and prctl: nobody is left to follow.
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        });
    }
    let child = command.spawn()?;
    let number = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
    Ok(Started { child, pid: Pid::from_raw(number), identity: ProcessIdentity::of(number) })
}

impl Started {
    /// Tells it its configuration; from here on it acts. A child that is gone already says why by its end.
    pub async fn tell(&mut self, config: &[u8]) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.write_all(config).await;
            let _ = stdin.shutdown().await;
        }
    }

    /// Waits for its end; `look` is called now and then. A signal to the sweep is passed on, and its end awaited.
    pub async fn end(mut self, stops: &mut Stops, mut look: impl FnMut()) -> io::Result<Ended> {
        loop {
            tokio::select! {
                biased;
                Some(arrival) = stops.arrivals.recv() => {
                    self.stop(arrival.stop.signal(), stops).await;
                    return Ok(Ended::Stopped(arrival.stop));
                }
                status = self.child.wait() => return Ok(Ended::Alone(status?)),
                () = sleep(LOOK) => look(),
            }
        }
    }

    /// Passes signals on until it is gone.
    async fn stop(&mut self, first: Signal, stops: &mut Stops) {
        let _ = kill(self.pid, first);
        let wait = async {
            loop {
                tokio::select! {
                    _ = self.child.wait() => return,
                    Some(again) = stops.arrivals.recv() => { let _ = kill(self.pid, again.stop.signal()); }
                }
            }
        };
        if timeout(STOP_LIMIT, wait).await.is_err() {
            tracing::warn!("the trial (pid {}) has not ended; it follows this process", self.pid);
        }
    }
}

/// The last thing that a trial said about its progress, without the clock before it.
pub fn last_words(log: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _};
    const TAIL: u64 = 4096;
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| line.starts_with('[') && line.contains(" s] "))?;
    Some(line.split_once(" s] ")?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_progress_line_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_words(&log), None);
        std::fs::write(&log, "WARN something\n[    0.1 s] preparing\n[   12.0 s] measured step 1 of 3\nWARN x\n")
            .unwrap();
        assert_eq!(last_words(&log).as_deref(), Some("measured step 1 of 3"));
    }
}
