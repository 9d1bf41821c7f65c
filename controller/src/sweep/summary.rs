//! The last words of a sweep: classes of cells that exclude each other and add up (review finding D-03).

use std::fmt::Write as _;

use super::cell::CellStats;
use super::outputs::View;

/// What a cell is counted as; the first that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A trial failed.
    Failed,
    /// None failed, and one never validly ran.
    Error,
    /// Every trial passed.
    Passed,
}

impl Class {
    /// The class of a cell.
    pub const fn of(cell: &CellStats) -> Self {
        if cell.error.is_some() {
            Self::Error
        } else if cell.failed > 0 {
            Self::Failed
        } else if cell.errored > 0 {
            Self::Error
        } else {
            Self::Passed
        }
    }

    const fn tag(self) -> &'static str {
        match self {
            Self::Failed => "[fail]",
            Self::Error => "[error]",
            Self::Passed => "[pass]",
        }
    }
}

/// The summary, a line each.
pub fn lines(view: &View<'_>) -> Vec<String> {
    let cells = view.cells();
    let stats: Vec<&CellStats> = cells.iter().map(|cell| &cell.stats).collect();
    let mut lines = vec![totals(&stats)];
    for cell in stats.iter().filter(|cell| Class::of(cell) != Class::Passed) {
        lines.push(line(cell));
    }
    lines.push(format!("matrix: {}", view.dir.join("matrix.md").display()));
    lines.push(format!("report: {}", view.dir.join("report.html").display()));
    lines
}

fn totals(cells: &[&CellStats]) -> String {
    let count = |class| cells.iter().filter(|cell| Class::of(cell) == class).count();
    let resumed = cells.iter().filter(|cell| cell.resumed).count();
    let noun = if cells.len() == 1 { "cell" } else { "cells" };
    let mut text = format!(
        "{} {noun}: {} passed, {} failed, {} with errors",
        cells.len(),
        count(Class::Passed),
        count(Class::Failed),
        count(Class::Error)
    );
    if resumed > 0 {
        let _ = write!(text, "; {resumed} resumed, {} run", cells.len() - resumed);
    }
    text
}

fn line(cell: &CellStats) -> String {
    let name = &cell.identity.name;
    let hint = cell.hints.first().map(|(hint, _)| format!(" ({hint})")).unwrap_or_default();
    let counts = match (cell.failed, cell.errored) {
        (failed, 0) => format!("{failed} failed"),
        (0, errored) => format!("{errored} errored"),
        (failed, errored) => format!("{failed} failed, {errored} errored"),
    };
    let resumed = if cell.resumed { " [resumed]" } else { "" };
    format!("  {} {name}: {counts} of {} trials{hint}{resumed} -> cells/{name}/", Class::of(cell).tag(), cell.trials)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::cell::CellIdentity;
    use crate::sweep::trial::{ExitStatus, TrialRecord};

    fn cell(name: &str, ends: &[ExitStatus]) -> CellStats {
        let identity = CellIdentity { name: name.to_owned(), steps: 1, ..CellIdentity::default() };
        let trial = |exit_status: &ExitStatus| TrialRecord {
            exit_status: *exit_status,
            wall_clock_sec: 1.0,
            result: serde_json::Map::new(),
        };
        CellStats::aggregate(identity, &ends.iter().map(trial).collect::<Vec<_>>(), Vec::new(), None)
    }

    /// D-03: a cell with a failed and an errored trial is counted once.
    #[test]
    fn classes_exclude_each_other_and_add_up() {
        use ExitStatus::{InfrastructureFailed, Ok, WorkloadFailed};
        let mut cells = [
            cell("a", &[Ok, Ok]),
            cell("b", &[WorkloadFailed, InfrastructureFailed]),
            cell("c", &[Ok, InfrastructureFailed]),
        ];
        assert_eq!(totals(&cells.iter().collect::<Vec<_>>()), "3 cells: 1 passed, 1 failed, 1 with errors");
        assert_eq!(line(&cells[1]), "  [fail] b: 1 failed, 1 errored of 2 trials -> cells/b/");
        assert!(line(&cells[2]).starts_with("  [error] c: 1 errored of 2"), "{}", line(&cells[2]));
        cells[0].resumed = true;
        assert!(totals(&cells.iter().collect::<Vec<_>>()).ends_with("; 1 resumed, 2 run"));
    }
}
