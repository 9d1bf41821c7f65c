//! A trial under the controller: its folder, its script, its document, and what is left of it afterwards.

use crate::patience::{patience, until};
use crate::processes::{Guarded, Process, all};
use crate::programs;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// A trial that can be run.
#[derive(Debug)]
pub struct Controlled {
    folder: tempfile::TempDir,
    config: Value,
    script: Value,
    extra: Vec<String>,
}

/// A trial under way.
#[derive(Debug)]
pub struct Running {
    controlled: Controlled,
    process: Guarded,
}

/// A trial that ended.
#[derive(Debug)]
pub struct Ended {
    /// How the controller ended.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// The document; null where there is none.
    pub document: Value,
    /// The trial's folder still.
    pub controlled: Controlled,
    /// What it started lives until the test ends: a helper goes on after its controller.
    _guard: Guarded,
}

impl Controlled {
    /// A small trial in the process runtime, with changes, on an engine that follows a script.
    ///
    /// # Panics
    /// Without a folder for it.
    pub fn new(changes: &Value, script: Value) -> Self {
        let folder = tempfile::Builder::new().prefix("ts-ctl-").tempdir().expect("a folder");
        let mut config = json!({
            "runtime": "process", "model": "m", "num_prompts": 8, "input_len": 16, "output_len": 8, "max_concurrency": 4,
            "steps": 2, "warmup_steps": 1, "ready_timeout_sec": 120, "bench_timeout_sec": 120, "teardown_grace_sec": 5,
            "lease_sec": 1, "work_dir": folder.path().join("w"), "agent_path": programs::agent(), "require_gpu": false,
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Self { folder, config, script, extra: Vec::new() }
    }

    /// The same on the real engine: an image from scratch that holds the stand-in alone.
    pub fn docker(changes: &Value, script: &Value) -> Self {
        Self::container("docker", image(), changes, script)
    }

    /// The same with podman, in an image that it has.
    pub fn podman(image: &str, changes: &Value, script: &Value) -> Self {
        Self::container("podman", image, changes, script)
    }

    fn container(runtime: &str, image: &str, changes: &Value, script: &Value) -> Self {
        let own = json!({
            "runtime": runtime, "image": image, "pull": "never",
            "_aorta_trial_env": { "FAKE_TS_SCRIPT": script.to_string() },
        });
        let mut trial = Self::new(&own, Value::Null);
        for (key, value) in changes.as_object().into_iter().flatten() {
            trial.config[key] = value.clone();
        }
        trial
    }

    /// Names and states of the containers of this folder's trials, a line each.
    ///
    /// # Panics
    /// When the engine does not answer.
    pub fn containers(&self) -> String {
        let filter = format!("label=ts-bench.out={}", self.out().display());
        client(self.client(), &["ps", "-a", "--no-trunc", "--filter", &filter, "--format", "{{.Names}} {{.State}}"])
    }

    /// The client that knows its containers; sweeps of a folder may have some of docker's whatever its own runtime.
    fn client(&self) -> &'static str {
        if self.config["runtime"] == json!("podman") { "podman" } else { "docker" }
    }

    /// With more changes.
    ///
    /// # Panics
    /// Unless the changes are an object.
    #[must_use]
    pub fn changed(mut self, changes: &Value) -> Self {
        for (key, value) in changes.as_object().expect("an object of changes") {
            self.config[key] = value.clone();
        }
        self
    }

    /// With one more argument of `controller run`.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.extra.push(arg.to_owned());
        self
    }

    /// The folder that everything of the trial lies in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Exports and logs.
    pub fn out(&self) -> PathBuf {
        self.folder().join(format!("w/u{}/out", nix::unistd::geteuid()))
    }

    /// Where the document goes.
    pub fn result(&self) -> PathBuf {
        self.folder().join("result.json")
    }

    /// The command, ready to be changed.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn command(&self) -> Command {
        let config = self.folder().join("config.json");
        fs::write(&config, self.config.to_string()).expect("config");
        let mut command = Command::new(programs::controller());
        let engine = programs::tokenspeed();
        let path = format!("{}:/usr/bin:/bin", engine.parent().unwrap_or(Path::new("/")).display());
        command.args(["run", "--progress", "plain", "--config"]).arg(config);
        if !self.extra.iter().any(|arg| arg == "--result") {
            command.arg("--result").arg(self.result());
        }
        command.args(&self.extra).env("PATH", path).env("FAKE_TS_SCRIPT", self.script.to_string());
        // The registry of this trial alone.
        command.env("TMPDIR", self.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts it.
    pub fn start(self) -> Running {
        let mut command = self.command();
        self.start_as(&mut command)
    }

    /// Starts a changed command.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_as(self, command: &mut Command) -> Running {
        let process = Guarded::spawn(command).expect("the controller");
        Running { controlled: self, process }
    }

