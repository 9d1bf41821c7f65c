//! The judgement of an export, one function for both layers (contract section H; design section 8).

use super::Export;
use crate::exit::AgentExit;
use crate::limits::Dataset;

/// What the caller asked the bench for; never the file's own claims.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// Requests per step.
    pub num_prompts: u64,
    /// Dataset.
    pub dataset: Dataset,
    /// Output tokens per request (`random`), also each completion's cap under rollout.
    pub output_len: u64,
    /// Whether EOS is ignored, which pins the output length on `random`.
    pub ignore_eos: bool,
    /// Rollout mode.
    pub rollout: Option<Rollout>,
}

/// Rollout part of an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// Completions per prompt.
    pub samples: u64,
    /// Floor on mean tokens per completion; 0 switches off the comparison and nothing else.
    pub min_mean_output_tokens: u64,
}

impl Expectation {
    /// Whether the model may stop by itself, so that output lengths are a measurement.
    pub fn respects_eos(&self) -> bool {
        self.rollout.is_some() || (self.dataset == Dataset::Sharegpt && !self.ignore_eos)
    }
}

/// Who judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Counters, `output_lens`, floor.
    Agent,
    /// The core metrics (contract H.3) as well.
    Host,
}

/// Which shape `output_lens` has (contract H.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLensShape {
    /// No array.
    Absent,
    /// One entry per completion.
    PerChoice,
    /// One entry per request, several completions summed.
    PerRequest,
}

impl OutputLensShape {
    /// Its published name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::PerChoice => "per_choice",
            Self::PerRequest => "per_request",
        }
    }
}

/// Why an export is not sound, with the values compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsound {
    /// Counters or metrics of wrong type, missing or not positive; `output_lens` unusable.
    Unusable {
        /// What is wrong, values included.
        detail: String,
    },
    /// Requests failed or are missing.
    Shortfall {
        /// As in the file.
        completed: i128,
        /// As in the file.
        failed: i128,
        /// As asked.
        expected: u64,
    },
    /// A floor, several samples, and lengths per request.
    LengthBasis {
        /// What was found.
        detail: String,
    },
    /// Mean below the floor.
    TooShort {
        /// Tokens.
        mean: f64,
        /// Tokens.
        floor: u64,
        /// `output_lens per completion` or `total_output_tokens / completed per request`.
        basis: &'static str,
    },
}

impl Unsound {
    /// The exit status that this verdict ends the agent with.
    pub const fn exit(&self) -> AgentExit {
        match self {
            Self::Unusable { .. } => AgentExit::ResultJsonUnusable,
            Self::Shortfall { .. } => AgentExit::ServedRequestShortfall,
            Self::LengthBasis { .. } => AgentExit::RolloutLengthBasisUnusable,
            Self::TooShort { .. } => AgentExit::RolloutOutputTooShort,
        }
    }

    /// The reason's name.
    pub const fn reason(&self) -> &'static str {
        self.exit().reason()
    }

    /// What to do about it, in one sentence (review finding D-04).
    pub fn hint(&self) -> String {
        todo!("PROTO")
    }

    /// One line for a person, with the values compared.
    pub fn detail(&self) -> String {
        todo!("PROTO")
    }
}

/// Outcome of one judgement. The first rule that speaks is the only one (review finding B-01).
pub type Judgement = Result<OutputLensShape, Unsound>;

/// Judges an export against what was asked for.
pub fn judge(export: &Export, expectation: &Expectation, layer: Layer) -> Judgement {
    let _ = (export, expectation, layer);
    todo!("PROTO")
}
