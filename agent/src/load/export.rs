//! The export of a trial's step: a strict leg in the keys of `tokenspeed bench serve` (spec `tokenspeed-cli` 2.4), so
//! that one rule judges both tools. What the keys mean is in `docs/load-client.md`; where this tool knows better than
//! the other (the true number of requests in flight, a first token that has text) the key has the better value, and
//! `bench_tool` says whose it is. A figure that the answers cannot support is left out, never zero.

use std::path::PathBuf;
use std::str::FromStr;

use proto::limits::BenchTool;
use proto::stats;
use serde_json::{Map, Value, json};

use crate::load::leg::LegFile;
use crate::load::outcome::Class;
use crate::load::plan::{Plan, Prompts};
use crate::load::record::{PhaseName, Record};

/// A latency that is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token.
    Tpot,
    /// Inter-token latency.
    Itl,
    /// End-to-end latency.
    E2el,
}

impl Metric {
    const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Itl, Self::E2el];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2el => "e2el",
        }
    }
}

/// Metrics of a comma list; a name that nobody knows is passed over, as the other tool does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics(Vec<Metric>);

impl FromStr for Metrics {
    type Err = std::convert::Infallible;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let asked: Vec<&str> = list.split(',').map(str::trim).collect();
        Ok(Self(Metric::ALL.into_iter().filter(|metric| asked.contains(&metric.as_str())).collect()))
    }
}

/// Percentiles of a comma list, each in [0, 100].
#[derive(Debug, Clone, PartialEq)]
pub struct Percentiles(Vec<f64>);

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let bad = |part: &str| format!("{part:?} is no percentile: write numbers from 0 to 100, separated by commas");
        let one =
            |part: &str| part.trim().parse().ok().filter(|p: &f64| (0.0..=100.0).contains(p)).ok_or_else(|| bad(part));
        list.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

/// What the export of a step says beside its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportPlan {
    /// The file, written whole or not at all.
    pub path: PathBuf,
    /// Latencies.
    pub metrics: Metrics,
    /// Of each.
    pub percentiles: Percentiles,
    /// Whether the arrays of single requests are kept.
    pub detailed: bool,
}

/// One measured request, as the export counts it.
struct Sample<'r> {
    record: &'r Record,
    /// Answered to its end. An answer without any text was served; its first token is its first event with choices.
    served: bool,
    input: Option<u64>,
    output: Option<u64>,
    ttft: f64,
    e2el: f64,
}

impl<'r> Sample<'r> {
    fn of(record: &'r Record) -> Self {
        let own = record.own.as_ref();
        let first_choice = own.and_then(|own| own.first_choice);
        let served = match own.map(|own| own.outcome) {
            Some(Class::Complete) => true,
            Some(Class::Empty) => first_choice.is_some(),
            _ => false,
        };
        let measured = record.measured.as_ref();
        Self {
            record,
            served,
            input: record.prompt_tokens().or_else(|| own.and_then(|own| own.prompt_len)),
            output: record.completion_tokens(),
            ttft: measured.and_then(|m| m.ttft).or(first_choice).unwrap_or_default(),
            e2el: own.and_then(|own| own.last_choice).or(measured.map(|m| m.latency)).unwrap_or_default(),
        }
    }

    fn gaps(&self) -> &'r [f64] {
        self.record.measured.as_ref().map_or(&[], |measured| &measured.itls)
    }

    /// (E2EL - TTFT) / (tokens - 1); `None` for one token.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
    fn tpot(&self) -> Option<f64> {
        let tokens = self.output.filter(|tokens| *tokens > 1)?;
        Some((self.e2el - self.ttft) / (tokens - 1) as f64)
    }
}

/// The export of a finished leg.
pub fn document(plan: &Plan, export: &ExportPlan, leg: &LegFile) -> Map<String, Value> {
    let samples: Vec<Sample<'_>> =
        leg.records.iter().filter(|record| record.phase == PhaseName::Measured).map(Sample::of).collect();
    let served: Vec<&Sample<'_>> = samples.iter().filter(|sample| sample.served).collect();
    let mut file = Map::new();
    let mut put = |key: &str, value: Value| {
        file.insert(key.to_owned(), value);
    };
    put("date", json!(date()));
    put("backend", json!("openai"));
    put("label", json!(plan.label));
    put("model_id", json!(plan.ask.model));
    put(
        "tokenizer_id",
        match &plan.prompts {
            Prompts::Made(making) => json!(making.tokenizer),
            Prompts::File(_) => Value::Null,
        },
    );
    put("num_prompts", json!(plan.num_prompts));
    put("request_rate", plan.arrivals.rate().map_or_else(|| json!("inf"), |rate| json!(rate)));
    put("burstiness", json!(1.0));
    let closed = plan.arrivals == crate::load::arrival::Arrivals::Closed;
    put("max_concurrency", json!(if closed { Some(plan.concurrency) } else { plan.max_in_flight }));
    for (key, value) in throughputs(&served, samples.len() - served.len(), leg.summary.measured_wall_s) {
        put(key, value);
    }
    if export.detailed {
        for (key, value) in details(&samples) {
            put(key, value);
        }
    }
    put("max_output_tokens_per_s", json!(fullest_second(&served)));
    put("max_concurrent_requests", json!(leg.client.peak_in_flight));
    for metric in &export.metrics.0 {
        for (key, value) in latencies(*metric, &export.percentiles, &served) {
            put(&key, value);
        }
    }
    put("bench_tool", json!(BenchTool::Native.as_str()));
    // A number, because the reader of exports keeps numbers: what the host finds a client-bound step by.
    put("client_bound", json!(u8::from(leg.client.certification.client_bound)));
    put("client", json!(leg.client));
    file
}

