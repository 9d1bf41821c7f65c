//! `--html`: one page that needs nothing but itself. Style and plots are inside, and there is no script.

use std::fmt::Write as _;

use super::axes::Axis;
use super::document::{Document, RemarkKind};
use super::extended::{INTERVAL_NOTE, interval, number, percentile, quoted, verdict};
use super::figures::Report;
use super::markdown::fixed;
use super::page::{Page, escaped};
use super::plots::{self, PlotError};
use crate::stats::bootstrap::Verdict;

/// The page.
pub fn render(report: &Report, document: &Document) -> Result<String, PlotError> {
    let mut page = Page::new("Mixed-load report");
    head(&mut page, report, document);
    remarks(&mut page, document);
    verdicts(&mut page, document);
    figures(&mut page, document);
    distributions(&mut page, report)?;
    page.section("Throughput", "A line per arm through the mean of its rounds; a dot per round.");
    page.plots(plots::throughput(report))?;
    rates(&mut page, document);
    page.section(
        "Requests over time",
        "TTFT against the time of sending, all rounds of a cell laid over each other; hollow rings are warm-up. \
         More than 1,500 requests are thinned evenly.",
    );
    page.plots(report.cells.iter().filter_map(|cell| plots::over_time(report, cell)))?;
    page.section("Prompt lengths", "Read back from each server's own usage, never assumed.");
    page.plots(plots::lengths(report))?;
    legs(&mut page, document);
    Ok(page.finish())
}

fn head(page: &mut Page, report: &Report, document: &Document) {
    let rounds = document.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0);
    page.raw("<h1>Mixed-load report</h1>\n<p class=\"lead\">");
    let _ = write!(
        page.0,
        "{} legs, {} cells, up to {rounds} rounds.</p>\n<p class=\"key\">",
        report.legs.len(),
        report.cells.len()
    );
    for arm in report.arms() {
        let colour = plots::css(plots::colour(report, arm));
        let _ = write!(page.0, "<span><i style=\"background:{colour}\"></i>{}</span>", escaped(arm));
    }
    page.raw("</p>\n");
}

fn remarks(page: &mut Page, document: &Document) {
    page.section("Before quoting a figure", "");
    page.raw("<ul class=\"remarks\">\n");
    for remark in &document.remarks {
        let class = match remark.kind {
            RemarkKind::NotPublishable
            | RemarkKind::ClientBound
            | RemarkKind::Failures
            | RemarkKind::SeparateGroups => "bad",
            RemarkKind::OneRound | RemarkKind::Spread | RemarkKind::ConfigDiffers | RemarkKind::MixedMethods => "warn",
            RemarkKind::Withheld | RemarkKind::CorrectionsRefused => "info",
        };
        let _ = writeln!(
            page.0,
            "<li class=\"{class}\"><b>{}</b> {}. <em>{}.</em></li>",
            escaped(&remark.subject),
            escaped(&remark.detail),
            escaped(&remark.hint)
        );
    }
    for file in &document.unreadable {
        let (path, reason) = (escaped(&file.path), escaped(&file.reason));
        let _ = writeln!(page.0, "<li class=\"bad\"><b>{path}</b> could not be read: {reason}.</li>");
    }
    page.raw(
        "<li class=\"info\"><b>all</b> No output is scored, and above temperature 0 no token-exact gate can run: ",
    );
    page.raw("throughput says nothing about quality.</li>\n</ul>\n");
}

