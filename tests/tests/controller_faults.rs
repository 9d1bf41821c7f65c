//! What a container client and its daemon do wrong, on a client of our own: conflicts, late creations, refusals.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::controlled::{Controlled, Running};
use tests::needs;
use tests::patience::until;

/// A trial on the client of this package; `None` where its agent could not be staged.
fn trial(test: &str, changes: &Value, script: &Value, engine: Value) -> Option<Controlled> {
    // The agent is staged before the client is called, and only a static one is.
    if !needs::static_programs(test) {
        return None;
    }
    let client = env!("CARGO_BIN_EXE_fake-docker");
    let mut own = json!({ "runtime": "docker", "image": "img:1", "container_cli": client });
    for (key, value) in changes.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    let trial = Controlled::new(&own, engine);
    fs::write(trial.folder().join("script.json"), script.to_string()).expect("script");
    Some(trial)
}

fn command(trial: &Controlled) -> Command {
    let mut command = trial.command();
    command.env("FAKE_DOCKER_DIR", trial.folder());
    command
}

fn start_with(test: &str, changes: &Value, script: &Value, engine: Value) -> Option<Running> {
    let trial = trial(test, changes, script, engine)?;
    let mut command = command(&trial);
    Some(trial.start_as(&mut command))
}

fn start(test: &str, script: &Value) -> Option<Running> {
    start_with(test, &json!({}), script, json!({}))
}

