//! Wire to domain and back. Nothing outside this module and the two ends of the link sees a generated type.
//!
//! To the wire everything converts. From the wire a value that this build does not know, or a field that
//! must be there and is not, is an error that names it: what cannot be read is never shown as something else.

use crate::event::{Event, EventBody, Figures, Phase, ProcessSample, Step, StepKind};
use crate::finding::{Finding, FindingId};
use crate::pb::v1;
use crate::pb::v1::event::Body;
use crate::status::{Ending, HealthAnswer, PhaseSpan, Status, StepResult, StepRun};

/// A message that this build cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A field that every message of its kind has is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value that this build does not know; the peer is newer, or the message is broken.
    #[error("{field} holds {value:?}, which this build does not know")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// An event of a kind that this build does not know.
    #[error("event {seq} is of a kind that this build does not know")]
    UnknownEvent {
        /// Its number, which counts all the same.
        seq: u64,
    },
}

fn unknown(field: &'static str, value: impl std::fmt::Display) -> ConvertError {
    ConvertError::Unknown { field, value: value.to_string() }
}

fn all<W, D: TryFrom<W, Error = ConvertError>>(list: Vec<W>) -> Result<Vec<D>, ConvertError> {
    list.into_iter().map(D::try_from).collect()
}

impl From<Phase> for v1::Phase {
    fn from(phase: Phase) -> Self {
        use v1::PhaseName as Name;
        let (name, step) = match phase {
            Phase::Boot => (Name::Boot, 0),
            Phase::WaitHealth => (Name::WaitHealth, 0),
            Phase::WaitGenerate => (Name::WaitGenerate, 0),
            Phase::ReadBack => (Name::ReadBack, 0),
            Phase::GenerateProbe => (Name::GenerateProbe, 0),
            Phase::Warmup(step) => (Name::Warmup, step),
            Phase::Measure(step) => (Name::Measure, step),
            Phase::Teardown => (Name::Teardown, 0),
            Phase::Done => (Name::Done, 0),
        };
        Self { name: name.into(), step }
    }
}

impl TryFrom<v1::Phase> for Phase {
    type Error = ConvertError;
    fn try_from(wire: v1::Phase) -> Result<Self, ConvertError> {
        use v1::PhaseName as Name;
        match Name::try_from(wire.name) {
            Err(_) | Ok(Name::Unspecified) => Err(unknown("phase.name", wire.name)),
            Ok(Name::Boot) => Ok(Self::Boot),
            Ok(Name::WaitHealth) => Ok(Self::WaitHealth),
            Ok(Name::WaitGenerate) => Ok(Self::WaitGenerate),
            Ok(Name::ReadBack) => Ok(Self::ReadBack),
            Ok(Name::GenerateProbe) => Ok(Self::GenerateProbe),
            Ok(Name::Warmup) => Ok(Self::Warmup(wire.step)),
            Ok(Name::Measure) => Ok(Self::Measure(wire.step)),
            Ok(Name::Teardown) => Ok(Self::Teardown),
            Ok(Name::Done) => Ok(Self::Done),
        }
    }
}

impl From<Step> for v1::Step {
    fn from(step: Step) -> Self {
        let kind = match step.kind {
            StepKind::Warmup => v1::StepKind::Warmup,
            StepKind::Measured => v1::StepKind::Measured,
        };
        Self { kind: kind.into(), number: step.number, total: step.total }
    }
}

impl TryFrom<v1::Step> for Step {
    type Error = ConvertError;
    fn try_from(wire: v1::Step) -> Result<Self, ConvertError> {
        let kind = match v1::StepKind::try_from(wire.kind) {
            Err(_) | Ok(v1::StepKind::Unspecified) => return Err(unknown("step.kind", wire.kind)),
            Ok(v1::StepKind::Warmup) => StepKind::Warmup,
            Ok(v1::StepKind::Measured) => StepKind::Measured,
        };
        Ok(Self { kind, number: wire.number, total: wire.total })
    }
}

impl From<Figures> for v1::Figures {
    fn from(figures: Figures) -> Self {
        let Figures {
            completed,
            failed,
            duration_sec,
            output_throughput,
            request_throughput,
            median_ttft_ms,
            p99_ttft_ms,
            median_tpot_ms,
            p99_itl_ms,
        } = figures;
        Self {
            completed,
            failed,
            duration_sec,
            output_throughput,
            request_throughput,
            median_ttft_ms,
            p99_ttft_ms,
            median_tpot_ms,
            p99_itl_ms,
        }
    }
}

