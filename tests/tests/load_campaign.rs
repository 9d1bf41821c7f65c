//! `controller campaign` with real servers, a real client and real signals.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::patience::until;
use tests::ports::FreePort;
use tests::processes::Guarded;
use tests::programs;

struct Bed {
    dir: tempfile::TempDir,
    ports: Vec<FreePort>,
}

const FAST: &str = r#"{"engine":{"ttft_ms":2,"itl_ms":1},"startup":{"ms":0}}"#;

impl Bed {
    fn new(arms: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let items: Vec<Value> = (0..30)
            .map(|i| json!({"id": format!("S-{i:04}"), "band": "S", "conversations": [{"from": "human", "value": format!("w{i:04}")}]}))
            .collect();
        fs::write(dir.path().join("corpus.json"), json!(items).to_string()).unwrap();
        Self { dir, ports: (0..2 * arms).map(|_| FreePort::find()).collect() }
    }

    fn arm(&self, index: usize, name: &str, script: &str) -> Value {
        let (port, control) = (self.ports[2 * index].number(), self.ports[2 * index + 1].number());
        json!({"name": name, "url": format!("http://127.0.0.1:{port}"), "model": "m", "env": {"FAKE_TS_SCRIPT": script},
            "command": [programs::tokenspeed(), "serve", "m", "--host", "127.0.0.1", "--port", port.to_string(),
                        "--control-port", control.to_string()]})
    }

    fn campaign(&self, arms: &[Value]) -> Value {
        json!({"corpus": {"file": self.dir.path().join("corpus.json")}, "arms": arms, "rungs": [1, 2], "rounds": 2,
            "client": {"num_prompts": 4, "max_tokens": 4, "args": ["--no-calibration"]}, "settle_sec": 0,
            "stop_grace_sec": 10, "ready_timeout_sec": 60})
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn command(&self, campaign: &Value) -> Command {
        let file = self.dir.path().join("campaign.json");
        fs::write(&file, campaign.to_string()).unwrap();
        let mut command = Command::new(programs::controller());
        command.args(["campaign", "--file", file.to_str().unwrap(), "--output-dir", self.out().to_str().unwrap()]);
        command.args(["--agent", programs::agent().to_str().unwrap()]);
        for knob in ["RUNGS", "ROUNDS", "NPROMPTS", "OUTLEN", "TEMP", "TOPP", "TOPK", "SEED"] {
            command.env_remove(knob);
        }
        command
    }

    fn run(&self, campaign: &Value) -> Output {
        let mut command = self.command(campaign);
        let log = fs::File::create(self.dir.path().join("run.log")).unwrap();
        let mut run = Guarded::spawn(command.stdout(log.try_clone().unwrap()).stderr(log)).unwrap();
        let status = until("the campaign's end", || run.ended());
        Output { status, stdout: Vec::new(), stderr: fs::read(self.dir.path().join("run.log")).unwrap() }
    }

    fn recorded(&self) -> Vec<String> {
        let text = fs::read_to_string(self.out().join("results.txt")).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix("RESULT ")?.split_once(" recorded in").map(|(leg, _)| leg.to_owned()))
            .collect()
    }

    fn nothing_listens(&self) {
        for port in &self.ports {
            until("a free port", || std::net::TcpStream::connect(("127.0.0.1", port.number())).is_err().then_some(()));
        }
    }
}

