//! A result document for a person: what ran, what was measured with the spread over steps, why it failed, what to do.

use std::fmt::Write;

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::Value;

use super::details::significant;
use super::document::{Document, FailureDetail, ResultDocument};
use crate::error::ErrorBody;

/// Columns of the table: metric, heading.
const COLUMNS: &[(&str, &str)] = &[
    ("median_ttft_ms", "TTFT p50 ms"),
    ("p99_ttft_ms", "TTFT p99 ms"),
    ("median_tpot_ms", "TPOT p50 ms"),
    ("p99_itl_ms", "ITL p99 ms"),
    ("median_e2el_ms", "E2EL p50 ms"),
    ("output_throughput", "output tok/s"),
    ("request_throughput", "requests/s"),
    ("duration", "duration s"),
];

/// The whole document in words.
pub fn explain(document: &Document) -> String {
    match document {
        Document::Error(document) => error(&document.error),
        Document::Result(result) => {
            let mut out = what_ran(result);
            out.push_str(&summary(result));
            out.push_str(&remarks(result));
            out.push_str(&files(result));
            out
        }
    }
}

/// An error that ended the command before anything was measured.
pub fn error(error: &ErrorBody) -> String {
    let mut out = format!("nothing was measured: {}\n", error.message);
    if let Some(line) = error.line {
        let _ = writeln!(out, "  at line {line}, column {}", error.column.unwrap_or(1));
    }
    let _ = writeln!(out, "  what to do: {}", error.hint);
    out
}

/// Table, verdict, failures.
pub fn summary(result: &ResultDocument) -> String {
    let mut out = String::new();
    if let Some(table) = table(result) {
        let _ = writeln!(out, "{table}");
    }
    let verdict = if result.passed { "PASSED" } else { "FAILED" };
    let _ = writeln!(
        out,
        "{verdict}: {} of {} steps exported, {:.1} s",
        result.executed_iterations, result.configured_iterations, result.elapsed_sec
    );
    for failure in &result.failure_details {
        out.push_str(&failure_words(failure));
    }
    out
}

fn what_ran(result: &ResultDocument) -> String {
    let metric = |key: &str| shown(result.metrics.get(key));
    let trial = &result.trial;
    let mut out = format!("trial {} ({})\n", trial.run_token, trial.runtime.as_str());
    let mut put = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<12} {value}");
    };
    put("model", metric("model"));
    if let Some(image) = &trial.image {
        put("image", image.clone());
    }
    let shape = match (result.metrics.get("input_len"), result.metrics.get("output_len")) {
        (Some(Value::Number(isl)), Some(Value::Number(osl))) => format!("ISL {isl}, OSL {osl}"),
        _ => "lengths from the dataset".to_owned(),
    };
    let concurrency = match result.metrics.get("max_concurrency") {
        Some(Value::Number(cap)) => format!("at most {cap} in flight"),
        _ => "unbounded concurrency".to_owned(),
    };
    put(
        "load",
        format!(
            "{} x {} requests, {}, {shape}, {concurrency}, request rate {}, made by {}",
            metric("bench_steps"),
            metric("num_prompts"),
            metric("dataset"),
            metric("request_rate"),
            metric("bench_tool"),
        ),
    );
    if let Some(started) = &trial.started_at {
        put("started", started.clone());
    }
    let phases = [
        ("pull", trial.phases.pull_ms),
        ("ready", trial.phases.ready_ms),
        ("first token", trial.phases.generate_ms),
        ("warmup", trial.phases.warmup_ms),
        ("measured", trial.phases.measure_ms),
        ("teardown", trial.phases.teardown_ms),
        ("GPU memory", trial.phases.gpu_memory_wait_ms),
    ];
    let times: Vec<String> =
        phases.iter().filter_map(|(name, ms)| Some(format!("{name} {:.1} s", (*ms)? / 1000.0))).collect();
    if !times.is_empty() {
        put("time", times.join(", "));
    }
    out
}

