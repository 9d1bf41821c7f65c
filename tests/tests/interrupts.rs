//! CI's share of the interrupt matrix: every signal in every phase in the process runtime, one kind of server per
//! phase on the Docker engine, and a handful of random instants. `make interrupts` plays all of it.

use std::time::Duration;
use tests::interrupts::{Blow, Case, Phase, Runtime, Server, When, matrix, soak};
use tests::needs;

fn play(cases: &[Case]) {
    for case in cases {
        case.play();
    }
}

fn in_process(server: Server) -> Vec<Case> {
    matrix(Runtime::Process).into_iter().filter(|case| case.server == server).collect()
}

#[test]
fn every_signal_in_every_phase_rows_218_219() {
    play(&in_process(Server::Normal));
}

#[test]
fn a_deaf_server_and_a_stranger_in_the_step() {
    let hard = [Server::Deaf, Server::Stranger];
    let cases = matrix(Runtime::Process).into_iter().filter(|case| hard.contains(&case.server));
    let measured = cases.filter(|case| case.when == When::In(Phase::Measure));
    play(&measured.filter(|case| [Blow::Term, Blow::Kill].contains(&case.blow)).collect::<Vec<_>>());
}

#[test]
fn random_instants_fs_18_fs_19() {
    play(&soak(20_261_130, 40, Runtime::Process, Duration::from_millis(1500)));
}

#[test]
fn random_instants_while_it_prepares() {
    play(&soak(20_261_201, 40, Runtime::Process, Duration::from_millis(60)));
}

#[test]
fn one_server_kind_per_phase_in_docker() {
    let test = "one_server_kind_per_phase_in_docker";
    if !needs::docker(test) || !needs::static_programs(test) {
        return;
    }
    // Signals and servers in turn, so that each meets each over the phases.
    let blows = Blow::ALL.into_iter().cycle();
    let servers = Server::ALL.into_iter().cycle();
    let phases = Phase::ALL.into_iter().map(When::In);
    let case = |((when, blow), server)| Case { blow, when, server, runtime: Runtime::Docker };
    play(&phases.zip(blows).zip(servers).map(case).collect::<Vec<_>>());
}

#[test]
fn random_instants_in_docker() {
    let test = "random_instants_in_docker";
    if needs::docker(test) && needs::static_programs(test) {
        play(&soak(20_261_130, 8, Runtime::Docker, Duration::from_secs(3)));
    }
}
