//! `make bench-audit`: judging a large detailed export beside Python's `json.load`, and beside only reading the same file and
//! checking that it is UTF-8. One run, one file, each measurement in a process of its own, best of several rounds.
//!
//! Wanted: at least 10 times the speed of `json.load`, at least half the speed of reading and checking, less than 64 MB.
//! The status is 1 when one of these is missed. `BENCH_AUDIT_MB` sets the size (300), `BENCH_AUDIT_ROUNDS` the rounds (5).
#![expect(clippy::print_stdout, reason = "a table for people")]

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use proto::export::{Expectation, Layer, Rollout, audit, verdict};
use proto::limits::Dataset;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Tokens of each request, as many as one interval less.
const TOKENS: usize = 256;

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [how, path, requests] = &arguments[..] {
        one(how, Path::new(path), requests.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let size = number("BENCH_AUDIT_MB", 300)? * 1_000_000;
    let rounds = number("BENCH_AUDIT_ROUNDS", 5)?.max(1);
    let path = std::env::temp_dir().join(format!("bench-audit.{}.json", std::process::id()));
    let result = compare(&path, size, rounds);
    std::fs::remove_file(&path)?;
    result
}

fn number(name: &str, default: u64) -> Outcome<u64> {
    std::env::var(name).map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name} must be a number").into()))
}

/// Measures one way in this process and prints seconds, CPU seconds and peak memory in kB.
fn one(how: &str, path: &Path, requests: u64) -> Outcome<()> {
    let started = Instant::now();
    match how {
        "audit" | "hashed" => {
            let expectation = Expectation {
                num_prompts: requests,
                dataset: Dataset::Random,
                output_len: TOKENS as u64,
                ignore_eos: false,
                rollout: Some(Rollout { samples: 1, min_mean_output_tokens: 8 }),
            };
            if how == "hashed" {
                audit(path, &expectation, Layer::Host).verdict?;
            } else {
                verdict(path, &expectation, Layer::Host)?;
            }
        }
        "utf8" => {
            // In chunks, as fast as it gets: nothing is kept, nothing but the check is done.
            let mut file = File::open(path)?;
            let mut chunk = vec![0; 128 * 1024];
            let mut kept = 0;
            loop {
                let read = file.read(&mut chunk[kept..])?;
                if read == 0 {
                    break;
                }
                let filled = kept + read;
                let valid = match std::str::from_utf8(&chunk[..filled]) {
                    Ok(text) => text.len(),
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    Err(error) => return Err(error.into()),
                };
                chunk.copy_within(valid..filled, 0);
                kept = filled - valid;
            }
        }
        "whole" => {
            std::fs::read_to_string(path)?;
        }
        _ => return Err("unknown way".into()),
    }
    let seconds = started.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    println!("{seconds} {}", peak.trim().trim_end_matches("kB").trim());
    Ok(())
}

struct Row {
    what: &'static str,
    seconds: f64,
    cpu: f64,
    peak_mb: f64,
}

