//! A running stand-in for tests: started with a script, awaited, asked for its truth, ended with the test.

use crate::engine::gateway::truth::Report;
use crate::engine::script::VARIABLE;
use crate::patience::until;
use crate::ports::FreePort;
use crate::processes::Guarded;
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// `tokenspeed serve MODEL`, model `m`.
#[derive(Debug)]
pub struct Server {
    /// The orchestrator.
    pub process: Guarded,
    /// Port of the OpenAI surface.
    pub gateway: FreePort,
    /// Port of `/health`.
    pub control: FreePort,
    program: PathBuf,
    script: String,
    folder: TempDir,
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Head and body as they came.
    pub text: String,
}

impl Answer {
    /// The body.
    pub fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// One request on a connection of its own; `None` where nobody listens or no answer comes.
pub fn request(port: u16, method: &str, path: &str, body: &str) -> Option<Answer> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(crate::patience::patience())).ok()?;
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let whole = socket.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    whole.ok().or((!text.is_empty()).then_some(0))?;
    Some(Answer { status: text.split(' ').nth(1)?.parse().ok()?, text })
}

impl Server {
    /// Starts the program with a script; does not wait.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(program: &Path, script: &Value) -> Self {
        Self::start_with(program, script, &[])
    }

    /// The same with more arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_with(program: &Path, script: &Value, more: &[&str]) -> Self {
        let (gateway, control) = (FreePort::find(), FreePort::find());
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut script = script.clone();
        script["journal"] = Value::from(folder.path().join("journal.jsonl").to_string_lossy());
        let script = script.to_string();
        let log = File::create(folder.path().join("server.log")).expect("a log");
        let mut command = Command::new(program);
        command.args(["serve", "m", "--host", "127.0.0.1", "--port", &gateway.number().to_string()]);
        command.args(["--control-port", &control.number().to_string()]).args(more).env(VARIABLE, &script);
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let process = Guarded::spawn(&mut command).expect("the stand-in starts");
        Self { process, gateway, control, program: program.into(), script, folder }
    }

    /// Starts it and waits until the control port says 200.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn ready(program: &Path, script: &Value) -> Self {
        let mut server = Self::start(program, script);
        server.await_health();
        server
    }

    /// Waits until the control port says 200.
    ///
    /// # Panics
    /// When it ends before, or never does.
    pub fn await_health(&mut self) {
        until("a healthy server", || {
            assert!(self.process.ended().is_none(), "the server ended: {}", self.log());
            self.health().filter(|answer| answer.status == 200)
        });
    }

    /// `GET /health` of the control port.
    pub fn health(&self) -> Option<Answer> {
        request(self.control.number(), "GET", "/health", "")
    }

    /// `http://127.0.0.1:PORT` of the gateway.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway.number())
    }

    /// What really happened.
    ///
    /// # Panics
    /// When the gateway does not answer.
    pub fn truth(&self) -> Report {
        let answer = request(self.gateway.number(), "GET", "/truth", "").expect("the gateway answers");
        serde_json::from_str(answer.body()).expect("the truth")
    }

    /// Forgets what happened.
    ///
    /// # Panics
    /// When the gateway does not answer.
    pub fn reset_truth(&self) {
        let answer = request(self.gateway.number(), "POST", "/truth/reset", "").expect("the gateway answers");
        assert_eq!(answer.status, 200);
    }

    /// Makes a server fault happen now.
    ///
    /// # Panics
    /// When the gateway does not take it.
    pub fn fault(&self, action: &Value) {
        let answer =
            request(self.gateway.number(), "POST", "/fault", &action.to_string()).expect("the gateway answers");
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// `bench serve` against it with the same script and a fresh folder's `out.json`; arguments after the target.
    pub fn bench(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "serve", "--base-url", &self.url(), "--model", "m", "--disable-tqdm"]).args(args);
        command.env(VARIABLE, &self.script);
        command
    }

    /// A folder that lives as long as the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// stdout and stderr so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The journal so far.
    pub fn journal(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("journal.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
