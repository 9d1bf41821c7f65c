//! How a trial ends: signals in every phase, leases, process trees, PID 1, readers that go away.

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tests::patience::until;
use tests::processes::marked;
use tests::trial::{Setup, Trial};

fn trial(script: Value) -> Setup {
    let program = |path| Path::new(path);
    Setup::new(program(env!("CARGO_BIN_EXE_agent-fast")), program(env!("CARGO_BIN_EXE_tokenspeed")), script)
}

/// Phases, how to reach each, and what is said in it.
fn phases() -> Vec<(&'static str, Setup, &'static str)> {
    let never = || json!({ "control": { "health": { "sequence": [503] } } });
    let no_generation = || json!({ "control": { "health_generate": { "sequence": [503] } } });
    let stall = || json!({ "requests": [{ "every": 1, "do": "stall" }], "engine": { "ttft_ms": 3_600_000 } });
    let hang = |kind: &str| json!({ "bench": { "faults": [{ "on": { "kind": kind }, "before": ["hang"] }] } });
    let silent = json!({ "control": { "server_info": { "status": { "sequence": ["hang"] } } } });
    let rollout = [("TS_ROLLOUT", "1"), ("TS_TEMPERATURE", "1"), ("TS_IGNORE_EOS", "0")];
    let reading_back = rollout.iter().fold(trial(silent), |setup, (name, value)| setup.set(name, value));
    vec![
        ("readiness", trial(never()), "server pid="),
        ("generation", trial(no_generation()).time("generate_window", 60_000), "TS_BENCH_METRIC: server_startup_sec"),
        ("read-back", reading_back.time("read_back_limit", 60_000), "TS_BENCH_OK: health_generate"),
        ("probe", trial(stall()).set("TS_GENERATE_PROBE", "1"), "TS_BENCH_OK: health_generate"),
        ("warmup", trial(hang("warmup")), "warmup step 1/1 -> "),
        ("measured", trial(hang("measured")), "TS_BENCH_STEP_START: 1"),
    ]
}

#[test]
fn server_and_bench_start_with_no_signal_blocked() {
    let ended = trial(json!({})).run();
    let journal = ended.journal();
    for role in ["orchestrator", "bench"] {
        let started = journal.iter().find(|note| note["role"] == role && note["event"] == "start");
        assert_eq!(started.expect(role)["blocked"], json!("0000000000000000"), "{role}");
    }
}

/// FS-26.
#[test]
fn rows_97_98_every_signal_in_every_phase() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        for (phase, setup, said) in phases() {
            let running = setup.start();
            running.until_said(said);
            running.signal(signal);
            let ended = running.end();
            assert_eq!(ended.code, 143, "{signal} in {phase}\n{}", ended.stdout);
            ended.expect(143, &[&format!("received {signal}; aborting bench")]).never("TS_BENCH_RESULT");
        }
    }
}

#[test]
fn fs_37_nothing_is_measured_after_a_signal() {
    // The bench takes a moment to die and leaves a perfect export.
    let late = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": [{ "late_export": 200 }] }] } });
    let running = trial(late).set("TS_BENCH_STEPS", "3").time("bench_kill_soon", 20_000).start();
    let export = running.folder().join("journal.jsonl");
    running.until_said("TS_BENCH_STEP_START: 1");
    until("the bench to be there", || std::fs::read_to_string(&export).ok().filter(|t| t.contains("bench")));
    // The first request tells that the bench is past its start.
    until("the bench's handler", || bench_is_up(&running));
    running.signal(Signal::SIGTERM);
    let ended = running.end();
    ended.expect(143, &[]).never("TS_BENCH_OK: step 1").never("sha256=").never("TS_BENCH_STEP_START: 2");
}

fn bench_is_up(running: &Trial) -> Option<()> {
    let log = running.folder().join("out/bench-log.t1.bench.step1.log");
    std::fs::metadata(log).ok().map(drop)
}

#[test]
fn a_deaf_bench_gets_five_seconds_on_a_signal() {
    let deaf = json!({ "bench": { "faults": [{ "before": ["ignore_sigterm", { "helper": true }, "hang"] }] } });
    let running = trial(deaf).time("bench_kill_soon", 300).time("bench_kill_after", 600_000).start();
    running.until_said("warmup step 1/1");
    running.signal(Signal::SIGTERM);
    running.end().expect(143, &["server exited cleanly on SIGTERM"]);
}

