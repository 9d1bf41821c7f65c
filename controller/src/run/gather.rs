//! What a trial left on disk, read in one go: exports, markers, journal. Blocking; never called on the event loop.

use proto::finding::{Finding, FindingId};
use proto::marker::Markers;

use super::journal::{self, Journal, Told};
use crate::result::collect::{Collected, collect};
use crate::result::observed::{Observed, RunIdentity};

/// What was found.
#[derive(Debug)]
pub struct Gathered {
    exports: Collected,
    markers: Option<Markers>,
    told: Told,
}

/// Reads everything; `told` is what the stream said already.
pub fn gather(identity: &RunIdentity, steps: u32, mut told: Told) -> Gathered {
    Journal::of(&identity.out_dir, &identity.token).read_all(&mut told);
    Gathered {
        exports: collect(&identity.out_dir, &identity.token, steps),
        markers: journal::markers(&identity.out_dir, &identity.token),
        told,
    }
}

impl Gathered {
    /// Puts it where the document is made from.
    pub fn into_seen(self, seen: &mut Observed) {
        seen.records = self.exports.records;
        for dropped in self.exports.dropped {
            tracing::warn!("export dropped: {}", dropped.why);
        }
        // The file holds every marker at once; stdout may have been cut.
        if let Some(markers) = self.markers {
            seen.markers = markers;
        }
        let status = self.told.status.clone();
        self.told.phases(&mut seen.phases);
        if let Some(startup) = status.startup_ms {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of a start-up")]
            let startup = startup as f64;
            seen.phases.ready_ms = Some(startup);
        }
        seen.first_token_ms = status.first_token_ms;
        seen.processes = self.told.tree;
        if !status.agent_version.is_empty() {
            seen.agent.version = Some(status.agent_version);
        }
        for finding in status.findings {
            if !seen.findings.contains(&finding) {
                seen.findings.push(finding);
            }
        }
        if status.log_lines_dropped > 0 && !seen.findings.iter().any(|f| f.id == FindingId::OutputCut) {
            seen.findings.push(Finding::new(
                FindingId::OutputCut,
                format!("{} log lines were left out of the status stream", status.log_lines_dropped),
                "the whole log is in the out directory",
            ));
        }
    }
}
