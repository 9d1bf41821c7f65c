//! Every key of a trial's configuration, once: the reader takes type, range and default from here, and so do the
//! JSON Schema, the key table of the manual and the suggestion for a key that nobody knows (contract E.2, E.6;
//! design section 2).

use proto::limits::{self, default};

/// A key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What counts when it is absent.
    pub default: Default,
    /// Which part of the manual it belongs to.
    pub group: Group,
    /// One sentence.
    pub doc: &'static str,
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any scalar, read as text; empty and null are absent.
    Text,
    /// A whole number in a range.
    Int {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A finite number in (0, `max`].
    Number {
        /// Largest.
        max: f64,
    },
    /// true or false.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of arguments, or a string that is split as a shell would.
    Words,
    /// A path; `~` is expanded, links are followed.
    Path,
    /// A port, or `auto`.
    Port,
    /// Requests per second, or `inf`.
    Rate,
    /// Comma-separated percentiles in (0, 100).
    Percentiles,
    /// A mapping of bounds.
    Gates,
    /// Any scalar, empty text included; null is absent.
    Scalar,
}

/// What counts when a key is absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    /// A number.
    Int(u64),
    /// A number.
    Number(f64),
    /// A boolean.
    Flag(bool),
    /// A text.
    Text(&'static str),
    /// Nothing: what that means.
    Unset(&'static str),
    /// Something that depends on other keys.
    Derived(&'static str),
}

/// Part of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Model and image.
    What,
    /// The load of a step.
    Load,
    /// Rollout mode.
    Rollout,
    /// Deadlines.
    Time,
    /// Host, container and devices.
    Place,
    /// Keys that AORTA's workload does not have.
    Own,
}

impl Group {
    /// In the order of the manual.
    pub const ALL: &'static [Self] = &[Self::What, Self::Load, Self::Rollout, Self::Time, Self::Place, Self::Own];

    /// Its heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::What => "Model and image",
            Self::Load => "Load",
            Self::Rollout => "Rollout mode",
            Self::Time => "Deadlines",
            Self::Place => "Host, container, devices",
            Self::Own => "Keys of ts-bench itself",
        }
    }
}

/// The image that the recipes pin.
pub const IMAGE: &str =
    "lightseekorg/tokenspeed-amd@sha256:60c12e37c01496891053b9c30c4204e5d1cf9b4b641859d3aadcbd95bccc7c78";
/// Shared scratch root.
pub const WORK_DIR: &str = "/tmp/ts-work-serve";
/// Seconds that one pull may take.
pub const PULL_TIMEOUT_SEC: u64 = 3600;

/// The rollout keys that are refused outside the mode, present as null included (contract E.6).
pub const ROLLOUT_ONLY: &[&str] =
    &["rollout_samples", "temperature", "top_p", "min_mean_output_tokens", "sampling_backend"];

/// Keys that mean something to a container only; the process runtime leaves them out (design section 4).
pub const CONTAINER_ONLY: &[&str] = &[
    "image",
    "docker_args",
    "network",
    "shm_size",
    "run_as_current_user",
    "container_cli",
    "pull",
    "pull_timeout_sec",
];

/// The gates, complete (contract E.5).
pub const GATES: &[&str] = &[
    "max_median_ttft_ms",
    "max_p99_ttft_ms",
    "max_median_tpot_ms",
    "max_p99_tpot_ms",
    "max_median_itl_ms",
    "max_p99_itl_ms",
    "max_median_e2el_ms",
    "max_p99_e2el_ms",
    "min_output_throughput",
    "min_total_token_throughput",
    "min_request_throughput",
];

const fn int(range: &std::ops::RangeInclusive<u64>) -> Kind {
    Kind::Int { min: *range.start(), max: *range.end() }
}

const POSITIVE: Kind = Kind::Int { min: 1, max: u64::MAX };
const COUNT: Kind = Kind::Int { min: 0, max: u64::MAX };
const STEPS: Kind = Kind::Int { min: 1, max: u32::MAX as u64 };
const MAYBE_STEPS: Kind = Kind::Int { min: 0, max: u32::MAX as u64 };

