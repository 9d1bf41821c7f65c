//! Judging one export, away from the supervisor's thread: it may hold hundreds of megabytes.

use std::path::Path;

use proto::event::Figures;
use proto::exit::AgentExit;
use proto::export::{self, Bad, Expectation, Export, Layer, OpenError, OutputLensShape, ReadError, Scalar};

use super::machine::Audit;

/// Opens, reads and judges an export.
pub(super) fn audit(path: &Path, expectation: &Expectation) -> Audit {
    let export::Audit { export, verdict } = export::audit(path, expectation, Layer::Agent);
    let figures = export.as_ref().map(figures).unwrap_or_default();
    let sha256 = export.as_ref().map(|e| e.sha256.clone());
    match verdict {
        Ok(shape) => Audit::Sound {
            summary: export.as_ref().map(summary).unwrap_or_default(),
            figures,
            sha256: sha256.unwrap_or_default(),
            lens_absent: shape == OutputLensShape::Absent,
        },
        // None, or an empty one: the bench exported nothing, whatever it exited with.
        Err(Bad::Open(OpenError::Missing) | Bad::Read(ReadError::Empty)) => Audit::Missing,
        Err(bad) => {
            let exit = bad.exit();
            let shows_server_log = matches!(exit, AgentExit::ServedRequestShortfall | AgentExit::RolloutOutputTooShort);
            Audit::Unsound { exit, detail: bad.to_string(), shows_server_log, figures, sha256 }
        }
    }
}

fn shown(value: Option<Scalar>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Scalar::Integer(i)) => i.to_string(),
        Some(Scalar::Float(f)) => format!("{f:.2}"),
    }
}

/// `completed=.. output_throughput=.. median_ttft_ms=..`
fn summary(export: &Export) -> String {
    let names = ["completed", "output_throughput", "median_ttft_ms"];
    names.map(|name| format!("{name}={}", shown(export.scalar(name)))).join(" ")
}

fn figures(export: &Export) -> Figures {
    let count = |name| match export.scalar(name) {
        Some(Scalar::Integer(i)) => Some(i),
        Some(Scalar::Float(_)) | None => None,
    };
    let float = |name| export.scalar(name).map(Scalar::as_f64);
    Figures {
        completed: count("completed"),
        failed: count("failed"),
        duration_sec: float("duration"),
        output_throughput: float("output_throughput"),
        request_throughput: float("request_throughput"),
        median_ttft_ms: float("median_ttft_ms"),
        p99_ttft_ms: float("p99_ttft_ms"),
        median_tpot_ms: float("median_tpot_ms"),
        p99_itl_ms: float("p99_itl_ms"),
    }
}
