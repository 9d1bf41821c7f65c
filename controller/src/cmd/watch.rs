//! `controller watch`: see inside a running trial, replay one that is over, or list what runs here.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use proto::exit::controller as status;
use proto::status::Status;

use crate::agent_link::{Client, LinkEvent};
use crate::run::identity::Life;
use crate::watch::replay::{self, Speed};
use crate::watch::target::{Named, resolve, trials};
use crate::watch::{Source, lines, list, page, screen};

/// Arguments of `controller watch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run token, socket path, http://host:port or journal file; without it: the trials on this host
    pub target: Option<String>,
    /// One JSON object per line instead of a screen
    #[arg(long)]
    pub json: bool,
    /// A status page, and out
    #[arg(long)]
    pub once: bool,
    /// How many times faster than real time a journal is played; inf is at once
    #[arg(long, value_name = "X", default_value = "1")]
    pub speed: Speed,
}

/// How it went wrong, and the exit status for it.
struct Failed(u8, String);

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("controller watch: no runtime: {error}");
            return ExitCode::from(status::INTERNAL);
        }
    };
    let outcome = runtime.block_on(watch(args));
    // A read of the keyboard may still be waiting.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(code, message)) => {
            eprintln!("controller watch: {message}");
            ExitCode::from(code)
        }
    }
}

/// A reader of our output that leaves early is no error; everything else is.
fn written(outcome: io::Result<()>) -> Result<(), Failed> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failed(status::HOST, format!("cannot write: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn watch(args: Args) -> Result<(), Failed> {
    let known = trials();
    let Some(target) = &args.target else {
        let rows = list::rows(known).await;
        let mut out = io::stdout().lock();
        if rows.is_empty() && !args.json {
            eprintln!("no trial is known on this host");
        }
        return written(rows.iter().try_for_each(|row| {
            if args.json { writeln!(out, "{}", row.json()) } else { writeln!(out, "{}", row.line()) }
        }));
    };
    let secret = std::env::var(proto::env::TS_GRPC_TOKEN).ok().filter(|token| !token.is_empty());
    let named = resolve(target, secret, &known).map_err(|error| Failed(status::HOST, error.to_string()))?;
    if args.once {
        return once(named, args.json).await;
    }
    let screen = !args.json && io::stdout().is_terminal() && io::stdin().is_terminal();
    let source = match named {
        Named::Agent(target) => Source::live(target),
        Named::Journal(path) => {
            let told = replay::read(&path).map_err(|error| Failed(status::HOST, error.to_string()))?;
            Source::Replay(replay::play(told, args.speed))
        }
    };
    if screen {
        return written(screen::run(source, Path::new("/sys")).await);
    }
    // A container may take its time to come up: as long as its controller lives, the agent may still appear.
    let alive = || trials().iter().any(|found| found.entry.token == *target && found.life == Life::Alive);
    match lines::run(source, args.json, &mut io::stdout().lock(), alive).await {
        Ok(lines::End::Seen) => Ok(()),
        Ok(lines::End::Gone) => Err(Failed(status::HOST, "the agent is gone and its end was not seen".into())),
        Err(error) => written(Err(error)),
    }
}

/// The status page of a living agent, or of a journal.
async fn once(named: Named, json: bool) -> Result<(), Failed> {
    let found = match named {
        Named::Agent(target) => {
            let asked = async { Client::connect(&target).await?.status().await };
            let (peer, found, _) = asked.await.map_err(|error| Failed(status::HOST, error.to_string()))?;
            if !peer.notice.is_empty() {
                eprintln!("controller watch: {}", peer.notice);
            }
            found
        }
        Named::Journal(path) => {
            let mut found = Status::default();
            for told in replay::read(&path).map_err(|error| Failed(status::HOST, error.to_string()))? {
                if let LinkEvent::Event(event) = told {
                    found.apply(&event);
                }
            }
            found
        }
    };
    let text = if json {
        serde_json::to_string(&found).map_err(|error| Failed(status::INTERNAL, error.to_string()))? + "\n"
    } else {
        page::render(&found)
    };
    written(io::stdout().lock().write_all(text.as_bytes()))
}
