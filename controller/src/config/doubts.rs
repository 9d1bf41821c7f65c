//! Remarks about a configuration that are not errors: each says what it will do to the numbers, and what to write instead.

use proto::finding::{Finding, FindingId};
use proto::limits::BenchTool;

use super::keys::CONTAINER_ONLY;
use super::reader::Reader;
use super::trial::{RuntimeKind, Trial};
use super::value::{Duplicate, Pos};

/// A key that stands twice.
pub(super) fn duplicate(duplicate: &Duplicate) -> Finding {
    let Duplicate { key, at } = duplicate;
    let detail = format!("the key {key} stands twice in one mapping; the last one, at {at}, counts");
    Finding::new(FindingId::ConfigDoubtful, detail, "remove one of the two")
}

/// A key that nobody knows (contract E.1).
pub(super) fn unknown_key(name: &str, at: Pos, nearest: Option<&str>) -> Finding {
    let detail = format!("ignoring unknown workload_config key {name:?} ({at})");
    let hint = match nearest {
        Some(known) => format!("did you mean {known}? the trial runs without it"),
        None => "remove it, or see `controller schema config --format markdown` for the keys".to_owned(),
    };
    Finding::new(FindingId::UnknownKey, detail, hint)
}

/// Everything that is odd about a valid trial.
pub(super) fn about(trial: &Trial, r: &Reader<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(concurrency_cap(trial));
    findings.extend(no_ttft(trial));
    findings.extend(short_deadline(trial, r));
    if trial.own.lease_sec == 0 {
        let detail = "lease_sec is 0: if the controller is killed, nothing ends the trial before its deadlines";
        findings.push(Finding::new(FindingId::LeaseOff, detail, "remove lease_sec"));
    }
    if trial.own.runtime == RuntimeKind::Process {
        findings.extend(ignored_under_process(r));
    }
    findings
}

/// Design section 3: the released bench tool never has more than 100 requests in flight.
fn concurrency_cap(trial: &Trial) -> Option<Finding> {
    const CAP: u64 = 100;
    let in_flight = trial.load.max_concurrency.unwrap_or(u64::MAX).min(trial.load.num_prompts);
    if trial.own.bench_tool != BenchTool::Tokenspeed || in_flight <= CAP {
        return None;
    }
    let detail = format!(
        "{in_flight} requests may be in flight, but the released bench tool holds {CAP} connections at most and counts the wait for one as time to first token"
    );
    let hint = format!("set max_concurrency to at most {CAP}, or bench_tool: native");
    Some(Finding::new(FindingId::ToolConcurrencyCap, detail, hint))
}

/// Contract L.1, number 6.
fn no_ttft(trial: &Trial) -> Option<Finding> {
    let metrics = &trial.load.percentile_metrics;
    if metrics.split(',').any(|metric| metric.trim() == "ttft") {
        return None;
    }
    let detail = format!(
        "percentile_metrics is {metrics:?}: without ttft the export has no mean_ttft_ms, so every step will be result_json_unusable"
    );
    Some(Finding::new(FindingId::ConfigDoubtful, detail, "add ttft to percentile_metrics"))
}

/// Failure scenario FS-84: a deadline that can end a run in which every part kept its own.
fn short_deadline(trial: &Trial, r: &Reader<'_>) -> Option<Finding> {
    r.raw("timeout_sec").filter(|value| !value.is_null())?;
    let timing = &trial.timing;
    let steps = u64::from(trial.load.steps).saturating_add(u64::from(trial.load.warmup_steps));
    let parts = timing
        .ready_timeout_sec
        .saturating_add(steps.saturating_mul(timing.bench_timeout_sec))
        .saturating_add(timing.teardown_grace_sec);
    let short = timing.timeout_sec < parts;
    let detail = format!(
        "timeout_sec {} is below the sum of its parts, {parts} s: a run in which every part keeps its deadline can still be cut",
        timing.timeout_sec
    );
    short.then(|| Finding::new(FindingId::ConfigDoubtful, detail, "omit timeout_sec, or raise it"))
}

/// Design section 4: one finding that lists the keys.
fn ignored_under_process(r: &Reader<'_>) -> Option<Finding> {
    let given: Vec<&str> =
        CONTAINER_ONLY.iter().copied().filter(|key| r.raw(key).is_some_and(|v| !v.is_null())).collect();
    if given.is_empty() {
        return None;
    }
    let detail = format!("the process runtime has no container and ignores {}", given.join(", "));
    Some(Finding::new(
        FindingId::IgnoredUnderProcess,
        detail,
        "nothing to do, unless a container was meant: --runtime docker",
    ))
}
