//! A container client that does what a real one does only now and then: `FAKE_DOCKER_DIR` holds `script.json`, the
//! containers (`containers/<name>`: id, name, state and token, with tabs between) and a log of the calls.
//!
//! By sub-command, `script.json` says: `delay_ms`, `stderr`, `hang`, `exit`. For `run` also: `container` (`foreign`,
//! `late` after `late_ms`, `stays`), `signal_parent` (SIGTERM to whoever called, first of all), `deaf` (to SIGTERM),
//! and `agent`: the real one in the container's place, after `agent_delay_ms`; `outlives` then means that the client goes on
//! when its container is gone, `cut_stdout` how many bytes of the container's last words it loses.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

fn main() -> ExitCode {
    let dir = PathBuf::from(std::env::var_os("FAKE_DOCKER_DIR").unwrap_or_default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sub = args.first().map(String::as_str).unwrap_or_default();
    log(&dir, &args);
    let script: Value = fs::read_to_string(dir.join("script.json"))
        .ok()
        .and_then(|t| serde_json::from_str(&t).ok())
        .unwrap_or_default();
    let rule = &script[sub];
    if rule["signal_parent"].as_bool() == Some(true) {
        let _ = kill(Pid::parent(), Signal::SIGTERM);
    }
    if let Some(ms) = rule["delay_ms"].as_u64() {
        std::thread::sleep(Duration::from_millis(ms));
    }
    if let Some(words) = rule["stderr"].as_str() {
        eprintln!("{words}");
    }
    if rule["hang"].as_bool() == Some(true) {
        forever();
    }
    match sub {
        "run" => return ExitCode::from(run(&dir, &args, rule)),
        "create-late" => {
            std::thread::sleep(Duration::from_millis(args[1].parse().unwrap_or_default()));
            create(&dir, &args[2], &args[3]);
        }
        "shim" => shim(&dir, &args[1..]),
        "ps" => list(&dir, &args),
        "rm" if rule["exit"].is_null() => remove(&dir, args.last().map(String::as_str).unwrap_or_default()),
        "version" => say("20.10"),
        _ => {}
    }
    ExitCode::from(status(rule))
}

/// The status that the script asks for.
fn status(rule: &Value) -> u8 {
    rule["exit"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or_default()
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_mins(10));
    }
}

fn log(dir: &Path, args: &[String]) {
    let client = fs::read_to_string(dir.join("client")).ok().and_then(|text| text.parse().ok());
    // A dead one that nobody has reaped counts as there.
    let client_is_there = client.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_ok());
    let stdin = fs::read_link("/proc/self/fd/0").ok();
    let parent = Pid::parent().as_raw();
    let line =
        json!({ "args": args, "fds": fds(), "stdin": stdin, "parent": parent, "client_is_there": client_is_there });
    note(dir, line);
}

/// One line of the log of calls; a lost one fails the test that reads it.
fn note(dir: &Path, mut line: Value) {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    line["at_ms"] = json!(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
    line["pid"] = json!(std::process::id());
    let file = fs::OpenOptions::new().append(true).create(true).open(dir.join("calls.jsonl"));
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// Descriptors that the caller let through.
fn fds() -> Vec<u32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let inherited = entries.filter_map(|entry| {
        let listing = fs::read_link(entry.path()).is_ok_and(|target| target.starts_with("/proc"));
        entry.file_name().to_str()?.parse().ok().filter(|_| !listing)
    });
    let mut found: Vec<u32> = inherited.collect();
    found.sort_unstable();
    found
}

/// The word after an option that has this beginning.
fn value<'a>(args: &'a [String], option: &str, beginning: &str) -> &'a str {
    let mut pairs = args.windows(2).filter(|pair| pair[0] == option);
    pairs.find_map(|pair| pair[1].strip_prefix(beginning)).unwrap_or_default()
}

fn create(dir: &Path, name: &str, token: &str) {
    let _ = fs::create_dir_all(dir.join("containers"));
    let _ = fs::write(dir.join("containers").join(name), format!("id-{name}\t{name}\trunning\t{token}\n"));
}

