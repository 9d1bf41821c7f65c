//! Bytes of an export, a chunk at a time: checked to be UTF-8 and hashed, each byte once.
//!
//! SHA-256 costs about as much as the reading itself, so that large files hash on a thread of their own while the
//! next chunk is being looked at. A few recycled chunks bound the memory.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use sha2::{Digest, Sha256};

use super::ReadError;

/// Bytes per chunk: large enough that a system call costs nothing, small enough for the cache.
const CHUNK: usize = 128 * 1024;
/// Chunks in flight between reader and hasher.
const IN_FLIGHT: usize = 4;
/// Bytes hashed inline before a thread is worth its start.
const INLINE: u64 = 1024 * 1024;
/// An incomplete UTF-8 sequence at the end of a chunk has at most this many bytes.
const CARRY: usize = 3;

/// A source with its current chunk.
pub(super) struct Feed<R> {
    source: R,
    chunk: Vec<u8>,
    /// Valid UTF-8 in `chunk` ends here; what follows up to `filled` is an incomplete sequence.
    valid: usize,
    filled: usize,
    /// Bytes of `chunk` that were hashed with the chunk before.
    carried: usize,
    /// Offset of `chunk[0]` in the file.
    base: u64,
    fault: Option<Fault>,
    /// Most bytes that are read.
    limit: u64,
    hasher: Hasher,
}

/// What ends the file before its end.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Utf8,
    Size,
}

impl<R: Read> Feed<R> {
    pub(super) fn new(source: R, limit: u64, hashed: bool) -> Self {
        Self {
            source,
            chunk: vec![0; CHUNK],
            valid: 0,
            filled: 0,
            carried: 0,
            base: 0,
            fault: None,
            limit,
            hasher: if hashed { Hasher::Inline(Sha256::new()) } else { Hasher::Off },
        }
    }

    /// The current chunk: whole characters only.
    pub(super) fn window(&self) -> &[u8] {
        &self.chunk[..self.valid]
    }

    /// Offset in the file of the window's first byte.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Replaces the window by the next one; `false` at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            let end = self.base + self.valid as u64;
            match self.fault {
                Some(Fault::Utf8) => return Err(malformed("not UTF-8", end)),
                Some(Fault::Size) => return Err(malformed(format!("more than {} bytes", self.limit), end)),
                None => {}
            }
            let mut carry = [0; CARRY];
            let carried = self.filled - self.valid;
            carry[..carried].copy_from_slice(&self.chunk[self.valid..self.filled]);
            self.hasher.take(&mut self.chunk, self.carried, self.filled, self.base);
            self.chunk[..carried].copy_from_slice(&carry[..carried]);
            (self.base, self.carried, self.valid) = (end, carried, 0);
            let read = loop {
                match self.source.read(&mut self.chunk[carried..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            self.filled = carried + read;
            if read == 0 {
                return if carried == 0 { Ok(false) } else { Err(malformed("not UTF-8", end)) };
            }
            match std::str::from_utf8(&self.chunk[..self.filled]) {
                Ok(_) => self.valid = self.filled,
                Err(error) => {
                    self.valid = error.valid_up_to();
                    // What stands before the fault is still looked at, so that the first fault is the one reported.
                    self.fault = error.error_len().map(|_| Fault::Utf8);
                }
            }
            if self.base + self.filled as u64 > self.limit {
                self.fault = Some(Fault::Size);
            }
            if self.valid > 0 {
                return Ok(true);
            }
        }
    }

    /// Number of bytes, and their SHA-256 where it was taken. Call after [`Self::advance`] said `false`.
    pub(super) fn finish(self) -> Result<(u64, Option<String>), ReadError> {
        let Some(digest) = self.hasher.finish()? else { return Ok((self.base, None)) };
        let mut hex = String::with_capacity(64);
        for byte in digest {
            for digit in [byte >> 4, byte & 15] {
                hex.extend(char::from_digit(digit.into(), 16));
            }
        }
        Ok((self.base, Some(hex)))
    }
}

/// A fault in the text at an offset.
pub(super) fn malformed(what: impl Into<String>, offset: u64) -> ReadError {
    ReadError::Malformed { what: what.into(), offset }
}

type Piece = (Vec<u8>, usize, usize);

enum Hasher {
    Off,
    Inline(Sha256),
    Thread { work: SyncSender<Piece>, free: Receiver<Vec<u8>>, spare: usize, thread: JoinHandle<Sha256> },
}

impl Hasher {
    /// Takes `chunk[from..to]`, leaving a chunk of the same size whose content does not matter.
    fn take(&mut self, chunk: &mut Vec<u8>, from: usize, to: usize, before: u64) {
        match self {
            Self::Off => {}
            Self::Inline(hash) => {
                hash.update(&chunk[from..to]);
                if before > INLINE {
                    // No thread to be had (a limit on pids): go on inline, only slower.
                    if let Some(moved) = Self::start(hash) {
                        *self = moved;
                    }
                }
            }
            Self::Thread { work, free, spare, .. } => {
                let next = if *spare > 0 {
                    *spare -= 1;
                    vec![0; chunk.len()]
                } else {
                    free.recv().unwrap_or_else(|_| vec![0; chunk.len()])
                };
                let full = std::mem::replace(chunk, next);
                // Fails only when the thread is gone, which `finish` reports.
                let _ = work.send((full, from, to));
            }
        }
    }

    fn start(hash: &Sha256) -> Option<Self> {
        let (work, todo) = sync_channel::<Piece>(IN_FLIGHT);
        let (back, free) = sync_channel(IN_FLIGHT);
        let mut hash = hash.clone();
        let thread = thread::Builder::new()
            .name("sha256".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                for (piece, from, to) in todo {
                    hash.update(&piece[from..to]);
                    // Never full: no more chunks exist than the channel holds.
                    let _ = back.try_send(piece);
                }
                hash
            })
            .ok()?;
        Some(Self::Thread { work, free, spare: IN_FLIGHT - 1, thread })
    }

    fn finish(self) -> Result<Option<[u8; 32]>, ReadError> {
        let hash = match self {
            Self::Off => return Ok(None),
            Self::Inline(hash) => hash,
            Self::Thread { work, thread, .. } => {
                drop(work);
                thread.join().map_err(|_| ReadError::Io(io::Error::other("the hashing thread failed")))?
            }
        };
        Ok(Some(hash.finalize().into()))
    }
}

impl<R> std::fmt::Debug for Feed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("base", &self.base).field("valid", &self.valid).finish_non_exhaustive()
    }
}
