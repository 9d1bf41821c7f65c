//! `tokenspeed bench serve`: really sends its requests, writes the export from what it saw, and prints what the real
//! tool prints. Scripted faults are looked up by step (`--label`, else the export's name) and applied on top.

pub mod args;
pub mod client;
pub mod dataset;
pub mod export;
pub mod metrics;

use super::helper;
use super::journal::Journal;
use super::orchestrator;
use super::pyjson;
use super::script::{After, Before, BenchFault, Script, Spawn, Step, StepKind};
use super::steps;
use args::{BenchArgs, Output as Target, Refusal};
use client::{Client, Output};
use dataset::Sample;
use metrics::Metrics;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const USAGE: &str = "usage: tokenspeed bench serve [options]";
/// Pause between readiness attempts, as in the real tool.
const READY_PAUSE: Duration = Duration::from_secs(5);

/// The bench's main; `words` are the words after `bench`.
pub fn main(script: &Script, words: &[String]) -> io::Result<ExitCode> {
    let words = match words.first().map(String::as_str) {
        Some("serve") => &words[1..],
        Some(word) if word.starts_with('-') && word != "-h" && word != "--help" => words,
        Some("-h" | "--help") => return Ok(help()),
        other => {
            let what = other.map_or_else(
                || "the following arguments are required: bench_type".to_owned(),
                |word| format!("argument bench_type: invalid choice: '{word}' (choose from 'serve')"),
            );
            eprintln!("usage: tokenspeed bench <bench_type> [options]\ntokenspeed bench: error: {what}");
            return Ok(ExitCode::from(2));
        }
    };
    let args = match BenchArgs::parse(words) {
        Ok(args) => args,
        Err(Refusal::Help) => return Ok(help()),
        Err(Refusal::Usage(message)) => {
            eprintln!("{USAGE}\ntokenspeed bench serve: error: {message}");
            return Ok(ExitCode::from(2));
        }
        Err(Refusal::Value(message)) => return Ok(traceback(&message)),
    };
    let journal = Journal::new(script, "bench");
    journal.start();
    let step = step_of(&args);
    let faults: Vec<&BenchFault> = script.bench.faults.iter().filter(|fault| fault.on.matches(step)).collect();
    if let Some(code) = before(&args, &faults)? {
        return Ok(ExitCode::from(code));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(run(script, &args, &faults)) {
        Ok(()) => after(&args, &faults, &runtime),
        Err(message) => Ok(traceback(&message)),
    }
}

fn help() -> ExitCode {
    let _ = writeln!(io::stdout(), "{USAGE}\n\nBenchmark online serving throughput.");
    ExitCode::SUCCESS
}

/// How Python ends on an exception.
fn traceback(message: &str) -> ExitCode {
    eprintln!(
        "Traceback (most recent call last):\n  File \"bench.py\", line 1839, in main_async\nValueError: {message}"
    );
    ExitCode::FAILURE
}

/// The step that this run is; a run by hand counts as the first measured one.
fn step_of(args: &BenchArgs) -> Step {
    let by_label = args.label.as_deref().and_then(steps::of_label);
    let by_file = || match &args.output {
        Target::File(file) => steps::of_export(file),
        Target::None | Target::Named(_) => None,
    };
    by_label.or_else(by_file).unwrap_or(Step { kind: StepKind::Measured, number: 1 })
}

/// Faults that come before the first request; an exit status where they end the run.
fn before(args: &BenchArgs, faults: &[&BenchFault]) -> io::Result<Option<u8>> {
    for fault in faults.iter().flat_map(|fault| &fault.before) {
        match fault {
            Before::IgnoreSigterm => helper::go_deaf(),
            Before::Helper(deaf) => {
                drop(helper::spawn(&Spawn { deaf: *deaf, ..Spawn::default() }, None)?);
            }
            Before::LateExport(ms) => late_export(args, *ms)?,
            Before::Stdout(bytes) => {
                let mut out = io::stdout().lock();
                let block = [b'.'; 4096];
                let mut left = *bytes;
                while left > 0 {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
                    out.write_all(&block[..take])?;
                    left -= take as u64;
                }
                out.flush()?;
            }
            Before::PrintEnv => super::orchestrator::print_env(&mut io::stdout().lock())?,
            Before::Exit(code) => return Ok(Some(*code)),
            Before::Hang => loop {
                nix::unistd::pause();
            },
        }
    }
    Ok(None)
}

/// From now on SIGTERM means: wait, write a perfect export, exit 0.
fn late_export(args: &BenchArgs, ms: u64) -> io::Result<()> {
    let Target::File(file) = args.output.clone() else { return Ok(()) };
    let mut set = nix::sys::signal::SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGTERM);
    set.thread_block()?;
    let prompts = args.num_prompts;
    std::thread::spawn(move || {
        if set.wait().is_ok() {
            std::thread::sleep(Duration::from_millis(ms));
            let text = json!({"completed": prompts, "failed": 0, "duration": 1.0, "output_throughput": 1.0,
                "request_throughput": 1.0, "total_token_throughput": 1.0, "total_output_tokens": prompts * 2,
                "mean_ttft_ms": 1.0, "median_ttft_ms": 1.0, "mean_tpot_ms": 1.0, "median_tpot_ms": 1.0});
            let _ = std::fs::write(file, text.to_string());
            #[expect(clippy::exit, reason = "the thread ends the process while main still waits")]
            std::process::exit(0);
        }
    });
    Ok(())
}

