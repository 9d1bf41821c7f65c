//! `controller completions`: shell completion on stdout.

use std::process::ExitCode;

use clap_complete::aot::{Shell, generate};
use proto::exit::controller as status;

/// Arguments of `controller completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// bash, zsh or fish
    #[arg(value_name = "SHELL")]
    shell: String,
}

/// Runs the command.
pub fn main(args: &Args) -> ExitCode {
    let shell = match args.shell.as_str() {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        other => {
            eprintln!("controller completions: no completion for {other:?}; write bash, zsh or fish");
            return ExitCode::from(status::USAGE);
        }
    };
    let mut script = Vec::new();
    generate(shell, &mut crate::cli::command(), "controller", &mut script);
    super::schema::print(&script)
}
