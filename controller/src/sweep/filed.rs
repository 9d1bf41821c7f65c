//! One trial on disk: AORTA's trial document, made of what `controller run` left, and read back on a resume.

use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::plan::PlannedCell;
use super::trial::{ExitStatus, TrialRecord};
use crate::error::ErrorKind;
use crate::result::document::{Document, ResultDocument};
use crate::whole_file::WholeFile;

/// AORTA's result fields, in its order.
const FIELDS: [&str; 11] = [
    "passed",
    "failure_count",
    "first_failure_iteration",
    "failure_details",
    "total_iterations",
    "step_times_ms",
    "elapsed_sec",
    "metrics",
    "main_work_started",
    "executed_iterations",
    "configured_iterations",
];

/// What became of one start of a trial.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It counts: a result, a refusal, or an end without a word.
    Counts(TrialRecord),
    /// It was told to stop: to be run again.
    Interrupted,
}

/// Judges an ended trial by its document and, where there is none, by how its controller ended.
pub fn judge(document: Option<Document>, ended: &str, wall_clock_sec: f64) -> Outcome {
    let (exit_status, result) = match document {
        Some(Document::Result(result)) if was_told_to_stop(&result) => return Outcome::Interrupted,
        Some(Document::Result(result)) => {
            let status = if result.passed { ExitStatus::Ok } else { ExitStatus::WorkloadFailed };
            (status, fields_of(&result))
        }
        Some(Document::Error(document)) => {
            let error = &document.error;
            let kind = match error.kind {
                ErrorKind::Config => "ConfigError",
                ErrorKind::Host => "HostError",
            };
            let detail = json!({"error": error.message, "type": kind, "phase": "setup", "hint": error.hint});
            (ExitStatus::WorkloadSetupFailed, failed(&detail, Some(false)))
        }
        None => return Outcome::Counts(without_result(&format!("{ended} and left no result"), wall_clock_sec)),
    };
    Outcome::Counts(TrialRecord { exit_status, wall_clock_sec, result })
}

/// The record of a trial that ended without one that counts.
pub fn without_result(what: &str, wall_clock_sec: f64) -> TrialRecord {
    let detail = json!({
        "error": format!("controller run {what}"),
        "type": "NoResult",
        "hint": "read the trial's .subprocess.stderr.log",
    });
    TrialRecord { exit_status: ExitStatus::InfrastructureFailed, wall_clock_sec, result: failed(&detail, None) }
}

/// A signal, or a parent that went away: the figures are those of a part.
pub fn was_told_to_stop(result: &ResultDocument) -> bool {
    result.failure_details.iter().any(|detail| detail.reason == "interrupted")
}

fn fields_of(result: &ResultDocument) -> Map<String, Value> {
    let Ok(Value::Object(mut all)) = serde_json::to_value(result) else { return Map::new() };
    FIELDS.iter().filter_map(|key| Some(((*key).to_owned(), all.remove(*key)?))).collect()
}

