//! From the start to the first step: readiness, generation, read-back, first token.

use proto::event::Phase;
use proto::exit::AgentExit;
use proto::finding::{Finding, FindingId};
use proto::limits::BenchTool;
use proto::marker::Marker;

use super::types::{Ask, BenchListed, Effect, FirstToken, Input, Limit, Listening, ReadBack, State, Timer, Who};
use super::{Machine, Server};

impl Machine {
    /// Before the first step.
    pub(super) fn go_up(&mut self, input: Input, todo: &mut Vec<Effect>) {
        match (self.state, input) {
            (State::Boot, Input::Queried(listed)) => self.queried(listed, todo),
            (State::Boot, Input::PortTaken(by)) => {
                todo.push(Effect::Say(Marker::Fail(format!("usage TS_PORT and TS_CONTROL_PORT must be free: {by}"))));
                self.tear_down(AgentExit::Usage, todo);
            }
            (State::WaitHealth { .. }, Input::NotStarted(Who::Server, why)) => {
                todo.push(Effect::Say(Marker::Fail(format!("server_exited_during_startup, cannot be started: {why}"))));
                self.server = Server::None;
                self.tear_down(AgentExit::ServerExitedDuringStartup, todo);
            }

            (State::WaitHealth { .. }, Input::Healthy(listening)) => self.healthy(listening, todo),
            (State::WaitHealth { overdue: false }, Input::Expired(Timer::Phase)) => {
                self.state = State::WaitHealth { overdue: true };
                todo.push(Effect::AskLast);
            }
            (State::WaitHealth { .. }, Input::LastAskFailed(Ask::Health)) => {
                let text = format!("readiness_timeout after {}s", self.plan.ready_timeout_sec);
                self.fail(text, Some(true), AgentExit::ReadinessTimeout, todo);
            }

            (State::WaitGenerate { .. }, Input::Generates) => {
                todo.push(Effect::Say(Marker::Ok("health_generate".into())));
                self.after_generate(todo);
            }
            (State::WaitGenerate { overdue: false }, Input::Expired(Timer::Phase)) => {
                self.state = State::WaitGenerate { overdue: true };
                todo.push(Effect::AskLast);
            }
            (State::WaitGenerate { .. }, Input::LastAskFailed(Ask::Generate)) => {
                let text = "health_generate_unhealthy".to_owned();
                self.fail(text, Some(false), AgentExit::HealthGenerateUnhealthy, todo);
            }

            (State::ReadBack { left }, Input::ReadBack(answer)) => self.read_back(answer, left, todo),
            (State::ReadBack { .. }, Input::Expired(Timer::Phase)) => todo.push(Effect::Ask(Ask::ReadBack)),

            (State::GenerateProbe, Input::FirstToken(answer)) => self.first_token(answer, todo),
            (State::GenerateProbe, Input::Expired(Timer::Phase)) => {
                let text = "health_generate_unhealthy: no token was streamed in the window".to_owned();
                self.fail(text, Some(false), AgentExit::HealthGenerateUnhealthy, todo);
            }
            (_, _) => {}
        }
    }

    pub(super) fn queried(&mut self, listed: BenchListed, todo: &mut Vec<Effect>) {
        match listed {
            // Another program makes the load: whether this one could does not matter.
            _ if self.plan.bench_tool == BenchTool::Native => {}
            BenchListed::No => {
                let text = "usage PATH leads to a tokenspeed whose --help lists no bench";
                todo.push(Effect::Say(Marker::Fail(text.into())));
                return self.tear_down(AgentExit::Usage, todo);
            }
            BenchListed::NoList => todo.push(Effect::Find(Finding::new(
                FindingId::NoBenchSubcommandList,
                "tokenspeed --help gave no list of sub-commands in time",
                "check by hand that this build has `tokenspeed bench serve`",
            ))),
            BenchListed::Yes => {}
        }
        if let Some(sec) = self.plan.engine_startup_timeout() {
            todo.push(Effect::Find(Finding::new(
                FindingId::EngineStartupTimeoutRaised,
                format!(
                    "--engine-startup-timeout {sec} was passed, so that the readiness deadline is the one that binds"
                ),
                "name the flag in serve_args to set it yourself",
            )));
        }
        self.server = Server::Started;
        self.state = State::WaitHealth { overdue: false };
        todo.extend([
            Effect::Preamble,
            Effect::Arm(Timer::Phase, Limit::Ready),
            Effect::Enter(Phase::WaitHealth),
            Effect::StartServer,
            Effect::Ask(Ask::Health),
        ]);
    }

