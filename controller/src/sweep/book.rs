//! The trials of a sweep that count, and how they come to be known: run now, read back, or taken over from a
//! sweep that was killed before it could file them (review findings D-01, D-02).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use super::filed::{self, Outcome};
use super::folder::Folder;
use super::manifest::{Attempt, AttemptEnd, INTERRUPTED, Manifest};
use super::plan::{Plan, PlannedCell};
use super::trial::{TrialRecord, Verdict};
use crate::run::identity::Life;

/// How long trials of a killed sweep get to be gone: their own 3.9 s and a busy machine.
const GONE_LIMIT: Duration = Duration::from_secs(30);

/// A trial that counts.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it says.
    pub record: TrialRecord,
    /// AORTA's document of it.
    pub path: PathBuf,
    /// Run by an earlier session.
    pub resumed: bool,
}

/// Trials by position of their cell and index.
#[derive(Debug, Default)]
pub struct Book {
    entries: BTreeMap<(usize, u32), Entry>,
}

/// A sweep that cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// Its last trial has not ended.
    #[error(
        "trial {trial} of cell {cell:?}, started by the sweep before, still runs (pid {pid}); wait for it or end it, then resume"
    )]
    StillRunning {
        /// Name of the cell.
        cell: String,
        /// From 0.
        trial: u32,
        /// Its controller.
        pid: i32,
    },
    /// Not to be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Book {
    /// Reads what is on disk. Trials count by index, and only with the fingerprint of their cell.
    pub async fn open(plan: &Plan, folder: &Folder, manifest: &mut Manifest) -> Result<Self, BookError> {
        let mut book = Self::default();
        let workload = &plan.recipe.workload;
        for (position, cell) in plan.cells.iter().enumerate() {
            let Some(fingerprint) = fingerprint(plan, cell, manifest) else { continue };
            for index in 0..cell.cell.trials {
                let path = folder.trial(&cell.cell.name, workload, index);
                let filed = filed::read(&path).filter(|filed| filed.fingerprint.as_ref() == Some(&fingerprint));
                if let Some(filed) = filed {
                    book.insert(position, index, Entry { record: filed.record, path, resumed: true });
                }
            }
        }
        for attempt in manifest.attempts.iter_mut().filter(|attempt| attempt.end.is_none()) {
            let position = plan.cells.iter().position(|cell| cell.cell.name == attempt.cell);
            let known = position.and_then(|position| book.get(position, attempt.trial));
            attempt.end = Some(match (known, position) {
                (Some(entry), _) => ended(&entry.record),
                (None, Some(position)) => book.take_over(plan, position, folder, attempt).await?,
                (None, None) => AttemptEnd { status: INTERRUPTED.to_owned(), wall_clock_sec: None },
            });
        }
        Ok(book)
    }

    /// A trial whose sweep was killed: it counts if it came to its end all the same.
    async fn take_over(
        &mut self,
        plan: &Plan,
        position: usize,
        folder: &Folder,
        attempt: &Attempt,
    ) -> Result<AttemptEnd, BookError> {
        let deadline = Instant::now() + GONE_LIMIT;
        while let Some(process) = attempt.process.as_ref().filter(|process| process.life() == Life::Alive) {
            if Instant::now() >= deadline {
                let (cell, trial, pid) = (attempt.cell.clone(), attempt.trial, process.pid);
                return Err(BookError::StillRunning { cell, trial, pid });
            }
            sleep(Duration::from_millis(100)).await;
        }
        let interrupted = Ok(AttemptEnd { status: INTERRUPTED.to_owned(), wall_clock_sec: None });
        let (workload, cell) = (&plan.recipe.workload, &plan.cells[position]);
        let place = folder.result(&cell.cell.name, workload, attempt.trial);
        // A refusal started nothing and is cheap to get again.
        let Some(document @ crate::result::document::Document::Result(_)) = filed::result(&place) else {
            return interrupted;
        };
        let wall = std::fs::metadata(&place).and_then(|meta| meta.modified()).map_or(0.0, |at| since(attempt, at));
        let Outcome::Counts(record) = filed::judge(Some(document), "ended", wall) else { return interrupted };
        let Some(fingerprint) = plan.fingerprint(cell, cell.agent.as_ref().map(|agent| agent.sha256.as_str())) else {
            return interrupted;
        };
        let path = folder.trial(&cell.cell.name, workload, attempt.trial);
        filed::write(&path, workload, attempt.trial, cell, &fingerprint, &record)?;
        let end = ended(&record);
        self.insert(position, attempt.trial, Entry { record, path, resumed: true });
        Ok(end)
    }

    /// Adds a trial.
    pub fn insert(&mut self, cell: usize, index: u32, entry: Entry) {
        self.entries.insert((cell, index), entry);
    }

    /// One trial.
    pub fn get(&self, cell: usize, index: u32) -> Option<&Entry> {
        self.entries.get(&(cell, index))
    }

    /// The trials of a cell, by index.
    pub fn of(&self, cell: usize) -> impl Iterator<Item = &Entry> {
        self.entries.range((cell, 0)..=(cell, u32::MAX)).map(|(_, entry)| entry)
    }

    /// Verdicts of a cell's trials without a gap from the first on.
    pub fn verdicts(&self, cell: usize) -> Vec<Verdict> {
        (0..).map_while(|index| self.get(cell, index)).map(|entry| entry.record.verdict()).collect()
    }

    /// The next trial that a cell owes; `None` when it has all, or enough of them.
    pub fn owed(&self, plan: &Plan, cell: usize) -> Option<u32> {
        let verdicts = self.verdicts(cell);
        let next = u32::try_from(verdicts.len()).ok()?;
        let enough = plan.recipe.stop_after.is_some_and(|stop| stop.is_met(&verdicts));
        (next < plan.cells[cell].cell.trials && !enough).then_some(next)
    }

    /// Trials that a cell owes at most, by index.
    pub fn pending(&self, plan: &Plan, cell: usize) -> usize {
        if self.owed(plan, cell).is_none() {
            return 0;
        }
        (0..plan.cells[cell].cell.trials).filter(|index| self.get(cell, *index).is_none()).count()
    }
}

