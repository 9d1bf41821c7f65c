//! The stand-in's `bench serve` against real exports of the real tool: same options, same keys in the same order,
//! same types, same counters, and figures that agree with what the gateway saw.

use serde_json::{Value, json};
use std::path::Path;
use tests::server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tokenspeed");
const USUAL: &str = "--tokenizer tok --random-input-len 32 --random-output-len 16 --num-prompts 20 --max-concurrency 4 \
                     --ready-check-timeout-sec 20";

/// Runs the bench; its export as text.
fn export(server: &Server, args: &str) -> String {
    let file = server.folder().join("out.json");
    let _ = std::fs::remove_file(&file);
    let words: Vec<&str> = args.split_whitespace().collect();
    let out = server.bench(&words).arg("--output-file").arg(&file).output().expect("the bench runs");
    assert!(out.status.success(), "{out:?}");
    std::fs::read_to_string(file).expect("an export")
}

/// Python's bare `Infinity` is no JSON.
fn parse(text: &str) -> Value {
    serde_json::from_str(&text.replace(": Infinity", ": 1e300")).expect("JSON")
}

/// Key by key what kind of value it is; lists by their length and first element.
fn shape(document: &Value) -> Vec<String> {
    fn kind(value: &Value) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(_) => "bool".into(),
            Value::Number(n) if n.is_f64() => "float".into(),
            Value::Number(_) => "int".into(),
            Value::String(_) => "str".into(),
            Value::Array(items) => format!("{}x{}", items.len(), items.first().map(kind).unwrap_or_default()),
            Value::Object(_) => "object".into(),
        }
    }
    let entries = document.as_object().expect("an object");
    entries.iter().map(|(key, value)| format!("{key}: {}", kind(value))).collect()
}

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/exports").join(name);
    std::fs::read_to_string(path).expect("a golden export")
}

#[test]
fn exports_have_the_real_tools_keys_types_and_counters() {
    let every = |fault: Value| json!({"requests": [{"every": 5, "skip_first": 1, "do": fault}]});
    let failing = json!({"requests": [{"every": 1, "do": {"status": 500}}]});
    let table: &[(&str, Value, &str)] = &[
        ("good-minimal", json!({}), ""),
        ("good-detailed", json!({}), "--save-detailed"),
        ("good-labelled", json!({}), "--label step-1"),
        ("good-goodput", json!({}), "--goodput ttft:1000 tpot:1000 e2el:5000"),
        (
            "good-all-percentiles",
            json!({}),
            "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99,99.9",
        ),
        ("good-rate-limited", json!({}), "--request-rate 50"),
        ("good-burstiness-infinity", json!({}), "--save-detailed --request-rate 100 --burstiness inf"),
        ("good-concurrency-zero", json!({}), "--max-concurrency 0"),
        ("good-with-warmups", json!({}), "--num-warmups 4"),
        ("good-one-token", json!({}), "--save-detailed --random-output-len 1"),
        ("good-8-tokens-per-chunk", json!({"engine": {"tokens_per_chunk": 8}}), "--save-detailed"),
        ("unusable-no-ttft-keys", json!({}), "--percentile-metrics e2el --metric-percentiles 99.5,50"),
        ("unusable-no-latency-keys", json!({}), "--percentile-metrics nothing"),
        ("shortfall-http500-detailed", every(json!({"status": 500})), "--save-detailed"),
        ("shortfall-sse-error-first", every(json!("error_first")), "--save-detailed"),
        ("silent-truncation-clean-eof", every(json!("eof")), "--save-detailed"),
        ("all-failed-http500-detailed", failing.clone(), "--save-detailed --ready-check-timeout-sec 0"),
        ("all-failed-http500-minimal", failing, "--ready-check-timeout-sec 0"),
    ];
    for (name, script, more) in table {
        let server = Server::ready(PROGRAM.as_ref(), script);
        let text = export(&server, &format!("{USUAL} {more}"));
        assert!(!text.ends_with('\n') && text.is_ascii() && !text.contains('\n'), "{name}: one line of ASCII");
        let real = golden(&format!("{name}.json"));
        assert_eq!(text.contains("Infinity"), real.contains("Infinity"), "{name}");
        let (ours, real) = (parse(&text), parse(&real));
        assert_eq!(shape(&ours), shape(&real), "{name}");
        for key in ["label", "num_prompts", "request_rate", "burstiness", "max_concurrency", "completed", "failed"] {
            assert_eq!(ours[key], real[key], "{name}: {key}");
        }
        for key in ["total_input_tokens", "total_output_tokens"] {
            assert_eq!(ours[key], real[key], "{name}: {key}");
        }
        let sorted = |document: &Value, key: &str| {
            let mut list: Vec<String> =
                document[key].as_array().map(|l| l.iter().map(Value::to_string).collect()).unwrap_or_default();
            list.sort();
            list
        };
        for key in ["input_lens", "output_lens", "errors"] {
            assert_eq!(sorted(&ours, key), sorted(&real, key), "{name}: {key}");
        }
    }
}

