//! A cell's trials, aggregated as AORTA does it (integration notes, section 8).

use std::collections::BTreeMap;

use proto::stats;
use serde_json::{Map, Value, json};

use super::trial::{Outcome, StepTimeSource, TrialRecord, Verdict};

/// Share of errored trials from which a cell's failure rate rests on too little.
const UNRELIABLE_ERROR_RATE: f64 = 0.10;

/// Facts about a run that are kept whatever the verdict.
const AUDIT_KEYS: [&str; 9] = [
    "declared_h2d_tensor_size",
    "effective_h2d_tensor_size",
    "reduce_scatter_oracle_dtype",
    "corruption_details_omitted",
    "world_size",
    "local_world_size",
    "expected_local_world_size",
    "topology_matches_recipe",
    "node_count",
];

/// What identifies a cell and how it was configured.
#[derive(Debug, Clone, Default)]
pub struct CellIdentity {
    /// Name in the recipe.
    pub name: String,
    /// Registry names, in order.
    pub mitigations: Vec<String>,
    /// Registry name, or `_inline_<hash>`.
    pub environment: String,
    /// As the cell has it.
    pub extra_env: BTreeMap<String, String>,
    /// What the trials got.
    pub resolved_env_vars: BTreeMap<String, String>,
    /// Recipe and cell merged.
    pub workload_config: Map<String, Value>,
    /// Steps per trial.
    pub steps: u32,
}

/// Step times over all trials of a cell, milliseconds; zeros without samples, as AORTA writes them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timing {
    /// Every sample, trial by trial.
    pub samples: Vec<f64>,
    /// Mean.
    pub mean: f64,
    /// Population deviation.
    pub std: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Timing {
    fn over(samples: Vec<f64>) -> Self {
        let sorted = stats::sorted(samples.clone());
        let at = |p| stats::percentile(&sorted, p).unwrap_or(0.0);
        let mean = mean(&samples);
        let squares: Vec<f64> = samples.iter().map(|sample| (sample - mean).powi(2)).collect();
        Self {
            mean,
            std: self::mean(&squares).sqrt(),
            min: at(0.0),
            max: at(100.0),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            samples,
        }
    }
}

/// Mean, 0 without samples.
fn mean(values: &[f64]) -> f64 {
    stats::mean(values).unwrap_or(0.0)
}

/// Mean, extremes and count of one metric over a cell's passing trials.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSummary {
    /// Name.
    pub name: String,
    /// One value per passing trial that has it.
    pub values: Vec<f64>,
}

impl MetricSummary {
    /// Mean over trials.
    pub fn mean(&self) -> f64 {
        mean(&self.values)
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    fn to_json(&self) -> Value {
        let fold = |pick: fn(f64, f64) -> f64| self.values.iter().copied().reduce(pick);
        json!({"mean": self.mean(), "min": fold(f64::min), "max": fold(f64::max), "n": self.values.len() as f64})
    }
}

/// Executed and configured iterations over a cell's trials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iterations {
    executed: Option<(i64, i64)>,
    configured: Option<i64>,
    /// `N/C`, `min..max/C`, `—/C` (some trial does not say), `?/?` (C differs) or `—`.
    pub display: String,
}

impl Iterations {
    fn over(trials: &[TrialRecord]) -> Self {
        let mut configured: Vec<i64> = trials.iter().filter_map(|t| t.integer("configured_iterations")).collect();
        configured.dedup();
        let unsaid = |configured, display: String| Self { executed: None, configured, display };
        let total = match configured[..] {
            [] => return unsaid(None, "—".into()),
            [total] => total,
            _ => return unsaid(None, "?/?".into()),
        };
        let executed: Option<Vec<i64>> = trials.iter().map(|t| t.integer("executed_iterations")).collect();
        let range = executed.and_then(|all| Some((*all.iter().min()?, *all.iter().max()?)));
        let display = match range {
            None => return unsaid(Some(total), format!("—/{total}")),
            Some((min, max)) if min == max => format!("{min}/{total}"),
            Some((min, max)) => format!("{min}..{max}/{total}"),
        };
        Self { executed: range, configured: Some(total), display }
    }
}

