//! What one run leaves behind for the baseline: fingerprints, and the mean of every metric per cell.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::{Date, OffsetDateTime};

/// Why the run was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// By the clock: a point of the series.
    Scheduled,
    /// By a person: stored, and in no series.
    Manual,
}

/// One run of one or more recipes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// 1.
    pub schema_version: u32,
    /// Unique among all runs.
    pub run_id: String,
    /// Why it ran.
    pub trigger: Trigger,
    /// Unix seconds at its start.
    pub started_at: i64,
    /// One entry per recipe.
    pub entries: BTreeMap<String, EntryRecord>,
}

impl RunRecord {
    /// The night: the day of the start, UTC.
    pub fn night(&self) -> Option<Date> {
        OffsetDateTime::from_unix_timestamp(self.started_at).ok().map(OffsetDateTime::date)
    }
}

/// One recipe in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryRecord {
    /// What was measured on what: `recipe_sha256`, `image_digest`, `agent_digest`, `engine_version`,
    /// `rocm_version`, `host`, `gpu_model`, `bench_tool`, ... Every key gates.
    #[serde(default)]
    pub fingerprint: BTreeMap<String, Option<String>>,
    /// Why this machine cannot run the entry at all; absent where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// By name.
    #[serde(default)]
    pub cells: BTreeMap<String, CellRecord>,
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// Every trial passed.
    Passed,
    /// A trial failed, or passed a deadline, or left no result.
    Failed,
    /// No trial began its main work.
    DidNotRun,
}

/// One cell in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// How it ended.
    pub state: CellState,
    /// Why it failed or did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Digest of the resolved cell configuration; gates like the fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// Mean over the passing trials, by metric. Absent metrics are absent, never zero.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Mean step time, ms; no metric, so that no bless can touch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_step_time_ms: Option<f64>,
    /// Values that must be equal from run to run, such as a checksum.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub correctness: BTreeMap<String, Value>,
}

impl CellRecord {
    /// An observation; only passing cells have any.
    pub fn observation(&self, metric: &str) -> Option<f64> {
        match self.state {
            CellState::Passed => self.metrics.get(metric).copied().filter(|value| value.is_finite()),
            CellState::Failed | CellState::DidNotRun => None,
        }
    }
}
