//! The original, behind one long-lived process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tests::needs;

/// What the other side said.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Accepted, with what it makes of it.
    Accepted(Value),
    /// Refused, in its words.
    Refused(String),
}

pub(crate) struct Worker {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts it; `None` where the environment cannot be had, which is counted as a skip.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let venv: PathBuf = needs::venv(test, "aorta")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/differential.py");
        let mut child = Command::new(venv.join("bin/python"))
            .arg(script)
            .env_remove("HF_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter of the environment starts");
        let ask = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Some(Self { child, ask, answers })
    }

    /// One question, one answer.
    pub(crate) fn ask(&mut self, question: &Value) -> Answer {
        writeln!(self.ask, "{question}").expect("the worker reads");
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("the worker answers");
        assert!(read > 0, "the worker ended at {question}");
        let mut answer: Value = serde_json::from_str(&line).expect("JSON");
        if answer["ok"] == true {
            Answer::Accepted(answer["value"].take())
        } else {
            Answer::Refused(answer["error"].as_str().unwrap_or_default().to_owned())
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
