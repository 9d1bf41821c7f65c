//! What is left of the environment once every rule holds.

use std::fmt;
use std::path::PathBuf;

use proto::event::{Step, StepKind};
use proto::export::Expectation;
use proto::limits::{BenchTool, Dataset, SamplingBackend};
use proto::names::{self, RunToken};

use super::Listen;

/// A validated trial, as the agent runs it.
#[derive(Debug, Clone)]
pub struct LaunchPlan {
    /// Part of every file name.
    pub token: RunToken,
    /// Where everything is written.
    pub out_dir: PathBuf,
    /// What the server loads.
    pub model: String,
    /// What the bench asks for.
    pub served_model: String,
    /// What the bench tokenizes with.
    pub tokenizer: String,
    /// OpenAI surface.
    pub gateway_port: u16,
    /// Health and server information; differs from the gateway port.
    pub control_port: u16,
    /// Seconds until `/health` must have answered.
    pub ready_timeout_sec: u64,
    /// The orchestrator's budget for its gateway, passed on as written.
    pub gateway_startup_timeout: String,
    /// Seconds per step.
    pub bench_timeout_sec: u64,
    /// Seconds between SIGTERM and SIGKILL for the server.
    pub teardown_grace_sec: u64,
    /// How long the gateway drains; always ends inside the grace.
    pub drain: Drain,
    /// Measured steps.
    pub steps: u32,
    /// Discarded steps.
    pub warmup_steps: u32,
    /// What each step asks for.
    pub load: Load,
    /// Rollout mode.
    pub rollout: Option<Rollout>,
    /// Extra arguments of the server, one for one.
    pub serve_args: Vec<String>,
    /// Extra arguments of the bench, one for one.
    pub bench_args: Vec<String>,
    /// The program that makes the load.
    pub bench_tool: BenchTool,
    /// Grace after a lost lease, seconds; 0 is off.
    pub lease_sec: u64,
    /// Whether somebody asked for a lease by name, as a controller always does.
    pub lease_named: bool,
    /// Whether a streamed token must be seen before the first step.
    pub generate_probe: bool,
    /// Where the status stream listens.
    pub grpc_listen: Listen,
    /// Token of a status stream over TCP.
    pub grpc_token: Option<Secret>,
    /// Where metrics are served.
    pub metrics_listen: Listen,
}

/// How long the gateway drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// The serve extras say so themselves; nothing is generated.
    InExtras(u64),
    /// Passed by us, seconds.
    Generated(u64),
}

/// What each step asks for.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where prompts come from.
    pub data: Data,
    /// Requests per step, and what the audit counts against.
    pub num_prompts: u64,
    /// Tokens; sent for `random` only, and each completion's cap there.
    pub output_len: u64,
    /// Requests in flight, passed on as written; `None` is unbounded.
    pub max_concurrency: Option<String>,
    /// Requests per second, passed on as written.
    pub request_rate: String,
    /// Warm-up requests inside a step.
    pub num_warmups: u64,
    /// Whether every output is pinned to its full length.
    pub ignore_eos: bool,
    /// Seed, passed on as written.
    pub seed: String,
    /// Metrics with percentiles, as written.
    pub percentile_metrics: String,
    /// Percentiles, as written.
    pub metric_percentiles: String,
    /// Whether exports keep per-request arrays.
    pub save_detailed: bool,
}

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Made from lengths.
    Random {
        /// Tokens.
        input_len: u64,
    },
    /// Conversations of a file.
    Sharegpt {
        /// A file that this process can read.
        path: PathBuf,
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

/// Rollout mode.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// Completions per prompt.
    pub samples: u64,
    /// In (0, 2].
    pub temperature: Decimal,
    /// In (0, 1]; `None` is the server's own.
    pub top_p: Option<Decimal>,
    /// Tokens per completion; 0 is off.
    pub min_mean_output_tokens: u64,
    /// What the server samples with.
    pub backend: SamplingBackend,
}

/// A plain decimal in its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decimal(f64);

impl Decimal {
    /// Reads a plain decimal in (0, max]; the error is the contract's phrase.
    pub fn parse(value: &str, max: f64) -> Result<Self, String> {
        let number = proto::text::plain_decimal(value)
            .ok_or_else(|| format!("must be a plain decimal number, got '{value}'"))?;
        if number > 0.0 && number <= max {
            Ok(Self(number))
        } else {
            Err(format!("must be greater than 0 and at most {max}, got '{value}'"))
        }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&proto::text::print_decimal(self.0))
    }
}

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for the one place that compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// One step of this plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepId {
    /// Discarded, from 1.
    Warmup(u32),
    /// Measured, from 1.
    Measured(u32),
}

impl StepId {
    /// `bench` or `bench-warmup`, as in file names and labels.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Warmup(_) => "bench-warmup",
            Self::Measured(_) => "bench",
        }
    }

    /// From 1.
    pub const fn number(self) -> u32 {
        match self {
            Self::Warmup(n) | Self::Measured(n) => n,
        }
    }

    /// `step 2` or `warmup step 1`, as in the marker lines.
    pub fn words(self) -> String {
        match self {
            Self::Warmup(n) => format!("warmup step {n}"),
            Self::Measured(n) => format!("step {n}"),
        }
    }
}

impl LaunchPlan {
    /// The first step.
    pub const fn first_step(&self) -> StepId {
        if self.warmup_steps > 0 { StepId::Warmup(1) } else { StepId::Measured(1) }
    }

    /// The step after this one.
    pub const fn step_after(&self, step: StepId) -> Option<StepId> {
        match step {
            StepId::Warmup(n) if n < self.warmup_steps => Some(StepId::Warmup(n + 1)),
            StepId::Warmup(_) => Some(StepId::Measured(1)),
            StepId::Measured(n) if n < self.steps => Some(StepId::Measured(n + 1)),
            StepId::Measured(_) => None,
        }
    }

    /// The step as events show it.
    pub const fn describe(&self, step: StepId) -> Step {
        match step {
            StepId::Warmup(number) => Step { kind: StepKind::Warmup, number, total: self.warmup_steps },
            StepId::Measured(number) => Step { kind: StepKind::Measured, number, total: self.steps },
        }
    }

    /// Where a step's export goes.
    pub fn export(&self, step: StepId) -> PathBuf {
        self.out_dir.join(match step {
            StepId::Warmup(n) => names::warmup_export(&self.token, n),
            StepId::Measured(n) => names::export(&self.token, n),
        })
    }

    /// Where a step's output goes.
    pub fn bench_log(&self, step: StepId) -> PathBuf {
        self.out_dir.join(names::bench_log(&self.token, matches!(step, StepId::Warmup(_)), step.number()))
    }

    /// Where the server's output goes.
    pub fn server_log(&self) -> PathBuf {
        self.out_dir.join(names::server_log(&self.token))
    }

    /// What every export is judged against.
    pub fn expectation(&self) -> Expectation {
        Expectation {
            num_prompts: self.load.num_prompts,
            dataset: self.load.data.dataset(),
            output_len: self.load.output_len,
            ignore_eos: self.load.ignore_eos,
            rollout: self.rollout.as_ref().map(|r| proto::export::Rollout {
                samples: r.samples,
                min_mean_output_tokens: r.min_mean_output_tokens,
            }),
        }
    }
}
