//! Calls of the container client that answer and end: each in its own process group, without stdin, with bounded
//! output and a deadline, killed when nobody waits for it any more.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Bytes of output kept of one call.
const OUTPUT: u64 = 4 * 1024 * 1024;

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
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let whole = async {
            let (out, err, status) = tokio::join!(capped(stdout), capped(stderr), child.wait());
            Ok(Answer { code: status?.code(), stdout: out?, stderr: err? })
        };
        if let Ok(answer) = tokio::time::timeout(limit, whole).await {
            return answer.map_err(io);
        }
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
    async fn a_call_ends_with_its_deadline_and_leaves_no_child() {
        let cli = Cli::new("/bin/sh");
        let answer = cli.call(&["-c", "echo out; echo err >&2; exit 3"], Duration::from_secs(20)).await.unwrap();
        assert_eq!(answer, Answer { code: Some(3), stdout: "out".into(), stderr: "err".into() });
        let hung = cli.call(&["-c", "sleep 600"], Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(hung, NoAnswer::Timeout { .. }), "{hung}");
        let none = Cli::new("/nonexistent/docker").call(&["ps"], Duration::from_secs(1)).await.unwrap_err();
        assert!(none.to_string().contains("/nonexistent/docker"), "{none}");
    }

    #[tokio::test]
    async fn more_than_the_cap_is_read_and_dropped() {
        let answer =
            Cli::new("/bin/sh").call(&["-c", "head -c 6000000 /dev/zero"], Duration::from_mins(1)).await.unwrap();
        assert!(answer.is_ok() && answer.stdout.len() <= 4 * 1024 * 1024);
    }
}
