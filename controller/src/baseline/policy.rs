//! Which metrics may be gated, and which way. The direction comes from this list and from nowhere else.

use serde::{Deserialize, Serialize};

/// How a bound is meant. Equality with the bound always passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// At most.
    Max,
    /// At least.
    Min,
    /// Exactly.
    Equal,
}

impl Policy {
    /// Whether an observation passes.
    pub fn passes(self, observed: f64, bound: f64) -> bool {
        match self {
            Self::Max => observed <= bound,
            Self::Min => observed >= bound,
            Self::Equal => observed.partial_cmp(&bound).is_some_and(std::cmp::Ordering::is_eq),
        }
    }

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Min => "min",
            Self::Equal => "equal",
        }
    }
}

/// Gated unless other metrics are named: no queueing in them, untouched by the compile excursion of the first step.
pub const DEFAULT_METRICS: [&str; 2] = ["median_tpot_ms", "p99_itl_ms"];

/// Metrics that a bless may gate, with their direction.
pub const GATEABLE: [(&str, Policy); 11] = [
    ("median_tpot_ms", Policy::Max),
    ("p99_itl_ms", Policy::Max),
    ("median_ttft_ms", Policy::Max),
    ("p99_ttft_ms", Policy::Max),
    ("p99_tpot_ms", Policy::Max),
    ("median_e2el_ms", Policy::Max),
    ("p99_e2el_ms", Policy::Max),
    ("output_throughput", Policy::Min),
    ("request_throughput", Policy::Min),
    ("total_token_throughput", Policy::Min),
    ("tokens_per_sec", Policy::Min),
];

/// Direction of a metric that may be gated; `None` for everything else, which is recorded only.
pub fn direction(metric: &str) -> Option<Policy> {
    GATEABLE.iter().find(|(name, _)| *name == metric).map(|(_, policy)| *policy)
}

/// Why a metric can never be gated automatically; `None` for those that can.
pub fn never(metric: &str) -> Option<String> {
    if metric == "median_itl_ms" {
        return Some(
            "several tokens arrive per chunk, so it is almost nothing, and a multiplicative margin on nothing is \
             nothing; gate p99_itl_ms, or write this bound into the baseline file by hand"
                .to_owned(),
        );
    }
    direction(metric).is_none().then(|| {
        let names: Vec<&str> = GATEABLE.iter().map(|(name, _)| *name).collect();
        format!(
            "it is not on the list of metrics with a known direction, so it is only recorded; on it: {}",
            names.join(", ")
        )
    })
}
