//! FS-04 and FS-17, on a daemon of the test's own: restarts with and without live-restore, a killed shim, an API that
//! hangs. Every trial ends bounded with a true document, and its container is gone in the end.

mod daemon;

use controller::run::identity::ProcessIdentity;
use daemon::Daemon;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use tests::controlled::{Controlled, Ended, Running};

use tests::patience::until;
use tests::{needs, programs};

fn hang(kind: &str) -> Value {
    json!({ "bench": { "faults": [{ "on": { "kind": kind }, "before": ["hang"] }] } })
}

/// Starts a trial on a daemon and waits until the journal says that it got so far.
fn start(daemon: &Daemon, changes: &Value, engine: &Value, said: &str) -> Running {
    let mut own = json!({
        "runtime": "docker", "image": daemon.image(), "pull": "never", "container_cli": daemon.client(),
        "_aorta_trial_env": { "FAKE_TS_SCRIPT": engine.to_string() },
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    let running = Controlled::new(&own, Value::Null).start();
    running.until_journal(said);
    assert_ne!(daemon.containers().as_deref(), Some(""), "the container is there");
    running
}

const MEASURES: &str = "\"name\":\"measure\"";

fn assert_gone(daemon: &Daemon, ended: &Ended) {
    until("no container", || daemon.containers()?.is_empty().then_some(()));
    until("no shim", || daemon.shims().is_empty().then_some(()));
    ended.controlled.assert_nothing_left();
}

/// `controller reap` with this daemon's client alone: its status and what it said.
fn reap(daemon: &Daemon, registry: &Path) -> (Option<i32>, String) {
    let path = daemon.client().parent().map(Path::to_owned);
    let mut command = Command::new(programs::controller());
    command.arg("reap").env("PATH", path.expect("a folder")).env("TMPDIR", registry);
    let out = command.output().expect("reap");
    (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
}

/// What a trial says whose client ended without the agent's last word.
fn assert_failed(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_failed", "{}", ended.document);
    assert!(!ended.reasons().contains(&"container_not_removed"), "{}", ended.document);
    assert_eq!(ended.document["passed"], json!(false));
}

/// Phases: what holds the trial there, and what the journal says in it. All of them in the long run.
fn phases() -> Vec<(Value, &'static str)> {
    let never_ready = json!({ "control": { "health": { "sequence": [503] } } });
    let mut phases = vec![(hang("measured"), MEASURES)];
    if needs::long() {
        phases.extend([(never_ready, "\"wait_health\""), (hang("warmup"), "\"step_started\"")]);
    }
    phases
}

/// FS-04: the daemon takes the container along.
#[test]
fn a_restart_without_live_restore_fs_04() {
    for (engine, said) in phases() {
        let Some(mut daemon) = Daemon::start("a_restart_without_live_restore_fs_04", false) else { return };
        let running = start(&daemon, &json!({}), &engine, said);
        daemon.stop(Signal::SIGTERM);
        daemon.start_again();
        let ended = running.end();
        assert_failed(&ended);
        assert_gone(&daemon, &ended);
    }
}

/// FS-04: the container lives on without its client, which ends with 125, until the daemon is back and it is removed.
#[test]
fn a_restart_with_live_restore_fs_04() {
    for (engine, said) in phases() {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let Some(mut daemon) = Daemon::start("a_restart_with_live_restore_fs_04", true) else { return };
            let running = start(&daemon, &json!({}), &engine, said);
            daemon.stop(signal);
            assert!(!daemon.shims().is_empty(), "the container lives on");
            daemon.start_again();
            let ended = running.end();
            assert_failed(&ended);
            assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(125), "{}", ended.document);
            assert_gone(&daemon, &ended);
        }
    }
}

/// FS-04: the controller has to die while there is no daemon: in time, and its helper goes on.
#[test]
fn a_signal_while_the_daemon_is_away_fs_04() {
    let Some(mut daemon) = Daemon::start("a_signal_while_the_daemon_is_away_fs_04", true) else { return };
    // Without a lease nothing but the removal ends it.
    let mut running = start(&daemon, &json!({ "lease_sec": 0 }), &hang("measured"), MEASURES);
    daemon.stop(Signal::SIGKILL);
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert_eq!(ended.reasons(), ["interrupted", "container_not_removed"], "{}", ended.document);
    let log = ended.document["trial"]["reaper"]["log"].as_str().expect("a helper").to_owned();
    daemon.start_again();
    until("the helper's last word", || std::fs::read_to_string(&log).ok()?.contains("is gone").then_some(()));
    assert_gone(&daemon, &ended);
}

/// FS-04: controller and daemon both die; whoever comes next cleans up.
#[test]
fn both_are_killed_and_reap_cleans_up_fs_04() {
    let Some(mut daemon) = Daemon::start("both_are_killed_and_reap_cleans_up_fs_04", true) else { return };
    let mut running = start(&daemon, &json!({ "lease_sec": 0 }), &hang("measured"), MEASURES);
    running.controller().signal(Signal::SIGKILL);
    daemon.stop(Signal::SIGKILL);
    let ended = running.end();
    assert_eq!(ended.document, Value::Null);
    assert!(!daemon.shims().is_empty(), "the container lives on");
    daemon.start_again();
    let (status, said) = reap(&daemon, ended.controlled.folder());
    assert_eq!(status, Some(0), "{said}");
    assert_gone(&daemon, &ended);
}

/// FS-17: what tells whose a container is stands on its labels; only what is proven dead and ours is removed.
#[test]
fn labels_decide_what_reap_removes_fs_17() {
    let Some(daemon) = Daemon::start("labels_decide_what_reap_removes_fs_17", false) else { return };
    let (image, registry) = (daemon.image(), tempfile::tempdir().expect("a folder"));
    let own = ProcessIdentity::own().expect("an identity");
    let uid = nix::unistd::geteuid().as_raw();
    let create = |name: &str, uid: u32, start_time: u64| {
        let labels = [
            ("run-token", format!("7-{name}")),
            ("uid", uid.to_string()),
            ("boot-id", own.boot_id.clone()),
            ("pidns", own.pid_namespace.to_string()),
            ("host-pid", own.pid.to_string()),
            ("start-time", start_time.to_string()),
            ("out", registry.path().display().to_string()),
        ];
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("--label=ts-bench.{key}={value}")).collect();
        let words = [&["create", "--name", name][..], &labels.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        let made = daemon.call(&[&words[..], &[&image, "/bin/tokenspeed"]].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    create("dead", uid, own.start_time + 1);
    create("living", uid, own.start_time);
    create("foreign", uid + 1, own.start_time + 1);
    let (status, said) = reap(&daemon, registry.path());
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("removed: container dead") && said.contains("alive: container living"), "{said}");
    assert!(!said.contains("foreign"), "{said}");
    let left = daemon.containers().expect("a list");
    assert_eq!(left.lines().collect::<std::collections::BTreeSet<_>>(), ["foreign", "living"].into());
}

/// FS-04: the process between containerd and the container is killed.
#[test]
fn a_killed_shim_fs_04() {
    let Some(daemon) = Daemon::start("a_killed_shim_fs_04", false) else { return };
    let running = start(&daemon, &json!({}), &hang("measured"), MEASURES);
    let shims = daemon.shims();
    assert_eq!(shims.len(), 1, "{shims:?}");
    kill(Pid::from_raw(shims[0].pid), Signal::SIGKILL).expect("the shim");
    let ended = running.end();
    assert_failed(&ended);
    assert_gone(&daemon, &ended);
}

/// FS-04: an API that hangs for a while costs a trial nothing; one that hangs on a signal costs no more than the
/// signal's budget.
#[test]
fn an_api_that_hangs_fs_04() {
    let Some(daemon) = Daemon::start("an_api_that_hangs_fs_04", false) else { return };
    let slow = json!({ "engine": { "ttft_ms": 500 } });
    let running = start(&daemon, &json!({}), &slow, MEASURES);
    daemon.signal(Signal::SIGSTOP);
    running.until_journal("\"finished\"");
    daemon.signal(Signal::SIGCONT);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_gone(&daemon, &ended);

    let mut running = start(&daemon, &json!({}), &hang("measured"), MEASURES);
    daemon.signal(Signal::SIGSTOP);
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert_eq!(ended.reasons(), ["interrupted", "container_not_removed"], "{}", ended.document);
    daemon.signal(Signal::SIGCONT);
    assert_gone(&daemon, &ended);
}

/// FS-04: an API that hangs to the end: deadline, bounded removal, a document that says so; `reap` finishes the work.
#[test]
fn an_api_that_hangs_for_good_fs_04() {
    if !needs::long() {
        return;
    }
    let Some(daemon) = Daemon::start("an_api_that_hangs_for_good_fs_04", false) else { return };
    let own = json!({ "timeout_sec": 10, "ready_timeout_sec": 5 });
    let running = start(&daemon, &own, &hang("measured"), MEASURES);
    daemon.signal(Signal::SIGSTOP);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_timeout", "{}", ended.document);
    assert!(ended.reasons().contains(&"container_not_removed"), "{}", ended.document);
    daemon.signal(Signal::SIGCONT);
    let (status, said) = reap(&daemon, ended.controlled.folder());
    assert_eq!(status, Some(0), "{said}");
    assert_gone(&daemon, &ended);
}
