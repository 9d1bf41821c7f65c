//! The trial as types: what is left of the configuration once every rule of contract section E holds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proto::limits::{BenchTool, Dataset, SamplingBackend};

/// A validated trial. There is no way to make one that the agent would refuse.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Container image, after the precedence of contract E.2.
    pub image: String,
    /// What is served.
    pub model: ModelNames,
    /// What each step asks for.
    pub load: Load,
    /// How long things may take.
    pub timing: Timing,
    /// Extra arguments, each one argument.
    pub serve_args: Vec<String>,
    /// Extra arguments, each one argument.
    pub bench_args: Vec<String>,
    /// Extra arguments, already through the guard of contract F.9.
    pub docker_args: Vec<String>,
    /// Where things are kept and as whom.
    pub place: Place,
    /// Devices and their memory.
    pub gpus: Gpus,
    /// Gateway port and control port.
    pub ports: PortChoice,
    /// Bounds on aggregates, in recipe order.
    pub gates: Vec<Gate>,
    /// Resolved mitigations and extra environment of the cell, already through the guard of contract F.7.
    pub trial_env: BTreeMap<String, String>,
    /// Keys of ours (design section 2).
    pub own: Own,
}

/// Ids of the model.
#[derive(Debug, Clone)]
pub struct ModelNames {
    /// What the server loads.
    pub model: String,
    /// What the bench asks for.
    pub served: String,
    /// What the bench tokenizes with.
    pub tokenizer: String,
}

/// The load of one step, and how many.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where prompts come from.
    pub data: Data,
    /// Requests per step.
    pub num_prompts: u64,
    /// Requests in flight; `None` is unbounded.
    pub max_concurrency: Option<u64>,
    /// As the bench gets it: `inf`, or a float literal such as `4.0`.
    pub request_rate: String,
    /// Warm-up requests inside a step.
    pub num_warmups: u64,
    /// Measured steps.
    pub steps: u32,
    /// Discarded steps.
    pub warmup_steps: u32,
    /// Seed.
    pub seed: u64,
    /// Whether EOS is ignored.
    pub ignore_eos: bool,
    /// Whether exports keep per-request arrays.
    pub save_detailed: bool,
    /// Rollout mode.
    pub rollout: Option<RolloutLoad>,
    /// Metrics with percentiles, as written.
    pub percentile_metrics: String,
    /// Percentiles, as written.
    pub metric_percentiles: String,
}

/// Where prompts come from.
#[derive(Debug, Clone)]
pub enum Data {
    /// Made from lengths, in tokens.
    Random {
        /// Input tokens.
        input_len: u64,
        /// Output tokens.
        output_len: u64,
    },
    /// Conversations of a file on the host.
    Sharegpt {
        /// Resolved path of a regular file.
        path: PathBuf,
        /// `input_len` and `output_len` are validated and not sent.
        output_len: u64,
    },
}

impl Data {
    /// The dataset's name.
    pub const fn dataset(&self) -> Dataset {
        match self {
            Self::Random { .. } => Dataset::Random,
            Self::Sharegpt { .. } => Dataset::Sharegpt,
        }
    }
}

/// Rollout mode (seed, section "Rollout mode").
#[derive(Debug, Clone)]
pub struct RolloutLoad {
    /// Completions per prompt.
    pub samples: u64,
    /// In (0, 2].
    pub temperature: f64,
    /// In (0, 1]; `None` is the server's own.
    pub top_p: Option<f64>,
    /// Tokens per completion; 0 is off.
    pub min_mean_output_tokens: u64,
    /// The server's sampling backend.
    pub sampling_backend: SamplingBackend,
}

/// Seconds.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Until `/health` is 200.
    pub ready_timeout_sec: u64,
    /// Per bench step.
    pub bench_timeout_sec: u64,
    /// Between SIGTERM and SIGKILL for the server.
    pub teardown_grace_sec: u64,
    /// The orchestrator's budget for its gateway.
    pub gateway_startup_timeout_sec: u64,
    /// The whole container, derived or explicit (contract G.2; +120 with the generate probe when derived).
    pub timeout_sec: u64,
}

