//! Contract K.6, rows 221 to 242: what follows from what was seen.

use std::path::PathBuf;
use std::time::Duration;

use proto::marker::Markers;
use proto::names::RunToken;
use serde_json::{Value, json};

use super::assemble::assemble;
use super::document::ResultDocument;
use super::observed::{ClientEnd, GpuMemory, HeldGpu, Interruption, Observed, Record, Removal, RunIdentity, Survivor};
use crate::config::source::{Format, parse};
use crate::config::trial::{RuntimeKind, Trial};
use crate::config::{Overrides, validate};

fn trial(config: &Value) -> Trial {
    let document = parse(&config.to_string(), Format::Json).unwrap();
    validate(document, &Overrides::default()).unwrap_or_else(|errors| panic!("{errors}")).trial
}

fn export(value: &Value) -> proto::export::Export {
    proto::export::read(value.to_string().as_bytes()).unwrap()
}

/// A sound export of 32 requests, with changes; a null takes a key away.
fn sound(changes: &Value) -> Value {
    let mut out = json!({
        "completed": 32, "failed": 0, "duration": 1.5, "num_prompts": 32, "max_concurrency": 8,
        "output_throughput": 100.0, "request_throughput": 20.0, "total_token_throughput": 300.0,
        "mean_ttft_ms": 40.0, "median_ttft_ms": 41.0, "mean_tpot_ms": 2.0, "median_tpot_ms": 2.5,
        "total_input_tokens": 1024, "total_output_tokens": 4096,
    });
    for (key, value) in changes.as_object().unwrap() {
        if value.is_null() {
            out.as_object_mut().unwrap().remove(key);
        } else {
            out[key] = value.clone();
        }
    }
    out
}

/// What was seen of a docker trial that ended with a status, with these exports by step and so many START markers.
fn seen(status: i32, exports: &[(u32, Value)], starts: u32) -> Observed {
    let token = RunToken::parse("7-1").unwrap();
    let mut seen = Observed::new(RunIdentity {
        container: Some(proto::names::container(&token)),
        token,
        runtime: RuntimeKind::Docker,
        out_dir: PathBuf::from("/w/u1/out"),
        gateway_port: Some(8000),
        control_port: Some(8001),
    });
    seen.end = Some(ClientEnd::Exited(status));
    seen.agent_exit = Some(status);
    seen.markers = Markers { step_starts: starts, server_startup_sec: Some(307), ..Markers::default() };
    seen.records = exports
        .iter()
        .map(|(step, value)| Record {
            step: *step,
            path: format!("/w/u1/out/bench.7-1.step{step}.json").into(),
            export: export(value),
        })
        .collect();
    seen.removal = Removal::Proven;
    seen.stdout_tail = "the last words".to_owned();
    seen.container_elapsed = Some(Duration::from_secs(10));
    seen.elapsed = Duration::from_secs(40);
    seen
}

fn config(changes: &Value) -> Trial {
    let mut out = json!({ "num_prompts": 32, "steps": 1, "require_gpu": false });
    out.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    trial(&out)
}

fn reasons(document: &ResultDocument) -> Vec<&str> {
    document.failure_details.iter().map(|d| d.reason.as_str()).collect()
}

fn good(changes: &Value) -> (u32, Value) {
    (1, sound(changes))
}

#[test]
fn a_sound_trial_passes() {
    let document = assemble(&config(&json!({})), &seen(0, &[good(&json!({}))], 1));
    assert_eq!(reasons(&document), [""; 0]);
    assert!(document.passed && document.main_work_started);
    assert_eq!((document.total_iterations, document.executed_iterations, document.configured_iterations), (1, 1, 1));
    assert_eq!(document.step_times_ms, [1500.0]);
    assert_eq!(document.metrics["server_startup_sec"], json!(307.0));
    assert_eq!(document.metrics["tokens_per_sec"], json!(100.0));
    // Row 248: the GPU wait is in the one and not in the other.
    assert_eq!((document.elapsed_sec, &document.metrics["container_elapsed_sec"]), (40.0, &json!(10.0)));
    assert_eq!(document.metrics["gateway_port"], json!("8000"));
    assert_eq!(document.metrics["max_concurrency"], Value::Null);
}

