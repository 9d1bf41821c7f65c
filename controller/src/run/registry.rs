//! The trials of this user on this host: one file each, locked by its living controller (design section 6). `watch`
//! lists it, `run` and `reap` clean what it proves dead.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use proto::names::RunToken;
use serde::{Deserialize, Serialize};

use super::identity::{Life, ProcessIdentity};
use super::lease::{self, LeaseState};
use crate::config::trial::RuntimeKind;

/// What is known of one trial while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Part of every file name of the trial.
    pub token: String,
    /// What holds the agent.
    pub runtime: RuntimeKind,
    /// The container client, as it was called.
    pub client: Option<String>,
    /// Name of the container.
    pub container: Option<String>,
    /// Directory of exports and logs.
    pub out_dir: PathBuf,
    /// Socket of the status stream.
    pub socket: PathBuf,
    /// The controller.
    pub controller: ProcessIdentity,
    /// The agent, in the process runtime, once it is spawned.
    pub agent: Option<ProcessIdentity>,
}

/// The folder of entries.
#[derive(Debug, Clone)]
pub struct Registry {
    dir: PathBuf,
}

/// The entry of this controller's own trial. Dropping it unlocks the file and leaves it.
#[derive(Debug)]
pub struct Registered {
    path: PathBuf,
    lock: Flock<File>,
}

/// An entry that was found.
#[derive(Debug)]
pub struct Found {
    /// What it says.
    pub entry: Entry,
    /// Whether its controller lives.
    pub life: Life,
    path: PathBuf,
}

/// A registry folder that cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A link, a file, another user's, or open to others.
    #[error("{path} is {what}; remove it, or set TMPDIR to a folder of your own")]
    Untrusted {
        /// Where.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The system's own words.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl Registry {
    /// Opens the user's registry: `/run/user/<uid>/ts-bench`, or `<tmp>/ts-bench-u<uid>`. Made 0700 where missing; a
    /// folder that another user could write is refused.
    pub fn open(at: Option<&Path>) -> Result<Self, RegistryError> {
        let uid = nix::unistd::geteuid().as_raw();
        let dir = match at {
            Some(dir) => dir.to_owned(),
            None => Self::place(uid),
        };
        let io_error = |source| RegistryError::Io { path: dir.display().to_string(), source };
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error(error)),
        }
        let meta = fs::symlink_metadata(&dir).map_err(io_error)?;
        let what = if !meta.is_dir() {
            Some("not a directory".to_owned())
        } else if meta.uid() != uid {
            Some(format!("owned by uid {}", meta.uid()))
        } else if meta.mode() & 0o022 != 0 {
            Some(format!("group- or world-writable ({:o})", meta.mode() & 0o7777))
        } else {
            None
        };
        match what {
            Some(what) => Err(RegistryError::Untrusted { path: dir.display().to_string(), what }),
            None => Ok(Self { dir }),
        }
    }

    fn place(uid: u32) -> PathBuf {
        let runtime = PathBuf::from(format!("/run/user/{uid}"));
        let ours = fs::symlink_metadata(&runtime).is_ok_and(|m| m.is_dir() && m.uid() == uid);
        if ours {
            return runtime.join("ts-bench");
        }
        let tmp = std::env::var_os("TMPDIR").filter(|t| !t.is_empty()).map_or_else(|| "/tmp".into(), PathBuf::from);
        tmp.join(format!("ts-bench-u{uid}"))
    }

    /// Records a trial before anything of it is spawned.
    pub fn register(&self, entry: &Entry) -> io::Result<Registered> {
        let path = self.dir.join(format!("{}.json", entry.token));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
        let mut registered = Registered { path, lock };
        registered.update(entry)?;
        Ok(registered)
    }

    /// Every readable entry, with what is proven about its controller.
    pub fn entries(&self) -> Vec<Found> {
        let Ok(listing) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut found: Vec<Found> = listing.flatten().filter_map(|e| Self::read(&e.path())).collect();
        found.sort_by(|a, b| a.entry.token.cmp(&b.entry.token));
        found
    }

    /// Takes a trial off the list if its controller is proven dead, and returns where its files lie.
    pub fn forget_dead(&self, token: &RunToken) -> Option<PathBuf> {
        let dead = |f: &Found| f.entry.token == token.as_str() && f.life == Life::Dead;
        let found = self.entries().into_iter().find(dead)?;
        found.forget().ok()?;
        Some(found.entry.out_dir)
    }

    fn read(path: &Path) -> Option<Found> {
        if path.extension().is_none_or(|ext| ext != "json") {
            return None;
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        if !file.metadata().is_ok_and(|m| m.is_file() && m.len() <= 64 * 1024) {
            return None;
        }
        let entry: Entry = serde_json::from_reader(&file).ok()?;
        // The name in it leads to files and containers: it must be the safe one that the file's name is made of.
        let token = RunToken::parse(&entry.token).ok()?;
        if path.file_stem()?.to_str()? != token.as_str() {
            return None;
        }
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err();
        let lease = lease::look(&entry.out_dir.join(proto::names::lease(&token)));
        let life = judge(entry.controller.life(), locked, lease);
        Some(Found { entry, life, path: path.to_owned() })
    }
}