/// One row per step, then mean and spread; `None` without exports.
fn table(result: &ResultDocument) -> Option<Table> {
    let steps = result.metrics.get("steps")?.as_array().filter(|steps| !steps.is_empty())?;
    let value = |step: &Value, key: &str| step.get(key).and_then(Value::as_f64);
    let columns: Vec<_> = COLUMNS.iter().filter(|(key, _)| steps.iter().any(|s| value(s, key).is_some())).collect();
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut header = vec![Cell::new("step"), right("served".to_owned())];
    header.extend(columns.iter().map(|(_, heading)| right((*heading).to_owned())));
    table.set_header(header);
    for step in steps {
        let served = match (step.get("completed"), step.get("failed")) {
            (Some(completed), Some(failed)) if failed.as_i64() == Some(0) => completed.to_string(),
            (Some(completed), Some(failed)) => format!("{completed} ({failed} failed)"),
            _ => "?".to_owned(),
        };
        let mut row = vec![Cell::new(shown(step.get("step"))), right(served)];
        row.extend(columns.iter().map(|(key, _)| right(value(step, key).map_or_else(dash, significant))));
        table.add_row(row);
    }
    if steps.len() > 1 {
        let mut mean = vec![Cell::new("mean"), right(shown(result.metrics.get("completed_total")))];
        let mut spread = vec![Cell::new("spread"), right(String::new())];
        for (key, _) in &columns {
            // A mean is published only when every step has the metric.
            let of_trial = result.metrics.get(*key).and_then(Value::as_f64);
            mean.push(right(of_trial.map_or_else(dash, significant)));
            let all: Option<Vec<f64>> = steps.iter().map(|s| value(s, key)).collect();
            spread.push(right(all.and_then(|v| relative_spread(&v)).unwrap_or_else(dash)));
        }
        table.add_row(mean);
        table.add_row(spread);
    }
    Some(table)
}

/// `max / min - 1` in percent, the measure of the seed; none where the smallest is not above zero.
fn relative_spread(values: &[f64]) -> Option<String> {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (min > 0.0).then(|| format!("{:.1} %", (max / min - 1.0) * 100.0))
}

fn dash() -> String {
    "-".to_owned()
}

fn failure_words(failure: &FailureDetail) -> String {
    let mut out = format!("- {}: {}\n", failure.reason, failure.detail);
    let _ = writeln!(out, "  what to do: {}", failure.hint);
    for key in ["stdout_tail", "stderr_tail"] {
        let Some(tail) = failure.facts.get(key).and_then(Value::as_str).filter(|t| !t.is_empty()) else { continue };
        let _ = writeln!(out, "  last lines of {}:", key.trim_end_matches("_tail"));
        let lines: Vec<&str> = tail.lines().collect();
        for line in &lines[lines.len().saturating_sub(8)..] {
            let _ = writeln!(out, "    {}", plain(line));
        }
    }
    out
}

fn remarks(result: &ResultDocument) -> String {
    let mut out = String::new();
    for finding in &result.trial.findings {
        let id = serde_json::to_value(finding.id).map(|v| shown(Some(&v))).unwrap_or_default();
        let _ = writeln!(out, "remark {id}: {}\n  what to do: {}", finding.detail, finding.hint);
    }
    if let Some(reaper) = &result.trial.reaper {
        let _ =
            writeln!(out, "a helper (pid {}) goes on removing the container; it writes to {}", reaper.pid, reaper.log);
    }
    out
}

fn files(result: &ResultDocument) -> String {
    let mut out = format!("server log: {}\n", shown(result.metrics.get("server_log")));
    for file in &result.trial.result_files {
        let _ = writeln!(out, "export of step {}: {} (sha256 {})", file.step, file.path, file.sha256);
    }
    out
}

/// A value without quotes.
fn shown(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => dash(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A line that cannot drive a terminal.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}
