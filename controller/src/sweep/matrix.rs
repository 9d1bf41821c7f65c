//! matrix.json, matrix.md and perf.md of a sweep, in the form that AORTA's own readers take (integration notes,
//! sections 8 and 9).

use serde_json::{Map, Value, json};

use super::cell::CellStats;
use super::confound::Confound;
use super::table::{escape, python_str, table, thousands};
use super::trial::StepTimeSource;

/// Everything the three documents say about the run as a whole.
#[derive(Debug, Clone)]
pub struct RunHeader {
    /// The name that the recipe used.
    pub workload: String,
    /// The recipe's ticket.
    pub ticket: Option<String>,
    /// How trials were isolated.
    pub trial_isolation: String,
    /// What the recipe asked for.
    pub trial_isolation_requested: String,
    /// Trials per cell; the cap under `stop_after`.
    pub trials: u32,
    /// Steps per trial.
    pub steps: u32,
    /// `YYYY-MM-DDTHH-MM-SS`, UTC.
    pub timestamp: String,
    /// The cell that others are compared with.
    pub baseline: Option<String>,
    /// Ratio of mean step times from which a cell counts as slower.
    pub threshold: f64,
    /// What the recipe named as baseline.
    pub baseline_configured: Option<String>,
    /// The recipe's `stop_after`, as it stands there.
    pub stop_after: Option<Value>,
    /// For a person.
    pub warnings: Vec<String>,
    /// Path of the recipe, as given.
    pub recipe_path: String,
    /// SHA-256 of the recipe.
    pub recipe_sha256: String,
    /// SHA-256 of recipe.resolved.yaml.
    pub resolved_sha256: String,
    /// Version of this program.
    pub version: String,
}

/// A row: the cell, how it compares, and what its environment resolved to.
#[derive(Debug)]
pub struct Row<'a> {
    /// Figures.
    pub cell: &'a CellStats,
    /// Comparison.
    pub confound: Confound,
    /// `{name, docker, venv, env, source_package, inline}`.
    pub environment: Value,
}

