//! `agent load --export`: what each way of answering becomes in the keys of `tokenspeed bench serve`.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

mod peer;

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use peer::{Next, Peer, say};
use proto::export::{Expectation, Layer, judge, read};
use proto::limits::Dataset;
use serde_json::{Value, json};

/// Two pieces in three tokens, an empty event with the finish reason, usage.
const WHOLE: &str = "data: {\"choices\":[{\"text\":\"ab \"}]}\n\ndata: {\"choices\":[{\"text\":\"cd\"}]}\n\n\
    data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
const NO_USAGE: &str = "data: {\"choices\":[{\"text\":\"ab\"}]}\n\ndata: [DONE]\n\n";
const NO_TEXT: &str = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
const HALF: &str = "data: {\"choices\":[{\"text\":\"ab\"}]}\n\n";
const ERROR_LATE: &str =
    "data: {\"choices\":[{\"text\":\"ab\"}]}\n\ndata: {\"error\":{\"message\":\"out of memory\"}}\n\n";

/// The export of four requests, the last of which is answered by `body`.
fn export(body: &'static str, more: &[&str]) -> Value {
    let asked = AtomicUsize::new(0);
    let server = Peer::start(move |request, stream: &mut TcpStream| {
        if request.line.contains("/metrics") {
            say(stream, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
            return Next::Keep;
        }
        let last = asked.fetch_add(1, Ordering::SeqCst) == 3;
        let body = if last { body } else { WHOLE };
        say(stream, format!("{}Transfer-Encoding: chunked\r\n\r\n", peer::EVENT_STREAM).as_bytes());
        for event in body.split_inclusive("\n\n") {
            say(stream, format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
            // A token takes time; without it TPOT would be a true zero, which no export may claim.
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
        say(stream, b"0\r\n\r\n");
        Next::Keep
    });
    let dir = tempfile::tempdir().unwrap();
    let corpus = peer::corpus(dir.path(), 4);
    let file = dir.path().join("export.json");
    let url = server.url();
    let mut args = vec!["--url", &url, "--dataset", corpus.to_str().unwrap(), "--export", file.to_str().unwrap()];
    args.extend(["--num-prompts", "4", "--warmup", "0", "--endpoint", "completions", "--no-calibration"]);
    args.extend(more);
    let output = peer::load(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
    assert!(output.status.success(), "{output:?}");
    if more.contains(&"--request-id-prefix") {
        let ids: Vec<String> = server.asked().iter().map(|asked| asked.headers["x-request-id"].clone()).collect();
        assert_eq!(ids, ["r0", "r1", "r2", "r3"]);
    }
    peer::json(&file)
}

fn verdict(export: &Value) -> Result<(), String> {
    let expectation =
        Expectation { num_prompts: 4, dataset: Dataset::Random, output_len: 3, ignore_eos: true, rollout: None };
    let read = read(export.to_string().as_bytes()).map_err(|error| error.to_string())?;
    judge(&read, &expectation, Layer::Host)
        .map(drop)
        .map_err(|unsound| format!("{}: {}", unsound.reason(), unsound.detail()))
}

#[test]
fn a_whole_export_is_sound_and_its_figures_belong_together() {
    let export = export(WHOLE, &["--save-detailed", "--metric-percentiles", "50,99.9", "--request-id-prefix", "r"]);
    assert_eq!(verdict(&export), Ok(()));
    for (key, value) in [
        ("completed", json!(4)),
        ("failed", json!(0)),
        ("total_input_tokens", json!(28)),
        ("total_output_tokens", json!(12)),
        ("output_lens", json!([3, 3, 3, 3])),
        ("input_lens", json!([7, 7, 7, 7])),
        ("errors", json!(["", "", "", ""])),
        ("generated_texts", json!(["ab cd", "ab cd", "ab cd", "ab cd"])),
        ("bench_tool", json!("native")),
        ("request_rate", json!("inf")),
        ("max_concurrency", json!(1)),
        ("max_concurrent_requests", json!(1)),
        ("request_goodput", Value::Null),
    ] {
        assert_eq!(export[key], value, "{key}");
    }
    let figure = |key: &str| export[key].as_f64().unwrap_or_else(|| panic!("{key}"));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b.abs().max(1.0);
    assert!(near(figure("output_throughput") * figure("duration"), 12.0));
    assert!(near(figure("total_token_throughput") * figure("duration"), 40.0));
    assert!(near(figure("mean_tpot_ms") * 2.0, figure("mean_e2el_ms") - figure("mean_ttft_ms")));
    assert!(near(figure("p50_ttft_ms"), figure("median_ttft_ms")));
    assert!(export.get("p99.9_itl_ms").is_some() && export.get("p99_itl_ms").is_none());
    assert_eq!(export["itls"].as_array().unwrap().iter().map(|gaps| gaps.as_array().unwrap().len()).sum::<usize>(), 4);
}

#[test]
fn what_was_not_answered_to_its_end_has_failed() {
    for (body, class) in [(HALF, "truncated"), (ERROR_LATE, "in_band_error")] {
        let export = export(body, &["--save-detailed"]);
        assert_eq!((&export["completed"], &export["failed"]), (&json!(3), &json!(1)), "{class}");
        assert!(export["errors"][3].as_str().unwrap().starts_with(class), "{}", export["errors"]);
        assert_eq!(export["output_lens"], json!([3, 3, 3, 0]));
        assert_eq!(export["total_output_tokens"], json!(9), "a lost request is in no figure");
        assert!(verdict(&export).unwrap_err().starts_with("served_request_shortfall"));
    }
}

/// The model ended at once: it was served, and its first token is its first event.
#[test]
fn an_answer_without_text_was_served() {
    let export = export(NO_TEXT, &["--save-detailed"]);
    assert_eq!((&export["completed"], &export["failed"]), (&json!(4), &json!(0)));
    assert!(export["ttfts"][3].as_f64().unwrap() > 0.0);
    assert_eq!(export["errors"][3], json!(""));
}

#[test]
fn tokens_that_nobody_counted_are_no_figure() {
    let export = export(NO_USAGE, &["--save-detailed"]);
    assert_eq!((&export["completed"], &export["failed"]), (&json!(4), &json!(0)));
    for key in ["total_output_tokens", "output_throughput", "total_token_throughput", "output_lens", "mean_tpot_ms"] {
        assert!(export.get(key).is_none(), "{key}");
    }
    assert!(export["request_throughput"].as_f64().unwrap() > 0.0);
    let verdict = verdict(&export).unwrap_err();
    assert!(verdict.starts_with("result_json_unusable") && verdict.contains("output_throughput"), "{verdict}");
}

#[test]
fn metrics_and_arrays_that_were_not_asked_for_are_not_there() {
    let export = export(WHOLE, &["--percentile-metrics", "ttft,e2el,nonsense"]);
    for key in ["mean_tpot_ms", "median_itl_ms", "ttfts", "output_lens", "generated_texts"] {
        assert!(export.get(key).is_none(), "{key}");
    }
    assert!(export.get("p99_e2el_ms").is_some());
}