/// Dead means: same boot and namespace, the process gone, both locks free. Anything else is unknown (design section 6).
const fn judge(process: Life, entry_locked: bool, lease: LeaseState) -> Life {
    match (process, entry_locked, lease) {
        (Life::Dead, false, LeaseState::Free | LeaseState::Missing) => Life::Dead,
        (Life::Alive, _, _) => Life::Alive,
        (Life::Dead | Life::Unknown, _, _) => Life::Unknown,
    }
}

impl Registered {
    /// Rewrites the entry in place: the lock is on this file.
    pub fn update(&mut self, entry: &Entry) -> io::Result<()> {
        use std::io::Seek;
        let bytes = serde_json::to_vec(entry).map_err(io::Error::from)?;
        self.lock.rewind()?;
        self.lock.set_len(0)?;
        self.lock.write_all(&bytes)?;
        self.lock.sync_data()
    }

    /// Takes the trial off the list: only once nothing of it is left.
    pub fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("could not remove {}: {error}", self.path.display());
        }
    }
}

impl Found {
    /// Forgets an entry whose trial left nothing.
    pub fn forget(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(token: &str, controller: ProcessIdentity, out: &Path) -> Entry {
        Entry {
            token: token.into(),
            runtime: RuntimeKind::Process,
            client: None,
            container: None,
            out_dir: out.to_owned(),
            socket: out.join("agent.sock"),
            controller,
            agent: None,
        }
    }

    /// FS-17.
    #[test]
    fn dead_is_proven_or_it_is_unknown() {
        for (process, locked, lease, life) in [
            (Life::Dead, false, LeaseState::Free, Life::Dead),
            (Life::Dead, false, LeaseState::Missing, Life::Dead),
            (Life::Dead, true, LeaseState::Free, Life::Unknown),
            (Life::Dead, false, LeaseState::Held, Life::Unknown),
            (Life::Dead, false, LeaseState::Unknown, Life::Unknown),
            (Life::Unknown, false, LeaseState::Free, Life::Unknown),
            (Life::Alive, true, LeaseState::Held, Life::Alive),
        ] {
            assert_eq!(judge(process, locked, lease), life, "{process:?} {locked} {lease:?}");
        }
    }

    #[test]
    fn entries_live_and_die_with_their_controller() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(Some(&dir.path().join("r"))).unwrap();
        let own = ProcessIdentity::own().unwrap();
        let alive = registry.register(&entry("1-1", own.clone(), dir.path())).unwrap();
        let gone = ProcessIdentity { start_time: own.start_time + 1, ..own };
        drop(registry.register(&entry("1-2", gone, dir.path())).unwrap());
        fs::write(dir.path().join("r/../r/evil.json"), r#"{"token":"../x"}"#).unwrap();
        let lives: Vec<_> = registry.entries().iter().map(|f| (f.entry.token.clone(), f.life)).collect();
        assert_eq!(lives, [("1-1".to_owned(), Life::Alive), ("1-2".to_owned(), Life::Dead)]);
        alive.remove();
        assert_eq!(registry.entries().len(), 1);
    }

    #[test]
    fn a_folder_that_others_could_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Registry::open(Some(&open)).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(Registry::open(Some(&link)).is_err());
    }
}
