//! From facts to the document: fields of contract I.3, the object `trial`, findings that follow from the exports.

use proto::exit::AgentExit;
use proto::export::OutputLens;
use proto::finding::{Finding, FindingId};

use super::aggregate::metrics;
use super::details::{client_bound, failures, short_output, step_of, steps_observed};
use super::document::{FailureDetail, ResultDocument, ResultFile, TrialRecord, Verdict};
use super::observed::{GpuMemory, Observed};
use crate::config::trial::Trial;
use crate::error::SCHEMA_VERSION;

/// The document of what was seen so far.
pub fn assemble(trial: &Trial, seen: &Observed) -> ResultDocument {
    let mut details = failures(trial, seen);
    let findings = findings(trial, seen);
    if trial.own.strict_load && seen.interruption().is_none() {
        details.extend(findings.iter().filter(|f| is_load_finding(f.id)).map(as_failure));
    }
    let started = !seen.records.is_empty() || seen.markers.step_starts > 0;
    ResultDocument {
        schema_version: SCHEMA_VERSION,
        // A trial without an end has not passed, whatever was measured so far.
        passed: details.is_empty() && seen.end.is_some(),
        failure_count: details.len() as u64,
        first_failure_iteration: first_failure(&details, started),
        total_iterations: steps_observed(seen),
        step_times_ms: seen
            .records
            .iter()
            .filter_map(|r| r.export.scalar("duration"))
            .map(|duration| duration.as_f64() * 1000.0)
            .filter(|ms| ms.is_finite())
            .collect(),
        elapsed_sec: seen.elapsed.as_secs_f64(),
        metrics: metrics(trial, seen),
        main_work_started: started,
        executed_iterations: seen.records.len() as u64,
        configured_iterations: u64::from(trial.load.steps),
        trial: record(trial, seen, &details, findings),
        failure_details: details,
    }
}

/// Smallest step among the details, zero-based; 0 where none names one and main work started.
fn first_failure(details: &[FailureDetail], started: bool) -> Option<u64> {
    if details.is_empty() {
        return None;
    }
    let smallest = details.iter().filter_map(step_of).min();
    smallest.map(|step| step.saturating_sub(1)).or(started.then_some(0))
}

fn record(trial: &Trial, seen: &Observed, details: &[FailureDetail], findings: Vec<Finding>) -> TrialRecord {
    let container = seen.identity.runtime.is_container();
    TrialRecord {
        run_token: seen.identity.token.as_str().to_owned(),
        runtime: seen.identity.runtime,
        image: container.then(|| trial.image.clone()),
        container_name: seen.identity.container.clone(),
        out_dir: seen.identity.out_dir.display().to_string(),
        agent: seen.agent.clone(),
        controller_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: seen.started_at.clone(),
        agent_verdict: agent_verdict(seen),
        host_verdict: Verdict {
            reason: details.first().map_or_else(|| "pass".to_owned(), |d| d.reason.clone()),
            exit_code: None,
        },
        phases: seen.phases.clone(),
        first_token_ms: seen.first_token_ms,
        processes: seen.processes.clone(),
        lease: seen.lease.clone(),
        signals: seen.signals.clone(),
        result_files: seen
            .records
            .iter()
            .map(|r| ResultFile {
                step: r.step,
                path: r.path.display().to_string(),
                sha256: r.export.sha256.clone(),
                bytes: r.export.bytes,
            })
            .collect(),
        findings,
        reaper: seen.reaper.clone(),
    }
}

/// What the agent said by its status.
fn agent_verdict(seen: &Observed) -> Option<Verdict> {
    if seen.passed_behind_a_hung_client() {
        return Some(Verdict { reason: AgentExit::Pass.reason().to_owned(), exit_code: None });
    }
    let status = seen.agent_exit?;
    let reason = match AgentExit::from_code(status) {
        Some(row) => row.reason(),
        None => proto::exit::CONTAINER_FAILED,
    };
    Some(Verdict { reason: reason.to_owned(), exit_code: Some(status) })
}

/// Findings that were noted on the way, and those that follow from the whole.
fn findings(trial: &Trial, seen: &Observed) -> Vec<Finding> {
    let mut out = seen.findings.clone();
    let mut add = |finding: Finding| {
        if !out.contains(&finding) {
            out.push(finding);
        }
    };
    if let Some(detail) = short_output(trial, &seen.records) {
        add(Finding::new(
            FindingId::ShortOutputWork,
            detail,
            "streams ended early and were counted as completed: look at the server log before comparing throughput",
        ));
    }
    if let Some(detail) = client_bound(trial, &seen.records) {
        add(Finding::new(
            FindingId::ClientBound,
            detail,
            "read client.certification in the exports; give the client a core of its own, or lower the load",
        ));
    }
    if !trial.gpus.exclusive
        && let GpuMemory::Outstanding(held) = &seen.gpu_memory
    {
        let gpus: Vec<_> = held.iter().map(|g| g.index.to_string()).collect();
        add(Finding::new(
            FindingId::GpuMemoryOutstanding,
            format!("GPU {} held 8 GiB or more beyond the sample before the run when waiting ended", gpus.join(", ")),
            "if no other job shares these GPUs, set exclusive_gpus: true and the trial fails instead",
        ));
    }
    if let GpuMemory::Unreadable(gpus) = &seen.gpu_memory {
        let gpus: Vec<_> = gpus.iter().map(ToString::to_string).collect();
        add(Finding::new(
            FindingId::GpuMemoryUnreadable,
            format!("the memory of GPU {} could be read before the run and cannot be now", gpus.join(", ")),
            "look at the GPU and at dmesg before the next trial: it may have fallen off the bus",
        ));
    }
    let lens_absent = |r: &super::observed::Record| matches!(r.export.output_lens, OutputLens::Absent);
    if trial.load.save_detailed && trial.expectation().respects_eos() && seen.records.iter().any(lens_absent) {
        add(Finding::new(
            FindingId::OutputLensAbsent,
            "save_detailed is on and an export carries no output_lens",
            "the length figures are missing; see whether the bench tool of the image knows --save-detailed",
        ));
    }
    if let Some(rollout) = &trial.load.rollout
        && rollout.samples > 1
    {
        add(Finding::new(
            FindingId::ChoicesAreNotRollouts,
            format!("{} choices per request: an engine may return them identical", rollout.samples),
            "read these cells as a measure of batching; a training loop sends separate requests",
        ));
    }
    out
}

/// The findings that `strict_load` turns into failures (design section 3).
const fn is_load_finding(id: FindingId) -> bool {
    matches!(id, FindingId::ToolConcurrencyCap | FindingId::ShortOutputWork | FindingId::ClientBound)
}

fn as_failure(finding: &Finding) -> FailureDetail {
    let reason = serde_json::to_value(finding.id).ok().and_then(|v| v.as_str().map(str::to_owned));
    FailureDetail {
        reason: reason.unwrap_or_default(),
        detail: finding.detail.clone(),
        hint: finding.hint.clone(),
        facts: serde_json::Map::new(),
    }
}
