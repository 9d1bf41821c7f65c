//! From a document to a [`Trial`]: contract section E in its order, every error collected, the first one reported first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proto::finding::{Finding, FindingId};
use proto::limits::{BenchTool, Dataset};

use super::keys::{self, KEYS};
use super::reader::{Reader, finite};
use super::trial::{
    Data, Gate, GateSide, Gpus, Load, ModelNames, Own, Place, PortChoice, Pull, RuntimeKind, Timing, Trial,
};
use super::value::{Document, Map, Node, Value, python_float};
use super::{doubts, rollout};
use crate::error::{ConfigError, ConfigErrors};
use crate::launch::{docker_args, guard};

/// What the command line sets over the document.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--runtime`
    pub runtime: Option<RuntimeKind>,
    /// `--agent`
    pub agent_path: Option<PathBuf>,
}

/// A trial, and what is odd about its configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// It.
    pub trial: Trial,
    /// Unknown keys, doubtful settings, keys that the runtime leaves out.
    pub findings: Vec<Finding>,
}

/// Reads and validates the configuration of one trial from a file, or from stdin for `-`.
pub fn load(from: &Path, overrides: &Overrides) -> Result<Loaded, ConfigErrors> {
    validate(super::source::read(from)?, overrides)
}

/// Validates a document.
pub fn validate(document: Document, overrides: &Overrides) -> Result<Loaded, ConfigErrors> {
    let mut findings: Vec<Finding> = document.duplicates.iter().map(doubts::duplicate).collect();
    let map = unwrapped(document.root, &mut findings)?;
    findings.extend(unknown_keys(&map)?);
    let mut reader = Reader::new(&map);
    let trial = trial(&mut reader, overrides, &mut findings);
    match ConfigErrors::from_list(reader.errors) {
        Some(errors) => Err(errors),
        None => Ok(Loaded { trial, findings }),
    }
}

/// The mapping; a `config` key that holds a mapping is unwrapped in place, so that a trial record of AORTA runs as it is.
fn unwrapped(root: Value, findings: &mut Vec<Finding>) -> Result<Map, ConfigError> {
    let at = root.at;
    let kind = root.kind();
    let Node::Map(map) = root.node else {
        let rule = format!("must be a mapping of keys, not {kind}");
        return Err(ConfigError::about("the configuration", rule, "write `key: value` lines or a JSON object").at(at));
    };
    let mut flat = Map::default();
    for (key, value) in map {
        match (key.as_str(), value.node) {
            (Some("config"), Node::Map(inner)) => {
                for (key, value) in inner {
                    put(&mut flat, key, value, findings);
                }
            }
            (_, node) => put(&mut flat, key, Value { node, at: value.at, raw: value.raw }, findings),
        }
    }
    Ok(flat)
}

fn put(map: &mut Map, key: Value, value: Value, findings: &mut Vec<Finding>) {
    let (name, at) = (key.shown(), key.at);
    if map.insert(key, value) {
        findings.push(doubts::duplicate(&super::value::Duplicate { key: name, at }));
    }
}

/// Keys that nobody knows are findings only: another tool may read them (contract E.1).
fn unknown_keys(map: &Map) -> Result<Vec<Finding>, ConfigError> {
    let mut findings = Vec::new();
    for (key, _) in map.iter() {
        let Some(name) = key.as_str() else {
            let hint = "quote the key, or remove it";
            return Err(ConfigError::of("the configuration", key, "has a key that is not a string", hint).at(key.at));
        };
        if !name.starts_with("_aorta_") && keys::find(name).is_none() {
            findings.push(doubts::unknown_key(name, key.at, keys::nearest(name, KEYS.iter().map(|k| k.name))));
        }
    }
    Ok(findings)
}

