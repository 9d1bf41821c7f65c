//! The trial as its events leave it: one fold, used for the agent's status page, the controller's progress
//! and the live view. Pure: the same events give the same status, live or replayed from a journal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::{Event, EventBody, Figures, Phase, ProcessSample, Step, StepKind};
use crate::finding::Finding;

/// Results and findings kept; a trial of a million steps must not grow the status page without bound.
const KEPT: usize = 1000;

/// All that is known of a trial after some of its events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Run token.
    pub token: String,
    /// What is served.
    pub model: String,
    /// Version of the agent.
    pub agent_version: String,
    /// Version of the contract that the agent speaks; 0 before the first event.
    pub contract_version: u32,
    /// Wall clock at 0 of the agent's clock, Unix milliseconds.
    pub wall_ms: u64,
    /// The agent's clock: at the last event, or when the snapshot was taken.
    pub at_ms: u64,
    /// Number of the last event.
    pub seq: u64,
    /// Discarded steps of the trial.
    pub warmup_steps: u32,
    /// Measured steps of the trial.
    pub steps: u32,
    /// Requests per step.
    pub num_prompts: u64,
    /// Phases so far; the last is the current one.
    pub phases: Vec<PhaseSpan>,
    /// The step under way.
    pub running: Option<StepRun>,
    /// Steps that ended, at most the last 1,000.
    pub results: Vec<StepResult>,
    /// Measured steps that passed.
    pub steps_passed: u32,
    /// Measured steps that did not.
    pub steps_failed: u32,
    /// Leader of the server's group.
    pub server_pid: Option<u32>,
    /// Leader of the bench's group; only in a snapshot of the agent.
    pub bench_pid: Option<u32>,
    /// `off`, `held`, `free` or `lost`; empty but in a snapshot of the agent.
    pub lease: String,
    /// From the server's start to `/health` 200, milliseconds.
    pub startup_ms: Option<u64>,
    /// Of the generate probe, milliseconds.
    pub first_token_ms: Option<u64>,
    /// Last answer of every health path.
    pub health: Vec<HealthAnswer>,
    /// Last resource sample.
    pub processes: Vec<ProcessSample>,
    /// Log lines left out for every watcher.
    pub log_lines_dropped: u64,
    /// Findings so far, at most the last 1,000.
    pub findings: Vec<Finding>,
    /// Why the trial is being stopped.
    pub stopping: Option<String>,
    /// How the server ended.
    pub server_end: Option<String>,
    /// How the trial ended.
    pub finished: Option<Ending>,
}

/// A phase and its times on the agent's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSpan {
    /// Which.
    pub phase: Phase,
    /// When it began, milliseconds.
    pub from_ms: u64,
    /// When it must be over, milliseconds.
    pub deadline_ms: Option<u64>,
}

/// A step under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepRun {
    /// Which.
    pub step: Step,
    /// When it began, milliseconds on the agent's clock.
    pub from_ms: u64,
}

/// A step that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepResult {
    /// Which.
    pub step: Step,
    /// `pass`, or the reason of its failure.
    pub verdict: String,
    /// For a person.
    pub detail: String,
    /// Milliseconds.
    pub elapsed_ms: u64,
    /// What was measured.
    pub figures: Figures,
    /// Digest of the export that was judged.
    pub sha256: Option<String>,
    /// When it ended, milliseconds on the agent's clock.
    pub at_ms: u64,
}

/// The last answer of a health path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthAnswer {
    /// Path asked.
    pub path: String,
    /// Status line or error.
    pub answer: String,
    /// When it was first seen, milliseconds on the agent's clock.
    pub at_ms: u64,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ending {
    /// Exit status.
    pub exit: u8,
    /// `pass`, or the reason.
    pub reason: String,
}

