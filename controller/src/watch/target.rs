//! From TARGET to a source: a run token, a socket path, `http://host:port`, or a journal file.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use proto::names::{self, RunToken};

use crate::agent_link::{BadTarget, Target};
use crate::run::registry::{Entry, Found, Registry};

/// What TARGET names.
#[derive(Debug)]
pub enum Named {
    /// An agent that may be asked.
    Agent(Target),
    /// A journal on disk.
    Journal(PathBuf),
}

/// A TARGET that leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Written wrongly.
    #[error("{0}")]
    Bad(#[from] BadTarget),
    /// Neither socket nor file.
    #[error("{0} is neither a socket nor a journal file")]
    Neither(String),
    /// No such trial, path or address.
    #[error("no such trial: {0}; `controller watch` without a target lists the trials on this host")]
    NotFound(String),
}

/// Finds out what `target` is; `token` is the secret for TCP.
pub fn resolve(target: &str, token: Option<String>, trials: &[Found]) -> Result<Named, TargetError> {
    if target.contains("://") {
        return Ok(Named::Agent(Target::tcp(target, token)?));
    }
    let path = Path::new(target.strip_prefix("unix:").unwrap_or(target));
    if let Ok(found) = std::fs::metadata(path) {
        let kind = found.file_type();
        return if kind.is_socket() {
            Ok(Named::Agent(Target::Unix(path.to_owned())))
        } else if kind.is_file() {
            Ok(Named::Journal(path.to_owned()))
        } else {
            Err(TargetError::Neither(target.to_owned()))
        };
    }
    let not_found = || TargetError::NotFound(target.to_owned());
    let run_token = RunToken::parse(target).map_err(|_| not_found())?;
    let entry = trials.iter().map(|found| &found.entry).find(|entry| entry.token == target).ok_or_else(not_found)?;
    Ok(of_trial(entry, &run_token))
}

/// The living agent's socket; without it the journal, where the trial has left one.
fn of_trial(entry: &Entry, token: &RunToken) -> Named {
    let journal = entry.out_dir.join(names::journal(token));
    if std::fs::symlink_metadata(&entry.socket).is_err() && journal.is_file() {
        return Named::Journal(journal);
    }
    Named::Agent(Target::Unix(entry.socket.clone()))
}

/// The trials of this user on this host; none where the registry cannot be read.
pub fn trials() -> Vec<Found> {
    match Registry::open(None) {
        Ok(registry) => registry.entries(),
        Err(error) => {
            eprintln!("controller watch: {error}");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_what_it_looks_like() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("a.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let journal = dir.path().join("events.7-1.jsonl");
        std::fs::write(&journal, "").unwrap();
        let named = |target: &str| resolve(target, None, &[]);
        assert!(matches!(named("http://127.0.0.1:1"), Ok(Named::Agent(Target::Tcp { .. }))));
        assert!(matches!(named(socket.to_str().unwrap()), Ok(Named::Agent(Target::Unix(_)))));
        assert!(matches!(named(&format!("unix:{}", socket.display())), Ok(Named::Agent(Target::Unix(_)))));
        assert!(matches!(named(journal.to_str().unwrap()), Ok(Named::Journal(_))));
        assert!(matches!(named(dir.path().to_str().unwrap()), Err(TargetError::Neither(_))));
        for nowhere in ["7-1", "/no/such/socket", "../x", ""] {
            assert!(matches!(named(nowhere), Err(TargetError::NotFound(_))), "{nowhere}");
        }
        assert!(matches!(named("https://h:1"), Err(TargetError::Bad(_))));
    }
}
