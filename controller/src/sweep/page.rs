//! report.html: the sweep on one page that needs nothing but itself.

use std::fmt::Write as _;

use serde_json::Value;

use super::book::Entry;
use super::dry_run::load;
use super::filed;
use super::matrix::{Row, RunHeader};
use super::outputs::{CellView, View};
use super::plots::{self, From, Lane, Mark};
use super::trial::{TrialRecord, Verdict};
use crate::campaign::order::human;
use crate::report::concurrency::{self, Series};
use crate::report::page::{Page, escaped};
use crate::report::plots::{PlotError, css, palette};
use crate::result::details::significant;
use crate::result::document::Document;

/// Latencies with a plot each: the metric's stem and its heading.
const LATENCIES: [(&str, &str); 4] = [
    ("ttft", "Time to first token"),
    ("tpot", "Time per output token"),
    ("itl", "Inter-token latency"),
    ("e2el", "End-to-end latency"),
];

/// The page.
pub fn render(
    view: &View<'_>,
    header: &RunHeader,
    cells: &[CellView<'_>],
    rows: &[Row<'_>],
) -> Result<String, PlotError> {
    let mut page = Page::new(&format!("Sweep {}", header.recipe_path));
    head(&mut page, view, header);
    remarks(&mut page, header, view, cells);
    table(&mut page, view, cells, rows);
    let series = series(view, cells);
    page.section(
        "Throughput",
        "Output tokens a second against requests in flight: a line per configuration through the mean of its trials, a \
         dot per passing trial.",
    );
    legend(&mut page, series.iter().map(|s| s.name.as_str()));
    page.plots(concurrency::draw("output tok/s against concurrency", "output tok/s", &series))?;
    page.section("Latency", "Means over the passing trials of a cell.");
    legend(&mut page, ["p50", "p90", "p99"].into_iter());
    page.plots(LATENCIES.iter().filter_map(|(stem, title)| {
        let lanes: Vec<Lane> = cells.iter().map(|cell| latency(cell, stem)).collect();
        plots::lanes(title, "milliseconds", From::Zero, &lanes)
    }))?;
    page.section("Spread of steps", "A dot per measured step, a colour per trial, as a multiple of its cell's median.");
    let steps: Vec<Lane> = cells.iter().map(steps).collect();
    page.plots(plots::lanes("step time over the cell's median", "times the median", From::Smallest, &steps))?;
    page.section("Start-up", "Seconds from the server's start until it was ready, a dot per trial.");
    let startup: Vec<Lane> = cells.iter().map(startup).collect();
    page.plots(plots::lanes("server start-up", "seconds", From::Zero, &startup))?;
    trials(&mut page, view, cells);
    Ok(page.finish())
}

fn head(page: &mut Page, view: &View<'_>, header: &RunHeader) {
    let manifest = view.manifest;
    let (there, all) = view.counts();
    let _ = writeln!(page.0, "<h1>Sweep {}</h1>", escaped(&header.recipe_path));
    let ticket = header.ticket.as_deref().map(|ticket| format!(", ticket {ticket}")).unwrap_or_default();
    let host = manifest.host.name.as_deref().unwrap_or("unknown host");
    let words = format!(
        "{there} of {all} trials of workload {}{ticket}; begun {} on {host}; ts-bench {}, recipe sha256 {}.",
        header.workload,
        manifest.started_at,
        manifest.controller_version,
        header.recipe_sha256.get(..10).unwrap_or("")
    );
    let _ = writeln!(page.0, "<p class=\"lead\">{}</p>", escaped(&words));
}

fn remarks(page: &mut Page, header: &RunHeader, view: &View<'_>, cells: &[CellView<'_>]) {
    let mut items: Vec<(&str, String)> = header.warnings.iter().map(|words| ("bad", escaped(words))).collect();
    for cell in cells {
        let name = &cell.stats.identity.name;
        for (hint, count) in &cell.stats.hints {
            let words = format!("<b>{}</b> {count} of {} trials: {}", escaped(name), cell.stats.trials, escaped(hint));
            items.push(("bad", words));
        }
        for finding in view.plan.cells[cell.position].loaded.iter().flat_map(|loaded| &loaded.findings) {
            let (detail, hint) = (escaped(&finding.detail), escaped(&finding.hint));
            items.push(("info", format!("<b>{}</b> {detail}. <em>{hint}.</em>", escaped(name))));
        }
    }
    if items.is_empty() {
        return;
    }
    page.section("Before quoting a figure", "");
    page.raw("<ul class=\"remarks\">\n");
    for (class, words) in items {
        let _ = writeln!(page.0, "<li class=\"{class}\">{words}</li>");
    }
    page.raw("</ul>\n");
}

fn table(page: &mut Page, view: &View<'_>, cells: &[CellView<'_>], rows: &[Row<'_>]) {
    page.section("Cells", "Figures are means over passing trials; all of them are in matrix.json and perf.md.");
    let header = [
        "cell",
        "mitigations",
        "load of a step",
        "passed",
        "failed",
        "errors",
        "mean step ms",
        "output tok/s",
        "TTFT p50 ms",
        "TTFT p99 ms",
        "TPOT p50 ms",
        "E2EL p50 ms",
        "confound",
    ];
    let body = cells.iter().zip(rows).map(|(cell, row)| {
        let stats = &cell.stats;
        let metric = |name: &str| mean_of(cell, name).map_or_else(|| "-".to_owned(), significant);
        let loaded = view.plan.cells[cell.position].loaded.as_ref();
        let step = if stats.timing.mean > 0.0 { significant(stats.timing.mean) } else { "-".to_owned() };
        let class = if stats.failed + stats.errored > 0 { "worse" } else { "" };
        let cells = vec![
            stats.identity.name.clone(),
            stats.identity.mitigations.join(", "),
            loaded.map(|loaded| load(&loaded.trial)).unwrap_or_default(),
            stats.passed.to_string(),
            stats.failed.to_string(),
            stats.errored.to_string(),
            step,
            metric("output_throughput"),
            metric("median_ttft_ms"),
            metric("p99_ttft_ms"),
            metric("median_tpot_ms"),
            metric("median_e2el_ms"),
            row.confound.tag(),
        ];
        (class, cells)
    });
    page.table(&header, body);
}

fn legend<'a>(page: &mut Page, names: impl Iterator<Item = &'a str>) {
    page.raw("<p class=\"key\">");
    for (at, name) in names.enumerate() {
        let colour = css(palette(at));
        let _ = write!(page.0, "<span><i style=\"background:{colour}\"></i>{}</span>", escaped(name));
    }
    page.raw("</p>\n");
}

