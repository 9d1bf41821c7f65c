//! `agent run`: the serving benchmark from the environment.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use proto::exit::AgentExit;

use crate::config::{self, Flags, Source};
use crate::run::{self, Setup};
use crate::timing::{Roots, Timings};

/// Arguments of `agent run`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
}

/// Runs the command. Stop signals must be blocked already.
pub fn main(args: Args) -> ExitCode {
    ExitCode::from(trial(args.flags, Timings::default(), Roots::default()).code())
}

/// One trial from this process's environment, with times and roots of the caller's.
pub fn trial(flags: Flags, timings: Timings, roots: Roots) -> AgentExit {
    let path = std::env::var("PATH").ok();
    let validated = Source::new(std::env::vars_os(), flags)
        .and_then(|source| config::validate(&source, path.as_deref(), config::create_out_dir));
    match validated {
        Ok((plan, tokenspeed)) => run::run(Setup {
            plan: Arc::new(plan),
            tokenspeed,
            agent: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
            environment: run::child_environment(std::env::vars_os()),
            timings,
            roots,
        }),
        Err(error) => {
            super::check::print_usage(&mut std::io::stdout().lock(), &error);
            AgentExit::Usage
        }
    }
}
