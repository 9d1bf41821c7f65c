//! The output directory: one sweep at a time, every file whole, and a sweep that stands there never mistaken for
//! another (review findings D-01, D-02).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::filed;
use super::manifest::{Manifest, SCHEMA_VERSION};

/// The directory of one sweep, locked.
#[derive(Debug)]
pub struct Folder {
    /// As given.
    pub dir: PathBuf,
    // Held until the end: two sweeps in one directory would take each other's trials for their own.
    _lock: Flock<File>,
}

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A sweep stands there.
    #[error("--output-dir {0:?} holds a sweep already; --resume goes on with it, any other directory starts anew")]
    Taken(PathBuf),
    /// Something else stands there.
    #[error("--output-dir {0:?} is not empty and holds no sweep; name a new or empty directory")]
    Foreign(PathBuf),
    /// The manifest is not one of ours.
    #[error("{path:?} cannot be read ({reason}); name another --output-dir")]
    Manifest {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Someone else is at work.
    #[error("{0:?} is in use by another sweep; wait for it, or take another --output-dir")]
    Busy(PathBuf),
    /// Not to be written.
    #[error("{path:?}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FolderError {
    /// Whether the command line is at fault (64) rather than the host (69).
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Taken(_) | Self::Foreign(_) | Self::Manifest { .. } => true,
            Self::Busy(_) | Self::Io { .. } => false,
        }
    }
}

/// What `--output-dir` holds, looked at without touching it.
pub fn look(dir: &Path, resume: bool) -> Result<Option<Manifest>, FolderError> {
    let path = dir.join("manifest.json");
    let reason = match fs::read(&path) {
        Ok(_) if !resume => return Err(FolderError::Taken(dir.to_path_buf())),
        Ok(bytes) => match serde_json::from_slice::<Manifest>(&bytes) {
            Ok(manifest) if manifest.schema_version == SCHEMA_VERSION => return Ok(Some(manifest)),
            Ok(manifest) => format!("schema_version {}, not {SCHEMA_VERSION}", manifest.schema_version),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Hidden files are ours: the lock, and what a kill left half written.
            let visible = |entry: &fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
            let occupied = fs::read_dir(dir).is_ok_and(|mut entries| entries.any(|e| e.is_ok_and(|e| visible(&e))));
            return if occupied { Err(FolderError::Foreign(dir.to_path_buf())) } else { Ok(None) };
        }
        Err(error) => error.to_string(),
    };
    Err(FolderError::Manifest { path, reason })
}

impl Folder {
    /// Makes and locks the directory; what a killed sweep left half written is removed.
    pub fn open(dir: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io { path: dir.to_path_buf(), source };
        fs::create_dir_all(dir).map_err(failed)?;
        let lock = File::create(dir.join(".lock")).map_err(failed)?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| FolderError::Busy(dir.to_path_buf()))?;
        remove_halves(dir, 3);
        Ok(Self { dir: dir.to_path_buf(), _lock: lock })
    }

    /// Makes the folder of a cell's trials.
    pub fn make_cell(&self, cell: &str, workload: &str) -> io::Result<()> {
        fs::create_dir_all(self.cell(cell, workload))
    }

    fn cell(&self, cell: &str, workload: &str) -> PathBuf {
        self.dir.join("cells").join(cell).join(workload)
    }

    /// AORTA's document of a trial.
    pub fn trial(&self, cell: &str, workload: &str, index: u32) -> PathBuf {
        self.cell(cell, workload).join(format!("trial_d0_m0_t{index}.json"))
    }

    /// The document of `controller run`. Its name is none that AORTA collects.
    pub fn result(&self, cell: &str, workload: &str, index: u32) -> PathBuf {
        self.cell(cell, workload).join(format!("result_t{index}.json"))
    }

    /// What `controller run` said, under the name that the AORTA plugin uses.
    pub fn log(&self, cell: &str, workload: &str, index: u32) -> PathBuf {
        self.cell(cell, workload).join(format!("trial_d0_m0_t{index}.subprocess.stderr.log"))
    }

    /// Writes the manifest.
    pub fn save(&self, manifest: &Manifest) -> io::Result<()> {
        filed::write_json(&self.dir.join("manifest.json"), manifest)
    }
}

/// Temporary files of writers that were killed; the lock says that nobody writes now.
fn remove_halves(dir: &Path, depth: u32) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            remove_halves(&entry.path(), depth - 1);
        } else if kind.is_file() && name.starts_with('.') && name.ends_with(".tmp") {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ones_own_directory_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        assert!(matches!(look(&out, false), Ok(None)) && matches!(look(&out, true), Ok(None)));
        let folder = Folder::open(&out).unwrap();
        assert!(matches!(Folder::open(&out), Err(FolderError::Busy(_))));
        // A kill before the first manifest leaves hidden files alone.
        fs::write(out.join(".manifest.json.1.tmp"), "{").unwrap();
        assert!(matches!(look(&out, false), Ok(None)));
        drop(folder);
        drop(Folder::open(&out).unwrap());
        assert!(!out.join(".manifest.json.1.tmp").exists());
        for (text, resume, expected) in [
            ("{", false, "holds a sweep already"),
            ("{", true, "cannot be read"),
            (r#"{"schema_version": 2}"#, true, "cannot be read"),
        ] {
            fs::write(out.join("manifest.json"), text).unwrap();
            let error = look(&out, resume).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
        }
        fs::remove_file(out.join("manifest.json")).unwrap();
        fs::write(out.join("notes.txt"), "mine").unwrap();
        for resume in [false, true] {
            assert!(matches!(look(&out, resume), Err(FolderError::Foreign(_))));
        }
    }
}
