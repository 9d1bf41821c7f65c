//! The published tables (harness spec C.5), to the last byte: what people and scripts already read.

use super::acceptance::{Acceptance, acceptance};
use super::axes::Axis;
use super::figures::{Axes, Cell, PERCENTS, Report, spread};
use crate::stats::quantile::percentiles;

const POOL_NOTE: &str = "n counts the values of the axis over all rounds of the cell: p99 and max come from that \
                         pool, never from a single leg.";
const GRANULARITY_NOTE: &str = "The token count of the first chunk is an estimate: its characters over the characters \
                                per token of the whole answer. The stream itself carries no count per chunk.";

/// Lower edges of the prompt-length bins.
pub const BIN_EDGES: [u32; 8] = [0, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Name of a bin.
pub fn bin_name(bin: usize) -> String {
    match BIN_EDGES.get(bin + 1) {
        Some(next) => format!("{}-{}", BIN_EDGES[bin], next - 1),
        None => format!(">={}", BIN_EDGES[bin]),
    }
}

/// The bin of a prompt length.
pub fn bin_of(tokens: f64) -> usize {
    BIN_EDGES.iter().rposition(|edge| tokens >= f64::from(*edge)).unwrap_or(0)
}

/// A number with that many decimals, rounded from the exact value, ties to even; `-` for none.
pub fn fixed(value: impl Into<Option<f64>>, decimals: usize) -> String {
    match value.into() {
        Some(value) if !value.is_nan() => format!("{value:.decimals$}"),
        _ => "-".to_owned(),
    }
}

/// A table in the making.
pub(super) struct Table<'a> {
    out: &'a mut String,
}

impl<'a> Table<'a> {
    /// Prints heading row and separator.
    pub(super) fn new(out: &'a mut String, header: &[&str]) -> Self {
        let mut table = Self { out };
        table.line(header.iter());
        table.out.push('|');
        for _ in header {
            table.out.push_str("---|");
        }
        table.out.push('\n');
        table
    }

    /// Prints a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.line(cells.into_iter());
    }

    pub(super) fn line(&mut self, cells: impl Iterator<Item = impl AsRef<str>>) {
        self.out.push('|');
        for cell in cells {
            self.out.push(' ');
            self.out.push_str(cell.as_ref());
            self.out.push_str(" |");
        }
        self.out.push('\n');
    }
}

pub(super) fn heading(out: &mut String, text: &str) {
    out.push_str("\n## ");
    out.push_str(text);
    out.push_str("\n\n");
}

fn note(out: &mut String, text: &str) {
    out.push_str(text);
    out.push_str("\n\n");
}

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut out = format!("# Variadic load report over {} legs\n", report.legs.len());
    histogram(&mut out, report);
    bands(&mut out, report);
    per_leg(&mut out, report);
    spreads(&mut out, report);
    heading(&mut out, "Percentiles, pooled over both rounds (warm only, warmup discarded)");
    pooled(&mut out, report, |cell| &cell.warm);
    heading(&mut out, "Percentiles, pooled over both rounds (with warmup included)");
    pooled(&mut out, report, |cell| &cell.all);
    granularity(&mut out, report);
    acceptances(&mut out, report);
    cold_start(&mut out, report);
    out
}

/// Prompts per bin and arm: `counts[bin][arm]`, with the arms that have any.
pub fn prompt_bins(report: &Report) -> (Vec<&str>, Vec<Vec<usize>>) {
    let mut arms = report.arms();
    let mut counts = vec![vec![0; arms.len()]; BIN_EDGES.len()];
    for cell in &report.cells {
        let Some(arm) = arms.iter().position(|arm| *arm == cell.label) else { continue };
        for (_, tokens) in cell.legs.iter().flat_map(|at| &report.legs[*at].records.prompts) {
            counts[bin_of(*tokens)][arm] += 1;
        }
    }
    let with_any: Vec<bool> = (0..arms.len()).map(|arm| counts.iter().any(|bin| bin[arm] > 0)).collect();
    let mut keep = with_any.iter();
    arms.retain(|_| *keep.next().unwrap_or(&false));
    for bin in &mut counts {
        let mut keep = with_any.iter();
        bin.retain(|_| *keep.next().unwrap_or(&false));
    }
    (arms, counts)
}

fn histogram(out: &mut String, report: &Report) {
    heading(out, "Realised prompt-length histogram, read back from each server's own usage.prompt_tokens");
    let (arms, counts) = prompt_bins(report);
    if arms.is_empty() {
        out.push_str("| prompt tokens |  |\n|---|\n");
        return;
    }
    let mut header = vec!["prompt tokens"];
    header.extend(&arms);
    let mut table = Table::new(out, &header);
    for (bin, counts) in counts.iter().enumerate().filter(|(_, counts)| counts.iter().any(|n| *n > 0)) {
        table.line(std::iter::once(bin_name(bin)).chain(counts.iter().map(ToString::to_string)));
    }
}