fn trial(r: &mut Reader<'_>, overrides: &Overrides, findings: &mut Vec<Finding>) -> Trial {
    let image = image(r);
    let model = models(r);
    let load = load_part(r);
    let timing = timing(r);
    let serve_args = r.words("serve_args");
    let bench_args = r.words("bench_args");
    let docker_args = r.words("docker_args");
    let place = place(r);
    let hip_visible_devices =
        r.raw("hip_visible_devices").filter(|v| !v.is_null()).and_then(|v| r.scalar_text("hip_visible_devices", v));
    let exclusive = r.plain_flag("exclusive_gpus");
    let ports = ports(r);
    let gates = gates(r);
    let own = own(r, overrides);
    let required = r.flag("require_gpu", own.runtime != RuntimeKind::Process);
    let trial_env = trial_env(r);
    let mut trial = Trial {
        image,
        model,
        load,
        timing,
        serve_args,
        bench_args,
        docker_args,
        place,
        gpus: Gpus { hip_visible_devices, exclusive, required },
        ports,
        gates,
        trial_env,
        own,
    };
    settle_timeout(r, &mut trial);
    extra_args(r, &trial);
    guarded(r, &trial);
    findings.extend(doubts::about(&trial, r));
    if let (true, Some(finding)) =
        (trial.own.strict_load, findings.iter().find(|f| f.id == FindingId::ToolConcurrencyCap))
    {
        let (detail, hint) = (finding.detail.clone(), finding.hint.clone());
        r.refuse("max_concurrency", format!("is refused under strict_load: {detail}"), hint);
    }
    trial
}

/// Precedence of contract E.2: the cell's environment, the key, the default.
fn image(r: &mut Reader<'_>) -> String {
    let key = r.text("image");
    let environment = r.raw("_aorta_environment").and_then(Value::as_map).and_then(|map| map.get("docker"));
    match environment.filter(|value| !value.is_null()).map(|value| r.scalar_text("_aorta_environment.docker", value)) {
        Some(Some(image)) if !image.is_empty() => image,
        _ => key,
    }
}

fn models(r: &mut Reader<'_>) -> ModelNames {
    let model = r.text("model");
    let served = r.opt_text("served_model_name").unwrap_or_else(|| model.clone());
    let tokenizer = r.opt_text("tokenizer").unwrap_or_else(|| model.clone());
    ModelNames { model, served, tokenizer }
}

fn load_part(r: &mut Reader<'_>) -> Load {
    let unknown = |text: &str| format!("must be random or sharegpt, got {text:?}");
    let dataset = r.choice("dataset", |text| Dataset::parse(text).ok_or_else(|| unknown(text)));
    let path = dataset_path(r, dataset);
    let num_prompts = r.int("num_prompts");
    let (input_len, output_len) = (r.int("input_len"), r.int("output_len"));
    let data = match (dataset, path) {
        (Some(Dataset::Sharegpt), Some(path)) => Data::Sharegpt { path, output_len },
        _ => Data::Random { input_len, output_len },
    };
    let num_warmups = r.int("num_warmups");
    let warmup_steps = steps(r, "warmup_steps");
    let seed = r.int("seed");
    let steps = if r.raw("steps").is_some_and(Value::is_null) { 1 } else { steps(r, "steps") };
    let max_concurrency = r.opt_int("max_concurrency");
    let request_rate = request_rate(r);
    let is_rollout = r.plain_flag("rollout");
    let ignore_eos = r.flag("ignore_eos", !is_rollout);
    let save_detailed = r.flag("save_detailed", is_rollout);
    let rollout = rollout::read(r, &rollout::Context { is_rollout, ignore_eos, save_detailed, dataset, output_len });
    if !ignore_eos && !is_rollout && dataset == Some(Dataset::Random) && r.sound(&["ignore_eos", "rollout"]) {
        let rule = "cannot take effect with dataset random: the bench tool turns it on again for every request";
        let hint =
            "use dataset: sharegpt, or bench_args: [\"--extra-body\", '{\"ignore_eos\": false}'], or rollout: true";
        r.refuse("ignore_eos", format!("{rule} (use dataset: sharegpt, or --extra-body in bench_args)"), hint);
    }
    let percentile_metrics = r.text("percentile_metrics");
    let metric_percentiles = percentiles(r);
    Load {
        data,
        num_prompts,
        max_concurrency,
        request_rate,
        num_warmups,
        steps,
        warmup_steps,
        seed,
        ignore_eos,
        save_detailed,
        rollout,
        percentile_metrics,
        metric_percentiles,
    }
}

/// A number of steps; the table bounds it to 32 bits.
fn steps(r: &mut Reader<'_>, key: &str) -> u32 {
    u32::try_from(r.int(key)).unwrap_or(u32::MAX)
}

