//! AORTA itself: our plugin under its sweep, our matrix against its arithmetic and its writers, every recipe through its
//! parser.

use nix::sys::signal::Signal;
use proto::finding::FindingId;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tests::patience::until;
use tests::processes::Guarded;
use tests::sweeping::{Sweeping, Swept};
use tests::{needs, programs};

/// `aorta sweep run` on the sweep's recipe, with our plugin.
fn aorta(venv: &Path, sweep: &Sweeping) -> Command {
    let ours = sweep.command(&[]);
    let recipe = sweep.folder().join("recipe.json");
    let mut command = Command::new(venv.join("bin/aorta"));
    command.args(["sweep", "run", "--recipe"]).arg(recipe).arg("--output-dir").arg(sweep.folder().join("aorta"));
    command.envs(ours.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("TS_BENCH_CONTROLLER", programs::controller()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(sweep.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The folder that AORTA's run made: ticket, workload, time.
fn run_folder(sweep: &Sweeping) -> PathBuf {
    let only =
        |folder: PathBuf| fs::read_dir(&folder).ok().and_then(|mut e| e.next()?.ok()).map_or(folder, |e| e.path());
    only(only(only(sweep.folder().join("aorta"))))
}

fn read(path: &Path) -> Value {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or(Value::Null)
}

fn compare(venv: &Path, args: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/aorta_agrees.py");
    Command::new(venv.join("bin/python")).arg(script).args(args).output().expect("python")
}

#[track_caller]
fn assert_agrees(venv: &Path, args: &[&str]) {
    let out = compare(venv, args);
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{args:?}:\n{said}");
}

/// Cells that pass, that fail, that are misconfigured and that this host cannot run.
fn four_cells(sweep: &mut Sweeping) {
    let cut = json!({"requests": [{"every": 3, "do": "cut", "on": {"kind": "measured"}}]});
    let local = |name: &str| json!({"name": name, "mitigations": ["none"], "environment": "local"});
    let mut cells = ["baseline-a", "fails", "misconfigured", "unfit"].map(local);
    cells[1]["extra_env"] = json!({"FAKE_TS_SCRIPT": cut.to_string()});
    cells[2]["workload_config"] = json!({"num_prompts": 0});
    cells[3]["workload_config"] = json!({"agent_path": "/nonexistent/agent"});
    sweep.recipe["trials"] = json!(1);
    sweep.recipe["cells"] = json!(cells);
}

#[test]
fn the_same_recipe_gives_the_same_files_under_both() {
    let Some(venv) = needs::venv("the_same_recipe_gives_the_same_files_under_both", "aorta") else { return };
    let sweep = Sweeping::new();
    let ours = sweep.run(&[]);
    assert_eq!(ours.status.code(), Some(0), "{}", ours.stderr);
    let out = sweep.out().display().to_string();
    // Our trials through AORTA's own aggregation and writers.
    assert_agrees(&venv, &["matrix", &out]);
    let theirs = Swept::of(&mut Guarded::spawn(&mut aorta(&venv, &sweep)).expect("aorta"));
    assert_eq!(theirs.status.code(), Some(0), "{}", theirs.stderr);
    let folder = run_folder(&sweep);
    let matrix = read(&folder.join("matrix.json"));
    for cell in matrix["cells"].as_array().expect("cells") {
        assert_eq!(
            (&cell["passed_count"], &cell["metrics_summary"]["completed_total"]["mean"]),
            (&json!(2), &json!(8.0))
        );
    }
    let perf = fs::read_to_string(folder.join("perf.md")).expect("perf.md");
    assert!(perf.contains("median_ttft_ms") && perf.contains("output_throughput"), "{perf}");
    let [first, second] =
        [sweep.out().join("matrix.json"), folder.join("matrix.json")].map(|p| p.display().to_string());
    assert_agrees(&venv, &["same", &first, &second]);
    sweep.assert_nothing_left();
}

#[test]
fn what_does_not_pass_shows_as_users_of_aorta_expect() {
    let Some(venv) = needs::venv("what_does_not_pass_shows_as_users_of_aorta_expect", "aorta") else { return };
    let mut sweep = Sweeping::new();
    four_cells(&mut sweep);
    let theirs = Swept::of(&mut Guarded::spawn(&mut aorta(&venv, &sweep)).expect("aorta"));
    assert_eq!(theirs.status.code(), Some(0), "{}", theirs.stderr);
    let matrix = read(&run_folder(&sweep).join("matrix.json"));
    let cell = |index: usize| &matrix["cells"][index];
    let detail = |index: usize| {
        let path = cell(index)["trial_paths"][0].as_str().expect("a trial");
        read(&sweep.folder().join(path))["result"]["failure_details"][0].clone()
    };
    assert_eq!(cell(0)["exit_status_counts"], json!({"ok": 1}));
    assert_eq!((&cell(1)["exit_status_counts"], &cell(1)["failed_count"]), (&json!({"workload_failed": 1}), &json!(1)));
    assert_eq!(detail(1)["reason"], json!("served_request_shortfall"));
    assert!(cell(1)["failure_hints"][0][0].is_string());
    for (index, name, parts) in
        [(2, "ValueError", ["num_prompts", "0"]), (3, "RuntimeError", ["/nonexistent/agent", "agent_path"])]
    {
        assert_eq!(cell(index)["exit_status_counts"], json!({"workload_setup_failed": 1}));
        assert_eq!((&cell(index)["error_count"], &cell(index)["confound"]), (&json!(1), &json!("did_not_run")));
        let detail = detail(index);
        assert_eq!((&detail["type"], &detail["phase"]), (&json!(name), &json!("setup")));
        for part in parts {
            assert!(detail["error"].as_str().is_some_and(|text| text.contains(part)), "{part}: {detail}");
        }
    }
    sweep.assert_nothing_left();
    // The same trials where the sweep is ours: what fails fails alike, in AORTA's own words for it.
    let ours = sweep.run(&["--cell", "baseline-a", "--cell", "fails"]);
    assert_eq!(ours.status.code(), Some(1), "{}", ours.stderr);
    assert_agrees(&venv, &["matrix", &sweep.out().display().to_string()]);
    assert_eq!(sweep.json("matrix.json")["cells"][1]["failure_hints"], cell(1)["failure_hints"]);
}

#[test]
fn a_cancelled_sweep_leaves_nothing_in_either_isolation() {
    let Some(venv) = needs::venv("a_cancelled_sweep_leaves_nothing_in_either_isolation", "aorta") else { return };
    for isolation in ["in_process", "process"] {
        let mut sweep = Sweeping::new();
        sweep.recipe["trials"] = json!(1);
        sweep.recipe["trial_isolation"] = json!(isolation);
        let hang = json!({"bench": {"faults": [{"on": {"kind": "measured"}, "before": ["hang"]}]}});
        sweep.recipe["cells"][1]["extra_env"] = json!({"FAKE_TS_SCRIPT": hang.to_string()});
        let mut process = Guarded::spawn(&mut aorta(&venv, &sweep)).expect("aorta");
        until("the second trial to measure", || (sweep.measuring() == 2).then_some(()));
        process.signal(Signal::SIGTERM);
        let ended = Swept::of(&mut process);
        let died = ended.status.signal() == Some(Signal::SIGTERM as i32) || ended.status.code() == Some(143);
        assert!(died, "{isolation}: {:?} {}", ended.status, ended.stderr);
        sweep.assert_nothing_left();
        let folder = run_folder(&sweep);
        assert!(folder.join("cells/baseline-a/ts_bench/trial_d0_m0_t0.json").exists(), "{isolation}");
        assert!(!folder.join("cells/b/ts_bench/trial_d0_m0_t0.json").exists(), "{isolation}");
        assert!(!folder.join("matrix.json").exists(), "{isolation}");
    }
}

#[test]
fn every_recipe_loads_in_aorta_and_here_without_a_warning() {
    let test = "every_recipe_loads_in_aorta_and_here_without_a_warning";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recipes");
    let of = |folder: PathBuf| {
        let entries = fs::read_dir(folder).expect("recipes").flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect::<Vec<_>>()
    };
    let files = [of(root.clone()), of(root.join("tokenspeed"))].concat();
    assert!(files.len() > 10, "{files:?}");
    for file in &files {
        let document = controller::config::source::read(file).expect("a recipe");
        assert!(document.duplicates.is_empty(), "{}: {:?}", file.display(), document.duplicates);
        let request = controller::sweep::plan::Request { recipe: file.clone(), ..Default::default() };
        let plan = controller::sweep::plan::Plan::read(&request).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for cell in &plan.cells {
            assert_eq!(cell.problems, [], "{} {}", file.display(), cell.cell.name);
            let Some(loaded) = &cell.loaded else { continue };
            // The seed's ladder goes beyond what the released tool can hold; that is said, and nothing else is.
            let capped = loaded.trial.load.max_concurrency.is_some_and(|most| most > 100);
            let expected = if capped { &[FindingId::ToolConcurrencyCap][..] } else { &[] };
            let found: Vec<FindingId> = loaded.findings.iter().map(|finding| finding.id).collect();
            assert_eq!(found, expected, "{} {}: {:?}", file.display(), cell.cell.name, loaded.findings);
        }
    }
    let Some(venv) = needs::venv(test, "aorta") else { return };
    let paths: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let args: Vec<&str> = std::iter::once("recipes").chain(paths.iter().map(String::as_str)).collect();
    assert_agrees(&venv, &args);
}
