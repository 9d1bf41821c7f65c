//! Exports of the bench tool: opening safely, reading in a stream, judging by one function (design section 8).

mod judge;
mod open;
mod read;

pub use judge::{Expectation, Judgement, Layer, OutputLensShape, Rollout, Unsound, judge};
pub use open::{OpenError, open};
pub use read::{Counter, Export, OutputLens, ReadError, Scalar, read};
