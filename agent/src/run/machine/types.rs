//! Vocabulary of the machine: where a trial can be, what can happen, what is to be done.

use std::process::ExitStatus;

use nix::sys::signal::Signal;
use proto::event::{Figures, Phase};
use proto::exit::AgentExit;
use proto::finding::Finding;
use proto::marker::Marker;

pub use super::super::listeners::Listening;
pub use super::super::probe::{FirstToken, ReadBack};
pub use super::super::query::BenchListed;
use crate::config::StepId;

/// Which child or set of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The server's group.
    Server,
    /// The bench's group.
    Bench,
    /// Descendants that left their group.
    Strays,
}

/// What is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `/health`, again and again; on 200 also who answered.
    Health,
    /// `/health_generate`, again and again.
    Generate,
    /// `/get_server_info`, once.
    ReadBack,
    /// A streamed token, again and again.
    FirstToken,
}

/// The two timers; arming one replaces its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// End of the phase.
    Phase,
    /// Next rung of a stop ladder.
    Ladder,
}

/// How long; the driver knows the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `TS_READY_TIMEOUT`.
    Ready,
    /// Window of `/health_generate`.
    Generate,
    /// Between two tries of the read-back.
    ReadBackPause,
    /// Rest of the readiness deadline, at least the generate probe's own.
    FirstToken,
    /// `TS_BENCH_TIMEOUT`.
    Step,
    /// SIGTERM to SIGKILL of a bench at its own deadline.
    BenchKill,
    /// The same when the trial is being stopped.
    BenchKillSoon,
    /// `TS_TEARDOWN_GRACE`.
    Grace,
    /// SIGTERM to SIGKILL of strays.
    StrayGrace,
    /// SIGKILL to giving up.
    KillWait,
}

/// What stops a trial from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopCause {
    /// TERM, INT or HUP.
    Signal(Signal),
    /// `Abort` over gRPC.
    Abort(String),
    /// Nobody holds the lease.
    LeaseLost(String),
}

impl StopCause {
    pub(super) const fn exit(&self) -> AgentExit {
        match self {
            Self::Signal(_) | Self::Abort(_) => AgentExit::Aborted,
            Self::LeaseLost(_) => AgentExit::ControllerLost,
        }
    }

    pub(super) fn says(&self) -> Marker {
        match self {
            Self::Signal(signal) => Marker::Info(format!("received {signal}; aborting bench")),
            Self::Abort(reason) => Marker::Info(format!("abort requested: {reason}; aborting bench")),
            Self::LeaseLost(how) => Marker::Fail(format!("controller_lost {how}")),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Signal(signal) => signal.to_string(),
            Self::Abort(reason) => format!("abort: {reason}"),
            Self::LeaseLost(_) => "lease lost".to_owned(),
        }
    }
}

/// What the audit of one export found.
#[derive(Debug, Clone, PartialEq)]
pub enum Audit {
    /// Nothing was exported, or nothing in it.
    Missing,
    /// Sound.
    Sound {
        /// For the OK line.
        summary: String,
        /// For events.
        figures: Figures,
        /// Of the file.
        sha256: String,
        /// Whether it has no `output_lens`.
        lens_absent: bool,
    },
    /// Not sound.
    Unsound {
        /// As what.
        exit: AgentExit,
        /// Values compared.
        detail: String,
        /// Whether the server's log may explain it.
        shows_server_log: bool,
        /// For events.
        figures: Figures,
        /// Of the file, where it could be read.
        sha256: Option<String>,
    },
}

