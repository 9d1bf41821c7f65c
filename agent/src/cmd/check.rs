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
    // The plan shows what a trial would run; where this program cannot say its own path, its name.
    let agent = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("agent"));
    let bench = |step| plan.step_argv(tokenspeed, &agent, step).words();
    let steps = |total: u32, step: fn(u32) -> StepId| {
        let argv = |n| bench(step(n));
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
        "bench_argv": bench(StepId::Measured(1)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn described(pairs: &[(&str, &str)]) -> Value {
        let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let source = Source::new(pairs, Flags::default()).unwrap();
        describe(&config::parse(&source).unwrap(), &source, std::path::Path::new("/bin/tokenspeed"))
    }

    fn names(plan: &Value) -> Vec<&str> {
        plan["phases"].as_array().unwrap().iter().map(|p| p["phase"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_plan_shows_what_run_would_do() {
        let plan = described(&[("TS_BENCH_STEPS", "3"), ("TS_RUN_TOKEN", "t")]);
        assert_eq!(names(&plan), ["wait_health", "wait_generate", "warmup", "measure", "teardown"]);
        assert_eq!(plan["serve_argv"][0], "/bin/tokenspeed");
        assert_eq!(plan["measured"]["count"], 3);
        assert!(plan["bench_argv"].as_array().unwrap().contains(&json!("/ts-out/bench.t.step1.json")));
        let rollout =
            [("TS_ROLLOUT", "1"), ("TS_TEMPERATURE", "1"), ("TS_IGNORE_EOS", "0"), ("TS_GENERATE_PROBE", "1")];
        let plan = described(&rollout);
        assert_eq!(names(&plan)[2..4], ["read_back", "generate_probe"]);
        assert!(plan["owned_flags"]["bench"].as_array().unwrap().contains(&json!("--extra-body")));
    }

    #[test]
    fn secrets_are_names() {
        let plan = described(&[("TS_GRPC_TOKEN", "canary"), ("TS_GRPC_LISTEN", "tcp://0.0.0.0:9000")]);
        assert!(!plan.to_string().contains("canary"));
        assert!(plan["settings"].as_array().unwrap().contains(&json!("TS_GRPC_TOKEN")));
    }

    #[test]
    fn usage_errors_are_one_marker_line_and_a_remedy() {
        let mut out = Vec::new();
        print_usage(&mut out, &UsageError::new("TS_PORT", "must be between 1 and 2, got '3'").hint("choose one"));
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "TS_BENCH_FAIL: usage TS_PORT must be between 1 and 2, got '3'\n  choose one\n"
        );
    }
}
