//! The campaign of the mixed-load harness (seed, "Running it"; spec `variadic-harness` D): arms x rungs x rounds with
//! a server boot per cell, every leg on disk as it finishes.
//!
//! [`mod@file`] says what is asked for, [`order`] in which order and for how long, [`server`] starts and stops one side,
//! [`state`] knows what a folder holds and may be trusted, [`drive`] brings them together and spawns `agent load`.

pub mod drive;
pub mod file;
pub mod order;
pub mod server;
pub mod state;