/// What the client noted: its calls, and the signals that it got.
fn notes(trial: &Controlled) -> Vec<Value> {
    let text = fs::read_to_string(trial.folder().join("calls.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Calls of one sub-command.
fn calls_of(trial: &Controlled, sub: &str) -> Vec<Value> {
    notes(trial).into_iter().filter(|note| note["args"][0] == sub).collect()
}

/// Signals that the client got.
fn signals(trial: &Controlled) -> Vec<String> {
    notes(trial).iter().filter_map(|note| note["signal"].as_str().map(str::to_owned)).collect()
}

/// First words of the calls so far.
fn calls(trial: &Controlled) -> Vec<String> {
    notes(trial).iter().filter_map(|note| note["args"][0].as_str().map(str::to_owned)).collect()
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

/// FS-01.
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

/// FS-01: a status that the agent cannot have given is the trial's once the agent has been heard.
#[test]
fn a_status_after_the_agent_spoke_is_no_failed_start_fs_01() {
    for code in [125, 127] {
        let test = "a_status_after_the_agent_spoke_is_no_failed_start_fs_01";
        let Some(running) = start(test, &json!({ "run": { "agent": true, "exit": code } })) else { return };
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(1), "{code}: {}", ended.stderr);
        assert_eq!(ended.reasons()[0], "container_failed", "{code}: {}", ended.document);
        assert_eq!(ended.document["failure_details"][0]["exit_code"], json!(code));
        assert_eq!(ended.document["executed_iterations"], json!(2), "the steps are there all the same");
        assert_eq!(containers(&ended.controlled), 0);
        ended.controlled.assert_nothing_left();
    }
}

/// FS-03: the container is gone, its client goes on and is deaf; the agent's verdict stands.
#[test]
fn a_client_that_outlives_its_container_is_ended_fs_03() {
    let script = json!({ "run": { "agent": true, "outlives": true, "deaf": true } });
    let Some(running) = start("a_client_that_outlives_its_container_is_ended_fs_03", &script) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.document["trial"]["agent_verdict"]["reason"], json!("pass"));
    assert_eq!(signals(&ended.controlled), ["SIGTERM"]);
    ended.controlled.assert_nothing_left();
}

/// FS-08: the container dies without a word and its client says nothing: a lost stream makes the controller ask, long
/// before the deadline.
#[test]
fn a_lost_stream_and_a_silent_client_end_the_trial_fs_08() {
    let engine = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
    let script = json!({ "run": { "agent": true, "outlives": true } });
    let test = "a_lost_stream_and_a_silent_client_end_the_trial_fs_08";
    let Some(running) = start_with(test, &json!({}), &script, engine) else { return };
    running.until_journal("\"name\":\"measure\"");
    let agent: i32 =
        fs::read_to_string(running.trial().folder().join("pid")).expect("a pid").parse().expect("a number");
    let started = Instant::now();
    for process in tests::processes::all().iter().filter(|process| process.pid == agent || process.ppid == agent) {
        kill(Pid::from_raw(process.pid), Signal::SIGKILL).expect("the agent");
    }
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.reasons()[0], "container_failed", "{}", ended.document);
    assert!(started.elapsed() < Duration::from_mins(2), "it waited for the deadline");
    ended.controlled.assert_nothing_left();
}

/// FS-13: a client that ignores SIGTERM is killed, and reaped before the first removal.
#[test]
fn a_deaf_client_is_reaped_before_the_removal_fs_13() {
    let script = json!({ "run": { "container": "stays", "deaf": true } });
    let Some(mut running) = start("a_deaf_client_is_reaped_before_the_removal_fs_13", &script) else { return };
    until("the container", || (containers(running.trial()) == 1).then_some(()));
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert_eq!(signals(&ended.controlled), ["SIGTERM"]);
    let removals = calls_of(&ended.controlled, "rm");
    assert!(
        !removals.is_empty() && removals.iter().all(|call| call["client_is_there"] == json!(false)),
        "{removals:?}"
    );
    assert_eq!(containers(&ended.controlled), 0);
    ended.controlled.assert_nothing_left();
}

/// FS-19: a signal in the moment of the spawn; the container comes at once, or when its client is gone.
#[test]
fn a_signal_during_the_spawn_leaves_nothing_fs_19() {
    let test = "a_signal_during_the_spawn_leaves_nothing_fs_19";
    for n in 0..if needs::long() { 100 } else { 4 } {
        let late = json!({ "container": "late", "late_ms": 200, "signal_parent": true });
        let at_once = json!({ "container": "stays", "signal_parent": true });
        let Some(running) = start(test, &json!({ "run": if n % 2 == 0 { late } else { at_once } })) else { return };
        let ended = running.end();
        assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{n}: {}", ended.stderr);
        assert_eq!(ended.reasons()[0], "interrupted", "{n}: {}", ended.document);
        until("no container", || (containers(&ended.controlled) == 0).then_some(()));
        ended.controlled.assert_nothing_left();
    }
}

/// FS-20: removal hangs; the second signal shortens nothing that matters and prolongs nothing.
#[test]
fn a_second_signal_in_a_removal_that_hangs_fs_20() {
    let script = json!({ "run": { "container": "stays" }, "rm": { "hang": true } });
    let Some(mut running) = start("a_second_signal_in_a_removal_that_hangs_fs_20", &script) else { return };
    until("the container", || (containers(running.trial()) == 1).then_some(()));
    let controller = running.controller().pid().as_raw();
    running.controller().signal(Signal::SIGTERM);
    until("the removal", || (!calls_of(running.trial(), "rm").is_empty()).then_some(()));
    running.controller().signal(Signal::SIGINT);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "the first one: {}", ended.stderr);
    assert_eq!(ended.reasons(), ["interrupted", "container_not_removed"], "{}", ended.document);
    let own = calls_of(&ended.controlled, "rm").into_iter().filter(|call| call["parent"] == json!(controller)).count();
    assert_eq!(own, 1, "one removal by the controller itself, the helper's beside it");
    assert!(ended.document["trial"]["reaper"]["pid"].is_u64());
}

