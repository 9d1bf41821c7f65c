//! `agent check`: validates exactly as `run` would and prints the plan; starts and creates nothing.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use proto::args::{OWNED_BENCH, OWNED_BENCH_ROLLOUT, OWNED_SERVE, OWNED_SERVE_ROLLOUT};
use proto::exit::AgentExit;
use serde_json::{Value, json};

use crate::config::{self, Flags, LaunchPlan, Source, StepId, UsageError};
use crate::timing::Timings;

/// Arguments of `agent check`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Settings.
    #[command(flatten)]
    pub flags: Flags,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let outcome = Source::new(std::env::vars_os(), args.flags).and_then(|source| {
        let (plan, tokenspeed) = config::validate(&source, std::env::var("PATH").ok().as_deref(), config::creatable)?;
        Ok(describe(&plan, &source, &tokenspeed))
    });
    let mut stdout = std::io::stdout().lock();
    match outcome {
        Ok(plan) => {
            let _ = writeln!(stdout, "{plan:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_usage(&mut stdout, &error);
            ExitCode::from(AgentExit::Usage.code())
        }
    }
}

/// Prints a usage error where the contract wants it.
pub fn print_usage(stdout: &mut impl Write, error: &UsageError) {
    let _ = writeln!(stdout, "TS_BENCH_FAIL: {error}");
}

/// The plan as JSON; secrets by name.
pub fn describe(plan: &LaunchPlan, source: &Source, tokenspeed: &std::path::Path) -> Value {
    let timings = Timings::default();
    let program = || PathBuf::from(tokenspeed);
    let steps = |total: u32, step: fn(u32) -> StepId| {
        let argv = |n| plan.bench_argv(program(), step(n)).words();
        json!({ "count": total, "first_argv": (total > 0).then(|| argv(1)) })
    };
    let (mut owned_serve, mut owned_bench) = (OWNED_SERVE.to_vec(), OWNED_BENCH.to_vec());
    if plan.rollout.is_some() {
        owned_serve.extend(OWNED_SERVE_ROLLOUT);
        owned_bench.extend(OWNED_BENCH_ROLLOUT);
    }
    let probe_min = timings.generate_probe_min.as_secs();
    let mut phases = vec![
        json!({ "phase": "wait_health", "deadline_sec": plan.ready_timeout_sec, "exit": [50, 51] }),
        json!({ "phase": "wait_generate", "deadline_sec": timings.generate_window.as_secs(), "exit": [50, 52] }),
    ];
    if let Some(rollout) = &plan.rollout {
        phases.push(json!({
            "phase": "read_back", "expects": rollout.backend.as_str(), "tries": timings.read_back_tries,
            "try_sec": timings.read_back_limit.as_secs(), "exit": [57, 58, 60],
        }));
    }
    if plan.generate_probe {
        phases.push(json!({ "phase": "generate_probe", "deadline_sec_at_least": probe_min, "exit": [50, 52] }));
    }
    phases.extend([
        json!({ "phase": "warmup", "steps": plan.warmup_steps, "deadline_sec": plan.bench_timeout_sec }),
        json!({ "phase": "measure", "steps": plan.steps, "deadline_sec": plan.bench_timeout_sec }),
        json!({ "phase": "teardown", "grace_sec": plan.teardown_grace_sec }),
    ]);
    json!({
        "contract_version": proto::CONTRACT_VERSION,
        "agent_version": env!("CARGO_PKG_VERSION"),
        "token": plan.token.as_str(),
        "model": plan.model,
        "out_dir": plan.out_dir,
        "ports": { "gateway": plan.gateway_port, "control": plan.control_port },
        "phases": phases,
        "serve_argv": plan.serve_argv(program()).words(),
        "bench_argv": plan.bench_argv(program(), StepId::Measured(1)).words(),
        "warmup": steps(plan.warmup_steps, StepId::Warmup),
        "measured": steps(plan.steps, StepId::Measured),
        "deadlines": {
            "ready_sec": plan.ready_timeout_sec,
            "bench_step_sec": plan.bench_timeout_sec,
            "bench_kill_after_sec": timings.bench_kill_after.as_secs(),
            "bench_abort_sec": timings.bench_kill_soon.as_secs(),
            "teardown_grace_sec": plan.teardown_grace_sec,
            "lease_sec": plan.lease_sec,
        },
        "owned_flags": { "serve": owned_serve, "bench": owned_bench },
        "extra_body": plan.extra_body(),
        "bench_tool": plan.bench_tool.as_str(),
        "audit": {
            "num_prompts": plan.load.num_prompts,
            "dataset": plan.load.data.dataset().as_str(),
            "min_mean_output_tokens": plan.rollout.as_ref().map(|r| r.min_mean_output_tokens),
        },
        "files": {
            "server_log": plan.server_log(),
            "first_export": plan.export(StepId::Measured(1)),
            "markers": plan.out_dir.join(proto::names::markers(&plan.token)),
        },
        "settings": source.names(),
        "secrets": proto::env::SECRETS.iter().filter(|s| std::env::var_os(s).is_some_and(|v| !v.is_empty())).collect::<Vec<_>>(),
    })
}
