//! One trial of the agent against the stand-in: started, watched, judged, and nothing left of it.

use crate::patience::{patience, until};
use crate::ports::FreePort;
use crate::processes::{Guarded, assert_gone};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A trial that is being put together.
#[derive(Debug)]
pub struct Setup {
    agent: PathBuf,
    script: Value,
    times: Value,
    env: Vec<(String, String)>,
    wrap: Vec<String>,
    folder: TempDir,
    ports: [FreePort; 2],
}

/// A trial that runs.
#[derive(Debug)]
pub struct Trial {
    guarded: Guarded,
    folder: TempDir,
    /// Gateway and control port.
    pub ports: [u16; 2],
    _locks: [FreePort; 2],
}

/// A trial that is over.
#[derive(Debug)]
pub struct Ended {
    /// Exit status; 128 + n for a signal.
    pub code: i32,
    /// What it said.
    pub stdout: String,
    /// What it and the bench said.
    pub stderr: String,
    /// Its folder: `out` is the output directory.
    pub folder: TempDir,
}

impl Setup {
    /// A small trial: one warm-up step and one measured one, eight requests, times a twentieth of the contract's.
    ///
    /// # Panics
    /// When the file system does not allow it.
    pub fn new(agent: &Path, tokenspeed: &Path, script: Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        std::os::unix::fs::symlink(tokenspeed, bin.join("tokenspeed")).expect("a link");
        let ports = [FreePort::find(), FreePort::find()];
        let set = |name: &str, value: String| (name.to_owned(), value);
        let env = vec![
            set("PATH", format!("{}:/usr/bin:/bin", bin.display())),
            set("TS_OUT_DIR", folder.path().join("out").display().to_string()),
            set("TS_RUN_TOKEN", "t1".into()),
            set("TS_PORT", ports[0].number().to_string()),
            set("TS_CONTROL_PORT", ports[1].number().to_string()),
            set("TS_NUM_PROMPTS", "8".into()),
            set("TS_INPUT_LEN", "8".into()),
            set("TS_OUTPUT_LEN", "8".into()),
            set("TS_BENCH_STEPS", "1".into()),
            // 15 and 30 seconds of a twentieth each.
            set("TS_TEARDOWN_GRACE", "100".into()),
            set("TS_READY_TIMEOUT", "600".into()),
            set("TS_GRPC_LISTEN", "off".into()),
        ];
        let times = serde_json::json!({
            "second": 50, "generate_window": 1500, "generate_probe_min": 6000, "read_back_limit": 500,
            "read_back_pause": 150, "query_limit": 5000, "bench_kill_after": 3000, "bench_kill_soon": 500,
            "stray_grace": 500, "probe_limit": 2000, "flush_limit": 5000,
        });
        Self { agent: agent.into(), script, times, env, wrap: Vec::new(), folder, ports }
    }

    /// Sets a variable; the last one wins.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a time, milliseconds.
    #[must_use]
    pub fn time(mut self, name: &str, ms: u64) -> Self {
        self.times[name] = ms.into();
        self
    }

    /// Runs the agent under another program, such as `unshare`.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> Self {
        self.wrap = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

    /// Below this everything is written; `out` is the output directory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Gateway and control port.
    pub fn ports(&self) -> [u16; 2] {
        [self.ports[0].number(), self.ports[1].number()]
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(self) -> Trial {
        let mut script = self.script;
        script["journal"] = self.folder.path().join("journal.jsonl").display().to_string().into();
        let mut words = self.wrap.iter().map(String::as_str).map(std::ffi::OsStr::new).collect::<Vec<_>>();
        words.push(self.agent.as_os_str());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().envs(self.env);
        command.env("FAKE_TS_SCRIPT", script.to_string()).env("AGENT_FAST", self.times.to_string());
        let file = |name: &str| File::create(self.folder.path().join(name)).expect("a file");
        command.stdout(file("stdout")).stderr(file("stderr"));
        let guarded = Guarded::spawn(&mut command).expect("the agent starts");
        let ports = [self.ports[0].number(), self.ports[1].number()];
        Trial { guarded, folder: self.folder, ports, _locks: self.ports }
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> Ended {
        self.start().end()
    }
}

impl Trial {
    /// What it has said so far.
    pub fn stdout(&self) -> String {
        text(&self.folder.path().join("stdout"))
    }

    /// Below this everything is written.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until it has said this.
    ///
    /// # Panics
    /// When it has not in time.
    pub fn until_said(&self, what: &str) {
        until(&format!("the agent to say {what:?}"), || self.stdout().contains(what).then_some(()));
    }

    /// Signals the agent's first process.
    pub fn signal(&self, signal: Signal) {
        self.guarded.signal(signal);
    }

    /// Pid of the agent's first process.
    pub fn pid(&self) -> i32 {
        self.guarded.pid().as_raw()
    }

    /// The mark that everything below it carries.
    pub fn mark(&self) -> &str {
        self.guarded.mark()
    }

    /// The process and what descends from it.
    pub fn guarded(&mut self) -> &mut Guarded {
        &mut self.guarded
    }

    /// Waits for the end, and that nothing is left.
    ///
    /// # Panics
    /// When something is, or the end does not come; the message holds what was said.
    pub fn end(mut self) -> Ended {
        let deadline = std::time::Instant::now() + patience() * 2;
        let status = loop {
            if let Some(status) = self.guarded.ended() {
                break status;
            }
            assert!(std::time::Instant::now() < deadline, "the agent does not end:\n{}", self.stdout());
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_gone(self.guarded.mark());
        Ended {
            code: status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(-1),
            stdout: self.stdout(),
            stderr: text(&self.folder.path().join("stderr")),
            folder: self.folder,
        }
    }
}

impl Ended {
    /// Fails unless the status is this and stdout holds every phrase.
    ///
    /// # Panics
    /// With everything that was said.
    #[track_caller]
    pub fn expect(&self, code: i32, phrases: &[&str]) -> &Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        for phrase in phrases {
            assert!(self.stdout.contains(phrase), "{phrase:?} is not in:\n{}", self.stdout);
        }
        self
    }

    /// Fails if stdout holds the phrase.
    ///
    /// # Panics
    /// With everything that was said.
    #[track_caller]
    pub fn never(&self, phrase: &str) -> &Self {
        assert!(!self.stdout.contains(phrase), "{phrase:?} is in:\n{}", self.stdout);
        self
    }

    /// How often stdout holds a phrase.
    pub fn count(&self, phrase: &str) -> usize {
        self.stdout.matches(phrase).count()
    }

    /// A file of the output directory.
    pub fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    /// What the stand-in saw, as JSON lines.
    pub fn journal(&self) -> Vec<Value> {
        let text = text(&self.folder.path().join("journal.jsonl"));
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
