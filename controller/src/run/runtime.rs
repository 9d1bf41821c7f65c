//! What holds the agent, behind one trait: the lifecycle above it is the same for docker, podman and a plain process
//! (design section 4).

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// What a query says about the trial's container (or process tree).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Nothing of ours is there.
    Absent,
    /// It is there.
    Ours {
        /// What to remove it by.
        id: String,
        /// Its processes live.
        running: bool,
    },
    /// Something with our name that is not ours: never touched (failure scenario FS-11).
    Foreign {
        /// Its id.
        id: String,
    },
    /// Nobody could say.
    Unknown {
        /// The runtime's own words.
        why: String,
    },
}

/// What an order to remove answered. Only words: whether it worked is asked, never inferred (failure scenario FS-09).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveAnswer {
    /// Exit 0.
    Accepted,
    /// There was none.
    NoSuch,
    /// Somebody removes it already (failure scenario FS-10).
    InProgress,
    /// Refused, or not answered in time.
    Failed {
        /// Exit status, where there was one.
        code: Option<i32>,
        /// The runtime's own words.
        words: String,
    },
}

/// What holds the agent.
pub trait Runtime: fmt::Debug + Send + Sync {
    /// Asks for the trial's container, by label and by name.
    fn look(&self, limit: Duration) -> BoxFuture<'_, Look>;

    /// Orders its removal; by id where a look found one, else by name.
    fn remove<'a>(&'a self, id: Option<&'a str>, limit: Duration) -> BoxFuture<'a, RemoveAnswer>;

    /// What a person would run.
    fn by_hand(&self) -> String;
}
