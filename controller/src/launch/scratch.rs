//! Scratch on the host: a shared root, a directory per user below it, and in that one the trial's places (contract F.2).
//!
//! The root may be world-writable, so nothing below it is trusted by name: each directory is opened relative to the
//! checked handle of its parent, never through a link, and it is the open directory that is checked.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, access, unlinkat};

use crate::config::trial::Place;
use crate::error::HostError;

const KEY: &str = "work_dir";
const NODE_LOCAL: &str =
    "set work_dir to a node-local path you can write; an NFS home under root-squash cannot be mounted into a container";

/// The trial's places on the host, made and checked.
#[derive(Debug)]
pub struct Scratch {
    /// `<work_dir>/u<uid>`
    pub dir: PathBuf,
    /// Staged agents.
    pub bin: PathBuf,
    /// Exports, logs, lease, socket; `/ts-out` in a container.
    pub out: PathBuf,
    /// Staged datasets.
    pub datasets: PathBuf,
    /// Hugging Face cache.
    pub hf_home: PathBuf,
    /// Open directory `bin`.
    pub(super) bin_fd: OwnedFd,
    /// Open directory `datasets`.
    pub(super) datasets_fd: OwnedFd,
}

/// Where the places of a user are, made or not.
pub fn dir_of(place: &Place, uid: u32) -> PathBuf {
    place.work_dir.join(format!("u{uid}"))
}

/// The Hugging Face cache: the configured one, or the user's own below scratch.
pub fn hf_home_of(place: &Place, uid: u32) -> PathBuf {
    place.hf_home.clone().unwrap_or_else(|| dir_of(place, uid).join("hf"))
}

/// Makes and checks everything.
pub fn prepare(place: &Place, uid: u32) -> Result<Scratch, HostError> {
    let root = make_root(&place.work_dir)?;
    trust_root(&place.work_dir, &stat(&root, &place.work_dir)?, uid)?;
    let dir = dir_of(place, uid);
    let scratch = subdirectory(&root, &format!("u{uid}"), Mode::S_IRWXU, &dir)?;
    trust_scratch(&dir, &stat(&scratch, &dir)?, uid)?;
    let inside =
        |parent: &OwnedFd, name: &str| subdirectory(parent, name, Mode::from_bits_truncate(0o755), &dir.join(name));
    let bin_fd = inside(&scratch, "bin")?;
    let datasets_fd = inside(&scratch, "datasets")?;
    let out_fd = inside(&scratch, "out")?;
    let home = inside(&out_fd, "home")?;
    inside(&home, ".cache")?;
    inside(&out_fd, "triton-cache")?;
    inside(&out_fd, "torchinductor")?;
    writable(&out_fd, &dir.join("out"))?;
    let hf_home = hf_home_of(place, uid);
    match &place.hf_home {
        // Possibly somebody else's, and meant to be read only.
        Some(path) => std::fs::create_dir_all(path).map_err(|error| {
            let hint = "name a directory that exists, or one that you can create";
            HostError::new(Some("hf_home"), shown(path), format!("{} cannot be used ({error})", path.display()), hint)
        })?,
        None => writable(&inside(&scratch, "hf")?, &hf_home)?,
    }
    Ok(Scratch {
        bin: dir.join("bin"),
        out: dir.join("out"),
        datasets: dir.join("datasets"),
        dir,
        hf_home,
        bin_fd,
        datasets_fd,
    })
}

/// Checks what is there and makes nothing (`--dry-run`).
pub fn inspect(place: &Place, uid: u32) -> Result<(), HostError> {
    let root = match open(&place.work_dir, OPEN_DIR, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::ENOENT) => return creatable(&place.work_dir),
        Err(errno) => return Err(not_a_directory(&place.work_dir, errno)),
    };
    trust_root(&place.work_dir, &stat(&root, &place.work_dir)?, uid)?;
    let dir = dir_of(place, uid);
    match openat(&root, format!("u{uid}").as_str(), OPEN_DIR, Mode::empty()) {
        Ok(scratch) => trust_scratch(&dir, &stat(&scratch, &dir)?, uid),
        Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(not_a_directory(&dir, errno)),
    }
}

