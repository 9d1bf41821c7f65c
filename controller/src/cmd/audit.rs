//! `controller audit`: judges exports on disk again, as the host does, without regard to what anybody said before.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use proto::exit::{AgentExit, controller as status};
use proto::export::{Asked, AuditLine, Expectation, Layer, RolloutDefaults};
use serde_json::Value;

use crate::config;

/// Arguments of `controller audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Exports, or directories whose `bench.*.step*.json` are meant
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    /// The trial's configuration, which says what was asked for
    #[arg(long, value_name = "FILE", conflicts_with = "result")]
    config: Option<PathBuf>,
    /// The trial's result document, which says what was asked for
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    #[command(flatten)]
    asked: Options,
    /// JSON lines on a terminal too
    #[arg(long)]
    json: bool,
}

/// What was asked for, where no document says it.
#[derive(Debug, Default, clap::Args)]
struct Options {
    /// Requests that each step was asked for
    #[arg(long, value_name = "N")]
    num_prompts: Option<String>,
    /// random or sharegpt [default: random]
    #[arg(long)]
    dataset: Option<String>,
    /// Output tokens per request, random only [default: 128]
    #[arg(long, value_name = "N")]
    output_len: Option<String>,
    /// Whether EOS was ignored [default: true, false under --rollout]
    #[arg(long, value_name = "true|false")]
    ignore_eos: Option<String>,
    /// The load of an RL rollout
    #[arg(long)]
    rollout: bool,
    /// Completions per prompt [default: 4]
    #[arg(long, value_name = "N")]
    rollout_samples: Option<String>,
    /// Floor on mean tokens per completion, 0 is off [default: 8]
    #[arg(long, value_name = "N")]
    min_mean_output_tokens: Option<String>,
}

/// Runs the command.
pub fn main(args: Args) -> ExitCode {
    ExitCode::from(match run(args) {
        Ok(code) => code,
        Err(Fault::Usage(message)) => {
            eprintln!("controller audit: {message}");
            status::USAGE
        }
        Err(Fault::Output(error)) => {
            eprintln!("controller audit: cannot write: {error}");
            status::INTERNAL
        }
    })
}

enum Fault {
    Usage(String),
    Output(io::Error),
}

fn run(args: Args) -> Result<u8, Fault> {
    let expectation = expectation(args.config.as_deref(), args.result.as_deref(), args.asked).map_err(Fault::Usage)?;
    let mut files = Vec::new();
    let mut empty = false;
    for path in &args.paths {
        if path.is_dir() {
            let found = exports_in(path).map_err(|error| Fault::Usage(format!("{}: {error}", path.display())))?;
            if found.is_empty() {
                eprintln!("controller audit: {}: no bench.*.step*.json in it", path.display());
                empty = true;
            }
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    let (lines, exits): (Vec<_>, Vec<_>) =
        files.iter().map(|file| AuditLine::of(file, &expectation, Layer::Host)).unzip();
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() && !args.json { table(&mut stdout, &lines) } else { json(&mut stdout, &lines) }
        .map_err(Fault::Output)?;
    let sound = !empty && exits.iter().all(|exit| *exit == AgentExit::Pass);
    Ok(if sound { status::OK } else { status::NOT_PASSED })
}

/// Exactly one of the three says what was asked for.
fn expectation(config: Option<&Path>, result: Option<&Path>, asked: Options) -> Result<Expectation, String> {
    let asked = Asked {
        num_prompts: asked.num_prompts,
        dataset: asked.dataset,
        output_len: asked.output_len,
        ignore_eos: asked.ignore_eos,
        rollout: asked.rollout,
        rollout_samples: asked.rollout_samples,
        min_mean_output_tokens: asked.min_mean_output_tokens,
    };
    let document = config.is_some() || result.is_some();
    if document && !asked.is_silent() {
        return Err(
            "--config and --result say themselves what was asked for; leave out --num-prompts and the rest".into()
        );
    }
    if !document && asked.num_prompts.is_none() {
        return Err(
            "nothing says what the exports were asked for: give --config FILE, --result FILE or --num-prompts N".into(),
        );
    }
    match (config, result) {
        (Some(file), _) => config::load(file, &config::Overrides::default())
            .map(|loaded| loaded.trial.expectation())
            .map_err(|errors| format!("{}: {errors}", file.display())),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()))
            .and_then(|document: Value| from_result(&document))
            .map_err(|error| format!("{}: {error}", file.display())),
        (None, None) => asked.resolve(RolloutDefaults::CONTROLLER).map_err(|error| error.to_string()),
    }
}

