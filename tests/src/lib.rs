//! The engine's stand-in (see [`engine`]), and what tests of more than one program share.

pub mod controlled;
pub mod engine;
pub mod interrupts;
pub mod needs;
pub mod patience;
pub mod ports;
pub mod processes;
pub mod programs;
pub mod server;
pub mod sweeping;
pub mod trial;
pub mod words;