/// The client of one container; its status.
fn run(dir: &Path, args: &[String], rule: &Value) -> u8 {
    let _ = fs::write(dir.join("client"), std::process::id().to_string());
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    let _ = signals.thread_block();
    let Ok(heard) = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC) else { return 1 };
    let (name, token) = (value(args, "--name", ""), value(args, "--label", "ts-bench.run-token="));
    match rule["container"].as_str() {
        // Somebody else's container bears the name.
        Some("foreign") => create(dir, name, ""),
        // The daemon goes on creating what its client had asked for.
        Some("late") => {
            let ms = rule["late_ms"].as_u64().unwrap_or_default().to_string();
            let mut command = itself();
            let _ = command.args(["create-late", &ms, name, token]).process_group(0).spawn();
        }
        Some("stays") => create(dir, name, token),
        _ => {}
    }
    let agent = rule["agent"].as_bool() == Some(true);
    if agent && start_agent(args, rule).is_err() {
        return 125;
    }
    if !agent && !rule["exit"].is_null() {
        return status(rule);
    }
    let mut output = Output::new(dir, rule["cut_stdout"].as_u64());
    loop {
        output.pass_on(false);
        let mut waited = [PollFd::new(heard.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut waited, PollTimeout::from(20_u8));
        while let Ok(Some(signal)) = heard.read_signal() {
            let signal = i32::try_from(signal.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok());
            let Some(signal) = signal else { continue };
            note(dir, json!({ "signal": signal.as_str() }));
            if rule["deaf"].as_bool() == Some(true) {
                continue;
            }
            if !agent || rule["outlives"].as_bool() == Some(true) {
                return u8::try_from(128 + signal as i32).unwrap_or(u8::MAX);
            }
            // The real client passes it on to the container's first process.
            if let Some(pid) = fs::read_to_string(dir.join("pid")).ok().and_then(|text| text.parse().ok()) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        let ended = fs::read_to_string(dir.join("exit")).ok().and_then(|text| text.parse().ok());
        if let Some(code) = ended.filter(|_| rule["outlives"].as_bool() != Some(true)) {
            output.pass_on(true);
            return if rule["exit"].is_null() { code } else { status(rule) };
        }
    }
}

/// This program, to be started once more.
fn itself() -> Command {
    Command::new("/proc/self/exe")
}

/// What the container writes, as far as its client passes it on.
struct Output {
    file: PathBuf,
    at: u64,
    cut: Option<u64>,
}

impl Output {
    fn new(dir: &Path, cut: Option<u64>) -> Self {
        Self { file: dir.join("stdout"), at: 0, cut }
    }

    /// With a cut nothing is passed on before the end is known.
    fn pass_on(&mut self, all: bool) {
        let Ok(mut file) = fs::File::open(&self.file) else { return };
        let length = file.metadata().map_or(0, |data| data.len());
        let until = match self.cut {
            Some(cut) if all => length.saturating_sub(cut),
            Some(_) => 0,
            None => length,
        };
        let mut bytes = Vec::new();
        if until > self.at && file.seek(SeekFrom::Start(self.at)).is_ok() {
            let _ = file.take(until - self.at).read_to_end(&mut bytes);
            self.at += bytes.len() as u64;
            let _ = std::io::stdout().write_all(&bytes);
        }
    }
}

/// Starts the container: a shim in a session of its own, which outlives its client as the real one does.
fn start_agent(args: &[String], rule: &Value) -> std::io::Result<()> {
    let mounts: Vec<(String, String)> = args
        .windows(2)
        .filter(|pair| pair[0] == "--mount")
        .filter_map(|pair| {
            let field = |key: &str| pair[1].split(',').find_map(|part| part.strip_prefix(key).map(str::to_owned));
            Some((field("target=")?, field("source=")?))
        })
        .collect();
    let outside = |path: &str| {
        let inside =
            |target: &String| path.strip_prefix(target.as_str()).filter(|r| r.is_empty() || r.starts_with('/'));
        let found = mounts.iter().find_map(|(target, source)| Some(format!("{source}{}", inside(target)?)));
        found.unwrap_or_else(|| path.to_owned())
    };
    let own = ["PATH", "FAKE_TS_SCRIPT", "FAKE_DOCKER_DIR", tests::processes::MARK];
    let mut command = Command::new("setsid");
    command.arg(std::env::current_exe()?).args(["shim", value(args, "--name", "")]);
    command.args([value(args, "--label", "ts-bench.run-token="), &outside(value(args, "--entrypoint", ""))]);
    command.arg(rule["agent_delay_ms"].as_u64().unwrap_or_default().to_string()).env_clear();
    command.envs(own.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let pairs = args.windows(2).filter(|pair| pair[0] == "-e").filter_map(|pair| pair[1].split_once('='));
    command.envs(pairs.map(|(name, value)| (name, outside(value))));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// Runs the agent as the daemon would: it is there while the agent lives, and gone afterwards (`--rm`).
fn shim(dir: &Path, args: &[String]) {
    let [name, token, agent, delay] = args else { return };
    std::thread::sleep(Duration::from_millis(delay.parse().unwrap_or_default()));
    create(dir, name, token);
    let Ok(stdout) = fs::File::create(dir.join("stdout")) else { return };
    let code = match Command::new(agent).stdout(stdout).stdin(Stdio::null()).spawn() {
        Ok(mut agent) => {
            let _ = fs::write(dir.join("pid"), agent.id().to_string());
            agent.wait().map_or(125, |status| status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(125))
        }
        Err(_) => 127,
    };
    let _ = fs::remove_file(dir.join("containers").join(name));
    over(dir, code);
}

/// The container's end, in one piece.
fn over(dir: &Path, code: i32) {
    let part = dir.join(format!("exit.{}", std::process::id()));
    let _ = fs::write(&part, code.to_string()).and_then(|()| fs::rename(&part, dir.join("exit")));
}

fn list(dir: &Path, args: &[String]) {
    // Only the query of one container is answered, not the one for all of a user.
    let (token, name) = (value(args, "--filter", "label=ts-bench.run-token="), value(args, "--filter", "name=^/?"));
    let name = name.trim_end_matches('$');
    for entry in fs::read_dir(dir.join("containers")).into_iter().flatten().flatten() {
        let line = fs::read_to_string(entry.path()).unwrap_or_default();
        let fields: Vec<&str> = line.trim_end().split('\t').collect();
        let (its_name, its_token) = (fields.get(1).copied(), fields.get(3).copied().unwrap_or_default());
        if (!token.is_empty() && its_token == token) || (!name.is_empty() && its_name == Some(name)) {
            say(line.trim_end_matches('\n'));
        }
    }
}

fn remove(dir: &Path, target: &str) {
    let container = dir.join("containers").join(target.trim_start_matches("id-"));
    let line = fs::read_to_string(&container).unwrap_or_default();
    // As the daemon: whatever runs in it is killed, and then it is gone.
    if let Some(token) = line.trim_end().split('\t').nth(3).filter(|token| !token.is_empty()) {
        let inside = format!("TS_RUN_TOKEN={token}").into_bytes();
        let lives = |pid: i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|entry| entry == inside)
        };
        loop {
            let left: Vec<_> = tests::processes::all().into_iter().filter(|process| lives(process.pid)).collect();
            if left.is_empty() {
                break;
            }
            for process in left {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        over(dir, 137);
    }
    // As the real one: nothing there is no error.
    let _ = fs::remove_file(container);
}