#[test]
fn a_cut_stream_fails_as_with_the_real_tool() {
    let script = json!({"requests": [{"every": 5, "skip_first": 1, "do": "cut"}]});
    let server = Server::ready(PROGRAM.as_ref(), &script);
    let document = parse(&export(&server, &format!("{USUAL} --save-detailed")));
    assert_eq!((&document["completed"], &document["failed"]), (&json!(16), &json!(4)));
    let mut cut = 0;
    for i in 0..20 {
        if document["output_lens"][i] == 0 {
            cut += 1;
            assert!(document["errors"][i].as_str().is_some_and(|e| e.contains("payload is not completed")), "{i}");
            assert!(document["ttfts"][i].as_f64().is_some_and(|t| t > 0.0), "{i}: partial figures stay");
            assert_eq!(document["itls"][i].as_array().map(Vec::len), Some(7), "{i}");
            assert_eq!(document["generated_texts"][i], "", "{i}");
        }
    }
    assert_eq!(cut, 4);
}

#[test]
fn choices_are_counted_per_request_or_per_choice() {
    for (shape, lens, each) in [("per_request", 20, 64), ("per_choice", 80, 16)] {
        let server = Server::ready(PROGRAM.as_ref(), &json!({"bench": {"output_lens": shape}}));
        let document = parse(&export(&server, &format!("{USUAL} --save-detailed --extra-body {{\"n\":4}}")));
        let list = document["output_lens"].as_array().expect("lengths");
        assert_eq!(list.len(), lens, "{shape}");
        assert!(list.iter().all(|n| *n == each), "{shape}: {list:?}");
        assert_eq!(document["total_output_tokens"], 1280, "{shape}");
        assert_eq!(document["itls"][0].as_array().map(Vec::len), Some(63), "intervals run across all choices");
    }
}

#[test]
fn eos_ends_early_only_where_it_is_not_ignored() {
    let server = Server::ready(PROGRAM.as_ref(), &json!({"engine": {"eos_lens": [3, 9]}}));
    let ignoring = parse(&export(&server, USUAL));
    assert_eq!(ignoring["total_output_tokens"], 320);
    let early = parse(&export(&server, &format!("{USUAL} --save-detailed --extra-body {{\"ignore_eos\":false}}")));
    assert_eq!(early["total_output_tokens"], 10 * 3 + 10 * 9);
}

