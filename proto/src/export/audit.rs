//! One export from its path to its verdict: what `agent run`, `agent audit`, `controller run` and `controller audit` share.

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use super::{
    Expectation, Export, Layer, OpenError, OutputLensShape, Part, ReadError, Unsound, judge, open, read, read_unhashed,
};
use crate::exit::AgentExit;

/// Why an export is bad: not to be had, not to be read, or not sound.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// There is no such file, or it is not a regular one.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It is not one JSON object.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It was read and is not sound.
    #[error("{}", .0.detail())]
    Unsound(Unsound),
}

impl Bad {
    /// The exit status that this verdict ends the agent with.
    pub const fn exit(&self) -> AgentExit {
        match self {
            Self::Open(_) | Self::Read(_) => AgentExit::ResultJsonUnusable,
            Self::Unsound(unsound) => unsound.exit(),
        }
    }

    /// What to do about it, in one sentence.
    pub fn hint(&self) -> String {
        match self {
            Self::Open(_) | Self::Read(_) => Unsound::Unusable { part: Part::File, detail: String::new() }.hint(),
            Self::Unsound(unsound) => unsound.hint(),
        }
    }
}

/// An export with its verdict.
#[derive(Debug)]
pub struct Audit {
    /// What was read; `None` when the file could not be.
    pub export: Option<Export>,
    /// Sound, with the shape of `output_lens`, or why not.
    pub verdict: Result<OutputLensShape, Bad>,
}

/// Opens, reads and judges one export.
pub fn audit(path: &Path, expectation: &Expectation, layer: Layer) -> Audit {
    match open(path) {
        Ok(file) => audit_file(file, expectation, layer),
        Err(error) => Audit { export: None, verdict: Err(error.into()) },
    }
}

/// [`audit`] of a file that [`open()`] or [`super::open_at`] has opened.
pub fn audit_file(file: File, expectation: &Expectation, layer: Layer) -> Audit {
    match read(file) {
        Ok(export) => {
            let verdict = judge(&export, expectation, layer).map_err(Bad::Unsound);
            Audit { export: Some(export), verdict }
        }
        Err(error) => Audit { export: None, verdict: Err(error.into()) },
    }
}

/// [`audit`] without the hash of the file: the verdict alone.
pub fn verdict(path: &Path, expectation: &Expectation, layer: Layer) -> Result<OutputLensShape, Bad> {
    let export = read_unhashed(open(path)?)?;
    judge(&export, expectation, layer).map_err(Bad::Unsound)
}

/// One line of the `audit` commands' output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditLine {
    /// As it was named.
    pub file: String,
    /// `ok` or `fail`.
    pub verdict: &'static str,
    /// The failure's name (contract section C); null where the verdict is `ok`.
    pub reason: Option<&'static str>,
    /// The values compared, or the shape of `output_lens`.
    pub detail: String,
    /// What to do about it; null where the verdict is `ok`.
    pub hint: Option<String>,
}

impl AuditLine {
    /// Judges a file and says how it went; the second is the exit status that the verdict ends the agent with.
    pub fn of(path: &Path, expectation: &Expectation, layer: Layer) -> (Self, AgentExit) {
        let file = path.to_string_lossy().into_owned();
        match verdict(path, expectation, layer) {
            Ok(shape) => {
                let mut detail = format!("{} requests served", expectation.num_prompts);
                // Nothing is read from the array where EOS is ignored.
                if expectation.respects_eos() {
                    detail = format!("{detail}, output_lens {}", shape.as_str());
                }
                (Self { file, verdict: "ok", reason: None, detail, hint: None }, AgentExit::Pass)
            }
            Err(bad) => {
                let exit = bad.exit();
                let (detail, hint) = (bad.to_string(), Some(bad.hint()));
                (Self { file, verdict: "fail", reason: Some(exit.reason()), detail, hint }, exit)
            }
        }
    }
}