const OPEN_DIR: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// The root; its mode is set only by the run that makes it, and to 1777 for the reason that `/tmp` has it.
fn make_root(path: &Path) -> Result<OwnedFd, HostError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| failed(path, "cannot be created", &error))?;
    }
    let made = match nix::unistd::mkdir(path, Mode::from_bits_truncate(0o777)) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(errno) => return Err(failed(path, "cannot be created", &errno)),
    };
    let root = open(path, OPEN_DIR, Mode::empty()).map_err(|errno| not_a_directory(path, errno))?;
    if made {
        // The umask took bits away; without them only the maker can use the root, which is no failure.
        let _ = fchmod(&root, Mode::from_bits_truncate(0o1777));
    }
    Ok(root)
}

/// Makes a directory if it is missing, and opens it without following a link.
fn subdirectory(parent: &OwnedFd, name: &str, mode: Mode, path: &Path) -> Result<OwnedFd, HostError> {
    match mkdirat(parent, name, mode) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(failed(path, "cannot be created", &errno)),
    }
    openat(parent, name, OPEN_DIR, Mode::empty()).map_err(|errno| not_a_directory(path, errno))
}

fn stat(fd: &impl AsFd, path: &Path) -> Result<FileStat, HostError> {
    fstat(fd).map_err(|errno| failed(path, "cannot be examined", &errno))
}

/// The owner of a sticky directory may rename anything in it, so it must be the administrator or ourselves.
fn trust_root(path: &Path, stat: &FileStat, uid: u32) -> Result<(), HostError> {
    if stat.st_uid == 0 || stat.st_uid == uid {
        return Ok(());
    }
    let message = format!(
        "work root {} is owned by uid {}, who could replace what this trial puts there",
        path.display(),
        stat.st_uid
    );
    let hint = "set work_dir to a path you own, or have an administrator create it root-owned with mode 1777";
    Err(HostError::new(Some(KEY), shown(path), format!("{message}; {hint}"), hint))
}

/// Ours alone.
fn trust_scratch(path: &Path, stat: &FileStat, uid: u32) -> Result<(), HostError> {
    let mode = stat.st_mode & 0o7777;
    let message = if stat.st_uid != uid {
        format!("scratch {} is owned by uid {}, not by {uid}", path.display(), stat.st_uid)
    } else if mode & 0o022 != 0 {
        format!("scratch {} is group- or world-writable (mode {mode:04o})", path.display())
    } else {
        return Ok(());
    };
    let hint = format!("remove {} or set work_dir to another path", path.display());
    Err(HostError::new(Some(KEY), shown(path), message, hint))
}

/// Bytes that a trial finds room for before it starts; a disk or quota that is full by then is the host's fault.
const ROOM: i64 = 1 << 20;

/// Creates, fills, locks, renames and deletes a file: what caches and exports need (failure scenarios FS-73, FS-83).
fn writable(dir: &OwnedFd, path: &Path) -> Result<(), HostError> {
    let [first, second] = ["probe", "probed"].map(|name| format!(".{name}.{}", std::process::id()));
    let create = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let attempt = || -> nix::Result<()> {
        let file = File::from(openat(dir, first.as_str(), create, Mode::from_bits_truncate(0o600))?);
        nix::fcntl::posix_fallocate(&file, 0, ROOM)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        nix::fcntl::renameat(dir, first.as_str(), dir, second.as_str())?;
        drop(lock);
        unlinkat(dir, second.as_str(), UnlinkatFlags::NoRemoveDir)
    };
    attempt().map_err(|errno| {
        for name in [&first, &second] {
            let _ = unlinkat(dir, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        failed(path, "is not usable", &errno)
    })
}

/// Whether a missing root could be made: somewhere above it is a directory that we may write.
fn creatable(path: &Path) -> Result<(), HostError> {
    let above = path.ancestors().skip(1).find(|parent| parent.exists()).unwrap_or(Path::new("/"));
    if !above.is_dir() {
        return Err(failed(path, "cannot be created", &format!("{} is not a directory", above.display())));
    }
    access(above, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| failed(path, "cannot be created", &errno))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn failed(path: &Path, what: &str, reason: &dyn std::fmt::Display) -> HostError {
    let message = format!("{} {what} ({reason}); it must be node-local and writable", path.display());
    HostError::new(Some(KEY), shown(path), message, NODE_LOCAL)
}

fn not_a_directory(path: &Path, errno: Errno) -> HostError {
    if !matches!(errno, Errno::ENOTDIR | Errno::ELOOP) {
        return failed(path, "cannot be opened", &errno);
    }
    let message = format!("{} is not a directory (a file or a link stands there)", path.display());
    HostError::new(Some(KEY), shown(path), message, "remove it, or set work_dir to another path")
}
