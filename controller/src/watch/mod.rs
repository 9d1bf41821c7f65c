//! `controller watch`: a live view of one trial, a replay of its journal, or the list of trials on this host.
//!
//! A source (the link, or a journal played with its own timing) yields [`LinkEvent`]s; [`state`] folds them
//! and the keys into what is shown, purely; [`render`] draws it, [`words`] says it in lines. The terminal
//! loop lives in [`screen`], everything without a terminal in [`lines`].

pub mod lines;
pub mod list;
pub mod page;
pub mod render;
pub mod replay;
pub mod screen;
pub mod state;
pub mod target;
pub mod words;

use std::time::Duration;

use tokio::sync::mpsc;

use crate::agent_link::{Follow, Link, LinkEvent, LogSource, Target};

/// What a source yields.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// As the link tells it.
    Link(Box<LinkEvent>),
    /// The journal has no more.
    ReplayOver,
}

/// Where events come from. Dropping it ends it.
#[derive(Debug)]
pub enum Source {
    /// A living agent.
    Live {
        /// Its link.
        link: Link,
        /// Its address, for aborts.
        target: Target,
    },
    /// A journal.
    Replay(mpsc::Receiver<Told>),
}

impl Source {
    /// Follows an agent, with its logs.
    pub fn live(target: Target) -> Self {
        let follow = Follow { from_seq: 1, logs: vec![LogSource::Server, LogSource::Bench] };
        Self::Live { link: Link::open(target.clone(), follow), target }
    }

    /// The next thing told; `None` when nothing will follow. Cancel-safe.
    pub async fn next(&mut self) -> Option<Told> {
        match self {
            Self::Live { link, .. } => link.events.recv().await.map(|told| Told::Link(Box::new(told))),
            Self::Replay(told) => told.recv().await,
        }
    }
}

/// How long an agent may be away before its trial is called gone, where nothing proves that it lives.
pub const GONE_AFTER: Duration = Duration::from_secs(10);