/// Contract E.2: required for sharegpt, refused for random, a regular file now.
fn dataset_path(r: &mut Reader<'_>, dataset: Option<Dataset>) -> Option<PathBuf> {
    let path = r.path("dataset_path");
    match (dataset?, path) {
        (Dataset::Random, None) => None,
        (Dataset::Random, Some(_)) => {
            r.refuse("dataset_path", "is meaningless with dataset random", "remove it, or set dataset: sharegpt");
            None
        }
        (Dataset::Sharegpt, None) => {
            if r.sound(&["dataset_path"]) {
                let rule = "is required with dataset sharegpt";
                r.refuse("dataset_path", rule, "name a ShareGPT JSON file on this host");
            }
            None
        }
        (Dataset::Sharegpt, Some(path)) => match std::fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Some(path),
            Ok(_) => {
                r.refuse("dataset_path", "must be a regular file", "name a ShareGPT JSON file on this host");
                None
            }
            Err(error) => {
                let rule = format!("cannot be read ({error})");
                r.refuse("dataset_path", rule, "name a ShareGPT JSON file on this host");
                None
            }
        },
    }
}

/// Contract E.3: an infinite number is refused, the quoted text `inf` is not.
fn request_rate(r: &mut Reader<'_>) -> String {
    const KEY: &str = "request_rate";
    const INF: &str = proto::limits::default::REQUEST_RATE;
    let Some(value) = r.raw(KEY) else { return INF.to_owned() };
    match rate(value) {
        Ok(text) => text,
        Err(rule) => {
            r.fail(ConfigError::of(KEY, value, rule, "write a number > 0, or the quoted text \"inf\" for no limit"));
            INF.to_owned()
        }
    }
}

/// The rate as the bench gets it.
pub(super) fn rate(value: &Value) -> Result<String, String> {
    let number = match &value.node {
        Node::Str(text) => {
            let text = text.trim();
            if ["inf", "+inf", "infinity"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
                return Ok(proto::limits::default::REQUEST_RATE.to_owned());
            }
            python_number(text).ok_or("must be a number or \"inf\"")?
        }
        Node::BigInt(_) => return Err("is too large".into()),
        #[expect(clippy::cast_precision_loss, reason = "the original converts to a float as well")]
        Node::Int(number) => *number as f64,
        Node::Float(number) => *number,
        Node::Bool(_) | Node::Null | Node::Date(_) | Node::Seq(_) | Node::Map(_) => {
            return Err(format!("must be a number or \"inf\", not {}", value.kind()));
        }
    };
    if number.is_infinite() {
        return Err(
            "must be finite; an infinite number may be a mistyped one, so no limit is the quoted \"inf\"".into()
        );
    }
    // NaN is not greater than 0 either.
    if number > 0.0 { Ok(python_float(number)) } else { Err("must be greater than 0".into()) }
}

