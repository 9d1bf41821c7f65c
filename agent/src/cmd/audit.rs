//! `agent audit` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `agent audit`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("agent audit: not available in this build");
    ExitCode::from(proto::exit::AgentExit::Usage.code())
}
