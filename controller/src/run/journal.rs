//! The agent's files on the host, read while it writes them: the journal for progress and phase timings, the markers
//! file for the verdict. Whatever stands in them was written by somebody else: bounded, no link followed.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use proto::event::{Event, EventBody, Phase};
use proto::marker::Markers;
use proto::names::{self, RunToken};
use proto::status::Status;

use crate::result::document::{Phases, TreeFigures};

/// Longest line of a journal.
const LINE: usize = 1024 * 1024;
/// Bytes read at one poll.
const POLL: u64 = 1024 * 1024;
/// Bytes of a journal that are folded altogether.
const JOURNAL: u64 = 256 * 1024 * 1024;
/// Bytes of a markers file.
const MARKERS: u64 = 64 * 1024 * 1024;

/// What the events of a trial say so far, from the stream, the journal, or both.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The fold.
    pub status: Status,
    /// Figures over the tree; `None` before the first sample.
    pub tree: Option<TreeFigures>,
}

impl Told {
    /// Takes one event in; the same event from another source changes nothing.
    pub fn apply(&mut self, event: &Event) {
        if event.seq > self.status.seq
            && let EventBody::ResourcesSampled { processes } = &event.body
        {
            let tree = self.tree.get_or_insert_default();
            tree.peak_count = tree.peak_count.max(processes.len() as u64);
            tree.peak_rss_bytes = tree.peak_rss_bytes.max(processes.iter().map(|p| p.rss_bytes).sum());
        }
        self.status.apply(event);
    }

    /// How long the agent's phases took.
    pub fn phases(&self, into: &mut Phases) {
        let spans = &self.status.phases;
        let mut add = |slot: fn(&mut Phases) -> &mut Option<f64>, ms: u64| {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of one trial")]
            let ms = ms as f64;
            *slot(into).get_or_insert(0.0) += ms;
        };
        for (index, span) in spans.iter().enumerate() {
            let end = spans.get(index + 1).map_or(self.status.at_ms, |next| next.from_ms);
            let ms = end.saturating_sub(span.from_ms);
            match span.phase {
                Phase::WaitHealth => add(|p| &mut p.ready_ms, ms),
                Phase::WaitGenerate | Phase::ReadBack | Phase::GenerateProbe => add(|p| &mut p.generate_ms, ms),
                Phase::Warmup(_) => add(|p| &mut p.warmup_ms, ms),
                Phase::Measure(_) => add(|p| &mut p.measure_ms, ms),
                Phase::Teardown => add(|p| &mut p.teardown_ms, ms),
                Phase::Boot | Phase::Done => {}
            }
        }
    }
}

/// Name of a phase in documents and on screens.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Boot => "boot",
        Phase::WaitHealth => "wait_health",
        Phase::WaitGenerate => "wait_generate",
        Phase::ReadBack => "read_back",
        Phase::GenerateProbe => "generate_probe",
        Phase::Warmup(_) => "warmup",
        Phase::Measure(_) => "measure",
        Phase::Teardown => "teardown",
        Phase::Done => "done",
    }
}

/// A journal that grows.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    offset: u64,
    line: Vec<u8>,
    skipping: bool,
}

impl Journal {
    /// The journal of a trial; it need not exist yet.
    pub fn of(out_dir: &Path, token: &RunToken) -> Self {
        Self { path: out_dir.join(names::journal(token)), offset: 0, line: Vec::new(), skipping: false }
    }

    /// Folds what is new; `true` when there was anything.
    pub fn poll(&mut self, told: &mut Told) -> bool {
        let before = self.offset;
        if let Ok(mut file) = proto::export::open(&self.path)
            && file.seek(SeekFrom::Start(self.offset)).is_ok()
        {
            let mut chunk = Vec::new();
            // What could be read before an error is as good as ever.
            let _ = file.take(POLL).read_to_end(&mut chunk);
            self.offset += chunk.len() as u64;
            self.feed(&chunk, told);
        }
        self.offset > before
    }

    /// Folds everything that is there.
    pub fn read_all(&mut self, told: &mut Told) {
        while self.offset < JOURNAL && self.poll(told) {}
    }

    fn feed(&mut self, chunk: &[u8], told: &mut Told) {
        for part in chunk.split_inclusive(|b| *b == b'\n') {
            if self.line.len() + part.len() > LINE {
                self.skipping = true;
                self.line.clear();
            }
            if !self.skipping {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                if let Ok(event) = serde_json::from_slice::<Event>(&self.line) {
                    told.apply(&event);
                }
                self.line.clear();
                self.skipping = false;
            }
        }
    }
}

/// The markers file of a trial; `None` when there is no such file.
pub fn markers(out_dir: &Path, token: &RunToken) -> Option<Markers> {
    let file = proto::export::open(&out_dir.join(names::markers(token))).ok()?;
    let mut bytes = Vec::new();
    let _ = file.take(MARKERS).read_to_end(&mut bytes);
    Some(Markers::parse(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, at_ms: u64, body: EventBody) -> String {
        serde_json::to_string(&Event { seq, at_ms, body }).unwrap() + "\n"
    }

    fn entered(seq: u64, at_ms: u64, phase: Phase) -> String {
        line(seq, at_ms, EventBody::PhaseEntered { phase, deadline_ms: None })
    }

    #[test]
    fn a_growing_journal_is_folded_once_whatever_the_cut() {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        let text = [
            entered(1, 0, Phase::WaitHealth),
            entered(2, 1500, Phase::WaitGenerate),
            entered(3, 1600, Phase::Warmup(1)),
            "not json\n".to_owned(),
            entered(4, 2600, Phase::Measure(1)),
            entered(5, 3600, Phase::Measure(2)),
            entered(6, 5600, Phase::Teardown),
            entered(7, 5700, Phase::Done),
        ]
        .concat();
        let (mut journal, mut told) = (Journal::of(dir.path(), &token), Told::default());
        assert!(!journal.poll(&mut told), "there is none yet");
        for end in [3, 60, 61, 200, text.len()] {
            std::fs::write(dir.path().join(names::journal(&token)), &text[..end]).unwrap();
            journal.poll(&mut told);
        }
        let mut phases = Phases::default();
        told.phases(&mut phases);
        assert_eq!([phases.ready_ms, phases.generate_ms, phases.warmup_ms], [Some(1500.0), Some(100.0), Some(1000.0)]);
        assert_eq!([phases.measure_ms, phases.teardown_ms], [Some(3000.0), Some(100.0)]);
    }
}
