//! The engine's stand-in: a program called `tokenspeed` with the real one's commands, processes, ports and files,
//! whose speed and failures are settings, so that what a client or a supervisor reports can be held against a truth.
//!
//! `serve` is three processes, as the real thing: the *orchestrator* starts an *engine* (which holds the control
//! port) and a *gateway* (the OpenAI surface), waits for both, and ends the way the real one ends. Each child has a
//! socket as stdin: it tells the orchestrator when a scripted fault is due, and is told what to do. All three read
//! the same script ([`script`]), nothing else is shared. The gateway is one thread with one ticker: a step writes one
//! chunk to every stream that is due, which is how batching engines behave and what lets one core hold thousands of
//! streams. `bench serve` really sends its requests and computes its export from what it saw; only then does the
//! script spoil it. [`raw_reader`] reads the same streams with as little work as possible: the physical limit.

pub mod argparse;
pub mod bench;
pub mod cli;
pub mod control;
pub mod gateway;
pub mod helper;
pub mod http;
pub mod journal;
pub mod link;
pub mod orchestrator;
pub mod pyjson;
pub mod raw_reader;
pub mod script;
pub mod steps;
