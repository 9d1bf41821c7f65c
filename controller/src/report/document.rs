//! The machine form of a report, with what the published tables leave out: intervals, verdicts, support, remarks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::stats::bootstrap::{Better, Interval, Verdict};
use crate::stats::groups::Groups;
use crate::stats::quantile::Support;

/// Version of this document; rises with every change of meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// JSON Schema of this document.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

/// A report over a set of legs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// Always 1 here.
    pub schema_version: u32,
    /// Legs in path order.
    pub legs: Vec<LegEntry>,
    /// Cells: arm, load and method, all rounds pooled.
    pub cells: Vec<CellEntry>,
    /// Arms against each other, at the same load by the same method.
    pub comparisons: Vec<Comparison>,
    /// What the servers counted in the prompts.
    pub prompt_lengths: PromptLengths,
    /// What a reader must know before quoting a figure.
    pub remarks: Vec<Remark>,
    /// Files that matched and could not be read.
    pub unreadable: Vec<UnreadableFile>,
}

/// A file left out.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UnreadableFile {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// How the requests were made. Figures of different methods are never pooled or compared.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MethodEntry {
    /// The tool; null for the published client.
    pub tool: Option<String>,
    /// Its profile.
    pub profile: Option<String>,
    /// Arrival policy and rate; null for the closed loop.
    pub load_model: Option<String>,
}

/// One leg.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LegEntry {
    /// The file.
    pub path: String,
    /// Its label.
    pub leg: String,
    /// Arm as printed.
    pub arm: String,
    /// Workers.
    pub concurrency: i64,
    /// Method.
    pub method: MethodEntry,
    /// Round.
    pub round: i64,
    /// Successful measured requests.
    pub ok: usize,
    /// Measured requests asked for.
    pub requests: i64,
    /// Failed measured records by kind of error.
    pub failures: BTreeMap<String, usize>,
    /// Seconds of the measured phase.
    pub wall_s: f64,
    /// Completion tokens over the measured wall clock.
    pub output_tok_s: f64,
    /// 1000 / mean TPOT.
    pub decode_only_tok_s: Option<f64>,
    /// Mean TTFT, ms, warm-up discarded.
    pub mean_ttft_ms: Option<f64>,
    /// p50 TTFT, ms, warm-up discarded.
    pub p50_ttft_ms: Option<f64>,
    /// p95 TTFT, ms, warm-up discarded. A leg has no p99: that would be a maximum under another name.
    pub p95_ttft_ms: Option<f64>,
    /// Mean TTFT, ms, warm-up included.
    pub mean_ttft_with_warmup_ms: Option<f64>,
    /// TTFT of the first warm-up request by dispatch, ms.
    pub cold_ttft_ms: Option<f64>,
    /// What tokens were counted by.
    pub counted_by: &'static str,
    /// Rule G-USAGE.
    pub publishable: bool,
    /// Measured records without a usage token count; they are on no axis.
    pub dropped_no_usage: usize,
    /// TTFT corrections at or below zero, which are refused.
    pub corrections_refused: usize,
    /// Why the client's own limits show in the figures; null where the client does not say so.
    pub client_bound: Option<String>,
    /// Speculative acceptance.
    pub acceptance: AcceptanceEntry,
}

/// Speculative acceptance of a leg. What an engine does not expose is absent, never zero.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AcceptanceEntry {
    /// `/metrics`, `usage`, `absent`, or `counter reset inside the leg`.
    pub source: &'static str,
    /// Draft tokens accepted.
    pub accepted: Option<f64>,
    /// Draft tokens proposed.
    pub proposed: Option<f64>,
    /// Accepted over proposed.
    pub rate: Option<f64>,
    /// Accepted per completion token.
    pub per_output_token: Option<f64>,
}

/// One cell.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CellEntry {
    /// Arm as printed.
    pub arm: String,
    /// Workers.
    pub concurrency: i64,
    /// Method.
    pub method: MethodEntry,
    /// Rounds, ascending.
    pub rounds: Vec<i64>,
    /// Axes, warm-up discarded: the headline.
    pub warm_only: Vec<AxisEntry>,
    /// Axes over every successful request.
    pub with_warmup: Vec<AxisEntry>,
    /// Output tokens a second over the wall clock, prefill included.
    pub output_tok_s: RateEntry,
    /// Output tokens a second of one stream after its first token.
    pub decode_only_tok_s: RateEntry,
    /// Spread of p95 TTFT between rounds, max/min - 1.
    pub p95_ttft_spread: Option<f64>,
    /// Streaming granularity.
    pub granularity: Granularity,
}

