//! The environment of the agent (contract F.6 to F.8; design sections 2 and 4), as pure functions of the trial.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use proto::env::{HF_TOKEN, PROTOCOL};
use proto::limits::BenchTool;
use proto::names::RunToken;
use proto::text::print_decimal;

use super::identity::Identity;
use super::ports::Ports;
use crate::config::trial::{Data, Trial};

/// Name and value, sorted by name.
pub type Environment = BTreeMap<String, String>;

/// Where things are, as the agent sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locations {
    /// Exports and logs.
    pub out: PathBuf,
    /// Hugging Face cache.
    pub hf_home: PathBuf,
    /// ShareGPT file, where the dataset is one.
    pub dataset: Option<PathBuf>,
}

impl Locations {
    /// Mount points in a container.
    pub fn in_container(trial: &Trial) -> Self {
        Self {
            out: PathBuf::from(proto::limits::default::OUT_DIR),
            hf_home: PathBuf::from(HF_MOUNT),
            dataset: match trial.load.data {
                Data::Sharegpt { .. } => Some(PathBuf::from(DATASET_MOUNT)),
                Data::Random { .. } => None,
            },
        }
    }
}

/// Where the Hugging Face cache is mounted.
pub const HF_MOUNT: &str = "/hf-cache";
/// Where the staged dataset is mounted.
pub const DATASET_MOUNT: &str = "/ts-data/dataset.json";

/// What differs from run to run.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Part of every file name.
    pub token: &'a RunToken,
    /// Resolved.
    pub ports: Ports,
    /// The calling user.
    pub identity: &'a Identity,
    /// The host's own exclusions from its proxies, which the loopback ones join.
    pub no_proxy: Option<&'a str>,
}

/// Everything that the agent gets: contract F.6, our own variables, and the cell's mitigations last.
pub fn agent(trial: &Trial, at: &Locations, run: &Run<'_>) -> Environment {
    let mut env = settings(trial);
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("TS_RUN_TOKEN", run.token.to_string());
    set("TS_PORT", run.ports.gateway.to_string());
    set("TS_CONTROL_PORT", run.ports.control.to_string());
    for (name, path) in places(at) {
        set(name, path.display().to_string());
    }
    if trial.place.run_as_current_user || !trial.own.runtime.is_container() {
        for name in USER_NAMES {
            set(name, run.identity.user.clone());
        }
    }
    for name in NO_PROXY_NAMES {
        set(name, no_proxy(run.no_proxy));
    }
    env.extend(trial.trial_env.clone());
    env
}

