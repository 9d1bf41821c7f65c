//! Command lines (contract section D). Extras come last, which is why flags of ours are refused in them.

use std::path::PathBuf;

use proto::args::{generated, supplies};

use super::{Data, Drain, LaunchPlan, StepId};

/// The orchestrator's own budget for the engine where nobody names one, seconds (TokenSpeed 0.1.0).
const ENGINE_STARTUP_DEFAULT_SEC: u64 = 1800;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argv {
    /// Found beforehand; never looked up again.
    pub program: PathBuf,
    /// Without the program.
    pub args: Vec<String>,
}

impl Argv {
    /// Program and arguments as one list.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(self.program.to_string_lossy().into_owned()).chain(self.args.iter().cloned()).collect()
    }
}

pub(super) fn push(args: &mut Vec<String>, flag: &str, value: impl Into<String>) {
    args.push(flag.to_owned());
    args.push(value.into());
}

impl LaunchPlan {
    /// `http://127.0.0.1:<gateway>`: a literal, so that nothing is resolved.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway_port)
    }

    /// Seconds for `--engine-startup-timeout`, where the engine's own limit would cut the readiness deadline short.
    pub fn engine_startup_timeout(&self) -> Option<u64> {
        let raised = self.ready_timeout_sec > ENGINE_STARTUP_DEFAULT_SEC
            && !supplies(&self.serve_args, generated::ENGINE_STARTUP_TIMEOUT);
        raised.then_some(self.ready_timeout_sec)
    }

    /// `tokenspeed serve ...` (contract D.1).
    pub fn serve_argv(&self, tokenspeed: PathBuf) -> Argv {
        let mut args = vec!["serve".to_owned(), self.model.clone()];
        push(&mut args, "--host", "127.0.0.1");
        push(&mut args, "--port", self.gateway_port.to_string());
        push(&mut args, "--control-port", self.control_port.to_string());
        if self.served_model != self.model {
            push(&mut args, "--served-model-name", &self.served_model);
        }
        if !supplies(&self.serve_args, generated::GATEWAY_STARTUP_TIMEOUT) {
            push(&mut args, generated::GATEWAY_STARTUP_TIMEOUT, &self.gateway_startup_timeout);
        }
        if let Some(sec) = self.engine_startup_timeout() {
            push(&mut args, generated::ENGINE_STARTUP_TIMEOUT, sec.to_string());
        }
        match self.drain {
            Drain::InExtras(_) => {}
            Drain::Generated(sec) => push(&mut args, generated::DRAIN_TIMEOUT, sec.to_string()),
        }
        if let Some(rollout) = &self.rollout {
            push(&mut args, "--sampling-backend", rollout.backend.as_str());
        }
        args.extend(self.serve_args.iter().cloned());
        Argv { program: tokenspeed, args }
    }

    /// `tokenspeed bench serve ...` (contract D.2).
    pub fn bench_argv(&self, tokenspeed: PathBuf, step: StepId) -> Argv {
        let load = &self.load;
        let mut args = vec!["bench".to_owned(), "serve".to_owned()];
        push(&mut args, "--backend", "openai");
        push(&mut args, "--base-url", self.base_url());
        push(&mut args, "--endpoint", "/v1/completions");
        push(&mut args, "--model", &self.served_model);
        push(&mut args, "--tokenizer", &self.tokenizer);
        push(&mut args, "--dataset-name", load.data.dataset().as_str());
        push(&mut args, "--num-prompts", load.num_prompts.to_string());
        push(&mut args, "--num-warmups", load.num_warmups.to_string());
        push(&mut args, "--request-rate", &load.request_rate);
        push(&mut args, "--seed", &load.seed);
        push(&mut args, "--percentile-metrics", &load.percentile_metrics);
        push(&mut args, "--metric-percentiles", &load.metric_percentiles);
        args.push("--disable-tqdm".to_owned());
        if load.save_detailed {
            args.push("--save-detailed".to_owned());
        }
        match &load.data {
            Data::Random { input_len } => {
                push(&mut args, "--random-input-len", input_len.to_string());
                push(&mut args, "--random-output-len", load.output_len.to_string());
            }
            Data::Sharegpt { path } => push(&mut args, "--dataset-path", path.to_string_lossy()),
        }
        if let Some(cap) = &load.max_concurrency {
            push(&mut args, "--max-concurrency", cap);
        }
        if load.ignore_eos {
            args.push("--ignore-eos".to_owned());
        }
        if let Some(body) = self.extra_body() {
            push(&mut args, "--extra-body", body);
        }
        push(&mut args, "--label", format!("{}-step{}", step.prefix(), step.number()));
        push(&mut args, "--request-id-prefix", format!("aorta-{}-{}-s{}", self.token, step.prefix(), step.number()));
        push(&mut args, "--output-file", self.export(step).to_string_lossy());
        args.extend(self.bench_args.iter().cloned());
        Argv { program: tokenspeed, args }
    }

    /// The request body of rollout mode: `ignore_eos` is what turns EOS back on for `random`.
    pub fn extra_body(&self) -> Option<String> {
        let rollout = self.rollout.as_ref()?;
        let top_p = rollout.top_p.map(|p| format!(", \"top_p\": {p}")).unwrap_or_default();
        Some(format!(
            "{{\"ignore_eos\": false, \"n\": {}, \"temperature\": {}{top_p}}}",
            rollout.samples, rollout.temperature
        ))
    }
}
