//! Exports of the bench tool: opening safely, reading in a stream, judging by one function (design section 8).

mod ask;
mod audit;
mod feed;
mod judge;
mod lengths;
mod open;
mod read;
mod scan;

pub use ask::{Asked, BadAsk, RolloutDefaults};
pub use audit::{Audit, AuditLine, Bad, audit, audit_file, verdict};
pub use judge::{
    CORE_METRICS, Expectation, Judgement, Layer, LengthSource, OutputLensShape, Part, Rollout, TPOT_METRICS, Unsound,
    judge,
};
pub use lengths::{Distribution, Lengths};
pub use open::{OpenError, open, open_at};
pub use read::{Counter, Export, JUDGED, OutputLens, ReadError, Scalar, read, read_unhashed};

/// Largest export that is read, in bytes (16 GiB): a hundred thousand requests of 8,000 tokens with every interval
/// written out stay below it, and a file that grows for ever ends.
pub const MAX_BYTES: u64 = 16 << 30;
