//! What a report costs beside a plain `serde_json` pass over the same bytes: time and peak memory of each, in a
//! process of its own, over 100,000 records of 100 tokens.
//!
//! `cargo run --release -p controller --example report_bench [RECORDS] [TOKENS]`

#![expect(clippy::print_stdout, reason = "a table for people")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use controller::report::{analysis, extended, load, markdown};
use serde::Deserialize;
use serde::de::IgnoredAny;

const LIMIT_TIME: f64 = 1.5;
const LIMIT_MB: f64 = 300.0;

/// The published record, as a program that knows nothing better would read it.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Record {
    ttft: Option<f64>,
    latency: f64,
    n_chunks: u32,
    first_chunk_chars: Option<u32>,
    total_chars: Option<u32>,
    itls: Vec<f64>,
    usage: Usage,
    ok: bool,
    i: u32,
    id: String,
    band: String,
    phase: String,
    t_dispatch: f64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, clippy::struct_field_names, reason = "only read, by its names in the file")]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "only read")]
struct Leg {
    summary: serde_json::Value,
    records: Vec<Record>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("pass") => pass(&args[1], Path::new(&args[2])),
        Some(records) => compare(records.parse()?, args.get(1).map_or(Ok(100), |tokens| tokens.parse())?),
        None => compare(100_000, 100),
    }
}

fn compare(records: usize, tokens: usize) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("report-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let result = measure(&dir, records, tokens);
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(dir: &Path, records: usize, tokens: usize) -> Result<()> {
    let file = dir.join("A-r1-c8.json");
    generate(&file, records, tokens)?;
    println!("{records} records of {tokens} tokens, {} MB", file.metadata()?.len() / 1_000_000);
    println!("| pass | s | MB peak |\n|---|---|---|");
    let mut results = Vec::new();
    for kind in ["typed", "ignored", "report", "extended"] {
        let mut best: Option<(f64, f64)> = None;
        for _ in 0..3 {
            let output = Command::new(std::env::current_exe()?).args(["pass", kind]).arg(&file).output()?;
            if !output.status.success() {
                bail!("{kind}: {}", String::from_utf8_lossy(&output.stderr));
            }
            let text = String::from_utf8(output.stdout)?;
            let (seconds, peak) = text.trim().split_once(' ').context("two numbers")?;
            let found = (seconds.parse()?, peak.parse()?);
            best = Some(best.map_or(found, |best: (f64, f64)| (best.0.min(found.0), best.1.max(found.1))));
        }
        let (seconds, peak) = best.context("three runs")?;
        println!("| {kind} | {seconds:.2} | {peak:.0} |");
        results.push((seconds, peak));
    }
    let (time, peak) = (results[2].0 / results[0].0, results[2].1);
    println!("report / typed pass: {time:.2} (limit {LIMIT_TIME}), {peak:.0} MB (limit {LIMIT_MB})");
    if time > LIMIT_TIME || peak > LIMIT_MB {
        bail!("over the limit");
    }
    Ok(())
}

/// One pass over the file; prints seconds and peak memory.
fn pass(kind: &str, file: &Path) -> Result<()> {
    let start = Instant::now();
    let dir = file.parent().context("a directory")?.to_str().context("UTF-8")?;
    match kind {
        "typed" => {
            let leg: Leg = serde_json::from_reader(BufReader::new(File::open(file)?))?;
            std::hint::black_box(leg.records.len());
        }
        "ignored" => {
            let _: IgnoredAny = serde_json::from_reader(BufReader::new(File::open(file)?))?;
        }
        "report" => {
            std::hint::black_box(markdown::render(&load(dir, "*-r*-c*.json").1?).len());
        }
        "extended" => {
            let report = load(dir, "*-r*-c*.json").1?;
            let document = analysis::document(&report, &[]);
            std::hint::black_box((markdown::render(&report).len(), extended::render(&document).len()));
        }
        other => bail!("no pass {other}"),
    }
    let seconds = start.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kilobytes: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    println!("{seconds} {}", kilobytes / 1000.0);
    Ok(())
}

/// A leg file as the published client writes it, with doubles of full length.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn generate(file: &PathBuf, records: usize, tokens: usize) -> Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    let mut state = 1_u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    write!(
        out,
        r#"{{"summary": {{"leg": "A-r1-c8", "arm": "A", "round": 1, "concurrency": 8, "measured_requests": {records}, "measured_wall_s": 1234.5}}, "config": {{}}, "records": ["#
    )?;
    let mut line = String::new();
    for i in 0..records {
        line.clear();
        let ttft = 0.05 + uniform() * 0.1;
        let mut latency = ttft;
        let mut gaps = String::new();
        for gap in 1..tokens {
            let value = 0.01 + uniform() * 0.02;
            latency += value;
            write!(gaps, "{}{value}", if gap == 1 { "" } else { ", " })?;
        }
        write!(
            line,
            r#"{}{{"ttft": {ttft}, "latency": {latency}, "n_chunks": {tokens}, "first_chunk_chars": 4, "total_chars": {}, "itls": [{gaps}], "usage": {{"prompt_tokens": 300, "completion_tokens": {tokens}, "total_tokens": {}}}, "accepted_draft_tokens": null, "ok": true, "i": {i}, "id": "S-{i:04}", "band": "S", "phase": "{}", "t_dispatch": {}}}"#,
            if i == 0 { "" } else { ", " },
            tokens * 4,
            tokens + 300,
            if i < 8 { "warmup" } else { "measured" },
            i as f64 * 0.013
        )?;
        out.write_all(line.as_bytes())?;
    }
    out.write_all(b"]}")?;
    Ok(out.flush()?)
}
