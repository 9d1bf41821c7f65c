//! Failure details, in the order in which contract I.4 appends them, each with AORTA's `hint` (review finding D-04),
//! and after them the four reasons of ours (design section 3).

use proto::exit::failure_reason;
use proto::export::{Layer, Scalar, Unsound, judge};
use proto::marker::Outcome;
use serde_json::{Map, Value, json};

use super::aggregate::{float, means};
use super::document::FailureDetail;
use super::observed::{ClientEnd, GpuMemory, HeldGpu, Interruption, Observed, Record, Removal};
use crate::config::trial::{Gate, GateSide, Trial};

/// Characters of a kept tail (contract I.4).
pub const TAIL_CHARS: usize = 2000;

/// The last [`TAIL_CHARS`] characters of a text, trimmed first.
pub fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let skip = text.chars().count().saturating_sub(TAIL_CHARS);
    text.chars().skip(skip).collect()
}

/// Every failure of the trial.
pub fn failures(trial: &Trial, seen: &Observed) -> Vec<FailureDetail> {
    let mut out = Vec::new();
    if trial.gpus.exclusive
        && let GpuMemory::Outstanding(held) = &seen.gpu_memory
    {
        out.extend(held.iter().map(memory_not_reclaimed));
    }
    match &seen.end {
        Some(ClientEnd::TimedOut) => out.push(timed_out(trial, seen)),
        Some(ClientEnd::Exited(0)) | None => {}
        Some(ClientEnd::Exited(status)) => out.push(client_failed(*status, seen)),
        Some(ClientEnd::Hung(_)) if seen.passed_behind_a_hung_client() => {}
        Some(ClientEnd::Hung(status)) => out.push(client_hung(*status, seen)),
        Some(ClientEnd::Lost { error }) => out.push(client_lost(error, seen)),
        Some(ClientEnd::Interrupted(interruption)) => out.push(interrupted(interruption, seen, trial)),
    }
    // What an interrupted trial did not get to is no failure of its own.
    if seen.interruption().is_none() {
        out.extend(missing_exports(trial, seen));
    }
    out.extend(seen.records.iter().filter_map(|record| unsound(record, trial)));
    if seen.interruption().is_none() && !seen.records.is_empty() {
        let means = means(&seen.records);
        out.extend(trial.gates.iter().filter_map(|gate| gate_failure(gate, means.get(&gate.metric))));
    }
    if let Removal::NotProven { detail, command } = &seen.removal {
        out.push(not_removed(seen, detail, command));
    }
    if !seen.survivors.is_empty() {
        out.push(survivors(seen));
    }
    if out.is_empty() && seen.end.is_some() {
        out.extend(disagreement(trial, seen));
    }
    out
}

/// A detail with its further keys.
fn detail<const N: usize>(
    reason: &str,
    text: impl Into<String>,
    hint: impl Into<String>,
    facts: [(&str, Value); N],
) -> FailureDetail {
    let facts: Map<_, _> = facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    FailureDetail { reason: reason.to_owned(), detail: text.into(), hint: hint.into(), facts }
}

/// Bytes as GiB with one decimal.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn memory_not_reclaimed(gpu: &HeldGpu) -> FailureDetail {
    let address = gpu.pci_address.as_deref().unwrap_or("PCI address unknown");
    let check = if gpu.gpus_on_node > 1 { "; check first that the tool's index means this PCI address" } else { "" };
    detail(
        "gpu_memory_not_reclaimed",
        format!(
            "GPU {} ({address}) still holds {} more than before the run after waiting 300 s; reclaim it with `rocm-smi --gpureset -d {}`{check}",
            gpu.index,
            gib(gpu.held_bytes),
            gpu.index,
        ),
        format!(
            "see what holds GPU {} ({address}) and, if nothing does, reset it with rocm-smi --gpureset -d {}{check}; if the node is shared, unset exclusive_gpus",
            gpu.index, gpu.index
        ),
        [("gpu", json!(gpu.index)), ("pci_address", json!(gpu.pci_address)), ("leaked_bytes", json!(gpu.held_bytes))],
    )
}

