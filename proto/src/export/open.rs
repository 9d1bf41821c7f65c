//! Opening a file that somebody else wrote: no link followed, nothing but a regular file (design section 8).

use std::fs::File;
use std::path::Path;

/// Why an export could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no file")]
    Missing,
    /// A link, a FIFO, a directory, a device.
    #[error("not a regular file ({0})")]
    NotRegular(&'static str),
    /// The system's own words.
    #[error(transparent)]
    Io(std::io::Error),
}

/// Opens a regular file for reading: `O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC`, then `fstat`.
pub fn open(path: &Path) -> Result<File, OpenError> {
    let _ = path;
    todo!("PROTO")
}
