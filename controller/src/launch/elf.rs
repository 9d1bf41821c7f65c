//! Whether a file can run in any image: a static program for this machine, by its ELF header alone.

use std::io::{Read, Seek, SeekFrom};

/// Why a file cannot run in a container.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotStatic {
    /// No ELF file for x86_64.
    #[error("is no x86_64 Linux program")]
    Foreign,
    /// It names an interpreter, which the image need not have.
    #[error("is dynamically linked")]
    Dynamic,
    /// It cannot be read.
    #[error("cannot be read ({0})")]
    Unreadable(String),
}

const EXECUTABLE: u16 = 2;
const SHARED: u16 = 3;
const X86_64: u16 = 62;
/// `PT_INTERP`
const INTERPRETER: u32 = 3;

/// Looks for a program interpreter; static and static-pie programs have none.
pub(super) fn check(file: &mut (impl Read + Seek)) -> Result<(), NotStatic> {
    let unreadable = |error: std::io::Error| NotStatic::Unreadable(error.to_string());
    let mut header = [0u8; 64];
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(NotStatic::Foreign),
        Err(error) => return Err(unreadable(error)),
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    // Magic, 64 bits, little endian.
    let ours = header.starts_with(b"\x7fELF\x02\x01") && matches!(half(16), EXECUTABLE | SHARED) && half(18) == X86_64;
    let (size, count) = (half(54), half(56));
    if !ours || usize::from(size) < 4 || count == 0 {
        return Err(NotStatic::Foreign);
    }
    let mut table_at = [0u8; 8];
    table_at.copy_from_slice(&header[32..40]);
    let table_at = u64::from_le_bytes(table_at);
    for index in 0..u64::from(count) {
        let at = table_at.saturating_add(index * u64::from(size));
        let mut kind = [0u8; 4];
        file.seek(SeekFrom::Start(at)).map_err(|_| NotStatic::Foreign)?;
        file.read_exact(&mut kind).map_err(|_| NotStatic::Foreign)?;
        if u32::from_le_bytes(kind) == INTERPRETER {
            return Err(NotStatic::Dynamic);
        }
    }
    Ok(())
}