#[test]
fn row_99_fs_29_the_group_outlives_its_leader() {
    let leaves = json!({ "faults": [{ "at": "ready", "do": { "exit": { "code": 1, "leave_children": true } } }] });
    trial(leaves).run().expect(50, &["rc=1", "tearing down server pgid", "server exited cleanly on SIGTERM"]);
}

#[test]
fn row_100_fs_34_a_deaf_server_is_killed_after_the_grace() {
    let started = std::time::Instant::now();
    let ended = trial(json!({ "deaf": { "leader": true, "children": true } })).set("TS_TEARDOWN_GRACE", "20").run();
    ended.expect(0, &["server ignored SIGTERM after 20s; sending SIGKILL", "finding server_ignored_term"]);
    assert!(started.elapsed() >= Duration::from_secs(1), "twenty short seconds of grace");
}

#[test]
fn fs_31_a_stopped_group_ends_by_term() {
    let stops = json!({ "faults": [{ "at": { "step": { "kind": "measured", "step": 1 } }, "do": "stop_group" }] });
    let running = trial(stops).set("TS_TEARDOWN_GRACE", "1000").start();
    running.until_said("TS_BENCH_STEP_START: 1");
    running.signal(Signal::SIGTERM);
    running.end().expect(143, &["server exited cleanly on SIGTERM"]);
}

#[test]
fn fs_30_35_whoever_left_the_group_is_found() {
    let spawn = |more: &Value| {
        let mut what = json!({ "count": 2, "session": "own_session" });
        what.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        json!({ "faults": [{ "at": "ready", "do": { "spawn": what } }] })
    };
    for more in [json!({}), json!({ "orphan": true }), json!({ "deaf": true }), json!({ "orphan": true, "deaf": true })]
    {
        let ended = trial(spawn(&more)).run();
        ended.expect(0, &["finding process_survivors"]);
    }
    // Its engine dies and hides a worker that left the group.
    let crash = json!({ "engine": { "ttft_ms": 1000 }, "faults": [
        { "at": { "health": 1 }, "do": { "spawn": { "session": "own_session", "orphan": true, "deaf": true } } },
        { "at": { "step": { "kind": "measured", "step": 1 } }, "do": { "child_exit": { "child": "engine", "signal": 9 } } },
    ]});
    // The gateway serves its streams to their end; the second step finds nobody.
    trial(crash).set("TS_BENCH_STEPS", "2").run().expect(53, &["finding process_survivors"]);
}

#[test]
fn an_ordinary_trial_has_no_survivors() {
    trial(json!({})).run().expect(0, &[]).never("process_survivors");
}

/// PID 1 of a namespace of its own.
const AS_INIT: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

#[test]
fn rows_101_fs_28_pid_1_reaps_and_sweeps() {
    if !tests::needs::root("rows_101_fs_28_pid_1_reaps_and_sweeps") {
        return;
    }
    let storm = json!({ "faults": [
        { "at": { "step": { "kind": "measured", "step": 1 } }, "do": { "fork_storm": 200 } },
        { "at": { "step": { "kind": "measured", "step": 2 } }, "do": { "zombies": 5 } },
    ]});
    let ended = trial(storm).under(AS_INIT).set("TS_BENCH_STEPS", "2").run();
    ended.expect(0, &["server exited cleanly on SIGTERM"]).never("sending SIGKILL");
    let strangers = json!({ "faults": [{ "at": "ready", "do": { "spawn": {
        "count": 2, "session": "own_session", "orphan": true, "deaf": true } } }] });
    trial(strangers).under(AS_INIT).run().expect(0, &["finding process_survivors"]);
}

/// FS-30.
#[test]
fn pid_1_sweeps_without_a_proc_of_its_own() {
    if !tests::needs::root("pid_1_sweeps_without_a_proc_of_its_own") {
        return;
    }
    // The /proc of the outer namespace: its numbers mean other processes.
    let strangers = json!({ "faults": [{ "at": "ready", "do": { "spawn": {
        "count": 2, "session": "own_session", "orphan": true, "deaf": true } } }] });
    trial(strangers)
        .under(&["unshare", "--pid", "--fork"])
        .run()
        .expect(0, &["finding process_survivors: processes that cannot be seen", "TS_BENCH_RESULT: pass"]);
}