#[test]
fn rows_221_222_statuses() {
    for status in [125, -9, 143, 70] {
        let document = assemble(&config(&json!({})), &seen(status, &[], 0));
        assert_eq!(reasons(&document), ["container_failed", "no_bench_export"], "{status}");
        assert_eq!(document.failure_details[0].facts["exit_code"], json!(status));
    }
    for (status, reason) in [
        (50, "server_exited_during_startup"),
        (56, "rollout_output_too_short"),
        (57, "rollout_sampling_ignored"),
        (58, "rollout_sampling_backend_mismatch"),
        (59, "rollout_length_basis_unusable"),
        (60, "rollout_sampling_backend_unverified"),
        (61, "controller_lost"),
        (64, "usage_error"),
    ] {
        assert_eq!(reasons(&assemble(&config(&json!({})), &seen(status, &[], 0)))[0], reason);
    }
}

#[test]
fn rows_223_224_nothing_exported() {
    let document = assemble(&config(&json!({})), &seen(0, &[], 0));
    assert_eq!(reasons(&document), ["no_bench_export"]);
    assert_eq!((document.main_work_started, document.first_failure_iteration), (false, None));
    assert_eq!(document.failure_details[0].facts["stdout_tail"], json!("the last words"));
    assert!(!document.metrics.contains_key("completed_total"));

    let document = assemble(&config(&json!({})), &seen(54, &[], 1));
    assert_eq!(reasons(&document), ["result_json_unusable", "no_bench_export"]);
    assert_eq!((document.main_work_started, document.first_failure_iteration), (true, Some(0)));
    assert_eq!((document.total_iterations, document.executed_iterations), (1, 0));
}

#[test]
fn rows_225_226_incomplete_steps() {
    let trial = config(&json!({ "steps": 3 }));
    let two = [(1, sound(&json!({}))), (2, sound(&json!({})))];
    let document = assemble(&trial, &seen(53, &two, 3));
    assert_eq!(reasons(&document), ["bench_step_failed", "incomplete_steps"]);
    assert_eq!(document.failure_details[1].facts["step"], json!(3));
    assert_eq!(document.first_failure_iteration, Some(2));
    assert_eq!((document.total_iterations, document.executed_iterations), (3, 2));

    let document = assemble(&trial, &seen(53, &two[..1], 1));
    let incomplete = &document.failure_details[1];
    assert!(incomplete.detail.contains("missing step 2"), "{}", incomplete.detail);
    assert_eq!((&incomplete.facts["step"], document.first_failure_iteration), (&json!(1), Some(0)));
}

/// FS-71.
#[test]
fn rows_228_to_232_the_host_audits_by_itself() {
    let one = |config_: &Value, export: &Value| {
        let document = assemble(&config(config_), &seen(0, &[(1, export.clone())], 1));
        reasons(&document).iter().map(|r| (*r).to_owned()).collect::<Vec<_>>()
    };
    let none = json!({});
    assert_eq!(one(&none, &sound(&json!({ "completed": 30 }))), ["served_request_shortfall"]);
    assert_eq!(one(&none, &sound(&json!({ "completed": 30, "median_ttft_ms": null }))), ["served_request_shortfall"]);
    for bad in [json!({ "duration": null }), json!({ "median_ttft_ms": -1.0 }), json!({ "output_throughput": 0 })] {
        assert_eq!(one(&none, &sound(&bad)), ["result_json_unusable"], "{bad}");
    }
    // The other way round: the agent's verdict stands where the host's audit finds nothing.
    let document = assemble(&config(&none), &seen(55, &[good(&none)], 1));
    assert!(!document.passed && reasons(&document) == ["served_request_shortfall"], "{:?}", reasons(&document));

    let no_tpot = sound(&json!({ "mean_tpot_ms": null, "median_tpot_ms": null }));
    assert_eq!(one(&json!({ "output_len": 1 }), &no_tpot), [""; 0]);
    assert_eq!(one(&json!({ "output_len": 2 }), &no_tpot), ["result_json_unusable"]);

    let file = tempfile::NamedTempFile::new().unwrap();
    let sharegpt = json!({ "dataset": "sharegpt", "dataset_path": file.path() });
    let total =
        |total: Value| sound(&json!({ "mean_tpot_ms": null, "median_tpot_ms": null, "total_output_tokens": total }));
    assert_eq!(one(&sharegpt, &total(json!(32))), [""; 0]);
    assert_eq!(one(&sharegpt, &total(json!(33))), ["result_json_unusable"]);
    assert_eq!(one(&sharegpt, &total(Value::Null)), ["result_json_unusable"]);
}

