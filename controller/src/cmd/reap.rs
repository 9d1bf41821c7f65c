//! `controller reap`: removes what proven-dead trials left on this host.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use proto::exit::controller as status;
use proto::names::RunToken;

use crate::launch::host::find_on_path;
use crate::run::reap::{Report, Scope, clean};
use crate::run::registry::Registry;
use crate::run::timings::Timings;
use crate::run::{helper, logging};

/// Arguments of `controller reap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Says what would be removed
    #[arg(long)]
    dry_run: bool,
    /// The trial of a detached helper
    #[arg(long, hide = true, requires_all = ["helper_client", "helper_container"])]
    helper_for: Option<String>,
    /// Its container client
    #[arg(long, hide = true)]
    helper_client: Option<PathBuf>,
    /// Its container
    #[arg(long, hide = true)]
    helper_container: Option<String>,
    /// How long it goes on
    #[arg(long, hide = true, default_value_t = 180)]
    helper_seconds: u64,
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    logging::init(logging::Format::Text, None);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("controller: no event loop to be had: {error}");
            return ExitCode::from(status::INTERNAL);
        }
    };
    if let (Some(token), Some(client), Some(container)) =
        (&args.helper_for, &args.helper_client, &args.helper_container)
    {
        let Ok(token) = RunToken::parse(token) else { return ExitCode::from(status::USAGE) };
        let limit = Duration::from_secs(args.helper_seconds);
        let gone = runtime.block_on(helper::run(client, container, &token, limit));
        return ExitCode::from(if gone { status::OK } else { status::NOT_PASSED });
    }
    let registry = match Registry::open(None) {
        Ok(registry) => registry,
        Err(error) => {
            eprintln!("controller: {error}");
            return ExitCode::from(status::NOT_PASSED);
        }
    };
    let timings = Timings::default();
    let clients: Vec<PathBuf> = ["docker", "podman"].into_iter().filter_map(find_on_path).collect();
    let scope = Scope { dry_run: args.dry_run, patience: timings.query_call };
    let report = runtime.block_on(clean(&registry, &clients, scope, &timings));
    let _ = std::io::stdout().write_all(words(&report, args.dry_run).as_bytes());
    ExitCode::from(if report.failed.is_empty() { status::OK } else { status::NOT_PASSED })
}

fn words(report: &Report, dry_run: bool) -> String {
    let mut out = String::new();
    let verb = if dry_run { "dead" } else { "removed" };
    for (what, lines) in [
        (verb, &report.removed),
        ("could not remove", &report.failed),
        ("left alone", &report.unknown),
        ("alive", &report.living),
    ] {
        for line in lines {
            let _ = writeln!(out, "{what}: {line}");
        }
    }
    if out.is_empty() {
        out.push_str("nothing is left of any trial\n");
    }
    out
}