fn leg(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_campaign_runs_in_its_order_and_a_rerun_runs_only_what_is_missing() {
    let bed = Bed::new(2);
    let campaign = bed.campaign(&[bed.arm(0, "THEIRS", FAST), bed.arm(1, "OURS", FAST)]);
    let output = bed.run(&campaign);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let order = "THEIRS-r1-c1 THEIRS-r1-c2 OURS-r1-c1 OURS-r1-c2 OURS-r2-c2 OURS-r2-c1 THEIRS-r2-c2 THEIRS-r2-c1";
    assert_eq!(bed.recorded().join(" "), order);
    for label in order.split(' ') {
        let file = leg(&bed.out().join(format!("{label}.json")));
        assert_eq!((&file["summary"]["leg"], &file["config"]["profile"]), (&json!(label), &json!("variadic")));
        assert_eq!(file["summary"]["headline_warm"]["ok"], 4);
        assert!(bed.out().join(format!("logs/{label}.server.log")).exists(), "a boot per cell");
    }
    for marker in ["files", "corpus", "legs"] {
        assert!(bed.out().join("markers").join(marker).exists(), "{marker}");
    }
    bed.nothing_listens();

    assert_eq!(bed.run(&campaign).status.code(), Some(0));
    assert_eq!(bed.recorded().len(), 8, "nothing is run twice");
    // Gone, cut short, and changed: each is run again, the rest is not.
    let file = |label: &str| bed.out().join(format!("{label}.json"));
    fs::remove_file(file("OURS-r1-c1")).unwrap();
    let text = fs::read(file("OURS-r2-c2")).unwrap();
    fs::write(file("OURS-r2-c2"), &text[..text.len() / 2]).unwrap();
    let mut changed = leg(&file("THEIRS-r2-c1"));
    changed["records"][0]["ttft"] = json!(0.001);
    fs::write(file("THEIRS-r2-c1"), changed.to_string()).unwrap();
    assert_eq!(bed.run(&campaign).status.code(), Some(0));
    assert_eq!(bed.recorded()[8..].join(" "), "OURS-r1-c1 OURS-r2-c2 THEIRS-r2-c1");
    // Another question is asked of every leg anew.
    let mut command = bed.command(&campaign);
    let output = command.env("OUTLEN", "3").output().unwrap();
    assert_eq!((output.status.code(), bed.recorded().len()), (Some(0), 19), "{output:?}");
    assert_eq!(leg(&file("OURS-r1-c1"))["config"]["max_tokens"], 3);
}

#[test]
fn a_failing_server_fails_its_legs_and_nothing_else() {
    let bed = Bed::new(2);
    let dies = r#"{"engine":{"ttft_ms":2,"itl_ms":1},"startup":{"ms":0},"faults":[{"at":{"request":3},"do":{"exit":{"code":3}}}]}"#;
    let mut campaign = bed.campaign(&[bed.arm(0, "GOOD", FAST), bed.arm(1, "BAD", dies)]);
    campaign["rounds"] = json!(1);
    let output = bed.run(&campaign);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(bed.recorded().join(" "), "GOOD-r1-c1 GOOD-r1-c2");
    assert!(!bed.out().join("BAD-r1-c1.json").exists(), "a mostly failed leg is out of the report's sight");
    bed.nothing_listens();
    // Mended, the rest is owed.
    campaign["arms"][1]["env"]["FAKE_TS_SCRIPT"] = json!(FAST);
    assert_eq!(bed.run(&campaign).status.code(), Some(0));
    assert_eq!(bed.recorded()[2..].join(" "), "BAD-r1-c1 BAD-r1-c2");
}

#[test]
fn a_signal_ends_it_without_a_server_left_and_it_goes_on_later() {
    let bed = Bed::new(1);
    let slow = r#"{"engine":{"ttft_ms":600000},"startup":{"ms":0}}"#;
    let mut campaign = bed.campaign(&[bed.arm(0, "A", slow)]);
    (campaign["rounds"], campaign["rungs"]) = (json!(1), json!([1]));
    let log = fs::File::create(bed.dir.path().join("run.log")).unwrap();
    let mut run = Guarded::spawn(bed.command(&campaign).stdout(log.try_clone().unwrap()).stderr(log)).unwrap();
    until("a running client", || bed.out().join("logs/A-r1-c1.client.log").exists().then_some(()));
    run.signal(nix::sys::signal::Signal::SIGTERM);
    let status = until("the campaign's end", || run.ended());
    assert_eq!(status.signal(), Some(15), "{status:?}");
    bed.nothing_listens();
    campaign["arms"][0]["env"]["FAKE_TS_SCRIPT"] = json!(FAST);
    assert_eq!(bed.run(&campaign).status.code(), Some(0));
    assert_eq!(bed.recorded(), ["A-r1-c1"]);
}

#[test]
fn a_failed_probe_sets_the_fallback_for_all_legs() {
    let bed = Bed::new(1);
    let fails = r#"{"startup":{"ms":0},"requests":[{"every":1,"do":{"status":500}}]}"#;
    let mut arm = bed.arm(0, "A", fails);
    arm["probe"] = json!({"fallback_env": {"FAKE_TS_SCRIPT": FAST}, "num_prompts": 3, "max_tokens": 2});
    let mut campaign = bed.campaign(&[arm]);
    campaign["rounds"] = json!(1);
    let output = bed.run(&campaign);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(bed.recorded().join(" "), "A-r1-c1 A-r1-c2");
    assert!(fs::read_to_string(bed.out().join("markers/probe.A")).unwrap().contains("fallback_env"));
}

#[test]
fn what_cannot_run_says_so_before_anything_is_started() {
    let bed = Bed::new(1);
    let good = bed.campaign(&[bed.arm(0, "A", FAST)]);
    let with = |key: &str, value: Value| {
        let mut campaign = good.clone();
        campaign[key] = value;
        bed.run(&campaign)
    };
    let corpus = bed.dir.path().join("corpus.json");
    let pinned = with("files", json!([{"path": corpus, "sha256": "0".repeat(64)}]));
    assert_eq!(pinned.status.code(), Some(69), "{pinned:?}");
    let short = with("rungs", json!([64]));
    assert_eq!(short.status.code(), Some(69), "{short:?}");
    assert!(String::from_utf8_lossy(&short.stderr).contains("68"), "{short:?}");
    assert_eq!(with("rungs", json!([0])).status.code(), Some(64));
    assert_eq!(bed.command(&good).arg("--nonsense").output().unwrap().status.code(), Some(64));
    assert!(fs::read_dir(bed.out().join("logs")).unwrap().next().is_none(), "no server was started");
    let dry = Command::new(programs::controller())
        .args(["campaign", "--dry-run", "--file", bed.dir.path().join("campaign.json").to_str().unwrap()])
        .env("RUNGS", "2 1")
        .env("ROUNDS", "2")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    let labels: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with("A-r"))).collect();
    assert_eq!((dry.status.code(), labels.join(" ").as_str()), (Some(0), "A-r1-c2 A-r1-c1 A-r2-c1 A-r2-c2"), "{dry:?}");
}

#[test]
fn a_stranger_on_the_port_is_not_measured() {
    let bed = Bed::new(1);
    let _stranger = std::net::TcpListener::bind(("127.0.0.1", bed.ports[0].number())).unwrap();
    let mut campaign = bed.campaign(&[bed.arm(0, "A", FAST)]);
    (campaign["rounds"], campaign["rungs"]) = (json!(1), json!([1]));
    let output = bed.run(&campaign);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("something answers"), "{output:?}");
}
