//! Runs what a sweep owes on this machine, trial after trial; everything that is known is on disk before the next
//! step, so that a killed sweep resumes where it was.

use std::io;

use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::book::{Book, BookError, Entry};
use super::filed::{self, Outcome};
use super::folder::Folder;
use super::local::{self, Ended as TrialEnd, Places};
use super::manifest::{Attempt, AttemptEnd, INTERRUPTED, Manifest, rfc3339};
use super::outputs::{self, View};
use super::plan::Plan;
use super::progress::{Progress, left_in_words, trial_in_words};
use super::summary;
use super::trial::{ExitStatus, TrialRecord, Verdict};
use crate::run::signals::{Stop, Stops};

/// Why trials are missing between two of them; still true where the sweep is killed.
const UNDER_WAY: &str = "the sweep has not ended";

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every trial passed.
    Passed,
    /// Some trial did not pass.
    NotPassed,
    /// This host could run none of the trials.
    NothingMeasured,
    /// By a signal; what it had started is gone.
    Stopped(Stop),
}

/// A sweep that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The trials on disk.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The output directory.
    #[error("output directory: {0}")]
    Io(#[from] io::Error),
    /// The reports.
    #[error(transparent)]
    Outputs(#[from] outputs::OutputError),
}

/// A sweep at work.
#[derive(Debug)]
pub struct Sweep<'a> {
    plan: &'a Plan,
    folder: Folder,
    manifest: Manifest,
    book: Book,
    progress: Progress,
    resumed: usize,
}

impl<'a> Sweep<'a> {
    /// Takes up what is on disk and begins a session.
    pub async fn open(
        plan: &'a Plan,
        folder: Folder,
        mut manifest: Manifest,
        progress: Progress,
    ) -> Result<Self, DriveError> {
        manifest.begin_session(plan);
        let book = Book::open(plan, &folder, &mut manifest).await?;
        folder.save(&manifest)?;
        let resumed = plan.selected().map(|(position, _)| book.of(position).count()).sum();
        Ok(Self { plan, folder, manifest, book, progress, resumed })
    }

