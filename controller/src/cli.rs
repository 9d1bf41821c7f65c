//! Command line of the controller: one table of subcommands, usage errors mapped as design section 2 says.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use proto::exit::{controller as status, guarded};

use crate::cmd;

/// Runs TokenSpeed serving trials and tells how fast the server really is.
#[derive(Debug, Parser)]
#[command(name = "controller", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One trial: from a config to a result document
    Run(cmd::run::Args),
    /// Every cell of an AORTA recipe
    Sweep(cmd::sweep::Args),
    /// Live view of a trial, or the list of trials on this host
    Watch(cmd::watch::Args),
    /// Audits exports on disk again
    Audit(Box<cmd::audit::Args>),
    /// A result document in words
    Explain(cmd::explain::Args),
    /// Removes what proven-dead trials left
    Reap(cmd::reap::Args),
    /// Makes the prompt corpus of the mixed-load harness
    Corpus(cmd::corpus::Args),
    /// Arms x rungs x rounds of the mixed-load harness
    Campaign(cmd::campaign::Args),
    /// Tables from the records of the mixed-load harness
    Report(cmd::report::Args),
    /// Blesses bounds from a window of runs, and checks a run against them
    Baseline(cmd::baseline::Args),
    /// Shell completion
    Completions(cmd::completions::Args),
    /// JSON Schemas of the documents read and written
    Schema(cmd::schema::Args),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    guarded(run)
}

fn run() -> ExitCode {
    crate::run::descriptors::keep();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.command {
        Command::Run(args) => cmd::run::main(&args),
        Command::Sweep(args) => cmd::sweep::main(args),
        Command::Watch(args) => cmd::watch::main(args),
        Command::Audit(args) => cmd::audit::main(*args),
        Command::Explain(args) => cmd::explain::main(&args),
        Command::Reap(args) => cmd::reap::main(&args),
        Command::Corpus(args) => cmd::corpus::main(args),
        Command::Campaign(args) => cmd::campaign::main(args),
        Command::Report(args) => cmd::report::main(args),
        Command::Baseline(args) => cmd::baseline::main(args),
        Command::Completions(args) => cmd::completions::main(&args),
        Command::Schema(args) => cmd::schema::main(&args),
    }
}

/// Prints a parser's error and maps its status: 0 for help and version, 2 where the harness says so, else 64.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ExitCode::SUCCESS;
    }
    let harness = std::env::args_os().nth(1).is_some_and(|sub| sub == "corpus" || sub == "report");
    if harness && error.kind() == ErrorKind::UnknownArgument {
        // The words of the published programs, which scripts around them look for.
        eprintln!(
            "\nunrecognized arguments: {}",
            error.get(ContextKind::InvalidArg).map_or_else(String::new, ToString::to_string)
        );
    }
    ExitCode::from(if harness { 2 } else { status::USAGE })
}

/// The whole command line, for shell completion.
pub fn command() -> clap::Command {
    Cli::command()
}
