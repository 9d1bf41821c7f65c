//! Secrets by name only: a canary in the host's environment turns up nowhere that a trial writes or shows, even where
//! server and bench print their whole environment and die.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tests::controlled::{Controlled, Running};
use tests::needs;

const CANARY: &str = "hf_canary_that_nobody_may_see";

/// Every file below a folder that holds the canary.
fn holders(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            found.extend(holders(&entry.path()));
        } else if kind.is_file() {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// Command lines of all processes that hold the canary, looked at until told to stop.
fn watch_command_lines(stop: &AtomicBool) -> Vec<String> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        seen.extend(tests::processes::all().into_iter().map(|p| p.command).filter(|c| c.contains(CANARY)));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    seen
}

fn start(trial: Controlled) -> Running {
    let mut command = trial.command();
    command.env("HF_TOKEN", CANARY);
    trial.start_as(&mut command)
}

fn search(trial: Controlled) {
    let stop = AtomicBool::new(false);
    let (ended, lines) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_command_lines(&stop));
        let ended = start(trial).end();
        stop.store(true, Ordering::Relaxed);
        (ended, watcher.join().expect("the watcher"))
    });
    assert_eq!(lines, [""; 0], "in a command line");
    assert!(!ended.stdout.contains(CANARY) && !ended.stderr.contains(CANARY), "in the controller's words");
    assert!(!ended.document.to_string().contains(CANARY), "in the document");
    // It was there to be found: the bench's words are quoted, with the name in the place of the value.
    assert!(ended.document.to_string().contains("HF_TOKEN=[HF_TOKEN]"), "{}", ended.document);
    // The children's own log files are what the children wrote, readable by nobody else.
    let own = |name: &String| name.starts_with("bench-server.") || name.starts_with("bench-log.");
    let others: Vec<String> = holders(ended.controlled.folder()).into_iter().filter(|name| !own(name)).collect();
    assert_eq!(others, [""; 0], "in a file");
    for entry in fs::read_dir(ended.controlled.out()).expect("out").flatten() {
        let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().expect("an entry").permissions());
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!own(&name) || mode % 0o100 == 0, "{name} has mode {mode:o}");
    }
    ended.controlled.assert_nothing_left();
}

/// Server and bench say what they were given; the bench fails with it.
fn talkative() -> Value {
    json!({
        "faults": [{ "at": "ready", "do": "print_env" }],
        "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["print_env", { "exit": 3 }] }] },
    })
}

#[test]
fn a_canary_is_seen_nowhere_in_the_process_runtime_fs_76_fs_77() {
    search(Controlled::new(&json!({}), talkative()));
}

#[test]
fn a_canary_is_seen_nowhere_in_docker_fs_76_fs_77() {
    let test = "a_canary_is_seen_nowhere_in_docker_fs_76_fs_77";
    if needs::docker(test) && needs::static_programs(test) {
        search(Controlled::docker(&json!({}), &talkative()));
    }
}
