//! Files that go into the container, copied under names made from their contents (contract F.3, F.4; review finding
//! C-05): an agent is never a half-written one, a dataset never an older edition, and two runs never share a write.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{UnlinkatFlags, unlinkat};
use sha2::{Digest, Sha256};

use super::elf;
use super::scratch::Scratch;
use crate::error::HostError;

/// The agent that a trial runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Where it is on the host.
    pub path: PathBuf,
    /// Its file name: `agent.<sha256>` where it is staged.
    pub file_name: String,
    /// sha256 of its contents, hex.
    pub sha256: String,
}

/// Told how much of a large file is done, in bytes of bytes.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

const AGENT_KEY: &str = "agent_path";
const DATASET_KEY: &str = "dataset_path";
const BLOCK: usize = 1 << 20;

/// Finds the agent: the configured path, beside the controller's own file, on PATH (design section 2).
pub fn find_agent(configured: Option<&Path>) -> Result<PathBuf, HostError> {
    let candidates: Vec<PathBuf> = match configured {
        Some(path) => vec![path.to_path_buf()],
        None => std::env::current_exe()
            .ok()
            .and_then(|own| own.parent().map(|dir| dir.join("agent")))
            .into_iter()
            .chain(super::host::find_on_path("agent"))
            .collect(),
    };
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    let message = format!("no agent binary (looked for {})", looked.join(", "));
    let hint = "build it with `make build`, and name it with --agent or agent_path";
    Err(HostError::new(AGENT_KEY.into(), looked.join(", "), message, hint))
}

/// The agent as it stands, for the process runtime: it must be executable here.
pub fn agent_in_place(source: &Path) -> Result<Agent, HostError> {
    let mut file = open_source(source, AGENT_KEY)?;
    if nix::unistd::access(source, nix::unistd::AccessFlags::X_OK).is_err() {
        let message = format!("agent {} is not executable", source.display());
        return Err(HostError::new(
            Some(AGENT_KEY),
            shown(source),
            message,
            "chmod +x it, or name another with --agent",
        ));
    }
    let sha256 = digest(&mut file, &mut |_, _| {}).map_err(|error| unreadable(source, AGENT_KEY, &error))?;
    let file_name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Agent { path: source.to_path_buf(), file_name, sha256 })
}

/// What staging would make of an agent, without making it: checked and named.
pub fn agent_to_stage(bin: &Path, source: &Path) -> Result<Agent, HostError> {
    let mut file = open_source(source, AGENT_KEY)?;
    elf::check(&mut file).map_err(|reason| {
        let message =
            format!("agent {} {reason}; it could not run in an image without its libraries", source.display());
        HostError::new(
            Some(AGENT_KEY),
            shown(source),
            message,
            "name the static agent (`make build` leaves it in dist/agent)",
        )
    })?;
    let sha256 = digest(&mut file, &mut |_, _| {}).map_err(|error| unreadable(source, AGENT_KEY, &error))?;
    let file_name = format!("agent.{sha256}");
    Ok(Agent { path: bin.join(&file_name), file_name, sha256 })
}

/// Stages the agent for a container; a sound copy is used again, a damaged one repaired.
pub fn stage_agent(scratch: &Scratch, source: &Path) -> Result<Agent, HostError> {
    let agent = agent_to_stage(&scratch.bin, source)?;
    let fail = |reason: String| {
        let message = format!("cannot stage the agent as {}: {reason}", agent.path.display());
        HostError::new(Some(AGENT_KEY), shown(source), message, "make room in work_dir, or remove what stands there")
    };
    let noexec = fstatvfs(&scratch.bin_fd).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC));
    if noexec {
        return Err(fail("its file system is mounted noexec; set work_dir to another one".into()));
    }
    let name = agent.file_name.as_str();
    if let Some((mut file, meta)) = reusable(&scratch.bin_fd, name).map_err(fail)?
        && meta.mode() & 0o111 == 0o111
        && digest(&mut file, &mut |_, _| {}).is_ok_and(|found| found == agent.sha256)
    {
        return Ok(agent);
    }
    let mut file = open_source(source, AGENT_KEY)?;
    let copy = Copy::make(&scratch.bin_fd, &mut file, 0o755, &mut |_, _| {}).map_err(|e| fail(e.to_string()))?;
    if copy.sha256 != agent.sha256 {
        return Err(fail("the file changed while it was copied".into()));
    }
    copy.rename(name).map_err(|errno| fail(errno.to_string()))?;
    Ok(agent)
}

/// Stages a dataset; an unchanged file is copied once. Returns the path that is mounted.
pub fn stage_dataset(scratch: &Scratch, source: &Path, progress: Progress<'_>) -> Result<PathBuf, HostError> {
    let mut file = open_source(source, DATASET_KEY)?;
    let fail = |reason: &dyn std::fmt::Display| {
        let message = format!("cannot stage the dataset {}: {reason}", source.display());
        HostError::new(Some(DATASET_KEY), shown(source), message, "make room in work_dir, or name a readable file")
    };
    let size = file.metadata().map_err(|error| fail(&error))?.len();
    // Something of this size and name was staged before: most likely this, so hash before copying.
    if has_candidate(&scratch.datasets, source, size) {
        let sha256 = digest(&mut file, progress).map_err(|error| fail(&error))?;
        let name = dataset_name(source, &sha256);
        if let Some((_, meta)) = reusable(&scratch.datasets_fd, &name).map_err(|reason| fail(&reason))?
            && meta.len() == size
        {
            return Ok(scratch.datasets.join(name));
        }
        file.rewind().map_err(|error| fail(&error))?;
    }
    let copy = Copy::make(&scratch.datasets_fd, &mut file, 0o644, progress).map_err(|error| fail(&error))?;
    let name = dataset_name(source, &copy.sha256);
    copy.rename(&name).map_err(|errno| fail(&errno))?;
    Ok(scratch.datasets.join(name))
}

