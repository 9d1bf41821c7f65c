//! Makes the machine form: intervals, verdicts and remarks over the figures of a report.

use std::collections::BTreeSet;

use super::Unreadable;
use super::acceptance::{Acceptance, acceptance};
use super::axes::Axis;
use super::document::{
    AcceptanceEntry, AxisEntry, BandEntry, Bin, CellEntry, Comparison, Document, Granularity, LegEntry, MethodEntry,
    PercentileEntry, PromptLengths, RateEntry, Remark, RemarkKind, SCHEMA_VERSION, UnreadableFile,
};
use super::figures::{Axes, Cell, Figures, PERCENTS, Report, spread};
use super::leg::{Leg, Method};
use super::markdown::{acceptance_words, bin_name, percent, prompt_bins, prompts_by_band};
use crate::stats::bootstrap::{Better, MOST_ROUNDS, Resampled, Verdict};
use crate::stats::groups::separate;
use crate::stats::quantile::Support;

/// From this spread on, a cell is quoted as a spread (variadic seed).
const QUOTE_AS_SPREAD: f64 = 0.10;
/// From this spread on, the methodology asks for a variance study (harness spec C.7).
const STUDY: f64 = 0.25;
/// Settings that must agree between legs that are pooled or compared.
const SETTINGS: [&str; 10] = [
    "dataset",
    "num_prompts",
    "warmup",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "endpoint",
    "ignore_eos",
];

/// A figure that arms are compared by.
#[derive(Debug, Clone, Copy)]
struct Measure {
    name: &'static str,
    better: Better,
}

const OUTPUT: Measure = Measure { name: "output_tok_s", better: Better::Higher };
const DECODE: Measure = Measure { name: "decode_only_tok_s", better: Better::Higher };

/// Everything resampled of one cell: the axes in order, then both throughputs.
struct Sampled(Vec<(Measure, Option<Resampled>)>);

impl Sampled {
    fn of(cell: &Cell, legs: &[Leg]) -> Self {
        let label = |what: &str| format!("{} {} {what}", cell.label, cell.key.concurrency);
        let members = || cell.legs.iter().map(|at| &legs[*at]);
        let columns = |axis: Axis| -> Vec<&[f64]> { members().map(|leg| leg.records.measured.axis(axis)).collect() };
        let mut all: Vec<(Measure, Option<Resampled>)> = Axis::ALL
            .into_iter()
            .map(|axis| {
                let measure = Measure { name: axis.name(), better: Better::Lower };
                let resampled = match axis {
                    Axis::Itl => gaps(&label(axis.name()), cell, legs),
                    Axis::Ttft | Axis::TtftCorrected | Axis::Tpot | Axis::E2el => {
                        Resampled::median(&label(axis.name()), &columns(axis))
                    }
                };
                (measure, resampled)
            })
            .collect();
        let rates: Vec<(f64, f64)> =
            members().map(|leg| (leg.records.measured.tokens(), leg.summary.measured_wall_s)).collect();
        all.push((OUTPUT, Resampled::rate(&label(OUTPUT.name), &rates)));
        all.push((DECODE, Resampled::inverse_mean(&label(DECODE.name), &columns(Axis::Tpot), 1000.0)));
        Self(all)
    }

    fn get(&self, name: &str) -> Option<&Resampled> {
        self.0.iter().find(|(measure, _)| measure.name == name)?.1.as_ref()
    }
}

/// The median gap; the gaps of a request belong together.
#[expect(clippy::cast_precision_loss, reason = "counts of gaps")]
fn gaps(label: &str, cell: &Cell, legs: &[Leg]) -> Option<Resampled> {
    let mut pool = super::figures::pooled(cell.legs.iter().map(|at| &legs[*at].records.measured), Axis::Itl);
    pool.sort_unstable_by(f64::total_cmp);
    let middle = proto::stats::percentile(&pool, 50.0)?;
    let clusters: Vec<Vec<(f64, f64)>> = cell
        .legs
        .iter()
        .map(|at| {
            let measured = &legs[*at].records.measured;
            let mut rest = measured.axis(Axis::Itl);
            let mut clusters = Vec::with_capacity(measured.gap_counts.len());
            for count in measured.gap_counts.iter().filter(|count| **count > 0) {
                let (own, tail) = rest.split_at(*count as usize);
                rest = tail;
                let below = own.iter().filter(|gap| **gap < middle).count() as f64;
                let equal = own.iter().filter(|gap| gap.total_cmp(&middle).is_eq()).count() as f64;
                clusters.push((below + equal / 2.0, own.len() as f64));
            }
            clusters
        })
        .collect();
    Resampled::clustered_median(label, &clusters, |share| {
        proto::stats::percentile(&pool, share * 100.0).unwrap_or(middle)
    })
}

