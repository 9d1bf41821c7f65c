//! Failure scenarios of a whole trial that no other file covers; `docs/failure-scenarios.md` has all of them.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use tests::controlled::Controlled;
use tests::needs;
use tests::patience::until;
use tests::processes::assert_gone;

fn hang() -> Value {
    json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } })
}

fn spam(more: &Value, at: &Value) -> Value {
    let mut what = json!({ "bytes": 100_000_000, "newlines": false });
    what.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
    json!({ "at": at, "do": { "spam": what } })
}

/// Most memory that a process ever held, bytes.
fn peak(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// FS-39: 100 MB of log without a newline cost neither of the two any memory.
#[test]
fn a_hundred_megabytes_without_a_newline_fs_39() {
    let mut script = hang();
    script["faults"] = json!([spam(&json!({}), &json!("loading"))]);
    let mut running = Controlled::new(&json!({}), script).start();
    running.until_journal("\"name\":\"measure\"");
    let controller = running.controller().pid().as_raw();
    let ours: Vec<i32> = running.trial().processes().iter().map(|process| process.pid).collect();
    let agents = tests::processes::all().into_iter().filter(|process| ours.contains(&process.pid));
    let agents: Vec<i32> = agents.filter(|process| process.command.contains("/agent")).map(|p| p.pid).collect();
    assert!(!agents.is_empty());
    for pid in agents.into_iter().chain([controller]) {
        let bytes = peak(pid).expect("a figure");
        assert!(bytes < 64 << 20, "{pid} held {bytes} bytes");
    }
    running.controller().signal(Signal::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    ended.controlled.assert_nothing_left();
}

/// FS-39, FS-40: a server that dies after 5 MB of any bytes: the document is JSON and its tail tells why.
#[test]
fn any_bytes_leave_a_readable_tail_fs_40() {
    let loud = spam(&json!({ "bytes": 5_000_000, "binary": true }), &json!("loading"));
    let dies = json!({ "at": "ready", "do": { "exit": { "code": 7 } } });
    let ended = Controlled::new(&json!({}), json!({ "faults": [loud, dies] })).run();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    // `document` is null where the text is no JSON.
    let detail = &ended.document["failure_details"][0];
    assert_eq!((&detail["reason"], &detail["exit_code"]), (&json!("server_exited_during_startup"), &json!(50)));
    assert!(ended.document.to_string().contains("server_exited_during_startup rc=7"), "{}", ended.document);
    let text = fs::read_to_string(ended.controlled.result()).expect("UTF-8");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "control characters are escaped");
    ended.controlled.assert_nothing_left();
}

/// FS-45: variables that the client's own configuration puts into every container; the loopback stays out of them.
#[test]
fn proxies_of_the_clients_configuration_fs_45() {
    let test = "proxies_of_the_clients_configuration_fs_45";
    if !needs::docker(test) || !needs::static_programs(test) {
        return;
    }
    let script = json!({ "journal": "/ts-out/engine.jsonl" });
    let trial = Controlled::docker(&json!({ "generate_probe": true }), &script);
    let settings = trial.folder().join("docker-config");
    fs::create_dir(&settings).expect("a folder");
    let proxy = "http://127.0.0.1:1";
    let proxies = json!({ "proxies": { "default": {
        "httpProxy": proxy, "httpsProxy": proxy, "allProxy": proxy, "noProxy": "corp.example" } } });
    fs::write(settings.join("config.json"), proxies.to_string()).expect("a file");
    let mut command = trial.command();
    command.env("DOCKER_CONFIG", &settings).env("NO_PROXY", "mine.example");
    let ended = trial.start_as(&mut command).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let journal = fs::read_to_string(ended.controlled.out().join("engine.jsonl")).expect("the engine's journal");
    let starts: Vec<Value> = journal.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let bench = starts.iter().find(|note| note["role"] == "bench" && note["event"] == "start").expect("a bench");
    assert_eq!(bench["env"]["HTTP_PROXY"], json!(proxy), "the client did inject it");
    for name in ["NO_PROXY", "no_proxy"] {
        let hosts = bench["env"][name].as_str().unwrap_or_default().split(',').collect::<Vec<_>>();
        assert!(["mine.example", "127.0.0.1", "localhost", "::1"].iter().all(|host| hosts.contains(host)), "{hosts:?}");
    }
    ended.controlled.assert_nothing_left();
}

/// FS-78: a secret that the config names and the host does not have is a finding, and the trial goes on; one that
/// nobody named is not missed.
#[test]
fn a_named_secret_that_is_not_set_fs_78() {
    for (changes, wanted) in [(json!({ "hf_token_env": "TS_TEST_NO_SUCH_TOKEN" }), true), (json!({}), false)] {
        let trial = Controlled::new(&changes, json!({}));
        let mut command = trial.command();
        command.env_remove("HF_TOKEN");
        let ended = trial.start_as(&mut command).end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let findings = ended.document["trial"]["findings"].to_string();
        assert_eq!(findings.contains("secret_unset"), wanted, "{findings}");
        assert_eq!(findings.contains("TS_TEST_NO_SUCH_TOKEN"), wanted, "{findings}");
    }
}

/// FS-89: a test that fails in the middle of a trial leaves nothing of it.
#[test]
fn a_failing_test_leaves_nothing_fs_89() {
    let seen = std::sync::Mutex::new((String::new(), std::path::PathBuf::new()));
    let failed = std::panic::catch_unwind(|| {
        let mut running = Controlled::new(&json!({ "lease_sec": 0 }), hang()).start();
        running.until_journal("\"name\":\"measure\"");
        assert!(running.trial().processes().len() > 3, "controller, agent, server, bench");
        *seen.lock().expect("a lock") = (running.controller().mark().to_owned(), running.trial().folder().to_owned());
        panic!("on purpose");
    });
    assert!(failed.is_err());
    let (mark, folder) = seen.into_inner().expect("a lock");
    assert_gone(&mark);
    let names = folder.display().to_string();
    let of_the_trial = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(&names)
    };
    until("nothing of the trial", || (!tests::processes::all().iter().any(|p| of_the_trial(p.pid))).then_some(()));
    assert!(!folder.exists());
}