#[test]
fn sharegpt_takes_prompts_and_lengths_from_the_file() {
    let server = Server::ready(PROGRAM.as_ref(), &json!({}));
    let file = server.folder().join("sharegpt.json");
    let turn = |from: &str, words: usize| json!({"from": from, "value": vec!["w0001"; words].join(" ")});
    let all: Vec<Value> =
        (0..12).map(|i| json!({"conversations": [turn("human", 6), turn("gpt", if i < 2 { 3 } else { 7 })]})).collect();
    std::fs::write(&file, Value::from(all).to_string()).expect("a data set");
    let path = file.to_string_lossy();
    let args = format!("--tokenizer tok --dataset-name sharegpt --dataset-path {path} --num-prompts 50");
    let document = parse(&export(&server, &args));
    // Two answers are too short, and a data set that is too small gives fewer requests without a word.
    assert_eq!((&document["num_prompts"], &document["completed"]), (&json!(50), &json!(10)));
    assert_eq!(document["total_output_tokens"], 70);
}

#[test]
fn the_bench_agrees_with_the_truth() {
    let server = Server::ready(PROGRAM.as_ref(), &json!({"engine": {"ttft_ms": 40, "itl_ms": 10}}));
    server.reset_truth();
    let args = format!("{USUAL} --save-detailed --percentile-metrics ttft,tpot,itl,e2el --ready-check-timeout-sec 0");
    let document = parse(&export(&server, &args));
    let truth = server.truth();
    assert_eq!((truth.requests, truth.completed, truth.tokens, truth.max_active), (20, 20, 320, 4));
    assert_eq!((truth.ttft_ms.count, truth.itl_ms.count, truth.reused), (20, 300, 16));
    let figure = |key: &str| document[key].as_f64().expect("a figure");
    // The client can only be later than the gateway, and the gateway only later than its settings.
    assert!(truth.ttft_ms.p50 >= 40.0 && figure("median_ttft_ms") > truth.ttft_ms.p50 - 1.0, "{document} {truth:?}");
    // Means do not depend on luck: every interval that one side sees is seen by the other, up to both ends.
    let (seen, real) = (figure("mean_itl_ms"), truth.itl_ms.mean);
    assert!(real >= 9.9 && (seen - real).abs() < 0.2 * real, "{seen} {real}");
    assert!(figure("mean_e2el_ms") >= figure("mean_ttft_ms") + 14.0 * 10.0);
    // The settings themselves, with as much room as a crowded machine needs.
    assert!(figure("mean_ttft_ms") < 400.0 && figure("mean_itl_ms") < 100.0, "{document}");
}

#[test]
fn exit_statuses_of_the_command_line() {
    let server = Server::ready(PROGRAM.as_ref(), &json!({}));
    let file = server.folder().join("none.json");
    let run = |args: &[&str]| {
        let out = server.bench(args).arg("--output-file").arg(&file).output().expect("the bench runs");
        (out.status.code(), file.exists(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    assert!(matches!(run(&["--nope"]), (Some(2), false, words) if words.contains("unrecognized arguments: --nope")));
    assert!(matches!(run(&["--num", "3"]), (Some(2), false, words) if words.contains("ambiguous option")));
    assert!(matches!(run(&["--extra-body", "{"]), (Some(2), false, _)));
    assert!(matches!(run(&["--num-prompts", "0"]), (Some(1), false, _)));
    assert!(matches!(
        run(&["--model", "other", "--num-prompts", "1", "--ready-check-timeout-sec", "1"]),
        (Some(1), false, _)
    ));
    // A percentile outside its range is noticed only after the run.
    assert!(matches!(run(&["--num-prompts", "1", "--metric-percentiles", "101"]), (Some(1), false, _)));
    let missing = server.folder().join("missing/out.json");
    let out = server.bench(&["--num-prompts", "1", "--output-file"]).arg(&missing).output().expect("the bench runs");
    assert_eq!(out.status.code(), Some(1));
    let once = server.bench(&["--num-prompts", "1"]).args(["--append-result", "--output-file"]).arg(&file).output();
    let twice = server.bench(&["--num-prompts", "1"]).args(["--append-result", "--output-file"]).arg(&file).output();
    assert!(once.expect("runs").status.success() && twice.expect("runs").status.success());
    assert_eq!(std::fs::read_to_string(&file).expect("two documents").lines().count(), 2);
}
