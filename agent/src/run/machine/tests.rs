//! Every state meets every input; then the trial's ways, one by one.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use proptest::prelude::*;
use proto::event::Figures;
use proto::marker::{Marker, Outcome};

use super::*;
use crate::config::{Flags, Source, StepId, parse};

fn plan(pairs: &[(&str, &str)]) -> Arc<LaunchPlan> {
    let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Arc::new(parse(&Source::new(pairs, Flags::default()).unwrap()).unwrap())
}

fn full_plan() -> Arc<LaunchPlan> {
    plan(&[
        ("TS_BENCH_STEPS", "2"),
        ("TS_GENERATE_PROBE", "1"),
        ("TS_ROLLOUT", "1"),
        ("TS_TEMPERATURE", "1"),
        ("TS_IGNORE_EOS", "0"),
        ("TS_RUN_TOKEN", "t"),
    ])
}

fn ended(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

fn sound() -> Audit {
    Audit::Sound {
        summary: "completed=8".into(),
        figures: Figures::default(),
        sha256: "a".repeat(64),
        lens_absent: false,
    }
}

fn unsound(exit: AgentExit) -> Audit {
    Audit::Unsound { exit, detail: "d".into(), shows_server_log: true, figures: Figures::default(), sha256: None }
}

fn states() -> Vec<State> {
    let (warmup, first, last) = (StepId::Warmup(1), StepId::Measured(1), StepId::Measured(2));
    let mut states = vec![State::Boot, State::GenerateProbe];
    for overdue in [false, true] {
        states.extend([State::WaitHealth { overdue }, State::WaitGenerate { overdue }]);
    }
    states.extend([State::ReadBack { left: 2 }, State::ReadBack { left: 0 }]);
    for step in [warmup, first, last] {
        states.extend([State::Running(step), State::Auditing { step, server: None }]);
        states.push(State::Auditing { step, server: Some(0) });
    }
    for killed in [false, true] {
        states.push(State::TimedOut { killed });
        states.push(State::StoppingBench { exit: AgentExit::BenchStepFailed, killed });
    }
    for rung in [Rung::Looking, Rung::Terminated, Rung::Killed] {
        for exit in [AgentExit::Pass, AgentExit::ControllerLost] {
            states.extend([State::StoppingServer { exit, rung }, State::Sweeping { exit, rung }]);
        }
    }
    states.push(State::Done(AgentExit::Pass));
    states
}

fn inputs() -> Vec<Input> {
    let mut inputs = vec![
        Input::Queried(BenchListed::Yes),
        Input::Queried(BenchListed::No),
        Input::Queried(BenchListed::NoList),
        Input::PortTaken("p".into()),
        Input::NotStarted(Who::Server, "e".into()),
        Input::NotStarted(Who::Bench, "e".into()),
        Input::ServerExited(ended(0)),
        Input::BenchExited(ended(0)),
        Input::BenchExited(ended(2)),
        Input::Healthy(Listening::Ours),
        Input::Healthy(Listening::OursBeyondLoopback("o".into())),
        Input::Healthy(Listening::Stranger("s".into())),
        Input::Generates,
        Input::ReadBack(ReadBack::Same),
        Input::ReadBack(ReadBack::Greedy),
        Input::ReadBack(ReadBack::Other("x".into())),
        Input::ReadBack(ReadBack::Unverified("u".into())),
        Input::FirstToken(FirstToken::Seen(3)),
        Input::FirstToken(FirstToken::Again("a".into())),
        Input::FirstToken(FirstToken::Refused("r".into())),
        Input::Audited(sound()),
        Input::Audited(Audit::Missing),
        Input::Audited(unsound(AgentExit::ServedRequestShortfall)),
        Input::Expired(Timer::Phase),
        Input::Expired(Timer::Ladder),
        Input::Stop(StopCause::Signal(Signal::SIGTERM)),
        Input::Stop(StopCause::Abort("a".into())),
        Input::Stop(StopCause::LeaseLost("l".into())),
        Input::Bug("b".into()),
    ];
    for ask in [Ask::Health, Ask::Generate] {
        inputs.push(Input::LastAskFailed(ask));
    }
    for who in [Who::Server, Who::Bench, Who::Strays] {
        inputs.extend([Input::Alive(who, true), Input::Alive(who, false)]);
    }
    inputs
}

fn machine(state: State) -> Machine {
    let server = if state == State::Boot { Server::None } else { Server::Started };
    Machine { plan: full_plan(), read_back_tries: 3, state, recorded: None, server }
}

/// How far down a state is; a trial never goes back up.
const fn depth(state: State) -> u8 {
    match state {
        State::Boot => 0,
        State::WaitHealth { .. } => 1,
        State::WaitGenerate { .. } => 2,
        State::ReadBack { .. } => 3,
        State::GenerateProbe => 4,
        State::Running(_) | State::TimedOut { .. } | State::Auditing { .. } => 5,
        State::StoppingBench { .. } => 6,
        State::StoppingServer { .. } => 7,
        State::Sweeping { .. } => 8,
        State::Done(_) => 9,
    }
}

const fn bench_may_live(state: State) -> bool {
    matches!(state, State::Running(_) | State::TimedOut { .. } | State::StoppingBench { .. })
}

const fn exit_of(state: State) -> Option<AgentExit> {
    match state {
        State::StoppingBench { exit, .. }
        | State::StoppingServer { exit, .. }
        | State::Sweeping { exit, .. }
        | State::Done(exit) => Some(exit),
        State::TimedOut { .. } => Some(AgentExit::BenchStepFailed),
        State::Boot
        | State::WaitHealth { .. }
        | State::WaitGenerate { .. }
        | State::ReadBack { .. }
        | State::GenerateProbe
        | State::Running(_)
        | State::Auditing { .. } => None,
    }
}

#[test]
fn every_state_meets_every_input() {
    for before in states() {
        for input in inputs() {
            let mut machine = machine(before);
            let effects = machine.step(input.clone());
            let after = machine.state();
            let case = format!("{before:?} + {input:?} -> {after:?} {effects:?}");
            assert!(depth(after) >= depth(before), "up again: {case}");
            let finishes = effects.iter().any(|e| matches!(e, Effect::Finish(_)));
            assert_eq!(finishes, depth(after) == 9 && depth(before) < 9, "finish: {case}");
            if depth(before) == 9 {
                assert!(effects.iter().all(|e| matches!(e, Effect::Say(_))), "after the end: {case}");
            }
            let starts = effects.iter().any(|e| matches!(e, Effect::StartBench(_) | Effect::StartServer));
            assert!(!starts || depth(after) <= 5, "started on the way down: {case}");
            // Whatever is armed or watched by a state is what the state waits for.
            if depth(after) == 7 && depth(before) < 7 {
                assert!(effects.contains(&Effect::Watch(Who::Server)), "{case}");
            }
            if depth(after) == 8 && depth(before) < 8 {
                assert!(effects.contains(&Effect::Watch(Who::Strays)), "{case}");
            }
            // A bench that may live is never left behind on the way to the server, unless SIGKILL failed.
            if bench_may_live(before) && !bench_may_live(after) && depth(after) > 5 {
                let seen = matches!(input, Input::BenchExited(_) | Input::NotStarted(Who::Bench, _));
                let gave_up = matches!(
                    (before, &input),
                    (
                        State::TimedOut { killed: true } | State::StoppingBench { killed: true, .. },
                        Input::Expired(Timer::Ladder)
                    )
                );
                assert!(seen || gave_up, "bench left behind: {case}");
            }
            check_stop(before, &input, after, &case);
        }
    }
}

fn check_stop(before: State, input: &Input, after: State, said: &str) {
    let Input::Stop(cause) = input else { return };
    match (before, cause) {
        (State::Done(exit), _) => assert_eq!(after, State::Done(exit)),
        (_, StopCause::Signal(_) | StopCause::Abort(_)) => {
            assert_eq!(exit_of(after), Some(AgentExit::Aborted), "{said}");
        }
        (_, StopCause::LeaseLost(_)) if depth(before) < 6 => {
            assert_eq!(exit_of(after), Some(AgentExit::ControllerLost), "{said}");
        }
        // The trial was over anyway: its verdict stands.
        (_, StopCause::LeaseLost(_)) => assert_eq!(exit_of(after), exit_of(before), "{said}"),
    }
}

#[test]
fn a_server_exit_ends_every_phase_under_its_own_name() {
    let rows = [
        (State::WaitHealth { overdue: false }, Some(AgentExit::ServerExitedDuringStartup)),
        (State::WaitGenerate { overdue: true }, Some(AgentExit::ServerExitedDuringStartup)),
        (State::ReadBack { left: 1 }, Some(AgentExit::RolloutSamplingBackendUnverified)),
        (State::GenerateProbe, Some(AgentExit::ServerExitedDuringStartup)),
        (State::Running(StepId::Warmup(1)), Some(AgentExit::BenchStepFailed)),
        (State::Running(StepId::Measured(2)), Some(AgentExit::BenchStepFailed)),
        (State::Auditing { step: StepId::Measured(1), server: None }, None),
    ];
    for (state, exit) in rows {
        let mut machine = machine(state);
        let effects = machine.step(Input::ServerExited(ended(3)));
        assert_eq!(exit_of(machine.state()), exit, "{state:?}");
        let named = effects.iter().any(|e| matches!(e, Effect::Say(Marker::Fail(text)) if text.contains("rc=3")));
        assert_eq!(named, exit.is_some(), "{state:?}");
    }
    // Between a bench's end and the verdict: the verdict is said, then the server is named where steps remain.
    let (first, last) = (StepId::Measured(1), StepId::Measured(2));
    for (step, exit) in [(first, AgentExit::BenchStepFailed), (last, AgentExit::Pass)] {
        let mut machine = machine(State::Auditing { step, server: None });
        machine.step(Input::ServerExited(ended(3)));
        let effects = machine.step(Input::Audited(sound()));
        assert_eq!(exit_of(machine.state()), Some(exit), "{step:?}");
        let found = effects.iter().any(|e| matches!(e, Effect::Find(f) if f.detail.contains("rc=3")));
        assert_eq!(found, step == last);
    }
}

/// Walks a trial: an input, and the exit that must be certain after it.
fn walk(plan: Arc<LaunchPlan>, inputs: Vec<Input>) -> (Machine, Vec<Effect>) {
    let mut machine = Machine::new(plan, 3);
    let mut effects = machine.start();
    for input in inputs {
        effects.extend(machine.step(input));
    }
    (machine, effects)
}

fn until_steps() -> Vec<Input> {
    vec![Input::Queried(BenchListed::Yes), Input::Healthy(Listening::Ours), Input::Generates]
}

fn step_with(audit: Audit) -> [Input; 2] {
    [Input::BenchExited(ended(0)), Input::Audited(audit)]
}

#[test]
fn rows_87_to_90_the_last_failing_step_decides() {
    let (short, broken) = (AgentExit::ServedRequestShortfall, AgentExit::ResultJsonUnusable);
    let table: [(&[Option<AgentExit>], AgentExit); 5] = [
        (&[None, None, None], AgentExit::Pass),
        (&[Some(short), None, None], short),
        (&[Some(short), Some(broken), None], broken),
        (&[Some(broken), Some(short), None], short),
        (&[Some(short), None, Some(broken)], broken),
    ];
    for (steps, exit) in table {
        let mut inputs = until_steps();
        inputs.extend(step_with(sound()));
        for step in steps {
            inputs.extend(step_with(step.map_or_else(sound, unsound)));
        }
        let (machine, effects) = walk(plan(&[("TS_BENCH_STEPS", "3")]), inputs);
        assert_eq!(exit_of(machine.state()), Some(exit), "{steps:?}");
        let outcome = if exit == AgentExit::Pass { Outcome::Pass } else { Outcome::Fail };
        let results: Vec<_> = effects.iter().filter(|e| matches!(e, Effect::Say(Marker::Result(_)))).collect();
        assert_eq!(results, [&Effect::Say(Marker::Result(outcome))], "{steps:?}");
    }
    // Row 90: an immediate exit beats what was recorded, and says no RESULT.
    let mut inputs = until_steps();
    inputs.extend(step_with(sound()));
    inputs.extend(step_with(unsound(short)));
    inputs.push(Input::BenchExited(ended(1)));
    let (machine, effects) = walk(plan(&[("TS_BENCH_STEPS", "3")]), inputs);
    assert_eq!(exit_of(machine.state()), Some(AgentExit::BenchStepFailed));
    assert!(!effects.iter().any(|e| matches!(e, Effect::Say(Marker::Result(_)))));
}

#[test]
fn a_failing_warmup_is_fatal_at_once() {
    for audit in
        [Audit::Missing, unsound(AgentExit::RolloutOutputTooShort), unsound(AgentExit::RolloutLengthBasisUnusable)]
    {
        let mut inputs = until_steps();
        inputs.extend(step_with(audit.clone()));
        let (machine, effects) = walk(plan(&[]), inputs);
        assert!(exit_of(machine.state()).is_some(), "{audit:?}");
        assert!(!effects.iter().any(|e| matches!(e, Effect::Say(Marker::StepStart(_)))), "{audit:?}");
    }
}

#[test]
fn the_read_back_is_tried_three_times() {
    let unverified = || Input::ReadBack(ReadBack::Unverified("u".into()));
    let mut machine = machine(State::ReadBack { left: 2 });
    for _ in 0..2 {
        assert!(machine.step(unverified()).contains(&Effect::Arm(Timer::Phase, Limit::ReadBackPause)));
        assert!(machine.step(Input::Expired(Timer::Phase)).contains(&Effect::Ask(Ask::ReadBack)));
    }
    machine.step(unverified());
    assert_eq!(exit_of(machine.state()), Some(AgentExit::RolloutSamplingBackendUnverified));
}

/// FS-36.
#[test]
fn a_bench_has_sixty_seconds_at_its_deadline_and_five_on_a_signal() {
    let mut late = machine(State::Running(StepId::Measured(1)));
    let effects = late.step(Input::Expired(Timer::Phase));
    assert!(effects.contains(&Effect::Arm(Timer::Ladder, Limit::BenchKill)));
    assert!(late.step(Input::Expired(Timer::Ladder)).contains(&Effect::Kill(Who::Bench)));
    for before in [State::Running(StepId::Measured(1)), State::TimedOut { killed: false }] {
        let mut stopped = machine(before);
        let effects = stopped.step(Input::Stop(StopCause::Signal(Signal::SIGINT)));
        assert!(effects.contains(&Effect::Arm(Timer::Ladder, Limit::BenchKillSoon)), "{before:?}");
        assert!(stopped.step(Input::Expired(Timer::Ladder)).contains(&Effect::Kill(Who::Bench)));
    }
}

proptest! {
    /// Whatever happens in whatever order, a trial that is told to stop ends, and it passes only if every
    /// measured step was audited sound.
    #[test]
    fn every_trial_ends_and_never_passes_by_accident(picks in proptest::collection::vec(0usize..37, 0..60)) {
        let all = inputs();
        let mut machine = Machine::new(full_plan(), 3);
        let mut effects = machine.start();
        for pick in picks {
            effects.extend(machine.step(all[pick % all.len()].clone()));
        }
        let passed = effects.iter().filter(|e| matches!(e, Effect::StepOver { step: StepId::Measured(_), verdict, .. } if verdict == "pass")).count();
        if exit_of(machine.state()) == Some(AgentExit::Pass) {
            prop_assert_eq!(passed, 2);
        }
        machine.step(Input::Stop(StopCause::Signal(Signal::SIGTERM)));
        // The world answers: everything ends when told to, at the latest by SIGKILL.
        for _ in 0..8 {
            machine.step(Input::BenchExited(ended(0)));
            machine.step(Input::Alive(Who::Server, false));
            machine.step(Input::Alive(Who::Strays, false));
        }
        prop_assert_eq!(depth(machine.state()), 9);
    }
}