/// Prompt tokens by band, ordered by median, ties by first appearance.
pub fn prompts_by_band(report: &Report) -> Vec<(String, BandLengths)> {
    let mut bands: Vec<(String, Vec<f64>)> = Vec::new();
    for records in report.legs.iter().map(|leg| &leg.records) {
        for (band, tokens) in &records.prompts {
            let name = &records.bands[*band as usize];
            match bands.iter_mut().find(|(known, _)| known == name) {
                Some((_, values)) => values.push(*tokens),
                None => bands.push((name.clone(), vec![*tokens])),
            }
        }
    }
    let mut bands: Vec<(String, BandLengths)> =
        bands.into_iter().filter_map(|(name, mut values)| Some((name, BandLengths::of(&mut values)?))).collect();
    bands.sort_by(|a, b| a.1.p50.total_cmp(&b.1.p50));
    bands
}

/// Prompt tokens of one band.
#[derive(Debug, Clone, Copy)]
pub struct BandLengths {
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

impl BandLengths {
    fn of(values: &mut [f64]) -> Option<Self> {
        let mean = proto::stats::exact_mean(values)?;
        let [min, p50, p90, max] = percentiles(values, [0, 50, 90, 100])?;
        Some(Self { n: values.len(), min, p50, p90, max, mean })
    }
}

fn bands(out: &mut String, report: &Report) {
    out.push('\n');
    let mut table = Table::new(out, &["band", "n", "min", "p50", "p90", "max", "mean"]);
    for (band, b) in prompts_by_band(report) {
        let whole = |value: f64| fixed(value, 0);
        table.row([
            format!("`{band}`"),
            b.n.to_string(),
            whole(b.min),
            whole(b.p50),
            whole(b.p90),
            whole(b.max),
            whole(b.mean),
        ]);
    }
}

fn per_leg(out: &mut String, report: &Report) {
    heading(out, "Per leg: throughput and the spread between rounds");
    let mut table = Table::new(
        out,
        &[
            "arm",
            "c",
            "round",
            "ok/n",
            "out tok/s",
            "decode-only tok/s",
            "mean TTFT ms",
            "p95 TTFT ms",
            "wall s",
            "counted by",
            "publishable",
        ],
    );
    for_each_leg(report, |cell, at| {
        let (leg, figures) = (&report.legs[at], &report.leg_figures[at]);
        let ttft = figures.measured[Axis::Ttft as usize];
        table.row([
            cell.label.clone(),
            cell.key.concurrency.to_string(),
            leg.summary.round.to_string(),
            format!("{}/{}", leg.records.ok_measured, leg.summary.measured_requests),
            fixed(figures.output_tok_s, 2),
            fixed(figures.decode_only_tok_s, 2),
            fixed(ttft.map(|t| t.mean), 1),
            fixed(ttft.map(|t| t.p95()), 1),
            fixed(leg.summary.measured_wall_s, 1),
            leg.counted_by().to_owned(),
            if leg.publishable() { "yes" } else { "NO (G-USAGE)" }.to_owned(),
        ]);
    });
}

/// Legs in table order: by cell, then by round.
pub(super) fn for_each_leg(report: &Report, mut visit: impl FnMut(&Cell, usize)) {
    for cell in &report.cells {
        for at in cell.by_round(&report.legs) {
            visit(cell, at);
        }
    }
}

/// Spread as printed.
pub fn percent(spread: Option<f64>) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.1}%", 100.0 * spread))
}

fn spreads(out: &mut String, report: &Report) {
    heading(out, "Round-to-round spread per cell");
    let mut table = Table::new(out, &["arm", "c", "out tok/s per round", "spread", "p95 TTFT ms per round", "spread"]);
    for cell in &report.cells {
        let column = |decimals, values: Vec<Option<f64>>| {
            let text: Vec<String> = values.iter().map(|value| fixed(*value, decimals)).collect();
            (text.join(" / "), percent(spread(&values.into_iter().flatten().collect::<Vec<_>>())))
        };
        let figures = || cell.legs.iter().map(|at| &report.leg_figures[*at]);
        let rates = column(2, figures().map(|f| Some(f.output_tok_s)).collect());
        let tails = column(1, figures().map(|f| Some(f.measured[Axis::Ttft as usize]?.p95())).collect());
        table.row([cell.label.clone(), cell.key.concurrency.to_string(), rates.0, rates.1, tails.0, tails.1]);
    }
}

