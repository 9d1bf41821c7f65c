//! The steps: bench, deadline, audit, next.

use std::process::ExitStatus;

use proto::event::{Figures, Phase};
use proto::exit::AgentExit;
use proto::finding::{Finding, FindingId};
use proto::marker::{Marker, Outcome};

use super::Machine;
use super::types::{Audit, Effect, Input, Limit, State, Timer, Who};
use crate::config::StepId;
use crate::run::child::shell_status;

impl Machine {
    /// While there are steps.
    pub(super) fn go_on(&mut self, input: Input, todo: &mut Vec<Effect>) {
        match (self.state, input) {
            (State::Running(step), Input::NotStarted(Who::Bench, why)) => {
                let text = format!("{} bench cannot be started: {why}", step.words());
                step_failed(step, text, todo);
                self.tear_down(AgentExit::BenchStepFailed, todo);
            }
            (State::Running(step), Input::BenchExited(status)) => self.bench_exited(step, status, todo),
            (State::Running(step), Input::Expired(Timer::Phase)) => {
                let text = format!("{} timed out after {}s", step.words(), self.plan.bench_timeout_sec);
                step_failed(step, text, todo);
                todo.extend([Effect::Terminate(Who::Bench), Effect::Arm(Timer::Ladder, Limit::BenchKill)]);
                self.state = State::TimedOut { killed: false };
            }
            (State::TimedOut { .. }, Input::BenchExited(_)) => {
                todo.extend([Effect::Disarm(Timer::Ladder), Effect::ClearBench]);
                self.tear_down(AgentExit::BenchStepFailed, todo);
            }
            (State::TimedOut { killed: false }, Input::Expired(Timer::Ladder)) => {
                todo.extend([Effect::Kill(Who::Bench), Effect::Arm(Timer::Ladder, Limit::KillWait)]);
                self.state = State::TimedOut { killed: true };
            }
            (State::TimedOut { killed: true }, Input::Expired(Timer::Ladder)) => {
                self.tear_down(AgentExit::BenchStepFailed, todo);
            }
            (State::Auditing { step, server }, Input::Audited(audit)) => self.audited(step, server, audit, todo),
            (_, _) => {}
        }
    }

    pub(super) fn begin(&mut self, step: StepId, todo: &mut Vec<Effect>) {
        let (phase, total) = match step {
            StepId::Warmup(n) => (Phase::Warmup(n), self.plan.warmup_steps),
            StepId::Measured(n) => (Phase::Measure(n), self.plan.steps),
        };
        self.state = State::Running(step);
        todo.extend([Effect::Arm(Timer::Phase, Limit::Step), Effect::Enter(phase)]);
        if let StepId::Measured(n) = step {
            todo.push(Effect::Say(Marker::StepStart(n)));
        }
        let path = self.plan.export(step);
        todo.extend([
            Effect::Say(Marker::Info(format!("{}/{total} -> {}", step.words(), path.display()))),
            Effect::StartBench(step),
        ]);
    }

    pub(super) fn bench_exited(&mut self, step: StepId, status: ExitStatus, todo: &mut Vec<Effect>) {
        todo.extend([Effect::Disarm(Timer::Phase), Effect::ClearBench]);
        if status.success() {
            self.state = State::Auditing { step, server: None };
            todo.push(Effect::Audit(step));
        } else {
            let text = format!("{} bench exited rc={}", step.words(), shell_status(status));
            step_failed(step, text, todo);
            self.tear_down(AgentExit::BenchStepFailed, todo);
        }
    }

    pub(super) fn audited(&mut self, step: StepId, server: Option<i32>, audit: Audit, todo: &mut Vec<Effect>) {
        let failed = match audit {
            Audit::Missing => {
                let path = self.plan.export(step);
                let text = format!("exported no result JSON at {}", path.display());
                todo.push(Effect::Say(Marker::Fail(format!("{} {text}", step.words()))));
                let exit = AgentExit::ResultJsonUnusable;
                todo.push(over(step, exit.reason(), text, Figures::default(), None));
                return self.tear_down(exit, todo);
            }
            Audit::Sound { summary, figures, sha256, lens_absent } => {
                if let StepId::Measured(n) = step {
                    todo.push(Effect::Say(Marker::StepDigest(n, sha256.clone())));
                }
                todo.push(Effect::Say(Marker::Ok(format!("{} {summary}", step.words()))));
                if lens_absent && self.plan.load.save_detailed && self.plan.expectation().respects_eos() {
                    todo.push(Effect::Find(Finding::new(
                        FindingId::OutputLensAbsent,
                        format!("{}: --save-detailed was passed and the export has no output_lens", step.words()),
                        "lengths were judged per request; check the bench's version",
                    )));
                }
                todo.push(over(step, "pass", summary, figures, Some(sha256)));
                None
            }
            Audit::Unsound { exit, detail, shows_server_log, figures, sha256 } => {
                if let (StepId::Measured(n), Some(hex)) = (step, &sha256) {
                    todo.push(Effect::Say(Marker::StepDigest(n, hex.clone())));
                }
                todo.push(Effect::Say(Marker::Fail(format!("{} {} {detail}", step.words(), exit.reason()))));
                if shows_server_log {
                    todo.push(Effect::ServerTail { header: false });
                }
                todo.push(over(step, exit.reason(), detail, figures, sha256));
                Some(exit)
            }
        };
        match (step, failed) {
            (StepId::Warmup(_), Some(exit)) => return self.tear_down(exit, todo),
            (StepId::Measured(_), Some(exit)) => self.recorded = Some(exit),
            (StepId::Warmup(_) | StepId::Measured(_), None) => {}
        }
        match (self.plan.step_after(step), server) {
            (Some(_), Some(status)) => {
                let text = format!("server exited rc={status} after {}, steps remain", step.words());
                self.fail(text, Some(false), AgentExit::BenchStepFailed, todo);
            }
            (Some(next), None) => self.begin(next, todo),
            (None, status) => {
                if let Some(status) = status {
                    todo.push(Effect::Find(gone_after_steps(status)));
                }
                let exit = self.recorded.unwrap_or(AgentExit::Pass);
                let outcome = if exit == AgentExit::Pass { Outcome::Pass } else { Outcome::Fail };
                todo.push(Effect::Say(Marker::Result(outcome)));
                self.tear_down(exit, todo);
            }
        }
    }
}

fn over(step: StepId, verdict: &str, detail: String, figures: Figures, sha256: Option<String>) -> Effect {
    Effect::StepOver { step, verdict: verdict.to_owned(), detail, figures, sha256 }
}

fn gone_after_steps(status: i32) -> Finding {
    Finding::new(
        FindingId::ServerExitedAfterSteps,
        format!("the server exited by itself, rc={status}, after the bench of the last step had ended"),
        "read the server's log: every step was served, but a server should stay up until it is told to stop",
    )
}

/// A step that has no export to judge.
pub(super) fn step_failed(step: StepId, text: String, todo: &mut Vec<Effect>) {
    let reason = AgentExit::BenchStepFailed.reason();
    todo.extend([
        Effect::Say(Marker::Fail(text.clone())),
        Effect::ServerTail { header: false },
        over(step, reason, text, Figures::default(), None),
    ]);
}
