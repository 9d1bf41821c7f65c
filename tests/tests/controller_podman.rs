//! `controller run` with podman, in an image from scratch that holds the static stand-in alone.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tests::controlled::Controlled;
use tests::{needs, programs};

/// The image, imported once; nothing where podman cannot run it.
fn image(test: &str) -> Option<&'static str> {
    static IMAGE: OnceLock<Option<String>> = OnceLock::new();
    let have = IMAGE.get_or_init(import).as_deref();
    if have.is_none() {
        needs::skip(test, "no podman on PATH");
    }
    have.filter(|image| needs::static_programs(test) && needs::podman(test, image))
}

fn import() -> Option<String> {
    Command::new("podman").arg("--version").stdout(Stdio::null()).status().ok()?;
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("bin")).expect("bin");
    fs::create_dir_all(folder.path().join("tmp")).expect("tmp");
    fs::copy(programs::tokenspeed(), folder.path().join("bin/tokenspeed")).expect("the stand-in");
    let root = folder.path().display().to_string();
    let tar = folder.path().with_extension("tar");
    let packed = Command::new("tar").args(["-C", &root, "-cf"]).arg(&tar).args(["bin", "tmp"]).status().expect("tar");
    assert!(packed.success());
    let out = Command::new("podman")
        .args(["import", "--quiet", "--change", "ENV PATH=/bin"])
        .arg(&tar)
        .arg("localhost/ts-bench-stand-in:test")
        .output()
        .expect("podman");
    let _ = fs::remove_file(&tar);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some("localhost/ts-bench-stand-in:test".to_owned())
}

#[test]
fn a_sound_trial_passes_in_podman() {
    let Some(image) = image("a_sound_trial_passes_in_podman") else { return };
    let ended = Controlled::podman(image, &json!({}), &json!({})).run();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.document["trial"]["runtime"], json!("podman"));
    assert_eq!(ended.document["trial"]["agent_verdict"], json!({ "reason": "pass", "exit_code": 0 }));
    assert_eq!(ended.document["metrics"]["completed_total"], json!(16));
    assert_eq!(ended.document["trial"]["lease"]["held"], json!(true));
    assert_eq!(ended.controlled.containers(), "");
    ended.controlled.assert_nothing_left();
}

#[test]
fn failures_and_signals_end_alike_in_podman() {
    let Some(image) = image("failures_and_signals_end_alike_in_podman") else { return };
    let cut = json!({ "requests": [{ "every": 3, "do": "cut", "on": { "kind": "measured", "step": 2 } }] });
    let ended = Controlled::podman(image, &json!({}), &cut).run();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(55));
    assert_eq!(ended.controlled.containers(), "");

    let mut deaf: Value = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
    deaf["deaf"] = json!({ "leader": true, "children": true });
    let mut running = Controlled::podman(image, &json!({}), &deaf).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "interrupted", "{}", ended.document);
    // A client that takes half a second for a query does not fit into the signal's budget: then the helper goes on.
    let helped =
        ended.reasons() == ["interrupted", "container_not_removed"] && ended.document["trial"]["reaper"].is_object();
    assert!(ended.reasons().len() == 1 || helped, "{}", ended.document);
    tests::patience::until("no container", || ended.controlled.containers().is_empty().then_some(()));
    ended.controlled.assert_nothing_left();
}

#[test]
fn a_killed_controller_leaves_nothing_in_podman() {
    let Some(image) = image("a_killed_controller_leaves_nothing_in_podman") else { return };
    let script = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
    let mut running = Controlled::podman(image, &json!({}), &script).start();
    running.until_journal("\"name\":\"measure\"");
    running.controller().signal(Signal::SIGKILL);
    let ended = running.end();
    tests::patience::until("no container", || ended.controlled.containers().is_empty().then_some(()));
    tests::patience::until("no process", || ended.controlled.processes().is_empty().then_some(()));
}
