//! `agent version`.

use std::io::Write;
use std::process::ExitCode;

/// Arguments of `agent version`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Args {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let contract = proto::CONTRACT_VERSION;
    let target = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut stdout = std::io::stdout().lock();
    let written = if args.json {
        let value = serde_json::json!({
            "name": "agent", "version": version, "contract_version": contract,
            "build": { "link": target, "profile": profile },
        });
        writeln!(stdout, "{value}")
    } else {
        writeln!(stdout, "agent {version} (contract {contract}, {target}, {profile})")
    };
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(proto::exit::AgentExit::Internal.code()) }
}
