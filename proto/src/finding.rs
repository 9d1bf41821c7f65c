//! Remarks that are never failures by themselves (design section 3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a finding is about; its text is written where it is raised, its name only here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingId {
    /// The released bench tool never has more than 100 requests in flight.
    ToolConcurrencyCap,
    /// Streams ended early and were counted as completed.
    ShortOutputWork,
    /// The native load client was at its own limit: its error shows in the figures.
    ClientBound,
    /// The trial runs without a lease.
    LeaseOff,
    /// Container-only keys that the process runtime leaves out.
    IgnoredUnderProcess,
    /// `--engine-startup-timeout` was raised to the readiness deadline.
    EngineStartupTimeoutRaised,
    /// `tokenspeed --help` gave no list of sub-commands.
    NoBenchSubcommandList,
    /// The server exited after the last step had been audited.
    ServerExitedAfterSteps,
    /// Processes outlived their group and had to be killed.
    ProcessSurvivors,
    /// The server ignored SIGTERM for the whole grace.
    ServerIgnoredTerm,
    /// GPU memory is outstanding and nobody says whose it is.
    GpuMemoryOutstanding,
    /// No GPU memory reading on this host.
    GpuMemoryUnreadable,
    /// `save_detailed` is on and the export has no `output_lens`.
    OutputLensAbsent,
    /// Several choices of one request may be identical (review finding B-05).
    ChoicesAreNotRollouts,
    /// A secret that the config names is not set on this host.
    SecretUnset,
    /// Leftovers of dead trials were removed.
    LeftoversRemoved,
    /// Something of an earlier trial is there and is not proven dead.
    LeftoversUnknown,
    /// The status stream could not be served or was lost.
    StatusStreamLost,
    /// Output of a child was cut in our copy.
    OutputCut,
    /// The server listens beyond loopback.
    ListensBeyondLoopback,
    /// Steps fall into separate groups.
    StepsInGroups,
    /// A configuration key that nobody knows.
    UnknownKey,
    /// The configuration cannot satisfy its own audit.
    ConfigDoubtful,
    /// A container or file could not be removed in time and a helper goes on.
    CleanupContinues,
    /// Files of ours could not be written.
    WriteFailed,
}

/// One finding: its name, what it means here, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its name.
    pub id: FindingId,
    /// What was seen, with figures.
    pub detail: String,
    /// What to do about it, in one sentence.
    pub hint: String,
}

impl Finding {
    /// A finding from its parts.
    pub fn new(id: FindingId, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { id, detail: detail.into(), hint: hint.into() }
    }
}
