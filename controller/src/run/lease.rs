//! The lease: a file lock that the kernel gives back when the controller dies, in whatever way (design section 6).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use proto::names::{self, RunToken};

/// A held lease. Dropping it, or dying, gives it back.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Lease {
    /// Creates `<out>/lease.<token>` and locks it. The file must be new: a token is used once.
    ///
    /// Mode 0644: the container may run as another user and only needs to open it for reading. Close-on-exec, or the
    /// client would hold the lease for a dead controller.
    pub fn take(out_dir: &Path, token: &RunToken) -> io::Result<Self> {
        let path = out_dir.join(names::lease(token));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)?;
        // umask may have taken the read bits that a container of another user needs.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, errno)) => {
                let _ = std::fs::remove_file(&path);
                Err(errno.into())
            }
        }
    }

    /// Removes the file: only once nothing that watches it can be alive.
    pub fn retire(self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("could not remove {}: {error}", self.path.display());
        }
    }
}

/// What can be said about somebody else's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Nobody holds it.
    Free,
    /// A living controller holds it.
    Held,
    /// There is no such file.
    Missing,
    /// Not ours, no regular file, not readable.
    Unknown,
}

/// Looks whether a lease is held, without keeping it.
pub fn look(path: &Path) -> LeaseState {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return LeaseState::Missing,
        Err(_) => return LeaseState::Unknown,
    };
    let ours = file.metadata().is_ok_and(|m| m.is_file() && m.uid() == nix::unistd::geteuid().as_raw());
    if !ours {
        return LeaseState::Unknown;
    }
    // Shared, as the agent's own: only a living controller's exclusive lock stands against it.
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => LeaseState::Free,
        Err((_, Errno::EWOULDBLOCK)) => LeaseState::Held,
        Err(_) => LeaseState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_free_missing() {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        let path = dir.path().join("lease.7-1");
        assert_eq!(look(&path), LeaseState::Missing);
        let lease = Lease::take(dir.path(), &token).unwrap();
        assert_eq!(look(&path), LeaseState::Held);
        assert!(Lease::take(dir.path(), &token).is_err(), "a token is used once");
        drop(lease);
        assert_eq!(look(&path), LeaseState::Free);
        std::fs::remove_file(&path).unwrap();
        let lease = Lease::take(dir.path(), &token).unwrap();
        lease.retire();
        assert_eq!(look(&path), LeaseState::Missing);
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert_eq!(look(&path), LeaseState::Unknown);
    }

    /// FS-90.
    #[test]
    fn a_child_does_not_inherit_it() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::take(dir.path(), &RunToken::parse("7-1").unwrap()).unwrap();
        let mut child = std::process::Command::new("/bin/cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        drop(lease);
        assert_eq!(look(&dir.path().join("lease.7-1")), LeaseState::Free);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
