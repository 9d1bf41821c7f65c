//! Records on disk: a name of its own for every run, nothing overwritten, 180 scheduled nights kept.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::record::{RunRecord, Trigger};

/// Ending of a record's name.
const SUFFIX: &str = ".baseline-record.json";
/// Scheduled nights kept.
pub const RETENTION_NIGHTS: usize = 180;

/// A record that cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Its content.
    #[error("{path}: not a run record: {source}")]
    Content {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// A directory without records.
    #[error("{0}: no {SUFFIX} in this directory")]
    Empty(PathBuf),
    /// An id that cannot be a part of a file name.
    #[error("run_id {0:?}: only letters, digits, '.', '_' and '-' can be in a file name")]
    Id(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + '_ {
    |source| StoreError::Io { path: path.to_path_buf(), source }
}

/// Stores a record under a name of its own; refuses to overwrite.
pub fn save(dir: &Path, record: &RunRecord) -> Result<PathBuf, StoreError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if record.run_id.is_empty() || !record.run_id.chars().all(plain) {
        return Err(StoreError::Id(record.run_id.clone()));
    }
    let trigger = match record.trigger {
        Trigger::Scheduled => "scheduled",
        Trigger::Manual => "manual",
    };
    let path = dir.join(format!("{:012}-{trigger}-{}{SUFFIX}", record.started_at, record.run_id));
    let text =
        serde_json::to_string_pretty(record).map_err(|source| StoreError::Content { path: path.clone(), source })?;
    fs::create_dir_all(dir).map_err(at(dir))?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(at(&path))?;
    if let Err(source) = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()) {
        // Half a record would stop every later reader.
        let _ = fs::remove_file(&path);
        return Err(StoreError::Io { path, source });
    }
    Ok(path)
}

/// Reads records from files, and from directories of them.
pub fn read(paths: &[PathBuf]) -> Result<Vec<RunRecord>, StoreError> {
    let mut records = Vec::new();
    for path in paths {
        if path.is_dir() {
            let files = files(path)?;
            if files.is_empty() {
                return Err(StoreError::Empty(path.clone()));
            }
            for file in files {
                records.push(one(&file)?);
            }
        } else {
            records.push(one(path)?);
        }
    }
    Ok(records)
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(at(dir))?;
    let mut files: Vec<PathBuf> = entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)))
        .collect();
    files.sort();
    Ok(files)
}

fn one(path: &Path) -> Result<RunRecord, StoreError> {
    let text = fs::read(path).map_err(at(path))?;
    serde_json::from_slice(&text).map_err(|source| StoreError::Content { path: path.to_path_buf(), source })
}

/// Removes what is older than the last `nights` scheduled nights; manual runs do not count as nights.
pub fn prune(dir: &Path, nights: usize) -> Result<Vec<PathBuf>, StoreError> {
    let mut records = Vec::new();
    for path in files(dir)? {
        records.push((one(&path)?, path));
    }
    let mut dates: Vec<_> =
        records.iter().filter(|(r, _)| r.trigger == Trigger::Scheduled).filter_map(|(r, _)| r.night()).collect();
    dates.sort_unstable();
    dates.dedup();
    let Some(oldest) = dates.len().checked_sub(nights).filter(|extra| *extra > 0).map(|extra| dates[extra]) else {
        return Ok(Vec::new());
    };
    let mut removed = Vec::new();
    for (record, path) in records {
        if record.night().is_some_and(|night| night < oldest) {
            fs::remove_file(&path).map_err(at(&path))?;
            removed.push(path);
        }
    }
    Ok(removed)
}
