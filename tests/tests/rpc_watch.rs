//! `controller watch` as a person and a script meet it: in a real terminal (tmux), with keys typed, and
//! without one; live, replayed, and where there is nothing to watch.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use agent::events::{EventHub, Limits, LogSource};
use agent::rpc::{Address, Rpc, RpcConfig};
use agent::status::{Command as Ordered, Handle, LogFiles, Status};
use proto::event::{EventBody, Figures, Phase, Step, StepKind};
use proto::names::RunToken;
use tests::{needs, patience, programs};

/// A terminal of a given size that runs one command; killed with everything in it when the test ends.
struct Terminal {
    home: tempfile::TempDir,
}

impl Terminal {
    fn open(size: (u16, u16), command: &[&str]) -> Self {
        let terminal = Self { home: tempfile::tempdir().unwrap() };
        let size = (size.0.to_string(), size.1.to_string());
        // The shell keeps the pane open after the command, so that its end can be seen.
        let line = format!("{}; echo left with $?; sleep 600", command.join(" "));
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &size.0, "-y", &size.1, &line]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let out = Command::new("tmux")
            .arg("-u")
            .args(["-L", "watch"])
            .args(args)
            .env("TMUX_TMPDIR", self.home.path())
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(out.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn wait(&self, what: &str) -> String {
        patience::until(what, || {
            let screen = self.screen();
            screen.contains(what).then_some(screen)
        })
    }

    fn keys(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", key]);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-L", "watch", "kill-server"])
            .env("TMUX_TMPDIR", self.home.path())
            .env_remove("TMUX")
            .status();
    }
}

fn tmux(test: &str) -> bool {
    let there = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    if !there {
        needs::skip(test, "no tmux");
    }
    there
}

/// A trial that this test plays, behind a real socket.
struct Trial {
    dir: tempfile::TempDir,
    hub: EventHub,
    _status: tokio::sync::watch::Sender<Status>,
    commands: tokio::sync::mpsc::Receiver<Ordered>,
    rpc: Rpc,
}

const STEP: Step = Step { kind: StepKind::Measured, number: 1, total: 2 };

impl Trial {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = RunToken::parse("7-1").unwrap();
        let hub = EventHub::new(Limits::default());
        let status = tokio::sync::watch::Sender::new(Status::new(&token, "a-model", 0, 2, 64));
        let (send, commands) = tokio::sync::mpsc::channel(4);
        let logs = LogFiles { out_dir: dir.path().to_owned(), token };
        let handle = Handle { hub: hub.clone(), status: status.subscribe(), commands: send, logs };
        let grpc = Some(Address::Unix(dir.path().join("agent.7-1.sock")));
        let rpc = Rpc::start(RpcConfig { grpc, ..RpcConfig::default() }, handle).unwrap();
        hub.emit(EventBody::Started {
            token: "7-1".into(),
            agent_version: "0.1.0".into(),
            contract_version: 1,
            wall_ms: 1_700_000_000_000,
            model: "a-model".into(),
            warmup_steps: 0,
            steps: 2,
            num_prompts: 64,
        });
        hub.emit(EventBody::PhaseEntered { phase: Phase::Measure(1), deadline_ms: Some(3_600_000) });
        hub.emit(EventBody::StepStarted { step: STEP });
        hub.log(LogSource::Server, b"\x1b[2Jserver says hello");
        hub.log(LogSource::Bench(STEP), b"bench says 50%");
        Self { dir, hub, _status: status, commands, rpc }
    }

    fn socket(&self) -> String {
        self.dir.path().join("agent.7-1.sock").display().to_string()
    }

    fn finish(&self) {
        let figures = Figures { median_ttft_ms: Some(46.25), output_throughput: Some(3538.0), ..Figures::default() };
        self.hub.emit(EventBody::StepFinished {
            step: STEP,
            verdict: "pass".into(),
            detail: String::new(),
            elapsed_ms: 900,
            figures,
            sha256: None,
        });
        self.hub.emit(EventBody::Finished { exit: 143, reason: "aborted".into() });
    }

    fn journal(&self) -> PathBuf {
        let path = self.dir.path().join("events.7-1.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        for event in self.hub.snapshot(1) {
            writeln!(file, "{}", serde_json::to_string(&*event).unwrap()).unwrap();
        }
        path
    }
}

fn controller() -> String {
    programs::controller().display().to_string()
}

/// Everything but the first line, which names the connection.
fn below_the_head(screen: &str) -> String {
    screen.split_once('\n').unwrap().1.trim_end().to_owned()
}

