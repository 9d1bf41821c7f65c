//! `controller run` in the process runtime on the stand-in engine: results, refusals, signals, and nothing left.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use serde_json::{Value, json};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use tests::controlled::Controlled;
use tests::patience::until;
use tests::programs;

fn hang(kind: &str) -> Value {
    json!({ "bench": { "faults": [{ "on": { "kind": kind }, "before": ["hang"] }] } })
}

#[test]
fn a_sound_trial_passes_and_leaves_its_exports() {
    let ended = Controlled::new(&json!({}), json!({})).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let document = &ended.document;
    assert_eq!((document["passed"].as_bool(), document["executed_iterations"].as_u64()), (Some(true), Some(2)));
    assert_eq!(document["metrics"]["completed_total"], json!(16));
    assert_eq!(document["metrics"]["image"], Value::Null);
    assert_eq!(document["trial"]["agent_verdict"]["exit_code"], json!(0));
    assert_eq!(document["trial"]["lease"]["held"], json!(true));
    for phase in ["ready_ms", "warmup_ms", "measure_ms", "client_ms", "removal_ms"] {
        assert!(document["trial"]["phases"][phase].is_f64(), "{phase}: {}", document["trial"]["phases"]);
    }
    for file in document["metrics"]["result_files"].as_array().expect("files") {
        assert!(std::path::Path::new(file.as_str().expect("a path")).is_file(), "{file}");
    }
    assert!(ended.stderr.contains("PASSED: 2 of 2"), "{}", ended.stderr);
    ended.controlled.assert_nothing_left();
    let explained = Command::new(programs::controller()).arg("explain").arg(ended.controlled.result()).output();
    let explained = String::from_utf8(explained.expect("explain").stdout).expect("text");
    assert!(explained.contains("PASSED: 2 of 2") && explained.contains("TTFT p50 ms"), "{explained}");
}

#[test]
fn dropped_requests_fail_although_the_tool_exits_0_row_228() {
    let cut = json!({ "requests": [{ "every": 3, "do": "cut", "on": { "kind": "measured", "step": 2 } }] });
    let ended = Controlled::new(&json!({}), cut).run();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons(), ["served_request_shortfall", "served_request_shortfall"]);
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(55));
    assert_eq!(ended.document["failure_details"][1]["step"], json!(2));
    ended.controlled.assert_nothing_left();
}

#[test]
fn files_of_this_trial_alone_are_removed_row_249() {
    let trial = Controlled::new(&json!({ "keep_work_dir": false }), json!({}));
    std::fs::create_dir_all(trial.out()).expect("out");
    std::fs::set_permissions(
        trial.out().parent().expect("scratch"),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("mode");
    let foreign = trial.out().join("bench.7-1.step1.json");
    std::fs::write(&foreign, "{}").expect("a file");
    let ended = trial.run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let token = ended.document["trial"]["run_token"].as_str().expect("token").to_owned();
    let left: Vec<String> = std::fs::read_dir(ended.controlled.out())
        .expect("out")
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(&token))
        .collect();
    assert_eq!(left, [""; 0]);
    assert!(foreign.exists());
}

#[test]
fn a_deaf_engine_and_a_second_signal_change_nothing() {
    let mut script = hang("measured");
    script["deaf"] = json!({ "leader": true, "children": true });
    let mut running = Controlled::new(&json!({}), script).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGTERM);
    let result = running.trial().result();
    until("the first document", || result.exists().then_some(()));
    running.controller().signal(Signal::SIGHUP);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "the first signal decides: {}", ended.stderr);
    assert_eq!(ended.document["trial"]["signals"].as_array().map(Vec::len), Some(2));
    ended.controlled.assert_nothing_left();
}

#[test]
fn an_inherited_ignore_or_mask_is_overcome_fs_21() {
    for (signal, ignored) in [(Signal::SIGHUP, true), (Signal::SIGINT, true), (Signal::SIGTERM, false)] {
        let trial = Controlled::new(&json!({}), hang("warmup"));
        let mut command = trial.command();
        // SAFETY: both calls are async-signal-safe.
        #[expect(unsafe_code, reason = "what a launcher such as nohup does")]
        unsafe {
            command.pre_exec(move || {
                if ignored {
                    nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigIgn)?;
                } else {
                    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), None)?;
                }
                Ok(())
            });
        }
        let mut running = trial.start_as(&mut command);
        running.until_journal("\"step_started\"");
        running.controller().signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.signal(), Some(signal as i32), "{signal}: {}", ended.stderr);
        ended.controlled.assert_nothing_left();
    }
}

