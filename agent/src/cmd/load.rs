//! `agent load` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `agent load`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("agent load: not available in this build");
    ExitCode::from(proto::exit::AgentExit::Usage.code())
}