fn compare(path: &Path, size: u64, rounds: u64) -> Outcome<ExitCode> {
    eprintln!("writing an export of {} MB to {}", size / 1_000_000, path.display());
    let requests = write_export(path, size)?.to_string();
    let bytes = std::fs::metadata(path)?.len();
    let mine = std::env::current_exe()?;
    let file = path.to_string_lossy();
    let python = "import json,resource,sys,time\nt=time.perf_counter()\nwith open(sys.argv[1]) as f: json.load(f)\n\
                  print(time.perf_counter()-t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)";
    let own = |how: &str| {
        let mut command = Command::new(&mine);
        command.args([how, &file, &requests]);
        command
    };
    let mut json = Command::new("python3");
    json.args(["-c", python, &file]);
    let mut ways = [
        ("audit: read, check, judge", own("audit")),
        ("read and check UTF-8, in chunks", own("utf8")),
        ("read and check UTF-8, as one string", own("whole")),
        ("python3 json.load", json),
        ("run: read, check, judge, hash", own("hashed")),
    ];
    let mut rows: Vec<Row> = Vec::new();
    // Interleaved, so that a busy moment of the machine hits all of them.
    for round in 0..rounds {
        for (index, (what, command)) in ways.iter_mut().enumerate() {
            let measured = measure(what, command)?;
            match rows.get_mut(index) {
                None => rows.push(measured),
                Some(best) if measured.seconds < best.seconds => *best = measured,
                Some(_) => {}
            }
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let ours = rows[0].seconds;
    println!("{:<40} {:>9} {:>9} {:>9} {:>9} {:>12}", "", "seconds", "CPU s", "MB/s", "peak MB", "ours is");
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    for row in &rows {
        println!(
            "{:<40} {:>9.3} {:>9.3} {:>9.0} {:>9.1} {:>11.2}x",
            row.what,
            row.seconds,
            row.cpu,
            bytes as f64 / row.seconds / 1e6,
            row.peak_mb,
            row.seconds / ours
        );
    }
    let wanted = [
        ("at least 10 times json.load", rows[3].seconds / ours >= 10.0),
        ("at least half of reading it and checking that it is UTF-8", rows[2].seconds / ours >= 0.5),
        ("peak below 64 MB", rows[0].peak_mb < 64.0),
    ];
    for (what, met) in wanted {
        println!("{} {what}", if met { "met:   " } else { "MISSED:" });
    }
    Ok(if wanted.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// CPU time of the children waited for so far.
fn children_cpu() -> Outcome<Duration> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec().unsigned_abs(), 0) + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn measure(what: &'static str, command: &mut Command) -> Outcome<Row> {
    let before = children_cpu()?;
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let cpu = children_cpu()?.saturating_sub(before).as_secs_f64();
    let text = String::from_utf8(output.stdout)?;
    let (seconds, peak) = text.trim().split_once(' ').ok_or("two figures expected")?;
    Ok(Row { what, seconds: seconds.parse()?, cpu, peak_mb: peak.parse::<f64>()? / 1000.0 })
}

/// Writes a sound export in the tool's own form, as Python's `json.dump` spells it; the number of its requests.
#[expect(clippy::cast_precision_loss, reason = "figures for a file")]
fn write_export(path: &Path, size: u64) -> Outcome<u64> {
    // What a request takes: its intervals, its text, its figures.
    let requests = size / 6_650;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // xorshift: digits that no branch predictor learns.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    let total = requests * TOKENS as u64;
    write!(
        out,
        "{{\"date\": \"20260911-215023\", \"backend\": \"openai\", \"label\": null, \"num_prompts\": {requests}, \
         \"request_rate\": \"inf\", \"burstiness\": Infinity, \"max_concurrency\": 64, \"duration\": 312.44037620000836, \
         \"completed\": {requests}, \"failed\": 0, \"total_input_tokens\": {total}, \"total_output_tokens\": {total}, \
         \"request_throughput\": 16.37327998552974, \"output_throughput\": 1047.8899190739035, \
         \"total_token_throughput\": 1571.8348786108552, \"input_lens\": ["
    )?;
    let comma = |index: u64| if index == 0 { "" } else { ", " };
    for index in 0..requests {
        write!(out, "{}512", comma(index))?;
    }
    out.write_all(b"], \"output_lens\": [")?;
    for index in 0..requests {
        write!(out, "{}{TOKENS}", comma(index))?;
    }
    out.write_all(b"], \"ttfts\": [")?;
    for index in 0..requests {
        write!(out, "{}{}", comma(index), 0.02 + next() / 10.0)?;
    }
    out.write_all(b"], \"itls\": [")?;
    for index in 0..requests {
        write!(out, "{}[", comma(index))?;
        for token in 1..TOKENS as u64 {
            write!(out, "{}{}", comma(token - 1), next() / 500.0)?;
        }
        out.write_all(b"]")?;
    }
    out.write_all(b"], \"generated_texts\": [")?;
    for index in 0..requests {
        write!(out, "{}\"", comma(index))?;
        for token in 0..TOKENS {
            match token % 32 {
                30 => out.write_all(b"\\n\\n")?,
                31 => out.write_all(b" \\u2014")?,
                _ => write!(out, " {}", if next() < 0.5 { "word" } else { "plain text," })?,
            }
        }
        out.write_all(b"\"")?;
    }
    out.write_all(b"], \"errors\": [")?;
    for index in 0..requests {
        write!(out, "{}\"\"", comma(index))?;
    }
    out.write_all(
        b"], \"mean_ttft_ms\": 20.1, \"median_ttft_ms\": 19.9, \"mean_tpot_ms\": 2.01, \"median_tpot_ms\": 2.0, \
          \"mean_itl_ms\": 2.0, \"p99_itl_ms\": 9.5}",
    )?;
    out.flush()?;
    Ok(requests)
}
