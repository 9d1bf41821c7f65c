//! `controller run`: one trial, from a config to a result document.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use proto::exit::controller as status;

use crate::config::{self, Loaded, Overrides};
use crate::error::{ConfigErrors, ErrorDocument, HostError};
use crate::launch::plan;
use crate::launch::start::HostEnv;
use crate::result::document::Document;
use crate::result::store::ResultTarget;
use crate::run::dispatcher::{End, Setup, execute};
use crate::run::progress::{Mode, Progress};
use crate::run::signals::{self, Stops, die_by};
use crate::run::timings::{Roots, Timings};
use crate::run::{logging, token};

/// Arguments of `controller run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trial, one JSON or YAML mapping; - is stdin
    #[arg(long, value_name = "FILE|-")]
    config: PathBuf,
    /// Where the result document goes; - is stdout
    #[arg(long, value_name = "FILE|-")]
    result: Option<PathBuf>,
    /// What holds the agent; wins over the config
    #[arg(long, value_enum)]
    runtime: Option<Runtime>,
    /// The agent binary; wins over the config
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Checks config and host and prints the plan; nothing is pulled, staged or started
    #[arg(long)]
    dry_run: bool,
    /// The end of the parent process counts as SIGTERM
    #[arg(long)]
    follow_parent: bool,
    /// How progress is shown, on stderr
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    progress: Mode,
    /// How log lines look, on stderr
    #[arg(long, value_enum, default_value_t = logging::Format::Text)]
    log_format: logging::Format,
}

/// `--runtime`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Runtime {
    /// The docker client
    Docker,
    /// The podman client
    Podman,
    /// The agent as a plain process
    Process,
}

impl From<Runtime> for config::trial::RuntimeKind {
    fn from(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Docker => Self::Docker,
            Runtime::Podman => Self::Podman,
            Runtime::Process => Self::Process,
        }
    }
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    let started = Instant::now();
    let timings = Timings::default();
    // Before anything else, so that from here on a signal ends the trial in order.
    let stops = match signals::listen(timings.signal_death) {
        Ok(stops) => stops,
        Err(error) => {
            eprintln!("controller: signals cannot be handled: {error}");
            return ExitCode::from(status::HOST);
        }
    };
    let progress = Progress::new(if args.dry_run { Mode::None } else { args.progress });
    logging::init(args.log_format, progress.bar());
    if args.follow_parent
        && let Err(error) = stops.follow_parent()
    {
        eprintln!("controller: --follow-parent: {error}");
        return ExitCode::from(status::HOST);
    }
    let target = match ResultTarget::open(args.result.as_deref()) {
        Ok(target) => target,
        Err(error) => {
            eprintln!("controller: {error}");
            return ExitCode::from(status::USAGE);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("controller: no event loop to be had: {error}");
            return ExitCode::from(status::HOST);
        }
    };
    let code = runtime.block_on(whole(args, stops, target, progress, &timings, started));
    // A blocking read (stdin, an export on a hanging disk) must not hold the end up.
    runtime.shutdown_background();
    code
}

async fn whole(
    args: &Args,
    mut stops: Stops,
    target: ResultTarget,
    progress: Progress,
    timings: &Timings,
    started: Instant,
) -> ExitCode {
    let loaded = tokio::select! {
        biased;
        Some(arrival) = stops.arrivals.recv() => {
            let stop = arrival.stop;
            let error = HostError::new(None, stop.name(), format!("{} before the configuration was read", stop.name()),
                "run again; nothing was started");
            let _ = target.write(&Document::Error((&error).into()), true);
            die_by(stop.signal())
        }
        loaded = load(args) => loaded,
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => return refused(&target, status::USAGE, &errors.to_string(), ErrorDocument::from(&errors)),
    };
    for finding in &loaded.findings {
        tracing::warn!("{}; {}", finding.detail, finding.hint);
    }
    if args.dry_run {
        return match plan::plan(&loaded, Path::new("/dev/kfd"), &HostEnv::current()).await {
            Ok(plan) => {
                let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
                let _ = writeln!(std::io::stdout(), "{text}");
                ExitCode::from(status::OK)
            }
            Err(error) => unfit(&target, &error),
        };
    }
    let trial = Arc::new(loaded.trial);
    let identity = match token::identity(&trial) {
        Ok(identity) => identity,
        Err(error) => return unfit(&target, &error),
    };
    let place = target.path().map(|path| path.display().to_string());
    let setup = Setup {
        trial,
        identity,
        findings: loaded.findings,
        timings: *timings,
        roots: Roots::default(),
        stops: Some(stops),
        target,
        progress,
        started,
    };
    match execute(setup).await {
        End::Signal(signal) => die_by(signal),
        End::Status(code, document) => {
            if args.progress != Mode::None && args.progress != Mode::Json {
                say(&document, place.as_deref());
            }
            ExitCode::from(code)
        }
    }
}

async fn load(args: &Args) -> Result<Loaded, ConfigErrors> {
    let overrides = Overrides { runtime: args.runtime.map(Into::into), agent_path: args.agent.clone() };
    let config = args.config.clone();
    match tokio::task::spawn_blocking(move || config::load(&config, &overrides)).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The host cannot run it.
fn unfit(target: &ResultTarget, error: &HostError) -> ExitCode {
    refused(target, status::HOST, &format!("{error}\n  hint: {}", error.hint), ErrorDocument::from(error))
}

/// Says what is wrong and writes it where the result would have been.
fn refused(target: &ResultTarget, code: u8, words: &str, document: ErrorDocument) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{words}");
    if let Err(error) = target.write(&Document::Error(document), true) {
        let _ = writeln!(std::io::stderr(), "controller: the error document could not be written: {error}");
    }
    ExitCode::from(code)
}

/// The summary table, on stderr.
fn say(document: &Document, place: Option<&str>) {
    let mut text = match document {
        Document::Result(result) => crate::result::words::summary(result),
        Document::Error(ErrorDocument { error, .. }) => crate::result::words::error(error),
    };
    if let Some(place) = place {
        let _ = writeln!(text, "result: {place}");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}
