//! The result document (design section 3): AORTA's `WorkloadResult` under AORTA's own names, and one object
//! `trial` of ours. Strict JSON, versioned, with a published schema.

use proto::finding::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::trial::RuntimeKind;
use crate::error::ErrorDocument;

/// What `--result` holds: a trial's result, or why there was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Document {
    /// Nothing was measured: the configuration or the host did not allow it.
    Error(ErrorDocument),
    /// A trial was started.
    Result(Box<ResultDocument>),
}

/// The result of one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultDocument {
    /// [`SCHEMA_VERSION`](crate::error::SCHEMA_VERSION).
    pub schema_version: u32,
    /// No failure details.
    pub passed: bool,
    /// Number of failure details.
    pub failure_count: u64,
    /// Zero-based step of the first failure; null where it passed or failed before measuring.
    pub first_failure_iteration: Option<u64>,
    /// Every failure, in the order of contract I.4.
    pub failure_details: Vec<FailureDetail>,
    /// Measured steps that began or left an export.
    pub total_iterations: u64,
    /// `duration` of each export, milliseconds, in step order.
    pub step_times_ms: Vec<f64>,
    /// Spawn to the end of the GPU memory wait, seconds.
    pub elapsed_sec: f64,
    /// What was asked for and what was measured, flat (contract I.2).
    pub metrics: Map<String, Value>,
    /// At least one export or one step-start marker.
    pub main_work_started: bool,
    /// Exports read.
    pub executed_iterations: u64,
    /// Steps asked for.
    pub configured_iterations: u64,
    /// What AORTA does not ask for and people do.
    pub trial: TrialRecord,
}

/// One failure: a reason, the values compared, the remedy; further keys by reason (contract I.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureDetail {
    /// Its name.
    pub reason: String,
    /// The values compared, in one or two sentences.
    pub detail: String,
    /// The remedy, in one sentence: the only part that AORTA shows in its matrix (review finding D-04).
    pub hint: String,
    /// `step`, `exit_code`, `stdout_tail`, `gate`, ...
    #[serde(flatten)]
    pub facts: Map<String, Value>,
}

/// How the trial ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRecord {
    /// Part of every file name of the trial.
    pub run_token: String,
    /// What held the agent.
    pub runtime: RuntimeKind,
    /// Container image; null in the process runtime.
    pub image: Option<String>,
    /// Container name; null in the process runtime.
    pub container_name: Option<String>,
    /// Directory of exports, logs and journal on the host.
    pub out_dir: String,
    /// The agent that ran.
    pub agent: AgentIdentity,
    /// Version of the controller.
    pub controller_version: String,
    /// Wall clock of the spawn, RFC 3339; null when nothing was spawned.
    pub started_at: Option<String>,
    /// What the agent said by its exit status; null when there was none.
    pub agent_verdict: Option<Verdict>,
    /// What the host found by itself.
    pub host_verdict: Verdict,
    /// How long each phase took.
    pub phases: Phases,
    /// First streamed token of the generate probe, milliseconds since its request.
    pub first_token_ms: Option<u64>,
    /// Processes of the server's tree as the agent saw them; null without a status stream.
    pub processes: Option<TreeFigures>,
    /// The kernel-held lease.
    pub lease: LeaseRecord,
    /// Signals that reached the controller, in order.
    pub signals: Vec<SignalRecord>,
    /// Exports of measured steps, with digests.
    pub result_files: Vec<ResultFile>,
    /// Remarks that are not failures.
    pub findings: Vec<Finding>,
    /// A detached helper that goes on removing what could not be removed in time.
    pub reaper: Option<ReaperRecord>,
}

/// Which agent ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentIdentity {
    /// Its version, once it said so; null without a status stream or journal.
    pub version: Option<String>,
    /// SHA-256 of the binary, hex; null before it was staged.
    pub sha256: Option<String>,
}

/// One side's opinion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// `pass`, or the reason of the first failure.
    pub reason: String,
    /// Exit status behind it; the client's signal as a negative number.
    pub exit_code: Option<i32>,
}

/// Durations of phases, milliseconds; null for a phase that was not reached or not timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phases {
    /// Checks and staging on the host.
    pub prepare_ms: Option<f64>,
    /// Image pull; null when the image was there.
    pub pull_ms: Option<f64>,
    /// Spawn of the client to the agent's first word.
    pub start_ms: Option<f64>,
    /// Server start to `/health` 200.
    pub ready_ms: Option<f64>,
    /// Generation health and generate probe.
    pub generate_ms: Option<f64>,
    /// Discarded steps.
    pub warmup_ms: Option<f64>,
    /// Measured steps.
    pub measure_ms: Option<f64>,
    /// Server teardown.
    pub teardown_ms: Option<f64>,
    /// Spawn to exit of the client.
    pub client_ms: Option<f64>,
    /// Removal and the proof of absence.
    pub removal_ms: Option<f64>,
    /// Wait for GPU memory.
    pub gpu_memory_wait_ms: Option<f64>,
}

/// Figures over the process tree.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreeFigures {
    /// Most processes at once.
    pub peak_count: u64,
    /// Most resident memory at once, bytes.
    pub peak_rss_bytes: u64,
}

/// The lease of the trial (design section 6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRecord {
    /// Grace after it is lost, seconds; 0 is off.
    pub sec: u64,
    /// Whether the controller held it from before the spawn.
    pub held: bool,
}

/// A signal that reached the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignalRecord {
    /// `SIGTERM`, `SIGHUP`, `SIGINT`, or `parent gone`.
    pub signal: String,
    /// Milliseconds since the controller started.
    pub at_ms: u64,
}

/// An export of a measured step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// Measured step, from 1.
    pub step: u32,
    /// Path on the host.
    pub path: String,
    /// SHA-256, hex.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

/// The detached helper (design section 6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReaperRecord {
    /// Its process id.
    pub pid: u32,
    /// Where it writes.
    pub log: String,
}

/// JSON Schema of the document.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Document)
}

impl Document {
    /// The document as its file holds it: one JSON object and a newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Only maps with non-string keys can fail here, and there are none.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}
