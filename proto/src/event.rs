//! What happened in a trial, numbered (design section 5): the journal, the stream and the status page are
//! views of the same events. Events show; they never decide a verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::Finding;

/// Where the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "name", content = "step")]
pub enum Phase {
    /// Started, nothing decided.
    Boot,
    /// Waiting for `/health`.
    WaitHealth,
    /// Waiting for `/health_generate`.
    WaitGenerate,
    /// Reading back the sampling backend.
    ReadBack,
    /// Waiting for a first streamed token.
    GenerateProbe,
    /// Discarded step, counted from 1.
    Warmup(u32),
    /// Measured step, counted from 1.
    Measure(u32),
    /// Server being torn down.
    Teardown,
    /// Over.
    Done,
}

/// One step of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Discarded or measured.
    pub kind: StepKind,
    /// From 1.
    pub number: u32,
    /// How many of this kind.
    pub total: u32,
}

/// Whether a step counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Discarded.
    Warmup,
    /// Measured.
    Measured,
}

/// Figures of an audited step; absent where the export has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Requests.
    pub completed: Option<i64>,
    /// Requests.
    pub failed: Option<i64>,
    /// Seconds.
    pub duration_sec: Option<f64>,
    /// Tokens per second.
    pub output_throughput: Option<f64>,
    /// Requests per second.
    pub request_throughput: Option<f64>,
    /// Milliseconds.
    pub median_ttft_ms: Option<f64>,
    /// Milliseconds.
    pub p99_ttft_ms: Option<f64>,
    /// Milliseconds.
    pub median_tpot_ms: Option<f64>,
    /// Milliseconds.
    pub p99_itl_ms: Option<f64>,
}

/// One process of the trial's tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSample {
    /// Process id, in the agent's pid namespace.
    pub pid: u32,
    /// Parent.
    pub parent: u32,
    /// Short name.
    pub name: String,
    /// `agent`, `server`, `bench` or `stranger`.
    pub role: String,
    /// Share of one core since the last sample, percent.
    pub cpu_percent: f32,
    /// Resident bytes.
    pub rss_bytes: u64,
}

/// One numbered event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// From 1, without gaps.
    pub seq: u64,
    /// Milliseconds since the agent started, monotonic.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum EventBody {
    /// First event of every trial: the wall-clock anchor.
    Started {
        /// Run token.
        token: String,
        /// Version of the agent.
        agent_version: String,
        /// Version of the contract.
        contract_version: u32,
        /// Wall clock at `at_ms` 0, Unix milliseconds.
        wall_ms: u64,
        /// Model.
        model: String,
        /// Discarded steps.
        warmup_steps: u32,
        /// Measured steps.
        steps: u32,
        /// Requests per step.
        num_prompts: u64,
    },
    /// A phase began.
    PhaseEntered {
        /// Which.
        phase: Phase,
        /// When it must be over, on the clock of `at_ms`.
        deadline_ms: Option<u64>,
    },
    /// The server was started.
    ServerStarted {
        /// Leader of its group.
        pid: u32,
    },
    /// A health answer that differs from the one before.
    HealthChanged {
        /// Path asked.
        path: String,
        /// Status line or error.
        answer: String,
    },
    /// `/health` answered 200.
    ServerReady {
        /// Since the server's start, milliseconds.
        startup_ms: u64,
    },
    /// The generate probe saw a token.
    FirstToken {
        /// Since the request was sent, milliseconds.
        elapsed_ms: u64,
    },
    /// A bench step began.
    StepStarted {
        /// Which.
        step: Step,
    },
    /// A bench step ended and, where it left an export, was audited.
    StepFinished {
        /// Which.
        step: Step,
        /// `pass`, or the reason of its failure.
        verdict: String,
        /// For a person.
        detail: String,
        /// Milliseconds.
        elapsed_ms: u64,
        /// What was measured.
        figures: Figures,
        /// Digest of the export that was judged.
        sha256: Option<String>,
    },
    /// A finding.
    FindingRaised {
        /// It.
        finding: Finding,
    },
    /// The trial is being stopped from outside, or by a cause of its own.
    Stopping {
        /// `SIGTERM`, `lease lost`, `abort: <reason>`, `server exited`, ...
        cause: String,
    },
    /// The server's group is gone.
    ServerStopped {
        /// How: exit status and what it took.
        detail: String,
        /// Milliseconds since the first signal.
        elapsed_ms: u64,
    },
    /// Log lines were left out of the stream for every watcher: there were too many.
    LogsDropped {
        /// Which log.
        source: String,
        /// How many lines.
        lines: u64,
    },
    /// CPU and memory of the tree.
    ResourcesSampled {
        /// The tree.
        processes: Vec<ProcessSample>,
    },
    /// Last event of every trial that ends by itself.
    Finished {
        /// Exit status.
        exit: u8,
        /// `pass`, or the reason.
        reason: String,
    },
}