/// What a result document says in its `metrics` was asked for.
fn from_result(document: &Value) -> Result<Expectation, String> {
    let metrics =
        document.get("metrics").and_then(Value::as_object).ok_or("is no result document: it has no `metrics`")?;
    let text = |key: &str| match metrics.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let needed = |key: &str| text(key).ok_or_else(|| format!("metrics.{key} is missing"));
    let rollout = needed("rollout")? == "true";
    Asked {
        num_prompts: Some(needed("num_prompts")?),
        dataset: Some(needed("dataset")?),
        // Null for sharegpt, where no length was sent.
        output_len: text("output_len"),
        ignore_eos: Some(needed("ignore_eos")?),
        rollout,
        rollout_samples: if rollout { Some(needed("rollout_samples")?) } else { None },
        min_mean_output_tokens: if rollout { Some(needed("min_mean_output_tokens")?) } else { None },
    }
    .resolve(RolloutDefaults::CONTROLLER)
    .map_err(|error| format!("metrics: {error}"))
}

/// The exports of measured steps in a directory, by token, then by number.
fn exports_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if let Some((token, step)) = entry.file_name().to_str().and_then(measured) {
            found.push((token, step, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, _, path)| path).collect())
}

/// Token and step of `bench.<token>.step<n>.json`.
fn measured(name: &str) -> Option<(String, u64)> {
    let (token, step) = name.strip_prefix("bench.")?.strip_suffix(".json")?.rsplit_once(".step")?;
    let plain = !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
    if plain && !token.is_empty() { Some((token.to_owned(), step.parse().ok()?)) } else { None }
}

fn json(out: &mut impl Write, lines: &[AuditLine]) -> io::Result<()> {
    for line in lines {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
    }
    Ok(())
}

fn table(out: &mut impl Write, lines: &[AuditLine]) -> io::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["file", "verdict", "detail"]);
    for line in lines {
        table.add_row([&line.file, line.reason.unwrap_or(line.verdict), &line.detail]);
    }
    writeln!(out, "{table}")?;
    let mut hints: Vec<&str> = lines.iter().filter_map(|line| line.hint.as_deref()).collect();
    hints.dedup();
    for hint in hints {
        writeln!(out, "hint: {hint}")?;
    }
    let bad = lines.iter().filter(|line| line.reason.is_some()).count();
    writeln!(out, "{} exports, {bad} not sound", lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::export::Rollout;
    use proto::limits::Dataset;
    use serde_json::json;

    #[test]
    fn steps_are_numbers() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "bench.7-1.step10.json",
            "bench.7-1.step9.json",
            "bench.6-1.step11.json",
            "bench.a.step.b.step2.json",
            "bench-warmup.7-1.step1.json",
            "bench.7-1.step1.json.tmp",
            "bench.7-1.stepx.json",
            "bench.7-1.json",
            "bench..step1.json",
        ] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = exports_in(directory.path()).unwrap();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(
            names,
            ["bench.6-1.step11.json", "bench.7-1.step9.json", "bench.7-1.step10.json", "bench.a.step.b.step2.json"]
        );
    }

    #[test]
    fn a_result_says_what_was_asked_for() {
        let mut document = json!({ "metrics": {
            "num_prompts": 32, "dataset": "random", "output_len": 200, "ignore_eos": false, "rollout": true,
            "rollout_samples": 8, "min_mean_output_tokens": 0,
        }});
        let rollout = Expectation {
            num_prompts: 32,
            dataset: Dataset::Random,
            output_len: 200,
            ignore_eos: false,
            rollout: Some(Rollout { samples: 8, min_mean_output_tokens: 0 }),
        };
        assert_eq!(from_result(&document), Ok(rollout));
        document["metrics"]["min_mean_output_tokens"] = Value::Null;
        assert_eq!(from_result(&document), Err("metrics.min_mean_output_tokens is missing".into()));
        let sharegpt = json!({ "metrics": {
            "num_prompts": 4, "dataset": "sharegpt", "output_len": null, "ignore_eos": true, "rollout": false, "rollout_samples": null,
        }});
        let seen = from_result(&sharegpt).unwrap();
        assert_eq!((seen.dataset, seen.ignore_eos, seen.rollout), (Dataset::Sharegpt, true, None));
        assert!(from_result(&json!({ "error": {} })).is_err() && from_result(&json!([])).is_err());
    }
}