fn mean_of(cell: &CellView<'_>, metric: &str) -> Option<f64> {
    cell.stats.metrics.iter().find(|summary| summary.name == metric).map(super::cell::MetricSummary::mean)
}

fn number(record: &TrialRecord, metric: &str) -> Option<f64> {
    record.metrics()?.get(metric).and_then(Value::as_f64)
}

/// Cells that differ in nothing but their concurrency and its number of prompts are one line.
fn series(view: &View<'_>, cells: &[CellView<'_>]) -> Vec<Series> {
    let mut keys: Vec<Value> = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for cell in cells {
        let recipe_cell = &view.plan.cells[cell.position].cell;
        let mut config = recipe_cell.trial_config();
        for key in ["max_concurrency", "num_prompts"] {
            config.shift_remove(key);
        }
        let key = serde_json::json!([config, recipe_cell.mitigations]);
        let concurrency =
            view.plan.cells[cell.position].loaded.as_ref().and_then(|loaded| loaded.trial.load.max_concurrency);
        let metric = |metric: &crate::sweep::cell::MetricSummary| metric.values.clone();
        let Some(values) = cell.stats.metrics.iter().find(|m| m.name == "output_throughput").map(metric) else {
            continue;
        };
        let name = cell.stats.identity.name.clone();
        if let Some(at) = keys.iter().position(|known| *known == key) {
            let _ = write!(series[at].name, ", {name}");
            series[at].points.push((concurrency, values));
        } else {
            keys.push(key);
            series.push(Series { name, colour: series.len(), points: vec![(concurrency, values)] });
        }
    }
    series
}

