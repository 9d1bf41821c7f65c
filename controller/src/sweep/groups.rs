//! Steps and trials that fall into separate groups: flagged, because a mean over two modes is a figure of neither.

use serde_json::Value;

use super::trial::{StepTimeSource, TrialRecord, Verdict};
use crate::result::details::significant;
use crate::stats::groups::{Groups, separate};

/// Figures of whole trials that are looked at: metric and unit.
const OF_TRIALS: [(&str, &str); 3] =
    [("output_throughput", "tok/s"), ("median_ttft_ms", "ms"), ("median_tpot_ms", "ms")];
/// Names listed at most.
const MOST_NAMES: usize = 4;

/// What falls apart in a cell, a sentence each. Trials that did not pass are left out: they say so themselves.
pub fn flags(cell: &str, trials: &[(u32, TrialRecord)]) -> Vec<String> {
    let passed: Vec<&(u32, TrialRecord)> = trials.iter().filter(|(_, t)| t.verdict() == Verdict::Pass).collect();
    let mut flags = Vec::new();
    let mut steps = Vec::new();
    for (index, trial) in &passed {
        let (times, source) = trial.timing(0);
        if source == StepTimeSource::PerStep {
            let name = |step: usize| format!("trial {} step {}", index + 1, step + 1);
            steps.extend(times.into_iter().enumerate().map(|(step, time)| (name(step), time)));
        }
    }
    flags.extend(flag(cell, "step times", "ms", &steps));
    for (metric, unit) in OF_TRIALS {
        let values: Vec<(String, f64)> = passed
            .iter()
            .filter_map(|(index, trial)| {
                let value = trial.metrics()?.get(metric).and_then(Value::as_f64)?;
                Some((format!("trial {}", index + 1), value))
            })
            .collect();
        flags.extend(flag(cell, metric, unit, &values));
    }
    flags
}

fn flag(cell: &str, what: &str, unit: &str, values_by_name: &[(String, f64)]) -> Option<String> {
    let values: Vec<f64> = values_by_name.iter().map(|(_, value)| *value).collect();
    let Groups { low, high, low_max, high_min, ratio } = separate(&values)?;
    let fewer = if high.len() <= low.len() { &high } else { &low };
    let mut names: Vec<&str> = fewer.iter().take(MOST_NAMES).map(|at| values_by_name[*at].0.as_str()).collect();
    let more = format!("{} more", fewer.len().saturating_sub(MOST_NAMES));
    if fewer.len() > MOST_NAMES {
        names.push(&more);
    }
    Some(format!(
        "{cell}: {what} fall into two groups, {} up to {} {unit} and {} from {} {unit} ({} times apart; {}): the mean stands for neither",
        low.len(),
        significant(low_max),
        high.len(),
        significant(high_min),
        significant(ratio),
        names.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::trial::ExitStatus;
    use serde_json::json;

    fn trial(exit_status: ExitStatus, steps: &[f64], throughput: f64) -> TrialRecord {
        let result = json!({"step_times_ms": steps, "metrics": {"output_throughput": throughput}});
        let Value::Object(result) = result else { panic!() };
        TrialRecord { exit_status, wall_clock_sec: 1.0, result }
    }

    #[test]
    fn one_slow_mode_among_fast_ones() {
        let ok = ExitStatus::Ok;
        let trials = [(0, trial(ok, &[100.0, 101.0, 180.0], 50.0)), (1, trial(ok, &[102.0, 100.0, 99.0], 51.0))];
        let found = flags("a", &trials);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0],
            "a: step times fall into two groups, 5 up to 102 ms and 1 from 180 ms (1.765 times apart; trial 1 step 3): the mean stands for neither"
        );
        let trials = [(0, trial(ok, &[100.0], 50.0)), (1, trial(ok, &[101.0], 90.0)), (2, trial(ok, &[100.0], 51.0))];
        let found = flags("a", &trials);
        assert!(
            found.len() == 1 && found[0].contains("output_throughput") && found[0].contains("trial 2"),
            "{found:?}"
        );
    }

    #[test]
    fn one_crowd_and_failed_trials_are_not_flagged() {
        let (ok, failed) = (ExitStatus::Ok, ExitStatus::WorkloadFailed);
        let crowd = [(0, trial(ok, &[100.0, 103.0], 50.0)), (1, trial(ok, &[98.0, 101.0], 51.0))];
        assert_eq!(flags("a", &crowd), [""; 0]);
        let lone = [(0, trial(ok, &[100.0], 50.0)), (1, trial(failed, &[500.0], 9.0))];
        assert_eq!(flags("a", &lone), [""; 0]);
    }
}