/// As AORTA's dispatcher fills in for a workload that raised.
fn failed(detail: &Value, main_work_started: Option<bool>) -> Map<String, Value> {
    let fields = json!({
        "passed": false,
        "failure_count": 1,
        "first_failure_iteration": null,
        "failure_details": [detail],
        "total_iterations": 0,
        "step_times_ms": [],
        "elapsed_sec": 0.0,
        "metrics": {},
        "main_work_started": main_work_started,
        "executed_iterations": null,
        "configured_iterations": null,
    });
    match fields {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// Writes AORTA's trial document (integration notes, section 7).
pub fn write(
    path: &Path,
    workload: &str,
    index: u32,
    cell: &PlannedCell,
    fingerprint: &str,
    record: &TrialRecord,
) -> io::Result<()> {
    let document = json!({
        "schema_version": "0.1",
        "trial_id": format!("{workload}_d0_m0_t{index}"),
        "workload": workload,
        "execution_env": cell.cell.environment.to_config(),
        "mitigations_applied": cell.cell.mitigations,
        "config": cell.cell.trial_config(),
        // The host is described once, in manifest.json.
        "env": {},
        "result": record.result,
        "wall_clock_sec": record.wall_clock_sec,
        "exit_status": record.exit_status.as_str(),
        "request_fingerprint": fingerprint,
    });
    write_json(path, &document)
}

/// A JSON file, whole or not at all, with a newline at its end.
pub fn write_json(path: &Path, document: &impl serde::Serialize) -> io::Result<()> {
    let file = WholeFile::create(path)?;
    serde_json::to_writer_pretty(file.handle(), document)?;
    writeln!(file.handle())?;
    file.commit()
}

/// A trial document and the fingerprint of what it measured.
#[derive(Debug, Clone)]
pub struct Filed {
    /// What it says.
    pub record: TrialRecord,
    /// Of the cell that it was run for.
    pub fingerprint: Option<String>,
}

/// Reads a trial document back; `None` where there is none, or none that can be read.
pub fn read(path: &Path) -> Option<Filed> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let exit_status = ExitStatus::parse(document.get("exit_status")?.as_str()?)?;
    let wall_clock_sec = document.get("wall_clock_sec")?.as_f64()?;
    let fingerprint = document.get("request_fingerprint").and_then(Value::as_str).map(str::to_owned);
    let Value::Object(result) = document.get_mut("result")?.take() else { return None };
    Some(Filed { record: TrialRecord { exit_status, wall_clock_sec, result }, fingerprint })
}

/// Reads the document that `controller run` left.
pub fn result(path: &Path) -> Option<Document> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorDocument, HostError};

    fn result(reasons: &[&str]) -> Document {
        let details: Vec<Value> =
            reasons.iter().map(|reason| json!({"reason": reason, "detail": "d", "hint": "h"})).collect();
        let document = json!({
            "schema_version": 1, "passed": reasons.is_empty(), "failure_count": reasons.len(),
            "first_failure_iteration": null, "failure_details": details, "total_iterations": 2,
            "step_times_ms": [1.5, 2.5], "elapsed_sec": 3.5, "metrics": {"output_throughput": 10.5},
            "main_work_started": true, "executed_iterations": 2, "configured_iterations": 2,
            "trial": {
                "run_token": "1-1", "runtime": "process", "image": null, "container_name": null, "out_dir": "/o",
                "agent": {"version": null, "sha256": null}, "controller_version": "1", "started_at": null,
                "agent_verdict": null, "host_verdict": {"reason": "pass", "exit_code": 0}, "phases": {},
                "first_token_ms": null, "processes": null, "lease": {"sec": 20, "held": true}, "signals": [],
                "result_files": [], "findings": [], "reaper": null,
            },
        });
        serde_json::from_value(document).unwrap()
    }

    fn counted(document: Option<Document>, ended: &str) -> TrialRecord {
        match judge(document, ended, 4.0) {
            Outcome::Counts(record) => record,
            Outcome::Interrupted => panic!("interrupted"),
        }
    }

    #[test]
    fn every_end_has_aortas_word() {
        let passed = counted(Some(result(&[])), "");
        assert_eq!((passed.exit_status, passed.result.len()), (ExitStatus::Ok, 11));
        assert!(passed.result.keys().eq(FIELDS.iter()), "AORTA's fields in its order: {:?}", passed.result.keys());
        let failed = counted(Some(result(&["served_request_shortfall"])), "");
        assert_eq!((failed.exit_status, failed.hints()), (ExitStatus::WorkloadFailed, vec!["h"]));
        let error = HostError::new(Some("pull"), "x", "no image", "pull it");
        let refused = counted(Some(Document::Error(ErrorDocument::from(&error))), "");
        assert_eq!(refused.exit_status, ExitStatus::WorkloadSetupFailed);
        assert_eq!(refused.result["main_work_started"], false);
        assert_eq!(refused.result["failure_details"][0]["phase"], "setup");
        let crashed = counted(None, "ended (signal: 9)");
        assert_eq!(crashed.exit_status, ExitStatus::InfrastructureFailed);
        assert!(crashed.result["failure_details"][0]["error"].as_str().unwrap().contains("signal: 9"));
    }

    #[test]
    fn a_part_of_a_trial_never_counts() {
        for reasons in [&["interrupted"][..], &["interrupted", "container_not_removed"]] {
            assert!(matches!(judge(Some(result(reasons)), "", 1.0), Outcome::Interrupted), "{reasons:?}");
        }
    }
}
