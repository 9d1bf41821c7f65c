//! `controller sweep` in the process runtime on the stand-in engine: files, refusals, signals, kills and resumes.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::Duration;
use tests::controlled::image;
use tests::patience::until;
use tests::sweeping::{Sweeping, Swept};
use tests::{needs, programs};

/// Every path below a folder.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(tree(&entry.path()));
        }
    }
    found.sort();
    found
}

/// Every path below a sweep's folder but its recipe, which the test writes.
fn touched(sweep: &Sweeping) -> Vec<String> {
    tree(sweep.folder()).into_iter().filter(|path| !path.ends_with("recipe.json")).collect()
}

/// A matrix without what may differ between two sound runs: times, figures, and whether a cell was resumed.
fn shape(matrix: &Value) -> Value {
    let mut matrix = matrix.clone();
    matrix["run_timestamp"] = Value::Null;
    for cell in matrix["cells"].as_array_mut().into_iter().flatten() {
        let keys: Vec<String> = cell.as_object().into_iter().flat_map(|cell| cell.keys().cloned()).collect();
        for key in keys.iter().filter(|key| {
            key.contains("time_ms") || *key == "step_times_ms" || key.contains("wall_clock") || *key == "resumed"
        }) {
            cell[key] = Value::Null;
        }
        let names: Vec<String> =
            cell["metrics_summary"].as_object().into_iter().flat_map(|m| m.keys().cloned()).collect();
        cell["metrics_summary"] = names
            .into_iter()
            .map(|name| {
                let n = cell["metrics_summary"][&name]["n"].clone();
                (name, n)
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        cell["confound"] = Value::Null;
        cell["step_time_ratio"] = Value::Null;
    }
    // Groups among a handful of very short steps come and go.
    matrix["warnings"] = json!([]);
    matrix
}

#[test]
fn cells_times_trials_give_the_matrix() {
    let sweep = Sweeping::new();
    let swept = sweep.run(&[]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    assert_eq!(swept.stdout, "");
    let matrix = sweep.json("matrix.json");
    let cells = matrix["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for cell in cells {
        assert_eq!((&cell["trials"], &cell["passed_count"]), (&json!(2), &json!(2)));
        assert_eq!(cell["metrics_summary"]["completed_total"]["mean"], json!(8.0));
        assert_eq!(cell["step_times_ms"].as_array().map(Vec::len), Some(4));
        assert_eq!((&cell["iters_display"], &cell["resumed"]), (&json!("2/2"), &json!(false)));
        for path in cell["trial_paths"].as_array().expect("paths") {
            let document: Value =
                serde_json::from_slice(&fs::read(path.as_str().expect("path")).expect("file")).expect("JSON");
            assert_eq!(document["exit_status"], json!("ok"));
            assert_eq!(document["config"]["_aorta_trial_env"], cell["resolved_env_vars"]);
        }
    }
    assert_eq!(matrix["baseline_cell"], json!("baseline-a"));
    assert_eq!(cells[1]["resolved_env_vars"], json!({"HSA_ENABLE_SDMA": "0"}));
    for (file, part) in [
        ("matrix.md", "| baseline-a | none        | local       | max_concurrency=2 | 0%           | 0 / 2    | 2/2"),
        ("perf.md", "## Workload metrics (mean across trials)"),
        ("report.html", "<svg"),
        ("recipe.resolved.yaml", "\"schema_version\": 1"),
    ] {
        assert!(sweep.text(file).contains(part), "{file}: {}", sweep.text(file));
    }
    assert_eq!(sweep.ended(), ["baseline-a:0 ok", "baseline-a:1 ok", "b:0 ok", "b:1 ok"]);
    assert!(swept.stderr.contains("2 cells: 2 passed, 0 failed, 0 with errors"), "{}", swept.stderr);
    assert!(swept.stderr.contains("left about"), "{}", swept.stderr);
    sweep.assert_nothing_left();
    // The record is one that `baseline` takes.
    let plan = std::process::Command::new(programs::controller())
        .args(["baseline", "bless", "--plan", "--nights", "1", "--include-manual", "--from"])
        .arg(sweep.out())
        .arg("--baseline")
        .arg(sweep.folder().join("none.json"))
        .output()
        .expect("baseline");
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(
        plan.status.success() && text.contains("median_ttft_ms"),
        "{text}{}",
        String::from_utf8_lossy(&plan.stderr)
    );
}

#[test]
fn a_failing_cell_fails_the_sweep_and_not_the_others() {
    let mut sweep = Sweeping::new();
    let cut = json!({"requests": [{"every": 3, "do": "cut", "on": {"kind": "measured"}}]});
    sweep.recipe["trials"] = json!(1);
    sweep.recipe["cells"][0]["extra_env"] = json!({"FAKE_TS_SCRIPT": cut.to_string()});
    let swept = sweep.run(&[]);
    assert_eq!(swept.status.code(), Some(1), "{}", swept.stderr);
    let matrix = sweep.json("matrix.json");
    let (failing, sound) = (&matrix["cells"][0], &matrix["cells"][1]);
    assert_eq!((&failing["failed_count"], &failing["failure_rate"]), (&json!(1), &json!(1.0)));
    assert_eq!((&sound["passed_count"], &sound["failed_count"]), (&json!(1), &json!(0)));
    assert_eq!(failing["metrics_summary"], json!({}));
    assert!(failing["failure_hints"][0][0].is_string());
    assert!(sweep.text("matrix.md").contains("## Failure hints"));
    assert!(swept.stderr.contains("[fail] baseline-a: 1 failed of 1 trials"), "{}", swept.stderr);
    // What it said stays where it failed, and goes where it passed.
    assert!(sweep.out().join("cells/baseline-a/ts_bench/trial_d0_m0_t0.subprocess.stderr.log").exists());
    assert!(!sweep.out().join("cells/b/ts_bench/trial_d0_m0_t0.subprocess.stderr.log").exists());
    sweep.assert_nothing_left();
}

#[test]
fn what_cannot_run_is_refused_before_anything_starts() {
    let mut bad = Sweeping::new();
    bad.recipe["cells"][1]["workload_config"] = json!({"num_prompts": 0});
    let mut sharp = Sweeping::new();
    sharp.recipe["cells"][1]["retries"] = json!(3);
    let mut missing = Sweeping::new();
    missing.recipe["workload_config"]["agent_path"] = json!("/nonexistent/agent");
    let good = Sweeping::new();
    for (sweep, args, code, parts) in [
        (&bad, &[][..], 64, &["cell b: ", "num_prompts", "nothing is started"][..]),
        (&sharp, &[], 64, &["cells[1].retries is not supported"]),
        (&missing, &[], 69, &["/nonexistent/agent", "agent_path"]),
        (&good, &["--cell", "zzzzzz"], 64, &["--cell zzzzzz", "baseline-a, b"]),
        (&good, &["--executor", "slurm"], 64, &["--executor slurm"]),
        (&good, &["--trials", "0"], 64, &["--trials"]),
    ] {
        let before = touched(sweep);
        let swept = sweep.run(args);
        assert_eq!(swept.status.code(), Some(code), "{args:?}: {}", swept.stderr);
        for part in parts {
            assert!(swept.stderr.contains(part), "{part}: {}", swept.stderr);
        }
        let after = touched(sweep);
        assert_eq!(before, after, "{args:?}");
    }
    // A cell that is not asked for is in nobody's way.
    let swept = bad.run(&["--cell", "baseline-a", "--trials", "1"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    assert!(bad.text("matrix.md").contains("incomplete: 1 of"), "{}", bad.text("matrix.md"));
}

#[test]
fn a_dry_run_shows_everything_and_touches_nothing() {
    let mut sweep = Sweeping::new();
    let before = touched(&sweep);
    let swept = sweep.run(&["--dry-run"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    for part in
        ["baseline-a", "hsa_no_sdma", "4 x random 16 in, 4 out, 4 in flight", "4 trials with 8 steps", "no problems"]
    {
        assert!(swept.stdout.contains(part), "{part}: {}", swept.stdout);
    }
    sweep.recipe["cells"][0]["workload_config"] = json!({"output_len": "many"});
    let swept = sweep.run(&["--dry-run"]);
    assert_eq!(swept.status.code(), Some(64), "{}", swept.stdout);
    assert!(swept.stdout.contains("problem in baseline-a") && swept.stdout.contains("output_len"), "{}", swept.stdout);
    let after = touched(&sweep);
    assert_eq!(before, after);
}

#[test]
fn signals_end_the_trial_and_the_sweep_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut sweep = Sweeping::new();
        sweep.recipe["trials"] = json!(1);
        let hang = json!({"bench": {"faults": [{"on": {"kind": "measured"}, "before": ["hang"]}]}});
        sweep.recipe["cells"][1]["extra_env"] = json!({"FAKE_TS_SCRIPT": sweep.folder().join("b.json")});
        fs::write(sweep.folder().join("b.json"), hang.to_string()).expect("script");
        let mut process = sweep.start(&[]);
        until("the second trial to measure", || (sweep.measuring() == 2).then_some(()));
        process.signal(signal);
        let swept = Swept::of(&mut process);
        assert_eq!(swept.status.signal(), Some(signal as i32), "{signal}: {}", swept.stderr);
        sweep.assert_nothing_left();
        let matrix = sweep.json("matrix.json");
        assert_eq!(matrix["cells"].as_array().map(Vec::len), Some(1), "{matrix}");
        let warning = matrix["warnings"][0].as_str().unwrap_or("").to_owned();
        assert!(warning.contains("1 of 2") && warning.contains(signal.as_str()), "{warning}");
        assert_eq!(sweep.json("manifest.json")["sessions"][0]["end"], json!(signal.as_str()));
        assert_eq!(sweep.ended(), ["baseline-a:0 ok"]);
        fs::write(sweep.folder().join("b.json"), "{}").expect("script");
        let swept = sweep.run(&["--resume"]);
        assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
        assert_eq!(sweep.ended(), ["baseline-a:0 ok", "b:0 ok"]);
        assert!(swept.stderr.contains("1 resumed, 1 run"), "{}", swept.stderr);
        let matrix = sweep.json("matrix.json");
        assert_eq!((&matrix["cells"][0]["resumed"], &matrix["cells"][1]["resumed"]), (&json!(true), &json!(false)));
        assert!(!sweep.text("matrix.md").contains("incomplete"));
    }
}

#[test]
fn a_killed_sweep_resumes_without_repeating_or_losing_a_trial() {
    let whole = Sweeping::new();
    assert_eq!(whole.run(&[]).status.code(), Some(0));
    let expected = shape(&whole.json("matrix.json"));
    let sweep = Sweeping::new();
    // Instants all over a trial's life: before the first, while its server starts, in steps, between trials.
    let mut delays = [10, 60, 150, 400, 900, 1500].into_iter().cycle();
    let mut kills: u32 = 0;
    let status = loop {
        let mut process = sweep.start(&["--resume"]);
        // From the tenth kill on it is left alone: progress between kills is only likely, not certain.
        if kills < 10 {
            std::thread::sleep(Duration::from_millis(delays.next().unwrap_or(10)));
            if process.ended().is_none() {
                process.signal(Signal::SIGKILL);
                kills += 1;
                process.wait();
                continue;
            }
        }
        let swept = Swept::of(&mut process);
        break (swept.status.code(), swept.stderr);
    };
    assert_eq!(status.0, Some(0), "{}", status.1);
    assert!(kills > 0);
    let mut matrix = shape(&sweep.json("matrix.json"));
    for (cell, expected) in
        matrix["cells"].as_array_mut().expect("cells").iter_mut().zip(expected["cells"].as_array().expect("cells"))
    {
        cell["trial_paths"] = expected["trial_paths"].clone();
        cell["workload_config"]["work_dir"] = expected["workload_config"]["work_dir"].clone();
    }
    matrix["recipe_source"] = expected["recipe_source"].clone();
    assert_eq!(matrix, expected);
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for name in sweep.ended() {
        *times.entry(name).or_default() += 1;
    }
    assert_eq!(
        times.into_iter().collect::<Vec<_>>(),
        [
            ("b:0 ok".to_owned(), 1),
            ("b:1 ok".to_owned(), 1),
            ("baseline-a:0 ok".to_owned(), 1),
            ("baseline-a:1 ok".to_owned(), 1)
        ]
    );
    sweep.assert_nothing_left();
    let halves: Vec<String> = tree(&sweep.out()).into_iter().filter(|path| path.contains(".tmp")).collect();
    assert_eq!(halves, [""; 0]);
}

/// The same in containers, which no signal to a process group reaches.
#[test]
fn a_killed_sweep_leaves_no_container() {
    let test = "a_killed_sweep_leaves_no_container";
    if !needs::docker(test) || !needs::static_programs(test) {
        return;
    }
    let mut sweep = Sweeping::new();
    sweep.recipe["trials"] = json!(1);
    sweep.recipe["cells"].as_array_mut().expect("cells").truncate(1);
    for (key, value) in [("runtime", json!("docker")), ("pull", json!("never")), ("require_gpu", json!(false))] {
        sweep.recipe["workload_config"][key] = value;
    }
    sweep.recipe["cells"][0]["environment"] = json!({"docker": image()});
    // Slow enough to be met while it measures.
    let slow = json!({"engine": {"ttft_ms": 1500}});
    sweep.recipe["cells"][0]["extra_env"] = json!({"FAKE_TS_SCRIPT": slow.to_string()});
    let mut process = sweep.start(&[]);
    until("the trial to measure", || {
        assert_eq!(process.ended(), None, "the sweep ended before it was killed");
        (sweep.measuring() == 1).then_some(())
    });
    assert!(sweep.containers().contains("running"), "{}", sweep.containers());
    process.signal(Signal::SIGKILL);
    process.wait();
    until("the container to be gone", || sweep.containers().is_empty().then_some(()));
    let swept = sweep.run(&["--resume"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    assert_eq!(sweep.ended(), ["baseline-a:0 ok"]);
    assert_eq!(sweep.containers(), "");
}

/// A trial that came to its end while nobody was there to file it counts, and is not run again.
#[test]
fn an_orphaned_result_is_taken_over() {
    let mut sweep = Sweeping::new();
    sweep.recipe["trials"] = json!(1);
    assert_eq!(sweep.run(&["--cell", "b"]).status.code(), Some(0));
    let filed = sweep.out().join("cells/b/ts_bench/trial_d0_m0_t0.json");
    let before: Value = serde_json::from_slice(&fs::read(&filed).expect("a trial")).expect("JSON");
    fs::remove_file(&filed).expect("the trial's document");
    let mut manifest = sweep.json("manifest.json");
    manifest["attempts"][0]["end"] = Value::Null;
    fs::write(sweep.out().join("manifest.json"), manifest.to_string()).expect("manifest");
    let swept = sweep.run(&["--resume", "--cell", "b"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    let after: Value = serde_json::from_slice(&fs::read(&filed).expect("a trial")).expect("JSON");
    assert_eq!(before["result"], after["result"]);
    assert_eq!(before["request_fingerprint"], after["request_fingerprint"]);
    let (was, is) = (before["wall_clock_sec"].as_f64().unwrap_or(0.0), after["wall_clock_sec"].as_f64().unwrap_or(0.0));
    assert!((was - is).abs() < 2.0, "{was} {is}");
    assert_eq!(sweep.json("manifest.json")["attempts"].as_array().map(Vec::len), Some(1), "nothing ran");
}

/// D-01: trials count by index, not by number; surplus ones are left alone.
#[test]
fn trials_count_by_index() {
    let mut sweep = Sweeping::new();
    sweep.recipe["cells"].as_array_mut().expect("cells").truncate(1);
    let swept = sweep.run(&["--trials", "3"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    let place = |index: u32| sweep.out().join(format!("cells/baseline-a/ts_bench/trial_d0_m0_t{index}.json"));
    fs::remove_file(place(1)).expect("trial 1");
    let kept = [fs::read(place(0)).expect("trial 0"), fs::read(place(2)).expect("trial 2")];
    let swept = sweep.run(&["--trials", "2", "--resume"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    let cell = &sweep.json("matrix.json")["cells"][0];
    assert_eq!((&cell["trials"], &cell["resumed"]), (&json!(2), &json!(false)));
    assert_eq!(kept, [fs::read(place(0)).expect("trial 0"), fs::read(place(2)).expect("trial 2")]);
    assert_eq!(sweep.ended().len(), 4, "one more than before: {:?}", sweep.ended());
}

/// D-02: what was measured for something else is never taken for this.
#[test]
fn a_changed_question_is_refused_in_words() {
    let mut sweep = Sweeping::new();
    sweep.recipe["trials"] = json!(1);
    sweep.recipe["cells"].as_array_mut().expect("cells").truncate(1);
    assert_eq!(sweep.run(&[]).status.code(), Some(0));
    let before = fs::read(sweep.out().join("matrix.json")).expect("matrix");
    let swept = sweep.run(&[]);
    assert_eq!(swept.status.code(), Some(64), "{}", swept.stderr);
    assert!(swept.stderr.contains("holds a sweep already; --resume"), "{}", swept.stderr);

    sweep.recipe["workload_config"]["num_prompts"] = json!(5);
    sweep.recipe["cells"][0]["extra_env"] = json!({"SECRET": "x"});
    let swept = sweep.run(&["--resume"]);
    assert_eq!(swept.status.code(), Some(64), "{}", swept.stderr);
    for part in
        ["cells.baseline-a.workload_config.num_prompts: 4 then, 5 now", "cells.baseline-a.extra_env.SECRET differs"]
    {
        assert!(swept.stderr.contains(part), "{part}: {}", swept.stderr);
    }
    sweep.recipe["workload_config"]["num_prompts"] = json!(4);
    sweep.recipe["cells"][0]["extra_env"] = json!({});

    let other = sweep.folder().join("agent");
    let mut bytes = fs::read(programs::agent()).expect("agent");
    bytes.push(0);
    fs::write(&other, bytes).expect("agent");
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mode");
    let swept = sweep.run(&["--resume", "--agent", &other.display().to_string()]);
    assert_eq!(swept.status.code(), Some(64), "{}", swept.stderr);
    assert!(swept.stderr.contains("agent: sha256"), "{}", swept.stderr);
    assert_eq!(before, fs::read(sweep.out().join("matrix.json")).expect("matrix"), "a refusal changes nothing");

    let swept = sweep.run(&["--resume"]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    assert!(swept.stderr.contains("1 resumed, 0 run"), "{}", swept.stderr);
    let foreign = Sweeping::new();
    fs::create_dir(foreign.out()).expect("out");
    fs::write(foreign.out().join("thesis.txt"), "precious").expect("a file");
    let swept = foreign.run(&["--resume"]);
    assert_eq!(swept.status.code(), Some(64), "{}", swept.stderr);
    assert_eq!(tree(&foreign.out()).len(), 1);
}

#[test]
fn stop_after_ends_a_cell_early() {
    let mut sweep = Sweeping::new();
    sweep.recipe["cells"].as_array_mut().expect("cells").truncate(1);
    sweep.recipe["stop_after"] = json!({"events": 1, "max_trials": 3, "event_verdict": "pass"});
    let swept = sweep.run(&[]);
    assert_eq!(swept.status.code(), Some(0), "{}", swept.stderr);
    let matrix = sweep.json("matrix.json");
    assert_eq!(matrix["cells"][0]["stop_after_note"], json!("stopped early: 1 pass event(s) in 1 trial(s)"));
    assert_eq!((&matrix["trials_per_cell"], &matrix["cells"][0]["trials"]), (&json!(3), &json!(1)));
    assert!(!sweep.text("matrix.md").contains("incomplete"));
    let swept = sweep.run(&["--resume"]);
    assert_eq!(sweep.ended().len(), 1, "{}", swept.stderr);
}