/// Python's `float()` of a text: underscores between digits are dropped, the rest is what Rust reads as well.
fn python_number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: Option<&u8>| at.is_some_and(u8::is_ascii_digit);
    let joins = |i: usize| i > 0 && digit(bytes.get(i - 1)) && digit(bytes.get(i + 1));
    if bytes.iter().enumerate().any(|(i, b)| *b == b'_' && !joins(i)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Contract E.2, `metric_percentiles`; each entry strictly inside (0, 100).
fn percentiles(r: &mut Reader<'_>) -> String {
    const KEY: &str = "metric_percentiles";
    let text = r.text(KEY);
    for entry in text.split(',').map(str::trim) {
        let rule = match python_number(entry) {
            _ if entry.is_empty() => "has an empty entry".to_owned(),
            None => format!("entry {entry:?} is not a number"),
            Some(number) if number > 0.0 && number < 100.0 => continue,
            Some(_) => format!("entry {entry:?} must be in (0, 100)"),
        };
        r.refuse(KEY, rule, "write percentiles separated by commas, such as 50,90,99.9");
        break;
    }
    text
}

/// Everything but `timeout_sec`, which needs the probe's setting as well.
fn timing(r: &mut Reader<'_>) -> Timing {
    let ready_timeout_sec = r.int("ready_timeout_sec");
    Timing {
        ready_timeout_sec,
        bench_timeout_sec: r.int("bench_timeout_sec"),
        teardown_grace_sec: r.int("teardown_grace_sec"),
        gateway_startup_timeout_sec: r.derived_int("gateway_startup_timeout_sec").unwrap_or(ready_timeout_sec),
        timeout_sec: 0,
    }
}

/// Contract G.2, saturating: no sum of accepted values wraps around (failure scenario FS-84).
fn settle_timeout(r: &mut Reader<'_>, trial: &mut Trial) {
    /// Room for the health windows and the kill delay (contract G.2).
    const MARGIN_SEC: u64 = 600;
    /// Window of the generate probe (design section 3a).
    const PROBE_SEC: u64 = 120;
    let timing = &mut trial.timing;
    let steps = u64::from(trial.load.steps).saturating_add(u64::from(trial.load.warmup_steps));
    let needed = timing
        .ready_timeout_sec
        .saturating_add(steps.saturating_mul(timing.bench_timeout_sec))
        .saturating_add(timing.teardown_grace_sec);
    let probe = if trial.own.generate_probe { PROBE_SEC } else { 0 };
    timing.timeout_sec = match r.derived_int("timeout_sec") {
        Some(explicit) => explicit,
        None => needed.saturating_add(MARGIN_SEC).saturating_add(probe),
    };
    if r.sound(&["timeout_sec", "ready_timeout_sec"]) && timing.timeout_sec <= timing.ready_timeout_sec {
        let rule = format!("must be greater than ready_timeout_sec ({})", timing.ready_timeout_sec);
        r.refuse("timeout_sec", rule, format!("omit it, or set at least {needed}"));
    }
}

fn place(r: &mut Reader<'_>) -> Place {
    let work_dir = r.path("work_dir");
    let hf_token_env = r.opt_text("hf_token_env");
    let name = hf_token_env.clone().unwrap_or_else(|| proto::env::HF_TOKEN.to_owned());
    if r.sound(&["hf_token_env"]) && !guard::is_name(&name) {
        r.refuse("hf_token_env", "is not the name of a variable", "write the name of a host variable, never the token");
    }
    Place {
        work_dir: work_dir.unwrap_or_else(|| PathBuf::from(keys::WORK_DIR)),
        hf_home: r.path("hf_home"),
        hf_token_env: name,
        hf_token_env_named: hf_token_env.is_some(),
        hf_offline: r.plain_flag("hf_offline"),
        keep_work_dir: r.plain_flag("keep_work_dir"),
        run_as_current_user: r.plain_flag("run_as_current_user"),
        network: r.text("network"),
        shm_size: r.text("shm_size"),
    }
}

/// Contract E.4: a text other than `auto` is refused, digits included.
fn ports(r: &mut Reader<'_>) -> PortChoice {
    let choice = PortChoice { gateway: port(r, "port"), control: port(r, "control_port") };
    if choice.gateway.is_some() && choice.gateway == choice.control {
        r.refuse("control_port", "must differ from port", "write two different ports, or leave one of them auto");
    }
    choice
}

fn port(r: &mut Reader<'_>, key: &str) -> Option<u16> {
    let value = r.raw(key)?;
    let (rule, hint) = match &value.node {
        Node::Str(text) if text == "auto" => return None,
        Node::Int(number) => match u16::try_from(*number) {
            Ok(port) if proto::limits::PORT.contains(&u64::from(port)) => return Some(port),
            _ => (
                "must be in 1024..65535".to_owned(),
                "the container cannot bind reserved ports; write one in 1024..65535, or auto",
            ),
        },
        Node::BigInt(_) => ("must be in 1024..65535".to_owned(), "write a port in 1024..65535, or auto"),
        Node::Str(_) | Node::Null | Node::Bool(_) | Node::Float(_) | Node::Date(_) | Node::Seq(_) | Node::Map(_) => (
            format!("must be an int or \"auto\", not {}", value.kind()),
            "write a plain number without quotes, or auto",
        ),
    };
    r.fail(ConfigError::of(key, value, rule, hint));
    None
}

/// Contract E.5.
fn gates(r: &mut Reader<'_>) -> Vec<Gate> {
    let Some(value) = r.raw("gates").filter(|value| !value.is_null()) else { return Vec::new() };
    let Some(map) = value.as_map() else {
        let rule = format!("must be a mapping, not {}", value.kind());
        r.fail(ConfigError::of("gates", value, rule, "write gate: bound pairs, or omit it"));
        return Vec::new();
    };
    map.iter().filter_map(|(key, bound)| gate(r, key, bound)).collect()
}

fn gate(r: &mut Reader<'_>, key: &Value, value: &Value) -> Option<Gate> {
    let name = key.text().unwrap_or_default();
    let full = format!("gates.{name}");
    if !keys::GATES.contains(&name.as_str()) {
        let hint = match keys::nearest(&name, keys::GATES.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the gates are {}", keys::GATES.join(", ")),
        };
        r.fail(ConfigError::about(&full, "is an unknown gate", hint).at(key.at));
        return None;
    }
    let side = if name.starts_with("max_") { GateSide::Max } else { GateSide::Min };
    match bound_of(value) {
        Ok(bound) if bound > 0.0 => {
            let metric = name.split_once('_').map(|(_, metric)| metric.to_owned()).unwrap_or_default();
            Some(Gate { key: name, side, metric, bound })
        }
        Ok(_) => {
            r.fail(ConfigError::of(&full, value, "must be greater than 0", "write a finite number > 0"));
            None
        }
        Err(rule) => {
            r.fail(ConfigError::of(&full, value, rule, "write a finite number > 0"));
            None
        }
    }
}

/// A bound as the original reads it: YAML makes a text of `1e3`, which is a thousand all the same.
fn bound_of(value: &Value) -> Result<f64, String> {
    match value.as_str().and_then(|text| python_number(text.trim())) {
        Some(number) if number.is_finite() => Ok(number),
        _ => finite(value),
    }
}

/// Keys of ours (design section 2).
fn own(r: &mut Reader<'_>, overrides: &Overrides) -> Own {
    let runtime = r.choice("runtime", |text| match text {
        "docker" => Ok(RuntimeKind::Docker),
        "podman" => Ok(RuntimeKind::Podman),
        "process" => Ok(RuntimeKind::Process),
        _ => Err("must be docker, podman or process".to_owned()),
    });
    let runtime = overrides.runtime.or(runtime).unwrap_or(RuntimeKind::Docker);
    let pull = r.choice("pull", |text| match text {
        "missing" => Ok(Pull::Missing),
        "never" => Ok(Pull::Never),
        "always" => Ok(Pull::Always),
        _ => Err("must be missing, never or always".to_owned()),
    });
    let tool =
        r.choice("bench_tool", |text| BenchTool::parse(text).ok_or_else(|| "must be tokenspeed or native".to_owned()));
    let agent_path = r.path("agent_path");
    Own {
        runtime,
        agent_path: overrides.agent_path.clone().or(agent_path),
        container_cli: r.opt_text("container_cli").unwrap_or_else(|| runtime.as_str().to_owned()),
        pull: pull.unwrap_or(Pull::Missing),
        pull_timeout_sec: r.int("pull_timeout_sec"),
        lease_sec: r.int("lease_sec"),
        generate_probe: r.plain_flag("generate_probe"),
        bench_tool: tool.unwrap_or(BenchTool::Tokenspeed),
        strict_load: r.plain_flag("strict_load"),
    }
}

/// The cell's resolved mitigations and extra environment; errors never show a value (contract F.6).
fn trial_env(r: &mut Reader<'_>) -> BTreeMap<String, String> {
    const KEY: &str = "_aorta_trial_env";
    let Some(value) = r.raw(KEY).filter(|value| !value.is_null()) else { return BTreeMap::new() };
    let Some(map) = value.as_map() else {
        let rule = format!("must be a mapping of names to texts, not {}", value.kind());
        r.fail(ConfigError::about(KEY, rule, "write NAME: \"value\" pairs").at(value.at));
        return BTreeMap::new();
    };
    let mut env = BTreeMap::new();
    for (key, value) in map.iter() {
        let name = key.text().unwrap_or_default();
        let full = format!("{KEY}.{name}");
        let problem = match value.as_str() {
            _ if key.as_str().is_none_or(|name| !guard::is_name(name)) => Some("is not a valid variable name"),
            None => Some("must be a string"),
            Some(text) if text.contains('\0') => Some("contains a NUL byte"),
            Some(text) => {
                env.insert(name, text.to_owned());
                None
            }
        };
        if let Some(rule) = problem {
            r.fail(
                ConfigError::about(&full, rule, "names are [A-Za-z_][A-Za-z0-9_]*, values are quoted texts").at(key.at),
            );
        }
    }
    env
}

/// What the agent would refuse with 64, refused before a node is taken (contract D.3 to D.5).
fn extra_args(r: &mut Reader<'_>, trial: &Trial) {
    use proto::args::{self, OWNED_BENCH, OWNED_BENCH_ROLLOUT, OWNED_SERVE, OWNED_SERVE_ROLLOUT};
    let rollout = trial.load.rollout.is_some();
    let serve: &[&[&'static str]] = if rollout { &[OWNED_SERVE, OWNED_SERVE_ROLLOUT] } else { &[OWNED_SERVE] };
    let bench: &[&[&'static str]] = if rollout { &[OWNED_BENCH, OWNED_BENCH_ROLLOUT] } else { &[OWNED_BENCH] };
    let native = trial.own.bench_tool == BenchTool::Native;
    if native && let Err(reason) = args::check_native(&trial.bench_args, rollout) {
        r.refuse("bench_args", reason.to_string(), args::BadNative::HINT);
    }
    let bench: &[&[&'static str]] = if native { &[] } else { bench };
    for (key, extras, owned) in [("serve_args", &trial.serve_args, serve), ("bench_args", &trial.bench_args, bench)] {
        if let Some(shadow) = args::find_shadow(extras, owned) {
            let prefix = if shadow.is_prefix() { format!(" ({} abbreviates it)", shadow.word) } else { String::new() };
            let rule = format!("may not set {}{prefix}", shadow.flag);
            r.refuse(key, rule, format!("remove it; {}", instead_of(shadow.flag)));
        }
    }
    if r.sound(&["serve_args", "teardown_grace_sec"])
        && let Err(reason) = args::explicit_drain(&trial.serve_args, trial.timing.teardown_grace_sec)
    {
        let rule = format!("--drain-timeout {reason}");
        let hint = "a drain ends inside the grace; write 1 to teardown_grace_sec - 1, or raise teardown_grace_sec";
        r.refuse("serve_args", rule, hint);
    }
    match crate::launch::ports::metrics_port(&trial.serve_args) {
        Some(port) if [trial.ports.gateway, trial.ports.control].contains(&Some(port)) => {
            let rule = format!("--prometheus-port {port} must differ from port and control_port");
            r.refuse("serve_args", rule, "write a third port");
        }
        _ => {}
    }
}

/// Which key to write in place of an owned flag.
fn instead_of(flag: &str) -> String {
    let key = match flag {
        "--host"
        | "--base-url"
        | "--backend"
        | "--endpoint"
        | "--output-file"
        | "--label"
        | "--request-id-prefix"
        | "--append-result" => return "it ties the run to its trial and is always ours".into(),
        "--port" => "port",
        "--control-port" => "control_port",
        "--served-model-name" => "served_model_name",
        "--model" => "model",
        "--sampling-backend" => "sampling_backend",
        "--dataset-name" => "dataset",
        "--random-input-len" | "--input-len" => "input_len",
        "--random-output-len" | "--output-len" => "output_len",
        "--extra-body" | "--extra-request-body" => return "rollout sends its own request body".into(),
        other => return format!("set {} instead", other.trim_start_matches('-').replace('-', "_")),
    };
    format!("set {key} instead")
}

/// The guards of contract F.7 and F.9, against everything that this trial will set.
fn guarded(r: &mut Reader<'_>, trial: &Trial) {
    if r.sound(&["docker_args"])
        && let Err(refusal) = docker_args::check(&trial.docker_args, &guard::Owned::of(trial), trial.own.runtime)
    {
        r.refuse("docker_args", &refusal, refusal.hint());
    }
    for error in guard::mitigations(trial) {
        r.fail(error);
    }
}
