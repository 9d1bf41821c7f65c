//! `controller audit` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `controller audit`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("controller audit: not available in this build");
    ExitCode::from(proto::exit::controller::USAGE)
}
