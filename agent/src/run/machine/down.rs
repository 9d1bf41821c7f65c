//! The way down, the same for every cause: bench, server group, strays, end.

use std::process::ExitStatus;

use proto::event::Phase;
use proto::exit::AgentExit;
use proto::finding::{Finding, FindingId};
use proto::marker::Marker;

use super::steps::step_failed;
use super::types::{Effect, Input, Limit, Rung, State, StopCause, Timer, Who};
use super::{Machine, Server};
use crate::run::child::shell_status;

impl Machine {
    /// On the way down.
    pub(super) fn go_down(&mut self, input: Input, todo: &mut Vec<Effect>) {
        match (self.state, input) {
            (State::StoppingBench { exit, .. }, Input::BenchExited(_)) => {
                todo.extend([Effect::Disarm(Timer::Ladder), Effect::ClearBench]);
                self.stop_server(exit, todo);
            }
            (State::StoppingBench { exit, killed: false }, Input::Expired(Timer::Ladder)) => {
                todo.extend([Effect::Kill(Who::Bench), Effect::Arm(Timer::Ladder, Limit::KillWait)]);
                self.state = State::StoppingBench { exit, killed: true };
            }
            (State::StoppingBench { exit, killed: true }, Input::Expired(Timer::Ladder)) => {
                self.stop_server(exit, todo);
            }

            (State::StoppingServer { exit, rung }, Input::Alive(Who::Server, alive)) => {
                self.server_group(exit, rung, alive, todo);
            }
            (State::StoppingServer { exit, rung: Rung::Terminated }, Input::Expired(Timer::Ladder)) => {
                let grace = self.plan.teardown_grace_sec;
                todo.extend([
                    Effect::Say(Marker::Info(format!("server ignored SIGTERM after {grace}s; sending SIGKILL"))),
                    Effect::Find(Finding::new(
                        FindingId::ServerIgnoredTerm,
                        format!("the server's group was alive {grace} s after SIGTERM and was killed"),
                        "raise teardown_grace_sec, or find what does not end: a server killed in GPU work pins memory",
                    )),
                    Effect::Kill(Who::Server),
                    Effect::Arm(Timer::Ladder, Limit::KillWait),
                ]);
                self.state = State::StoppingServer { exit, rung: Rung::Killed };
            }
            (State::StoppingServer { exit, rung: Rung::Killed }, Input::Expired(Timer::Ladder)) => {
                self.sweep(exit, todo);
            }

            (State::Sweeping { exit, rung }, Input::Alive(Who::Strays, alive)) => self.strays(exit, rung, alive, todo),
            (State::Sweeping { exit, rung: Rung::Terminated }, Input::Expired(Timer::Ladder)) => {
                todo.extend([Effect::Kill(Who::Strays), Effect::Arm(Timer::Ladder, Limit::KillWait)]);
                self.state = State::Sweeping { exit, rung: Rung::Killed };
            }
            (State::Sweeping { exit, rung: Rung::Killed }, Input::Expired(Timer::Ladder)) => {
                todo.push(Effect::ReportSurvivors);
                self.finish(exit, todo);
            }
            (_, _) => {}
        }
    }

    pub(super) fn server_exited(&mut self, status: ExitStatus, todo: &mut Vec<Effect>) {
        let rc = shell_status(status);
        match self.state {
            State::WaitHealth { .. } | State::WaitGenerate { .. } | State::GenerateProbe => {
                let text = format!("server_exited_during_startup rc={rc}");
                self.fail(text, Some(true), AgentExit::ServerExitedDuringStartup, todo);
            }
            State::ReadBack { .. } => {
                let exit = AgentExit::RolloutSamplingBackendUnverified;
                self.fail(format!("{}: server exited rc={rc}", exit.reason()), Some(false), exit, todo);
            }
            State::Running(step) => {
                let text = format!("{} server exited rc={rc}", step.words());
                step_failed(step, text, todo);
                self.stop_bench(AgentExit::BenchStepFailed, todo);
            }
            State::Auditing { step, .. } => self.state = State::Auditing { step, server: Some(rc) },
            // On its way out, or never there.
            State::Boot
            | State::TimedOut { .. }
            | State::StoppingBench { .. }
            | State::StoppingServer { .. }
            | State::Sweeping { .. }
            | State::Done(_) => {}
        }
    }

    pub(super) fn stop(&mut self, cause: &StopCause, todo: &mut Vec<Effect>) {
        let exit = cause.exit();
        match self.state {
            State::Done(_) => return,
            // Already on the way down: a signal still decides the status, a lost lease no longer does.
            State::StoppingBench { .. } | State::StoppingServer { .. } | State::Sweeping { .. } => {
                if exit == AgentExit::Aborted {
                    self.redirect(exit, cause, todo);
                }
                return;
            }
            State::Boot
            | State::WaitHealth { .. }
            | State::WaitGenerate { .. }
            | State::ReadBack { .. }
            | State::GenerateProbe
            | State::Running(_)
            | State::TimedOut { .. }
            | State::Auditing { .. } => {}
        }
        todo.extend([Effect::Say(cause.says()), Effect::Stopping(cause.name())]);
        match self.state {
            State::Running(_) | State::TimedOut { killed: false } => self.stop_bench(exit, todo),
            State::TimedOut { killed: true } => self.state = State::StoppingBench { exit, killed: true },
            State::Boot
            | State::WaitHealth { .. }
            | State::WaitGenerate { .. }
            | State::ReadBack { .. }
            | State::GenerateProbe
            | State::Auditing { .. }
            | State::StoppingBench { .. }
            | State::StoppingServer { .. }
            | State::Sweeping { .. }
            | State::Done(_) => self.tear_down(exit, todo),
        }
    }

