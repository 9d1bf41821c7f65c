//! Where settings come from: a flag wins over its variable, an empty text counts as unset (contract A).

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};
use proto::env;

use super::UsageError;

/// What each flag says in `--help`. A variable without a line here has no flag: secrets stay out of argv.
const HELP: &[(&str, &str, &str)] = &[
    (env::TS_MODEL, "ID", "Model to serve [default: Qwen/Qwen3-0.6B]"),
    (env::TS_SERVED_MODEL_NAME, "ID", "Id that the bench asks for [default: the model]"),
    (env::TS_TOKENIZER, "ID", "Tokenizer of the bench [default: the model]"),
    (env::TS_PORT, "PORT", "Gateway port, 1024..65535 [default: 8000]"),
    (env::TS_CONTROL_PORT, "PORT", "Control port [default: gateway port + 1]"),
    (env::TS_READY_TIMEOUT, "SEC", "Seconds to wait for /health, 1..86400 [default: 900]"),
    (env::TS_SERVE_ARGS, "JSON", "Extra `tokenspeed serve` arguments, a JSON array of strings"),
    (env::TS_BENCH_ARGS, "JSON", "Extra bench arguments, a JSON array of strings"),
    (env::TS_BENCH_STEPS, "N", "Measured steps [default: 1]"),
    (env::TS_BENCH_WARMUP_STEPS, "N", "Discarded steps [default: 1]"),
    (env::TS_GATEWAY_STARTUP_TIMEOUT, "SEC", "The orchestrator's budget for its gateway [default: ready timeout]"),
    (env::TS_DRAIN_TIMEOUT, "SEC", "Seconds that the gateway may drain, 1..grace-1 [default: from the grace]"),
    (env::TS_DATASET, "NAME", "random or sharegpt [default: random]"),
    (env::TS_DATASET_PATH, "FILE", "ShareGPT JSON file"),
    (env::TS_NUM_PROMPTS, "N", "Requests per step [default: 64]"),
    (env::TS_INPUT_LEN, "TOKENS", "Input tokens per request, random only [default: 1024]"),
    (env::TS_OUTPUT_LEN, "TOKENS", "Output tokens per request, random only [default: 128]"),
    (env::TS_MAX_CONCURRENCY, "N", "Requests in flight [default: unbounded]"),
    (env::TS_REQUEST_RATE, "RATE", "Requests per second [default: inf]"),
    (env::TS_NUM_WARMUPS, "N", "Warm-up requests inside a step [default: 1]"),
    (env::TS_IGNORE_EOS, "0|1", "Pin every output to its full length [default: 1]"),
    (env::TS_SEED, "N", "Seed of the prompts [default: 0]"),
    (env::TS_PERCENTILE_METRICS, "LIST", "Metrics with percentiles [default: ttft,tpot,itl,e2el]"),
    (env::TS_METRIC_PERCENTILES, "LIST", "Percentiles [default: 50,90,99]"),
    (env::TS_BENCH_TIMEOUT, "SEC", "Seconds per bench step [default: 1800]"),
    (env::TS_TEARDOWN_GRACE, "SEC", "Seconds between SIGTERM and SIGKILL for the server, 5..3600 [default: 45]"),
    (env::TS_OUT_DIR, "DIR", "Where exports and logs go [default: /ts-out]"),
    (env::TS_RUN_TOKEN, "TOKEN", "Part of every file name of the trial [default: own process id]"),
    (env::TS_ROLLOUT, "0|1", "Shape the load like an RL rollout [default: 0]"),
    (env::TS_SAVE_DETAILED, "0|1", "Keep per-request arrays in the export [default: 0]"),
    (env::TS_ROLLOUT_SAMPLES, "N", "Completions per prompt, 1..1024, rollout only [default: 1]"),
    (env::TS_TEMPERATURE, "T", "Sampling temperature in (0, 2], required under rollout"),
    (env::TS_TOP_P, "P", "Nucleus bound in (0, 1], rollout only [default: the server's]"),
    (env::TS_MIN_MEAN_OUTPUT_TOKENS, "N", "Floor on mean tokens per completion, rollout only [default: 0]"),
    (env::TS_SAMPLING_BACKEND, "NAME", "triton or triton_full, rollout only [default: triton]"),
    (env::TS_GRPC_LISTEN, "ADDR", "unix:PATH, tcp://IP:PORT or off [default: a socket in the output directory]"),
    (env::TS_LEASE_SEC, "SEC", "Grace after the controller is gone, 0..86400, 0 is off [default: 20]"),
    (env::TS_GENERATE_PROBE, "0|1", "One streamed request must produce a token before the first step [default: 0]"),
    (env::TS_BENCH_TOOL, "NAME", "tokenspeed or native [default: tokenspeed]"),
    (env::TS_METRICS_LISTEN, "ADDR", "Where OpenMetrics text is served [default: off]"),
];