/// Faults that come after the export.
fn after(args: &BenchArgs, faults: &[&BenchFault], runtime: &tokio::runtime::Runtime) -> io::Result<ExitCode> {
    for fault in faults.iter().flat_map(|fault| &fault.after) {
        match fault {
            After::Fire(action) => {
                let body = serde_json::to_string(action)?;
                runtime.block_on(client::post(&args.base_url, "/fault", &body)).map_err(io::Error::other)?;
            }
            After::Hang => loop {
                nix::unistd::pause();
            },
            After::Die(signal) => orchestrator::die(*signal)?,
            After::Exit(code) => return Ok(ExitCode::from(*code)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One whole run; the error is the exception's text.
async fn run(script: &Script, args: &BenchArgs, faults: &[&BenchFault]) -> Result<(), String> {
    let mut out = String::new();
    let _ = writeln!(out, "Namespace({args:?})");
    let model = match &args.model {
        Some(model) => model.clone(),
        None => Client::first_model(&args.base_url).await?,
    };
    let samples = dataset::samples(args)?;
    let total = |f: fn(&Sample) -> u32| samples.iter().map(|s| u64::from(f(s))).sum::<u64>();
    let _ = writeln!(out, "#Input tokens: {}", total(|s| s.prompt_len));
    let _ = writeln!(out, "#Output tokens: {}", total(|s| s.output_len));
    if !args.extra_body.contains_key("temperature") {
        let _ = writeln!(
            out,
            "WARNING: tokenspeed bench serve no longer sets temperature==0 in requests by default. The server decides \
             its own default. Include --extra-body '{{\"temperature\": 0}}' for greedy decoding."
        );
    }
    let client = Arc::new(Client::new(args, &model)?);
    let first = Sample { request_id: None, ..samples[0].clone() };
    if args.ready_check_timeout_sec > 0 {
        let _ = writeln!(out, "Starting initial single prompt test run...");
        flush(&mut out);
        wait_until_ready(&client, &first, args.ready_check_timeout_sec).await?;
        let _ = writeln!(out, "Initial test run completed.");
    } else {
        let _ = writeln!(out, "Skipping endpoint ready check.");
    }
    let limit = usize::try_from(args.max_concurrency.unwrap_or(0)).ok().filter(|n| *n > 0);
    if args.num_warmups > 0 {
        let _ = writeln!(out, "Warming up with {} requests...", args.num_warmups);
        let warmups = vec![first; usize::try_from(args.num_warmups).unwrap_or(0)];
        all(&client, warmups, &[], limit).await;
        let _ = writeln!(out, "Warmup run completed.");
    }
    let process = if args.burstiness.to_bits() == 1.0_f64.to_bits() { "Poisson process" } else { "Gamma distribution" };
    let _ = writeln!(out, "Traffic request rate: {}", python_float(args.request_rate));
    let _ = writeln!(out, "Burstiness factor: {} ({process})", python_float(args.burstiness));
    let _ =
        writeln!(out, "Maximum request concurrency: {}", args.max_concurrency.map_or("None".into(), |n| n.to_string()));
    let _ = writeln!(out, "Starting main benchmark run...");
    flush(&mut out);
    let schedule = dataset::schedule(samples.len(), args.request_rate, args.burstiness, args.seed);
    let started = Instant::now();
    let outputs = all(&client, samples, &schedule, limit).await;
    let duration = started.elapsed().as_secs_f64();
    let metrics = metrics::compute(args, &outputs, duration, script.bench.output_lens);
    if metrics.completed == 0 {
        eprintln!(
            "UserWarning: All requests failed. This is likely due to a misconfiguration on the benchmark arguments."
        );
    }
    report(&mut out, args, &outputs, duration, &metrics);
    flush(&mut out);
    if args.percentiles.iter().any(|p| !(0.0..=100.0).contains(p)) {
        return Err("Percentiles must be in the range [0, 100]".into());
    }
    let date = local_date();
    if let Some(file) = export::file_name(args, &model, &date) {
        let document = export::document(args, &model, &date, duration, &metrics, &outputs);
        let document = export::spoil(document, faults.iter().flat_map(|fault| &fault.document));
        let bytes = export::bytes(&document, faults.iter().flat_map(|fault| &fault.bytes));
        let place = faults.iter().find_map(|fault| fault.place.as_ref());
        export::write(&file, args.append_result, &bytes, place).map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

/// Python's `str(float)`.
fn python_float(value: f64) -> String {
    pyjson::float(value).replace("Infinity", "inf").replace("NaN", "nan")
}

/// `YYYYmmdd-HHMMSS`. UTC: a static program has no safe way to ask for the zone.
fn local_date() -> String {
    let now = time::OffsetDateTime::now_utc();
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    )
}

async fn wait_until_ready(client: &Client, first: &Sample, limit: i64) -> Result<(), String> {
    // The real tool's bar: carriage returns and no line feed, whatever --disable-tqdm says.
    eprint!(" |          | 00:00 elapsed, ? remaining\r |          | 00:00 elapsed, 00:00 remaining\r");
    let deadline = Instant::now() + Duration::from_secs(u64::try_from(limit).unwrap_or(0));
    loop {
        let output = client.send(first).await;
        if output.success {
            return Ok(());
        }
        if Instant::now() + READY_PAUSE > deadline {
            return Err(format!(
                "Initial test run failed - Please make sure benchmark arguments are correctly specified. Error: {}",
                output.error
            ));
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}

/// Sends all samples, each when it is due, at most `limit` at a time; results in the samples' order.
async fn all(client: &Arc<Client>, samples: Vec<Sample>, due: &[f64], limit: Option<usize>) -> Vec<Output> {
    let gate = limit.map(|n| Arc::new(Semaphore::new(n)));
    let started = tokio::time::Instant::now();
    let mut tasks = Vec::new();
    for (index, sample) in samples.into_iter().enumerate() {
        let at = started + Duration::from_secs_f64(due.get(index).copied().unwrap_or(0.0));
        if at > tokio::time::Instant::now() {
            tokio::time::sleep_until(at).await;
        }
        let (client, gate) = (Arc::clone(client), gate.clone());
        tasks.push(tokio::spawn(async move {
            let _turn = match &gate {
                Some(gate) => gate.acquire().await.ok(),
                None => None,
            };
            let limited = tokio::time::timeout(client::REQUEST_LIMIT, client.send(&sample)).await;
            limited.unwrap_or_else(|_| Output { error: "per-request timeout".into(), ..Output::default() })
        }));
    }
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap_or_default());
    }
    outputs
}

/// stdout of the real tool is fully buffered when it is not a terminal: nothing shows before the end.
fn flush(out: &mut String) {
    if io::stdout().is_terminal() || out.len() > 8192 || out.ends_with("==\n") {
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(out.as_bytes());
        let _ = stdout.flush();
        out.clear();
    }
}

/// Failed requests and the result table.
fn report(out: &mut String, args: &BenchArgs, outputs: &[Output], duration: f64, m: &Metrics) {
    let failed: Vec<&Output> = outputs.iter().filter(|o| !o.success).collect();
    if !failed.is_empty() {
        let _ = writeln!(out, "Failed requests during benchmark run detected (capping to 10):");
        for (i, output) in failed.iter().take(10).enumerate() {
            let _ = writeln!(out, "Error {i}: {}", output.error);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "numbers of requests and tokens")]
    let rate = |n: i64| n as f64 / duration;
    let whole = |out: &mut String, label: &str, value: i64| {
        let _ = writeln!(out, "{label:<40} {value:<10}");
    };
    let fraction = |out: &mut String, label: &str, value: f64| {
        let _ = writeln!(out, "{label:<40} {value:<10.2}");
    };
    let _ = writeln!(out, "{:=^50}", " Serving Benchmark Result ");
    whole(out, "Successful requests:", m.completed);
    whole(out, "Failed requests:", m.failed);
    if let Some(limit) = args.max_concurrency {
        whole(out, "Maximum request concurrency:", limit);
    }
    if args.request_rate.is_finite() {
        fraction(out, "Request rate configured (RPS):", args.request_rate);
    }
    fraction(out, "Benchmark duration (s):", duration);
    whole(out, "Total input tokens:", m.total_input);
    whole(out, "Total generated tokens:", m.total_output);
    fraction(out, "Request throughput (req/s):", rate(m.completed));
    if !args.goodput.is_empty() {
        fraction(out, "Request goodput (req/s):", m.goodput);
    }
    fraction(out, "Output token throughput (tok/s):", rate(m.total_output));
    fraction(out, "Peak output token throughput (tok/s):", m.max_output_tokens_per_s);
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    fraction(out, "Peak concurrent requests:", m.max_concurrent_requests as f64);
    fraction(out, "Total token throughput (tok/s):", rate(m.total_input + m.total_output));
    let titles = [
        ("TTFT", "Time to First Token"),
        ("TPOT", "Time per Output Token (excl. 1st token)"),
        ("ITL", "Inter-token Latency"),
        ("E2EL", "End-to-end Latency"),
    ];
    for ((name, d), (short, title)) in m.distributions.iter().zip(titles) {
        if !args.metrics.iter().any(|metric| metric == name) {
            continue;
        }
        let _ = writeln!(out, "{title:-^50}");
        fraction(out, &format!("Mean {short} (ms):"), d.mean_ms());
        fraction(out, &format!("Median {short} (ms):"), d.percentile_ms(50.0));
        for p in args.percentiles.iter().filter(|p| (0.0..=100.0).contains(*p)) {
            fraction(out, &format!("P{} {short} (ms):", export::percentile_word(*p)), d.percentile_ms(*p));
        }
    }
    let _ = writeln!(out, "{}", "=".repeat(50));
}
