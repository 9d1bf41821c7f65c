//! The agent's own library with other times: `AGENT_FAST` is a JSON object of milliseconds by field name.
//!
//! Without the variable it is the agent. It exists so that the windows of the contract can be tested in tenths
//! of a second; the shipped program takes no times from outside.

use agent::cli::Cli;
use agent::timing::{Roots, Timings};
use clap::Parser as _;
use std::process::ExitCode;
use std::time::Duration;

fn timings() -> Result<Timings, String> {
    let mut timings = Timings::default();
    let Ok(text) = std::env::var("AGENT_FAST") else { return Ok(timings) };
    let given: std::collections::BTreeMap<String, u64> = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    for (name, ms) in given {
        let field = match name.as_str() {
            "second" => &mut timings.second,
            "generate_window" => &mut timings.generate_window,
            "generate_probe_min" => &mut timings.generate_probe_min,
            "read_back_limit" => &mut timings.read_back_limit,
            "read_back_pause" => &mut timings.read_back_pause,
            "query_limit" => &mut timings.query_limit,
            "bench_kill_after" => &mut timings.bench_kill_after,
            "bench_kill_soon" => &mut timings.bench_kill_soon,
            "stray_grace" => &mut timings.stray_grace,
            "probe_limit" => &mut timings.probe_limit,
            "flush_limit" => &mut timings.flush_limit,
            other => return Err(format!("AGENT_FAST: no such time: {other}")),
        };
        *field = Duration::from_millis(ms);
    }
    Ok(timings)
}

fn main() -> ExitCode {
    // The native bench tool is this program again.
    if std::env::args_os().nth(1).is_some_and(|word| word == "load") {
        return agent::cli::main();
    }
    if let Err(error) = agent::run::block_signals() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    match timings() {
        Ok(timings) => {
            let exit = agent::cmd::run::trial(Cli::parse().run.flags, timings, Roots::default());
            ExitCode::from(exit.code())
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
