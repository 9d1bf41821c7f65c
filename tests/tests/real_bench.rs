//! The real `tokenspeed bench serve`, from its public Python package, driven by the agent under the controller
//! against the stand-in engine. The tool exits 0 whatever it served; what decides is the export.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tests::controlled::{Controlled, Ended};
use tests::{needs, programs};

/// Runs a trial whose `tokenspeed bench` is the real one and whose `tokenspeed serve` is the stand-in; `None` where
/// the tool cannot be had.
fn run(test: &str, changes: &Value, script: Value) -> Option<Ended> {
    let venv = needs::venv(test, "bench")?;
    let mut config = json!({ "tokenizer": venv.join("tokenizer"), "model": "stand-in", "num_prompts": 12,
        "bench_args": ["--ready-check-timeout-sec", "20"], "hf_offline": true });
    for (key, value) in changes.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    let trial = Controlled::new(&config, script);
    let bin = trial.folder().join("bin");
    write_switch(&bin, &venv);
    let mut command = trial.command();
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    Some(trial.start_as(&mut command).end())
}

/// A `tokenspeed` that is the real tool for `bench` and the stand-in for everything else.
fn write_switch(bin: &Path, venv: &Path) {
    std::fs::create_dir(bin).expect("a folder");
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in bench) exec {}/bin/tokenspeed \"$@\" ;; *) exec {} \"$@\" ;; esac\n",
        venv.display(),
        programs::tokenspeed().display()
    );
    let file = bin.join("tokenspeed");
    std::fs::write(&file, text).expect("the switch");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
}

#[test]
fn a_good_run_of_the_real_tool_passes() {
    let Some(ended) = run("a_good_run_of_the_real_tool_passes", &json!({}), json!({})) else { return };
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let metrics = &ended.document["metrics"];
    assert_eq!(metrics["completed_total"], json!(24));
    assert_eq!(metrics["failed_total"], json!(0));
    for key in ["median_ttft_ms", "p99_tpot_ms", "output_throughput", "total_token_throughput"] {
        assert!(metrics[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {metrics}");
    }
    ended.controlled.assert_nothing_left();
}

#[test]
fn requests_that_the_real_tool_lost_are_55_although_it_exits_0() {
    let drop =
        json!({ "requests": [{ "every": 4, "do": { "status": 500 }, "on": { "kind": "measured", "step": 1 } }] });
    let Some(ended) = run("requests_that_the_real_tool_lost_are_55", &json!({}), drop) else { return };
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(55), "{}", ended.document);
    assert_eq!(ended.reasons(), ["served_request_shortfall", "served_request_shortfall"]);
    assert_eq!(ended.document["failure_details"][1]["step"], json!(1));
    ended.controlled.assert_nothing_left();
}

#[test]
fn several_completions_per_prompt_on_a_gateway_that_sums() {
    let test = "several_completions_per_prompt_on_a_gateway_that_sums";
    let rollout = json!({ "rollout": true, "rollout_samples": 4, "output_len": 16, "min_mean_output_tokens": 0 });
    let Some(ended) = run(test, &rollout, json!({ "engine": { "eos_lens": [5, 9, 16] } })) else { return };
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let metrics = &ended.document["metrics"];
    assert_eq!(metrics["output_lens_shape"], json!("per_request"), "{metrics}");
    // One entry per request and step, each the sum of four choices.
    assert_eq!(metrics["generated_tokens_count"], json!(24), "{metrics}");

    let floor = json!({ "rollout": true, "rollout_samples": 4, "output_len": 16, "min_mean_output_tokens": 4, "steps": 1,
        "warmup_steps": 0 });
    let Some(ended) = run(test, &floor, json!({ "engine": { "eos_lens": [5, 9, 16] } })) else { return };
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(59), "{}", ended.document);
    ended.controlled.assert_nothing_left();
}

#[test]
fn conversations_bring_their_own_lengths() {
    let test = "conversations_bring_their_own_lengths";
    let folder = tempfile::tempdir().expect("a folder");
    let path = tests::words::conversations(folder.path(), 12);
    let load = json!({ "dataset": "sharegpt", "dataset_path": path, "steps": 1, "warmup_steps": 0 });
    let Some(ended) = run(test, &load, json!({})) else { return };
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stderr, ended.document);
    let metrics = &ended.document["metrics"];
    assert_eq!((&metrics["dataset"], &metrics["completed_total"]), (&json!("sharegpt"), &json!(12)));
    // Lengths that nobody set are published as unknown, and the time per token is measured all the same.
    assert_eq!((&metrics["input_len"], &metrics["output_len"]), (&Value::Null, &Value::Null), "{metrics}");
    assert!(metrics["median_tpot_ms"].as_f64().is_some_and(|value| value > 0.0), "{metrics}");
    ended.controlled.assert_nothing_left();

    // Fewer conversations than prompts: the tool serves what there is and exits 0.
    let mut short = load;
    short["num_prompts"] = json!(20);
    let Some(ended) = run(test, &short, json!({})) else { return };
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(55), "{}", ended.document);
}
