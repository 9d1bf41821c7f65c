//! `make bench-load`: the native client beside a raw reader of the same sockets and, where they are installed, beside
//! the real `tokenspeed bench serve` and `vllm-rs bench serve`, all against the stand-in engine, whose truth is known.
//! The engine has one core, the client the other. Reported minus true TTFT and ITL, CPU per token, peak memory, and the
//! highest token rate at which the client still certifies itself.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::engine::gateway::truth::{Distribution, Report};
use tests::server::{Server, request};

/// Tokens of every answer.
const TOKENS: usize = 100;
/// Wanted at p99, milliseconds: TTFT, ITL.
const LIMITS: (f64, f64) = (10.0, 1.0);
/// A run that takes longer hangs.
const DEADLINE: Duration = Duration::from_mins(10);

/// The native client beside its peers.
#[derive(Debug, Parser)]
struct Args {
    /// The agent
    #[arg(long, default_value = "dist/agent")]
    agent: PathBuf,
    /// The stand-in engine
    #[arg(long, default_value = "dist/tokenspeed")]
    engine: PathBuf,
    /// The real `tokenspeed` program, as its recipe installs it
    #[arg(long, env = "BENCH_TOKENSPEED")]
    tokenspeed: Option<PathBuf>,
    /// A tokenizer folder for the peers
    #[arg(long, env = "BENCH_TOKENIZER")]
    tokenizer: Option<PathBuf>,
    /// `vllm-rs`, a file of the public vllm wheel
    #[arg(long, env = "BENCH_VLLM_RS")]
    vllm_rs: Option<PathBuf>,
    /// Streams at a time
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,500,1000")]
    streams: Vec<usize>,
    /// Token intervals, milliseconds: error columns, saturation column
    #[arg(long, value_delimiter = ',', default_value = "25,10")]
    itl: Vec<u32>,
    /// Also as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A client under measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tool {
    Raw,
    Ours,
    Tokenspeed,
    VllmRs,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw reader",
            Self::Ours => "agent load",
            Self::Tokenspeed => "tokenspeed bench",
            Self::VllmRs => "vllm-rs bench",
        }
    }
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Row {
    tool: Tool,
    itl: u32,
    streams: usize,
    /// Reported minus true, p50 and p99, milliseconds.
    ttft: (f64, f64),
    itl_error: (f64, f64),
    true_ttft_p50: f64,
    cpu_us_per_token: f64,
    peak_mb: f64,
    tokens_per_s: f64,
    /// Most streams that the engine really saw.
    seen: usize,
    client_bound: Option<bool>,
}

type Failed = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("bench-load: {error}");
            ExitCode::from(70)
        }
    }
}

