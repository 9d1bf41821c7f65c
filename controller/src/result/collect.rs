//! Exports from a directory that somebody else wrote into: opened relative to one pinned handle, no link followed,
//! exactly the expected set, in numeric order (contract B.7 and I.1; failure scenarios FS-66 to FS-70).

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use proto::export;
use proto::names::{self, RunToken};

use super::observed::Record;

/// What a directory held of one trial.
#[derive(Debug, Default)]
pub struct Collected {
    /// Readable exports, in step order.
    pub records: Vec<Record>,
    /// Exports that are there and cannot be read, with why.
    pub dropped: Vec<Dropped>,
}

/// An export that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Measured step.
    pub step: u32,
    /// Why, with the file's name.
    pub why: String,
}

/// Collects the exports of steps 1 to `steps` of one trial. Files of other tokens, of warmups or of steps that nobody
/// asked for are never looked at; a missing step is simply absent.
pub fn collect(out_dir: &Path, token: &RunToken, steps: u32) -> Collected {
    let mut collected = Collected::default();
    // Pinned once: a directory that is swapped afterwards changes nothing.
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let handle = match open(out_dir, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(errno) => {
            collected.dropped.push(Dropped { step: 0, why: format!("{}: {}", out_dir.display(), errno.desc()) });
            return collected;
        }
    };
    let pinned = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    for step in 1..=steps {
        let name = names::export(token, step);
        match read_one(&pinned.join(&name)) {
            Ok(Some(export)) => collected.records.push(Record { step, path: out_dir.join(&name), export }),
            Ok(None) => {}
            Err(why) => collected.dropped.push(Dropped { step, why: format!("{name}: {why}") }),
        }
    }
    collected
}

/// `None`: there is no such file.
fn read_one(path: &Path) -> Result<Option<export::Export>, String> {
    match export::open(path) {
        Ok(file) => export::read(file).map(Some).map_err(|e| e.to_string()),
        Err(export::OpenError::Missing) => Ok(None),
        Err(error @ (export::OpenError::NotRegular(_) | export::OpenError::Io(_))) => Err(error.to_string()),
    }
}
