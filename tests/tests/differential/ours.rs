//! Our side: the same questions, asked of the programs' own functions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::config::{Flags, Source, StepId};
use controller::config::source::{Format, parse};
use controller::config::trial::{Data, RuntimeKind, Trial};
use controller::config::{Overrides, validate};
use controller::launch::env::{Environment, Locations, Run};
use controller::launch::identity::Identity;
use controller::launch::ports::Ports;
use controller::result::assemble::assemble;
use controller::result::observed::{ClientEnd, Observed, Record, Removal, RunIdentity};
use proto::export::{Layer, judge, read};
use proto::marker::Markers;
use proto::names::RunToken;
use serde_json::{Map, Value, json};

use crate::exports;

fn token() -> RunToken {
    RunToken::parse("7-1").expect("a token")
}

/// The trial of a configuration, or all that is wrong with it.
pub(crate) fn trial(text: &str) -> Result<Trial, Vec<String>> {
    let document = parse(text, Format::Yaml).map_err(|error| vec![error.to_string()])?;
    match validate(document, &Overrides::default()) {
        Ok(loaded) => Ok(loaded.trial),
        Err(errors) => Err(errors.iter().map(|e| e.message.clone()).collect()),
    }
}

/// What the agent of this trial gets.
pub(crate) fn environment_of(trial: &Trial) -> Environment {
    let run = Run {
        token: &token(),
        ports: Ports { gateway: 8000, control: 8001 },
        identity: &Identity::current(),
        no_proxy: None,
    };
    controller::launch::env::agent(trial, &Locations::in_container(trial), &run)
}

/// What a configuration means, under the names of the other side.
pub(crate) fn resolved(trial: &Trial) -> Value {
    let mut out = Map::new();
    for (name, value) in environment_of(trial) {
        // Told by the keys below; only the sampling variables are sent under the mode.
        if !ROLLOUT_VARIABLES.contains(&name.as_str()) {
            out.insert(format!("env.{name}"), json!(value));
        }
    }
    out.insert("rollout.rollout".into(), json!(trial.load.rollout.is_some()));
    out.insert("rollout.save_detailed".into(), json!(trial.load.save_detailed));
    if let Some(rollout) = &trial.load.rollout {
        let pairs = [
            ("rollout_samples", json!(rollout.samples)),
            ("temperature", json!(rollout.temperature)),
            ("top_p", json!(rollout.top_p)),
            ("min_mean_output_tokens", json!(rollout.min_mean_output_tokens)),
            ("sampling_backend", json!(rollout.sampling_backend.as_str())),
        ];
        out.extend(pairs.map(|(key, value)| (format!("rollout.{key}"), value)));
    }
    let port = |port: Option<u16>| port.map_or_else(|| json!("auto"), |port| json!(port));
    let dataset_path = match &trial.load.data {
        Data::Random { .. } => None,
        Data::Sharegpt { path, .. } => Some(path.display().to_string()),
    };
    let gates: Vec<_> = trial.gates.iter().map(|gate| json!([gate.key, gate.bound])).collect();
    let pairs = [
        ("image", json!(trial.image)),
        ("docker_args", json!(trial.docker_args)),
        ("timeout_sec", json!(trial.timing.timeout_sec)),
        ("work_dir", json!(trial.place.work_dir)),
        ("hf_home", json!(trial.place.hf_home)),
        ("hf_token_env", json!(trial.place.hf_token_env)),
        ("shm_size", json!(trial.place.shm_size)),
        ("network", json!(trial.place.network)),
        ("exclusive_gpus", json!(trial.gpus.exclusive)),
        ("run_as_current_user", json!(trial.place.run_as_current_user)),
        ("keep_work_dir", json!(trial.place.keep_work_dir)),
        ("port", port(trial.ports.gateway)),
        ("control_port", port(trial.ports.control)),
        ("gates", json!(gates)),
        ("dataset_path", json!(dataset_path)),
    ];
    out.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(out)
}