/// Of a cell that this call runs, or that an earlier one did.
fn fingerprint(plan: &Plan, cell: &PlannedCell, manifest: &Manifest) -> Option<String> {
    let agent = cell.agent.as_ref().or_else(|| manifest.agents.get(&cell.cell.name));
    plan.fingerprint(cell, agent.map(|agent| agent.sha256.as_str()))
}

fn ended(record: &TrialRecord) -> AttemptEnd {
    AttemptEnd { status: record.exit_status.as_str().to_owned(), wall_clock_sec: Some(record.wall_clock_sec) }
}

/// Seconds from an attempt's start to a file's time.
fn since(attempt: &Attempt, at: SystemTime) -> f64 {
    let started = OffsetDateTime::parse(&attempt.started_at, &Rfc3339).ok();
    started.map_or(0.0, |started| (OffsetDateTime::from(at) - started).as_seconds_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::Request;
    use crate::sweep::progress::{budget, left};
    use crate::sweep::trial::ExitStatus;
    use serde_json::{Value, json};

    fn plan(more: &Value) -> Plan {
        let mut recipe = json!({"schema_version": 1, "workload": "ts_bench", "trials": 3, "steps": 1,
            "workload_config": {"model": "m", "timeout_sec": 1000},
            "cells": [{"name": "a", "mitigations": ["none"], "environment": "local"},
                      {"name": "b", "mitigations": ["xnack"], "environment": "local"}]});
        for (key, value) in more.as_object().unwrap() {
            recipe[key] = value.clone();
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        std::fs::write(&path, recipe.to_string()).unwrap();
        Plan::read(&Request { recipe: path, ..Request::default() }).unwrap()
    }

    fn entry(exit_status: ExitStatus, wall_clock_sec: f64) -> Entry {
        let record = TrialRecord { exit_status, wall_clock_sec, result: serde_json::Map::new() };
        Entry { record, path: PathBuf::new(), resumed: false }
    }

    /// D-01: the missing index runs, whatever lies behind it.
    #[test]
    fn trials_are_owed_by_index() {
        let plan = plan(&json!({}));
        let mut book = Book::default();
        let mut seen = vec![(book.owed(&plan, 0), book.pending(&plan, 0))];
        for index in [0, 2, 1] {
            book.insert(0, index, entry(ExitStatus::Ok, 1.0));
            seen.push((book.owed(&plan, 0), book.pending(&plan, 0)));
        }
        assert_eq!(seen, [(Some(0), 3), (Some(1), 2), (Some(1), 1), (None, 0)]);
        assert_eq!((book.owed(&plan, 1), book.pending(&plan, 1)), (Some(0), 3));
    }

    #[test]
    fn enough_events_end_a_cell() {
        let plan = plan(&json!({"stop_after": {"events": 1, "max_trials": 3}}));
        let mut book = Book::default();
        book.insert(0, 0, entry(ExitStatus::Ok, 1.0));
        assert_eq!(book.owed(&plan, 0), Some(1));
        book.insert(0, 1, entry(ExitStatus::WorkloadFailed, 1.0));
        assert_eq!((book.owed(&plan, 0), book.pending(&plan, 0)), (None, 0));
    }

    #[test]
    fn what_is_left_is_told_by_what_was() {
        let plan = plan(&json!({}));
        let mut book = Book::default();
        assert_eq!((left(&plan, &book), budget(&plan, &book)), (None, 6000.0));
        // A refusal took no time worth telling from.
        book.insert(0, 0, entry(ExitStatus::WorkloadSetupFailed, 0.1));
        assert_eq!(left(&plan, &book), None);
        book.insert(0, 1, entry(ExitStatus::Ok, 10.0));
        assert_eq!(left(&plan, &book), Some(10.0 + 3.0 * 10.0), "one of a, three of b like a's");
        book.insert(1, 0, entry(ExitStatus::Ok, 40.0));
        assert_eq!(left(&plan, &book), Some(10.0 + 2.0 * 40.0), "each cell by its own");
        assert!((budget(&plan, &book) - 3000.0).abs() < 1e-9);
    }
}
