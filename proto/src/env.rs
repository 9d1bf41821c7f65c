//! Names of the in-container environment (contract section A; design section 2) and who owns them.

/// Declares the variables once: a constant each, and the set that mitigations and `docker_args` may not set.
macro_rules! variables {
    ($(protected { $($(#[$pd:meta])* $p:ident),* $(,)? })? $(free { $($(#[$fd:meta])* $f:ident),* $(,)? })?) => {
        $($($(#[$pd])* pub const $p: &str = stringify!($p);)*)?
        $($($(#[$fd])* pub const $f: &str = stringify!($f);)*)?
        /// What the controller sets under some configuration; absence is a setting too (contract F.7).
        pub const PROTOCOL: &[&str] = &[$($($p,)*)?];
        /// Every `TS_*` variable that the agent reads.
        pub const ALL: &[&str] = &[$($($p,)*)? $($($f,)*)?];
    };
}

variables! {
    protected {
        /// Positional argument of `tokenspeed serve`.
        TS_MODEL,
        /// Id that the bench asks for.
        TS_SERVED_MODEL_NAME,
        /// Tokenizer of the bench.
        TS_TOKENIZER,
        /// Gateway port.
        TS_PORT,
        /// Control port.
        TS_CONTROL_PORT,
        /// Seconds to wait for `/health`.
        TS_READY_TIMEOUT,
        /// JSON array of extra serve arguments.
        TS_SERVE_ARGS,
        /// JSON array of extra bench arguments.
        TS_BENCH_ARGS,
        /// Measured steps.
        TS_BENCH_STEPS,
        /// Discarded steps.
        TS_BENCH_WARMUP_STEPS,
        /// Orchestrator's budget for its gateway, seconds.
        TS_GATEWAY_STARTUP_TIMEOUT,
        /// `random` or `sharegpt`.
        TS_DATASET,
        /// ShareGPT file.
        TS_DATASET_PATH,
        /// Requests per step.
        TS_NUM_PROMPTS,
        /// Input tokens per request, `random` only.
        TS_INPUT_LEN,
        /// Output tokens per request, `random` only.
        TS_OUTPUT_LEN,
        /// Requests in flight; unset is unbounded.
        TS_MAX_CONCURRENCY,
        /// Requests per second, or `inf`.
        TS_REQUEST_RATE,
        /// Warm-up requests inside a step.
        TS_NUM_WARMUPS,
        /// Exactly `1` is on.
        TS_IGNORE_EOS,
        /// Seed of the prompts.
        TS_SEED,
        /// Metrics that get percentiles.
        TS_PERCENTILE_METRICS,
        /// Which percentiles.
        TS_METRIC_PERCENTILES,
        /// Seconds per bench step.
        TS_BENCH_TIMEOUT,
        /// Seconds between SIGTERM and SIGKILL for the server.
        TS_TEARDOWN_GRACE,
        /// Where exports and logs go.
        TS_OUT_DIR,
        /// Part of every file name of the trial.
        TS_RUN_TOKEN,
        /// `1`: shape the load like an RL rollout.
        TS_ROLLOUT,
        /// `1`: keep per-request arrays in the export.
        TS_SAVE_DETAILED,
        /// Completions per prompt.
        TS_ROLLOUT_SAMPLES,
        /// Sampling temperature.
        TS_TEMPERATURE,
        /// Nucleus bound.
        TS_TOP_P,
        /// Floor on mean tokens per completion.
        TS_MIN_MEAN_OUTPUT_TOKENS,
        /// The server's sampling backend.
        TS_SAMPLING_BACKEND,
        /// Where the status stream listens.
        TS_GRPC_LISTEN,
        /// Token of a status stream over TCP; a secret.
        TS_GRPC_TOKEN,
        /// Grace after the lease is lost, seconds; 0 is off.
        TS_LEASE_SEC,
        /// `1`: one streamed request must produce a token before the first step.
        TS_GENERATE_PROBE,
        /// `tokenspeed` or `native`.
        TS_BENCH_TOOL,
        /// Where OpenMetrics text is served.
        TS_METRICS_LISTEN,
    }
    free {
        /// Seconds that the gateway may drain; the only `TS_*` a mitigation may set.
        TS_DRAIN_TIMEOUT,
    }
}

/// The variable that carries a Hugging Face token into the container, by name only.
pub const HF_TOKEN: &str = "HF_TOKEN";

/// Variables of ours that carry secrets: never in argv, logs, results or events.
pub const SECRETS: &[&str] = &[HF_TOKEN, TS_GRPC_TOKEN];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_f7_is_covered() {
        let listed = "TS_BENCH_STEPS, TS_BENCH_WARMUP_STEPS, TS_NUM_PROMPTS, TS_INPUT_LEN, TS_OUTPUT_LEN, TS_NUM_WARMUPS,
            TS_IGNORE_EOS, TS_MAX_CONCURRENCY, TS_SEED, TS_DATASET, TS_DATASET_PATH, TS_MODEL, TS_SERVED_MODEL_NAME, TS_TOKENIZER, TS_OUT_DIR,
            TS_RUN_TOKEN, TS_SERVE_ARGS, TS_BENCH_ARGS, TS_PORT, TS_CONTROL_PORT, TS_PERCENTILE_METRICS,
            TS_METRIC_PERCENTILES, TS_REQUEST_RATE, TS_READY_TIMEOUT, TS_BENCH_TIMEOUT, TS_TEARDOWN_GRACE, TS_GATEWAY_STARTUP_TIMEOUT,
            TS_ROLLOUT, TS_ROLLOUT_SAMPLES, TS_TEMPERATURE, TS_TOP_P, TS_MIN_MEAN_OUTPUT_TOKENS, TS_SAVE_DETAILED, TS_SAMPLING_BACKEND";
        for name in listed.split(',').map(str::trim) {
            assert!(PROTOCOL.contains(&name), "{name}");
        }
        assert!(!PROTOCOL.contains(&TS_DRAIN_TIMEOUT));
    }
}
