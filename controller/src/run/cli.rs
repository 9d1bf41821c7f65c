//! Calls of the container client that answer and end: each in its own process group, without stdin, with bounded
//! output and a deadline, killed when nobody waits for it any more.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// Bytes of output kept of one call.
const OUTPUT: u64 = 4 * 1024 * 1024;

/// Longest wait for a killed call to be gone.
const REAP: Duration = Duration::from_secs(1);

/// A call's process group, the client's helpers among it: killed unless the call came to its end. Whoever gives a call up
/// gives this up.
#[derive(Debug)]
pub struct Group(Option<Pid>);

impl Group {
    /// The group of a child that was started with one of its own.
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// The call came to its end: nothing is left to kill.
    pub fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Gone already is as good.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// The client program.
#[derive(Debug, Clone)]
pub struct Cli {
    program: PathBuf,
}

/// What a call said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Trimmed.
    pub stdout: String,
    /// Trimmed.
    pub stderr: String,
}

impl Answer {
    /// Exit 0.
    pub fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// stderr, or a word that there is none.
    pub fn words(&self) -> &str {
        if self.stderr.is_empty() { "(no stderr)" } else { &self.stderr }
    }
}

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It could not be started or read.
    #[error("could not run {program}: {source}")]
    Io {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The deadline passed.
    #[error("no answer from `{call}` in {seconds:.1} s")]
    Timeout {
        /// Program and sub-command.
        call: String,
        /// The limit.
        seconds: f64,
    },
}

impl Cli {
    /// A client by name or path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs one call to its end.
    pub async fn call<S: AsRef<OsStr>>(&self, args: &[S], limit: Duration) -> Result<Answer, NoAnswer> {
        let io = |source| NoAnswer::Io { program: self.program.display().to_string(), source };
        let mut child = Command::new(&self.program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(io)?;
        let group = Group::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let whole = async {
            let (out, err, status) = tokio::join!(capped(stdout), capped(stderr), child.wait());
            Ok(Answer { code: status?.code(), stdout: out?, stderr: err? })
        };
        if let Ok(answer) = tokio::time::timeout(limit, whole).await {
            group.over();
            return answer.map_err(io);
        }
        drop(group);
        // One that does not die of SIGKILL is reaped in the background when it does.
        let _ = tokio::time::timeout(REAP, child.wait()).await;
        let sub = args.first().map(|a| a.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
        let call = format!("{} {sub}", self.program.display());
        Err(NoAnswer::Timeout { call, seconds: limit.as_secs_f64() })
    }
}

/// Reads a stream to its end and keeps the beginning.
async fn capped(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let Some(mut stream) = stream else { return Ok(String::new()) };
    let mut kept = Vec::new();
    (&mut stream).take(OUTPUT).read_to_end(&mut kept).await?;
    // What is beyond the cap is read and dropped, or the child would block on a full pipe.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&kept).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_and_reasons_for_none() {
        let cli = Cli::new("/bin/sh");
        let answer = cli.call(&["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(20)).await.unwrap();
        assert_eq!(answer, Answer { code: Some(3), stdout: "out".into(), stderr: "err".into() });
        let none = Cli::new("/nonexistent/docker").call(&["ps"], Duration::from_secs(1)).await.unwrap_err();
        assert!(none.to_string().contains("/nonexistent/docker"), "{none}");
    }

    /// FS-25: neither the client nor its helper is left, alive or dead, whoever gave the call up.
    #[tokio::test]
    async fn a_call_ends_with_its_deadline_and_leaves_no_child() {
        let dir = tempfile::tempdir().unwrap();
        let cli = Cli::new("/bin/sh");
        let pids = |name: &str| -> Vec<i32> {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
        };
        let script = |name: &str| format!("sleep 600 & echo $$ $! > {}; wait", dir.path().join(name).display());
        let gone = async |name: &str| {
            let until = tokio::time::Instant::now() + Duration::from_secs(20);
            // The helper is an orphan by now: whoever reaps it takes its own time.
            let lives = |pid: &i32| super::super::identity::Stat::of(*pid).is_some_and(|stat| !stat.is_zombie());
            while pids(name).iter().any(lives) {
                assert!(tokio::time::Instant::now() < until, "{:?} live on", pids(name));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let hung = cli.call(&["-c", &script("deadline")], Duration::from_secs(2)).await.unwrap_err();
        assert!(matches!(hung, NoAnswer::Timeout { .. }), "{hung}");
        assert_eq!(pids("deadline").len(), 2);
        assert_eq!(
            super::super::identity::Stat::of(pids("deadline")[0]),
            None,
            "the client is reaped, not only killed"
        );
        gone("deadline").await;

        let words = ["-c".to_owned(), script("dropped")];
        tokio::select! {
            answer = cli.call(&words, Duration::from_mins(1)) => panic!("{answer:?}"),
            () = async { while pids("dropped").len() < 2 { tokio::time::sleep(Duration::from_millis(10)).await; } } => {}
        }
        gone("dropped").await;
    }

    #[tokio::test]
    async fn more_than_the_cap_is_read_and_dropped() {
        let answer =
            Cli::new("/bin/sh").call(&["-c", "head -c 6000000 /dev/zero"], Duration::from_mins(1)).await.unwrap();
        assert!(answer.is_ok() && answer.stdout.len() <= 4 * 1024 * 1024);
    }
}