fn timed_out(trial: &Trial, seen: &Observed) -> FailureDetail {
    let sec = trial.timing.timeout_sec;
    detail(
        "container_timeout",
        format!(
            "the container was stopped at timeout_sec={sec}; {}/{} steps had exported",
            seen.records.len(),
            trial.load.steps
        ),
        "raise timeout_sec, or find in the server log what did not finish in time",
        [],
    )
}

fn client_failed(status: i32, seen: &Observed) -> FailureDetail {
    let reason = failure_reason(status);
    let said = match status {
        125 => "docker could not create or start the container".to_owned(),
        137 => "killed (137): an out-of-memory kill, or somebody killed the container".to_owned(),
        143 => "the agent was told to stop (143)".to_owned(),
        70 => "a fault of the agent itself (70)".to_owned(),
        negative if negative < 0 => format!("the client was killed by signal {}", -negative),
        _ => format!("the agent ended with {status} ({reason})"),
    };
    detail(
        reason,
        format!("{said}; the last lines of its output are in stdout_tail and stderr_tail"),
        exit_hint(status, seen),
        [
            ("exit_code", json!(status)),
            ("stderr_tail", json!(seen.stderr_tail)),
            ("stdout_tail", json!(seen.stdout_tail)),
        ],
    )
}

/// The remedy for an exit status.
fn exit_hint(status: i32, seen: &Observed) -> String {
    let bind = ["ddress already in use", "ddress in use"];
    let bind_failed = bind.iter().any(|text| seen.stdout_tail.contains(text));
    match status {
        50 if bind_failed => {
            "a port was taken: choose port and control_port, or give the gateway's metrics port with serve_args --prometheus-port".into()
        }
        50 => "read the last lines of the server log: the server ended before it was ready".into(),
        51 => "raise ready_timeout_sec: weights and kernels may still be loading on a cold cache".into(),
        52 => "the server answers but does not generate: read the server log, or raise ready_timeout_sec for first kernels".into(),
        53 => "raise bench_timeout_sec if the step timed out; otherwise read the bench's words in stdout_tail and the server log".into(),
        54 => "look at the export named in stdout_tail: it is missing, cut or of another shape than the bench tool's".into(),
        55 => "requests failed or were dropped: read the server log, or lower max_concurrency".into(),
        56 => "the policy stopped generating: check the model and its EOS, or set min_mean_output_tokens: 0".into(),
        57 => "the engine decodes greedily: choose sampling_backend triton or triton_full on an image that honours it".into(),
        58 => "set sampling_backend to the one that the engine reports, so that the label is true".into(),
        59 => "set min_mean_output_tokens: 0 on a gateway that reports lengths per request".into(),
        60 => "make /get_server_info answer with sampling_backend on the control port; the label cannot be believed without it".into(),
        61 => "the controller was gone or its lease file is not visible in the container: mount the out directory, or set lease_sec".into(),
        64 => "the agent refused its environment: the setting is named in stdout_tail".into(),
        125 => "read the runtime's words in stderr_tail: options, image or daemon".into(),
        137 => "look for an out-of-memory kill in the kernel log, or give the container more memory".into(),
        143 => "something stopped the agent from outside: look for docker stop, a job limit or an abort call".into(),
        70 => "this is a bug: report it with stdout_tail and stderr_tail".into(),
        _ => "read stdout_tail and stderr_tail; the status is not one of the agent's".into(),
    }
}

fn client_hung(status: i32, seen: &Observed) -> FailureDetail {
    detail(
        proto::exit::CONTAINER_FAILED,
        "the container was gone, its client did not end and had to be ended; the agent had not said that all steps passed",
        "look whether the container was killed from outside or by the kernel (out of memory), and at the daemon's log",
        [
            ("exit_code", json!(status)),
            ("stderr_tail", json!(seen.stderr_tail)),
            ("stdout_tail", json!(seen.stdout_tail)),
        ],
    )
}

fn client_lost(error: &str, seen: &Observed) -> FailureDetail {
    detail(
        proto::exit::CONTAINER_FAILED,
        format!("the container client could not be started or waited for: {error}"),
        "check the client program and the host's process limits",
        [
            ("exit_code", Value::Null),
            ("stderr_tail", json!(seen.stderr_tail)),
            ("stdout_tail", json!(seen.stdout_tail)),
        ],
    )
}

