//! What a container client and its daemon do wrong, on a client of our own: conflicts, late creations, refusals.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use tests::controlled::{Controlled, Running};
use tests::needs;
use tests::patience::until;

fn start(test: &str, script: &Value) -> Option<Running> {
    // The agent is staged before the client is called, and only a static one is.
    if !needs::static_programs(test) {
        return None;
    }
    let client = env!("CARGO_BIN_EXE_fake-docker");
    let own = json!({ "runtime": "docker", "image": "img:1", "container_cli": client });
    let trial = Controlled::new(&own, Value::Null);
    fs::write(trial.folder().join("script.json"), script.to_string()).expect("script");
    let mut command = trial.command();
    command.env("FAKE_DOCKER_DIR", trial.folder());
    Some(trial.start_as(&mut command))
}

/// First words of the calls so far.
fn calls(trial: &Controlled) -> Vec<String> {
    let text = fs::read_to_string(trial.folder().join("calls.jsonl")).unwrap_or_default();
    let word = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["args"][0].as_str()?.to_owned());
    text.lines().filter_map(word).collect()
}

fn containers(trial: &Controlled) -> usize {
    fs::read_dir(trial.folder().join("containers")).into_iter().flatten().count()
}

#[test]
fn a_stranger_with_our_name_is_left_alone_fs_11() {
    let script =
        json!({ "run": { "container": "foreign", "exit": 125, "stderr": "Conflict. The name is already in use" } });
    let Some(running) = start("a_stranger_with_our_name_is_left_alone_fs_11", &script) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert!(ended.document["error"]["message"].as_str().is_some_and(|m| m.contains("Conflict")), "{}", ended.document);
    assert_eq!(containers(&ended.controlled), 1, "somebody else's container was removed");
    assert!(!calls(&ended.controlled).contains(&"rm".to_owned()));
}

#[test]
fn statuses_of_the_client_row_221_fs_02() {
    let script = |code: u8, words: &str| json!({ "run": { "exit": code, "stderr": words } });
    let Some(running) = start("statuses_of_the_client_row_221_fs_02", &script(125, "bad flag")) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons(), ["container_failed", "no_bench_export"]);
    assert_eq!(ended.document["failure_details"][0]["stderr_tail"], json!("bad flag"));
    assert!(calls(&ended.controlled).contains(&"rm".to_owned()), "removal is attempted after every end");

    for (words, key) in [("exec format error", "agent_path"), ("error gathering device information", "require_gpu")] {
        let Some(running) = start("statuses_of_the_client_row_221_fs_02", &script(127, words)) else { return };
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
        assert_eq!(ended.document["error"]["key"], json!(key));
        let message = ended.document["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("img:1") && message.contains("agent.") && message.contains(words), "{message}");
    }
}

#[test]
fn a_container_that_comes_after_its_client_is_removed_fs_09_fs_18() {
    let script = json!({ "run": { "container": "late", "late_ms": 300, "exit": 1 } });
    for signalled in [false, true] {
        let mut script = script.clone();
        if signalled {
            script["run"].as_object_mut().expect("a rule").remove("exit");
        }
        let test = "a_container_that_comes_after_its_client_is_removed_fs_09_fs_18";
        let Some(mut running) = start(test, &script) else { return };
        if signalled {
            until("the client", || calls(running.trial()).contains(&"run".to_owned()).then_some(()));
            running.controller().signal(Signal::SIGTERM);
        }
        let ended = running.end();
        if signalled {
            assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
        }
        // It comes for certain, and then it is gone for good: by the controller, or by the helper that it named.
        until("no container", || (containers(&ended.controlled) == 0).then_some(()));
        ended.controlled.assert_nothing_left();
    }
}

#[test]
fn a_daemon_that_refuses_leaves_a_helper_row_217_fs_14() {
    let script = json!({
        "run": { "container": "stays" },
        "rm": { "exit": 1, "stderr": "Cannot connect to the Docker daemon" },
    });
    let Some(mut running) = start("a_daemon_that_refuses_leaves_a_helper_row_217_fs_14", &script) else { return };
    until("the container", || (containers(running.trial()) == 1).then_some(()));
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert_eq!(ended.reasons(), ["interrupted", "container_not_removed"], "{}", ended.document);
    let detail = &ended.document["failure_details"][1];
    assert!(detail["command"].as_str().is_some_and(|c| c.contains("rm -f aorta-ts-serve-")), "{detail}");
    assert!(ended.stderr.contains("exit 1") && ended.stderr.contains("Cannot connect"), "{}", ended.stderr);
    let log = ended.document["trial"]["reaper"]["log"].as_str().expect("a helper").to_owned();
    assert!(ended.document["trial"]["reaper"]["pid"].is_u64());
    // The daemon comes back: the helper finishes the work and ends.
    fs::write(ended.controlled.folder().join("script.json"), json!({ "run": {} }).to_string()).expect("script");
    until("the helper's work", || (containers(&ended.controlled) == 0).then_some(()));
    until("the helper's last word", || fs::read_to_string(&log).ok()?.contains("is gone").then_some(()));
}