/// The machine form of a report.
pub fn document(report: &Report, unreadable: &[Unreadable]) -> Document {
    let sampled: Vec<Sampled> = report.cells.iter().map(|cell| Sampled::of(cell, &report.legs)).collect();
    Document {
        schema_version: SCHEMA_VERSION,
        legs: (0..report.legs.len()).map(|at| leg_entry(report, at)).collect(),
        cells: report.cells.iter().zip(&sampled).map(|(cell, sampled)| cell_entry(report, cell, sampled)).collect(),
        comparisons: comparisons(report, &sampled),
        prompt_lengths: prompt_lengths(report),
        remarks: remarks(report),
        unreadable: unreadable
            .iter()
            .map(|file| UnreadableFile { path: file.path.clone(), reason: file.reason.clone() })
            .collect(),
    }
}

fn method_entry(method: &Method) -> MethodEntry {
    MethodEntry { tool: method.tool.clone(), profile: method.profile.clone(), load_model: method.load.clone() }
}

fn leg_entry(report: &Report, at: usize) -> LegEntry {
    let (leg, figures) = (&report.legs[at], &report.leg_figures[at]);
    let ttft = figures.measured[Axis::Ttft as usize];
    let key = &leg.summary.key;
    let found = acceptance(leg);
    let mut entry = AcceptanceEntry {
        source: acceptance_words(found).0,
        accepted: None,
        proposed: None,
        rate: None,
        per_output_token: None,
    };
    match found {
        Acceptance::Metrics { accepted, proposed, per_token } => {
            entry.accepted = Some(accepted);
            entry.proposed = Some(proposed);
            entry.rate = Some(accepted / proposed);
            entry.per_output_token = per_token;
        }
        Acceptance::Usage { accepted, per_token } => {
            entry.accepted = Some(accepted);
            entry.per_output_token = per_token;
        }
        Acceptance::CounterReset | Acceptance::Absent => {}
    }
    LegEntry {
        path: leg.path.clone(),
        leg: leg.summary.label.clone(),
        arm: report.cell_of(at).map_or_else(|| key.arm.clone(), |cell| cell.label.clone()),
        concurrency: key.concurrency,
        method: method_entry(&key.method),
        round: leg.summary.round,
        ok: leg.records.ok_measured,
        requests: leg.summary.measured_requests,
        failures: leg.records.failures.clone(),
        wall_s: leg.summary.measured_wall_s,
        output_tok_s: figures.output_tok_s,
        decode_only_tok_s: figures.decode_only_tok_s,
        mean_ttft_ms: ttft.map(|t| t.mean),
        p50_ttft_ms: ttft.map(|t| t.p50()),
        p95_ttft_ms: ttft.map(|t| t.p95()),
        mean_ttft_with_warmup_ms: figures.mean_ttft_with_warmup,
        cold_ttft_ms: leg.records.cold_ttft_ms,
        counted_by: leg.counted_by(),
        publishable: leg.publishable(),
        dropped_no_usage: leg.records.measured.dropped_no_usage,
        corrections_refused: leg.records.measured.over_corrected,
        client_bound: leg.summary.client_bound.clone(),
        acceptance: entry,
    }
}

fn axis_entries(axes: &Axes, sampled: Option<&Sampled>) -> Vec<AxisEntry> {
    let entry = |axis: Axis, figures: Figures| AxisEntry {
        axis: axis.name(),
        n: figures.n,
        percentiles: PERCENTS
            .iter()
            .zip(figures.percentiles)
            .map(|(percent, value)| {
                let support = Support::of(figures.n, *percent);
                PercentileEntry {
                    percent: *percent,
                    value: (support != Support::Withheld).then_some(value),
                    support,
                    least_n: Support::least_samples(*percent),
                }
            })
            .collect(),
        median_interval: sampled.and_then(|sampled| sampled.get(axis.name())?.interval()),
        max: figures.max,
        mean: figures.mean,
    };
    Axis::ALL.into_iter().filter_map(|axis| axes[axis as usize].map(|figures| entry(axis, figures))).collect()
}

