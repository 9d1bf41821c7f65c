//! The judgement of an export, one function for both layers (contract section H; design section 8).

use super::read::{Counter, Export, OUTPUT_LENS, OutputLens, Scalar, TOTAL_OUTPUT_TOKENS};
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

/// What of an export could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The file itself: missing, no regular file, not one JSON object.
    File,
    /// `completed` or `failed`.
    Counters,
    /// A core metric (contract H.3), `total_output_tokens` included.
    Metrics,
    /// `output_lens`.
    OutputLens,
}

/// Why an export is not sound, with the values compared.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsound {
    /// Counters or metrics of wrong type, missing or not positive; `output_lens` unusable; no export at all.
    Unusable {
        /// What could not be used.
        part: Part,
        /// What is wrong with it, values included.
        detail: String,
    },
    /// Requests failed or are missing.
    Shortfall {
        /// As in the file, an integer by type.
        completed: Counter,
        /// As in the file, an integer by type.
        failed: Counter,
        /// As asked.
        expected: u64,
    },
    /// A floor, several samples, and no lengths per completion to hold against it.
    LengthBasis {
        /// Entries of `output_lens`, one per request; `None` without the array.
        entries: Option<u64>,
        /// Completions per request.
        samples: u64,
        /// Tokens per completion.
        floor: u64,
    },
    /// Mean below the floor.
    TooShort {
        /// Tokens.
        mean: f64,
        /// Tokens.
        floor: u64,
        /// What the mean was taken of.
        basis: LengthSource,
    },
}

/// What a mean length was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthSource {
    /// The entries of `output_lens`, a completion each.
    PerCompletion,
    /// `total_output_tokens / completed`.
    PerRequest,
}

impl LengthSource {
    /// Its published name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerCompletion => "output_lens per completion",
            Self::PerRequest => "total_output_tokens / completed per request",
        }
    }
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
        match self {
            Self::Unusable { part, .. } => match part {
                Part::File => {
                    "read the bench's own output of this step: it was stopped while writing, ran out of disk space, or was \
                     given an --output-file of its own"
                }
                Part::Counters => {
                    "use a bench that writes `completed` and `failed` as JSON integers, as tokenspeed bench serve does"
                }
                Part::Metrics => {
                    "keep ttft and tpot in percentile_metrics, and read the bench's own output: a step that served \
                     requests has positive times and throughputs"
                }
                Part::OutputLens => {
                    "read the gateway's usage accounting: output_lens needs one whole number per completion, or one per \
                     request, none above what the step allowed"
                }
            }
            .to_owned(),
            Self::Shortfall { .. } => {
                "read the server's log and the export's `errors` for the requests that failed, or lower max_concurrency or \
                 request_rate until the server keeps up"
                    .to_owned()
            }
            Self::LengthBasis { .. } => {
                "set min_mean_output_tokens: 0 (TS_MIN_MEAN_OUTPUT_TOKENS=0) if this cell does not guard length, or \
                 rollout_samples: 1 if it must"
                    .to_owned()
            }
            Self::TooShort { .. } => {
                "look at what the policy generates: it stops almost at once; lower min_mean_output_tokens only if such short \
                 completions are meant"
                    .to_owned()
            }
        }
    }

    /// One line for a person, with the values compared.
    pub fn detail(&self) -> String {
        match self {
            Self::Unusable { detail, .. } => detail.clone(),
            Self::Shortfall { completed, failed, expected } => {
                format!("completed={completed} failed={failed}, expected completed={expected} failed=0")
            }
            Self::LengthBasis { entries: Some(entries), samples, floor } => format!(
                "output_lens has {entries} entries, one per request, each the sum of {samples} completions: a floor of \
                 {floor} tokens per completion cannot be held against them"
            ),
            Self::LengthBasis { entries: None, samples, floor } => format!(
                "the export has no output_lens, and total_output_tokens / completed is per request of {samples} \
                 completions: a floor of {floor} tokens per completion cannot be held against it"
            ),
            Self::TooShort { mean, floor, basis } => format!(
                "mean of {mean:.2} tokens ({}) is below the floor of {floor}; every request was served, so this is a \
                 policy that stopped generating, not a serving failure",
                basis.as_str()
            ),
        }
    }
}

/// Outcome of one judgement. The first rule that speaks is the only one (review finding B-01).
pub type Judgement = Result<OutputLensShape, Unsound>;

/// Judges an export against what was asked for.
///
/// In this order: counters by type, requests served, core metrics (host), `output_lens`, basis of the floor, floor.
pub fn judge<H>(export: &Export<H>, expectation: &Expectation, layer: Layer) -> Judgement {
    let completed = served(export, expectation)?;
    match layer {
        Layer::Agent => {}
        Layer::Host => core_metrics(export, expectation, completed)?,
    }
    // Only cells that publish the distribution can be failed by it (contract H.4, scope).
    let shape =
        if expectation.respects_eos() { lens_shape(export, expectation, completed)? } else { OutputLensShape::Absent };
    if let Some(rollout) = expectation.rollout {
        length_floor(export, rollout, shape, completed)?;
    }
    Ok(shape)
}

fn unusable<T>(part: Part, detail: String) -> Result<T, Unsound> {
    Err(Unsound::Unusable { part, detail })
}

/// Contract H.2: both counters integers by type, none failed, all completed. The number of requests served.
fn served<H>(export: &Export<H>, expectation: &Expectation) -> Result<u64, Unsound> {
    for (name, counter) in [("completed", &export.completed), ("failed", &export.failed)] {
        match counter {
            Counter::Integer(_) | Counter::Huge(_) => {}
            Counter::NotInteger(_) | Counter::Absent => {
                return unusable(Part::Counters, format!("{name} is {counter}, not a JSON integer"));
            }
        }
    }
    let expected = expectation.num_prompts;
    if export.failed == Counter::Integer(0) && export.completed == Counter::Integer(expected.into()) {
        return Ok(expected);
    }
    Err(Unsound::Shortfall { completed: export.completed.clone(), failed: export.failed.clone(), expected })
}

