//! Reading an export in one pass over its bytes, in constant memory beside the numbers that are judged.

use std::io::Read;

/// `completed` or `failed` as it stands in the file, by JSON type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counter {
    /// A JSON integer that fits.
    Integer(i128),
    /// A JSON integer beyond `i128`, as written.
    Huge(String),
    /// Anything else that stands there, as written or by its type.
    NotInteger(String),
    /// The key is not there.
    Absent,
}

/// A top-level JSON number (never a boolean, never inside a string).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Written as an integer that fits.
    Integer(i64),
    /// Any other finite number.
    Float(f64),
}

impl Scalar {
    /// The value as a double.
    #[expect(clippy::cast_precision_loss, reason = "figures, not identities")]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Integer(i) => i as f64,
            Self::Float(f) => f,
        }
    }
}

/// State of the `output_lens` array.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputLens {
    /// The key is not there.
    Absent,
    /// Present, and every entry is a whole, non-negative, finite number.
    Whole(Vec<f64>),
    /// Present and not such an array; says what stands there.
    Invalid(String),
}

/// What was read from one export: every top-level number, in the file's order, and what the judgement needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// `completed`.
    pub completed: Counter,
    /// `failed`.
    pub failed: Counter,
    /// Every top-level finite number, in the order of the file; the last of a repeated key that nobody judges.
    pub scalars: Vec<(String, Scalar)>,
    /// `output_lens`.
    pub output_lens: OutputLens,
    /// SHA-256 of the whole file, lower-case hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl Export {
    /// A top-level finite number by name.
    pub fn scalar(&self, name: &str) -> Option<Scalar> {
        self.scalars.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// Why a file is no export: 54 for the agent, a dropped record for the host.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Zero bytes.
    #[error("the file is empty")]
    Empty,
    /// Not one JSON object, not UTF-8, a BOM, trailing data, too deep, a repeated judged key.
    #[error("{what} at byte {offset}")]
    Malformed {
        /// What was found.
        what: String,
        /// Where, from 0.
        offset: u64,
    },
    /// The system's own words.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads one export from a stream.
pub fn read(source: impl Read) -> Result<Export, ReadError> {
    drop(source);
    todo!("PROTO")
}