fn pooled(out: &mut String, report: &Report, view: impl Fn(&Cell) -> &Axes) {
    note(out, POOL_NOTE);
    let percents: Vec<String> = PERCENTS.iter().map(|p| format!("p{p}")).collect();
    let mut header = vec!["arm", "c", "n", "axis"];
    header.extend(percents.iter().map(String::as_str));
    header.extend(["max", "mean"]);
    let mut table = Table::new(out, &header);
    for cell in &report.cells {
        for axis in Axis::ALL {
            let Some(figures) = view(cell)[axis as usize] else { continue };
            let mut row = vec![
                cell.label.clone(),
                cell.key.concurrency.to_string(),
                figures.n.to_string(),
                axis.heading().to_owned(),
            ];
            row.extend(figures.percentiles.iter().chain([&figures.max, &figures.mean]).map(|value| fixed(*value, 1)));
            table.line(row.iter());
        }
    }
}

fn granularity(out: &mut String, report: &Report) {
    heading(out, "Streaming granularity, and what it does to TTFT");
    note(out, GRANULARITY_NOTE);
    let mut table = Table::new(
        out,
        &[
            "arm",
            "c",
            "tokens per chunk",
            "chars per token",
            "first chunk tokens (est)",
            "p50 TTFT raw ms",
            "p50 TTFT corrected ms (est)",
            "corrections refused",
        ],
    );
    for cell in &report.cells {
        let p50 = |axis: Axis| fixed(cell.warm[axis as usize].map(|figures| figures.p50()), 1);
        table.row([
            cell.label.clone(),
            cell.key.concurrency.to_string(),
            fixed(cell.tokens_per_chunk, 2),
            fixed(cell.chars_per_token, 2),
            fixed(cell.first_chunk_tokens, 2),
            p50(Axis::Ttft),
            p50(Axis::TtftCorrected),
            format!("{}/{}", cell.over_corrected, cell.counted),
        ]);
    }
}

/// Source and value of a leg's acceptance, as printed.
pub fn acceptance_words(acceptance: Acceptance) -> (&'static str, String) {
    match acceptance {
        Acceptance::CounterReset => ("counter reset inside the leg", "counter reset inside the leg".to_owned()),
        Acceptance::Metrics { accepted, proposed, per_token } => (
            "/metrics",
            format!(
                "accepted/proposed = {}/{} = {}, {} per output token",
                fixed(accepted, 0),
                fixed(proposed, 0),
                fixed(accepted / proposed, 3),
                fixed(per_token, 3)
            ),
        ),
        Acceptance::Usage { accepted, per_token } => (
            "usage",
            format!(
                "accepted {}, {} per output token (this engine exports no proposed count)",
                fixed(accepted, 0),
                fixed(per_token, 3)
            ),
        ),
        Acceptance::Absent => ("absent", "NOT EXPOSED BY THIS ENGINE".to_owned()),
    }
}

fn acceptances(out: &mut String, report: &Report) {
    heading(out, "Acceptance");
    let mut table = Table::new(out, &["arm", "c", "round", "source", "value"]);
    for_each_leg(report, |cell, at| {
        let leg = &report.legs[at];
        let (source, value) = acceptance_words(acceptance(leg));
        table.row([
            cell.label.clone(),
            cell.key.concurrency.to_string(),
            leg.summary.round.to_string(),
            source.to_owned(),
            value,
        ]);
    });
}

fn cold_start(out: &mut String, report: &Report) {
    heading(out, "Cold start: what the first request costs");
    let mut table = Table::new(
        out,
        &[
            "arm",
            "c",
            "round",
            "warmup TTFT ms, first request",
            "warm p50 TTFT ms",
            "mean TTFT ms warm",
            "mean TTFT ms with warmup",
        ],
    );
    for_each_leg(report, |cell, at| {
        let (leg, figures) = (&report.legs[at], &report.leg_figures[at]);
        let warm = figures.measured[Axis::Ttft as usize];
        table.row([
            cell.label.clone(),
            cell.key.concurrency.to_string(),
            leg.summary.round.to_string(),
            fixed(leg.records.cold_ttft_ms, 1),
            fixed(warm.map(|w| w.p50()), 1),
            fixed(warm.map(|w| w.mean), 1),
            fixed(figures.mean_ttft_with_warmup, 1),
        ]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins() {
        let names: Vec<String> = (0..BIN_EDGES.len()).map(bin_name).collect();
        assert_eq!(names, ["0-127", "128-255", "256-511", "512-1023", "1024-2047", "2048-4095", "4096-8191", ">=8192"]);
        for (tokens, bin) in [(1.0, 0), (127.0, 0), (128.0, 1), (4095.0, 5), (8191.0, 6), (8192.0, 7), (1e9, 7)] {
            assert_eq!(bin_of(tokens), bin, "{tokens}");
        }
    }
}