fn verdicts(page: &mut Page, document: &Document) {
    page.section("Arm against arm", INTERVAL_NOTE);
    if document.comparisons.is_empty() {
        page.raw("<p>Nothing to compare: no two arms ran the same load by the same method.</p>\n");
        return;
    }
    let rows = document.comparisons.iter().map(|c| {
        let class = match c.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Undecided => "undecided",
        };
        let span =
            c.interval.map_or_else(|| "-".to_owned(), |i| format!("{} to {}", fixed(i.low, 3), fixed(i.high, 3)));
        let pair = format!("{} / {}", c.arm, c.against);
        let row = vec![
            c.concurrency.to_string(),
            pair,
            c.axis.to_owned(),
            fixed(c.ratio, 3),
            span,
            verdict(c.verdict).to_owned(),
            c.words.clone(),
        ];
        (class, row)
    });
    page.table(&["c", "ratio of", "axis", "ratio", "95 % interval", "verdict", "in words"], rows);
}

fn figures(page: &mut Page, document: &Document) {
    page.section(
        "Latencies",
        "Milliseconds, all rounds pooled, warm-up discarded. A percentile with fewer than 2 values beyond it is withheld; \
         with fewer than 10 it is marked (few).",
    );
    let rows = document.cells.iter().flat_map(|cell| {
        cell.warm_only.iter().map(|axis| {
            let mut row =
                vec![cell.arm.clone(), cell.concurrency.to_string(), axis.axis.to_owned(), axis.n.to_string()];
            row.extend(axis.percentiles.iter().map(percentile));
            row.extend([fixed(axis.max, 1), fixed(axis.mean, 1), interval(axis.median_interval)]);
            ("", row)
        })
    });
    let header = ["arm", "c", "axis", "n", "p50", "p90", "p95", "p99", "max", "mean", "95 % interval of p50"];
    page.table(&header, rows);
}

fn distributions(page: &mut Page, report: &Report) -> Result<(), PlotError> {
    for (axis, title, note) in [
        (
            Axis::Ttft,
            "Time to first token",
            "Share of measured requests at or below a time; a panel per load, a curve per arm.",
        ),
        (Axis::Tpot, "Time per output token", "The primary inter-token axis: divided by the server's own token count."),
    ] {
        page.section(title, note);
        let rungs = plots::rungs(report);
        page.plots(rungs.iter().filter_map(|rung| plots::distribution(report, rung, axis)))?;
    }
    Ok(())
}

fn rates(page: &mut Page, document: &Document) {
    let rows = document.cells.iter().map(|cell| {
        let row = vec![
            cell.arm.clone(),
            cell.concurrency.to_string(),
            quoted(&cell.output_tok_s),
            interval(cell.output_tok_s.interval),
            quoted(&cell.decode_only_tok_s),
            interval(cell.decode_only_tok_s.interval),
            cell.granularity.tokens_per_chunk.map_or_else(|| "-".to_owned(), number),
        ];
        ("", row)
    });
    page.table(
        &["arm", "c", "out tok/s", "95 % interval", "decode-only tok/s", "95 % interval", "tokens per chunk"],
        rows,
    );
}

fn legs(page: &mut Page, document: &Document) {
    page.section("Legs", "");
    let optional = |value: Option<f64>| fixed(value, 1);
    let rows = document.legs.iter().map(|leg| {
        let class = if !leg.publishable || leg.client_bound.is_some() { "worse" } else { "" };
        let state = match (&leg.client_bound, leg.publishable) {
            (Some(_), _) => "client_bound",
            (None, false) => "not publishable",
            (None, true) => "yes",
        };
        let row = vec![
            leg.arm.clone(),
            leg.concurrency.to_string(),
            leg.round.to_string(),
            format!("{}/{}", leg.ok, leg.requests),
            fixed(leg.output_tok_s, 2),
            optional(leg.p50_ttft_ms),
            optional(leg.p95_ttft_ms),
            optional(leg.cold_ttft_ms),
            fixed(leg.wall_s, 1),
            state.to_owned(),
            leg.path.clone(),
        ];
        (class, row)
    });
    page.table(
        &[
            "arm",
            "c",
            "round",
            "ok/n",
            "out tok/s",
            "p50 TTFT",
            "p95 TTFT",
            "cold TTFT",
            "wall s",
            "publishable",
            "file",
        ],
        rows,
    );
}