/// Everything that can happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Version and sub-commands are known, or their limit is over.
    Queried(BenchListed),
    /// A port is taken before the start; says by whom.
    PortTaken(String),
    /// A child could not be started.
    NotStarted(Who, String),
    /// The server's leader was reaped.
    ServerExited(ExitStatus),
    /// The bench's leader was reaped.
    BenchExited(ExitStatus),
    /// Whether a group, or any stray, is alive.
    Alive(Who, bool),
    /// `/health` answered 200, and who listens.
    Healthy(Listening),
    /// `/health_generate` answered 200.
    Generates,
    /// The last question of a window that is over got no 200.
    LastAskFailed(Ask),
    /// The read-back's answer.
    ReadBack(ReadBack),
    /// The generate probe's final answer.
    FirstToken(FirstToken),
    /// The audit of the running step's export.
    Audited(Audit),
    /// A timer.
    Expired(Timer),
    /// From outside.
    Stop(StopCause),
    /// A fault of ours.
    Bug(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// A phase begins.
    Enter(Phase),
    /// A marker line.
    Say(Marker),
    /// A finding.
    Find(Finding),
    /// Ask `tokenspeed` for its version and sub-commands, and look at the ports.
    Query,
    /// The lines before the start (contract B.0).
    Preamble,
    /// Start the server.
    StartServer,
    /// Report the time since its start.
    ReportReady,
    /// Remove the old export and start a step.
    StartBench(StepId),
    /// End what is left of the bench's group after its leader.
    ClearBench,
    /// Ask, until answered.
    Ask(Ask),
    /// One last question: one that is under way may end, a waiting one goes at once.
    AskLast,
    /// No more questions.
    StopAsking,
    /// Judge the export of a step.
    Audit(StepId),
    /// The step is over.
    StepOver {
        /// Which.
        step: StepId,
        /// `pass` or a reason.
        verdict: String,
        /// For a person.
        detail: String,
        /// What was measured.
        figures: Figures,
        /// Of the export.
        sha256: Option<String>,
    },
    /// The last lines of the server's log, with or without the header line.
    ServerTail {
        /// The header line.
        header: bool,
    },
    /// Start a timer.
    Arm(Timer, Limit),
    /// Stop it.
    Disarm(Timer),
    /// SIGTERM and SIGCONT.
    Terminate(Who),
    /// SIGKILL.
    Kill(Who),
    /// Say now whether it is alive, and again when it is not.
    Watch(Who),
    /// The trial is being stopped, and why.
    Stopping(String),
    /// Strays that nothing ended.
    ReportSurvivors,
    /// The end.
    Finish(AgentExit),
}

/// Where the trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// `tokenspeed` is being asked about itself; no server yet.
    Boot,
    /// Waiting for `/health`.
    WaitHealth {
        /// The deadline is over and the last question is out.
        overdue: bool,
    },
    /// Waiting for `/health_generate`.
    WaitGenerate {
        /// The window is over and the last question is out.
        overdue: bool,
    },
    /// Reading back the sampling backend.
    ReadBack {
        /// Tries left after this one.
        left: u32,
    },
    /// Waiting for a first token.
    GenerateProbe,
    /// The bench runs.
    Running(StepId),
    /// The bench passed its own deadline and is being ended.
    TimedOut {
        /// SIGKILL was sent.
        killed: bool,
    },
    /// The bench is over, its export is being judged.
    Auditing {
        /// Which.
        step: StepId,
        /// The server went away meanwhile, with this status.
        server: Option<i32>,
    },
    /// The trial ends; the bench is on its way out.
    StoppingBench {
        /// How the trial ends.
        exit: AgentExit,
        /// SIGKILL was sent.
        killed: bool,
    },
    /// The server's group is on its way out.
    StoppingServer {
        /// How the trial ends.
        exit: AgentExit,
        /// How far.
        rung: Rung,
    },
    /// Strays are on their way out.
    Sweeping {
        /// How the trial ends.
        exit: AgentExit,
        /// How far.
        rung: Rung,
    },
    /// Over.
    Done(AgentExit),
}

/// How far a stop ladder has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Looking whether there is anybody.
    Looking,
    /// SIGTERM was sent.
    Terminated,
    /// SIGKILL was sent.
    Killed,
}
