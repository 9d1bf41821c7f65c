//! `--extended`: what the published tables leave out, as tables that follow them.

use std::fmt::Write as _;

use super::document::{AxisEntry, Document, PercentileEntry, RateEntry};
use super::markdown::{Table, fixed, heading, percent};
use crate::stats::bootstrap::{Interval, Verdict};
use crate::stats::quantile::Support;

/// The additions, to be printed after the published text.
pub fn render(document: &Document) -> String {
    let mut out = String::new();
    remarks(&mut out, document);
    medians(&mut out, document);
    rates(&mut out, document);
    support(&mut out, document);
    verdicts(&mut out, document);
    out
}

/// A number in as many digits as its size deserves.
pub(super) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    fixed(value, decimals)
}

pub(super) fn interval(interval: Option<Interval>) -> String {
    interval.map_or_else(|| "-".to_owned(), |i| format!("{} to {}", number(i.low), number(i.high)))
}

pub(super) fn percentile(entry: &PercentileEntry) -> String {
    match (entry.value, entry.support) {
        (Some(value), Support::Few) => format!("{} (few)", fixed(value, 1)),
        (Some(value), _) => fixed(value, 1),
        (None, _) => format!("needs n >= {}", entry.least_n),
    }
}

/// What a rate is quoted as.
pub(super) fn quoted(rate: &RateEntry) -> String {
    let rounds: Vec<f64> = rate.per_round.iter().flatten().copied().collect();
    if !rate.quote_as_spread {
        return rate.value.map_or_else(|| "-".to_owned(), number);
    }
    let (low, high) = rounds.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), r| (low.min(*r), high.max(*r)));
    format!("{} to {} (spread {})", number(low), number(high), percent(rate.spread))
}

pub(super) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Undecided => "undecided",
    }
}

pub(super) const INTERVAL_NOTE: &str = "95 % intervals from a bootstrap over legs and over the requests within each, \
    widened for the small number of legs. With one leg the variation between server boots is not in them.";

fn remarks(out: &mut String, document: &Document) {
    heading(out, "Before quoting a figure");
    for remark in &document.remarks {
        let _ = writeln!(out, "- {}: {}. {}.", remark.subject, remark.detail, capital(&remark.hint));
    }
    out.push_str(
        "- No output is scored, and above temperature 0 no token-exact gate can run: throughput says nothing about quality.\n",
    );
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn medians(out: &mut String, document: &Document) {
    heading(out, "Medians with their intervals (warm only)");
    out.push_str(INTERVAL_NOTE);
    out.push_str("\n\n");
    let mut table = Table::new(out, &["arm", "c", "legs", "n", "axis", "median ms", "95 % interval"]);
    for cell in &document.cells {
        for axis in &cell.warm_only {
            table.row([
                cell.arm.clone(),
                cell.concurrency.to_string(),
                cell.rounds.len().to_string(),
                axis.n.to_string(),
                axis.axis.to_owned(),
                median(axis).map_or_else(|| "-".to_owned(), number),
                interval(axis.median_interval),
            ]);
        }
    }
}

fn median(axis: &AxisEntry) -> Option<f64> {
    axis.percentiles.iter().find(|entry| entry.percent == 50)?.value
}

fn rates(out: &mut String, document: &Document) {
    heading(out, "Throughput, quoted as the rounds allow");
    let mut table =
        Table::new(out, &["arm", "c", "rounds", "out tok/s", "95 % interval", "decode-only tok/s", "95 % interval"]);
    for cell in &document.cells {
        table.row([
            cell.arm.clone(),
            cell.concurrency.to_string(),
            cell.rounds.len().to_string(),
            quoted(&cell.output_tok_s),
            interval(cell.output_tok_s.interval),
            quoted(&cell.decode_only_tok_s),
            interval(cell.decode_only_tok_s.interval),
        ]);
    }
}

fn support(out: &mut String, document: &Document) {
    heading(out, "Percentiles that n supports (warm only)");
    let mut table = Table::new(out, &["arm", "c", "n", "axis", "p50", "p90", "p95", "p99"]);
    for cell in &document.cells {
        for axis in &cell.warm_only {
            let mut row =
                vec![cell.arm.clone(), cell.concurrency.to_string(), axis.n.to_string(), format!("{} ms", axis.axis)];
            row.extend(axis.percentiles.iter().map(percentile));
            table.line(row.iter());
        }
    }
}

fn verdicts(out: &mut String, document: &Document) {
    heading(out, "Arm against arm");
    if document.comparisons.is_empty() {
        out.push_str("Nothing to compare: no two arms ran the same load by the same method.\n");
        return;
    }
    let mut table =
        Table::new(out, &["arm", "against", "c", "axis", "better is", "ratio", "95 % interval", "verdict", "in words"]);
    for c in &document.comparisons {
        let better = match c.better {
            crate::stats::bootstrap::Better::Lower => "below 1",
            crate::stats::bootstrap::Better::Higher => "above 1",
        };
        table.row([
            c.arm.clone(),
            c.against.clone(),
            c.concurrency.to_string(),
            c.axis.to_owned(),
            better.to_owned(),
            fixed(c.ratio, 3),
            c.interval.map_or_else(|| "-".to_owned(), |i| format!("{} to {}", fixed(i.low, 3), fixed(i.high, 3))),
            verdict(c.verdict).to_owned(),
            c.words.clone(),
        ]);
    }
}