fn latency(cell: &CellView<'_>, stem: &str) -> Lane {
    // The median comes under its own name; p50 where only that was asked for.
    let median = mean_of(cell, &format!("median_{stem}_ms")).or_else(|| mean_of(cell, &format!("p50_{stem}_ms")));
    let values = [median, mean_of(cell, &format!("p90_{stem}_ms")), mean_of(cell, &format!("p99_{stem}_ms"))];
    let marks = values
        .into_iter()
        .enumerate()
        .filter_map(|(colour, value)| Some(Mark { value: value?, colour, hollow: false }))
        .collect();
    Lane { name: cell.stats.identity.name.clone(), marks, joined: true }
}

fn steps(cell: &CellView<'_>) -> Lane {
    let median = cell.stats.timing.p50;
    let marks = cell.entries.iter().flat_map(|(index, entry)| {
        let (times, _) = entry.record.timing(0);
        let hollow = entry.record.verdict() != Verdict::Pass;
        let times = times.into_iter().filter(move |_| median > 0.0);
        times.map(move |time| Mark { value: time / median, colour: *index as usize, hollow })
    });
    Lane { name: cell.stats.identity.name.clone(), marks: marks.collect(), joined: false }
}

fn startup(cell: &CellView<'_>) -> Lane {
    let marks = cell.entries.iter().filter_map(|(index, entry)| {
        let hollow = entry.record.verdict() != Verdict::Pass;
        Some(Mark { value: startup_sec(*index, entry)?, colour: *index as usize, hollow })
    });
    Lane { name: cell.stats.identity.name.clone(), marks: marks.collect(), joined: false }
}

/// Seconds until `/health` answered. AORTA's metric has whole seconds; the controller's own document has more.
fn startup_sec(index: u32, entry: &Entry) -> Option<f64> {
    let own = entry.path.with_file_name(format!("result_t{index}.json"));
    match filed::result(&own) {
        Some(Document::Result(result)) => result.trial.phases.ready_ms.map(|ms| ms / 1000.0),
        Some(Document::Error(_)) => None,
        None => number(&entry.record, "server_startup_sec"),
    }
}

fn trials(page: &mut Page, view: &View<'_>, cells: &[CellView<'_>]) {
    page.section("Trials", "Hollow marks above are trials that did not pass.");
    let rows = cells.iter().flat_map(|cell| {
        cell.entries.iter().map(|(index, entry)| {
            let record = &entry.record;
            let metric = |name: &str| number(record, name).map_or_else(|| "-".to_owned(), significant);
            let (class, verdict) = match record.verdict() {
                Verdict::Pass => ("", "passed"),
                Verdict::Fail => ("worse", "failed"),
                Verdict::Error => ("worse", "error"),
            };
            let path = entry.path.strip_prefix(view.dir).unwrap_or(&entry.path);
            let row = vec![
                cell.stats.identity.name.clone(),
                (index + 1).to_string(),
                verdict.to_owned(),
                human(record.wall_clock_sec),
                startup_sec(*index, entry).map_or_else(|| "-".to_owned(), significant),
                metric("output_throughput"),
                metric("median_ttft_ms"),
                metric("median_tpot_ms"),
                path.display().to_string(),
            ];
            (class, row)
        })
    });
    let header =
        ["cell", "trial", "verdict", "took", "start-up s", "output tok/s", "TTFT p50 ms", "TPOT p50 ms", "document"];
    page.table(&header, rows);
}
