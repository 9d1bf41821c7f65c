//! The in-container side: starts the server, waits until it truly serves, runs the bench steps, audits every
//! export, tears the whole process tree down, and tells the world about it while it happens.

pub mod cli;
pub mod cmd;
pub mod config;
pub mod events;
pub mod load;
pub mod rpc;
pub mod run;
pub mod status;
pub mod timing;