#[test]
fn row_233_one_token_per_completion_needs_no_tpot() {
    let trial =
        config(&json!({ "rollout": true, "rollout_samples": 1, "output_len": 200, "min_mean_output_tokens": 0 }));
    let export = sound(&json!({
        "mean_tpot_ms": null, "median_tpot_ms": null, "total_output_tokens": 32, "output_lens": vec![1; 32],
    }));
    assert_eq!(reasons(&assemble(&trial, &seen(0, &[(1, export)], 1))), [""; 0]);
}

#[test]
fn rows_234_to_237_gates() {
    let gate = |key: &str, bound: f64| json!({ "gates": { key: bound }, "steps": 3 });
    let steps = |p99: [Option<f64>; 3]| -> Vec<(u32, Value)> {
        let export = |p99: Option<f64>| sound(&p99.map_or(json!({}), |v| json!({ "p99_tpot_ms": v })));
        p99.into_iter().zip(1..).map(|(p99, n)| (n, export(p99))).collect()
    };
    let run = |config_: &Value, exports: &[(u32, Value)]| assemble(&config(config_), &seen(0, exports, 3));

    let document = run(&gate("max_p99_tpot_ms", 10.0), &steps([Some(1.0), None, None]));
    assert_eq!(reasons(&document), ["gate_metric_missing"]);
    assert_eq!(document.metrics["partial_metrics"], json!(["p99_tpot_ms"]));
    assert!(!document.metrics.contains_key("p99_tpot_ms"));

    let observed = steps([Some(9.0), Some(10.0), Some(11.0)]);
    assert!(run(&gate("max_p99_tpot_ms", 10.0), &observed).passed, "equality passes");
    let document = run(&gate("max_p99_tpot_ms", 9.99), &observed);
    assert_eq!((reasons(&document), document.first_failure_iteration), (vec!["perf_gate_breached"], Some(0)));
    assert_eq!(document.failure_details[0].facts["observed"], json!(10.0));
    assert_eq!(reasons(&run(&gate("min_output_throughput", 100.5), &observed)), ["perf_gate_breached"]);
    assert!(run(&gate("min_output_throughput", 100.0), &observed).passed);

    let document = assemble(&config(&gate("max_p99_tpot_ms", 10.0)), &seen(50, &[], 0));
    assert_eq!(reasons(&document), ["server_exited_during_startup", "no_bench_export"]);
}

#[test]
fn rows_238_239_totals_and_steps() {
    let exports: Vec<_> = (1..=3).map(|n| (n, sound(&json!({ "output_lens": vec![128; 32] })))).collect();
    let metrics = assemble(&config(&json!({ "steps": 3 })), &seen(0, &exports, 3)).metrics;
    assert_eq!((&metrics["completed_total"], &metrics["failed_total"]), (&json!(96), &json!(0)));
    assert!(!metrics.contains_key("completed") && !metrics.contains_key("failed"));
    assert_eq!(metrics["steps"][1]["completed"].to_string(), "32");
    assert_eq!(metrics["steps"][2]["step"], json!(3));
    // Means are floats even of integers; what was asked for stays what it is.
    assert_eq!(metrics["total_output_tokens"].to_string(), "4096.0");
    assert_eq!(metrics["num_prompts"].to_string(), "32");
    assert!(!metrics.keys().any(|k| k.starts_with("generated_tokens") || k == "mean_output_tokens_per_request"));
}

#[test]
fn rows_240_to_242_lengths_of_rollouts() {
    let rollout = |steps: u32| {
        let own = json!({
            "rollout": true, "rollout_samples": 1, "output_len": 4000, "min_mean_output_tokens": 0, "steps": steps,
        });
        config(&own)
    };
    let step = |total: u64, lens: Option<Vec<u64>>| {
        sound(&json!({ "total_output_tokens": total, "output_lens": lens.map_or(Value::Null, |l| json!(l)) }))
    };
    let metrics = |trial: &Trial, exports: &[(u32, Value)]| {
        let starts = u32::try_from(exports.len()).unwrap();
        assemble(trial, &seen(0, exports, starts)).metrics
    };
    let uneven = [(1, step(6400, Some(vec![200; 32]))), (2, step(3200, None))];
    let found = metrics(&rollout(2), &uneven);
    assert_eq!(found["mean_output_tokens_per_request"], json!(150.0));
    assert!(!found.keys().any(|k| k.starts_with("generated_tokens")), "row 242");

    let trial = trial(&json!({
        "num_prompts": 8, "rollout": true, "rollout_samples": 1, "output_len": 4000, "min_mean_output_tokens": 0,
    }));
    let mut export = step(4070, Some(vec![10, 10, 10, 10, 10, 10, 10, 4000]));
    export["completed"] = json!(8);
    let found = metrics(&trial, &[(1, export)]);
    assert_eq!(found["generated_tokens_p50"], json!(10.0));
    let p99 = found["generated_tokens_p99"].as_f64().unwrap();
    assert!((p99 - (10.0 + 3990.0 * 0.93)).abs() < 1e-9);
    assert_eq!(found["generated_tokens_count"].to_string(), "8", "B-03: an integer");
    assert_eq!(found["generated_tokens_max"], json!(4000));
    assert_eq!(found["output_lens_shape"], json!("per_choice"));
}