    pub(super) fn healthy(&mut self, listening: Listening, todo: &mut Vec<Effect>) {
        match listening {
            Listening::Stranger(who) => {
                let text = format!("readiness_timeout: a stranger answers instead of the server: {who}");
                return self.fail(text, Some(true), AgentExit::ReadinessTimeout, todo);
            }
            Listening::OursBeyondLoopback(what) => todo.push(Effect::Find(Finding::new(
                FindingId::ListensBeyondLoopback,
                what,
                "use a server that honours --host 127.0.0.1, or a network namespace of its own",
            ))),
            Listening::Ours | Listening::Unknown => {}
        }
        self.state = State::WaitGenerate { overdue: false };
        todo.extend([
            Effect::StopAsking,
            Effect::ReportReady,
            Effect::Arm(Timer::Phase, Limit::Generate),
            Effect::Enter(Phase::WaitGenerate),
            Effect::Ask(Ask::Generate),
        ]);
    }

    pub(super) fn after_generate(&mut self, todo: &mut Vec<Effect>) {
        todo.extend([Effect::StopAsking, Effect::Disarm(Timer::Phase)]);
        if self.plan.rollout.is_some() {
            self.state = State::ReadBack { left: self.read_back_tries.saturating_sub(1) };
            todo.extend([Effect::Enter(Phase::ReadBack), Effect::Ask(Ask::ReadBack)]);
        } else {
            self.before_steps(todo);
        }
    }

    pub(super) fn read_back(&mut self, answer: ReadBack, left: u32, todo: &mut Vec<Effect>) {
        let asked = self.plan.rollout.as_ref().map_or("none", |r| r.backend.as_str());
        let (exit, text) = match answer {
            ReadBack::Same => {
                todo.push(Effect::Say(Marker::Ok(format!("sampling_backend {asked}"))));
                return self.before_steps(todo);
            }
            ReadBack::Unverified(_) if left > 0 => {
                self.state = State::ReadBack { left: left - 1 };
                todo.push(Effect::Arm(Timer::Phase, Limit::ReadBackPause));
                return;
            }
            ReadBack::Unverified(why) => (AgentExit::RolloutSamplingBackendUnverified, why),
            ReadBack::Greedy => (AgentExit::RolloutSamplingIgnored, "the engine reports greedy".to_owned()),
            ReadBack::Other(name) => {
                (AgentExit::RolloutSamplingBackendMismatch, format!("the engine reports {name:?}"))
            }
        };
        self.fail(format!("{}: {text}, requested {asked}", exit.reason()), Some(false), exit, todo);
    }

    pub(super) fn before_steps(&mut self, todo: &mut Vec<Effect>) {
        if self.plan.generate_probe {
            self.state = State::GenerateProbe;
            todo.extend([
                Effect::Arm(Timer::Phase, Limit::FirstToken),
                Effect::Enter(Phase::GenerateProbe),
                Effect::Ask(Ask::FirstToken),
            ]);
        } else {
            self.begin(self.plan.first_step(), todo);
        }
    }

    pub(super) fn first_token(&mut self, answer: FirstToken, todo: &mut Vec<Effect>) {
        match answer {
            FirstToken::Seen(ms) => {
                todo.extend([
                    Effect::StopAsking,
                    Effect::Disarm(Timer::Phase),
                    Effect::Say(Marker::Ok(format!("generate probe: first token after {ms} ms"))),
                ]);
                self.begin(self.plan.first_step(), todo);
            }
            // The driver asks again by itself and shows what it got.
            FirstToken::Again(_) => {}
            FirstToken::Refused(why) => {
                let text = format!("health_generate_unhealthy: {why}");
                self.fail(text, Some(false), AgentExit::HealthGenerateUnhealthy, todo);
            }
        }
    }
}