const fn key(group: Group, name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Key {
    Key { name, kind, default, group, doc }
}

/// The table, in the contract's order.
#[rustfmt::skip]
pub const KEYS: &[Key] = {
    use self::Default::{Derived, Flag as On, Int, Number, Text, Unset};
    use self::Group::{Load, Own, Place, Rollout, Time, What};
    &[
    key(What, "image", Kind::Text, Text(IMAGE), "Container image; the cell's environment (`_aorta_environment.docker`) wins over it."),
    key(What, "model", Kind::Text, Text(default::MODEL), "Any Hugging Face id that the container can load."),
    key(What, "served_model_name", Kind::Text, Derived("`model`"), "Id that the bench asks for; the server registers it when it differs from `model`."),
    key(What, "tokenizer", Kind::Text, Derived("`model`"), "What the bench counts and makes tokens with."),
    key(Load, "dataset", Kind::Choice(&["random", "sharegpt"]), Text("random"), "Where prompts come from."),
    key(Load, "dataset_path", Kind::Path, Unset("none"), "Host path of a ShareGPT file; required for `sharegpt`, refused for `random`."),
    key(Load, "num_prompts", POSITIVE, Int(default::NUM_PROMPTS), "Requests per bench step, and what the audit expects."),
    key(Load, "input_len", POSITIVE, Int(default::INPUT_LEN), "Input tokens per request; `random` only."),
    key(Load, "output_len", POSITIVE, Int(default::OUTPUT_LEN), "Output tokens per request; `random` only."),
    key(Load, "num_warmups", COUNT, Int(default::NUM_WARMUPS), "Warm-up requests inside a bench step."),
    key(Load, "warmup_steps", MAYBE_STEPS, Int(default::WARMUP_STEPS as u64), "Discarded bench steps; they pay for compilation."),
    key(Load, "seed", COUNT, Int(default::SEED), "Seed of the prompts."),
    key(Load, "steps", STEPS, Int(default::STEPS as u64), "Measured bench steps against one server; AORTA sets it from the recipe."),
    key(Load, "max_concurrency", POSITIVE, Unset("unbounded"), "Requests in flight at most."),
    key(Load, "request_rate", Kind::Rate, Text(default::REQUEST_RATE), "Requests per second; the quoted text \"inf\" submits everything at once."),
    key(Load, "ignore_eos", Kind::Flag, Derived("true; false under `rollout`"), "Hold the output length fixed; `false` needs `sharegpt` or `rollout`."),
    key(Rollout, "rollout", Kind::Flag, On(false), "Shape the load like an RL rollout."),
    key(Rollout, "rollout_samples", int(&limits::ROLLOUT_SAMPLES), Int(default::ROLLOUT_SAMPLES), "Completions per prompt."),
    key(Rollout, "temperature", Kind::Number { max: limits::TEMPERATURE_MAX }, Number(default::TEMPERATURE), "Sampling temperature."),
    key(Rollout, "top_p", Kind::Number { max: limits::TOP_P_MAX }, Unset("the server's own"), "Nucleus bound."),
    key(Rollout, "min_mean_output_tokens", COUNT, Int(default::MIN_MEAN_OUTPUT_TOKENS), "Floor on mean tokens per completion; 0 is off."),
    key(Rollout, "sampling_backend", Kind::Choice(&["triton", "triton_full"]), Text("triton"), "The server's sampling backend, read back before the first step."),
    key(Load, "save_detailed", Kind::Flag, Derived("false; true under `rollout`"), "Keep the per-request arrays in the exports; they describe your prompts."),
    key(Load, "percentile_metrics", Kind::Text, Text(default::PERCENTILE_METRICS), "Metrics that get percentiles; without `ttft` every step is unusable."),
    key(Load, "metric_percentiles", Kind::Percentiles, Text(default::METRIC_PERCENTILES), "Which percentiles."),
    key(Time, "ready_timeout_sec", int(&limits::READY_TIMEOUT_SEC), Int(default::READY_TIMEOUT_SEC), "Seconds until `/health` answers; raise it for big models on a cold cache."),
    key(Time, "bench_timeout_sec", int(&limits::BENCH_TIMEOUT_SEC), Int(default::BENCH_TIMEOUT_SEC), "Seconds per bench step."),
    key(Time, "teardown_grace_sec", int(&limits::TEARDOWN_GRACE_SEC), Int(default::TEARDOWN_GRACE_SEC), "Seconds between SIGTERM and SIGKILL for the server; the gateway's drain fits inside."),
    key(Time, "gateway_startup_timeout_sec", POSITIVE, Derived("`ready_timeout_sec`"), "The orchestrator's budget for its gateway, seconds."),
    key(Time, "timeout_sec", POSITIVE, Derived("`ready_timeout_sec` + (`steps` + `warmup_steps`) x `bench_timeout_sec` + `teardown_grace_sec` + 600, + 120 with `generate_probe`"), "Seconds for the whole container; greater than `ready_timeout_sec`."),
    key(Load, "serve_args", Kind::Words, Unset("none"), "Extra arguments of `tokenspeed serve`."),
    key(Load, "bench_args", Kind::Words, Unset("none"), "Extra arguments of `tokenspeed bench serve`."),
    key(Place, "docker_args", Kind::Words, Unset("none"), "Extra arguments of the container client; none may displace one of ours."),
    key(Place, "work_dir", Kind::Path, Text(WORK_DIR), "Shared scratch root, node-local; each user works in `u<uid>` below it."),
    key(Place, "hf_home", Kind::Path, Derived("`<work_dir>/u<uid>/hf`"), "Hugging Face cache; name one to share it."),
    key(Place, "hf_token_env", Kind::Text, Text(proto::env::HF_TOKEN), "Name of the host variable that holds a Hugging Face token."),
    key(Place, "hf_offline", Kind::Flag, On(false), "Serve from the cache only."),
    key(Place, "shm_size", Kind::Text, Text("16g"), "Size of the container's `/dev/shm`."),
    key(Place, "hip_visible_devices", Kind::Scalar, Unset("all"), "Which GPUs the server sees: a filter, not an allocation."),
    key(Place, "exclusive_gpus", Kind::Flag, On(false), "Nobody else uses this node's GPUs; only then is unreleased memory a failure."),
    key(Place, "run_as_current_user", Kind::Flag, On(true), "Run the container as the calling user, so that files stay deletable."),
    key(Place, "keep_work_dir", Kind::Flag, On(true), "Keep this trial's exports and logs."),
    key(Place, "network", Kind::Text, Text("host"), "Container network."),
    key(Place, "port", Kind::Port, Text("auto"), "Gateway port."),
    key(Place, "control_port", Kind::Port, Text("auto"), "Control port; differs from `port`."),
    key(Load, "gates", Kind::Gates, Unset("none"), "Bounds on this trial's aggregates; a metric that is missing fails its gate."),
    key(Own, "runtime", Kind::Choice(&["docker", "podman", "process"]), Text("docker"), "What holds the agent."),
    key(Own, "agent_path", Kind::Path, Derived("beside the controller, then PATH"), "The agent binary; `--agent` wins over it."),
    key(Own, "container_cli", Kind::Text, Derived("the runtime's name"), "The container client, found on PATH."),
    key(Own, "require_gpu", Kind::Flag, Derived("true; false in `process`"), "Check `/dev/kfd`, pass devices and groups, watch GPU memory."),
    key(Own, "pull", Kind::Choice(&["missing", "never", "always"]), Text("missing"), "When the image is pulled, before the trial's clock starts."),
    key(Own, "pull_timeout_sec", POSITIVE, Int(PULL_TIMEOUT_SEC), "Seconds that a pull may take."),
    key(Own, "lease_sec", int(&limits::LEASE_SEC), Int(default::LEASE_SEC), "Seconds of grace after the controller died; 0 switches the lease off."),
    key(Own, "generate_probe", Kind::Flag, On(true), "One streamed token must come before the first step."),
    key(Own, "bench_tool", Kind::Choice(&["tokenspeed", "native"]), Text("tokenspeed"), "Who makes the load."),
    key(Own, "strict_load", Kind::Flag, On(false), "A doubtful load is refused, short output work fails."),
    ]
};

/// The row of a key.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that a misspelt key most likely means.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).clamp(1, 4))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lists_refer_to_the_table() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{}", key.name);
        }
        for name in ROLLOUT_ONLY.iter().chain(CONTAINER_ONLY) {
            assert!(find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn suggestions() {
        let names = || KEYS.iter().map(|k| k.name);
        assert_eq!(nearest("num_prompt", names()), Some("num_prompts"));
        assert_eq!(nearest("Max_Concurency", names()), Some("max_concurrency"));
        assert_eq!(nearest("ready_timeout", names()), Some("ready_timeout_sec"));
        assert_eq!(nearest("colour", names()), None);
    }
}
