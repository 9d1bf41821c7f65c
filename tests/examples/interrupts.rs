//! The whole interrupt matrix and the soak, as a table for `docs/interrupts.md`: `make interrupts`.

use clap::Parser;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tests::interrupts::{Blow, Case, Phase, Runtime, Server, matrix, soak};

/// Interrupts trials everywhere and looks at what is left.
#[derive(Parser)]
struct Args {
    /// Random instants in the process runtime
    #[arg(long, default_value_t = 1000)]
    soak: usize,
    /// Random instants on the Docker engine
    #[arg(long, default_value_t = 100)]
    docker_soak: usize,
    /// Seed of the instants
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Trials at a time
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Without the Docker engine
    #[arg(long)]
    no_docker: bool,
    /// Without the matrix
    #[arg(long)]
    no_matrix: bool,
}

/// Plays all cases; those that went wrong, with what was said.
fn play(what: &str, cases: &[Case], workers: usize) -> Vec<(Case, String)> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case.play())) {
                        let said = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".into());
                        eprintln!("WRONG {case}: {said}");
                        wrong.lock().expect("the list").push((*case, said));
                    }
                    if at % 25 == 24 {
                        eprintln!("{what}: {} of {} after {:.0} s", at + 1, cases.len(), began.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    wrong.into_inner().expect("the list")
}

fn table(cases: &[Case], wrong: &[(Case, String)]) {
    print!("\n| phase | server |");
    Blow::ALL.iter().for_each(|blow| print!(" {blow:?} |"));
    println!("\n|---|---|{}", "---|".repeat(Blow::ALL.len()));
    for phase in Phase::ALL {
        for server in Server::ALL {
            print!("| {} | {server:?} |", phase.name());
            for blow in Blow::ALL {
                let here = |case: &&Case| {
                    (case.blow, case.server) == (blow, server) && case.when == tests::interrupts::When::In(phase)
                };
                let played = cases.iter().filter(here).count();
                let bad = wrong.iter().map(|(case, _)| case).filter(here).count();
                print!(" {} |", if bad > 0 { format!("**{bad} of {played} wrong**") } else { "clean".into() });
            }
            println!();
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut all_wrong = 0;
    for (runtime, count) in [(Runtime::Process, args.soak), (Runtime::Docker, args.docker_soak)] {
        if runtime == Runtime::Docker && args.no_docker {
            continue;
        }
        println!("\n## {runtime:?}");
        if !args.no_matrix {
            let cases = matrix(runtime);
            let wrong = play(&format!("{runtime:?} matrix"), &cases, args.workers);
            table(&cases, &wrong);
            all_wrong += wrong.len();
        }
        let within = Duration::from_millis(if runtime == Runtime::Docker { 4000 } else { 2000 });
        let cases = soak(args.seed, count, runtime, within);
        let wrong = play(&format!("{runtime:?} soak"), &cases, args.workers);
        println!(
            "\n{count} random instants in the first {} ms, seed {}: {} clean, {} wrong",
            within.as_millis(),
            args.seed,
            count - wrong.len(),
            wrong.len()
        );
        wrong.iter().for_each(|(case, said)| println!("- {case}: {}", said.lines().next().unwrap_or_default()));
        all_wrong += wrong.len();
    }
    ExitCode::from(u8::from(all_wrong > 0))
}