fn interrupted(what: &Interruption, seen: &Observed, trial: &Trial) -> FailureDetail {
    let by = what.signal.as_deref().unwrap_or("an order to stop");
    let phase = what.phase.as_deref().unwrap_or("an unknown phase");
    detail(
        "interrupted",
        format!("{by} during {phase}; {} of {} steps had exported", seen.records.len(), trial.load.steps),
        "run the trial again; what was measured before the signal is no result",
        [("signal", json!(what.signal)), ("phase", json!(what.phase)), ("step", json!(what.step))],
    )
}

/// `no_bench_export` or `incomplete_steps`.
fn missing_exports(trial: &Trial, seen: &Observed) -> Option<FailureDetail> {
    let steps = trial.load.steps;
    let records = seen.records.len();
    if records == 0 {
        return Some(detail(
            "no_bench_export",
            format!("no step left a readable export in {}", seen.identity.out_dir.display()),
            "the agent's last words are in stdout_tail: find there why no step finished",
            [("stdout_tail", json!(seen.stdout_tail))],
        ));
    }
    if records >= steps as usize {
        return None;
    }
    let missing = (1..=steps).find(|n| seen.records.iter().all(|r| r.step != *n))?;
    let mut incomplete = detail(
        "incomplete_steps",
        format!("{records} of {steps} steps left a readable export; earliest missing step {missing}"),
        "find in stdout_tail why the missing step did not finish",
        [("stdout_tail", json!(seen.stdout_tail))],
    );
    // AORTA reads the step as an iteration: never beyond what was begun.
    let observed = steps_observed(seen);
    if observed > 0 {
        incomplete.facts.insert("step".into(), json!(u64::from(missing).min(observed)));
    }
    Some(incomplete)
}

/// Steps that began or left an export.
pub fn steps_observed(seen: &Observed) -> u64 {
    u64::from(seen.markers.step_starts).max(seen.records.len() as u64)
}

fn unsound(record: &Record, trial: &Trial) -> Option<FailureDetail> {
    let unsound = judge(&record.export, &trial.expectation(), Layer::Host).err()?;
    let file = record.path.file_name().unwrap_or_default().to_string_lossy();
    let mut out = detail(
        unsound.reason(),
        format!("step {}: {} ({file})", record.step, unsound.detail()),
        unsound.hint(),
        [("step", json!(record.step))],
    );
    if let Unsound::TooShort { mean, floor, .. } = unsound {
        out.facts.insert("mean_output_tokens".into(), float(mean));
        out.facts.insert("floor".into(), json!(floor));
    }
    Some(out)
}

fn gate_failure(gate: &Gate, observed: Option<f64>) -> Option<FailureDetail> {
    let Some(observed) = observed else {
        return Some(detail(
            "gate_metric_missing",
            format!("gate {} names {}, which not every step reported", gate.key, gate.metric),
            format!(
                "make every step report {} (percentile_metrics, metric_percentiles), or drop the gate",
                gate.metric
            ),
            [("gate", json!(gate.key))],
        ));
    };
    let (breached, relation) = match gate.side {
        GateSide::Max => (observed > gate.bound, "above"),
        GateSide::Min => (observed < gate.bound, "below"),
    };
    breached.then(|| {
        detail(
            "perf_gate_breached",
            format!(
                "{} is {}, {relation} the bound {} of {}",
                gate.metric,
                significant(observed),
                significant(gate.bound),
                gate.key
            ),
            format!("compare with earlier runs of the same cell before moving the bound of {}", gate.key),
            [
                ("gate", json!(gate.key)),
                ("metric", json!(gate.metric)),
                ("observed", float(observed)),
                ("bound", float(gate.bound)),
            ],
        )
    })
}

