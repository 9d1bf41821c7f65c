//! `controller report`: the published tables on stdout; everything of our own on request.

use std::io::Write as _;
use std::process::ExitCode;

use crate::report::{self, markdown};

/// Status when there is nothing to report.
const FAILED: u8 = 1;

/// Arguments of `controller report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory with the leg files
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: String,
    /// Which files in it
    #[arg(long, value_name = "PATTERN", default_value = "*.json")]
    glob: String,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let Args { dir, glob } = args;
    let (unreadable, report) = report::load(&dir, &glob);
    for file in &unreadable {
        eprintln!("UNREADABLE {} {}", file.path, file.reason);
    }
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(FAILED);
        }
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(markdown::render(&report).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write to stdout: {error}");
            ExitCode::from(FAILED)
        }
    }
}
