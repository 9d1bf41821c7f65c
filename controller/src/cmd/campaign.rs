//! `controller campaign`: arms x rungs x rounds of the mixed-load harness.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use proto::exit::controller as status;

use crate::campaign::drive::{Ended, Session, dry_run};
use crate::campaign::file::{self, Campaign};
use crate::campaign::state::Folder;
use crate::run::signals::{die_by, listen};

/// From the first signal to the process's end at the latest: a server's hurried stop and its container's removal.
const DEATH: Duration = Duration::from_secs(20);

/// Arguments of `controller campaign`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The campaign, YAML or JSON; RUNGS, ROUNDS, NPROMPTS, OUTLEN, TEMP, TOPP, TOPK, SEED, CORPUS_COUNT and
    /// CORPUS_SEED in the environment override it
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Legs, logs, markers and state; a rerun with the same folder goes on
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    output_dir: Option<PathBuf>,
    /// Prints the order and the time budget; starts nothing
    #[arg(long)]
    dry_run: bool,
    /// The agent [default: beside this program, then on PATH]
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let campaign = match file::load(&args.file, &|name| std::env::var(name).ok()) {
        Ok(campaign) => campaign,
        Err(error) => {
            eprintln!("error: {error}\n  hint: {}", error.hint);
            return ExitCode::from(status::USAGE);
        }
    };
    let Some(dir) = args.output_dir.filter(|_| !args.dry_run) else {
        return print(&dry_run(&campaign));
    };
    let Some(agent) = find_agent(args.agent.as_deref()) else {
        eprintln!("error: no agent beside this program or on PATH; give --agent PATH");
        return ExitCode::from(status::HOST);
    };
    match run(&campaign, &dir, agent) {
        Ok(Ended::Complete) => ExitCode::from(status::OK),
        Ok(Ended::Incomplete) => ExitCode::from(status::NOT_PASSED),
        Ok(Ended::Stopped(stop)) => {
            eprintln!("campaign: stopped by {}; run it again to go on", stop.name());
            die_by(stop.signal())
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(status::HOST)
        }
    }
}

fn run(campaign: &Campaign, dir: &Path, agent: PathBuf) -> Result<Ended, Box<dyn std::error::Error>> {
    let folder = Folder::open(dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut stops = listen(DEATH)?;
        let session = Session::prepare(campaign, folder, agent).await?;
        Ok::<_, Box<dyn std::error::Error>>(session.run(&mut stops).await?)
    })?;
    Ok(ended)
}

fn find_agent(given: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = given {
        return path.is_file().then(|| path.to_path_buf());
    }
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join("agent")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside.into_iter().chain(std::env::split_paths(&path).map(|dir| dir.join("agent"))).find(|path| path.is_file())
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => ExitCode::from(status::OK),
        Err(error) => {
            eprintln!("error: stdout: {error}");
            ExitCode::from(status::NOT_PASSED)
        }
    }
}
