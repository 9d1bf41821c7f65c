//! `bench_tool: native`: the agent's own load client as the bench of a trial, under the controller, on the stand-in.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use serde_json::{Value, json};
use std::fs;
use tests::controlled::{Controlled, Ended};
use tests::words;

/// A trial with the native tool and the tokenizer of its own folder.
fn trial(changes: &Value, script: Value) -> Controlled {
    let scratch = Controlled::new(&json!({ "bench_tool": "native" }), script);
    let tokenizer = words::tokenizer(scratch.folder());
    scratch.changed(&json!({ "tokenizer": tokenizer })).changed(changes)
}

fn exports(ended: &Ended) -> Vec<Value> {
    let mut names: Vec<_> = fs::read_dir(ended.controlled.out()).unwrap().flatten().map(|entry| entry.path()).collect();
    names.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bench.")));
    names.sort();
    names.iter().map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap()).collect()
}

fn log(ended: &Ended) -> String {
    let named = |path: &std::path::PathBuf| path.to_string_lossy().contains("bench-log.");
    let logs = fs::read_dir(ended.controlled.out()).unwrap().flatten().map(|entry| entry.path()).filter(named);
    logs.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn a_trial_passes_and_its_figures_are_the_engines() {
    let engine = json!({ "engine": { "ttft_ms": 50, "itl_ms": 10 } });
    let ended = trial(&json!({ "num_prompts": 12, "output_len": 20, "save_detailed": true }), engine).run();
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let metrics = &ended.document["metrics"];
    assert_eq!((&metrics["bench_tool"], &metrics["completed_total"]), (&json!("native"), &json!(24)));
    assert_eq!(metrics["failed_total"], json!(0));
    let figure = |key: &str| metrics[key].as_f64().unwrap_or_else(|| panic!("{key}: {metrics}"));
    // Nothing comes before its time. How late the engine itself was, the trial does not know: the upper bounds are
    // those of a busy machine, and `native_parity` holds the client against what the engine says it did.
    assert!((50.0..=400.0).contains(&figure("median_ttft_ms")), "{metrics}");
    assert!(
        (9.5..=60.0).contains(&figure("mean_tpot_ms")) && (9.5..=60.0).contains(&figure("mean_itl_ms")),
        "{metrics}"
    );
    assert!(figure("median_e2el_ms") >= 50.0 + 19.0 * 10.0 - 1.0, "{metrics}");
    assert!(figure("output_throughput") <= 4.0 * 20.0 / 0.240 + 1.0, "{metrics}");

    let exports = exports(&ended);
    assert_eq!(exports.len(), 2);
    let real = include_str!("../fixtures/exports/good-detailed.json");
    let real: Value = serde_json::from_str(real).unwrap();
    for export in exports {
        for key in real.as_object().unwrap().keys() {
            assert!(export.get(key).is_some(), "{key} is in the real tool's export: {export:.400}");
        }
        assert_eq!(export["bench_tool"], json!("native"));
        assert!(export["label"].as_str().unwrap().starts_with("native-bench-step"));
        assert_eq!(export["input_lens"], json!(vec![16; 12]));
        assert_eq!(export["output_lens"], json!(vec![20; 12]));
        assert_eq!(export["client"]["outcomes"]["measured"]["complete"], json!(12));
        assert_eq!(export["client"]["connections"]["measured_on_new"], json!(0));
        assert_eq!(export["client"]["profile"], json!("strict"));
    }
    let left: Vec<_> = fs::read_dir(ended.controlled.out()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("tmp-")), "{left:?}");
    ended.controlled.assert_nothing_left();
}

#[test]
fn lost_requests_are_55() {
    let script =
        json!({ "requests": [{ "every": 4, "do": { "status": 500 }, "on": { "kind": "measured", "step": 1 } }] });
    let ended = trial(&json!({}), script).run();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(55), "{}", ended.document);
    assert_eq!(ended.reasons(), ["served_request_shortfall", "served_request_shortfall"]);
    assert_eq!(ended.document["failure_details"][1]["step"], json!(1));
    ended.controlled.assert_nothing_left();
}

/// What the other tool counts as completed: an answer that stops half-way, in order, without `[DONE]`.
#[test]
fn an_answer_that_stops_half_way_is_lost() {
    let script = json!({ "requests": [{ "every": 3, "do": "eof", "on": { "kind": "measured", "step": 2 } }] });
    let ended = trial(&json!({}), script).run();
    assert_eq!(ended.reasons(), ["served_request_shortfall", "served_request_shortfall"], "{}", ended.document);
    assert_eq!(ended.document["failure_details"][1]["step"], json!(2));
    assert_eq!(exports(&ended)[1]["client"]["outcomes"]["measured"]["truncated"], json!(2));
}

#[test]
fn several_completions_per_prompt_are_summed_per_request() {
    let rollout = json!({ "rollout": true, "rollout_samples": 4, "output_len": 16, "min_mean_output_tokens": 0 });
    let ended = trial(&rollout, json!({ "engine": { "eos_lens": [5, 9, 16] } })).run();
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let metrics = &ended.document["metrics"];
    assert_eq!(metrics["output_lens_shape"], json!("per_request"), "{metrics}");
    assert_eq!(metrics["generated_tokens_count"], json!(16), "{metrics}");
}

#[test]
fn conversations_bring_their_lengths_and_a_rate_paces_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = words::conversations(folder.path(), 8);
    let changes = json!({ "dataset": "sharegpt", "dataset_path": path, "request_rate": 40, "steps": 1,
        "save_detailed": true, "num_warmups": 3 });
    let ended = trial(&changes, json!({})).run();
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let export = &exports(&ended)[0];
    let mut lengths: Vec<_> = export["input_lens"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, (5..13).collect::<Vec<u64>>());
    assert_eq!(export["total_output_tokens"], json!((6..14).sum::<u64>()));
    assert_eq!((&export["request_rate"], &export["client"]["arrivals"]), (&json!(40.0), &json!("poisson:40")));
}

/// The newest public release has no `bench`: what it does not have is not asked of it.
#[test]
fn an_engine_without_bench_is_measured() {
    let ended = trial(&json!({ "steps": 1, "warmup_steps": 0 }), json!({ "help": { "bench": false } })).run();
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
}

#[test]
fn a_tokenizer_that_is_not_there_is_named() {
    // A path is looked at before anything is started.
    let ended = trial(&json!({ "tokenizer": "/nowhere/at/all" }), json!({})).run();
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(64), "{}", ended.document);
    assert!(ended.stderr.contains("/nowhere/at/all/tokenizer.json"), "{}", ended.stderr);
    // An id may come into the cache with the server's own download; this server downloads nothing.
    let ended = trial(&json!({ "tokenizer": "some/model", "warmup_steps": 0 }), json!({})).run();
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(53), "{}", ended.document);
    let log = log(&ended);
    assert!(log.contains("hub/models--some--model/refs/main is not there"), "{log}");
    ended.controlled.assert_nothing_left();
}

#[test]
fn flags_of_the_other_tool_are_refused_before_anything_is_started() {
    let ended = trial(&json!({ "bench_args": ["--ready-check-timeout-sec", "20"] }), json!({})).run();
    assert_eq!(ended.status.code(), Some(64), "{}", ended.document);
    assert!(ended.document["error"]["message"].as_str().unwrap().contains("--ready-check-timeout-sec"));
    let ended = trial(&json!({ "bench_args": ["--no-calibration"], "steps": 1 }), json!({})).run();
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let calibration = &exports(&ended)[0]["client"]["certification"]["calibration"];
    assert_eq!(calibration["status"], json!("skipped"), "{calibration}");
}
