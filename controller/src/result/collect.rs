//! Exports from a directory that somebody else wrote into: opened relative to one pinned handle, no link followed,
//! exactly the expected set, in numeric order (contract B.7 and I.1; failure scenarios FS-66 to FS-70).

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

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
    for step in expected(&handle, token, steps) {
        let name = names::export(token, step);
        match read_one(&handle, &name) {
            Ok(Some(export)) => collected.records.push(Record { step, path: out_dir.join(&name), export }),
            Ok(None) => {}
            Err(why) => collected.dropped.push(Dropped { step, why: format!("{name}: {why}") }),
        }
    }
    collected
}

/// The steps of the expected set that have a file, in numeric order: step10 follows step9.
fn expected(directory: &OwnedFd, token: &RunToken, steps: u32) -> BTreeSet<u32> {
    let listing = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    listing
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| names::export_step(token, entry.file_name().to_str()?))
        .filter(|step| *step <= steps)
        .collect()
}

/// `None`: there is no such file.
fn read_one(directory: impl AsFd, name: &str) -> Result<Option<export::Export>, String> {
    match export::open_at(directory, name) {
        Ok(file) => export::read(file).map(Some).map_err(|e| e.to_string()),
        Err(export::OpenError::Missing) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(completed: u32) -> String {
        format!(r#"{{"completed": {completed}, "failed": 0, "duration": 1.5}}"#)
    }

    /// FS-70.
    #[test]
    fn exactly_the_expected_set_in_numeric_order_row_227() {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        for step in [11, 2, 1, 10, 3, 4, 5, 6, 7, 8, 9, 13] {
            std::fs::write(dir.path().join(names::export(&token, step)), export(step)).unwrap();
        }
        for other in ["bench.7-10.step1.json", "bench-warmup.7-1.step1.json", "bench.7-1.step01.json"] {
            std::fs::write(dir.path().join(other), export(99)).unwrap();
        }
        let steps: Vec<u32> = collect(dir.path(), &token, 12).records.iter().map(|r| r.step).collect();
        assert_eq!(steps, (1..=11).collect::<Vec<_>>(), "no 12, and 13 was not asked for");
    }

    /// FS-67, FS-68.
    #[test]
    fn what_is_no_regular_file_is_dropped_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        let path = |step| dir.path().join(names::export(&token, step));
        std::fs::write(dir.path().join("elsewhere"), export(1)).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), path(1)).unwrap();
        nix::unistd::mkfifo(&path(2), Mode::from_bits_truncate(0o600)).unwrap();
        std::fs::create_dir(path(3)).unwrap();
        std::fs::write(path(4), "{\"completed\": 3").unwrap();
        std::fs::write(path(5), export(5)).unwrap();
        let collected = collect(dir.path(), &token, 5);
        assert_eq!(collected.records.iter().map(|r| r.step).collect::<Vec<_>>(), [5]);
        assert_eq!(collected.dropped.iter().map(|d| d.step).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(collected.dropped[0].why.contains("bench.7-1.step1.json"), "{:?}", collected.dropped);
    }

    /// FS-72: an export that its reader may not open is named, with the system's own words. The thread has another
    /// user's rights to files.
    #[test]
    fn an_export_of_another_user_is_dropped_and_named_fs_72() {
        use std::os::unix::fs::PermissionsExt;
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root to have files of another user");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for (step, mode) in [(1, 0o600), (2, 0o644)] {
            let path = dir.path().join(names::export(&token, step));
            std::fs::write(&path, export(step)).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let out_dir = dir.path().to_owned();
        let reader = std::thread::spawn(move || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(4242));
            collect(&out_dir, &token, 2)
        });
        let collected = reader.join().unwrap();
        assert_eq!(collected.records.iter().map(|r| r.step).collect::<Vec<_>>(), [2]);
        assert_eq!((collected.dropped.len(), collected.dropped[0].step), (1, 1));
        let why = &collected.dropped[0].why;
        assert!(why.contains("bench.7-1.step1.json") && why.contains("Permission denied"), "{why}");
    }
}
