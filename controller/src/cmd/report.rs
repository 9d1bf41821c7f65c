//! `controller report`: the published tables on stdout; everything of our own on request.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report::{self, analysis, extended, html, markdown};
use crate::whole_file::WholeFile;

/// Status when there is nothing to report, or it cannot be written.
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
    /// Also prints intervals, verdicts, support of percentiles and remarks, after the published tables
    #[arg(long)]
    extended: bool,
    /// Also writes one self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also writes the machine form
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(args: Args) -> Result<(), String> {
    let Args { dir, glob, extended, html, json } = args;
    let (unreadable, report) = report::load(&dir, &glob);
    for file in &unreadable {
        eprintln!("UNREADABLE {} {}", file.path, file.reason);
    }
    let report = report.map_err(|error| error.to_string())?;
    let mut text = markdown::render(&report);
    if extended || html.is_some() || json.is_some() {
        let document = analysis::document(&report, &unreadable);
        if let Some(path) = json {
            let mut json = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
            json.push('\n');
            write(&path, &json)?;
        }
        if let Some(path) = html {
            write(&path, &html::render(&report, &document).map_err(|error| error.to_string())?)?;
        }
        if extended {
            text.push_str(&extended::render(&document));
        }
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write to stdout: {error}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let file = WholeFile::create(path).and_then(|file| {
        file.handle().write_all(text.as_bytes())?;
        file.commit()
    });
    file.map_err(|error| format!("cannot write {}: {error}", path.display()))
}
