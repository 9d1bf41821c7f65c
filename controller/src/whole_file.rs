//! A file that appears whole or not at all: written beside its place, synced, renamed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// An output file in the making; dropped without [`WholeFile::commit`] it leaves nothing behind.
///
/// A target that exists and is no regular file (a terminal, a pipe, `/dev/null`) is written in place.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// The temporary file and its final place; `None` when written in place or committed.
    pending: Option<(PathBuf, PathBuf)>,
}

impl WholeFile {
    /// Opens the file for writing. A symbolic link is followed, so its target is what gets replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if fs::metadata(&place).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            return Ok(Self { file: OpenOptions::new().write(true).open(&place)?, pending: None });
        }
        let Some(name) = place.file_name().filter(|_| !place.is_dir()) else {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "not a file name"));
        };
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = place.with_file_name(temporary);
        let file = File::create(&temporary)?;
        Ok(Self { file, pending: Some((temporary, place)) })
    }

    /// Where to write.
    pub fn handle(&self) -> &File {
        &self.file
    }

    /// Syncs and puts the file in its place.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some((temporary, place)) = &self.pending {
            self.file.sync_all()?;
            fs::rename(temporary, place)?;
            self.pending = None;
        }
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.pending {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// FS-66.
    #[test]
    fn whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        fs::write(&path, "old").unwrap();
        let file = WholeFile::create(&path).unwrap();
        file.handle().write_all(b"ne").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let file = WholeFile::create(&path).unwrap();
        file.handle().write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(WholeFile::create(dir.path()).is_err());
        assert!(WholeFile::create(&dir.path().join("no/such")).is_err());
        WholeFile::create(Path::new("/dev/null")).unwrap().commit().unwrap();
    }
}