/// Counters and rates; those of tokens only where every answer says its tokens.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn throughputs(served: &[&Sample<'_>], failed: usize, wall_s: f64) -> Vec<(&'static str, Value)> {
    let total = |count: fn(&Sample<'_>) -> Option<u64>| served.iter().map(|s| count(s)).sum::<Option<u64>>();
    let (input, output) = (total(|s| s.input), total(|s| s.output));
    let mut figures = vec![("duration", json!(wall_s)), ("completed", json!(served.len())), ("failed", json!(failed))];
    if let Some(input) = input {
        figures.push(("total_input_tokens", json!(input)));
    }
    if let Some(output) = output {
        figures.push(("total_output_tokens", json!(output)));
    }
    if wall_s > 0.0 {
        figures.push(("request_throughput", json!(served.len() as f64 / wall_s)));
        figures.push(("request_goodput", Value::Null));
        if let Some(output) = output {
            figures.push(("output_throughput", json!(output as f64 / wall_s)));
        }
        if let (Some(input), Some(output)) = (input, output) {
            figures.push(("total_token_throughput", json!((input + output) as f64 / wall_s)));
        }
    }
    figures
}

/// The arrays of single requests, in prompt order; a request that failed has zeros, as in the other tool's.
fn details(samples: &[Sample<'_>]) -> Vec<(&'static str, Value)> {
    let each = |of: &dyn Fn(&Sample<'_>) -> Value| Value::Array(samples.iter().map(of).collect());
    let mut arrays = vec![("input_lens", each(&|s| json!(s.input.unwrap_or_default())))];
    if samples.iter().all(|s| !s.served || s.output.is_some()) {
        let tokens = |s: &Sample<'_>| s.output.filter(|_| s.served).unwrap_or_default();
        arrays.push(("output_lens", each(&|s| json!(tokens(s)))));
    }
    let text = |s: &Sample<'_>| s.record.own.as_ref().and_then(|own| own.text.clone()).unwrap_or_default();
    arrays.extend([
        ("ttfts", each(&|s| json!(s.ttft))),
        ("itls", each(&|s| json!(s.gaps()))),
        ("start_times", each(&|s| json!(s.record.t_dispatch))),
        ("generated_texts", each(&|s| json!(text(s)))),
        ("errors", each(&|s| json!(s.record.err.as_deref().filter(|_| !s.served).unwrap_or_default()))),
    ]);
    arrays
}

/// Mean, median, deviation and percentiles, milliseconds; nothing without samples.
fn latencies(metric: Metric, percentiles: &Percentiles, served: &[&Sample<'_>]) -> Vec<(String, Value)> {
    let seconds: Vec<f64> = match metric {
        Metric::Ttft => served.iter().map(|s| s.ttft).collect(),
        // Over those answers alone that say their tokens it would describe a part and read as the whole.
        Metric::Tpot if served.iter().any(|s| s.output.is_none()) => Vec::new(),
        Metric::Tpot => served.iter().filter_map(|s| s.tpot()).collect(),
        Metric::Itl => served.iter().flat_map(|s| s.gaps()).copied().collect(),
        Metric::E2el => served.iter().map(|s| s.e2el).collect(),
    };
    let sorted = stats::sorted(seconds.into_iter().map(|s| s * 1e3).collect());
    let name = metric.as_str();
    let mut figures = vec![
        (format!("mean_{name}_ms"), stats::mean(&sorted)),
        (format!("median_{name}_ms"), stats::percentile(&sorted, 50.0)),
        (format!("std_{name}_ms"), stats::population_std(&sorted)),
    ];
    figures.extend(percentiles.0.iter().map(|p| (format!("p{p}_{name}_ms"), stats::percentile(&sorted, *p))));
    figures.into_iter().filter_map(|(key, value)| Some((key, json!(value?)))).collect()
}

/// Pieces of text in the fullest second since the first request.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "seconds of a step, and counts"
)]
fn fullest_second(served: &[&Sample<'_>]) -> f64 {
    let mut seconds: Vec<u64> = Vec::new();
    for sample in served {
        let mut at = sample.record.t_dispatch + sample.ttft;
        for gap in std::iter::once(&0.0).chain(sample.gaps()) {
            at += gap;
            let second = at.max(0.0) as usize;
            if seconds.len() <= second {
                seconds.resize(second + 1, 0);
            }
            seconds[second] += 1;
        }
    }
    seconds.into_iter().max().unwrap_or(0) as f64
}

/// `YYYYmmdd-HHMMSS`, UTC: a static program has no safe way to ask for the zone.
fn date() -> String {
    let now = time::OffsetDateTime::now_utc();
    let (year, month, day) = now.to_calendar_date();
    let (hour, minute, second) = now.to_hms();
    format!("{year:04}{:02}{day:02}-{hour:02}{minute:02}{second:02}", u8::from(month))
}