impl Status {
    /// Takes one more event in. Events with a number already seen change nothing, so a stream that was
    /// resumed too early does no harm.
    pub fn apply(&mut self, event: &Event) {
        if event.seq <= self.seq {
            return;
        }
        self.seq = event.seq;
        self.at_ms = self.at_ms.max(event.at_ms);
        let at_ms = event.at_ms;
        match &event.body {
            EventBody::Started {
                token,
                agent_version,
                contract_version,
                wall_ms,
                model,
                warmup_steps,
                steps,
                num_prompts,
            } => {
                self.token.clone_from(token);
                self.model.clone_from(model);
                self.agent_version.clone_from(agent_version);
                self.contract_version = *contract_version;
                self.wall_ms = *wall_ms;
                self.warmup_steps = *warmup_steps;
                self.steps = *steps;
                self.num_prompts = *num_prompts;
            }
            EventBody::PhaseEntered { phase, deadline_ms } => {
                self.phases.push(PhaseSpan { phase: *phase, from_ms: at_ms, deadline_ms: *deadline_ms });
                keep_last(&mut self.phases);
            }
            EventBody::ServerStarted { pid } => self.server_pid = Some(*pid),
            EventBody::HealthChanged { path, answer } => {
                let news = HealthAnswer { path: path.clone(), answer: answer.clone(), at_ms };
                match self.health.iter_mut().find(|known| known.path == *path) {
                    Some(known) => *known = news,
                    None => self.health.push(news),
                }
                keep_last(&mut self.health);
            }
            EventBody::ServerReady { startup_ms } => self.startup_ms = Some(*startup_ms),
            EventBody::FirstToken { elapsed_ms } => self.first_token_ms = Some(*elapsed_ms),
            EventBody::StepStarted { step } => self.running = Some(StepRun { step: *step, from_ms: at_ms }),
            EventBody::StepFinished { step, verdict, detail, elapsed_ms, figures, sha256 } => {
                self.running = None;
                if step.kind == StepKind::Measured {
                    let counter = if verdict == PASS { &mut self.steps_passed } else { &mut self.steps_failed };
                    *counter += 1;
                }
                self.results.push(StepResult {
                    step: *step,
                    verdict: verdict.clone(),
                    detail: detail.clone(),
                    elapsed_ms: *elapsed_ms,
                    figures: figures.clone(),
                    sha256: sha256.clone(),
                    at_ms,
                });
                keep_last(&mut self.results);
            }
            EventBody::FindingRaised { finding } => {
                self.findings.push(finding.clone());
                keep_last(&mut self.findings);
            }
            EventBody::Stopping { cause } => self.stopping = Some(cause.clone()),
            EventBody::ServerStopped { detail, .. } => self.server_end = Some(detail.clone()),
            EventBody::ResourcesSampled { processes } => self.processes.clone_from(processes),
            EventBody::LogsDropped { lines, .. } => self.log_lines_dropped += lines,
            EventBody::Finished { exit, reason } => {
                self.running = None;
                self.finished = Some(Ending { exit: *exit, reason: reason.clone() });
            }
        }
    }

    /// Where the agent is: `Boot` before the first phase event.
    pub fn phase(&self) -> Phase {
        self.phases.last().map_or(Phase::Boot, |span| span.phase)
    }
}

/// Verdict of a step, and reason of an ending, that is no failure.
pub const PASS: &str = "pass";

fn keep_last<T>(list: &mut Vec<T>) {
    if list.len() > KEPT {
        list.drain(..list.len() - KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(bodies: impl IntoIterator<Item = EventBody>) -> Status {
        let mut status = Status::default();
        for (index, body) in bodies.into_iter().enumerate() {
            let index = index as u64;
            status.apply(&Event { seq: index + 1, at_ms: index * 10, body });
        }
        status
    }

    fn finished(kind: StepKind, number: u32, verdict: &str) -> EventBody {
        EventBody::StepFinished {
            step: Step { kind, number, total: 2 },
            verdict: verdict.into(),
            detail: String::new(),
            elapsed_ms: 1,
            figures: Figures::default(),
            sha256: None,
        }
    }

    #[test]
    fn only_measured_steps_are_counted() {
        let status = fold([
            finished(StepKind::Warmup, 1, PASS),
            EventBody::StepStarted { step: Step { kind: StepKind::Measured, number: 1, total: 2 } },
            finished(StepKind::Measured, 1, PASS),
            finished(StepKind::Measured, 2, "served_request_shortfall"),
        ]);
        assert_eq!((status.steps_passed, status.steps_failed, status.results.len()), (1, 1, 3));
        assert_eq!(status.running, None);
        assert_eq!((status.seq, status.at_ms), (4, 30));
    }

    #[test]
    fn an_event_seen_twice_counts_once() {
        let mut status = fold([finished(StepKind::Measured, 1, PASS)]);
        let before = status.clone();
        status.apply(&Event { seq: 1, at_ms: 99, body: finished(StepKind::Measured, 1, PASS) });
        assert_eq!(status, before);
    }

    #[test]
    fn lists_are_bounded_and_keep_the_newest() {
        let status = fold((0..3000).map(|n| finished(StepKind::Measured, n, PASS)));
        assert_eq!((status.results.len(), status.results[0].step.number), (1000, 2000));
        assert_eq!(status.steps_passed, 3000);
        let paths = fold((0..3000).map(|n| EventBody::HealthChanged { path: format!("/{n}"), answer: "200".into() }));
        assert_eq!(paths.health.len(), 1000);
    }

    #[test]
    fn health_keeps_one_answer_per_path() {
        let answer = |path: &str, answer: &str| EventBody::HealthChanged { path: path.into(), answer: answer.into() };
        let status = fold([answer("/health", "refused"), answer("/health_generate", "503"), answer("/health", "200")]);
        let seen: Vec<_> = status.health.iter().map(|h| (h.path.as_str(), h.answer.as_str(), h.at_ms)).collect();
        assert_eq!(seen, [("/health", "200", 20), ("/health_generate", "503", 10)]);
    }
}