/// Chunks and what they do to TTFT.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Granularity {
    /// Mean completion tokens per chunk.
    pub tokens_per_chunk: Option<f64>,
    /// Mean characters per token.
    pub chars_per_token: Option<f64>,
    /// Mean tokens in the first chunk; an estimate.
    pub first_chunk_tokens: Option<f64>,
    /// Measured records with a usage token count.
    pub counted: usize,
    /// Corrections refused among them.
    pub corrections_refused: usize,
}

/// One axis of one cell, in milliseconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AxisEntry {
    /// `ttft`, `ttft_corrected` (an estimate), `tpot`, `itl` or `e2el`.
    pub axis: &'static str,
    /// Values; gaps for `itl`, requests otherwise.
    pub n: usize,
    /// Percentiles with their support.
    pub percentiles: Vec<PercentileEntry>,
    /// 95 % interval of the median; null where nothing varies, and in the view with warm-up.
    pub median_interval: Option<Interval>,
    /// Largest.
    pub max: f64,
    /// Exact mean.
    pub mean: f64,
}

/// One percentile.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PercentileEntry {
    /// In percent.
    pub percent: u32,
    /// Null where it is withheld.
    pub value: Option<f64>,
    /// How far the number of values supports it.
    pub support: Support,
    /// Values from which it would not be withheld.
    pub least_n: usize,
}

/// A throughput of one cell.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RateEntry {
    /// All rounds pooled.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
    /// Per round, in the order of `rounds`.
    pub per_round: Vec<Option<f64>>,
    /// max/min - 1 over the rounds.
    pub spread: Option<f64>,
    /// Rounds disagree by more than 10 %: to be quoted as a spread, not as a value.
    pub quote_as_spread: bool,
}

/// One axis of one arm against another.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Comparison {
    /// The arm that the verdict is about.
    pub arm: String,
    /// The arm it is held against.
    pub against: String,
    /// Workers.
    pub concurrency: i64,
    /// Method.
    pub method: MethodEntry,
    /// `ttft`, ... (medians), `output_tok_s` or `decode_only_tok_s`.
    pub axis: &'static str,
    /// Which way is good.
    pub better: Better,
    /// Figure of `arm` over figure of `against`.
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
    /// What the data says.
    pub verdict: Verdict,
    /// Rounds of each arm beyond the present ones that would decide it, if ratio and variation stay as they are.
    /// Null when it is decided, or when no reasonable number of rounds would.
    pub more_rounds: Option<usize>,
    /// Verdict and remedy in words.
    pub words: String,
}

/// Prompt lengths in tokens, from usage.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PromptLengths {
    /// Arms that reported any.
    pub arms: Vec<String>,
    /// Bins with a count per arm, in the order of `arms`.
    pub bins: Vec<Bin>,
    /// Bands by median.
    pub bands: Vec<BandEntry>,
}

/// One bin.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Bin {
    /// Its name.
    pub tokens: String,
    /// Prompts per arm.
    pub counts: Vec<usize>,
}

/// Prompt tokens of a band over all arms.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BandEntry {
    /// Name.
    pub band: String,
    /// Prompts.
    pub n: usize,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Longest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// What kind of remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemarkKind {
    /// A leg without usage on every success (G-USAGE).
    NotPublishable,
    /// A leg with failed requests (G-COMPLETE).
    Failures,
    /// The client's own limits show in a leg.
    ClientBound,
    /// A cell with one round: no figure of it is a measurement yet.
    OneRound,
    /// Rounds of a cell disagree by more than 10 %.
    Spread,
    /// Rounds of a cell fall into two groups.
    SeparateGroups,
    /// Percentiles that n does not support.
    Withheld,
    /// Legs that are pooled or compared were configured differently.
    ConfigDiffers,
    /// Several methods in one directory.
    MixedMethods,
    /// TTFT corrections were refused.
    CorrectionsRefused,
}

/// What a reader must know.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Remark {
    /// What it is about.
    pub kind: RemarkKind,
    /// Leg or cell.
    pub subject: String,
    /// What was seen.
    pub detail: String,
    /// What to do.
    pub hint: String,
    /// The groups, where that is the remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Groups>,
}
