//! The native client beside the real `tokenspeed bench serve`, from its public Python package: the same engine, the
//! same tokenizer, the same load. Counters must be equal; every time must be the engine's truth, which is known, within
//! the tool's own error. `--nocapture` prints the table of `docs/load-client.md`.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tests::engine::gateway::truth::Report;
use tests::patience::until;
use tests::processes::Guarded;
use tests::server::Server;
use tests::{needs, programs};

const PROMPTS: usize = 32;
const STREAMS: usize = 8;
const INPUT: usize = 16;
const OUTPUT: usize = 40;

/// What one tool reported, and what was true meanwhile.
struct Run {
    said: Value,
    truth: Report,
}

fn run(server: &Server, mut command: Command, folder: &Path, name: &str) -> Run {
    server.reset_truth();
    let out = folder.join(format!("{name}.json"));
    let log = fs::File::create(folder.join(format!("{name}.log"))).expect("a log");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
    let mut tool = Guarded::spawn(&mut command).expect("the tool starts");
    let status = until(&format!("{name} to end"), || tool.ended());
    assert!(status.success(), "{name}: {}", fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default());
    Run { said: serde_json::from_slice(&fs::read(out).expect("an export")).expect("JSON"), truth: server.truth() }
}

fn native(server: &Server, tokenizer: &Path, folder: &Path) -> Command {
    let mut command = Command::new(programs::agent());
    command.args(["load", "--url", &server.url(), "--model", "m", "--endpoint", "completions", "--tokenizer"]);
    command.arg(tokenizer).args(["--random-input-len", &INPUT.to_string(), "--max-tokens", &OUTPUT.to_string()]);
    command.args(["--num-prompts", &PROMPTS.to_string(), "--concurrency", &STREAMS.to_string(), "--warmup", "0"]);
    command.args(["--no-sampling", "--ignore-eos", "--no-calibration", "--metric-percentiles", "50,99"]);
    command.arg("--export").arg(folder.join("native.json"));
    command
}

fn real(server: &Server, venv: &Path, folder: &Path) -> Command {
    let mut command = Command::new(venv.join("bin/tokenspeed"));
    command.args(["bench", "serve", "--backend", "openai", "--base-url", &server.url()]);
    command.args(["--endpoint", "/v1/completions", "--model", "m", "--tokenizer"]).arg(venv.join("tokenizer"));
    command.args(["--dataset-name", "random", "--random-input-len", &INPUT.to_string()]);
    command.args(["--random-output-len", &OUTPUT.to_string(), "--num-prompts", &PROMPTS.to_string()]);
    command.args(["--max-concurrency", &STREAMS.to_string(), "--num-warmups", "0", "--ignore-eos", "--disable-tqdm"]);
    command.args(["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99"]);
    command.args(["--ready-check-timeout-sec", "0", "--output-file"]).arg(folder.join("real.json"));
    command.env_remove("http_proxy").env_remove("HTTP_PROXY");
    command
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small numbers of tokens")]
fn both_tools_report_the_truth_of_the_same_load() {
    let Some(venv) = needs::venv("both_tools_report_the_truth_of_the_same_load", "bench") else { return };
    let script = serde_json::json!({ "engine": { "ttft_ms": 50, "itl_ms": 10 }, "startup": { "ms": 0 } });
    let server = Server::ready(&programs::tokenspeed(), &script);
    let folder = tempfile::tempdir().expect("a folder");
    let tools = [
        ("native", run(&server, native(&server, &venv.join("tokenizer"), folder.path()), folder.path(), "native")),
        ("real", run(&server, real(&server, &venv, folder.path()), folder.path(), "real")),
    ];
    let counters = [
        ("completed", PROMPTS),
        ("failed", 0),
        ("total_input_tokens", PROMPTS * INPUT),
        ("total_output_tokens", PROMPTS * OUTPUT),
    ];
    for (name, run) in &tools {
        for (key, value) in counters {
            assert_eq!(run.said[key], serde_json::json!(value), "{name} {key}");
        }
        assert_eq!(
            (run.truth.completed, run.truth.max_active),
            (PROMPTS as u64, STREAMS),
            "{name}: what really happened"
        );
        let figure = |key: &str| run.said[key].as_f64().unwrap_or_else(|| panic!("{name} {key}: {}", run.said));
        // Nothing is reported before it was true, but for the rounding of clocks. How much later it may be is the
        // tool's own error: ours takes the kernel's stamps and does not grow with the machine's load; the real tool's
        // is milliseconds on an idle machine and grows without bound on a busy one, so its rows say little above.
        let slack = if *name == "native" { 1.0 } else { 10.0 };
        let rows = [
            ("TTFT p50", figure("median_ttft_ms"), run.truth.ttft_ms.p50, 20.0 * slack),
            ("TTFT p99", figure("p99_ttft_ms"), run.truth.ttft_ms.p99, 40.0 * slack),
            ("TPOT mean", figure("mean_tpot_ms"), run.truth.itl_ms.mean, 1.0 * slack),
            ("ITL mean", figure("mean_itl_ms"), run.truth.itl_ms.mean, 1.0 * slack),
            ("ITL p50", figure("median_itl_ms"), run.truth.itl_ms.p50, 2.0 * slack),
            ("ITL p99", figure("p99_itl_ms"), run.truth.itl_ms.p99, 10.0 * slack),
        ];
        for (what, said, truth, late) in rows {
            eprintln!("| {name} | {what} | {said:.2} | {truth:.2} | {:+.2} |", said - truth);
            let early = if what.starts_with("TTFT") { 1.0 } else { late };
            assert!((truth - early..=truth + late).contains(&said), "{name} {what}: {said} for {truth}");
        }
        // One figure from others: tokens over time, and the time of a stream from its parts.
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.02;
        assert!(near(figure("output_throughput") * figure("duration"), run.truth.tokens as f64), "{name}");
        let whole = figure("mean_ttft_ms") + (OUTPUT - 1) as f64 * figure("mean_tpot_ms");
        assert!(near(figure("mean_e2el_ms"), whole), "{name}");
    }
}
