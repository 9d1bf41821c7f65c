//! The controller's end of the status stream (design section 5).
//!
//! [`Link::open`] starts one task that connects with a short back-off until the agent answers, says hello,
//! follows the events and, after a cut, comes back at the number where it stopped. What it learns arrives as
//! [`LinkEvent`]s on a bounded channel; nothing behind this module shows a generated type. Dropping the link
//! ends the task at once, which is how the run loop stops the retries when the container is gone.
//!
//! A link that is lost, refused or silent is never a verdict: it is a reason to ask the container client.
//! [`Client`] carries the single calls (status, logs, abort), each with a deadline.

mod client;
mod connect;
mod follow;

pub use client::{CallError, Client, LogChunk, ServiceFigures};
pub use connect::{BadTarget, Target};
pub use follow::{Follow, Link};

use proto::event::{Event, Step};

/// Whose output a log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogSource {
    /// `tokenspeed serve`.
    Server,
    /// The bench steps.
    Bench,
}

impl LogSource {
    /// `server` or `bench`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Bench => "bench",
        }
    }
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Version of the agent.
    pub version: String,
    /// Contract version that it speaks.
    pub contract_version: u32,
    /// In words, where that is not ours; empty where it is.
    pub notice: String,
    /// Run token.
    pub token: String,
    /// Wall clock at 0 of the agent's clock, Unix milliseconds.
    pub wall_ms: u64,
    /// The agent's clock at the hello.
    pub at_ms: u64,
}

/// Lines of one log, as they were when they were read; not part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLines {
    /// Which log.
    pub source: LogSource,
    /// Of which bench step.
    pub step: Option<Step>,
    /// On the agent's clock.
    pub at_ms: u64,
    /// Lines, each with its newline; any encoding.
    pub data: Vec<u8>,
}

/// What the link tells.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEvent {
    /// Nobody answers yet; said once per reason, retried until the link is dropped.
    Waiting {
        /// Why not.
        reason: String,
    },
    /// The agent said hello; events from `from_seq` on follow.
    Connected {
        /// Who.
        peer: Peer,
        /// First event asked for.
        from_seq: u64,
    },
    /// Something happened in the trial.
    Event(Event),
    /// Events that are no longer held by the agent.
    Gap {
        /// First missing.
        first: u64,
        /// Last missing.
        last: u64,
    },
    /// New log lines, where the link was opened with logs.
    Log(LogLines),
    /// Log lines that this link did not get.
    LogsDropped {
        /// Which log; `None`: not known.
        source: Option<LogSource>,
        /// How many.
        lines: u64,
    },
    /// Something that this build cannot read, from a newer agent; what follows is read.
    Unreadable {
        /// What.
        reason: String,
    },
    /// The stream broke; it is being resumed until the link is dropped.
    Lost {
        /// How.
        reason: String,
    },
    /// The agent ended the stream or refused it for good; nothing follows.
    Ended {
        /// Why.
        reason: String,
    },
}
