//! A picture of the trial as it is now, and what may be asked of it: the whole interface between the
//! supervisor and whoever shows or steers it (gRPC, metrics).

use std::path::PathBuf;

use proto::event::{Figures, Phase, ProcessSample, Step, StepKind};
use proto::finding::Finding;
use proto::names::RunToken;
use tokio::sync::{mpsc, watch};

use crate::events::{EventHub, LogSource};

/// One audited or failed step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepStatus {
    /// Which.
    pub step: Step,
    /// `pass`, or the reason of its failure.
    pub verdict: String,
    /// Milliseconds that the bench ran.
    pub elapsed_ms: u64,
    /// What was measured.
    pub figures: Figures,
}

/// Last answer of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthAnswer {
    /// Path asked.
    pub path: String,
    /// Status or error.
    pub answer: String,
    /// On the agent's clock.
    pub at_ms: u64,
}

/// State of the lease (design section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Nobody can lose it.
    Off,
    /// Somebody holds it.
    Held,
    /// Nobody holds it; the grace runs.
    Free,
    /// The grace is over.
    Lost,
}

/// The trial now.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Run token.
    pub token: String,
    /// Model.
    pub model: String,
    /// Where the agent is.
    pub phase: Phase,
    /// Since when, on the agent's clock.
    pub phase_since_ms: u64,
    /// When the phase must be over, on the agent's clock.
    pub deadline_ms: Option<u64>,
    /// Running step.
    pub step: Option<Step>,
    /// Discarded steps in all.
    pub warmup_steps: u32,
    /// Measured steps in all.
    pub steps: u32,
    /// Requests per step.
    pub num_prompts: u64,
    /// Finished steps, in order; the newest [`Status::STEPS_KEPT`].
    pub finished: Vec<StepStatus>,
    /// Measured steps that passed.
    pub steps_passed: u32,
    /// Measured steps that did not.
    pub steps_failed: u32,
    /// Leader of the server's group, while it is not reaped.
    pub server_pid: Option<u32>,
    /// Leader of the bench's group, while it is not reaped.
    pub bench_pid: Option<u32>,
    /// Last answer per path.
    pub health: Vec<HealthAnswer>,
    /// The process tree at the last sample.
    pub processes: Vec<ProcessSample>,
    /// The lease.
    pub lease: LeaseStatus,
    /// Findings so far.
    pub findings: Vec<Finding>,
    /// Why the trial is being stopped.
    pub stopping: Option<String>,
    /// Exit status, once it is certain.
    pub exit: Option<u8>,
}

impl Status {
    /// How many finished steps are shown.
    pub const STEPS_KEPT: usize = 256;

    /// A trial that has not begun.
    pub fn new(token: &RunToken, model: &str, warmup_steps: u32, steps: u32, num_prompts: u64) -> Self {
        Self {
            token: token.to_string(),
            model: model.to_owned(),
            phase: Phase::Boot,
            phase_since_ms: 0,
            deadline_ms: None,
            step: None,
            warmup_steps,
            steps,
            num_prompts,
            finished: Vec::new(),
            steps_passed: 0,
            steps_failed: 0,
            server_pid: None,
            bench_pid: None,
            health: Vec::new(),
            processes: Vec::new(),
            lease: LeaseStatus::Off,
            findings: Vec::new(),
            stopping: None,
            exit: None,
        }
    }

    /// Notes an answer; `true` if it differs from the one before on that path.
    pub fn note_health(&mut self, path: &str, answer: &str, at_ms: u64) -> bool {
        let Some(known) = self.health.iter_mut().find(|h| h.path == path) else {
            self.health.push(HealthAnswer { path: path.to_owned(), answer: answer.to_owned(), at_ms });
            return true;
        };
        known.at_ms = at_ms;
        let changed = known.answer != answer;
        if changed {
            answer.clone_into(&mut known.answer);
        }
        changed
    }
}

/// What may be asked of the supervisor from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Ordered stop: bench down, server torn down, exit 143.
    Abort {
        /// For the log and the events.
        reason: String,
    },
    /// A heartbeat of the `Lease` stream: whoever sent it lives.
    LeaseBeat,
}

/// Where a trial's logs lie, for the `Logs` call.
#[derive(Debug, Clone)]
pub struct LogFiles {
    /// `<out>`.
    pub out_dir: PathBuf,
    /// Run token.
    pub token: RunToken,
}

impl LogFiles {
    /// The file behind a source: stdout and stderr of one child, in the order in which they were written.
    pub fn path(&self, source: LogSource) -> PathBuf {
        self.out_dir.join(match source {
            LogSource::Server => proto::names::server_log(&self.token),
            LogSource::Bench(step) => proto::names::bench_log(&self.token, step.kind == StepKind::Warmup, step.number),
        })
    }
}

/// Everything that a server of the status needs. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Events and log lines.
    pub hub: EventHub,
    /// The trial now; every change is seen, the newest wins.
    pub status: watch::Receiver<Status>,
    /// Requests to the supervisor; full means that it is already being stopped or overrun: refuse the call.
    pub commands: mpsc::Sender<Command>,
    /// Logs on disk.
    pub logs: LogFiles,
}