const ROLLOUT_VARIABLES: [&str; 7] = [
    "TS_ROLLOUT",
    "TS_SAVE_DETAILED",
    "TS_ROLLOUT_SAMPLES",
    "TS_TEMPERATURE",
    "TS_TOP_P",
    "TS_MIN_MEAN_OUTPUT_TOKENS",
    "TS_SAMPLING_BACKEND",
];

/// What the agent makes of an environment: both command lines, or its refusal.
pub(crate) fn launch(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Value, String> {
    let mut pairs: BTreeMap<String, String> = pairs.into_iter().collect();
    pairs.entry("TS_RUN_TOKEN".into()).or_insert_with(|| "7-1".into());
    pairs.insert("TS_OUT_DIR".into(), "<dir>/out".into());
    let pairs = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
    let plan = Source::new(pairs, Flags::default()).and_then(|source| agent::config::parse(&source));
    let plan = plan.map_err(|error| error.to_string())?;
    let step = if plan.warmup_steps > 0 { StepId::Warmup(1) } else { StepId::Measured(1) };
    let tokenspeed = PathBuf::from("tokenspeed");
    let serve = plan.serve_argv(tokenspeed.clone()).args;
    let bench = plan.bench_argv(tokenspeed, step).args;
    let rollout = plan.rollout.as_ref().map(|rollout| {
        let body = plan.extra_body().unwrap_or_default();
        json!({
            "rollout": true,
            "save_detailed": plan.load.save_detailed,
            "sampling_backend": rollout.backend.as_str(),
            "extra_body": serde_json::from_str::<Value>(&body).unwrap_or(Value::String(body)),
        })
    });
    let rollout = rollout.unwrap_or_else(|| json!({"rollout": false, "save_detailed": plan.load.save_detailed}));
    Ok(json!({"serve": serve, "bench": bench, "rollout": rollout}))
}

/// What both of our layers make of a finished trial.
pub(crate) fn result(case: &exports::Trial, trial: &Trial) -> Value {
    let expectation = trial.expectation();
    let mut records = Vec::new();
    let mut agent = Vec::new();
    for (step, bytes) in &case.exports {
        match read(bytes.as_slice()) {
            Ok(export) => {
                let verdict = judge(&export, &expectation, Layer::Agent);
                agent.push(verdict.err().map_or("ok", |unsound| unsound.reason()));
                let path = Path::new("/out").join(proto::names::export(&token(), *step));
                records.push(Record { step: *step, path, export });
            }
            Err(_) => agent.push("result_json_unusable"),
        }
    }
    let mut seen = Observed::new(RunIdentity {
        container: Some(proto::names::container(&token())),
        token: token(),
        runtime: RuntimeKind::Docker,
        out_dir: PathBuf::from("/out"),
        gateway_port: Some(8000),
        control_port: Some(8001),
    });
    seen.end = Some(case.exit.map_or(ClientEnd::TimedOut, ClientEnd::Exited));
    seen.agent_exit = case.exit;
    seen.markers = Markers::parse(case.stdout.as_bytes());
    seen.records = records;
    seen.removal = Removal::Proven;
    seen.elapsed = Duration::from_secs(40);
    let document = assemble(trial, &seen);
    let facts = ["reason", "step", "gate", "metric", "observed", "bound", "exit_code"];
    let details = document.failure_details.iter().map(|detail| {
        let whole = serde_json::to_value(detail).unwrap_or_default();
        let facts = facts.iter().filter_map(|key| Some(((*key).to_owned(), whole.get(*key)?.clone())));
        Value::Object(facts.collect())
    });
    let mut metrics = document.metrics.clone();
    for volatile in ["server_log", "result_files"] {
        metrics.remove(volatile);
    }
    json!({
        "agent": agent,
        "details": details.collect::<Vec<_>>(),
        "passed": document.passed,
        "first_failure_iteration": document.first_failure_iteration,
        "total_iterations": document.total_iterations,
        "executed_iterations": document.executed_iterations,
        "configured_iterations": document.configured_iterations,
        "main_work_started": document.main_work_started,
        "step_times_ms": document.step_times_ms,
        "metrics": metrics,
    })
}
