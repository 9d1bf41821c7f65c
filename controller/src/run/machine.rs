//! The lifecycle of one trial as a pure function: what happened, and what to do about it. No clock, no I/O; timers are
//! inputs too. The driver is [`super::dispatcher`].
//!
//! ```text
//! Preparing -> Spawning -> Running -> Stopping -> Removing -> Collecting -> WaitingForGpu -> Over
//! ```
//! Client first, then the container, then GPU memory, on every path; on a signal the last is skipped.

use std::time::Duration;

use super::timings::Timings;

/// Why the client is being ended, or how it ended; a stronger cause replaces a weaker one, never the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It exited by itself.
    Exit,
    /// Its container is gone and it did not notice.
    Hung,
    /// It could not be spawned or waited for.
    Error,
    /// The whole-container deadline.
    Deadline,
    /// The controller was told to stop.
    Signal,
}

/// How far the client's end has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// SIGTERM sent.
    Term,
    /// SIGKILL sent.
    Kill,
}

/// Where the trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Checks, staging, pull: nothing of the trial exists.
    Preparing,
    /// Recorded, and about to exist.
    Spawning,
    /// The client lives.
    Running,
    /// The container is gone, the client may still notice.
    Lingering,
    /// The client is being ended.
    Stopping(Cause, Stage),
    /// The container is being removed and its absence proven.
    Removing(Cause),
    /// Exports are being read.
    Collecting(Cause),
    /// GPU memory is being waited for.
    WaitingForGpu,
    /// Nothing is left to do.
    Over,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Checks, staging and pull are done.
    Prepared,
    /// Something that the host lacks.
    PrepareFailed,
    /// The client exists.
    Spawned,
    /// The client could not be started.
    SpawnFailed,
    /// The client is reaped.
    ClientReaped,
    /// A query proved the container gone while the client lives.
    ContainerGone,
    /// The whole-container deadline.
    Deadline,
    /// A timer that was armed.
    Timer(Timer),
    /// SIGTERM, SIGHUP, SIGINT, or the parent's end.
    Signal,
    /// The removal came to its end, proven or not.
    Removed,
    /// Exports are read.
    Collected,
    /// GPU memory is back, or waiting stopped helping.
    GpuDone,
}

/// Timers of the client's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// A lingering client had time to notice.
    Linger,
    /// The grace after SIGTERM is over.
    Grace,
    /// The wait after SIGKILL is over.
    Reap,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Record the trial, then start the client.
    Spawn,
    /// SIGTERM to the client.
    TermClient,
    /// SIGKILL to the client's group.
    KillClient,
    /// Replaces the one timer.
    Arm(Timer, Duration),
    /// Remove the container and prove its absence.
    Remove {
        /// The client is gone for certain: nothing can create the container any more.
        reaped: bool,
    },
    /// A removal under way has only the signal path's time left.
    HurryRemoval,
    /// Read exports and journal.
    Collect,
    /// Wait for GPU memory.
    WaitForGpu,
    /// Write the document as it stands.
    WriteInterrupted,
    /// Write the document for good and return.
    Finish,
    /// Write the document for good and die by the first signal.
    Die,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    state: State,
    timings: Timings,
}

impl Machine {
    /// A trial of which nothing exists.
    pub const fn new(timings: Timings) -> Self {
        Self { state: State::Preparing, timings }
    }

