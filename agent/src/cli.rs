//! Command line of the agent. Usage errors are 64, but 2 for `load` (design section 2).

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use proto::exit::{AgentExit, guarded};

use crate::{cmd, run};

/// Serves, benches, audits and tears down one TokenSpeed trial.
#[derive(Debug, Parser)]
#[command(name = "agent", version, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; without a subcommand: run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of `run`, which is also what happens without a subcommand.
    #[command(flatten)]
    pub run: cmd::run::Args,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The serving benchmark from the environment
    Run(cmd::run::Args),
    /// Validates the environment exactly as `run` would and prints the plan as JSON
    Check(cmd::check::Args),
    /// Judges exports, a JSON line each
    Audit(cmd::audit::Args),
    /// The native load client
    Load(Box<cmd::load::Args>),
    /// Version, contract version, build
    Version(cmd::version::Args),
}

/// Parses the command line and runs the command.
///
/// Stop signals are blocked first thing: as PID 1 there is no default action, so one that came before the
/// supervisor reads would be lost (failure scenario FS-26).
pub fn main() -> ExitCode {
    guarded(command)
}

fn command() -> ExitCode {
    if let Err(error) = run::block_signals() {
        eprintln!("agent: signals cannot be blocked: {error}");
        return ExitCode::from(AgentExit::Internal.code());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if !matches!(cli.command, None | Some(Command::Run(_))) {
        // Everything else dies of signals as usual.
        let _ = run::restore_signals();
    }
    match cli.command {
        None => cmd::run::main(cli.run),
        Some(Command::Run(args)) => cmd::run::main(args),
        Some(Command::Check(args)) => cmd::check::main(args),
        Some(Command::Audit(args)) => cmd::audit::main(args),
        Some(Command::Load(args)) => cmd::load::main(*args),
        Some(Command::Version(args)) => cmd::version::main(args),
    }
}

fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ExitCode::SUCCESS;
    }
    let load = std::env::args_os().nth(1).is_some_and(|sub| sub == "load");
    ExitCode::from(if load { 2 } else { AgentExit::Usage.code() })
}