#[test]
fn a_killed_controller_leaves_nothing_fs_24() {
    let mut running = Controlled::new(&json!({}), hang("measured")).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGKILL);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(9));
    assert_eq!(ended.document, Value::Null);
    // The lease: the agent ends by itself, and takes its tree along.
    until("the agent's own end", || ended.controlled.processes().is_empty().then_some(()));
    let reaped = Command::new(programs::controller()).arg("reap").env("TMPDIR", ended.controlled.folder()).output();
    assert_eq!(reaped.expect("reap").status.code(), Some(0));
    ended.controlled.assert_nothing_left();
}

#[test]
fn the_parents_end_counts_as_a_signal() {
    let trial = Controlled::new(&json!({}), hang("measured")).arg("--follow-parent");
    let inner = trial.command();
    let mut command = Command::new("/bin/sh");
    // The shell stays the parent: it has something to do afterwards.
    command.args(["-c", "\"$@\"; :", "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut running = trial.start_as(&mut command);
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGKILL);
    let result = running.trial().result();
    let document: Value = until("the document", || serde_json::from_str(&std::fs::read_to_string(&result).ok()?).ok());
    assert_eq!(document["failure_details"][0]["reason"], json!("interrupted"));
    assert_eq!(document["trial"]["signals"][0]["signal"], json!("parent gone"));
    running.trial().assert_nothing_left();
}

#[test]
fn the_deadline_ends_the_trial_row_215() {
    let own = json!({ "timeout_sec": 4, "ready_timeout_sec": 3 });
    let ended = Controlled::new(&own, hang("measured")).run();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_timeout", "{}", ended.document);
    ended.controlled.assert_nothing_left();
}

#[test]
fn refusals_are_documents_too() {
    let trial = Controlled::new(&json!({ "num_prompts": 0 }), json!({}));
    std::fs::write(trial.result(), "{\"passed\": true}").expect("an old document");
    let ended = trial.run();
    assert_eq!(ended.status.code(), Some(64), "{}", ended.stderr);
    assert_eq!(
        (&ended.document["error"]["kind"], &ended.document["error"]["key"]),
        (&json!("config"), &json!("num_prompts"))
    );

    let ended = Controlled::new(&json!({ "agent_path": "/nonexistent/agent" }), json!({})).run();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert_eq!(ended.document["error"]["kind"], json!("host"));
    ended.controlled.assert_nothing_left();

    let text = Controlled::new(&json!({}), json!({}));
    let not_an_agent = text.folder().join("agent");
    std::fs::write(&not_an_agent, "no program").expect("a file");
    std::fs::set_permissions(&not_an_agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let ended = text.arg("--agent").arg(not_an_agent.to_str().expect("a path")).run();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert!(ended.document["error"]["message"].as_str().is_some_and(|m| m.contains("cannot be executed")));
    ended.controlled.assert_nothing_left();
}

#[test]
fn a_document_on_stdout_stands_alone() {
    let ended = Controlled::new(&json!({}), json!({})).arg("--result").arg("-").run();
    let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout));
    assert_eq!(document["passed"], json!(true));
}

#[test]
fn a_dead_trial_is_cleaned_by_the_next_run() {
    let mut first = Controlled::new(&json!({ "lease_sec": 0 }), hang("measured")).start();
    first.until_journal("\"name\":\"measure\"");
    first.controller().signal(Signal::SIGKILL);
    let first = first.end();
    assert!(!first.controlled.processes().is_empty(), "without a lease the agent goes on");
    let second = Controlled::new(&json!({}), json!({}));
    let mut command = second.command();
    command.env("TMPDIR", first.controlled.folder());
    let second = second.start_as(&mut command).end();
    assert_eq!(second.status.code(), Some(0), "{}", second.stderr);
    let findings = second.document["trial"]["findings"].to_string();
    assert!(findings.contains("leftovers_removed"), "{findings}");
    first.controlled.assert_nothing_left();
}