    /// Where it is.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Takes one input, moves, and says what to do.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let (state, effects) = self.next(input);
        self.state = state;
        effects
    }

    fn next(&self, input: Input) -> (State, Vec<Effect>) {
        use Cause::{Deadline, Error, Exit, Hung, Signal};
        use Stage::{Kill, Term};
        use State::{Collecting, Lingering, Over, Preparing, Removing, Running, Spawning, Stopping, WaitingForGpu};
        let t = &self.timings;
        let stay = (self.state, Vec::new());
        match (self.state, input) {
            (Preparing, Input::Prepared) => (Spawning, vec![Effect::Spawn]),
            (Preparing, Input::PrepareFailed) | (WaitingForGpu, Input::GpuDone) => (Over, vec![Effect::Finish]),
            // Nothing of the trial exists, or nothing is left.
            (Preparing | WaitingForGpu, Input::Signal) => (Over, vec![Effect::WriteInterrupted, Effect::Die]),

            (Spawning, Input::Spawned) => (Running, vec![]),
            // Nobody can create the container now, but whether somebody did is not known.
            (Spawning, Input::SpawnFailed) => (Removing(Error), vec![Effect::Remove { reaped: true }]),

            (Running | Lingering, Input::ClientReaped) => (Removing(Exit), vec![Effect::Remove { reaped: true }]),
            (Running, Input::ContainerGone) => (Lingering, vec![Effect::Arm(Timer::Linger, t.hung_client)]),
            (Running | Lingering, Input::Deadline) => self.stop(Deadline),
            (Lingering, Input::Timer(Timer::Linger)) => self.stop(Hung),

            (Spawning | Running | Lingering, Input::Signal) => self.stop(Signal),
            (Stopping(cause, stage), Input::Signal) if cause < Signal => match stage {
                Term => self.stop(Signal),
                // It is killed already; only the wait for its end gets shorter.
                Kill => {
                    (Stopping(Signal, Kill), vec![Effect::WriteInterrupted, Effect::Arm(Timer::Reap, t.signal_reap)])
                }
            },
            // A second signal may only shorten the client's grace.
            (Stopping(Signal, Term), Input::Signal) | (Stopping(_, Term), Input::Timer(Timer::Grace)) => {
                let Stopping(cause, _) = self.state else { return stay };
                let wait = if cause == Signal { t.signal_reap } else { t.client_kill_wait };
                (Stopping(cause, Kill), vec![Effect::KillClient, Effect::Arm(Timer::Reap, wait)])
            }
            (Stopping(cause, _), Input::ClientReaped) => (Removing(cause), vec![Effect::Remove { reaped: true }]),
            (Stopping(cause, Kill), Input::Timer(Timer::Reap)) => {
                (Removing(cause), vec![Effect::Remove { reaped: false }])
            }

            (Removing(cause), Input::Signal) if cause < Signal => {
                (Removing(Signal), vec![Effect::WriteInterrupted, Effect::HurryRemoval])
            }
            (Removing(cause), Input::Removed) => (Collecting(cause), vec![Effect::Collect]),

            (Collecting(cause), Input::Signal) if cause < Signal => {
                (Collecting(Signal), vec![Effect::WriteInterrupted])
            }
            (Collecting(Signal), Input::Collected) => (Over, vec![Effect::Die]),
            (Collecting(Exit | Hung | Error | Deadline), Input::Collected) => (WaitingForGpu, vec![Effect::WaitForGpu]),

            // Late or repeated news changes nothing.
            (
                Preparing | Spawning | Running | Lingering | Stopping(..) | Removing(_) | Collecting(_) | WaitingForGpu
                | Over,
                Input::Prepared
                | Input::PrepareFailed
                | Input::Spawned
                | Input::SpawnFailed
                | Input::ClientReaped
                | Input::ContainerGone
                | Input::Deadline
                | Input::Timer(_)
                | Input::Signal
                | Input::Removed
                | Input::Collected
                | Input::GpuDone,
            ) => stay,
        }
    }

    fn stop(&self, cause: Cause) -> (State, Vec<Effect>) {
        let t = &self.timings;
        let (mut effects, grace) = if cause == Cause::Signal {
            (vec![Effect::WriteInterrupted], t.signal_kill)
        } else {
            (Vec::new(), t.client_grace)
        };
        effects.extend([Effect::TermClient, Effect::Arm(Timer::Grace, grace)]);
        (State::Stopping(cause, Stage::Term), effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(inputs: &[Input]) -> (State, Vec<Effect>) {
        let mut machine = Machine::new(Timings::default());
        let mut last = Vec::new();
        for input in inputs {
            last = machine.step(*input);
        }
        (machine.state(), last)
    }

    const UP: [Input; 2] = [Input::Prepared, Input::Spawned];

    fn after(more: &[Input]) -> (State, Vec<Effect>) {
        run(&[&UP, more].concat())
    }

    #[test]
    fn clean_run_row_214() {
        let (state, effects) = after(&[Input::ClientReaped]);
        assert_eq!((state, effects), (State::Removing(Cause::Exit), vec![Effect::Remove { reaped: true }]));
        let (state, effects) = after(&[Input::ClientReaped, Input::Removed, Input::Collected]);
        assert_eq!((state, effects), (State::WaitingForGpu, vec![Effect::WaitForGpu]));
        assert_eq!(
            after(&[Input::ClientReaped, Input::Removed, Input::Collected, Input::GpuDone]),
            (State::Over, vec![Effect::Finish])
        );
    }

    /// FS-13.
    #[test]
    fn deadline_ends_the_client_before_the_container_rows_215_216() {
        let t = Timings::default();
        assert_eq!(after(&[Input::Deadline]).1, [Effect::TermClient, Effect::Arm(Timer::Grace, t.client_grace)]);
        assert_eq!(
            after(&[Input::Deadline, Input::Timer(Timer::Grace)]).1,
            [Effect::KillClient, Effect::Arm(Timer::Reap, t.client_kill_wait)]
        );
        let unkillable = [Input::Deadline, Input::Timer(Timer::Grace), Input::Timer(Timer::Reap)];
        assert_eq!(after(&unkillable), (State::Removing(Cause::Deadline), vec![Effect::Remove { reaped: false }]));
    }

    #[test]
    fn a_signal_writes_first_and_skips_the_gpu_row_218() {
        let t = Timings::default();
        let (state, effects) = after(&[Input::Signal]);
        assert_eq!(state, State::Stopping(Cause::Signal, Stage::Term));
        assert_eq!(effects, [Effect::WriteInterrupted, Effect::TermClient, Effect::Arm(Timer::Grace, t.signal_kill)]);
        let (state, effects) = after(&[Input::Signal, Input::ClientReaped, Input::Removed, Input::Collected]);
        assert_eq!((state, effects), (State::Over, vec![Effect::Die]));
    }

    /// FS-20.
    #[test]
    fn a_second_signal_only_shortens_the_grace() {
        let t = Timings::default();
        assert_eq!(
            after(&[Input::Signal, Input::Signal]).1,
            [Effect::KillClient, Effect::Arm(Timer::Reap, t.signal_reap)]
        );
        for more in [
            &[Input::Signal, Input::Signal, Input::Signal][..],
            &[Input::Signal, Input::ClientReaped, Input::Signal],
            &[Input::Signal, Input::ClientReaped, Input::Removed, Input::Signal],
        ] {
            assert_eq!(after(more).1, [], "{more:?}");
        }
    }

    /// Whatever came before, a signal ends in death by it, with the container's absence asked for and no GPU wait.
    /// FS-22.
    #[test]
    fn every_state_answers_a_signal() {
        let news = [Input::Prepared, Input::Spawned, Input::ClientReaped, Input::Removed, Input::Collected];
        for at in 0..=news.len() {
            let mut machine = Machine::new(Timings::default());
            let mut all = Vec::new();
            for input in &news[..at] {
                all.extend(machine.step(*input));
            }
            all.extend(machine.step(Input::Signal));
            assert!(all.contains(&Effect::WriteInterrupted), "{at}");
            for input in news.iter().chain([&Input::GpuDone]) {
                all.extend(machine.step(*input));
            }
            assert_eq!(all.last(), Some(&Effect::Die), "{at}: {all:?}");
            let spawned = all.contains(&Effect::Spawn);
            assert_eq!(all.iter().any(|e| matches!(e, Effect::Remove { .. })), spawned, "{at}");
            assert_eq!(machine.state(), State::Over);
        }
    }

    /// A seeded walk over every input in every state: no removal while the client may live, no end without a proof.
    /// FS-13.
    #[test]
    fn no_order_of_events_removes_before_reaping() {
        let inputs = [
            Input::Prepared,
            Input::Spawned,
            Input::SpawnFailed,
            Input::ClientReaped,
            Input::ContainerGone,
            Input::Deadline,
            Input::Timer(Timer::Linger),
            Input::Timer(Timer::Grace),
            Input::Timer(Timer::Reap),
            Input::Signal,
            Input::Removed,
            Input::Collected,
            Input::GpuDone,
        ];
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..2000 {
            let mut machine = Machine::new(Timings::default());
            let (mut reaped, mut killed, mut removed, mut spawned) = (false, false, 0, false);
            for _ in 0..60 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let input = inputs[usize::try_from(seed % inputs.len() as u64).unwrap()];
                reaped |= matches!(input, Input::ClientReaped | Input::SpawnFailed);
                for effect in machine.step(input) {
                    match effect {
                        Effect::Spawn => spawned = true,
                        Effect::KillClient => killed = true,
                        Effect::Remove { reaped: said } => {
                            removed += 1;
                            assert!(if said { reaped } else { killed });
                        }
                        Effect::Finish | Effect::Die => assert_eq!(removed, i32::from(spawned)),
                        Effect::TermClient
                        | Effect::Arm(..)
                        | Effect::HurryRemoval
                        | Effect::Collect
                        | Effect::WaitForGpu
                        | Effect::WriteInterrupted => {}
                    }
                }
            }
        }
    }
}
