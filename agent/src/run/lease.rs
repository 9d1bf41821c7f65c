//! The lease: a file that the living controller keeps locked (design section 6).
//!
//! A thread blocks in `flock`; the kernel wakes it when the holder is dead, whoever it was and however it
//! died. A stopped holder keeps the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::status::LeaseStatus;

/// What the thread reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseEvent {
    /// The lease changed hands or lost them.
    Now(LeaseStatus),
    /// Free for the whole grace; says how.
    Lost(String),
}

/// Opens the lease file; `None` where there is none, which means that nobody can lose it.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    // Non-blocking, so that a FIFO in its place cannot hold us.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Watches the lease from a thread of its own until it is lost.
pub(super) fn watch(
    file: File,
    grace: Duration,
    mut report: impl FnMut(LeaseEvent) + Send + 'static,
) -> io::Result<()> {
    let watch = move || {
        let mut file = file;
        let mut was_held = false;
        loop {
            // Free for the moment? If not, somebody holds it: say so, then sleep in the kernel.
            let (next, held) = match Flock::lock(file, FlockArg::LockSharedNonblock) {
                Ok(lock) => (lock.unlock().map_err(|(lock, _)| lock), false),
                Err((file, Errno::EWOULDBLOCK)) => (Ok(file), true),
                Err((file, _)) => (Ok(file), false),
            };
            let Ok(mut open) = next else { return };
            if held {
                was_held = true;
                report(LeaseEvent::Now(LeaseStatus::Held));
                match Flock::lock(open, FlockArg::LockShared) {
                    Ok(lock) => match lock.unlock() {
                        Ok(file) => open = file,
                        Err(_) => return,
                    },
                    Err((file, _)) => open = file,
                }
            }
            report(LeaseEvent::Now(LeaseStatus::Free));
            // The grace, in which another controller may take the lock. One sleep, not a poll.
            std::thread::sleep(grace);
            match Flock::lock(open, FlockArg::LockSharedNonblock) {
                Ok(lock) => {
                    let how = if was_held {
                        "its holder is gone"
                    } else {
                        "it was free from the start: the lease is not visible here, or nobody took it"
                    };
                    report(LeaseEvent::Lost(format!("nobody held the lease for {} s; {how}", grace.as_secs())));
                    drop(lock);
                    return;
                }
                Err((open, _)) => file = open,
            }
        }
    };
    std::thread::Builder::new().name("lease".into()).spawn(watch).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const GRACE: Duration = Duration::from_millis(300);
    const PATIENCE: Duration = Duration::from_secs(20);

    fn started() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease.x");
        File::create(&path).unwrap();
        (dir, path)
    }

    fn held(path: &Path) -> Flock<File> {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).unwrap()
    }

    #[test]
    fn a_dead_holder_is_noticed_and_the_grace_runs() {
        let (_dir, path) = started();
        let holder = held(&path);
        let (tx, rx) = channel();
        watch(open(&path).unwrap().unwrap(), GRACE, move |e| drop(tx.send(e))).unwrap();
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Held)));
        drop(holder);
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Free)));
        let Ok(LeaseEvent::Lost(how)) = rx.recv_timeout(PATIENCE) else { panic!("not lost") };
        assert!(how.contains("its holder is gone"), "{how}");
    }

    #[test]
    fn another_controller_may_take_it_within_the_grace() {
        let (_dir, path) = started();
        let (tx, rx) = channel();
        watch(open(&path).unwrap().unwrap(), GRACE, move |e| drop(tx.send(e))).unwrap();
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Free)));
        let second = held(&path);
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Held)));
        drop(second);
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Free)));
    }

    #[test]
    fn free_from_the_start_is_said_so() {
        let (_dir, path) = started();
        let (tx, rx) = channel();
        watch(open(&path).unwrap().unwrap(), GRACE, move |e| drop(tx.send(e))).unwrap();
        assert_eq!(rx.recv_timeout(PATIENCE), Ok(LeaseEvent::Now(LeaseStatus::Free)));
        let Ok(LeaseEvent::Lost(how)) = rx.recv_timeout(PATIENCE) else { panic!("not lost") };
        assert!(how.contains("not visible"), "{how}");
    }

    #[test]
    fn no_file_is_off_and_a_link_is_an_error() {
        let (dir, path) = started();
        assert!(open(&dir.path().join("none")).unwrap().is_none());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(open(&link).is_err());
    }
}
