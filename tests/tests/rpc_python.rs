//! Outside witnesses: a stock Python client that knows the service from reflection alone, the standard health
//! client, and Prometheus' own parser.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use agent::events::{EventHub, Limits, LogSource};
use agent::rpc::{Address, Rpc, RpcConfig};
use agent::status::{Handle, LogFiles, Status};
use proto::event::{EventBody, Figures, Phase, ProcessSample, Step, StepKind};
use proto::names::RunToken;
use serde_json::{Value, json};
use tests::controlled::Controlled;
use tests::needs;

const PATIENCE: Duration = Duration::from_mins(2);

/// The script, killed when the test ends.
struct Client {
    child: Child,
    lines: Receiver<Value>,
}

impl Client {
    fn start(venv: &Path, args: &[&str]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/grpc_watch.py");
        let mut child = Command::new(venv.join("bin/python"))
            .arg(script)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines() {
                let Ok(line) = line else { return };
                if send.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> Value {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stock_client_follows_a_trial_from_reflection_alone() {
    let Some(venv) = needs::venv("a_stock_client_follows_a_trial_from_reflection_alone", "grpc") else { return };
    let dir = tempfile::tempdir().unwrap();
    let token = RunToken::parse("7-1").unwrap();
    let hub = EventHub::new(Limits::default());
    let status = tokio::sync::watch::Sender::new(Status::new(&token, "model", 0, 1, 64));
    let (commands, _commands) = tokio::sync::mpsc::channel(1);
    let logs = LogFiles { out_dir: dir.path().to_owned(), token };
    let handle = Handle { hub: hub.clone(), status: status.subscribe(), commands, logs };
    let socket = dir.path().join("agent.7-1.sock");
    let config = RpcConfig { grpc: Some(Address::Unix(socket.clone())), ..RpcConfig::default() };
    let rpc = Rpc::start(config, handle).unwrap();

    let step = Step { kind: StepKind::Measured, number: 1, total: 1 };
    hub.emit(EventBody::Started {
        token: "7-1".into(),
        agent_version: "0.1.0".into(),
        contract_version: 1,
        wall_ms: 1_700_000_000_000,
        model: "a \"quoted\" model".into(),
        warmup_steps: 0,
        steps: 1,
        num_prompts: 64,
    });
    hub.emit(EventBody::HealthChanged { path: "/health".into(), answer: "200".into() });
    hub.emit(EventBody::ServerReady { startup_ms: 1234 });
    hub.emit(EventBody::FirstToken { elapsed_ms: 60 });
    hub.emit(EventBody::PhaseEntered { phase: Phase::Measure(1), deadline_ms: Some(1_000_000) });
    status.send_modify(|status| status.phase = Phase::Measure(1));
    hub.emit(EventBody::StepStarted { step });
    hub.emit(EventBody::ResourcesSampled {
        processes: vec![ProcessSample {
            pid: 2,
            parent: 1,
            name: "tokenspeed".into(),
            role: "server".into(),
            cpu_percent: 99.5,
            rss_bytes: 1 << 30,
        }],
    });
    hub.log(LogSource::Server, b"\xff not utf-8");
    hub.emit(EventBody::StepFinished {
        step,
        verdict: "pass".into(),
        detail: String::new(),
        elapsed_ms: 900,
        figures: Figures { completed: Some(64), median_ttft_ms: Some(46.25), ..Figures::default() },
        sha256: None,
    });

    let client = Client::start(&venv, &[socket.to_str().unwrap(), "--metrics"]);
    let families = client.next()["metrics"].clone();
    for (name, kind) in [
        ("tsbench_trial", "info"),
        ("tsbench_phase", "stateset"),
        ("tsbench_steps_finished", "counter"),
        ("tsbench_last_step_ttft_median_seconds", "gauge"),
        ("tsbench_process_resident_memory_bytes", "gauge"),
        ("tsbench_health_up", "gauge"),
        ("tsbench_phase_deadline_seconds", "gauge"),
    ] {
        assert_eq!(families[name], json!(kind), "{name} in {families}");
    }
    for name in ["", "tsbench.v1.Agent", "tokenspeed"] {
        assert_eq!(client.next(), json!({"health": {name: "SERVING"}}));
    }
    let services = client.next()["services"].clone();
    for name in ["tsbench.v1.Agent", "grpc.health.v1.Health"] {
        assert!(services.as_array().unwrap().contains(&json!(name)), "{services}");
    }
    let methods = client.next()["methods"].clone();
    let methods: Vec<&str> = methods.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(methods, ["GetStatus", "Watch", "Logs", "Abort", "Lease"]);
    let found = client.next()["status"].clone();
    assert_eq!(found["status"]["token"], "7-1");
    assert_eq!(found["status"]["results"][0]["finished"]["figures"]["median_ttft_ms"], 46.25);
    let hello = client.next();
    assert_eq!(hello["item"]["hello"]["agent"]["contract_version"], 1);

    // What follows is live: the client is connected and sees the end come.
    hub.emit(EventBody::Finished { exit: 0, reason: "pass".into() });
    hub.close();
    let mut items = Vec::new();
    while items.last().is_none_or(|item: &Value| item.get("closing").is_none()) {
        items.push(client.next()["item"].clone());
    }
    let events: Vec<&str> = items.iter().filter_map(|item| item["event"]["seq"].as_str()).collect();
    assert_eq!(events, ["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let lines = items.iter().find_map(|item| item["log_lines"]["data"].as_str()).unwrap();
    assert_eq!(lines, "/yBub3QgdXRmLTgK", "base64 of the bytes as they were");
    assert_eq!(items.last().unwrap()["closing"]["reason"], "trial over");
    rpc.stop();
}

#[test]
fn a_stock_client_follows_a_trial_in_a_real_container() {
    let test = "a_stock_client_follows_a_trial_in_a_real_container";
    if !needs::docker(test) || !needs::static_programs(test) {
        return;
    }
    let Some(venv) = needs::venv(test, "grpc") else { return };
    // The first measured step waits long enough for the client to be there.
    let slow = json!({ "engine": { "ttft_ms": 3000 } });
    let running = Controlled::docker(&json!({ "generate_probe": false, "warmup_steps": 0 }), &slow).start();
    running.until_journal("\"step_started\"");
    let out = running.trial().out();
    let socket = std::fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path());
    let socket = socket.into_iter().find(|path| path.extension().is_some_and(|end| end == "sock")).unwrap();
    let client = Client::start(&venv, &[socket.to_str().unwrap(), "--metrics"]);
    assert!(client.next()["metrics"]["tsbench_trial"].is_string());
    for name in ["", "tsbench.v1.Agent", "tokenspeed"] {
        assert_eq!(client.next(), json!({"health": {name: "SERVING"}}));
    }
    assert!(client.next()["services"].is_array());
    assert!(client.next()["methods"].is_object());
    let status = client.next()["status"]["status"].clone();
    assert!(socket.to_str().unwrap().contains(status["token"].as_str().unwrap()), "{status}");
    let mut items = Vec::new();
    while items.last().is_none_or(|item: &Value| item.get("closing").is_none()) {
        items.push(client.next()["item"].clone());
    }
    let events: Vec<u64> = items.iter().filter_map(|item| item["event"]["seq"].as_str()?.parse().ok()).collect();
    assert!(events.iter().copied().eq(1..=events.len() as u64), "every event once, in order: {events:?}");
    let finished = items.iter().filter(|item| item["event"]["step_finished"].is_object()).count();
    assert_eq!(finished, 2, "{items:?}");
    assert_eq!(items.last().unwrap()["closing"]["reason"], "trial over");
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    ended.controlled.assert_nothing_left();
}
