//! One trial as AORTA files it, and what it says about its cell (integration notes, section 1).
//!
//! Results are read from documents of several writers (this program, AORTA, earlier versions), so they are looked
//! at key by key and a key of another type counts as absent, as AORTA's own readers do it.

use serde_json::{Map, Value};

/// How a trial ended, in AORTA's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Ran and passed.
    Ok,
    /// Ran and did not pass.
    WorkloadFailed,
    /// Refused before anything was started: configuration or host.
    WorkloadSetupFailed,
    /// Ended without a result.
    InfrastructureFailed,
}

impl ExitStatus {
    /// Its name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::WorkloadFailed => "workload_failed",
            Self::WorkloadSetupFailed => "workload_setup_failed",
            Self::InfrastructureFailed => "infrastructure_failed",
        }
    }

    /// Reads its name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Ok, Self::WorkloadFailed, Self::WorkloadSetupFailed, Self::InfrastructureFailed]
            .into_iter()
            .find(|status| status.as_str() == name)
    }
}

/// What a trial counts as. Errors are outside the failure rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Passed.
    Pass,
    /// Failed.
    Fail,
    /// Never validly ran.
    Error,
}

/// How far a trial came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Ended before measuring began.
    DidNotRun,
    /// Failed after some steps.
    CrashedAfterIterations,
    /// Ran every step.
    Completed,
    /// The document does not say.
    Unknown,
}

impl Outcome {
    /// Its name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DidNotRun => "did_not_run",
            Self::CrashedAfterIterations => "crashed_after_iterations",
            Self::Completed => "completed",
            Self::Unknown => "unknown",
        }
    }
}

/// Where a cell's step times come from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepTimeSource {
    /// The workload's own clock, per step.
    PerStep,
    /// Elapsed time over iterations.
    ElapsedPerIter,
    /// Wall clock over configured steps.
    WallClockTotal,
    /// None.
    Missing,
}

impl StepTimeSource {
    /// Its name in documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerStep => "per_step",
            Self::ElapsedPerIter => "elapsed_per_iter",
            Self::WallClockTotal => "wall_clock_total",
            Self::Missing => "missing",
        }
    }
}

/// One trial: its end, its wall clock, and the eleven fields of AORTA's result.
#[derive(Debug, Clone)]
pub struct TrialRecord {
    /// How it ended.
    pub exit_status: ExitStatus,
    /// Seconds, setup and cleanup included.
    pub wall_clock_sec: f64,
    /// AORTA's result fields.
    pub result: Map<String, Value>,
}

impl TrialRecord {
    /// Pass, fail or error.
    pub const fn verdict(&self) -> Verdict {
        match self.exit_status {
            ExitStatus::Ok => Verdict::Pass,
            ExitStatus::WorkloadFailed => Verdict::Fail,
            ExitStatus::WorkloadSetupFailed | ExitStatus::InfrastructureFailed => Verdict::Error,
        }
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.result.get(key).and_then(Value::as_f64)
    }

    /// A whole number, by type.
    pub fn integer(&self, key: &str) -> Option<i64> {
        self.result.get(key).and_then(Value::as_i64)
    }

    fn step_times(&self) -> Vec<f64> {
        let list = self.result.get("step_times_ms").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// Samples for the cell's step timing, and how good they are.
    #[expect(clippy::cast_precision_loss, reason = "iteration counts")]
    pub fn timing(&self, steps: u32) -> (Vec<f64>, StepTimeSource) {
        let times = self.step_times();
        if !times.is_empty() {
            return (times, StepTimeSource::PerStep);
        }
        if let (Some(iterations @ 1..), Some(elapsed)) = (self.integer("total_iterations"), self.number("elapsed_sec"))
            && elapsed > 0.0
        {
            return (vec![elapsed / iterations as f64 * 1000.0], StepTimeSource::ElapsedPerIter);
        }
        // Set-up time over configured steps would look like a step time and be none.
        if self.outcome() == Outcome::DidNotRun || self.wall_clock_sec <= 0.0 || steps == 0 {
            return (vec![], StepTimeSource::Missing);
        }
        (vec![self.wall_clock_sec / f64::from(steps) * 1000.0], StepTimeSource::WallClockTotal)
    }

    /// How far it came.
    pub fn outcome(&self) -> Outcome {
        match self.result.get("main_work_started").and_then(Value::as_bool) {
            Some(false) => Outcome::DidNotRun,
            Some(true) => match (self.integer("executed_iterations"), self.integer("configured_iterations")) {
                (Some(executed), Some(configured)) if executed >= configured => Outcome::Completed,
                (Some(_), Some(_)) if self.result.get("passed").and_then(Value::as_bool) == Some(false) => {
                    Outcome::CrashedAfterIterations
                }
                _ => Outcome::Unknown,
            },
            None => {
                let timed = self.step_times().iter().any(|t| *t > 0.0)
                    || self.number("elapsed_sec").is_some_and(|elapsed| elapsed > 0.0);
                if self.exit_status != ExitStatus::Ok && !timed { Outcome::DidNotRun } else { Outcome::Unknown }
            }
        }
    }

    /// Remedies, each once.
    pub fn hints(&self) -> Vec<&str> {
        let mut hints: Vec<&str> = Vec::new();
        let details = self.result.get("failure_details").and_then(Value::as_array);
        for detail in details.into_iter().flatten() {
            if let Some(hint) = detail.get("hint").and_then(Value::as_str).filter(|hint| !hint.is_empty())
                && !hints.contains(&hint)
            {
                hints.push(hint);
            }
        }
        hints
    }

    /// The metrics, if there are any.
    pub fn metrics(&self) -> Option<&Map<String, Value>> {
        self.result.get("metrics").and_then(Value::as_object)
    }
}
