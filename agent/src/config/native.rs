//! `bench_tool: native`: a step as a command line of the agent's own load client, and what has to hold for it before
//! the server is started. The command line is read here by the client's own parser, so that a step cannot fail on it.

use std::path::{Path, PathBuf};

use proto::args::{self, BadNative};
use proto::env;
use proto::limits::BenchTool;

use super::argv::push;
use super::{Argv, Data, LaunchPlan, StepId, UsageError};
use crate::cmd::load;
use crate::load::tokenizer;

/// Connections that an open loop opens beforehand at most; more are opened as requests need them.
const OPEN_LOOP_CONNECTIONS: u64 = 256;

impl LaunchPlan {
    /// What a step runs: the engine's bench tool, or this program again.
    pub fn step_argv(&self, tokenspeed: &Path, agent: &Path, step: StepId) -> Argv {
        match self.bench_tool {
            BenchTool::Tokenspeed => self.bench_argv(tokenspeed.to_path_buf(), step),
            BenchTool::Native => self.native_argv(agent.to_path_buf(), step),
        }
    }

    /// `agent load ...` in the strict profile (design section 7).
    fn native_argv(&self, agent: PathBuf, step: StepId) -> Argv {
        let load = &self.load;
        let mut args = vec!["load".to_owned()];
        push(&mut args, "--url", self.base_url());
        push(&mut args, "--endpoint", "completions");
        push(&mut args, "--profile", "strict");
        push(&mut args, "--model", &self.served_model);
        push(&mut args, "--tokenizer", &self.tokenizer);
        match &load.data {
            Data::Random { input_len } => {
                push(&mut args, "--random-input-len", input_len.to_string());
                push(&mut args, "--max-tokens", load.output_len.to_string());
            }
            Data::Sharegpt { path } => push(&mut args, "--sharegpt", path.to_string_lossy()),
        }
        push(&mut args, "--num-prompts", load.num_prompts.to_string());
        push(&mut args, "--warmup", load.num_warmups.to_string());
        push(&mut args, "--seed", &load.seed);
        // No limit, and 0, mean in the other tool: everything at once.
        let cap = load.max_concurrency.as_deref().filter(|cap| *cap != "0");
        if load.request_rate == "inf" {
            push(&mut args, "--concurrency", cap.map_or_else(|| load.num_prompts.to_string(), str::to_owned));
        } else {
            let connections = cap.and_then(|cap| cap.parse().ok()).unwrap_or(load.num_prompts);
            push(&mut args, "--arrival", format!("poisson:{}", load.request_rate));
            push(&mut args, "--concurrency", connections.min(OPEN_LOOP_CONNECTIONS).to_string());
            if let Some(cap) = cap {
                push(&mut args, "--max-in-flight", cap);
            }
        }
        // Like the other tool: sampling is the server's, unless the body says otherwise.
        args.push("--no-sampling".to_owned());
        if load.ignore_eos {
            args.push("--ignore-eos".to_owned());
        }
        if let Some(body) = self.extra_body() {
            push(&mut args, "--extra-body", body);
        }
        push(&mut args, "--percentile-metrics", &load.percentile_metrics);
        push(&mut args, "--metric-percentiles", &load.metric_percentiles);
        if load.save_detailed {
            args.push("--save-detailed".to_owned());
        }
        push(&mut args, "--label", format!("native-{}-step{}", step.prefix(), step.number()));
        push(&mut args, "--request-id-prefix", format!("aorta-{}-{}-s{}", self.token, step.prefix(), step.number()));
        push(&mut args, "--export", self.export(step).to_string_lossy());
        if matches!(step, StepId::Warmup(_)) {
            args.push("--no-calibration".to_owned());
        }
        args.extend(self.bench_args.iter().cloned());
        Argv { program: agent, args }
    }
}

/// Refuses a plan that the native client cannot run.
pub(super) fn check(plan: &LaunchPlan) -> Result<(), UsageError> {
    if plan.bench_tool != BenchTool::Native {
        return Ok(());
    }
    if !tokenizer::BUILT {
        return Err(UsageError::new(env::TS_BENCH_TOOL, "=native needs prompts, and this build reads no tokenizer")
            .hint("build the agent with its cargo feature `tokenizer`, or use tokenspeed"));
    }
    args::check_native(&plan.bench_args, plan.rollout.is_some())
        .map_err(|error| UsageError::new(env::TS_BENCH_ARGS, error.to_string()).hint(BadNative::HINT))?;
    // An id may still come into the cache with the server's own download; a path is there or it is not.
    if tokenizer::is_path(&plan.tokenizer) {
        tokenizer::locate(&plan.tokenizer, |name| std::env::var_os(name))
            .map_err(|error| UsageError::new(env::TS_TOKENIZER, format!("is not usable: {error}")))?;
    }
    let argv = plan.native_argv(PathBuf::from("agent"), plan.first_step());
    load::check(&argv.words()[1..]).map_err(|(flag, problem)| {
        let flag = flag.as_deref();
        let name =
            VARIABLES.iter().find(|(known, _)| Some(*known) == flag).map_or(env::TS_BENCH_ARGS, |(_, name)| *name);
        UsageError::new(name, format!("cannot be run with {}=native: {problem}", env::TS_BENCH_TOOL))
    })
}

/// Which variable a flag of the client comes from; any other is an extra.
const VARIABLES: &[(&str, &str)] = &[
    ("--arrival", env::TS_REQUEST_RATE),
    ("--concurrency", env::TS_MAX_CONCURRENCY),
    ("--max-in-flight", env::TS_MAX_CONCURRENCY),
    ("--seed", env::TS_SEED),
    ("--metric-percentiles", env::TS_METRIC_PERCENTILES),
    ("--num-prompts", env::TS_NUM_PROMPTS),
    ("--max-tokens", env::TS_OUTPUT_LEN),
    ("--random-input-len", env::TS_INPUT_LEN),
    ("--warmup", env::TS_NUM_WARMUPS),
];