fn run(args: &Args) -> Result<bool, Failed> {
    let (ours, theirs) = cores()?;
    let mut tools = vec![Tool::Raw, Tool::Ours];
    let peer = |program: &Option<PathBuf>| program.is_some() && args.tokenizer.is_some();
    if peer(&args.tokenspeed) {
        tools.push(Tool::Tokenspeed);
    } else {
        eprintln!("without the real tokenspeed bench: set BENCH_TOKENSPEED and BENCH_TOKENIZER");
    }
    if peer(&args.vllm_rs) {
        tools.push(Tool::VllmRs);
    } else {
        eprintln!("without vllm-rs: set BENCH_VLLM_RS and BENCH_TOKENIZER");
    }
    let scratch = tempfile::tempdir()?;
    let top = args.streams.iter().copied().max().unwrap_or(1);
    let corpus = corpus(scratch.path(), requests(top))?;
    let mut rows = Vec::new();
    let mut out = io::stdout();
    writeln!(
        out,
        "| tool | token every | streams | seen | TTFT error p50 / p99 ms | ITL error p50 / p99 ms | CPU us/token | peak MB | tokens/s | client_bound | judged |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    for itl in &args.itl {
        for streams in &args.streams {
            bind(theirs)?;
            let script = json!({"engine": {"ttft_ms": 50, "itl_ms": itl}, "startup": {"ms": 0}});
            let server = Server::ready(&args.engine, &script);
            bind(ours)?;
            for tool in &tools {
                server.reset_truth();
                let row = measure(args, *tool, &server, *streams, *itl, &corpus, scratch.path())?;
                let raw = rows.iter().rev().find(|r: &&Row| r.tool == Tool::Raw).copied();
                print(&mut out, &row, raw.as_ref())?;
                rows.push(row);
            }
        }
    }
    writeln!(out)?;
    for tool in &tools {
        let best = rows.iter().filter(|row| row.tool == *tool && within(row)).map(|row| row.tokens_per_s);
        let best = best.fold(0.0, f64::max);
        writeln!(out, "{}: at most {best:.0} tokens/s within its own error limits", tool.name())?;
    }
    if let Some(path) = &args.json {
        let rows: Vec<Value> = rows.iter().map(as_json).collect();
        fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(rows.iter().filter(|row| row.tool == Tool::Ours).all(|ours| {
        let raw = rows.iter().find(|r| r.tool == Tool::Raw && r.itl == ours.itl && r.streams == ours.streams);
        raw.is_none_or(|raw| machine_full(raw) || failures(ours, raw).is_empty())
    }))
}

/// Requests of a run: every stream twice, so that a connection's second request is measured too.
const fn requests(streams: usize) -> usize {
    if streams < 2 { 4 } else { 2 * streams }
}

fn corpus(dir: &Path, count: usize) -> io::Result<PathBuf> {
    let items: Vec<Value> = (0..count)
        .map(|i| json!({"id": format!("S-{i:05}"), "conversations": [{"from": "human", "value": "w0001 w0002 w0003"}]}))
        .collect();
    let path = dir.join("corpus.json");
    fs::write(&path, serde_json::to_vec(&items)?)?;
    Ok(path)
}

fn measure(
    args: &Args,
    tool: Tool,
    server: &Server,
    streams: usize,
    itl: u32,
    corpus: &Path,
    scratch: &Path,
) -> Result<Row, Failed> {
    let (count, out) = (requests(streams), scratch.join("out.json"));
    let _ = fs::remove_file(&out);
    let mut command = command(args, tool, &server.url(), (streams, count), corpus, &out);
    let log = fs::File::create(scratch.join("client.log"))?;
    let before = children_cpu()?;
    let mut child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    let peak = wait(&mut child).map_err(|error| format!("{}: {error}", tool.name()))?;
    let cpu = children_cpu()? - before;
    let answer = request(server.gateway.number(), "GET", "/truth", "").ok_or("the engine does not answer")?;
    let truth: Report = serde_json::from_str(answer.body())?;
    let source = if tool == Tool::Raw { scratch.join("client.log") } else { out };
    let text = fs::read_to_string(&source).map_err(|error| format!("{}: {error}", tool.name()))?;
    let said: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}: {text:.200}", tool.name()))?;
    let Reported { ttft, gaps, duration, bound } = reported(tool, &said)?;
    #[expect(clippy::cast_precision_loss, reason = "a number of tokens")]
    let tokens = truth.tokens as f64;
    let error = |said: (f64, f64), true_: &Distribution| (said.0 - true_.p50, said.1 - true_.p99);
    Ok(Row {
        tool,
        itl,
        streams,
        ttft: error(ttft, &truth.ttft_ms),
        itl_error: error(gaps, &truth.itl_ms),
        true_ttft_p50: truth.ttft_ms.p50,
        cpu_us_per_token: cpu * 1e6 / tokens.max(1.0),
        peak_mb: peak,
        tokens_per_s: tokens / duration,
        seen: truth.max_active,
        client_bound: bound,
    })
}

