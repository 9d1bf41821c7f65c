//! The trial as a state machine: every state meets every input, without a clock and without I/O.
//!
//! Server exit, deadlines and stop requests are inputs in every state. A cause that ends the trial leads to
//! the same way down: bench, server group, strays, end. News of a state that was left meanwhile (an answer,
//! an exit, a deadline) changes nothing.

mod down;
mod steps;
#[cfg(test)]
mod tests;
mod types;
mod up;

use std::sync::Arc;

use proto::event::Phase;
use proto::exit::AgentExit;

use crate::config::LaunchPlan;

pub use types::{
    Ask, Audit, BenchListed, Effect, FirstToken, Input, Limit, Listening, ReadBack, Rung, State, StopCause, Timer, Who,
};

/// One trial.
#[derive(Debug)]
pub struct Machine {
    plan: Arc<LaunchPlan>,
    read_back_tries: u32,
    state: State,
    /// The last measured step that failed its audit decides (contract C).
    recorded: Option<AgentExit>,
    server: Server,
}

/// Whether there is a group that must be looked at on the way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Never started.
    None,
    /// Started; its leader may be gone, which says nothing about its group.
    Started,
}

impl Machine {
    /// A trial before its first move.
    pub fn new(plan: Arc<LaunchPlan>, read_back_tries: u32) -> Self {
        Self { plan, read_back_tries, state: State::Boot, recorded: None, server: Server::None }
    }

    /// Where it is.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The first move.
    pub fn start(&mut self) -> Vec<Effect> {
        vec![Effect::Enter(Phase::Boot), Effect::Query]
    }

    /// One input, and what follows from it.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut todo = Vec::new();
        match (input, self.state) {
            (Input::Stop(cause), _) => self.stop(&cause, &mut todo),
            (Input::Bug(what), _) => self.bug(&what, &mut todo),
            (Input::ServerExited(status), _) => self.server_exited(status, &mut todo),
            (
                input,
                State::Boot
                | State::WaitHealth { .. }
                | State::WaitGenerate { .. }
                | State::ReadBack { .. }
                | State::GenerateProbe,
            ) => self.go_up(input, &mut todo),
            (input, State::Running(_) | State::TimedOut { .. } | State::Auditing { .. }) => {
                self.go_on(input, &mut todo);
            }
            (input, State::StoppingBench { .. } | State::StoppingServer { .. } | State::Sweeping { .. }) => {
                self.go_down(input, &mut todo);
            }
            (_, State::Done(_)) => {}
        }
        todo
    }
}
