//! The status stream shows and never decides: with it switched off in the agent a trial ends exactly the same
//! (design section 5).

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use tests::controlled::{Controlled, Ended};
use tests::programs;

/// An agent without a status stream: what a broken socket looks like from the host.
fn silent_agent(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("agent-without-stream");
    let text = format!("#!/bin/sh\nTS_GRPC_LISTEN=off exec {} \"$@\"\n", programs::agent().display());
    fs::write(&path, text).expect("an agent");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

/// What a document says about the verdict, without figures, paths and times.
fn verdict(ended: &Ended) -> Value {
    let document = &ended.document;
    let details = document["failure_details"].as_array().into_iter().flatten();
    let details: Vec<Value> =
        details.map(|d| json!([d["reason"], d["step"], d["exit_code"], d["phase"], d["signal"]])).collect();
    let metrics: Vec<&String> = document["metrics"].as_object().into_iter().flatten().map(|(key, _)| key).collect();
    json!({
        "status": ended.status.code(), "signal": ended.status.signal(), "passed": document["passed"],
        "failures": document["failure_count"], "first": document["first_failure_iteration"], "details": details,
        "executed": document["executed_iterations"], "started": document["main_work_started"],
        "completed": document["metrics"]["completed_total"], "agent": document["trial"]["agent_verdict"],
        "host": document["trial"]["host_verdict"], "metrics": metrics,
        "findings": document["trial"]["findings"].as_array().map(|all| all.iter().map(|f| f["id"].clone()).collect::<Vec<_>>()),
    })
}

#[test]
fn a_trial_ends_alike_with_the_stream_off() {
    let hang = json!({ "bench": { "faults": [{ "on": { "kind": "measured", "step": 2 }, "before": ["hang"] }] } });
    let cases = [
        ("sound", json!({}), false),
        ("dropped", json!({ "requests": [{ "every": 3, "do": "cut", "on": { "kind": "measured" } }] }), false),
        ("crash", json!({ "faults": [{ "at": { "step": { "step": 2 } }, "do": { "exit": { "code": 3 } } }] }), false),
        ("never up", json!({ "faults": [{ "at": "loading", "do": { "exit": { "code": 3 } } }] }), false),
        (
            "NaN",
            json!({ "bench": { "faults": [{ "on": { "kind": "measured", "step": 1 },
            "document": [{ "set_raw": { "median_ttft_ms": "NaN" } }] }] } }),
            false,
        ),
        ("signal", hang, true),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let silent = silent_agent(folder.path());
    for (name, script, signalled) in cases {
        let run = |changes: &Value| {
            let mut running = Controlled::new(changes, script.clone()).start();
            if signalled {
                running.until_journal("\"kind\":\"measured\",\"number\":2");
                running.controller().signal(Signal::SIGTERM);
            }
            let mut ended = running.end();
            if signalled {
                // How far the agent came in the signal's 1.5 s is the machine's business.
                ended.document["trial"]["agent_verdict"] = Value::Null;
            }
            ended.controlled.assert_nothing_left();
            ended
        };
        let with = run(&json!({}));
        let without = run(&json!({ "agent_path": silent }));
        assert_eq!(verdict(&with), verdict(&without), "{name}\n{}\n{}", with.stderr, without.stderr);
    }
}