    /// Runs it to its end.
    pub fn run(self) -> Ended {
        self.start().end()
    }

    /// Processes whose environment names the trial's folder; zombies have none.
    pub fn processes(&self) -> Vec<Process> {
        let wanted = self.folder().display().to_string();
        let names = |pid: i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environ).contains(&wanted)
        };
        all().into_iter().filter(|process| names(process.pid)).collect()
    }

    /// Nothing of the trial lives, no socket, no lease, no entry on the list of living trials.
    ///
    /// # Panics
    /// When something is left after a while.
    pub fn assert_nothing_left(&self) {
        let deadline = Instant::now() + patience();
        loop {
            let (processes, listed) = (self.processes(), files_of_registry(self.folder()));
            let mut small = files(&self.out());
            small.retain(|name| name.starts_with("lease.") || name.starts_with("agent."));
            if processes.is_empty() && small.is_empty() && listed.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "left of {}: files {small:?}, on the list of living trials {listed:?}, processes {processes:#?}",
                self.folder().display()
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Text of the trial's journal so far.
    pub fn journal(&self) -> String {
        let named = |name: &String| name.starts_with("events.");
        let name = files(&self.out()).into_iter().find(named);
        name.and_then(|name| fs::read_to_string(self.out().join(name)).ok()).unwrap_or_default()
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        // A test that failed must not leave its engine behind.
        if self.config["runtime"] != json!("process") {
            let names = self.containers();
            for name in names.lines().filter_map(|line| line.split(' ').next()) {
                let _ = Command::new(self.client()).args(["rm", "-f", name]).output();
            }
        }
        for process in self.processes() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(process.pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// One call of docker that must work; its stdout.
pub fn docker(args: &[&str]) -> String {
    client("docker", args)
}

/// One call of a container client that must work; its stdout.
///
/// # Panics
/// When it does not.
pub fn client(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect(program);
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// An image from scratch with the static stand-in on its PATH; built once.
///
/// # Panics
/// When it cannot be built.
pub fn image() -> &'static str {
    static IMAGE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    IMAGE.get_or_init(|| {
        let context = tempfile::tempdir().expect("a folder");
        fs::copy(programs::tokenspeed(), context.path().join("tokenspeed")).expect("the stand-in");
        let file = "FROM scratch\nCOPY tokenspeed /bin/tokenspeed\nENV PATH=/bin\n";
        fs::write(context.path().join("Dockerfile"), file).expect("a Dockerfile");
        docker(&["build", "--quiet", &context.path().display().to_string()])
    })
}

/// Names in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Entries of the list of living trials that lie below a TMPDIR.
fn files_of_registry(tmp: &Path) -> Vec<String> {
    files(&tmp.join(format!("ts-bench-u{}", nix::unistd::geteuid())))
}

impl Running {
    /// The trial.
    pub const fn trial(&self) -> &Controlled {
        &self.controlled
    }

    /// The controller.
    pub const fn controller(&mut self) -> &mut Guarded {
        &mut self.process
    }

    /// Waits until the agent's journal holds a text.
    pub fn until_journal(&self, text: &str) {
        until(&format!("{text} in the journal"), || self.controlled.journal().contains(text).then_some(()));
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not come.
    pub fn end(mut self) -> Ended {
        let (mut out, mut err) = (self.process.child().stdout.take(), self.process.child().stderr.take());
        let read = |stream: Option<&mut dyn std::io::Read>| {
            let mut text = Vec::new();
            if let Some(stream) = stream {
                let _ = stream.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        };
        let (stdout, stderr) = std::thread::scope(|scope| {
            let stderr = scope.spawn(|| read(err.as_mut().map(|e| e as &mut dyn std::io::Read)));
            (read(out.as_mut().map(|o| o as &mut dyn std::io::Read)), stderr.join().unwrap_or_default())
        });
        let status = self.process.wait();
        let text = fs::read_to_string(self.controlled.result()).unwrap_or_default();
        let document = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ended { status, stdout, stderr, document, controlled: self.controlled, _guard: self.process }
    }
}

impl Ended {
    /// The reasons of the failures, in order.
    pub fn reasons(&self) -> Vec<&str> {
        let details = self.document["failure_details"].as_array();
        details.into_iter().flatten().filter_map(|detail| detail["reason"].as_str()).collect()
    }
}