/// FS-86, FS-87.
#[test]
fn row_243_memory_is_attributed_only_where_the_config_says_so() {
    let mut seen = seen(0, &[good(&json!({}))], 1);
    let held = HeldGpu { index: 1, pci_address: Some("0000:08:00.0".into()), held_bytes: 9 << 30, gpus_on_node: 3 };
    seen.gpu_memory = GpuMemory::Outstanding(vec![held]);
    let document = assemble(&config(&json!({})), &seen);
    assert!(document.passed);
    assert!(document.trial.findings.iter().any(|f| f.hint.contains("exclusive_gpus")));

    let document = assemble(&config(&json!({ "exclusive_gpus": true })), &seen);
    let failure = &document.failure_details[0];
    assert_eq!((failure.reason.as_str(), &failure.facts["gpu"]), ("gpu_memory_not_reclaimed", &json!(1)));
    for part in ["9.0 GiB", "300 s", "rocm-smi --gpureset -d 1", "0000:08:00.0", "check first"] {
        assert!(failure.detail.contains(part), "{part}: {}", failure.detail);
    }
}

#[test]
fn a_timeout_names_limit_and_steps_row_215() {
    let mut seen = seen(0, &[good(&json!({}))], 1);
    seen.end = Some(ClientEnd::TimedOut);
    let document = assemble(&config(&json!({ "steps": 2, "timeout_sec": 1234 })), &seen);
    assert_eq!(reasons(&document), ["container_timeout", "incomplete_steps"]);
    assert!(document.failure_details[0].detail.contains("1234") && document.failure_details[0].detail.contains("1/2"));
    assert!(!document.failure_details[0].facts.contains_key("exit_code"));
}