/// What depends on the configuration alone.
fn settings(trial: &Trial) -> Environment {
    let load = &trial.load;
    let on = || "1".to_owned();
    let mut env: Environment = [
        ("TS_MODEL", trial.model.model.clone()),
        ("TS_SERVED_MODEL_NAME", trial.model.served.clone()),
        ("TS_TOKENIZER", trial.model.tokenizer.clone()),
        ("TS_BENCH_STEPS", load.steps.to_string()),
        ("TS_BENCH_WARMUP_STEPS", load.warmup_steps.to_string()),
        ("TS_GATEWAY_STARTUP_TIMEOUT", trial.timing.gateway_startup_timeout_sec.to_string()),
        ("TS_DATASET", load.data.dataset().as_str().to_owned()),
        ("TS_NUM_PROMPTS", load.num_prompts.to_string()),
        ("TS_NUM_WARMUPS", load.num_warmups.to_string()),
        ("TS_REQUEST_RATE", load.request_rate.clone()),
        ("TS_SEED", load.seed.to_string()),
        ("TS_IGNORE_EOS", u8::from(load.ignore_eos).to_string()),
        ("TS_PERCENTILE_METRICS", load.percentile_metrics.clone()),
        ("TS_METRIC_PERCENTILES", load.metric_percentiles.clone()),
        ("TS_READY_TIMEOUT", trial.timing.ready_timeout_sec.to_string()),
        ("TS_BENCH_TIMEOUT", trial.timing.bench_timeout_sec.to_string()),
        ("TS_TEARDOWN_GRACE", trial.timing.teardown_grace_sec.to_string()),
        ("TS_LEASE_SEC", trial.own.lease_sec.to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    if let Data::Random { input_len, output_len } = load.data {
        set("TS_INPUT_LEN", input_len.to_string());
        set("TS_OUTPUT_LEN", output_len.to_string());
    }
    if let Some(limit) = load.max_concurrency {
        set("TS_MAX_CONCURRENCY", limit.to_string());
    }
    if load.save_detailed {
        set("TS_SAVE_DETAILED", on());
    }
    if let Some(rollout) = &load.rollout {
        set("TS_ROLLOUT", on());
        set("TS_ROLLOUT_SAMPLES", rollout.samples.to_string());
        set("TS_TEMPERATURE", print_decimal(rollout.temperature));
        if let Some(top_p) = rollout.top_p {
            set("TS_TOP_P", print_decimal(top_p));
        }
        set("TS_MIN_MEAN_OUTPUT_TOKENS", rollout.min_mean_output_tokens.to_string());
        set("TS_SAMPLING_BACKEND", rollout.sampling_backend.as_str().to_owned());
    }
    for (name, list) in [("TS_SERVE_ARGS", &trial.serve_args), ("TS_BENCH_ARGS", &trial.bench_args)] {
        if !list.is_empty() {
            set(name, serde_json::Value::from(list.clone()).to_string());
        }
    }
    if let Some(devices) = &trial.gpus.hip_visible_devices {
        set("HIP_VISIBLE_DEVICES", devices.clone());
    }
    if trial.place.hf_offline {
        for name in OFFLINE_NAMES {
            set(name, on());
        }
    }
    if trial.own.generate_probe {
        set("TS_GENERATE_PROBE", on());
    }
    if trial.own.bench_tool != BenchTool::Tokenspeed {
        set("TS_BENCH_TOOL", trial.own.bench_tool.as_str().to_owned());
    }
    env
}

const OFFLINE_NAMES: [&str; 2] = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"];
const USER_NAMES: [&str; 2] = ["USER", "LOGNAME"];
/// Programs read either spelling.
const NO_PROXY_NAMES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Paths, and the names that they go by.
fn places(at: &Locations) -> Vec<(&'static str, PathBuf)> {
    let mut places = vec![
        ("TS_OUT_DIR", at.out.clone()),
        ("HF_HOME", at.hf_home.clone()),
        ("HF_HUB_CACHE", at.hf_home.join("hub")),
        ("TRITON_CACHE_DIR", at.out.join("triton-cache")),
        ("HOME", at.out.join("home")),
        ("XDG_CACHE_HOME", at.out.join("home/.cache")),
        ("TORCHINDUCTOR_CACHE_DIR", at.out.join("torchinductor")),
    ];
    places.extend(at.dataset.clone().map(|path| ("TS_DATASET_PATH", path)));
    places
}

/// The loopback names behind whatever the host excludes already: a health probe must never meet a proxy (FS-45).
fn no_proxy(host: Option<&str>) -> String {
    let own = host.unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let mut entries: Vec<&str> = own.collect();
    for name in ["127.0.0.1", "localhost", "::1"] {
        if !entries.contains(&name) {
            entries.push(name);
        }
    }
    entries.join(",")
}

/// Every name that nobody but this workload may set: what it sets now, and what it sets under any configuration.
pub fn owned_names(trial: &Trial) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = settings(trial).into_keys().collect();
    names.extend(PROTOCOL.iter().map(|name| (*name).to_owned()));
    names.extend(places(&Locations::in_container(trial)).into_iter().map(|(name, _)| name.to_owned()));
    names.extend(NO_PROXY_NAMES.map(str::to_owned));
    // A visibility filter that is absent is a setting too (contract F.7).
    names.insert("HIP_VISIBLE_DEVICES".to_owned());
    if trial.place.run_as_current_user || !trial.own.runtime.is_container() {
        names.extend(USER_NAMES.map(str::to_owned));
    }
    names
}

/// The Hugging Face token of the host, from the variable that the config names; empty counts as unset (contract F.8).
pub fn hf_token(trial: &Trial, host: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    host(&trial.place.hf_token_env).filter(|value| !value.is_empty())
}

/// Environment of the container client: the host's, with the token under the name that the argv passes on.
pub fn client(
    host: impl IntoIterator<Item = (OsString, OsString)>,
    token: Option<&OsStr>,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = host.into_iter().collect();
    if let Some(token) = token {
        env.insert(HF_TOKEN.into(), token.to_owned());
    }
    env.into_iter().collect()
}

/// Environment of an agent that is our direct child (design section 4): the controller's own, less every `TS_*`,
/// less both secret names, plus the agent's set, plus the token where there is one.
pub fn process(
    host: impl IntoIterator<Item = (OsString, OsString)>,
    trial: &Trial,
    agent: &Environment,
    token: Option<&OsStr>,
) -> Vec<(OsString, OsString)> {
    let secret = |name: &OsStr| name == HF_TOKEN || name == trial.place.hf_token_env.as_str();
    let ours = |name: &OsStr| name.as_encoded_bytes().starts_with(b"TS_");
    let mut env: BTreeMap<OsString, OsString> =
        host.into_iter().filter(|(name, _)| !secret(name) && !ours(name)).collect();
    env.extend(agent.iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(token) = token {
        env.insert(HF_TOKEN.into(), token.to_owned());
    }
    env.into_iter().collect()
}

/// Directories below `<out>` that the environment names, made before the agent starts.
pub fn directories(out: &Path) -> [PathBuf; 4] {
    [out.to_path_buf(), out.join("home/.cache"), out.join("triton-cache"), out.join("torchinductor")]
}