#[test]
fn a_person_watches_searches_aborts_and_replays() {
    if !tmux("a_person_watches_searches_aborts_and_replays") {
        return;
    }
    let mut trial = Trial::start();
    for size in [(80, 24), (200, 60)] {
        let terminal = Terminal::open(size, &[&controller(), "watch", &trial.socket()]);
        let screen = terminal.wait("server| server says hello");
        for part in ["trial 7-1  a-model  live", "measure 1 for", " left   ", "step 1/2| bench says 50%", "q leave"] {
            assert!(screen.contains(part), "{part}\n{screen}");
        }
        assert_eq!(screen.lines().count(), usize::from(size.1), "{screen}");
        terminal.keys(&["s"]);
        let screen = terminal.wait("log of server \u{2500}");
        assert!(!screen.contains("bench says"), "{screen}");
        terminal.keys(&["s", "s", "/", "5", "0", "Enter"]);
        let screen = terminal.wait("with \"50\"");
        assert!(screen.contains("bench says") && !screen.contains("server says"), "{screen}");
        terminal.keys(&["Escape", "?"]);
        terminal.wait("hold the log, and let it go");
        terminal.keys(&["x", "q"]);
        terminal.wait("left with 0");
    }

    let terminal = Terminal::open((80, 24), &[&controller(), "watch", &trial.socket()]);
    terminal.wait("live");
    terminal.keys(&["a"]);
    terminal.wait("Stop this trial now?");
    terminal.keys(&["n", "a"]);
    terminal.wait("Stop this trial now?");
    assert!(trial.commands.try_recv().is_err(), "nothing was ordered without a yes");
    terminal.keys(&["y"]);
    terminal.wait("abort: accepted");
    let ordered = trial.commands.try_recv().unwrap();
    assert_eq!(ordered, Ordered::Abort { reason: "asked for in controller watch".into() });
    terminal.keys(&["Escape"]);

    // The end of the live trial, and the same trial from its journal.
    trial.finish();
    trial.hub.close();
    let live = terminal.wait("ended: trial over");
    assert!(live.contains("finished: aborted (exit status 143)") && live.contains("3538"), "{live}");
    let journal = trial.journal().display().to_string();
    let replay = Terminal::open((80, 24), &[&controller(), "watch", &journal, "--speed", "inf"]);
    let replayed = replay.wait("ended: end of the journal");
    // A journal holds no log lines.
    let figures = |screen: &str| below_the_head(screen).lines().take(10).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(figures(&live), figures(&replayed), "{live}\n{replayed}");
}

#[test]
fn a_terminal_may_be_resized() {
    if !tmux("a_terminal_may_be_resized") {
        return;
    }
    let trial = Trial::start();
    let terminal = Terminal::open((80, 24), &[&controller(), "watch", &trial.socket()]);
    terminal.wait("live");
    for size in [("10", "4"), ("200", "60"), ("80", "24")] {
        terminal.tmux(&["resize-window", "-x", size.0, "-y", size.1]);
    }
    let screen = terminal.wait("server says hello");
    assert!(screen.contains("q leave  a abort  s source"), "{screen}");
}

fn run(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(programs::controller()).arg("watch").args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_script_gets_lines_json_and_a_page() {
    let trial = Trial::start();
    trial.finish();
    let (code, page, _) = run(&[&trial.socket(), "--once"]);
    assert_eq!(code, 0);
    assert!(page.starts_with("trial    7-1  a-model  agent 0.1.0\n") && page.contains("aborted"), "{page}");
    trial.hub.close();
    let (code, plain, _) = run(&[&trial.socket()]);
    assert_eq!(code, 0);
    assert!(plain.contains("server| server says hello") && !plain.contains('\x1b'), "{plain:?}");
    let (code, json, words) = run(&[&trial.socket(), "--json"]);
    let journal = std::fs::read_to_string(trial.journal()).unwrap();
    assert_eq!((code, json.as_str()), (0, journal.as_str()), "the journal's lines, and nothing else on stdout");
    assert!(words.contains("stream ended: trial over"), "{words}");
    let (code, replayed, _) = run(&[trial.journal().to_str().unwrap(), "--json", "--speed", "inf"]);
    assert_eq!((code, replayed), (0, journal));
    trial.rpc.stop();
}

#[test]
fn nothing_to_watch_is_69_and_bad_usage_64() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let no_journal = dir.path().join("text");
    std::fs::write(&no_journal, "not a journal\n").unwrap();
    for target in ["no-such-trial", "/no/such/socket", folder, no_journal.to_str().unwrap(), "http://127.0.0.1:9"] {
        let (code, out, words) = run(&[target, "--once"]);
        assert_eq!((code, out.as_str()), (69, ""), "{target}: {words}");
        assert!(!words.is_empty(), "{target}");
    }
    for bad in [&["x", "--speed", "0"][..], &["--nonsense"]] {
        assert_eq!(run(bad).0, 64, "{bad:?}");
    }
    assert!(Path::new(&programs::controller()).exists());
}
