//! Holds a run against bounds. A breach fails the run; the observation stays in its record like any other.

use proto::limits::BenchTool;

use super::file::{BaselineFile, FileError};
use super::record::{CellState, EntryRecord, RunRecord};

/// Verdict of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Ran, and nothing is gated.
    Record,
    /// Inside its bound.
    Pass,
    /// This machine cannot run the entry: visible, and no pass.
    Skip,
    /// Beyond its bound, or armed and not there.
    Fail,
}

impl Verdict {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Fail => "fail",
        }
    }
}

/// One row of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Entry.
    pub entry: String,
    /// Cell; empty where it is about the whole entry.
    pub cell: String,
    /// What is gated; empty where nothing is.
    pub metric: String,
    /// What was seen.
    pub observed: Option<f64>,
    /// Policy and bound, as words.
    pub bound: String,
    /// Verdict.
    pub verdict: Verdict,
    /// Reason of a fail or skip; a name first, then words.
    pub reason: String,
}

/// Holds a run against a file; `path` names the file in errors. Entries of the file that the run lacks are fails
/// when `scope` is empty or names them.
pub fn check(record: &RunRecord, file: &BaselineFile, path: &str, scope: &[String]) -> Result<Vec<Row>, FileError> {
    let wanted = |name: &str| scope.is_empty() || scope.iter().any(|entry| entry == name);
    let mut rows = Vec::new();
    for name in file.names().filter(|name| wanted(name)) {
        let entry = file.entry(path, name)?;
        let Some(run) = record.entries.get(name) else {
            rows.push(row(name, "", Verdict::Fail, "did_not_run: the run holds nothing of this entry"));
            continue;
        };
        if let Some(reason) = &run.skipped {
            rows.push(row(name, "", Verdict::Skip, reason));
            continue;
        }
        // Whoever names no tool had the default one.
        let or_default = |tool: Option<&String>| tool.map_or(BenchTool::Tokenspeed.as_str(), String::as_str).to_owned();
        let tool = or_default(run.fingerprint.get("bench_tool").and_then(Option::as_ref));
        let blessed = or_default(entry.bench_tool.as_ref());
        if blessed != tool {
            let reason =
                format!("bench_tool_differs: blessed with {blessed}, measured with {tool}; no bound crosses tools");
            rows.push(row(name, "", Verdict::Fail, &reason));
            continue;
        }
        for (cell, bounds) in &entry.cells {
            held(name, cell, bounds, run, &mut rows);
        }
        let known = |cell: &str| entry.cells.iter().any(|(name, _)| name == cell);
        unbound(name, run, known, &mut rows);
    }
    for (name, run) in record.entries.iter().filter(|(name, _)| wanted(name) && file.raw(name).is_none()) {
        match &run.skipped {
            Some(reason) => rows.push(row(name, "", Verdict::Skip, reason)),
            None => unbound(name, run, |_| false, &mut rows),
        }
    }
    Ok(rows)
}

fn row(entry: &str, cell: &str, verdict: Verdict, reason: &str) -> Row {
    Row {
        entry: entry.to_owned(),
        cell: cell.to_owned(),
        metric: String::new(),
        observed: None,
        bound: String::new(),
        verdict,
        reason: reason.to_owned(),
    }
}

/// Cells without bounds: recorded when they ran well, and a fail when they did not.
fn unbound(entry: &str, run: &EntryRecord, known: impl Fn(&str) -> bool, rows: &mut Vec<Row>) {
    for (cell, record) in run.cells.iter().filter(|(cell, _)| !known(cell)) {
        rows.push(state_row(entry, cell, record.state, record.reason.as_deref()));
    }
}

fn state_row(entry: &str, cell: &str, state: CellState, reason: Option<&str>) -> Row {
    let reason = reason.unwrap_or("no reason recorded");
    match state {
        CellState::Passed => row(entry, cell, Verdict::Record, ""),
        CellState::Failed => row(entry, cell, Verdict::Fail, &format!("cell_failed: {reason}")),
        CellState::DidNotRun => row(entry, cell, Verdict::Fail, &format!("did_not_run: {reason}")),
    }
}

fn held(entry: &str, cell: &str, bounds: &super::file::CellBounds, run: &EntryRecord, rows: &mut Vec<Row>) {
    let Some(record) = run.cells.get(cell) else {
        rows.push(row(entry, cell, Verdict::Fail, "cell_missing: a bound whose cell is not in the run"));
        return;
    };
    let failed = record.state != CellState::Passed;
    if failed || !bounds.armed() {
        rows.push(state_row(entry, cell, record.state, record.reason.as_deref()));
    }
    if failed {
        return;
    }
    let mut gate = |metric: &str, observed: Option<f64>, bound: String, passes: bool| {
        let reason = match observed {
            None => "gate_metric_missing: the run holds no such figure",
            Some(_) if passes => "",
            Some(_) => "gate_breached",
        };
        let verdict = if observed.is_some() && passes { Verdict::Pass } else { Verdict::Fail };
        rows.push(Row { metric: metric.to_owned(), observed, bound, ..row(entry, cell, verdict, reason) });
    };
    for (metric, bound) in &bounds.metrics {
        let observed = record.observation(metric);
        let passes = observed.is_some_and(|value| bound.policy.passes(value, bound.value));
        gate(metric, observed, format!("{} {}", bound.policy.word(), bound.value), passes);
    }
    if let Some(max) = bounds.step_time_max {
        let observed = record.mean_step_time_ms;
        gate("step_time_ms", observed, format!("max {max}"), observed.is_some_and(|value| value <= max));
    }
    for (key, expected) in &bounds.correctness {
        let found = record.correctness.get(key);
        let reason = match found {
            Some(found) if found == expected => String::new(),
            Some(found) => format!("correctness_differs: {found} instead of {expected}"),
            None => format!("correctness_missing: {expected} expected"),
        };
        let verdict = if reason.is_empty() { Verdict::Pass } else { Verdict::Fail };
        rows.push(Row {
            metric: key.clone(),
            bound: format!("equal {expected}"),
            ..row(entry, cell, verdict, &reason)
        });
    }
}