/// A cell's figures.
#[derive(Debug, Clone)]
pub struct CellStats {
    /// Which cell.
    pub identity: CellIdentity,
    /// Trials run.
    pub trials: usize,
    /// Trials that passed.
    pub passed: usize,
    /// Trials that failed.
    pub failed: usize,
    /// Trials that never validly ran.
    pub errored: usize,
    /// Why the whole cell could not run.
    pub error: Option<String>,
    /// Step times.
    pub timing: Timing,
    /// The worst source that contributed.
    pub source: StepTimeSource,
    /// Mean seconds per trial.
    pub mean_wall_clock_sec: f64,
    /// Steps.
    pub iterations: Iterations,
    /// Remedies and how many trials name them.
    pub hints: Vec<(String, usize)>,
    /// Metrics of passing trials, in order of first appearance.
    pub metrics: Vec<MetricSummary>,
    /// What `stop_after` did.
    pub stop_after_note: Option<String>,
    /// Every trial was taken from an earlier run.
    pub resumed: bool,
    /// Where the trials' documents are.
    pub trial_paths: Vec<String>,
    statuses: Vec<(&'static str, usize)>,
    outcomes: Vec<(&'static str, usize)>,
    audit: Map<String, Value>,
}

impl CellStats {
    /// Aggregates a cell's trials. With `error` the whole cell could not run: its row is kept, its figures are zero.
    pub fn aggregate(
        identity: CellIdentity,
        trials: &[TrialRecord],
        trial_paths: Vec<String>,
        error: Option<String>,
    ) -> Self {
        let whole = error.is_none();
        let counted = if whole { trials } else { &[] };
        let count = |verdict| counted.iter().filter(|t| t.verdict() == verdict).count();
        let timed: Vec<_> = counted.iter().map(|t| t.timing(identity.steps)).collect();
        let source = timed.iter().map(|(_, source)| *source).filter(|s| *s != StepTimeSource::Missing).max();
        let walls: Vec<f64> = counted.iter().map(|t| t.wall_clock_sec).collect();
        Self {
            trials: trials.len(),
            passed: count(Verdict::Pass),
            failed: if whole { count(Verdict::Fail) } else { trials.len() },
            errored: count(Verdict::Error),
            timing: Timing::over(timed.into_iter().flat_map(|(samples, _)| samples).collect()),
            source: source.unwrap_or(StepTimeSource::Missing),
            mean_wall_clock_sec: mean(&walls),
            iterations: Iterations::over(counted),
            hints: tally(trials.iter().flat_map(|t| t.hints()).map(str::to_owned)),
            metrics: metrics(counted),
            stop_after_note: None,
            resumed: false,
            statuses: tally(counted.iter().map(|t| t.exit_status.as_str())),
            outcomes: tally(counted.iter().map(|t| t.outcome().as_str())),
            audit: audit(counted),
            identity,
            trial_paths,
            error,
        }
    }

    /// Failed trials over valid trials.
    pub fn failure_rate(&self) -> f64 {
        ratio(self.failed, self.passed + self.failed)
    }

    /// Errored trials over all trials.
    pub fn error_rate(&self) -> f64 {
        ratio(self.errored, self.trials)
    }

    /// Whether too many trials never validly ran.
    pub fn is_unreliable(&self) -> bool {
        self.error.is_none() && self.errored > 0 && self.error_rate() >= UNRELIABLE_ERROR_RATE
    }

    /// Whether no trial reached its measurement.
    pub fn did_not_run(&self) -> bool {
        self.trials > 0 && self.outcomes == [(Outcome::DidNotRun.as_str(), self.trials)]
    }

    /// The cell as matrix.json has it; key order is AORTA's.
    pub fn to_json(&self, confound: &str, step_time_ratio: Option<f64>, environment: &Value) -> Value {
        let id = &self.identity;
        let counts = |list: &[(&str, usize)]| -> Map<String, Value> {
            list.iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect()
        };
        let t = &self.timing;
        json!({
            "name": id.name,
            "mitigations": id.mitigations,
            "environment": id.environment,
            "extra_env": id.extra_env,
            "resolved_env_vars": id.resolved_env_vars,
            "trials": self.trials,
            "passed_count": self.passed,
            "failed_count": self.failed,
            "mean_step_time_ms": t.mean,
            "std_step_time_ms": t.std,
            "min_step_time_ms": t.min,
            "max_step_time_ms": t.max,
            "p50_step_time_ms": t.p50,
            "p90_step_time_ms": t.p90,
            "p99_step_time_ms": t.p99,
            "mean_wall_clock_sec": self.mean_wall_clock_sec,
            "exit_status_counts": counts(&self.statuses),
            "step_times_ms": t.samples,
            "trial_paths": self.trial_paths,
            "error": self.error,
            "step_time_source": self.source.as_str(),
            "failure_hints": self.hints,
            "outcome_counts": counts(&self.outcomes),
            "executed_iter_min": self.iterations.executed.map(|(min, _)| min),
            "executed_iter_max": self.iterations.executed.map(|(_, max)| max),
            "configured_iters": self.iterations.configured,
            "iters_display": self.iterations.display,
            "workload_config": id.workload_config,
            "top_failure_detector_id": null,
            "top_warn_detector_id": null,
            "stop_after_note": self.stop_after_note,
            "error_count": self.errored,
            "metrics_summary": self.metrics.iter().map(|m| (m.name.clone(), m.to_json())).collect::<Map<_, _>>(),
            "audit_metadata": self.audit,
            "resumed": self.resumed,
            "failure_rate": self.failure_rate(),
            "error_rate": self.error_rate(),
            "unreliable": self.is_unreliable(),
            "confound": confound,
            "step_time_ratio": step_time_ratio,
            "resolved_environment": environment,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of trials")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Counts, in order of first appearance.
fn tally<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<(T, usize)> {
    let mut counts: Vec<(T, usize)> = Vec::new();
    for item in items {
        match counts.iter_mut().find(|(seen, _)| *seen == item) {
            Some((_, n)) => *n += 1,
            None => counts.push((item, 1)),
        }
    }
    counts
}

/// Finite numbers among the metrics of passing trials; a failed trial measured nothing worth a mean.
fn metrics(trials: &[TrialRecord]) -> Vec<MetricSummary> {
    let mut summaries: Vec<MetricSummary> = Vec::new();
    for trial in trials.iter().filter(|t| t.verdict() == Verdict::Pass) {
        for (name, value) in trial.metrics().into_iter().flatten() {
            let Some(value) = value.as_f64().filter(|v| v.is_finite()) else { continue };
            match summaries.iter_mut().find(|s| s.name == *name) {
                Some(summary) => summary.values.push(value),
                None => summaries.push(MetricSummary { name: name.clone(), values: vec![value] }),
            }
        }
    }
    summaries
}

fn audit(trials: &[TrialRecord]) -> Map<String, Value> {
    let mut kept: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for metrics in trials.iter().filter_map(TrialRecord::metrics) {
        for (index, key) in AUDIT_KEYS.iter().enumerate() {
            if let Some(value) = metrics.get(*key) {
                let values = kept.entry(index).or_default();
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
    }
    let one = |mut values: Vec<Value>| if values.len() == 1 { values.remove(0) } else { Value::Array(values) };
    kept.into_iter().map(|(index, values)| (AUDIT_KEYS[index].to_owned(), one(values))).collect()
}
