//! Opening a file that somebody else wrote: no link followed, nothing but a regular file (design section 8).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::MAX_BYTES;

/// Why an export could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no such file")]
    Missing,
    /// A link, a FIFO, a directory, a device.
    #[error("not a regular file ({0})")]
    NotRegular(&'static str),
    /// Larger than [`MAX_BYTES`].
    #[error("{bytes} bytes, more than the {MAX_BYTES} that an export may have")]
    TooLarge {
        /// Size on the open handle.
        bytes: u64,
    },
    /// The system's own words.
    #[error(transparent)]
    Io(io::Error),
}

const FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);

/// Opens a regular file for reading: `O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC`, then `fstat` on the handle.
///
/// Never waits: a FIFO without a writer opens at once and is refused by its type. Links in the directories above
/// are followed; where those are not trusted, pin the directory and use [`open_at`].
pub fn open(path: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new().read(true).custom_flags(FLAGS.bits()).open(path).map_err(refine)?;
    regular(file)
}

/// [`open`] for one name below a directory that is held open, whatever happens to its path meanwhile.
pub fn open_at(directory: impl AsFd, name: &str) -> Result<File, OpenError> {
    if name.contains('/') {
        return Err(OpenError::Io(io::Error::new(io::ErrorKind::InvalidInput, "a name, not a path, is wanted")));
    }
    let fd = openat(directory, name, FLAGS, Mode::empty()).map_err(|errno| refine(errno.into()))?;
    regular(File::from(fd))
}

fn refine(error: io::Error) -> OpenError {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => OpenError::Missing,
        Some(Errno::ELOOP) => OpenError::NotRegular("a symbolic link"),
        Some(Errno::ENXIO) => OpenError::NotRegular("a socket or a device"),
        _ => OpenError::Io(error),
    }
}

fn regular(file: File) -> Result<File, OpenError> {
    let meta = file.metadata().map_err(OpenError::Io)?;
    let kind = meta.file_type();
    if kind.is_file() {
        return if meta.len() > MAX_BYTES { Err(OpenError::TooLarge { bytes: meta.len() }) } else { Ok(file) };
    }
    Err(OpenError::NotRegular(if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }))
}