/// A figure with four significant digits (contract I.5), without an exponent.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    #[expect(clippy::cast_possible_truncation, reason = "a decimal exponent")]
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(3 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn not_removed(seen: &Observed, words: &str, command: &str) -> FailureDetail {
    let name = seen.identity.container.as_deref();
    detail(
        "container_not_removed",
        format!("container {} is not proven to be gone: {words}", name.unwrap_or("(none)")),
        format!("run `{command}` and look that the GPU is free before the next trial"),
        [("name", json!(name)), ("command", json!(command))],
    )
}

fn survivors(seen: &Observed) -> FailureDetail {
    let pids: Vec<_> = seen.survivors.iter().map(|s| s.pid).collect();
    let names: Vec<_> = seen.survivors.iter().map(|s| s.name.as_str()).collect();
    let alive = seen.survivors.iter().filter(|s| !s.killed).count();
    let done = if alive == 0 { "all were killed".to_owned() } else { format!("{alive} could not be killed") };
    detail(
        "process_survivors",
        format!("{} process(es) outlived the agent: {}; {done}", pids.len(), names.join(", ")),
        "find out why they left the agent's tree; their memory may have disturbed the measurement",
        [("pids", json!(pids)), ("names", json!(names)), ("action", json!(done))],
    )
}

/// The witnesses against each other, asked only where contract section I alone would pass.
fn disagreement(trial: &Trial, seen: &Observed) -> Option<FailureDetail> {
    let steps = trial.load.steps;
    let mut found = Vec::new();
    if seen.markers.step_starts != steps {
        found.push(format!("{} step-start markers for {steps} steps", seen.markers.step_starts));
    }
    if seen.markers.result == Some(Outcome::Fail) {
        found.push("the RESULT marker says fail although the agent ended with 0".to_owned());
    }
    for record in &seen.records {
        // The agent audits a step once; a repeated note is the newer one.
        let noted = seen.markers.digests.iter().rev().find(|(step, _)| *step == record.step);
        if let Some((_, noted)) = noted
            && !noted.eq_ignore_ascii_case(&record.export.sha256)
        {
            found.push(format!("the export of step {} is not the file that the agent audited", record.step));
        }
    }
    if seen.container_outlived_client {
        found.push("the client ended while its container lived on, so its status is not the agent's".to_owned());
    }
    (!found.is_empty()).then(|| {
        detail(
            "witness_disagreement",
            found.join("; "),
            "do not use the figures; look who else writes into the out directory or stops containers, and run again",
            [("disagreements", json!(found))],
        )
    })
}

/// Reads a detail's step, where it names one.
pub fn step_of(detail: &FailureDetail) -> Option<u64> {
    detail.facts.get("step").and_then(Value::as_u64)
}

/// Load findings of the exports: steps in which the native client was at its own limit (design section 7).
pub fn client_bound(trial: &Trial, records: &[Record]) -> Option<String> {
    let bound = |r: &&Record| r.export.scalar("client_bound").is_some_and(|flag| flag.as_f64() > 0.0);
    let steps: Vec<_> = records.iter().filter(bound).map(|r| r.step.to_string()).collect();
    let native = trial.own.bench_tool == proto::limits::BenchTool::Native;
    (native && !steps.is_empty())
        .then(|| format!("the load client's own error shows in the figures of step {}", steps.join(", ")))
}

/// Load findings of the exports (design section 3): `short_output_work`.
pub fn short_output(trial: &Trial, records: &[Record]) -> Option<String> {
    let crate::config::trial::Data::Random { output_len, .. } = trial.load.data else { return None };
    let extra_body = trial.bench_args.iter().any(|arg| arg.starts_with("--extra"));
    if !trial.load.ignore_eos || trial.load.rollout.is_some() || extra_body {
        return None;
    }
    let wanted = trial.load.num_prompts.saturating_mul(output_len);
    #[expect(clippy::cast_precision_loss, reason = "compared as figures")]
    let short: Vec<_> = records
        .iter()
        .filter_map(|r| Some((r.step, r.export.scalar("total_output_tokens").map(Scalar::as_f64)?)))
        .filter(|(_, total)| *total < wanted as f64)
        .map(|(step, total)| format!("step {step}: {total} of {wanted}"))
        .collect();
    (!short.is_empty()).then(|| {
        format!("fewer output tokens than num_prompts x output_len although EOS is ignored ({})", short.join(", "))
    })
}
