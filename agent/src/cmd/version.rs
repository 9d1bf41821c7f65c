//! `agent version` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `agent version`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("agent version: not available in this build");
    ExitCode::from(proto::exit::AgentExit::Usage.code())
}
