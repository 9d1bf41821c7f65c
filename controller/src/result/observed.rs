//! What the controller saw of one trial: plain facts, gathered by `run/`, turned into a document by [`super::assemble`].

use std::path::PathBuf;
use std::time::Duration;

use proto::export::Export;
use proto::finding::Finding;
use proto::marker::Markers;

use super::document::{AgentIdentity, LeaseRecord, Phases, ReaperRecord, SignalRecord, TreeFigures};
use crate::config::trial::RuntimeKind;

/// Identity of a run, settled before anything is spawned.
#[derive(Debug, Clone)]
pub struct RunIdentity {
    /// Part of every file name of the trial.
    pub token: proto::names::RunToken,
    /// What holds the agent.
    pub runtime: RuntimeKind,
    /// Name of the container, where there is one.
    pub container: Option<String>,
    /// Directory of exports and logs on the host.
    pub out_dir: PathBuf,
    /// Resolved gateway port; `None` before resolution.
    pub gateway_port: Option<u16>,
    /// Resolved control port; `None` before resolution.
    pub control_port: Option<u16>,
}

/// How the client ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEnd {
    /// By itself, with a status; the number of a signal that killed it as a negative number.
    Exited(i32),
    /// The whole-container deadline passed.
    TimedOut,
    /// Its container was gone and it did not notice; the status with which it was ended.
    Hung(i32),
    /// It could not be started, or nobody could wait for it.
    Lost {
        /// The system's own words.
        error: String,
    },
    /// The controller was told to stop.
    Interrupted(Interruption),
}

/// What told the controller to stop, and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// `SIGTERM`, ...; `None` where no signal was involved.
    pub signal: Option<String>,
    /// Phase of the trial.
    pub phase: Option<String>,
    /// Measured step, from 1.
    pub step: Option<u32>,
}

/// One export of the expected set that could be read.
#[derive(Debug, Clone)]
pub struct Record {
    /// Measured step, from 1.
    pub step: u32,
    /// Path on the host.
    pub path: PathBuf,
    /// What it says.
    pub export: Export,
}

/// What became of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing was started, so there was nothing to remove.
    NotNeeded,
    /// Its absence was proven by a query.
    Proven,
    /// It is there, or nobody could say that it is not.
    NotProven {
        /// The runtime's own words.
        detail: String,
        /// What to run by hand.
        command: String,
    },
}

/// What became of the GPU memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuMemory {
    /// Not looked at: no reading before the run, not wanted, or a signal.
    #[default]
    NotChecked,
    /// Back to where it was.
    Released,
    /// These had a reading before the run and have none now: nobody can say (failure scenario FS-88).
    Unreadable(Vec<usize>),
    /// Still held when waiting stopped helping.
    Outstanding(Vec<HeldGpu>),
}

/// One GPU whose memory did not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldGpu {
    /// Position among the AMD GPUs of the node.
    pub index: usize,
    /// PCI address, where sysfs tells it.
    pub pci_address: Option<String>,
    /// More than before the run, bytes.
    pub held_bytes: u64,
    /// GPUs in the node: with more than one the index may not be the reset tool's.
    pub gpus_on_node: usize,
}

/// A process that outlived its trial and had to be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Process id on the host.
    pub pid: i32,
    /// Short name.
    pub name: String,
    /// Whether it is gone now.
    pub killed: bool,
}

/// Everything that was seen, so far or in the end.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Who.
    pub identity: RunIdentity,
    /// The end of the client; `None` while it lives.
    pub end: Option<ClientEnd>,
    /// Status of the client, however it was ended.
    pub agent_exit: Option<i32>,
    /// The client ended while its container lived on.
    pub container_outlived_client: bool,
    /// Marker lines of the agent.
    pub markers: Markers,
    /// Last text of stdout, trimmed.
    pub stdout_tail: String,
    /// Last text of stderr, trimmed.
    pub stderr_tail: String,
    /// Exports, in step order.
    pub records: Vec<Record>,
    /// The container.
    pub removal: Removal,
    /// GPU memory.
    pub gpu_memory: GpuMemory,
    /// Survivors, process runtime only.
    pub survivors: Vec<Survivor>,
    /// Spawn to the end of the removal.
    pub container_elapsed: Option<Duration>,
    /// Spawn to the end of the GPU memory wait.
    pub elapsed: Duration,
    /// Wall clock of the spawn, RFC 3339.
    pub started_at: Option<String>,
    /// The agent that ran.
    pub agent: AgentIdentity,
    /// Phase timings.
    pub phases: Phases,
    /// First token of the generate probe, milliseconds.
    pub first_token_ms: Option<u64>,
    /// Figures over the tree.
    pub processes: Option<TreeFigures>,
    /// The lease.
    pub lease: LeaseRecord,
    /// Signals so far.
    pub signals: Vec<SignalRecord>,
    /// Remarks so far.
    pub findings: Vec<Finding>,
    /// The detached helper.
    pub reaper: Option<ReaperRecord>,
}

impl Observed {
    /// The agent had said its last word, and it was a pass, before its client had to be ended (failure scenario FS-03):
    /// the markers file decides.
    pub fn passed_behind_a_hung_client(&self) -> bool {
        matches!(self.end, Some(ClientEnd::Hung(_))) && self.markers.result == Some(proto::marker::Outcome::Pass)
    }

    /// Nothing seen yet.
    pub fn new(identity: RunIdentity) -> Self {
        Self {
            identity,
            end: None,
            agent_exit: None,
            container_outlived_client: false,
            markers: Markers::default(),
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            records: Vec::new(),
            removal: Removal::NotNeeded,
            gpu_memory: GpuMemory::NotChecked,
            survivors: Vec::new(),
            container_elapsed: None,
            elapsed: Duration::ZERO,
            started_at: None,
            agent: AgentIdentity { version: None, sha256: None },
            phases: Phases::default(),
            first_token_ms: None,
            processes: None,
            lease: LeaseRecord { sec: 0, held: false },
            signals: Vec::new(),
            findings: Vec::new(),
            reaper: None,
        }
    }

    /// How the controller was told to stop, if it was.
    pub const fn interruption(&self) -> Option<&Interruption> {
        match &self.end {
            Some(ClientEnd::Interrupted(interruption)) => Some(interruption),
            Some(ClientEnd::Exited(_) | ClientEnd::Hung(_) | ClientEnd::TimedOut | ClientEnd::Lost { .. }) | None => {
                None
            }
        }
    }
}
