//! `agent audit`: judges exports, a JSON line each. Several bad files: the last bad one decides the status.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use proto::env;
use proto::exit::AgentExit;
use proto::export::{Asked, AuditLine, Expectation, Layer, RolloutDefaults};

/// Arguments of `agent audit`. An option that is not given is read from its variable.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Exports of the bench
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Requests that each step was asked for [env: TS_NUM_PROMPTS]
    #[arg(long, value_name = "N")]
    num_prompts: Option<String>,
    /// random or sharegpt [env: TS_DATASET] [default: random]
    #[arg(long)]
    dataset: Option<String>,
    /// Output tokens per request, random only [env: TS_OUTPUT_LEN] [default: 128]
    #[arg(long, value_name = "N")]
    output_len: Option<String>,
    /// Whether EOS was ignored [env: TS_IGNORE_EOS] [default: true, false under --rollout]
    #[arg(long, value_name = "true|false")]
    ignore_eos: Option<String>,
    /// The load of an RL rollout [env: TS_ROLLOUT]
    #[arg(long)]
    rollout: bool,
    /// Completions per prompt [env: TS_ROLLOUT_SAMPLES] [default: 1]
    #[arg(long, value_name = "N")]
    rollout_samples: Option<String>,
    /// Floor on mean tokens per completion, 0 is off [env: TS_MIN_MEAN_OUTPUT_TOKENS] [default: 0]
    #[arg(long, value_name = "N")]
    min_mean_output_tokens: Option<String>,
    /// Who judges: host demands the core metrics as well
    #[arg(long, value_enum, default_value_t)]
    layer: Who,
}

/// The layer, as written.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Who {
    #[default]
    Agent,
    Host,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    let layer = match args.layer {
        Who::Agent => Layer::Agent,
        Who::Host => Layer::Host,
    };
    let files = args.files.clone();
    let expectation = match expectation(args, |name| std::env::var(name).ok()) {
        Ok(expectation) => expectation,
        Err(error) => {
            eprintln!("agent audit: {error}");
            return ExitCode::from(AgentExit::Usage.code());
        }
    };
    let mut status = AgentExit::Pass;
    let mut stdout = std::io::stdout().lock();
    for file in files {
        let (line, exit) = AuditLine::of(&file, &expectation, layer);
        if exit != AgentExit::Pass {
            status = exit;
        }
        let written = serde_json::to_string(&line).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|text| writeln!(stdout, "{text}")) {
            eprintln!("agent audit: cannot write: {error}");
            return ExitCode::from(AgentExit::Internal.code());
        }
    }
    ExitCode::from(status.code())
}

/// The expectation from flags, and from variables where there is no flag.
fn expectation(args: Args, variable: impl Fn(&str) -> Option<String>) -> Result<Expectation, String> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let rollout = args.rollout
        || match set(env::TS_ROLLOUT).as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(format!("{} must be 0 or 1, got '{other}'", env::TS_ROLLOUT)),
        };
    // The variable's own reading: exactly `1` is on (contract A.2).
    let ignored = set(env::TS_IGNORE_EOS).map(|value| (value == "1").to_string());
    let asked = Asked {
        num_prompts: args.num_prompts.or_else(|| set(env::TS_NUM_PROMPTS)),
        dataset: args.dataset.or_else(|| set(env::TS_DATASET)),
        output_len: args.output_len.or_else(|| set(env::TS_OUTPUT_LEN)),
        ignore_eos: args.ignore_eos.or(ignored),
        rollout,
        rollout_samples: args.rollout_samples.or_else(|| set(env::TS_ROLLOUT_SAMPLES)),
        min_mean_output_tokens: args.min_mean_output_tokens.or_else(|| set(env::TS_MIN_MEAN_OUTPUT_TOKENS)),
    };
    asked.resolve(RolloutDefaults::AGENT).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::limits::Dataset;

    fn from(variables: &[(&str, &str)], args: Args) -> Result<Expectation, String> {
        expectation(args, |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_variable_alone_is_enough_and_a_flag_wins() {
        let variables = [
            ("TS_NUM_PROMPTS", "7"),
            ("TS_DATASET", "sharegpt"),
            ("TS_OUTPUT_LEN", ""),
            ("TS_ROLLOUT", "1"),
            ("TS_IGNORE_EOS", "0"),
            ("TS_ROLLOUT_SAMPLES", "3"),
            ("TS_MIN_MEAN_OUTPUT_TOKENS", "2"),
        ];
        let plain = from(&variables, Args::default()).unwrap();
        assert_eq!(
            (plain.num_prompts, plain.dataset, plain.output_len, plain.ignore_eos),
            (7, Dataset::Sharegpt, 128, false)
        );
        assert_eq!(plain.rollout.map(|r| (r.samples, r.min_mean_output_tokens)), Some((3, 2)));
        let flags = Args { num_prompts: Some("9".into()), rollout_samples: Some("5".into()), ..Args::default() };
        let flagged = from(&variables, flags).unwrap();
        assert_eq!((flagged.num_prompts, flagged.rollout.map(|r| r.samples)), (9, Some(5)));
        let other_word = from(&[("TS_IGNORE_EOS", "yes"), ("TS_NUM_PROMPTS", "1")], Args::default()).unwrap();
        assert!(!other_word.ignore_eos, "only 1 is on");
        assert!(from(&[("TS_ROLLOUT", "yes"), ("TS_NUM_PROMPTS", "1")], Args::default()).is_err());
        assert!(from(&[], Args::default()).is_err());
    }
}