impl From<v1::Figures> for Figures {
    fn from(wire: v1::Figures) -> Self {
        let v1::Figures {
            completed,
            failed,
            duration_sec,
            output_throughput,
            request_throughput,
            median_ttft_ms,
            p99_ttft_ms,
            median_tpot_ms,
            p99_itl_ms,
        } = wire;
        Self {
            completed,
            failed,
            duration_sec,
            output_throughput,
            request_throughput,
            median_ttft_ms,
            p99_ttft_ms,
            median_tpot_ms,
            p99_itl_ms,
        }
    }
}

impl From<ProcessSample> for v1::ProcessSample {
    fn from(sample: ProcessSample) -> Self {
        let ProcessSample { pid, parent, name, role, cpu_percent, rss_bytes } = sample;
        Self { pid, parent, name, role, cpu_percent, rss_bytes }
    }
}

impl From<v1::ProcessSample> for ProcessSample {
    fn from(wire: v1::ProcessSample) -> Self {
        let v1::ProcessSample { pid, parent, name, role, cpu_percent, rss_bytes } = wire;
        Self { pid, parent, name, role, cpu_percent, rss_bytes }
    }
}

/// The name of a finding as it is written everywhere: its serde form.
fn finding_name(id: FindingId) -> String {
    match serde_json::to_value(id) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

impl From<Finding> for v1::Finding {
    fn from(finding: Finding) -> Self {
        Self { id: finding_name(finding.id), detail: finding.detail, hint: finding.hint }
    }
}

impl TryFrom<v1::Finding> for Finding {
    type Error = ConvertError;
    fn try_from(wire: v1::Finding) -> Result<Self, ConvertError> {
        let id = serde_json::from_value(serde_json::Value::String(wire.id.clone()))
            .map_err(|_| unknown("finding.id", wire.id))?;
        Ok(Self { id, detail: wire.detail, hint: wire.hint })
    }
}

impl From<Event> for v1::Event {
    fn from(event: Event) -> Self {
        let body = match event.body {
            EventBody::Started {
                token,
                agent_version,
                contract_version,
                wall_ms,
                model,
                warmup_steps,
                steps,
                num_prompts,
            } => Body::Started(v1::Started {
                token,
                agent_version,
                contract_version,
                wall_ms,
                model,
                warmup_steps,
                steps,
                num_prompts,
            }),
            EventBody::PhaseEntered { phase, deadline_ms } => {
                Body::PhaseEntered(v1::PhaseEntered { phase: Some(phase.into()), deadline_ms })
            }
            EventBody::ServerStarted { pid } => Body::ServerStarted(v1::ServerStarted { pid }),
            EventBody::HealthChanged { path, answer } => Body::HealthChanged(v1::HealthChanged { path, answer }),
            EventBody::ServerReady { startup_ms } => Body::ServerReady(v1::ServerReady { startup_ms }),
            EventBody::FirstToken { elapsed_ms } => Body::FirstToken(v1::FirstToken { elapsed_ms }),
            EventBody::StepStarted { step } => Body::StepStarted(v1::StepStarted { step: Some(step.into()) }),
            EventBody::StepFinished { step, verdict, detail, elapsed_ms, figures, sha256 } => {
                Body::StepFinished(v1::StepFinished {
                    step: Some(step.into()),
                    verdict,
                    detail,
                    elapsed_ms,
                    figures: Some(figures.into()),
                    sha256,
                })
            }
            EventBody::FindingRaised { finding } => Body::FindingRaised(finding.into()),
            EventBody::Stopping { cause } => Body::Stopping(v1::Stopping { cause }),
            EventBody::ServerStopped { detail, elapsed_ms } => {
                Body::ServerStopped(v1::ServerStopped { detail, elapsed_ms })
            }
            EventBody::LogsDropped { source, lines } => Body::LogsOverrun(v1::LogsOverrun { source, lines }),
            EventBody::ResourcesSampled { processes } => Body::ResourcesSampled(v1::ResourcesSampled {
                processes: processes.into_iter().map(Into::into).collect(),
            }),
            EventBody::Finished { exit, reason } => Body::Finished(v1::Finished { exit: u32::from(exit), reason }),
        };
        Self { seq: event.seq, at_ms: event.at_ms, body: Some(body) }
    }
}

impl TryFrom<v1::Event> for Event {
    type Error = ConvertError;
    fn try_from(wire: v1::Event) -> Result<Self, ConvertError> {
        let v1::Event { seq, at_ms, body } = wire;
        let body = match body.ok_or(ConvertError::UnknownEvent { seq })? {
            Body::Started(v1::Started {
                token,
                agent_version,
                contract_version,
                wall_ms,
                model,
                warmup_steps,
                steps,
                num_prompts,
            }) => EventBody::Started {
                token,
                agent_version,
                contract_version,
                wall_ms,
                model,
                warmup_steps,
                steps,
                num_prompts,
            },
            Body::PhaseEntered(v1::PhaseEntered { phase, deadline_ms }) => EventBody::PhaseEntered {
                phase: phase.ok_or(ConvertError::Missing("phase_entered.phase"))?.try_into()?,
                deadline_ms,
            },
            Body::ServerStarted(v1::ServerStarted { pid }) => EventBody::ServerStarted { pid },
            Body::HealthChanged(v1::HealthChanged { path, answer }) => EventBody::HealthChanged { path, answer },
            Body::ServerReady(v1::ServerReady { startup_ms }) => EventBody::ServerReady { startup_ms },
            Body::FirstToken(v1::FirstToken { elapsed_ms }) => EventBody::FirstToken { elapsed_ms },
            Body::StepStarted(v1::StepStarted { step }) => {
                EventBody::StepStarted { step: step.ok_or(ConvertError::Missing("step_started.step"))?.try_into()? }
            }
            Body::StepFinished(finished) => {
                let v1::StepFinished { step, verdict, detail, elapsed_ms, figures, sha256 } = finished;
                EventBody::StepFinished {
                    step: step.ok_or(ConvertError::Missing("step_finished.step"))?.try_into()?,
                    verdict,
                    detail,
                    elapsed_ms,
                    figures: figures.map(Into::into).unwrap_or_default(),
                    sha256,
                }
            }
            Body::FindingRaised(finding) => EventBody::FindingRaised { finding: finding.try_into()? },
            Body::Stopping(v1::Stopping { cause }) => EventBody::Stopping { cause },
            Body::ServerStopped(v1::ServerStopped { detail, elapsed_ms }) => {
                EventBody::ServerStopped { detail, elapsed_ms }
            }
            Body::LogsOverrun(v1::LogsOverrun { source, lines }) => EventBody::LogsDropped { source, lines },
            Body::ResourcesSampled(v1::ResourcesSampled { processes }) => {
                EventBody::ResourcesSampled { processes: processes.into_iter().map(Into::into).collect() }
            }
            Body::Finished(finished) => {
                let Ending { exit, reason } = finished.try_into()?;
                EventBody::Finished { exit, reason }
            }
        };
        Ok(Self { seq, at_ms, body })
    }
}

impl From<Ending> for v1::Finished {
    fn from(ending: Ending) -> Self {
        Self { exit: u32::from(ending.exit), reason: ending.reason }
    }
}

impl TryFrom<v1::Finished> for Ending {
    type Error = ConvertError;
    fn try_from(wire: v1::Finished) -> Result<Self, ConvertError> {
        let exit = u8::try_from(wire.exit).map_err(|_| unknown("finished.exit", wire.exit))?;
        Ok(Self { exit, reason: wire.reason })
    }
}

impl From<PhaseSpan> for v1::PhaseSpan {
    fn from(span: PhaseSpan) -> Self {
        Self { phase: Some(span.phase.into()), from_ms: span.from_ms, deadline_ms: span.deadline_ms }
    }
}

impl TryFrom<v1::PhaseSpan> for PhaseSpan {
    type Error = ConvertError;
    fn try_from(wire: v1::PhaseSpan) -> Result<Self, ConvertError> {
        let phase = wire.phase.ok_or(ConvertError::Missing("phase_span.phase"))?.try_into()?;
        Ok(Self { phase, from_ms: wire.from_ms, deadline_ms: wire.deadline_ms })
    }
}

impl From<StepRun> for v1::StepRun {
    fn from(run: StepRun) -> Self {
        Self { step: Some(run.step.into()), from_ms: run.from_ms }
    }
}

impl TryFrom<v1::StepRun> for StepRun {
    type Error = ConvertError;
    fn try_from(wire: v1::StepRun) -> Result<Self, ConvertError> {
        let step = wire.step.ok_or(ConvertError::Missing("step_run.step"))?.try_into()?;
        Ok(Self { step, from_ms: wire.from_ms })
    }
}

impl From<StepResult> for v1::StepResult {
    fn from(result: StepResult) -> Self {
        let StepResult { step, verdict, detail, elapsed_ms, figures, sha256, at_ms } = result;
        let finished = v1::StepFinished {
            step: Some(step.into()),
            verdict,
            detail,
            elapsed_ms,
            figures: Some(figures.into()),
            sha256,
        };
        Self { finished: Some(finished), at_ms }
    }
}

impl TryFrom<v1::StepResult> for StepResult {
    type Error = ConvertError;
    fn try_from(wire: v1::StepResult) -> Result<Self, ConvertError> {
        let finished = wire.finished.ok_or(ConvertError::Missing("step_result.finished"))?;
        let v1::StepFinished { step, verdict, detail, elapsed_ms, figures, sha256 } = finished;
        Ok(Self {
            step: step.ok_or(ConvertError::Missing("step_finished.step"))?.try_into()?,
            verdict,
            detail,
            elapsed_ms,
            figures: figures.map(Into::into).unwrap_or_default(),
            sha256,
            at_ms: wire.at_ms,
        })
    }
}

impl From<HealthAnswer> for v1::HealthAnswer {
    fn from(health: HealthAnswer) -> Self {
        let HealthAnswer { path, answer, at_ms } = health;
        Self { answer: Some(v1::HealthChanged { path, answer }), at_ms }
    }
}

impl TryFrom<v1::HealthAnswer> for HealthAnswer {
    type Error = ConvertError;
    fn try_from(wire: v1::HealthAnswer) -> Result<Self, ConvertError> {
        let v1::HealthChanged { path, answer } = wire.answer.ok_or(ConvertError::Missing("health_answer.answer"))?;
        Ok(Self { path, answer, at_ms: wire.at_ms })
    }
}

impl From<Status> for v1::Status {
    fn from(status: Status) -> Self {
        Self {
            token: status.token,
            model: status.model,
            agent_version: status.agent_version,
            contract_version: status.contract_version,
            wall_ms: status.wall_ms,
            at_ms: status.at_ms,
            seq: status.seq,
            warmup_steps: status.warmup_steps,
            steps: status.steps,
            num_prompts: status.num_prompts,
            phases: status.phases.into_iter().map(Into::into).collect(),
            running: status.running.map(Into::into),
            results: status.results.into_iter().map(Into::into).collect(),
            steps_passed: status.steps_passed,
            steps_failed: status.steps_failed,
            server_pid: status.server_pid,
            startup_ms: status.startup_ms,
            first_token_ms: status.first_token_ms,
            health: status.health.into_iter().map(Into::into).collect(),
            processes: status.processes.into_iter().map(Into::into).collect(),
            log_lines_dropped: status.log_lines_dropped,
            findings: status.findings.into_iter().map(Into::into).collect(),
            stopping: status.stopping,
            server_end: status.server_end,
            finished: status.finished.map(Into::into),
            bench_pid: status.bench_pid,
            lease: status.lease,
        }
    }
}

impl TryFrom<v1::Status> for Status {
    type Error = ConvertError;
    fn try_from(wire: v1::Status) -> Result<Self, ConvertError> {
        Ok(Self {
            token: wire.token,
            model: wire.model,
            agent_version: wire.agent_version,
            contract_version: wire.contract_version,
            wall_ms: wire.wall_ms,
            at_ms: wire.at_ms,
            seq: wire.seq,
            warmup_steps: wire.warmup_steps,
            steps: wire.steps,
            num_prompts: wire.num_prompts,
            phases: all(wire.phases)?,
            running: wire.running.map(TryInto::try_into).transpose()?,
            results: all(wire.results)?,
            steps_passed: wire.steps_passed,
            steps_failed: wire.steps_failed,
            server_pid: wire.server_pid,
            startup_ms: wire.startup_ms,
            first_token_ms: wire.first_token_ms,
            health: all(wire.health)?,
            processes: wire.processes.into_iter().map(Into::into).collect(),
            log_lines_dropped: wire.log_lines_dropped,
            findings: all(wire.findings)?,
            stopping: wire.stopping,
            server_end: wire.server_end,
            finished: wire.finished.map(TryInto::try_into).transpose()?,
            bench_pid: wire.bench_pid,
            lease: wire.lease,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies() -> Vec<EventBody> {
        let step = Step { kind: StepKind::Measured, number: 2, total: 3 };
        let phases = [
            Phase::Boot,
            Phase::WaitHealth,
            Phase::WaitGenerate,
            Phase::ReadBack,
            Phase::GenerateProbe,
            Phase::Warmup(1),
            Phase::Measure(2),
            Phase::Teardown,
            Phase::Done,
        ];
        let mut bodies = vec![EventBody::Started {
            token: "7-1".into(),
            agent_version: "0.1.0".into(),
            contract_version: 1,
            wall_ms: 1_700_000_000_000,
            model: "m".into(),
            warmup_steps: 1,
            steps: 3,
            num_prompts: 64,
        }];
        bodies.extend(
            phases.into_iter().map(|phase| EventBody::PhaseEntered { phase, deadline_ms: Some(u64::from(u32::MAX)) }),
        );
        bodies.extend([
            EventBody::ServerStarted { pid: 42 },
            EventBody::HealthChanged { path: "/health".into(), answer: "503".into() },
            EventBody::ServerReady { startup_ms: 307 },
            EventBody::FirstToken { elapsed_ms: 5 },
            EventBody::StepStarted { step: Step { kind: StepKind::Warmup, number: 1, total: 1 } },
            EventBody::StepFinished {
                step,
                verdict: "pass".into(),
                detail: "ok".into(),
                elapsed_ms: 900,
                figures: Figures { completed: Some(64), median_ttft_ms: Some(46.25), ..Figures::default() },
                sha256: Some("ab".into()),
            },
            EventBody::FindingRaised { finding: Finding::new(FindingId::LeaseOff, "no lease", "set one") },
            EventBody::Stopping { cause: "SIGTERM".into() },
            EventBody::ServerStopped { detail: "exit 0".into(), elapsed_ms: 12 },
            EventBody::LogsDropped { source: "server".into(), lines: 7 },
            EventBody::ResourcesSampled {
                processes: vec![ProcessSample {
                    pid: 1,
                    parent: 0,
                    name: "agent".into(),
                    role: "agent".into(),
                    cpu_percent: 0.5,
                    rss_bytes: 8 << 20,
                }],
            },
            EventBody::Finished { exit: 143, reason: "aborted".into() },
        ]);
        bodies
    }

    #[test]
    fn every_event_survives_the_wire() {
        let mut status = Status::default();
        for (index, body) in bodies().into_iter().enumerate() {
            let event = Event { seq: index as u64 + 1, at_ms: index as u64 * 10, body };
            status.apply(&event);
            assert_eq!(Event::try_from(v1::Event::from(event.clone())), Ok(event));
        }
        assert!(status.finished.is_some() && !status.results.is_empty() && !status.health.is_empty());
        assert_eq!(Status::try_from(v1::Status::from(status.clone())), Ok(status));
    }

    #[test]
    fn what_is_not_known_is_an_error_and_never_something_else() {
        let newer = v1::Event { seq: 9, at_ms: 1, body: None };
        assert_eq!(Event::try_from(newer), Err(ConvertError::UnknownEvent { seq: 9 }));
        for name in [0, 10, -1] {
            assert!(Phase::try_from(v1::Phase { name, step: 0 }).is_err(), "{name}");
        }
        for kind in [0, 3] {
            assert!(Step::try_from(v1::Step { kind, number: 1, total: 1 }).is_err(), "{kind}");
        }
        let finding = v1::Finding { id: "of_tomorrow".into(), detail: String::new(), hint: String::new() };
        let error = Finding::try_from(finding).unwrap_err();
        assert_eq!(error.to_string(), "finding.id holds \"of_tomorrow\", which this build does not know");
        assert!(Ending::try_from(v1::Finished { exit: 256, reason: String::new() }).is_err());
        let no_step = v1::event::Body::StepStarted(v1::StepStarted { step: None });
        let event = v1::Event { seq: 1, at_ms: 0, body: Some(no_step) };
        assert_eq!(Event::try_from(event), Err(ConvertError::Missing("step_started.step")));
    }
}