/// Core metrics that every measured step must carry, greater than 0 (contract H.3).
pub const CORE_METRICS: [&str; 6] =
    ["duration", "output_throughput", "request_throughput", "total_token_throughput", "mean_ttft_ms", "median_ttft_ms"];

/// Demanded as well where a second output token can exist.
pub const TPOT_METRICS: [&str; 2] = ["mean_tpot_ms", "median_tpot_ms"];

fn core_metrics<H>(export: &Export<H>, expectation: &Expectation, completed: u64) -> Result<(), Unsound> {
    let mut names = CORE_METRICS.to_vec();
    let mut faults = Vec::new();
    let pinned = expectation.dataset == Dataset::Random && expectation.ignore_eos && expectation.rollout.is_none();
    let second_token = if pinned {
        expectation.output_len > 1
    } else {
        match export.scalar(TOTAL_OUTPUT_TOKENS).map(Scalar::as_f64) {
            // Tokens are whole (review finding B-01): a fraction is a broken count.
            Some(total) if total > 0.0 && total.fract() == 0.0 => total > as_f64(completed),
            _ => {
                faults.push(bad_total(export));
                false
            }
        }
    };
    if second_token {
        names.extend(TPOT_METRICS);
    }
    for name in names {
        match export.scalar(name).map(Scalar::as_f64) {
            Some(value) if value > 0.0 => {}
            Some(value) => faults.push(format!("{name} is {value}, not above 0")),
            None => faults.push(format!("{name} is missing or no finite number")),
        }
    }
    if faults.is_empty() { Ok(()) } else { unusable(Part::Metrics, faults.join("; ")) }
}

fn bad_total<H>(export: &Export<H>) -> String {
    format!("{TOTAL_OUTPUT_TOKENS} is {}, not a positive whole number", export.total_output_tokens)
}

/// Contract H.4: an array that is there is a list of lengths of one of the two legitimate cardinalities, none above its cap.
fn lens_shape<H>(export: &Export<H>, expectation: &Expectation, completed: u64) -> Result<OutputLensShape, Unsound> {
    let lengths = match &export.output_lens {
        OutputLens::Absent => return Ok(OutputLensShape::Absent),
        OutputLens::Invalid(what) => return unusable(Part::OutputLens, format!("{OUTPUT_LENS}: {what}")),
        OutputLens::Whole(lengths) => lengths,
    };
    let samples = expectation.rollout.map_or(1, |rollout| rollout.samples);
    let (entries, per_choice) = (u128::from(lengths.count()), u128::from(completed) * u128::from(samples));
    let (shape, per_entry) = if entries == per_choice {
        (OutputLensShape::PerChoice, 1)
    } else if entries == u128::from(completed) {
        // Summed over the choices, so that an entry may hold that many completions' worth.
        (OutputLensShape::PerRequest, samples)
    } else {
        let wanted = if samples > 1 { format!("{per_choice} or {completed}") } else { completed.to_string() };
        return unusable(
            Part::OutputLens,
            format!(
                "{OUTPUT_LENS} has {entries} entries for {completed} requests of {samples} completions, not {wanted}"
            ),
        );
    };
    let cap = match expectation.dataset {
        Dataset::Random => u128::from(expectation.output_len) * u128::from(per_entry),
        Dataset::Sharegpt => return Ok(shape),
    };
    match lengths.max() {
        Some(longest) if u128::from(longest) > cap => unusable(
            Part::OutputLens,
            format!("{OUTPUT_LENS} has an entry of {longest} tokens ({}), above the {cap} allowed", shape.as_str()),
        ),
        _ => Ok(shape),
    }
}

/// Contract H.5. A floor of 0 switches off this comparison and nothing else.
fn length_floor<H>(
    export: &Export<H>,
    rollout: Rollout,
    shape: OutputLensShape,
    completed: u64,
) -> Result<(), Unsound> {
    let (samples, floor) = (rollout.samples, rollout.min_mean_output_tokens);
    if floor == 0 {
        return Ok(());
    }
    let (sum, count, basis) = match (shape, &export.output_lens) {
        (OutputLensShape::PerChoice, OutputLens::Whole(lengths)) => {
            (as_f64_wide(lengths.sum()), lengths.count(), LengthSource::PerCompletion)
        }
        (OutputLensShape::PerRequest, OutputLens::Whole(lengths)) => {
            return Err(Unsound::LengthBasis { entries: Some(lengths.count()), samples, floor });
        }
        _ if samples > 1 => return Err(Unsound::LengthBasis { entries: None, samples, floor }),
        _ => match (&export.total_output_tokens, export.scalar(TOTAL_OUTPUT_TOKENS).map(Scalar::as_f64)) {
            (Counter::Integer(_) | Counter::Huge(_), Some(total)) if total > 0.0 => {
                (total, completed, LengthSource::PerRequest)
            }
            _ => return unusable(Part::Metrics, bad_total(export)),
        },
    };
    // Whole numbers below 2^53 are exact; equality with the floor passes.
    if sum < as_f64(floor) * as_f64(count) {
        return Err(Unsound::TooShort { mean: sum / as_f64(count), floor, basis });
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts and floors stay far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a sum of tokens; above 2^53 no floor is near")]
fn as_f64_wide(sum: u128) -> f64 {
    sum as f64
}
