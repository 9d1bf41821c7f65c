//! `agent run`: the serving benchmark from the environment.

use std::process::ExitCode;

use crate::config::Flags;

/// Arguments of `agent run`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    drop(args.flags);
    eprintln!("agent run: not available in this build");
    ExitCode::from(proto::exit::AgentExit::Usage.code())
}