/// `--served-model-name` for `TS_SERVED_MODEL_NAME`.
fn flag(variable: &str) -> String {
    variable.trim_start_matches("TS_").to_ascii_lowercase().replace('_', "-")
}

/// Settings given as flags.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    values: BTreeMap<&'static str, String>,
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        HELP.iter().fold(command, |command, (variable, value, help)| {
            command.arg(
                Arg::new(*variable)
                    .long(flag(variable))
                    .value_name(*value)
                    .help(format!("{help} [env: {variable}]"))
                    // So that `--port -5` meets our rule and our words, not the parser's.
                    .allow_hyphen_values(true),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &&'static str| matches.get_one::<String>(name).map(|v| (*name, v.clone()));
        Ok(Self { values: HELP.iter().filter_map(|(name, ..)| value(name)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Settings of one run, by the names of their variables.
#[derive(Clone, Default)]
pub struct Source {
    values: BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Names only: one of the values is a secret.
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Source {
    /// The environment, overlaid with flags.
    pub fn new(environment: impl IntoIterator<Item = (OsString, OsString)>, flags: Flags) -> Result<Self, UsageError> {
        let mut values = BTreeMap::new();
        for (name, value) in environment {
            let Some(known) = env::ALL.iter().find(|known| name == **known) else { continue };
            let value = value.into_string().map_err(|_| UsageError::new(*known, "is not valid UTF-8"))?;
            values.insert(*known, value);
        }
        values.extend(flags.values);
        Ok(Self { values })
    }

    /// The value, unless it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The value or a default.
    pub fn or(&self, name: &str, default: &str) -> String {
        self.get(name).unwrap_or(default).to_owned()
    }

    /// The names of everything that is set.
    pub fn names(&self) -> Vec<&'static str> {
        self.values.iter().filter(|(_, v)| !v.is_empty()).map(|(n, _)| *n).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    #[test]
    fn every_variable_but_the_secret_has_a_flag() {
        let with_flag: Vec<&str> = HELP.iter().map(|(name, ..)| *name).collect();
        for name in env::ALL {
            assert_eq!(with_flag.contains(name), !env::SECRETS.contains(name), "{name}");
        }
    }

    #[test]
    fn a_flag_wins_and_empty_is_unset() {
        let matches = Flags::augment_args(Command::new("x"))
            .try_get_matches_from(["x", "--port", "-5", "--model=", "--serve-args", "[\"--a\"]"])
            .unwrap();
        let flags = Flags::from_arg_matches(&matches).unwrap();
        let env = [("TS_PORT", "1"), ("TS_MODEL", "m"), ("TS_SEED", ""), ("PATH", "/x")];
        let source = Source::new(env.map(|(k, v)| (k.into(), v.into())), flags).unwrap();
        assert_eq!(source.get(env::TS_PORT), Some("-5"));
        assert_eq!(source.get(env::TS_MODEL), None);
        assert_eq!(source.get(env::TS_SEED), None);
        assert_eq!(source.get(env::TS_SERVE_ARGS), Some("[\"--a\"]"));
        assert_eq!(source.names(), ["TS_PORT", "TS_SERVE_ARGS"]);
    }

    #[test]
    fn not_utf8_is_refused_by_name() {
        use std::os::unix::ffi::OsStringExt;
        let env = [(OsString::from("TS_MODEL"), OsString::from_vec(vec![0xff]))];
        let error = Source::new(env, Flags::default()).unwrap_err();
        assert_eq!(error.to_string(), "usage TS_MODEL is not valid UTF-8");
    }
}