#[test]
fn fs_26_27_pid_1_hears_signals_from_its_first_moment() {
    if !tests::needs::root("fs_26_27_pid_1_hears_signals_from_its_first_moment") {
        return;
    }
    for wait in ["", "server pid=", "TS_BENCH_STEP_START: 1"] {
        let hang = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
        let running = trial(hang).under(&AS_INIT[..4]).start();
        let mark = running.mark().to_owned();
        let init = until("PID 1", || {
            marked(&mark).into_iter().find(|p| p.command.contains("agent-fast") && !p.command.contains("unshare"))
        });
        running.until_said(wait);
        let _ = kill(Pid::from_raw(init.pid), Signal::SIGTERM);
        running.end().expect(143, &[]).never("TS_BENCH_RESULT").never("TS_BENCH_OK: step");
    }
}

/// FS-24.
#[test]
fn the_lease_ends_an_orphaned_trial_with_61() {
    let hang = || json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
    for held in [true, false] {
        let setup = trial(hang()).set("TS_LEASE_SEC", "40");
        let out = setup.folder().join("out");
        std::fs::create_dir(&out).expect("out");
        let file = std::fs::File::create(out.join("lease.t1")).expect("lease");
        let lock = held.then(|| Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).expect("lock"));
        let running = setup.start();
        if held {
            running.until_said("TS_BENCH_STEP_START: 1");
        }
        drop(lock);
        let why = if held { "its holder is gone" } else { "not visible" };
        running.end().expect(61, &["controller_lost", why]);
    }
    let kept = trial(json!({})).set("TS_LEASE_SEC", "1");
    let out = kept.folder().join("out");
    std::fs::create_dir(&out).expect("out");
    let file = std::fs::File::create(out.join("lease.t1")).expect("lease");
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).expect("lock");
    kept.run().expect(0, &[]).never("lease_off");
    drop(lock);
}

/// FS-30.
#[test]
fn the_pair_ends_what_a_killed_agent_leaves() {
    let hang = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] },
        "faults": [{ "at": "ready", "do": { "spawn": { "session": "own_session", "orphan": true, "deaf": true } } }] });
    let running = trial(hang).set("TS_TEARDOWN_GRACE", "20").start();
    running.until_said("TS_BENCH_STEP_START: 1");
    let first = running.pid();
    let child = marked(running.mark()).into_iter().find(|p| p.ppid == first && p.command.contains("agent-fast"));
    let _ = kill(Pid::from_raw(child.expect("the pair's child").pid), Signal::SIGKILL);
    // `end` asserts that nothing is left.
    running.end().expect(137, &[]);
}

/// FS-32.
#[test]
fn a_killed_parent_of_the_pair_is_an_ordered_end() {
    let hang = json!({ "bench": { "faults": [{ "on": { "kind": "measured" }, "before": ["hang"] }] } });
    let running = trial(hang).start();
    running.until_said("TS_BENCH_STEP_START: 1");
    running.signal(Signal::SIGKILL);
    let ended = running.end();
    ended.expect(137, &["received SIGTERM; aborting bench", "server exited cleanly on SIGTERM"]);
}

/// FS-41.
#[test]
fn a_closed_stdout_changes_nothing() {
    let ended = trial(json!({})).under(&["sh", "-c", "\"$0\" | head -c 1 >/dev/null; exit 0"]).run();
    ended.expect(0, &[]);
    let markers = std::fs::read(ended.out("markers.t1.log")).expect("markers");
    assert_eq!(proto::marker::Markers::parse(&markers).result, Some(proto::marker::Outcome::Pass));
}

/// FS-77.
#[test]
fn fs_43_children_see_an_end_of_input_and_no_secret() {
    let ended = trial(json!({})).set("TS_GRPC_TOKEN", "canary-of-mine").run();
    ended.expect(0, &[]);
    let journal = std::fs::read_to_string(ended.folder.path().join("journal.jsonl")).expect("a journal");
    assert!(!journal.contains("canary-of-mine") && !ended.stdout.contains("canary-of-mine"));
    for role in ["orchestrator", "bench"] {
        let started = ended.journal().into_iter().find(|note| note["role"] == role && note["event"] == "start");
        assert_eq!(started.expect(role)["stdin"], json!("/dev/null"), "{role}");
    }
    for entry in walk(&ended.folder.path().join("out")) {
        assert!(
            !String::from_utf8_lossy(&std::fs::read(&entry).expect("a file")).contains("canary-of-mine"),
            "{entry:?}"
        );
    }
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).filter(|p| p.is_file()).collect()
}