    /// Runs what is owed.
    pub async fn run(mut self, stops: &mut Stops) -> Result<Ended, DriveError> {
        if self.resumed > 0 {
            self.progress.say(&format!("sweep: {} trials are there already", self.resumed));
        }
        self.write(Some(UNDER_WAY))?;
        let mut done = self.resumed;
        let mut stopped = None;
        'cells: for (position, cell) in self.plan.selected() {
            while let Some(index) = self.book.owed(self.plan, position) {
                if let Ok(arrival) = stops.arrivals.try_recv() {
                    stopped = Some(arrival.stop);
                    break 'cells;
                }
                let total = done + self.owed();
                let name = format!("[{}/{total}] {} trial {}", done + 1, cell.cell.name, index + 1);
                self.progress.say(&format!("{name}: started, {}", left_in_words(self.plan, &self.book)));
                match self.trial(position, index, &name, stops).await? {
                    Ok(record) => {
                        self.progress.say(&format!("{name}: {}", trial_in_words(&record)));
                        done += 1;
                    }
                    Err(stop) => {
                        stopped = Some(stop);
                        break 'cells;
                    }
                }
                self.write(Some(UNDER_WAY))?;
            }
        }
        self.finish(stopped)
    }

    /// Trials owed at most.
    fn owed(&self) -> usize {
        self.plan.selected().map(|(position, _)| self.book.pending(self.plan, position)).sum()
    }

    /// One trial, from its start to its document on disk.
    async fn trial(
        &mut self,
        position: usize,
        index: u32,
        name: &str,
        stops: &mut Stops,
    ) -> Result<Result<TrialRecord, Stop>, DriveError> {
        let plan = self.plan;
        let (cell, workload) = (&plan.cells[position], &plan.recipe.workload);
        let cell_name = &cell.cell.name;
        self.folder.make_cell(cell_name, workload)?;
        let places = Places {
            result: self.folder.result(cell_name, workload, index),
            log: self.folder.log(cell_name, workload, index),
        };
        // An older document must not be taken for this attempt's.
        remove(&places.result)?;
        let started = Instant::now();
        let mut child = local::start(plan, &places)?;
        self.manifest.attempts.push(Attempt {
            cell: cell_name.clone(),
            trial: index,
            session: self.manifest.sessions.len() - 1,
            started_at: rfc3339(OffsetDateTime::now_utc()),
            process: child.identity.clone(),
            end: None,
        });
        // Only what is written down may begin: a kill before this leaves a child without a configuration.
        self.folder.save(&self.manifest)?;
        child.tell(Value::Object(cell.cell.trial_config()).to_string().as_bytes()).await;
        let look = || {
            if let Some(words) = local::last_words(&places.log) {
                self.progress.show(&format!("{name}: {words}"));
            }
        };
        let ended = child.end(stops, look).await?;
        let wall = started.elapsed().as_secs_f64();
        let (status, stop) = match ended {
            TrialEnd::Alone(status) => (status.to_string(), None),
            TrialEnd::Stopped(stop) => ("was told to stop".to_owned(), Some(stop)),
        };
        let outcome = filed::judge(filed::result(&places.result), &format!("ended ({status})"), wall);
        let record = match (outcome, stop) {
            (Outcome::Counts(record), None) => record,
            // It had come to its end before the signal did.
            (Outcome::Counts(record), Some(_)) if measured(&record) => record,
            // Somebody ended this trial and not the sweep: it stays ended.
            (Outcome::Interrupted, None) => filed::without_result("was stopped by a signal of its own", wall),
            (Outcome::Interrupted | Outcome::Counts(_), Some(stop)) => {
                self.end_attempt(AttemptEnd { status: INTERRUPTED.to_owned(), wall_clock_sec: Some(wall) })?;
                return Ok(Err(stop));
            }
        };
        let agent = cell.agent.as_ref().map(|agent| agent.sha256.as_str());
        let fingerprint = plan.fingerprint(cell, agent).unwrap_or_default();
        let path = self.folder.trial(cell_name, workload, index);
        filed::write(&path, workload, index, cell, &fingerprint, &record)?;
        if !plan.recipe.save_logs && record.verdict() == Verdict::Pass {
            remove(&places.log)?;
        }
        self.book.insert(position, index, Entry { record: record.clone(), path, resumed: false });
        let status = record.exit_status.as_str().to_owned();
        self.end_attempt(AttemptEnd { status, wall_clock_sec: Some(wall) })?;
        Ok(stop.map_or(Ok(record), Err))
    }

    fn end_attempt(&mut self, end: AttemptEnd) -> io::Result<()> {
        if let Some(attempt) = self.manifest.attempts.last_mut() {
            attempt.end = Some(end);
        }
        self.folder.save(&self.manifest)
    }

    /// Everything that is made of the trials. `unfinished` says why trials are missing, where some are.
    fn write(&self, unfinished: Option<&str>) -> Result<(), DriveError> {
        let view = View { plan: self.plan, manifest: &self.manifest, book: &self.book, dir: &self.folder.dir };
        Ok(outputs::write(&view, unfinished)?)
    }

    fn finish(mut self, stopped: Option<Stop>) -> Result<Ended, DriveError> {
        let words = stopped.map(|stop| format!("the sweep was stopped by {}", stop.name()));
        if let Some(session) = self.manifest.sessions.last_mut() {
            session.end = Some(stopped.map_or("complete", Stop::name).to_owned());
        }
        self.folder.save(&self.manifest)?;
        self.write(words.as_deref())?;
        self.progress.finish();
        let view = View { plan: self.plan, manifest: &self.manifest, book: &self.book, dir: &self.folder.dir };
        for line in summary::lines(&view) {
            self.progress.say(&line);
        }
        if let Some(stop) = stopped {
            self.progress.say(&format!("sweep: stopped by {}; --resume goes on", stop.name()));
            return Ok(Ended::Stopped(stop));
        }
        let records: Vec<&TrialRecord> =
            self.plan.selected().flat_map(|(position, _)| self.book.of(position)).map(|entry| &entry.record).collect();
        Ok(if records.iter().all(|record| record.verdict() == Verdict::Pass) {
            Ended::Passed
        } else if records.iter().all(|record| record.exit_status == ExitStatus::WorkloadSetupFailed) {
            Ended::NothingMeasured
        } else {
            Ended::NotPassed
        })
    }
}

/// Whether a trial has a document of its own that says how it went.
const fn measured(record: &TrialRecord) -> bool {
    matches!(record.exit_status, ExitStatus::Ok | ExitStatus::WorkloadFailed)
}

fn remove(path: &std::path::Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
