//! `controller sweep`: every cell of an AORTA recipe, trial by trial.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use proto::exit::controller as status;

use super::run::Runtime;
use crate::baseline::record::Trigger;
use crate::config::Overrides;
use crate::launch::start::new_token;
use crate::run::logging;
use crate::run::signals::{Stops, die_by, listen};
use crate::sweep::drive::{Ended, Sweep};
use crate::sweep::dry_run;
use crate::sweep::folder::{self, Folder, FolderError};
use crate::sweep::manifest::Manifest;
use crate::sweep::plan::{Fault, Plan, Problem, Request};
use crate::sweep::progress::Progress;

/// From the first signal to the process's end at the latest: the trial's own end, and the reports.
const DEATH: Duration = Duration::from_secs(15);

/// Arguments of `controller sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recipe, as AORTA takes it
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// Where everything goes: matrix.json, matrix.md, perf.md, report.html, manifest.json, cells/
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    output_dir: Option<PathBuf>,
    /// Prints cells, load, time budget and problems; touches nothing
    #[arg(long)]
    dry_run: bool,
    /// Goes on with the sweep that stands in the output directory
    #[arg(long)]
    resume: bool,
    /// Trials per cell; wins over the recipe
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    trials: Option<u32>,
    /// Only this cell; repeatable
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// What runs the trials
    #[arg(long, value_enum, default_value_t = Executor::Local)]
    executor: Executor,
    /// JSON file with mitigations and environments of your own; repeatable
    #[arg(long, value_name = "FILE")]
    mitigations_file: Vec<PathBuf>,
    /// What holds the agent; wins over the recipe
    #[arg(long, value_enum)]
    runtime: Option<Runtime>,
    /// The agent binary; wins over the recipe
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Why the sweep runs; `controller baseline` counts scheduled ones as nights
    #[arg(long, value_enum, default_value_t = Why::Manual)]
    trigger: Why,
}

/// `--executor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Executor {
    /// This machine, one trial after the other
    Local,
    /// A Slurm job array, a task per trial
    Slurm,
}

/// `--trigger`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Why {
    /// By the clock
    Scheduled,
    /// By a person
    Manual,
}

impl From<Why> for Trigger {
    fn from(why: Why) -> Self {
        match why {
            Why::Scheduled => Self::Scheduled,
            Why::Manual => Self::Manual,
        }
    }
}

/// An end with its status and its words.
struct Refused(u8, String);

fn usage(words: impl std::fmt::Display) -> Refused {
    Refused(status::USAGE, words.to_string())
}

fn host(words: impl std::fmt::Display) -> Refused {
    Refused(status::HOST, words.to_string())
}

fn problem(problem: &Problem) -> Refused {
    Refused(code(problem.fault), problem.to_string())
}

const fn code(fault: Fault) -> u8 {
    match fault {
        Fault::Config => status::USAGE,
        Fault::Host => status::HOST,
    }
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| host(format!("no event loop to be had: {error}")))
        .and_then(|runtime| runtime.block_on(whole(args)));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Refused(code, words)) => {
            let _ = writeln!(std::io::stderr(), "error: {words}");
            ExitCode::from(code)
        }
    }
}

async fn whole(args: Args) -> Result<u8, Refused> {
    if args.executor == Executor::Slurm {
        return Err(usage(
            "--executor slurm is not in this build; leave it out, or run `controller run` in your own jobs",
        ));
    }
    // Before anything else, so that from here on a signal ends the sweep in order.
    let mut stops = listen(DEATH).map_err(|error| host(format!("signals cannot be handled: {error}")))?;
    let request = Request {
        recipe: args.recipe,
        sidecars: args.mitigations_file,
        cells: args.cell,
        trials: args.trials,
        overrides: Overrides { runtime: args.runtime.map(Into::into), agent_path: args.agent },
    };
    let mut plan = Plan::read(&request).map_err(|error| problem(&error))?;
    tokio::select! {
        biased;
        Some(arrival) = stops.arrivals.recv() => die_by(arrival.stop.signal()),
        () = plan.look_at_host(Path::new("/dev/kfd")) => {}
    }
    let worst = plan.problems().iter().map(|(_, problem)| code(problem.fault)).min();
    let Some(dir) = args.output_dir.filter(|_| !args.dry_run) else {
        let text = dry_run::text(&plan);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| host(format!("stdout: {e}")))?;
        return Ok(worst.unwrap_or(status::OK));
    };
    if let Some(worst) = worst {
        let lines: Vec<String> =
            plan.problems().iter().map(|(cells, problem)| format!("cell {}: {problem}", cells.join(", "))).collect();
        return Err(Refused(worst, format!("nothing is started\n{}", lines.join("\n"))));
    }
    run(&plan, &dir, args.resume, args.trigger.into(), &mut stops).await
}

async fn run(plan: &Plan, dir: &Path, resume: bool, trigger: Trigger, stops: &mut Stops) -> Result<u8, Refused> {
    let of_folder = |error: FolderError| if error.is_usage() { usage(error) } else { host(error) };
    folder::look(dir, resume).map_err(of_folder)?;
    let folder = Folder::open(dir).map_err(of_folder)?;
    // Under the lock: another sweep may just have ended here.
    let manifest = match folder::look(dir, resume).map_err(of_folder)? {
        Some(manifest) => {
            let differences = manifest.differences(plan);
            if !differences.is_empty() {
                return Err(usage(format!(
                    "--resume: what stands in {} was measured for something else\n  {}\n  hint: undo the change, or take another --output-dir",
                    dir.display(),
                    differences.join("\n  ")
                )));
            }
            manifest
        }
        None => Manifest::new(plan, new_token().map_err(|error| host(error.message))?.as_str().to_owned(), trigger),
    };
    let progress = Progress::on_stderr();
    logging::init(logging::Format::Text, progress.bar());
    for (cells, finding) in plan.findings() {
        progress.say(&format!("{}: {}; {}", cells.join(", "), finding.detail, finding.hint));
    }
    let sweep = Sweep::open(plan, folder, manifest, progress).await.map_err(host)?;
    match sweep.run(stops).await {
        Ok(Ended::Passed) => Ok(status::OK),
        Ok(Ended::NotPassed) => Ok(status::NOT_PASSED),
        Ok(Ended::NothingMeasured) => Ok(status::HOST),
        Ok(Ended::Stopped(stop)) => die_by(stop.signal()),
        Err(error) => Err(Refused(status::NOT_PASSED, format!("{error}; what is on disk stays, --resume goes on"))),
    }
}
