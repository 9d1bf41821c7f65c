//! The client of a trial: the container client, or in the process runtime the agent itself, as our child in a process
//! group (or session) of its own, without stdin, both streams drained from the first byte on.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use proto::secret::Secrets;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::output::{Captured, drain};

/// What is started.
#[derive(Clone)]
pub struct Launch {
    /// Program.
    pub program: PathBuf,
    /// Arguments, without the program.
    pub args: Vec<OsString>,
    /// The whole environment. Holds secrets: never shown.
    pub env: Vec<(OsString, OsString)>,
    /// A session of its own rather than a process group: the process runtime.
    pub own_session: bool,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch")
            .field("program", &self.program)
            .field("own_session", &self.own_session)
            .finish_non_exhaustive()
    }
}

/// A spawned client.
#[derive(Debug)]
pub struct Client {
    child: Child,
    pid: Pid,
    streams: Streams,
}

/// What the client wrote, and the tasks that read it.
#[derive(Debug)]
pub struct Streams {
    stdout: Arc<Mutex<Captured>>,
    stderr: Arc<Mutex<Captured>>,
    readers: Vec<JoinHandle<()>>,
    /// What the client was given and must not be quoted with.
    secrets: Secrets,
}

fn open(shared: &Mutex<Captured>) -> MutexGuard<'_, Captured> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Starts it.
    pub fn spawn(launch: &Launch) -> io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).env_clear().envs(launch.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if launch.own_session {
            // SAFETY: setsid is async-signal-safe and touches no memory of ours.
            #[expect(unsafe_code, reason = "pre_exec is the only way into a new session")]
            unsafe {
                command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
            }
        } else {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the child has no process id"))?;
        let secrets = Secrets::among(launch.env.iter().map(|(name, value)| (name, value)));
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            readers.push(tokio::spawn(drain(stream, Arc::clone(&stdout))));
        }
        if let Some(stream) = child.stderr.take() {
            readers.push(tokio::spawn(drain(stream, Arc::clone(&stderr))));
        }
        Ok(Self { child, pid, streams: Streams { stdout, stderr, readers, secrets } })
    }

    /// Its process id.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for it; may be given up and called again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// SIGTERM to the client alone: it passes the signal on to what it stands for.
    pub fn terminate(&self) {
        report(kill(self.pid, Signal::SIGTERM));
    }

    /// SIGKILL to its whole group: nobody is left who could still create a container.
    pub fn kill(&self) {
        report(killpg(self.pid, Signal::SIGKILL));
        report(kill(self.pid, Signal::SIGKILL));
    }

    /// The streams of a client that is gone or given up.
    pub fn into_streams(self) -> Streams {
        self.streams
    }

    /// The streams of a living client.
    pub const fn streams(&self) -> &Streams {
        &self.streams
    }
}

fn report(result: nix::Result<()>) {
    match result {
        // Gone already.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => tracing::warn!("could not signal the client: {}", errno.desc()),
    }
}

impl Streams {
    /// Waits for both ends; what somebody else keeps open is given up after the limit.
    pub async fn finish(&mut self, limit: Duration) {
        let all = async {
            for reader in &mut self.readers {
                let _ = reader.await;
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::debug!("a stream of the client is still open; what came so far is kept");
            self.readers.iter().for_each(JoinHandle::abort);
        }
        self.readers.clear();
    }

    /// Tails of stdout and stderr.
    pub fn tails(&self) -> (String, String) {
        (open(&self.stdout).tail.text(&self.secrets), open(&self.stderr).tail.text(&self.secrets))
    }

    /// Whether the agent said anything on stdout.
    pub fn spoke(&self) -> bool {
        open(&self.stdout).markers.any()
    }

    /// Markers on stdout.
    pub fn markers(&self) -> proto::marker::Markers {
        open(&self.stdout).markers.markers()
    }
}

/// The client's status as the contract counts it: a signal as a negative number.
pub fn status_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| -status.signal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-25: a reader that fails costs its stream, not the trial.
    #[tokio::test]
    async fn a_reader_that_panics_is_not_waited_for() {
        let failing = tokio::spawn(async { panic!("on purpose") });
        let mut streams = Streams {
            stdout: Arc::default(),
            stderr: Arc::default(),
            readers: vec![failing],
            secrets: Secrets::default(),
        };
        open(&streams.stderr).tail.push(b"so far");
        tokio::time::timeout(Duration::from_secs(20), streams.finish(Duration::from_mins(1))).await.unwrap();
        assert_eq!(streams.tails(), (String::new(), "so far".to_owned()));
    }
}
