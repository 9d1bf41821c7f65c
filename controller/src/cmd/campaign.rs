//! `controller campaign` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `controller campaign`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("controller campaign: not available in this build");
    ExitCode::from(proto::exit::controller::USAGE)
}