fn cell_entry(report: &Report, cell: &Cell, sampled: &Sampled) -> CellEntry {
    let order = cell.by_round(&report.legs);
    let rate = |measure: Measure, per_leg: &dyn Fn(usize) -> Option<f64>| {
        let per_round: Vec<Option<f64>> = order.iter().map(|at| per_leg(*at)).collect();
        let spread = spread(&per_round.iter().flatten().copied().collect::<Vec<_>>());
        RateEntry {
            value: sampled.get(measure.name).map(|figure| figure.value),
            interval: sampled.get(measure.name).and_then(Resampled::interval),
            per_round,
            spread,
            quote_as_spread: spread.is_some_and(|spread| spread > QUOTE_AS_SPREAD),
        }
    };
    CellEntry {
        arm: cell.label.clone(),
        concurrency: cell.key.concurrency,
        method: method_entry(&cell.key.method),
        rounds: order.iter().map(|at| report.legs[*at].summary.round).collect(),
        warm_only: axis_entries(&cell.warm, Some(sampled)),
        with_warmup: axis_entries(&cell.all, None),
        output_tok_s: rate(OUTPUT, &|at| Some(report.leg_figures[at].output_tok_s)),
        decode_only_tok_s: rate(DECODE, &|at| report.leg_figures[at].decode_only_tok_s),
        p95_ttft_spread: spread(&tails(report, cell)),
        granularity: Granularity {
            tokens_per_chunk: cell.tokens_per_chunk,
            chars_per_token: cell.chars_per_token,
            first_chunk_tokens: cell.first_chunk_tokens,
            counted: cell.counted,
            corrections_refused: cell.over_corrected,
        },
    }
}

fn tails(report: &Report, cell: &Cell) -> Vec<f64> {
    let tail = |at: &usize| Some(report.leg_figures[*at].measured[Axis::Ttft as usize]?.p95());
    cell.legs.iter().filter_map(tail).collect()
}

fn comparisons(report: &Report, sampled: &[Sampled]) -> Vec<Comparison> {
    let mut found = Vec::new();
    for (at, cell) in report.cells.iter().enumerate() {
        for (other_at, other) in report.cells.iter().enumerate().skip(at + 1) {
            if cell.key.concurrency != other.key.concurrency || cell.key.method != other.key.method {
                continue;
            }
            let doubt = doubt(report, cell, other);
            for (measure, figure) in &sampled[at].0 {
                if let (Some(figure), Some(against)) = (figure, sampled[other_at].get(measure.name)) {
                    found.push(compare(cell, other, *measure, (figure, against), doubt.as_deref()));
                }
            }
        }
    }
    found
}

/// Why two cells cannot be judged at all, whatever their figures say.
fn doubt(report: &Report, a: &Cell, b: &Cell) -> Option<String> {
    let legs = || a.legs.iter().chain(&b.legs).map(|at| &report.legs[*at]);
    if let Some(leg) = legs().find(|leg| !leg.publishable()) {
        return Some(format!("{} is not publishable (G-USAGE)", leg.path));
    }
    if let Some(leg) = legs().find(|leg| leg.summary.client_bound.is_some()) {
        return Some(format!("{} is client_bound", leg.path));
    }
    let differing = differing_settings(&legs().collect::<Vec<_>>());
    (!differing.is_empty()).then(|| format!("their legs differ in {}", differing.join(", ")))
}

