//! `controller run` on the real Docker engine, in an image from scratch that holds the static stand-in alone.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use tests::controlled::{Controlled, docker};
use tests::patience::until;
use tests::{needs, programs};

fn able(test: &str) -> bool {
    needs::docker(test) && needs::static_programs(test)
}

fn hang(kind: &str) -> Value {
    json!({ "bench": { "faults": [{ "on": { "kind": kind }, "before": ["hang"] }] } })
}

fn assert_gone(trial: &Controlled) {
    assert_eq!(trial.containers(), "", "the container outlived the controller");
    trial.assert_nothing_left();
}

#[test]
fn a_sound_trial_passes_in_a_container() {
    if !able("a_sound_trial_passes_in_a_container") {
        return;
    }
    let ended = Controlled::docker(&json!({}), &json!({})).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let trial = &ended.document["trial"];
    let token = trial["run_token"].as_str().expect("a token");
    assert_eq!(trial["container_name"], json!(format!("aorta-ts-serve-{token}")));
    assert_eq!(trial["agent_verdict"], json!({ "reason": "pass", "exit_code": 0 }));
    assert_eq!(ended.document["metrics"]["completed_total"], json!(16));
    assert_gone(&ended.controlled);
}

/// FS-72.
#[test]
fn a_container_has_its_name_labels_and_user() {
    if !able("a_container_has_its_name_labels_and_user") {
        return;
    }
    let mut running = Controlled::docker(&json!({}), &hang("warmup")).start();
    running.until_journal("\"step_started\"");
    let line = running.trial().containers();
    let name = line.split(' ').next().expect("a name");
    let format =
        "{{index .Config.Labels \"ts-bench.uid\"}} {{.Config.User}} {{.HostConfig.AutoRemove}} {{.HostConfig.IpcMode}}";
    let uid = nix::unistd::geteuid();
    let wanted = format!("{uid} {uid}:{} true private", nix::unistd::getegid());
    assert_eq!(docker(&["inspect", "--format", format, name]), wanted);
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32));
    assert_gone(&ended.controlled);
}

/// FS-22.
#[test]
fn signals_remove_the_container_rows_218_219() {
    if !able("signals_remove_the_container_rows_218_219") {
        return;
    }
    for (signal, script) in [(Signal::SIGTERM, hang("measured")), (Signal::SIGHUP, hang("warmup"))] {
        let mut deaf = script;
        deaf["deaf"] = json!({ "leader": true, "children": true });
        let mut running = Controlled::docker(&json!({}), &deaf).start();
        running.until_journal("\"step_started\"");
        running.controller().signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.signal(), Some(signal as i32), "{}", ended.stderr);
        assert_eq!(ended.reasons(), ["interrupted"], "{}", ended.document);
        // Where the engine was too slow for the signal's budget, the helper goes on, and is named.
        if ended.document["trial"]["reaper"].is_null() {
            assert_gone(&ended.controlled);
        } else {
            until("the helper's work", || ended.controlled.containers().is_empty().then_some(()));
        }
    }
}

/// The client that runs the container of a trial.
fn client_of(trial: &Controlled) -> Option<Pid> {
    let out = trial.out().display().to_string();
    let client =
        |process: &tests::processes::Process| process.command.contains("docker run") && process.command.contains(&out);
    tests::processes::all().into_iter().find(client).map(|process| Pid::from_raw(process.pid))
}

#[test]
fn a_killed_client_takes_the_container_along_fs_12() {
    if !able("a_killed_client_takes_the_container_along_fs_12") {
        return;
    }
    let running = Controlled::docker(&json!({}), &hang("measured")).start();
    running.until_journal("\"name\":\"measure\"");
    let client = until("the client", || client_of(running.trial()));
    kill(client, Signal::SIGKILL).expect("the client");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_failed");
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(-9));
    assert_gone(&ended.controlled);
}

#[test]
fn a_container_removed_from_outside_ends_the_trial() {
    if !able("a_container_removed_from_outside_ends_the_trial") {
        return;
    }
    let running = Controlled::docker(&json!({}), &hang("measured")).start();
    running.until_journal("\"name\":\"measure\"");
    let line = running.trial().containers();
    docker(&["kill", line.split(' ').next().expect("a name")]);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_failed");
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(137));
    assert_gone(&ended.controlled);
}

#[test]
fn reap_removes_what_a_killed_controller_left_fs_24() {
    if !able("reap_removes_what_a_killed_controller_left_fs_24") {
        return;
    }
    // No lease: only reaping ends it.
    let mut running = Controlled::docker(&json!({ "lease_sec": 0 }), &hang("measured")).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGKILL);
    let ended = running.end();
    assert!(ended.controlled.containers().contains("running"), "the client alone does not end it");
    let reap = |more: &[&str]| {
        let mut command = Command::new(programs::controller());
        command.arg("reap").args(more).env("TMPDIR", ended.controlled.folder());
        let out = command.output().expect("reap");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (code, said) = reap(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("would remove container aorta-ts-serve-"), "{said}");
    assert!(ended.controlled.containers().contains("running"));
    let (code, said) = reap(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("removed: container aorta-ts-serve-"), "{said}");
    assert_gone(&ended.controlled);
}

/// FS-24.
#[test]
fn the_lease_ends_a_container_whose_controller_was_killed() {
    if !able("the_lease_ends_a_container_whose_controller_was_killed") {
        return;
    }
    let mut running = Controlled::docker(&json!({ "lease_sec": 1 }), &hang("measured")).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGKILL);
    let ended = running.end();
    until("the agent's own end", || ended.controlled.containers().is_empty().then_some(()));
}

/// FS-05.
#[test]
fn what_the_host_lacks_is_69() {
    if !able("what_the_host_lacks_is_69") {
        return;
    }
    let missing = json!({ "image": "ts-bench/no-such-image:1" });
    let ended = Controlled::docker(&missing, &json!({})).run();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert_eq!(ended.document["error"]["key"], json!("image"));
    assert_gone(&ended.controlled);

    // No GPU on this machine: said before anything is started.
    if std::path::Path::new("/dev/kfd").exists() {
        return;
    }
    let no_device = json!({ "require_gpu": true });
    let ended = Controlled::docker(&no_device, &json!({})).run();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert_eq!(ended.document["error"]["key"], json!("require_gpu"));
    assert_gone(&ended.controlled);
}
