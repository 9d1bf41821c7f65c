//! Ranges and defaults that both sides enforce, so that what the host accepts never exits 64 in the
//! container (seed, "Ports and timeouts are validated"; contract A.2 and E.2).

use std::ops::RangeInclusive;

/// Ports that an unprivileged container can bind.
pub const PORT: RangeInclusive<u64> = 1024..=65535;
/// Gateway ports when the control port is derived as gateway + 1.
pub const PORT_WITH_DERIVED_CONTROL: RangeInclusive<u64> = 1024..=65534;
/// Seconds to wait for `/health`.
pub const READY_TIMEOUT_SEC: RangeInclusive<u64> = 1..=86400;
/// Seconds between SIGTERM and SIGKILL; below 5 no positive drain fits inside.
pub const TEARDOWN_GRACE_SEC: RangeInclusive<u64> = 5..=3600;
/// Seconds per bench step: at most a year, which every timer can hold.
pub const BENCH_TIMEOUT_SEC: RangeInclusive<u64> = 1..=365 * 24 * 3600;
/// Completions per prompt.
pub const ROLLOUT_SAMPLES: RangeInclusive<u64> = 1..=1024;
/// Grace after a lost lease, seconds.
pub const LEASE_SEC: RangeInclusive<u64> = 0..=86400;

/// Sampling temperature, greater than 0.
pub const TEMPERATURE_MAX: f64 = 2.0;
/// Nucleus bound, greater than 0.
pub const TOP_P_MAX: f64 = 1.0;

/// Values where the environment or the config is silent.
pub mod default {
    /// Model.
    pub const MODEL: &str = "Qwen/Qwen3-0.6B";
    /// Gateway port of a hand-run agent.
    pub const PORT: u16 = 8000;
    /// Seconds.
    pub const READY_TIMEOUT_SEC: u64 = 900;
    /// Measured steps.
    pub const STEPS: u32 = 1;
    /// Discarded steps.
    pub const WARMUP_STEPS: u32 = 1;
    /// Requests per step.
    pub const NUM_PROMPTS: u64 = 64;
    /// Tokens.
    pub const INPUT_LEN: u64 = 1024;
    /// Tokens.
    pub const OUTPUT_LEN: u64 = 128;
    /// Requests.
    pub const NUM_WARMUPS: u64 = 1;
    /// Seed.
    pub const SEED: u64 = 0;
    /// Requests per second.
    pub const REQUEST_RATE: &str = "inf";
    /// Metrics.
    pub const PERCENTILE_METRICS: &str = "ttft,tpot,itl,e2el";
    /// Percentiles.
    pub const METRIC_PERCENTILES: &str = "50,90,99";
    /// Seconds per step.
    pub const BENCH_TIMEOUT_SEC: u64 = 1800;
    /// Seconds.
    pub const TEARDOWN_GRACE_SEC: u64 = 45;
    /// In the container.
    pub const OUT_DIR: &str = "/ts-out";
    /// Seconds.
    pub const LEASE_SEC: u64 = 20;
    /// Completions per prompt that the controller sends under rollout.
    pub const ROLLOUT_SAMPLES: u64 = 4;
    /// Temperature under rollout.
    pub const TEMPERATURE: f64 = 1.0;
    /// Floor under rollout, tokens.
    pub const MIN_MEAN_OUTPUT_TOKENS: u64 = 8;
}

/// Seconds that the gateway may drain when nobody says otherwise: inside the grace, with room to exit.
pub const fn derived_drain_sec(teardown_grace_sec: u64) -> u64 {
    if teardown_grace_sec > 15 { teardown_grace_sec - 5 } else { teardown_grace_sec - 2 }
}

/// The sampling backends that exist on the images served from (seed, rollout mode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingBackend {
    /// `triton`
    Triton,
    /// `triton_full`
    TritonFull,
}

impl SamplingBackend {
    /// The exact spelling, which the engine echoes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Triton => "triton",
            Self::TritonFull => "triton_full",
        }
    }

    /// Reads the exact spelling; the error says why another one cannot be had.
    pub fn parse(value: &str) -> Result<Self, String> {
        match value {
            "triton" => Ok(Self::Triton),
            "triton_full" => Ok(Self::TritonFull),
            "greedy" => Err(
                "greedy ignores temperature, top_p and seed, so nothing would be sampled; use triton or triton_full"
                    .into(),
            ),
            "flashinfer" | "flashinfer_full" => {
                Err(format!("{value} is CUDA-only and not registered on ROCm images; use triton or triton_full"))
            }
            _ => Err(format!("must be triton or triton_full, got {value:?}")),
        }
    }
}

/// The dataset that a bench step draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dataset {
    /// Prompts made from input and output length.
    Random,
    /// Real conversation lengths from a file.
    Sharegpt,
}

impl Dataset {
    /// The exact spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sharegpt => "sharegpt",
        }
    }

    /// Reads the exact spelling.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "random" => Some(Self::Random),
            "sharegpt" => Some(Self::Sharegpt),
            _ => None,
        }
    }
}

/// The program that makes the load (design section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BenchTool {
    /// `tokenspeed bench serve`
    Tokenspeed,
    /// `agent load`
    Native,
}

impl BenchTool {
    /// The exact spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokenspeed => "tokenspeed",
            Self::Native => "native",
        }
    }

    /// Reads the exact spelling.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "tokenspeed" => Some(Self::Tokenspeed),
            "native" => Some(Self::Native),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_fits_inside_every_grace() {
        for grace in TEARDOWN_GRACE_SEC {
            let drain = derived_drain_sec(grace);
            assert!((1..grace).contains(&drain), "{grace}");
        }
        assert_eq!([45, 16, 15, 5].map(derived_drain_sec), [40, 11, 13, 3]);
    }

    #[test]
    fn words_are_exact_both_ways() {
        for (backend, word) in [(SamplingBackend::Triton, "triton"), (SamplingBackend::TritonFull, "triton_full")] {
            assert_eq!((backend.as_str(), SamplingBackend::parse(word)), (word, Ok(backend)));
        }
        for (bad, why) in [
            ("greedy", "nothing would be sampled"),
            ("flashinfer", "CUDA-only"),
            ("flashinfer_full", "CUDA-only"),
            ("Triton", "got \"Triton\""),
            ("triton ", "got \"triton \""),
            ("", "got \"\""),
        ] {
            let error = SamplingBackend::parse(bad).unwrap_err();
            assert!(error.contains(why) && error.contains("triton or triton_full"), "{bad:?}: {error}");
        }
        for (dataset, word) in [(Dataset::Random, "random"), (Dataset::Sharegpt, "sharegpt")] {
            assert_eq!((dataset.as_str(), Dataset::parse(word)), (word, Some(dataset)));
        }
        for (tool, word) in [(BenchTool::Tokenspeed, "tokenspeed"), (BenchTool::Native, "native")] {
            assert_eq!((tool.as_str(), BenchTool::parse(word)), (word, Some(tool)));
        }
        for bad in ["", "Random", " random", "native ", "Tokenspeed"] {
            assert_eq!((Dataset::parse(bad), BenchTool::parse(bad)), (None, None), "{bad:?}");
        }
    }
}