/// matrix.json.
pub fn json_document(run: &RunHeader, rows: &[Row<'_>]) -> Value {
    json!({
        "schema_version": 1,
        "workload": run.workload,
        "ticket": run.ticket,
        "trial_isolation": run.trial_isolation,
        "trial_isolation_requested": run.trial_isolation_requested,
        "trials_per_cell": run.trials,
        "steps_per_trial": run.steps,
        "run_timestamp": run.timestamp,
        "baseline_cell": run.baseline,
        "confound": {"threshold": run.threshold, "baseline_cell_configured": run.baseline_configured},
        "stop_after": run.stop_after,
        "warnings": run.warnings,
        "recipe_source": {
            "path": run.recipe_path,
            "sha256": run.recipe_sha256,
            "resolved_sha256": run.resolved_sha256,
        },
        "runtime_provenance": {
            "package_version": run.version,
            "git_sha": null,
            "git_dirty": null,
            "source_tree_sha256": null,
        },
        "cells": rows
            .iter()
            .map(|row| row.cell.to_json(&row.confound.tag(), row.confound.ratio(), &row.environment))
            .collect::<Vec<_>>(),
    })
}

/// Keys of the workload configuration whose values differ between cells, sorted.
fn varying_keys(rows: &[Row<'_>]) -> Vec<String> {
    let mut keys: Vec<String> = rows.iter().flat_map(|row| row.cell.identity.workload_config.keys().cloned()).collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| {
        let mut values = rows.iter().map(|row| row.cell.identity.workload_config.get(key));
        let first = values.next();
        values.any(|value| Some(value) != first)
    });
    keys
}

fn config_column(config: &Map<String, Value>, keys: &[String]) -> String {
    let parts: Vec<String> = keys
        .iter()
        .filter_map(|key| config.get(key).map(|value| format!("{key}={}", escape(&python_str(value)))))
        .collect();
    if parts.is_empty() { "—".into() } else { parts.join(", ") }
}

/// matrix.md.
pub fn matrix_markdown(run: &RunHeader, rows: &[Row<'_>]) -> String {
    let mut lines = vec![format!("# Triage Matrix - {}", run.workload), String::new()];
    if !run.warnings.is_empty() {
        lines.push("> [!WARNING]".into());
        lines.extend(run.warnings.iter().map(|warning| format!("> {warning}")));
        lines.push(String::new());
    }
    let baseline = rows.iter().map(|row| row.cell).find(|cell| Some(&cell.identity.name) == run.baseline.as_ref());
    let baseline_step = match baseline {
        Some(cell) if cell.error.is_none() && cell.timing.mean > 0.0 => format!("{:.1} ms", cell.timing.mean),
        Some(_) | None => "n/a".into(),
    };
    let up_to = if run.stop_after.is_some() { "up to " } else { "" };
    lines.extend([
        format!("**Ticket**: {}  ", run.ticket.as_deref().unwrap_or("(none)")),
        format!("**Workload**: {}  ", run.workload),
        format!("**Recipe**: {} (sha256:{})  ", run.recipe_path, run.recipe_sha256.get(..10).unwrap_or("")),
        format!("**Trials per cell**: {up_to}{}  ", run.trials),
        format!("**Steps per trial**: {}  ", run.steps),
        format!("**Run timestamp**: {}  ", run.timestamp),
        format!(
            "**Baseline cell**: {} (mean step time = {baseline_step})",
            run.baseline.as_deref().unwrap_or("(none)")
        ),
        String::new(),
        "## Reproduction Summary".into(),
        String::new(),
    ]);
    lines.extend(table(&summary_rows(run, rows)));
    lines.push(String::new());
    lines.extend(hint_lines(rows));
    lines.extend(matrix_notes(rows));
    lines.push(String::new());
    lines.join("\n")
}

fn summary_rows(run: &RunHeader, rows: &[Row<'_>]) -> Vec<Vec<String>> {
    let keys = varying_keys(rows);
    let show_errors = rows.iter().any(|row| row.cell.errored > 0);
    let show_iters = rows.iter().any(|row| row.cell.iterations.display != "—");
    let show_stop = run.stop_after.is_some();
    // One list of columns makes header and rows agree.
    let line = |cell: Option<&Row<'_>>| -> Vec<String> {
        let column = |name: &str, value: fn(&Row<'_>) -> String| cell.map_or_else(|| name.to_owned(), value);
        let mut columns = vec![
            column("Cell", |r| r.cell.identity.name.clone()),
            column("Mitigations", |r| r.cell.identity.mitigations.join(", ")),
            column("Environment", |r| r.cell.identity.environment.clone()),
        ];
        if !keys.is_empty() {
            columns
                .push(cell.map_or_else(|| "Config".into(), |r| config_column(&r.cell.identity.workload_config, &keys)));
        }
        columns.push(column("Failure rate", |r| failure_rate(r.cell)));
        columns.push(column("Failures", |r| failures(r.cell)));
        if show_errors {
            columns.push(column("Errors", |r| errors(r.cell)));
        }
        if show_stop {
            columns.push(column("Stop after", |r| r.cell.stop_after_note.clone().unwrap_or_else(|| "—".into())));
        }
        if show_iters {
            columns.push(column("Iters", |r| r.cell.iterations.display.clone()));
        }
        columns.push(column("Mean step (ms)", |r| {
            if r.cell.error.is_some() || r.cell.timing.mean <= 0.0 {
                "n/a".into()
            } else {
                format!("{:.1}", r.cell.timing.mean)
            }
        }));
        columns.push(column("Confound", |r| r.confound.tag()));
        columns
    };
    std::iter::once(line(None)).chain(rows.iter().map(|row| line(Some(row)))).collect()
}

fn failure_rate(cell: &CellStats) -> String {
    if cell.error.is_some() {
        return "n/a".into();
    }
    format!("{:.0}%", (cell.failure_rate() * 100.0).round_ties_even())
}

fn failures(cell: &CellStats) -> String {
    match (cell.error.is_some(), cell.passed + cell.failed) {
        (true, _) => "n/a".into(),
        (false, 0) => "0 / 0 (no valid trials)".into(),
        (false, valid) => format!("{} / {valid}", cell.failed),
    }
}

fn errors(cell: &CellStats) -> String {
    if cell.error.is_some() {
        return "n/a".into();
    }
    let mark = if cell.is_unreliable() { " (unreliable)" } else { "" };
    format!("{} / {}{mark}", cell.errored, cell.trials)
}

fn hint_lines(rows: &[Row<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            row.cell.hints.iter().map(|(hint, count)| {
                format!("- **{}** ({count}/{} trials): {hint}", row.cell.identity.name, row.cell.trials)
            })
        })
        .collect();
    if !lines.is_empty() {
        lines.splice(0..0, ["## Failure hints".to_owned(), String::new()]);
        lines.push(String::new());
    }
    lines
}

fn matrix_notes(rows: &[Row<'_>]) -> Vec<String> {
    let mut notes = vec![
        "## Notes",
        "",
        "- Confound: `(baseline)` is what the others are compared with; `speed (+N%)` is slower than the threshold, so \
         an effect may be one of speed; `no effect` fails as often as the baseline; `-` fails less at no cost in \
         speed; `n/a` cannot be compared (one side has no step times of its own); `error` could not run at all.",
        "- Cells that differ by workload rather than by mitigation are legitimately slower or faster: read perf.md.",
        "- Failure rate counts valid trials only; errors are trials that never validly ran.",
    ];
    if rows.iter().any(|row| row.confound == Confound::DidNotRun) {
        notes.push("- `did_not_run`: every trial ended before its first measured step; its documents say why.");
    }
    notes.into_iter().map(str::to_owned).collect()
}

/// perf.md.
pub fn perf_markdown(run: &RunHeader, rows: &[Row<'_>]) -> String {
    let label = |cell: &CellStats| {
        let mark = if Some(&cell.identity.name) == run.baseline.as_ref() { " (baseline)" } else { "" };
        format!("{}{mark}", cell.identity.name)
    };
    let mut lines = vec![
        format!("# Performance Report - {}", run.workload),
        String::new(),
        format!("**Ticket**: {}  ", run.ticket.as_deref().unwrap_or("(none)")),
        format!("**Workload**: {}  ", run.workload),
        format!("**Run timestamp**: {}  ", run.timestamp),
        format!("**Baseline cell**: {}  ", run.baseline.as_deref().unwrap_or("(none)")),
        String::new(),
        "The figures of matrix.json, cell by cell; a step is one measured bench run.".into(),
        String::new(),
        "## Step timing (ms)".into(),
        String::new(),
    ];
    let header = ["Cell", "Trials", "Iters", "Mean", "Std", "Min", "p50", "p90", "p99", "Max", "Wall (s)", "Source"];
    let mut timing = vec![header.map(str::to_owned).to_vec()];
    for row in rows {
        let cell = row.cell;
        let t = &cell.timing;
        let mut line = vec![label(cell), cell.trials.to_string(), cell.iterations.display.clone()];
        if cell.error.is_some() {
            line.extend(std::iter::repeat_n("error".to_owned(), 9));
        } else {
            let steps = [t.mean, t.std, t.min, t.p50, t.p90, t.p99, t.max];
            let missing = cell.source == StepTimeSource::Missing || t.samples.is_empty();
            line.extend(steps.map(|value| if missing { "n/a".into() } else { format!("{value:.3}") }));
            line.extend([format!("{:.3}", cell.mean_wall_clock_sec), cell.source.as_str().to_owned()]);
        }
        timing.push(line);
    }
    lines.extend(table(&timing));
    lines.push(String::new());

    let mut names: Vec<&str> = rows.iter().flat_map(|r| r.cell.metrics.iter().map(|m| m.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        lines.extend(["## Workload metrics (mean across trials)".to_owned(), String::new()]);
        let mut metrics = vec![std::iter::once("Cell").chain(names.iter().copied()).map(str::to_owned).collect()];
        for row in rows {
            let mut line = vec![label(row.cell)];
            line.extend(names.iter().map(|name| {
                let summary = row.cell.metrics.iter().find(|m| m.name == *name);
                summary.map_or_else(|| "—".into(), |m| thousands(m.mean()))
            }));
            metrics.push(line);
        }
        lines.extend(table(&metrics));
        lines.extend([
            String::new(),
            "> Means over passing trials; minimum, maximum and count are in matrix.json. `—`: not reported.".into(),
            String::new(),
        ]);
    }
    lines.extend([
        "## Notes".to_owned(),
        String::new(),
        "- Percentiles are over all step samples of all trials of a cell. `Wall (s)` is the mean of whole trials."
            .into(),
        String::new(),
    ]);
    lines.join("\n")
}