fn command(args: &Args, tool: Tool, url: &str, (streams, count): (usize, usize), corpus: &Path, out: &Path) -> Command {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let numbers = [streams.to_string(), count.to_string(), TOKENS.to_string()];
    let tokenizer = args.tokenizer.as_deref().map(text).unwrap_or_default();
    match tool {
        Tool::Raw => {
            let mut command = Command::new(&args.engine);
            command.args(["raw-reader", "--url", url, "--concurrency", &numbers[0], "--num-prompts", &numbers[1]]);
            command.args(["--max-tokens", &numbers[2]]);
            command
        }
        Tool::Ours => {
            let mut command = Command::new(&args.agent);
            command.args(["load", "--url", url, "--model", "m", "--endpoint", "completions", "--ignore-eos"]);
            command.args(["--dataset", &text(corpus), "--warmup", "0", "--concurrency", &numbers[0]]);
            command.args(["--num-prompts", &numbers[1], "--max-tokens", &numbers[2], "--no-calibration"]);
            command.args(["--out", &text(out)]);
            command
        }
        Tool::Tokenspeed | Tool::VllmRs => {
            let program = if tool == Tool::Tokenspeed { &args.tokenspeed } else { &args.vllm_rs };
            let mut command = Command::new(program.as_deref().unwrap_or(Path::new("absent")));
            command.args(["bench", "serve", "--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions"]);
            command.args(["--model", "m", "--tokenizer", &tokenizer, "--dataset-name", "random"]);
            command.args(["--random-input-len", "8", "--random-output-len", &numbers[2], "--num-prompts", &numbers[1]]);
            command.args(["--max-concurrency", &numbers[0], "--percentile-metrics", "ttft,tpot,itl,e2el"]);
            command.args([
                "--metric-percentiles",
                "50,99",
                "--disable-tqdm",
                "--ready-check-timeout-sec",
                "0",
                "--ignore-eos",
            ]);
            command.args(["--save-result", "--result-dir", &text(out.parent().unwrap_or(Path::new(".")))]);
            command.args(["--result-filename", "out.json"].iter().filter(|_| tool == Tool::VllmRs));
            if tool == Tool::Tokenspeed {
                command.args(["--output-file", &text(out)]);
            }
            command.env_remove("http_proxy").env_remove("HTTP_PROXY");
            command
        }
    }
}

/// What a client says: TTFT and ITL at p50 and p99 (ms), duration (s), and whether it was the limit itself.
struct Reported {
    ttft: (f64, f64),
    gaps: (f64, f64),
    duration: f64,
    bound: Option<bool>,
}

fn reported(tool: Tool, said: &Value) -> Result<Reported, Failed> {
    let number = |value: &Value| value.as_f64().ok_or_else(|| format!("{}: a figure is missing", tool.name()));
    match tool {
        Tool::Raw => {
            let pair = |key: &str| Ok::<_, Failed>((number(&said[key]["p50"])?, number(&said[key]["p99"])?));
            Ok(Reported {
                ttft: pair("ttft_ms")?,
                gaps: pair("itl_ms")?,
                duration: number(&said["duration_s"])?,
                bound: None,
            })
        }
        Tool::Ours => {
            let records = said["records"].as_array().ok_or("no records")?;
            let numbers = |list: Vec<&Value>| -> Vec<f64> {
                list.into_iter().filter_map(Value::as_f64).map(|s| s * 1e3).collect()
            };
            let ttfts = numbers(records.iter().map(|record| &record["ttft"]).collect());
            let gaps = numbers(records.iter().filter_map(|record| record["itls"].as_array()).flatten().collect());
            if ttfts.len() < records.len() {
                return Err(format!("{} of {} requests failed", records.len() - ttfts.len(), records.len()).into());
            }
            let bound = said["client"]["certification"]["client_bound"].as_bool();
            let duration = number(&said["summary"]["measured_wall_s"])?;
            Ok(Reported { ttft: percentiles(ttfts), gaps: percentiles(gaps), duration, bound })
        }
        Tool::Tokenspeed | Tool::VllmRs => {
            let pair = |metric: &str| {
                let key = |p: &str| said[format!("{p}_{metric}_ms")].clone();
                Ok::<_, Failed>((number(&key("median"))?, number(&key("p99"))?))
            };
            Ok(Reported { ttft: pair("ttft")?, gaps: pair("itl")?, duration: number(&said["duration"])?, bound: None })
        }
    }
}

fn percentiles(mut samples: Vec<f64>) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |p: f64| percentile(&samples, p);
    (at(50.0), at(99.0))
}

