//! Where the document goes: a file that is replaced atomically and never old, or stdout, once (design section 3).

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::document::Document;

/// Where the document goes.
#[derive(Debug)]
pub enum ResultTarget {
    /// Nobody asked for one.
    None,
    /// Printed once, at the end.
    Stdout,
    /// Replaced at every write.
    File(ResultFilePath),
}

/// A result path that holds no old document.
#[derive(Debug)]
pub struct ResultFilePath {
    path: PathBuf,
    temporary: PathBuf,
}

/// Why a result path was refused. Exit 64: nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A link, a directory, a device, a FIFO.
    #[error("--result {path}: there is something that is not a regular file; name another path")]
    NotRegular {
        /// As given.
        path: String,
    },
    /// Somebody else's file.
    #[error("--result {path}: the file there belongs to uid {owner}, not to us; name another path")]
    NotOurs {
        /// As given.
        path: String,
        /// Its owner.
        owner: u32,
    },
    /// No file name at the end.
    #[error("--result {path}: not a file name")]
    NoName {
        /// As given.
        path: String,
    },
    /// The system's own words.
    #[error("--result {path}: {source}; the folder must exist and be writable")]
    Io {
        /// As given.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl ResultTarget {
    /// Reads the option's value and removes an old document, so that it can never be taken for a new one.
    pub fn open(value: Option<&Path>) -> Result<Self, TargetError> {
        let Some(path) = value else { return Ok(Self::None) };
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let shown = || path.display().to_string();
        let Some(name) = path.file_name() else { return Err(TargetError::NoName { path: shown() }) };
        let io_error = |source| TargetError::Io { path: shown(), source };
        match fs::symlink_metadata(path) {
            Ok(meta) if !meta.is_file() => return Err(TargetError::NotRegular { path: shown() }),
            Ok(meta) if meta.uid() != nix::unistd::geteuid().as_raw() => {
                return Err(TargetError::NotOurs { path: shown(), owner: meta.uid() });
            }
            Ok(_) => fs::remove_file(path).map_err(io_error)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(error)),
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = ResultFilePath { path: path.to_owned(), temporary: folder.join(hidden) };
        // A folder that cannot be written is known before a GPU is touched, not after hours.
        file.probe().map_err(io_error)?;
        Ok(Self::File(file))
    }

    /// Writes the document. To a file: replaces it atomically. To stdout: only when `last`.
    pub fn write(&self, document: &Document, last: bool) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Stdout if !last => Ok(()),
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&document.to_bytes())?;
                out.flush()
            }
            Self::File(file) => file.replace(&document.to_bytes()),
        }
    }

    /// The file's path, for the last line on stderr.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(&file.path),
            Self::None | Self::Stdout => None,
        }
    }
}

impl ResultFilePath {
    fn create(&self) -> io::Result<File> {
        let _ = fs::remove_file(&self.temporary);
        OpenOptions::new().write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW).open(&self.temporary)
    }

    fn probe(&self) -> io::Result<()> {
        drop(self.create()?);
        fs::remove_file(&self.temporary)
    }

    /// Temporary file, sync, rename, sync of the folder.
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let written = self.create().and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        if let Err(error) = written.and_then(|()| fs::rename(&self.temporary, &self.path)) {
            let _ = fs::remove_file(&self.temporary);
            return Err(error);
        }
        if let Some(folder) = self.temporary.parent() {
            // The rename is visible already; a folder that cannot be synced only weakens it against power loss.
            let _ = File::open(folder).and_then(|dir| dir.sync_all());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorBody, ErrorDocument, ErrorKind, SCHEMA_VERSION};

    fn document(message: &str) -> Document {
        let error = ErrorBody {
            kind: ErrorKind::Config,
            key: None,
            value: None,
            message: message.into(),
            hint: String::new(),
            line: None,
            column: None,
        };
        Document::Error(ErrorDocument { schema_version: SCHEMA_VERSION, error })
    }

    #[test]
    fn an_old_document_is_gone_before_anything_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let target = ResultTarget::open(Some(&path)).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "the probe leaves nothing");
        target.write(&document("a"), false).unwrap();
        target.write(&document("b"), true).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"b\"") && text.ends_with("}\n"), "{text}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn only_a_regular_file_of_ours_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, link) = (dir.path().join("victim"), dir.path().join("link"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        assert!(matches!(ResultTarget::open(Some(&link)), Err(TargetError::NotRegular { .. })));
        assert!(matches!(ResultTarget::open(Some(dir.path())), Err(TargetError::NotRegular { .. })));
        assert!(matches!(ResultTarget::open(Some(&dir.path().join("no/r.json"))), Err(TargetError::Io { .. })));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&victim, Some(12345), None).unwrap();
            assert!(matches!(ResultTarget::open(Some(&victim)), Err(TargetError::NotOurs { owner: 12345, .. })));
            assert!(victim.exists());
        }
    }

    /// FS-66, FS-83.
    #[test]
    fn a_failed_write_keeps_the_last_document() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let target = ResultTarget::open(Some(&path)).unwrap();
        target.write(&document("kept"), false).unwrap();
        let ResultTarget::File(file) = &target else { unreachable!() };
        fs::create_dir(&file.temporary).unwrap();
        assert!(target.write(&document("lost"), true).is_err());
        assert!(fs::read_to_string(&path).unwrap().contains("kept"));
    }
}