fn compare(
    cell: &Cell,
    other: &Cell,
    measure: Measure,
    (figure, against): (&Resampled, &Resampled),
    doubt: Option<&str>,
) -> Comparison {
    let ratio = figure.over(against);
    let verdict = if doubt.is_some() { Verdict::Undecided } else { ratio.verdict(measure.better) };
    let open = verdict == Verdict::Undecided && doubt.is_none();
    let more_rounds = if open { ratio.more_rounds().map(|rounds| rounds.max(1)) } else { None };
    let words = match (verdict, doubt, more_rounds) {
        (Verdict::Better, _, _) => format!("{} is better than {}", cell.label, other.label),
        (Verdict::Worse, _, _) => format!("{} is worse than {}", cell.label, other.label),
        (Verdict::Undecided, Some(doubt), _) => format!("not judged: {doubt}"),
        (Verdict::Undecided, None, _) if ratio.legs.0.min(ratio.legs.1) < 2 => {
            "undecided: one round says nothing about the variation between boots; run at least 1 more".to_owned()
        }
        (Verdict::Undecided, None, Some(1)) => "undecided: about 1 more round of each arm would decide it".to_owned(),
        (Verdict::Undecided, None, Some(rounds)) => {
            format!("undecided: about {rounds} more rounds of each arm would decide it")
        }
        (Verdict::Undecided, None, None) => {
            format!("undecided: too close to call within {MOST_ROUNDS} rounds")
        }
    };
    Comparison {
        arm: cell.label.clone(),
        against: other.label.clone(),
        concurrency: cell.key.concurrency,
        method: method_entry(&cell.key.method),
        axis: measure.name,
        better: measure.better,
        ratio: ratio.value,
        interval: ratio.interval,
        verdict,
        more_rounds,
        words,
    }
}

/// Settings that are recorded differently by some of the legs.
fn differing_settings(legs: &[&Leg]) -> Vec<&'static str> {
    let values = |key: &str| legs.iter().filter_map(|leg| leg.config.get(key)).map(ToString::to_string).collect();
    SETTINGS.into_iter().filter(|key| BTreeSet::<String>::len(&values(key)) > 1).collect()
}

fn prompt_lengths(report: &Report) -> PromptLengths {
    let (arms, counts) = prompt_bins(report);
    PromptLengths {
        arms: arms.iter().map(|arm| (*arm).to_owned()).collect(),
        bins: counts.into_iter().enumerate().map(|(bin, counts)| Bin { tokens: bin_name(bin), counts }).collect(),
        bands: prompts_by_band(report)
            .into_iter()
            .map(|(band, b)| BandEntry { band, n: b.n, min: b.min, p50: b.p50, p90: b.p90, max: b.max, mean: b.mean })
            .collect(),
    }
}

fn remarks(report: &Report) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for leg in &report.legs {
        leg_remarks(leg, &mut remarks);
    }
    for cell in &report.cells {
        cell_remarks(report, cell, &mut remarks);
    }
    let methods: BTreeSet<String> = report.cells.iter().map(|cell| cell.key.method.words()).collect();
    if methods.len() > 1 {
        let methods: Vec<String> = methods.into_iter().collect();
        remarks.push(remark(
            RemarkKind::MixedMethods,
            "the report",
            format!("legs were made by {}", methods.join(" / ")),
            "figures of different tools, profiles or arrivals are neither pooled nor compared; narrow --glob",
        ));
    }
    remarks
}

fn remark(kind: RemarkKind, subject: &str, detail: String, hint: &str) -> Remark {
    Remark { kind, subject: subject.to_owned(), detail, hint: hint.to_owned(), groups: None }
}

fn leg_remarks(leg: &Leg, remarks: &mut Vec<Remark>) {
    let mut add = |kind, detail, hint| remarks.push(remark(kind, &leg.path, detail, hint));
    let (ok, asked) = (leg.records.ok_measured, leg.summary.measured_requests);
    if i64::try_from(ok).is_ok_and(|ok| ok < asked) {
        let kinds: Vec<String> = leg.records.failures.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let kinds = if kinds.is_empty() { "no record of the rest".to_owned() } else { kinds.join(", ") };
        add(
            RemarkKind::Failures,
            format!("{ok} of {asked} measured requests succeeded ({kinds})"),
            "quote the failure count beside every figure: the wall clock includes the failed requests, the axes do not",
        );
    }
    if !leg.publishable() {
        add(
            RemarkKind::NotPublishable,
            format!("{} successful requests carry no usage token count", leg.records.measured.dropped_no_usage),
            "make the server report usage (stream_options.include_usage) and run the leg again",
        );
    }
    if let Some(reason) = &leg.summary.client_bound {
        add(
            RemarkKind::ClientBound,
            format!("the client itself was the limit: {reason}"),
            "give the client cores of its own or lower the load, and run the leg again; do not quote this one",
        );
    }
    if leg.records.measured.over_corrected > 0 {
        add(
            RemarkKind::CorrectionsRefused,
            format!("{} TTFT corrections came out at or below zero", leg.records.measured.over_corrected),
            "the corrected column leaves them out, so it is over fewer and slower requests than the raw one",
        );
    }
}