fn percentile(sorted: &[f64], p: f64) -> f64 {
    proto::stats::percentile(sorted, p).unwrap_or(f64::NAN)
}

/// Waits for the child; its peak memory, MB.
fn wait(child: &mut Child) -> Result<f64, Failed> {
    let (started, mut peak) = (Instant::now(), 0.0_f64);
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        peak = peak.max(kilobytes.unwrap_or(0.0) / 1024.0);
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(peak) } else { Err(format!("ended with {status}").into()) };
        }
        if started.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            return Err("was not over in time".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn children_cpu() -> Result<f64, Failed> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a benchmark")]
    let seconds = (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6;
    Ok(seconds)
}

/// A core for the clients and one for the engine.
fn cores() -> Result<(usize, usize), Failed> {
    let set = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
    let mut free = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    let (Some(engine), Some(client)) = (free.next(), free.next()) else {
        return Err("needs two cores: one for the engine, one for the client".into());
    };
    Ok((client, engine))
}

/// Binds this process, and so what it starts next.
fn bind(cpu: usize) -> Result<(), Failed> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn machine_full(raw: &Row) -> bool {
    raw.ttft.1 > LIMITS.0 / 2.0 || raw.itl_error.1 > LIMITS.1 / 2.0
}

/// What a row misses of what is wanted.
fn failures(ours: &Row, raw: &Row) -> Vec<&'static str> {
    let checks = [
        (ours.ttft.1 > LIMITS.0, "TTFT p99"),
        (ours.itl_error.1.abs() > LIMITS.1, "ITL p99"),
        (ours.streams >= 100 && ours.cpu_us_per_token > 2.0 * raw.cpu_us_per_token, "CPU"),
        (ours.peak_mb > 100.0, "memory"),
    ];
    checks.into_iter().filter(|(failed, _)| *failed).map(|(_, name)| name).collect()
}

/// Whether a row's client is not the limit: its own word, or its errors.
fn within(row: &Row) -> bool {
    row.client_bound.map_or(row.ttft.1 <= LIMITS.0 && row.itl_error.1 <= LIMITS.1, |bound| !bound)
}

fn print(out: &mut impl io::Write, row: &Row, raw: Option<&Row>) -> io::Result<()> {
    let raw = raw.filter(|raw| raw.itl == row.itl && raw.streams == row.streams);
    let judged = match (row.tool, raw) {
        (Tool::Ours, Some(raw)) if machine_full(raw) => "machine full".to_owned(),
        (Tool::Ours, Some(raw)) => {
            let failed = failures(row, raw);
            if failed.is_empty() { "good".to_owned() } else { failed.join(", ") }
        }
        _ => "-".to_owned(),
    };
    let bound = row.client_bound.map_or("-", |bound| if bound { "yes" } else { "no" });
    writeln!(
        out,
        "| {} | {} ms | {} | {} | {:.2} / {:.2} | {:.3} / {:.3} | {:.2} | {:.1} | {:.0} | {bound} | {judged} |",
        row.tool.name(),
        row.itl,
        row.streams,
        row.seen,
        row.ttft.0,
        row.ttft.1,
        row.itl_error.0,
        row.itl_error.1,
        row.cpu_us_per_token,
        row.peak_mb,
        row.tokens_per_s,
    )?;
    out.flush()
}

fn as_json(row: &Row) -> Value {
    let fields: BTreeMap<&str, Value> = BTreeMap::from([
        ("tool", json!(row.tool.name())),
        ("itl_ms", json!(row.itl)),
        ("streams", json!(row.streams)),
        ("streams_seen", json!(row.seen)),
        ("ttft_error_ms", json!([row.ttft.0, row.ttft.1])),
        ("itl_error_ms", json!([row.itl_error.0, row.itl_error.1])),
        ("true_ttft_p50_ms", json!(row.true_ttft_p50)),
        ("cpu_us_per_token", json!(row.cpu_us_per_token)),
        ("peak_mb", json!(row.peak_mb)),
        ("tokens_per_s", json!(row.tokens_per_s)),
        ("client_bound", json!(row.client_bound)),
    ]);
    json!(fields)
}