    /// A stop request while the trial is ending anyway: only its status changes, and only once.
    pub(super) fn redirect(&mut self, to: AgentExit, cause: &StopCause, todo: &mut Vec<Effect>) {
        let exit = match &mut self.state {
            State::StoppingBench { exit, .. } | State::StoppingServer { exit, .. } | State::Sweeping { exit, .. } => {
                exit
            }
            State::Boot
            | State::WaitHealth { .. }
            | State::WaitGenerate { .. }
            | State::ReadBack { .. }
            | State::GenerateProbe
            | State::Running(_)
            | State::TimedOut { .. }
            | State::Auditing { .. }
            | State::Done(_) => return,
        };
        if *exit != to && *exit != AgentExit::Internal {
            *exit = to;
            todo.extend([Effect::Say(cause.says()), Effect::Stopping(cause.name())]);
        }
    }

    pub(super) fn bug(&mut self, what: &str, todo: &mut Vec<Effect>) {
        todo.push(Effect::Say(Marker::Fail(format!("internal_error {what}"))));
        match &mut self.state {
            State::StoppingBench { exit, .. } | State::StoppingServer { exit, .. } | State::Sweeping { exit, .. } => {
                *exit = AgentExit::Internal;
            }
            State::Done(_) => {}
            State::Running(_) | State::TimedOut { .. } => self.stop_bench(AgentExit::Internal, todo),
            State::Boot
            | State::WaitHealth { .. }
            | State::WaitGenerate { .. }
            | State::ReadBack { .. }
            | State::GenerateProbe
            | State::Auditing { .. } => self.tear_down(AgentExit::Internal, todo),
        }
    }

    /// Says a failure, shows the server's log and goes down.
    pub(super) fn fail(&mut self, text: String, tail: Option<bool>, exit: AgentExit, todo: &mut Vec<Effect>) {
        todo.push(Effect::Say(Marker::Fail(text)));
        todo.extend(tail.map(|header| Effect::ServerTail { header }));
        self.tear_down(exit, todo);
    }

    /// The bench is alive: end it first, quickly.
    pub(super) fn stop_bench(&mut self, exit: AgentExit, todo: &mut Vec<Effect>) {
        todo.extend([
            Effect::Disarm(Timer::Phase),
            Effect::Enter(Phase::Teardown),
            Effect::Terminate(Who::Bench),
            Effect::Arm(Timer::Ladder, Limit::BenchKillSoon),
        ]);
        self.state = State::StoppingBench { exit, killed: false };
    }

    /// No bench is alive: on to the server.
    pub(super) fn tear_down(&mut self, exit: AgentExit, todo: &mut Vec<Effect>) {
        todo.extend([Effect::StopAsking, Effect::Disarm(Timer::Phase), Effect::Enter(Phase::Teardown)]);
        self.stop_server(exit, todo);
    }

    pub(super) fn stop_server(&mut self, exit: AgentExit, todo: &mut Vec<Effect>) {
        match self.server {
            Server::None => self.sweep(exit, todo),
            // The leader's end says nothing about its group (failure scenario FS-29).
            Server::Started => {
                self.state = State::StoppingServer { exit, rung: Rung::Looking };
                todo.push(Effect::Watch(Who::Server));
            }
        }
    }

    pub(super) fn server_group(&mut self, exit: AgentExit, rung: Rung, alive: bool, todo: &mut Vec<Effect>) {
        match (rung, alive) {
            (Rung::Looking, true) => {
                todo.extend([Effect::Terminate(Who::Server), Effect::Arm(Timer::Ladder, Limit::Grace)]);
                self.state = State::StoppingServer { exit, rung: Rung::Terminated };
            }
            (Rung::Terminated, false) => {
                todo.push(Effect::Say(Marker::Info("server exited cleanly on SIGTERM".into())));
                self.sweep(exit, todo);
            }
            (Rung::Looking | Rung::Killed, false) => self.sweep(exit, todo),
            (Rung::Terminated | Rung::Killed, true) => {}
        }
    }

    pub(super) fn sweep(&mut self, exit: AgentExit, todo: &mut Vec<Effect>) {
        self.state = State::Sweeping { exit, rung: Rung::Looking };
        todo.extend([Effect::Disarm(Timer::Ladder), Effect::Watch(Who::Strays)]);
    }

    pub(super) fn strays(&mut self, exit: AgentExit, rung: Rung, alive: bool, todo: &mut Vec<Effect>) {
        match (rung, alive) {
            (_, false) => self.finish(exit, todo),
            (Rung::Looking, true) => {
                todo.extend([Effect::Terminate(Who::Strays), Effect::Arm(Timer::Ladder, Limit::StrayGrace)]);
                self.state = State::Sweeping { exit, rung: Rung::Terminated };
            }
            (Rung::Terminated, true) => {}
            // Whoever forked meanwhile gets it too.
            (Rung::Killed, true) => todo.push(Effect::Kill(Who::Strays)),
        }
    }

    pub(super) fn finish(&mut self, exit: AgentExit, todo: &mut Vec<Effect>) {
        self.state = State::Done(exit);
        todo.extend([Effect::Disarm(Timer::Ladder), Effect::Enter(Phase::Done), Effect::Finish(exit)]);
    }
}