fn cell_remarks(report: &Report, cell: &Cell, remarks: &mut Vec<Remark>) {
    let subject = format!("{} c={}", cell.label, cell.key.concurrency);
    let legs: Vec<&Leg> = cell.legs.iter().map(|at| &report.legs[*at]).collect();
    if cell.legs.len() < 2 {
        remarks.push(remark(
            RemarkKind::OneRound,
            &subject,
            "one round on one server boot".to_owned(),
            "a single sample is not a measurement: run at least a second round on another boot",
        ));
    }
    let figures = || cell.legs.iter().map(|at| &report.leg_figures[*at]);
    let median =
        |axis: Axis| -> Vec<f64> { figures().filter_map(|f| Some(f.measured[axis as usize]?.p50())).collect() };
    let rates: Vec<f64> = figures().map(|f| f.output_tok_s).collect();
    for (what, values) in [("output tok/s", &rates), ("p95 TTFT", &tails(report, cell))] {
        if let Some(spread) = spread(values).filter(|spread| *spread > QUOTE_AS_SPREAD) {
            let hint = if spread > STUDY {
                "quote the spread, not a value; above 25 % find out first what varies between boots"
            } else {
                "quote the spread, not a value"
            };
            let detail = format!("{what} differs by {} between rounds", percent(Some(spread)));
            remarks.push(remark(RemarkKind::Spread, &subject, detail, hint));
        }
    }
    let measures = [("output tok/s", rates), ("median TTFT", median(Axis::Ttft)), ("median TPOT", median(Axis::Tpot))];
    for (what, values) in measures {
        if values.len() != legs.len() {
            continue;
        }
        if let Some(groups) = separate(&values) {
            let rounds = |members: &[usize]| {
                let names: Vec<String> = members.iter().map(|at| legs[*at].summary.round.to_string()).collect();
                names.join(", ")
            };
            remarks.push(Remark {
                groups: Some(groups.clone()),
                ..remark(
                    RemarkKind::SeparateGroups,
                    &subject,
                    format!(
                        "{what} falls into two groups, {:.0}% apart: round {} against round {}",
                        (groups.ratio - 1.0) * 100.0,
                        rounds(&groups.low),
                        rounds(&groups.high)
                    ),
                    "a mean of two modes describes neither: find what differs between the boots, or run more rounds",
                )
            });
        }
    }
    withheld(cell, &subject, remarks);
    let differing = differing_settings(&legs);
    if !differing.is_empty() {
        remarks.push(remark(
            RemarkKind::ConfigDiffers,
            &subject,
            format!("its legs differ in {}", differing.join(", ")),
            "pool only legs that were run alike: narrow --glob",
        ));
    }
}

fn withheld(cell: &Cell, subject: &str, remarks: &mut Vec<Remark>) {
    let mut lines = Vec::new();
    for axis in Axis::ALL {
        let Some(figures) = cell.warm[axis as usize] else { continue };
        let names: Vec<String> = PERCENTS
            .iter()
            .filter(|percent| Support::of(figures.n, **percent) == Support::Withheld)
            .map(|percent| format!("p{percent}"))
            .collect();
        if !names.is_empty() {
            lines.push(format!("{} of {} (n {})", names.join(", "), axis.name(), figures.n));
        }
    }
    if !lines.is_empty() {
        let needed = PERCENTS.map(|percent| format!("p{percent} {}", Support::least_samples(percent)));
        remarks.push(remark(
            RemarkKind::Withheld,
            subject,
            format!("too few values for {}", lines.join("; ")),
            &format!("the published tables print them all the same; values needed: {}", needed.join(", ")),
        ));
    }
}