/// Where a trial lives on the host.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the configuration")]
pub struct Place {
    /// Resolved, shared root; scratch is `<work_dir>/u<uid>`.
    pub work_dir: PathBuf,
    /// Resolved, when the config names one.
    pub hf_home: Option<PathBuf>,
    /// Name of the host variable that holds a Hugging Face token, and whether the config names it itself.
    pub hf_token_env: String,
    /// The config names `hf_token_env` itself.
    pub hf_token_env_named: bool,
    /// Serve from the cache only.
    pub hf_offline: bool,
    /// Keep exports after the trial.
    pub keep_work_dir: bool,
    /// `--user <uid>:<gid>`.
    pub run_as_current_user: bool,
    /// Docker network.
    pub network: String,
    /// Size of `/dev/shm`.
    pub shm_size: String,
}

/// Devices.
#[derive(Debug, Clone)]
pub struct Gpus {
    /// Visibility filter; `Some("")` is forwarded as empty.
    pub hip_visible_devices: Option<String>,
    /// The node's GPUs are this trial's own.
    pub exclusive: bool,
    /// Devices, groups and the memory check are wanted.
    pub required: bool,
}

/// Ports before resolution.
#[derive(Debug, Clone, Copy)]
pub struct PortChoice {
    /// `None` is `auto`.
    pub gateway: Option<u16>,
    /// `None` is `auto`.
    pub control: Option<u16>,
}

/// One bound on one aggregate (contract E.5).
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The key, as written: `max_median_ttft_ms`.
    pub key: String,
    /// Direction.
    pub side: GateSide,
    /// The aggregate: `median_ttft_ms`.
    pub metric: String,
    /// Finite, greater than 0.
    pub bound: f64,
}

/// Direction of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateSide {
    /// Observed must not exceed the bound.
    Max,
    /// Observed must not fall below the bound.
    Min,
}

/// Which runtime holds the agent (design section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// The docker client as a child.
    Docker,
    /// The podman client as a child.
    Podman,
    /// The agent as a direct child.
    Process,
}

impl RuntimeKind {
    /// The spelling in a configuration, which is also the name of the client.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Process => "process",
        }
    }

    /// Whether the agent runs in a container.
    pub const fn is_container(self) -> bool {
        match self {
            Self::Docker | Self::Podman => true,
            Self::Process => false,
        }
    }
}

/// When the image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// When it is not there.
    Missing,
    /// Never.
    Never,
    /// Each time.
    Always,
}

/// Keys of ours.
#[derive(Debug, Clone)]
pub struct Own {
    /// Runtime.
    pub runtime: RuntimeKind,
    /// Agent binary.
    pub agent_path: Option<PathBuf>,
    /// Name or path of the container client.
    pub container_cli: String,
    /// Pulling.
    pub pull: Pull,
    /// Seconds a pull may take.
    pub pull_timeout_sec: u64,
    /// Seconds of grace after a lost lease; 0 is off.
    pub lease_sec: u64,
    /// One streamed token before the first step.
    pub generate_probe: bool,
    /// Who makes the load.
    pub bench_tool: BenchTool,
    /// Load findings refuse or fail.
    pub strict_load: bool,
}

impl Trial {
    /// What exports are judged against.
    pub fn expectation(&self) -> proto::export::Expectation {
        let output_len = match self.load.data {
            Data::Random { output_len, .. } | Data::Sharegpt { output_len, .. } => output_len,
        };
        proto::export::Expectation {
            num_prompts: self.load.num_prompts,
            dataset: self.load.data.dataset(),
            output_len,
            ignore_eos: self.load.ignore_eos,
            rollout: self.load.rollout.as_ref().map(|r| proto::export::Rollout {
                samples: r.samples,
                min_mean_output_tokens: r.min_mean_output_tokens,
            }),
        }
    }
}
