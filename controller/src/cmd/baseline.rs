//! `controller baseline`: bounds from a window of runs, and a run against bounds.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::Table;
use proto::exit::controller as status;

use crate::baseline::bless::{self, BlessError, Derived, PlanRow, Request, Standing, WINDOW_NIGHTS};
use crate::baseline::check::{self, Verdict};
use crate::baseline::file::BaselineFile;
use crate::baseline::policy::DEFAULT_METRICS;
use crate::baseline::record::RunRecord;
use crate::baseline::store;

/// Arguments of `controller baseline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Derives bounds from a window of nights and writes them
    Bless(Box<Bless>),
    /// Holds a run against bounds; exits 1 on a breach
    Check(Check),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line, each by itself")]
struct Bless {
    /// Run records, or directories of them
    #[arg(long, value_name = "RUN", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
    /// Baseline file
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// Margin around the extreme of the window
    #[arg(long, value_name = "M", default_value_t = 0.25, allow_negative_numbers = true)]
    margin: f64,
    /// Metrics to gate [default: median_tpot_ms p99_itl_ms]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    metric: Vec<String>,
    /// Nights of the window
    #[arg(long, value_name = "N", default_value_t = WINDOW_NIGHTS)]
    nights: usize,
    /// Only these entries
    #[arg(long, value_name = "NAME")]
    entry: Vec<String>,
    /// Refreshes correctness values only; bounds stay as they are
    #[arg(long, conflicts_with = "metric")]
    correctness_only: bool,
    /// Counts runs started by hand as nights
    #[arg(long)]
    include_manual: bool,
    /// Leaves holes out of the window instead of ending it; written into the file
    #[arg(long)]
    bridge_holes: bool,
    /// Lets a fingerprint field differ inside the window; written into the file
    #[arg(long, value_name = "FIELD")]
    allow_mixed: Vec<String>,
    /// Prints where every metric stands, and writes nothing
    #[arg(long)]
    plan: bool,
}

#[derive(Debug, clap::Args)]
struct Check {
    /// Run record
    #[arg(long, value_name = "RUN")]
    run: PathBuf,
    /// Baseline file
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// Only these entries
    #[arg(long, value_name = "NAME")]
    entry: Vec<String>,
}

/// A refusal with its status.
struct Failed(u8, String);

fn usage(error: impl std::fmt::Display) -> Failed {
    Failed(status::USAGE, error.to_string())
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Bless(args) => bless(*args),
        Command::Check(args) => check(&args),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Failed(code, error)) => {
            eprintln!("error: {error}");
            ExitCode::from(code)
        }
    }
}

fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Failed(status::HOST, format!("stdout: {e}")))
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(header);
    table.add_rows(rows);
    table.to_string()
}

fn bless(args: Bless) -> Result<u8, Failed> {
    let records = store::read(&args.from).map_err(usage)?;
    let mut file = BaselineFile::read(&args.baseline).map_err(usage)?;
    let metrics = match (args.correctness_only, args.metric.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => DEFAULT_METRICS.map(str::to_owned).to_vec(),
        (false, false) => args.metric,
    };
    let request = Request {
        metrics,
        margin: args.margin,
        nights: args.nights,
        entries: args.entry,
        include_manual: args.include_manual,
        bridge_holes: args.bridge_holes,
        allow_mixed: args.allow_mixed,
    };
    let refused = |error: BlessError| match error {
        BlessError::Request(_) => usage(error),
        BlessError::Refused(_) => Failed(status::NOT_PASSED, format!("nothing is blessed\n{error}")),
    };
    if args.plan {
        let rows = bless::plan(&records, &request).map_err(refused)?;
        print(&plan_table(&rows, request.nights))?;
        return Ok(status::OK);
    }
    let outcome = bless::bless(&records, &request, &mut file).map_err(refused)?;
    file.write(&args.baseline).map_err(|error| Failed(status::HOST, error.to_string()))?;
    let header = ["entry", "cell", "metric", "bound", "n", "min", "max", "spread", "set by the night of"];
    let bounds = outcome.derived.iter().map(|d| {
        let spread = format!("{:.1}%", d.spread() * 100.0);
        let bound = format!("{} {}", d.policy.word(), d.bound);
        let numbers = [d.n.to_string(), d.min.to_string(), d.max.to_string(), spread, d.night.to_string()];
        [vec![d.entry.clone(), d.cell.clone(), d.metric.clone(), bound], numbers.to_vec()].concat()
    });
    print(&table(&header, bounds))?;
    for (entry, reason) in &outcome.skipped {
        eprintln!("{entry}: skipped, its bounds stay as they are: {reason}");
    }
    Ok(status::OK)
}

fn plan_table(rows: &[PlanRow], nights: usize) -> String {
    let figures = |derived: &Option<Derived>, of: &dyn Fn(&Derived) -> String| {
        derived.as_ref().map_or_else(|| "-".to_owned(), of)
    };
    let rows = rows.iter().map(|row| {
        let standing = match row.standing {
            Standing::Ready => "ready".to_owned(),
            Standing::NeedsNights(has) => format!("needs more nights ({has} of {nights})"),
            Standing::SpreadAboveMargin => "spread above margin".to_owned(),
            Standing::NotByRule => "not gated by rule".to_owned(),
        };
        vec![
            row.entry.clone(),
            row.cell.clone(),
            row.metric.clone(),
            figures(&row.derived, &|d| d.n.to_string()),
            figures(&row.derived, &|d| format!("{:.1}%", d.spread() * 100.0)),
            figures(&row.derived, &|d| format!("{} {}", d.policy.word(), d.bound)),
            standing,
        ]
    });
    table(&["entry", "cell", "metric", "n", "spread", "bound", "standing"], rows)
}

fn check(args: &Check) -> Result<u8, Failed> {
    let record = one(&args.run)?;
    if !args.baseline.exists() {
        return Err(usage(format!("--baseline {}: no such file", args.baseline.display())));
    }
    let file = BaselineFile::read(&args.baseline).map_err(usage)?;
    if let Some(unknown) =
        args.entry.iter().find(|entry| !record.entries.contains_key(*entry) && file.raw(entry).is_none())
    {
        return Err(usage(format!("--entry {unknown}: neither in the run nor in the baseline file")));
    }
    let name = args.baseline.display().to_string();
    let rows = check::check(&record, &file, &name, &args.entry).map_err(usage)?;
    let failed = rows.iter().filter(|row| row.verdict == Verdict::Fail).count();
    let lines = rows.iter().map(|row| {
        let observed = row.observed.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let words = [row.verdict.word().to_owned(), row.reason.clone()];
        [vec![row.entry.clone(), row.cell.clone(), row.metric.clone(), observed, row.bound.clone()], words.to_vec()]
            .concat()
    });
    print(&table(&["entry", "cell", "metric", "observed", "bound", "verdict", "reason"], lines))?;
    if failed > 0 {
        eprintln!("{failed} of {} checks failed", rows.len());
        return Ok(status::NOT_PASSED);
    }
    Ok(status::OK)
}

fn one(path: &Path) -> Result<RunRecord, Failed> {
    let mut records = store::read(&[path.to_path_buf()]).map_err(usage)?;
    match (records.pop(), records.is_empty()) {
        (Some(record), true) => Ok(record),
        _ => Err(usage(format!("--run {}: name one run record", path.display()))),
    }
}
