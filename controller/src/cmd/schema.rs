//! `controller schema`: JSON Schemas of the documents read and written, and the key table of the manual.

use std::io::Write;
use std::process::ExitCode;

use proto::exit::controller as status;

use crate::config::schema;
use crate::schemas;

/// Arguments of `controller schema`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// config, result, plan, recipe, campaign, record, report, baseline-record or event
    #[arg(value_name = "DOCUMENT")]
    document: String,
    /// markdown: the table of configuration keys
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// JSON Schema, draft 2020-12.
    Json,
    /// A table; `config` only.
    Markdown,
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    let json = |schema: serde_json::Value| format!("{schema:#}\n");
    let text = match (args.document.as_str(), args.format) {
        ("config", Format::Markdown) => schema::markdown(),
        ("config", Format::Json) => json(schema::config()),
        ("result", Format::Json) => json(crate::result::document::schema().to_value()),
        ("plan", Format::Json) => json(schemars::schema_for!(crate::launch::plan::Plan).to_value()),
        ("recipe", Format::Json) => json(schemas::recipe()),
        ("campaign", Format::Json) => json(schemars::schema_for!(crate::campaign::file::Campaign).to_value()),
        ("record", Format::Json) => json(schemas::record()),
        ("report", Format::Json) => json(crate::report::document::schema().to_value()),
        ("baseline-record", Format::Json) => json(schemars::schema_for!(crate::baseline::record::RunRecord).to_value()),
        ("event", Format::Json) => json(schemars::schema_for!(proto::event::Event).to_value()),
        (other, Format::Markdown) => {
            eprintln!("controller schema: {other:?} has no table; --format markdown is for config");
            return ExitCode::from(status::USAGE);
        }
        (other, Format::Json) => {
            eprintln!(
                "controller schema: no schema {other:?}; write config, result, plan, recipe, campaign, record, report, baseline-record or event"
            );
            return ExitCode::from(status::USAGE);
        }
    };
    print(text.as_bytes())
}

/// Writes data to stdout; a reader that went away is no error of ours.
pub(super) fn print(data: &[u8]) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("controller: stdout: {error}");
            ExitCode::from(status::NOT_PASSED)
        }
        _ => ExitCode::SUCCESS,
    }
}
