//! `controller schema` (not written yet: refuses to start).

use std::process::ExitCode;

/// Arguments of `controller schema`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn main(_args: Args) -> ExitCode {
    eprintln!("controller schema: not available in this build");
    ExitCode::from(proto::exit::controller::USAGE)
}