#[test]
fn our_four_reasons() {
    let mut broken = seen(0, &[good(&json!({}))], 1);
    broken.end = Some(ClientEnd::Interrupted(Interruption {
        signal: Some("SIGTERM".into()),
        phase: Some("measure".into()),
        step: Some(2),
    }));
    let document = assemble(&config(&json!({ "steps": 3 })), &broken);
    assert_eq!(reasons(&document), ["interrupted"]);
    assert_eq!(document.first_failure_iteration, Some(1));

    let mut stuck = seen(0, &[good(&json!({}))], 1);
    stuck.removal = Removal::NotProven { detail: "exit 1: no daemon".into(), command: "docker rm -f x".into() };
    let document = assemble(&config(&json!({})), &stuck);
    assert_eq!(reasons(&document), ["container_not_removed"]);
    assert_eq!(document.failure_details[0].facts["command"], json!("docker rm -f x"));

    let mut alive = seen(0, &[good(&json!({}))], 1);
    alive.survivors = vec![Survivor { pid: 7, name: "engine".into(), killed: true }];
    assert_eq!(reasons(&assemble(&config(&json!({})), &alive)), ["process_survivors"]);

    let disagree = |change: fn(&mut Observed)| {
        let mut seen = seen(0, &[good(&json!({}))], 1);
        change(&mut seen);
        let document = assemble(&config(&json!({})), &seen);
        reasons(&document).iter().map(|r| (*r).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(disagree(|s| s.markers.step_starts = 0), ["witness_disagreement"]);
    assert_eq!(disagree(|s| s.markers.result = Some(proto::marker::Outcome::Fail)), ["witness_disagreement"]);
    assert_eq!(disagree(|s| s.markers.digests = vec![(1, "0".repeat(64))]), ["witness_disagreement"]);
    assert_eq!(disagree(|s| s.container_outlived_client = true), ["witness_disagreement"]);
    assert_eq!(disagree(|s| s.markers.digests = vec![(1, s.records[0].export.sha256.clone())]), [""; 0]);
    // Where section I has failed the trial already, its details stand unchanged.
    let document = assemble(&config(&json!({})), &seen(53, &[], 0));
    assert_eq!(reasons(&document), ["bench_step_failed", "no_bench_export"]);
}

#[test]
fn a_client_that_hung_after_the_last_word_fs03() {
    let mut seen = seen(0, &[good(&json!({}))], 1);
    seen.end = Some(ClientEnd::Hung(-9));
    assert_eq!(reasons(&assemble(&config(&json!({})), &seen)), ["container_failed"]);
    seen.markers.result = Some(proto::marker::Outcome::Pass);
    assert_eq!(reasons(&assemble(&config(&json!({})), &seen)), [""; 0]);
}

/// D-04: every failure carries a hint of one line; the document matches its schema, and nothing in it is NaN.
#[test]
fn every_document_is_strict_and_hinted() {
    let validator = jsonschema::validator_for(super::document::schema().as_value()).unwrap();
    let mut all = vec![seen(0, &[good(&json!({}))], 1), seen(55, &[good(&json!({ "completed": 1 }))], 1)];
    for status in [50, 51, 52, 53, 54, 56, 57, 58, 59, 60, 61, 64, 70, 125, 137, 143, -9] {
        all.push(seen(status, &[], 0));
    }
    for seen in &all {
        let document = super::document::Document::Result(Box::new(assemble(&config(&json!({})), seen)));
        let value: Value = serde_json::from_slice(&document.to_bytes()).unwrap();
        assert!(
            validator.is_valid(&value),
            "{:?}",
            validator.iter_errors(&value).map(|e| e.to_string()).collect::<Vec<_>>()
        );
        for detail in value["failure_details"].as_array().unwrap() {
            let hint = detail["hint"].as_str().unwrap();
            assert!(!hint.is_empty() && !hint.contains('\n'), "{detail}");
        }
        let read: super::document::Document = serde_json::from_value(value).unwrap();
        assert_eq!(read, document, "what is written reads back");
    }
}

/// `strict_load: true` turns load findings into failures.
#[test]
fn short_output_work_is_a_finding_or_a_failure() {
    let short = [good(&json!({ "total_output_tokens": 4095 }))];
    let document = assemble(&config(&json!({ "output_len": 128 })), &seen(0, &short, 1));
    assert!(document.passed);
    assert!(document.trial.findings.iter().any(|f| f.detail.contains("4095 of 4096")), "{:?}", document.trial.findings);
    let document = assemble(&config(&json!({ "output_len": 128, "strict_load": true })), &seen(0, &short, 1));
    assert_eq!(reasons(&document), ["short_output_work"]);
}

/// Design section 7: a step whose client was the limit is named; only the native client says so.
#[test]
fn a_client_bound_step_is_a_finding_or_a_failure() {
    let exports = [(1, sound(&json!({ "client_bound": 0 }))), (2, sound(&json!({ "client_bound": 1 })))];
    let native = json!({ "steps": 2, "bench_tool": "native" });
    let document = assemble(&config(&native), &seen(0, &exports, 2));
    assert!(document.passed);
    assert!(document.trial.findings.iter().any(|f| f.detail.ends_with("of step 2")), "{:?}", document.trial.findings);
    let strict = json!({ "steps": 2, "bench_tool": "native", "strict_load": true });
    assert_eq!(reasons(&assemble(&config(&strict), &seen(0, &exports, 2))), ["client_bound"]);
    let other = assemble(&config(&json!({ "steps": 2, "strict_load": true })), &seen(0, &exports, 2));
    assert!(other.passed, "{:?}", other.failure_details);
}

#[test]
fn words_for_a_person() {
    let exports = [(1, sound(&json!({ "p99_ttft_ms": 60.0 }))), (2, sound(&json!({ "median_ttft_ms": 45.0 })))];
    let trial = config(&json!({ "steps": 2, "max_concurrency": 8, "gates": { "max_median_ttft_ms": 42.0 } }));
    let mut seen = seen(0, &exports, 2);
    seen.phases.ready_ms = Some(307_000.0);
    let document = super::document::Document::Result(Box::new(assemble(&trial, &seen)));
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "<sha256>")] }, {
        insta::assert_snapshot!("explain_breached_gate", super::words::explain(&document));
    });
    let mut failed = self::seen(50, &[], 0);
    failed.stdout_tail = "TS_BENCH_FAIL: server_exited_during_startup rc=1\n\u{1b}[31mboom".into();
    let document = super::document::Document::Result(Box::new(assemble(&config(&json!({})), &failed)));
    insta::assert_snapshot!("explain_server_died", super::words::explain(&document));
}