/// Where a dataset would be staged.
pub fn dataset_to_stage(datasets: &Path, source: &Path) -> Result<PathBuf, HostError> {
    let mut file = open_source(source, DATASET_KEY)?;
    let sha256 = digest(&mut file, &mut |_, _| {}).map_err(|error| unreadable(source, DATASET_KEY, &error))?;
    Ok(datasets.join(dataset_name(source, &sha256)))
}

/// `<stem, at most 40 characters>.<16 hex><suffix>` (contract F.4).
fn dataset_name(source: &Path, sha256: &str) -> String {
    let (stem, suffix) = stem_and_suffix(source);
    format!("{stem}.{}{suffix}", &sha256[..16])
}

fn stem_and_suffix(source: &Path) -> (String, String) {
    let clean = |text: &std::ffi::OsStr| -> String {
        text.to_string_lossy().chars().map(|c| if c.is_control() { '-' } else { c }).take(40).collect()
    };
    let stem = source.file_stem().map(clean).unwrap_or_default();
    let suffix = source.extension().map(|ext| format!(".{}", clean(ext))).unwrap_or_default();
    (stem, suffix)
}

fn has_candidate(dir: &Path, source: &Path, size: u64) -> bool {
    let (stem, suffix) = stem_and_suffix(source);
    let fits = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(&stem) && name.ends_with(&suffix) && entry.metadata().is_ok_and(|meta| meta.len() == size)
    };
    std::fs::read_dir(dir).is_ok_and(|entries| entries.filter_map(Result::ok).any(fits))
}

fn open_source(path: &Path, key: &str) -> Result<File, HostError> {
    let file = File::open(path).map_err(|error| unreadable(path, key, &error))?;
    match file.metadata() {
        Ok(meta) if meta.is_file() => Ok(file),
        Ok(_) => Err(unreadable(path, key, &"not a regular file")),
        Err(error) => Err(unreadable(path, key, &error)),
    }
}

fn unreadable(path: &Path, key: &str, reason: &dyn std::fmt::Display) -> HostError {
    let message = format!("{} cannot be read ({reason})", path.display());
    HostError::new(Some(key), shown(path), message, format!("name a readable file in {key}"))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// sha256 of a file from its beginning, hex.
fn digest(file: &mut File, progress: Progress<'_>) -> std::io::Result<String> {
    file.rewind()?;
    pump(file, &mut std::io::sink(), progress)
}

/// Copies and hashes.
fn pump(from: &mut File, to: &mut impl Write, progress: Progress<'_>) -> std::io::Result<String> {
    let total = from.metadata()?.len();
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut done = 0;
    loop {
        let n = from.read(&mut block)?;
        if n == 0 {
            return Ok(crate::corpus::source::hex(&hash.finalize()));
        }
        hash.update(&block[..n]);
        to.write_all(&block[..n])?;
        done += n as u64;
        progress(done, total);
    }
}

/// A file that stands under this name and may be used again: regular and our own. Anything that cannot be
/// replaced by a rename is an error.
fn reusable(dir: &OwnedFd, name: &str) -> Result<Option<(File, std::fs::Metadata)>, String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        // A link is replaced by the rename, never followed; an unreadable file likewise.
        Err(Errno::ENOENT | Errno::ELOOP | Errno::EACCES | Errno::ENXIO) => return Ok(None),
        Err(errno) => return Err(errno.to_string()),
    };
    let meta = file.metadata().map_err(|error| error.to_string())?;
    if meta.is_dir() {
        return Err("a directory stands under its name".into());
    }
    let own = meta.uid() == nix::unistd::geteuid().as_raw();
    Ok((meta.is_file() && own).then_some((file, meta)))
}

/// A complete copy under a temporary name, removed unless it gets its own.
struct Copy<'a> {
    dir: &'a OwnedFd,
    temporary: String,
    sha256: String,
    kept: bool,
}

impl<'a> Copy<'a> {
    fn make(dir: &'a OwnedFd, from: &mut File, mode: u32, progress: Progress<'_>) -> std::io::Result<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let temporary = format!(".staging.{}.{number}", std::process::id());
        // Left by a process of this number that was killed.
        let _ = unlinkat(dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut to = File::from(openat(dir, temporary.as_str(), flags, Mode::from_bits_truncate(0o600))?);
        let mut copy = Self { dir, temporary, sha256: String::new(), kept: false };
        copy.sha256 = pump(from, &mut to, progress)?;
        fchmod(&to, Mode::from_bits_truncate(mode))?;
        to.sync_all()?;
        Ok(copy)
    }

    fn rename(mut self, name: &str) -> nix::Result<()> {
        renameat(self.dir, self.temporary.as_str(), self.dir, name)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        if !self.kept {
            let _ = unlinkat(self.dir.as_fd(), self.temporary.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
