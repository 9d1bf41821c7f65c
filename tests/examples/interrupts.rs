//! The whole interrupt matrix and the soak, as a table for `docs/interrupts.md`: `make interrupts`.

use clap::Parser;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tests::interrupts::{Blow, Case, Phase, Runtime, Server, When, matrix, soak};

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

/// A row per phase and server, a column per blow.
fn table(cases: &[Case], wrong: &[(Case, String)]) -> String {
    let mut rows = vec![format!("| phase | server |{}", Blow::ALL.map(|blow| format!(" {blow:?} |")).concat())];
    rows.push(format!("|---|---|{}", "---|".repeat(Blow::ALL.len())));
    for (phase, server) in Phase::ALL.into_iter().flat_map(|phase| Server::ALL.map(|server| (phase, server))) {
        let cell = |blow| {
            let here = |case: &&Case| (case.blow, case.server, case.when) == (blow, server, When::In(phase));
            let (played, bad) =
                (cases.iter().filter(here).count(), wrong.iter().map(|(case, _)| case).filter(here).count());
            if bad > 0 { format!(" **{bad} of {played} wrong** |") } else { " clean |".into() }
        };
        rows.push(format!("| {} | {server:?} |{}", phase.name(), Blow::ALL.map(cell).concat()));
    }
    rows.join("\n")
}

/// Matrix and soak of one runtime; how many went wrong.
fn report(runtime: Runtime, count: usize, args: &Args, out: &mut impl Write) -> io::Result<usize> {
    writeln!(out, "\n## {runtime:?}")?;
    let mut all_wrong = 0;
    if !args.no_matrix {
        let cases = matrix(runtime);
        let wrong = play(&format!("{runtime:?} matrix"), &cases, args.workers);
        writeln!(out, "\n{}", table(&cases, &wrong))?;
        all_wrong += wrong.len();
    }
    let within = Duration::from_secs(if runtime == Runtime::Docker { 4 } else { 2 });
    let wrong = play(&format!("{runtime:?} soak"), &soak(args.seed, count, runtime, within), args.workers);
    let clean = count - wrong.len();
    let (secs, seed) = (within.as_secs(), args.seed);
    writeln!(
        out,
        "\n{count} random instants in the first {secs} s, seed {seed}: {clean} clean, {} wrong",
        wrong.len()
    )?;
    for (case, said) in &wrong {
        writeln!(out, "- {case}: {}", said.lines().next().unwrap_or_default())?;
    }
    Ok(all_wrong + wrong.len())
}

fn main() -> io::Result<ExitCode> {
    let args = Args::parse();
    let mut out = io::stdout().lock();
    let mut wrong = report(Runtime::Process, args.soak, &args, &mut out)?;
    if !args.no_docker {
        wrong += report(Runtime::Docker, args.docker_soak, &args, &mut out)?;
    }
    Ok(ExitCode::from(u8::from(wrong > 0)))
}
