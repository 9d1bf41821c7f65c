//! What happens in this trial, for whoever wants to look: the gRPC stream, the journal, the status page.
//!
//! The supervisor emits; nobody can slow it down. Watchers are cursors into one shared store: a slow one
//! misses log lines, which are counted, and never an event.

mod hub;
mod journal;
mod lines;

pub use hub::{EventHub, Item, Limits, LogLine, LogSource, Subscription};
pub use journal::write_journal;
pub use lines::LineSplitter;