/// FS-23: ^C in a terminal reaches the controller alone; the client gets what the controller decides.
#[test]
fn an_interrupt_from_the_terminal_reaches_the_controller_alone_fs_23() {
    let test = "an_interrupt_from_the_terminal_reaches_the_controller_alone_fs_23";
    if Command::new("script").arg("--version").output().is_err() {
        needs::skip(test, "no script(1)");
        return;
    }
    let script = json!({ "run": { "container": "stays", "deaf": true } });
    let Some(trial) = trial(test, &json!({}), &script, json!({})) else { return };
    let inner = command(&trial);
    let keys = trial.folder().join("keys");
    nix::unistd::mkfifo(&keys, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let mut words = vec![inner.get_program().to_string_lossy().into_owned()];
    words.extend(inner.get_args().map(|word| word.to_string_lossy().into_owned()));
    let mut terminal = Command::new("sh");
    terminal.args(["-c", "exec script -qec \"$1\" /dev/null <\"$2\"", "sh"]);
    terminal.arg(words.join(" ")).arg(&keys).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    terminal.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let running = trial.start_as(&mut terminal);
    let mut keyboard = fs::OpenOptions::new().read(true).write(true).open(&keys).expect("the keyboard");
    until("the container", || (containers(running.trial()) == 1).then_some(()));
    std::io::Write::write_all(&mut keyboard, b"\x03").expect("^C");
    let ended = running.end();
    assert_eq!(ended.reasons(), ["interrupted"], "{}", ended.document);
    assert_eq!(ended.document["failure_details"][0]["signal"], json!("SIGINT"));
    assert_eq!(signals(&ended.controlled), ["SIGTERM"], "the controller's own, and no SIGINT");
    drop(keyboard);
    ended.controlled.assert_nothing_left();
}

/// FS-25: whatever is given up ends: here a pull, in the hands of a controller that has to die.
#[test]
fn a_pull_ends_with_its_controller_fs_25() {
    let script = json!({ "image": { "exit": 1 }, "pull": { "hang": true } });
    let own = json!({ "pull": "missing" });
    let Some(mut running) = start_with("a_pull_ends_with_its_controller_fs_25", &own, &script, json!({})) else {
        return;
    };
    let pull = until("the pull", || calls_of(running.trial(), "pull").first()?["pid"].as_i64());
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    let pull = nix::unistd::Pid::from_raw(i32::try_from(pull).expect("a pid"));
    until("the pull's end", || (kill(pull, None).is_err() || is_zombie(pull)).then_some(()));
    ended.controlled.assert_nothing_left();
}

fn is_zombie(pid: Pid) -> bool {
    tests::processes::all().iter().any(|process| process.pid == pid.as_raw() && process.state == 'Z')
}

/// FS-41: what the client loses of the container's words changes neither verdict nor figures.
#[test]
fn a_client_that_loses_the_last_words_changes_nothing_fs_41() {
    let script = json!({ "run": { "agent": true, "cut_stdout": 10_240 } });
    let Some(running) = start("a_client_that_loses_the_last_words_changes_nothing_fs_41", &script) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.document["metrics"]["completed_total"], json!(16));
    assert_eq!(ended.document["trial"]["agent_verdict"], json!({ "reason": "pass", "exit_code": 0 }));
    assert!(fs::metadata(ended.controlled.folder().join("stdout")).is_ok_and(|data| data.len() > 0));
    ended.controlled.assert_nothing_left();
}

/// FS-43, FS-90: every call of the client gets an empty stdin and three descriptors, whatever the controller has open.
#[test]
fn calls_get_three_descriptors_and_no_input_fs_43_fs_90() {
    let test = "calls_get_three_descriptors_and_no_input_fs_43_fs_90";
    let Some(running) = start(test, &json!({ "run": { "agent": true } })) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let calls: Vec<Value> = notes(&ended.controlled).into_iter().filter(|note| note["args"][0] != "shim").collect();
    assert!(calls.iter().any(|call| call["args"][0] == "run") && calls.len() > 4, "{calls:?}");
    for call in calls.iter().filter(|call| call["signal"].is_null()) {
        assert_eq!(call["fds"], json!([0, 1, 2]), "{call}");
        assert_eq!(call["stdin"], json!("/dev/null"), "{call}");
    }
}

/// FS-58: a client that exits ends the waiting for its agent; an agent that comes late is waited for.
#[test]
fn an_agent_that_comes_late_or_never_fs_58() {
    let test = "an_agent_that_comes_late_or_never_fs_58";
    let never = json!({ "run": { "delay_ms": 1000, "exit": 127, "stderr": "exec format error" } });
    let Some(running) = start(test, &never) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(69), "{}", ended.stderr);
    assert_eq!(ended.document["error"]["key"], json!("agent_path"));
    ended.controlled.assert_nothing_left();

    let late = json!({ "run": { "agent": true, "agent_delay_ms": 8000 } });
    let Some(running) = start(test, &late) else { return };
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.document["trial"]["phases"]["ready_ms"].is_f64());
    ended.controlled.assert_nothing_left();
}
