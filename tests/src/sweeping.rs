//! A sweep under test: its folder, its recipe, the script of its engine, and what is left of it afterwards.

use crate::controlled::Controlled;
use crate::patience::{patience, until_or};
use crate::processes::Guarded;
use crate::programs;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// A sweep that can be run, again and again, in a folder of its own.
#[derive(Debug)]
pub struct Sweeping {
    /// Lends the folder, and knows how to look for what is left.
    place: Controlled,
    /// The recipe, as JSON.
    pub recipe: Value,
}

/// A sweep that ended.
#[derive(Debug)]
pub struct Swept {
    /// How.
    pub status: ExitStatus,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Default for Sweeping {
    fn default() -> Self {
        Self::new()
    }
}

impl Sweeping {
    /// Two small cells of two trials with two steps each, in the process runtime.
    pub fn new() -> Self {
        let place = Controlled::new(&json!({}), json!({}));
        let recipe = json!({
            "schema_version": 1, "workload": "ts_bench", "ticket": "T-1", "trials": 2, "steps": 2,
            "workload_config": {
                "runtime": "process", "model": "m", "num_prompts": 4, "input_len": 16, "output_len": 4,
                "max_concurrency": 2, "warmup_steps": 0, "ready_timeout_sec": 60, "bench_timeout_sec": 60,
                "teardown_grace_sec": 5, "lease_sec": 1, "work_dir": place.folder().join("w"),
            },
            "cells": [
                {"name": "baseline-a", "mitigations": ["none"], "environment": "local"},
                {"name": "b", "mitigations": ["hsa_no_sdma"], "environment": "local",
                 "workload_config": {"max_concurrency": 4}},
            ],
        });
        let sweeping = Self { place, recipe };
        sweeping.script(&json!({}));
        sweeping
    }

    /// What the engine does from now on, in trials that start from now on.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn script(&self, script: &Value) {
        fs::write(self.folder().join("script.json"), script.to_string()).expect("the script");
    }

    /// The folder that everything lies in.
    pub fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// The output directory.
    pub fn out(&self) -> PathBuf {
        self.folder().join("out")
    }

    /// One file of the output directory as text; empty where there is none.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.out().join(name)).unwrap_or_default()
    }

    /// One file of the output directory as JSON; null where there is none, or none that can be read.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or(Value::Null)
    }

    /// The command, ready to be changed.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn command(&self, args: &[&str]) -> Command {
        let recipe = self.folder().join("recipe.json");
        fs::write(&recipe, self.recipe.to_string()).expect("the recipe");
        let mut command = Command::new(programs::controller());
        let engine = programs::tokenspeed();
        let path = format!("{}:/usr/bin:/bin", engine.parent().unwrap_or(Path::new("/")).display());
        command.args(["sweep", "--recipe"]).arg(recipe).arg("--output-dir").arg(self.out()).args(args);
        command.env("PATH", path).env("FAKE_TS_SCRIPT", self.folder().join("script.json"));
        // The registry of this sweep alone.
        command.env("TMPDIR", self.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self, args: &[&str]) -> Guarded {
        Guarded::spawn(&mut self.command(args)).expect("the controller")
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Swept {
        Swept::of(&mut self.start(args))
    }

    /// Names and states of the containers of this sweep's trials, a line each.
    pub fn containers(&self) -> String {
        self.place.containers()
    }

    /// Nothing of any trial lives, no lease, no socket.
    pub fn assert_nothing_left(&self) {
        self.place.assert_nothing_left();
    }

    /// Trials that have begun to measure, as their agents' journals say.
    pub fn measuring(&self) -> usize {
        let journals = fs::read_dir(self.place.out()).into_iter().flatten().flatten();
        let journals = journals.filter(|entry| entry.file_name().to_string_lossy().starts_with("events."));
        let texts = journals.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.filter(|text| text.contains("\"name\":\"measure\"")).count()
    }

    /// Names of the trials in the manifest that came to an end that counts, in order: `cell:index status`.
    pub fn ended(&self) -> Vec<String> {
        let manifest = self.json("manifest.json");
        let attempts = manifest["attempts"].as_array().cloned().unwrap_or_default();
        let ended = attempts.iter().filter(|attempt| attempt["end"]["status"] != json!("interrupted"));
        ended
            .map(|attempt| {
                let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
                format!("{}:{} {}", text(&attempt["cell"]), attempt["trial"], text(&attempt["end"]["status"]))
            })
            .collect()
    }
}

impl Swept {
    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not come.
    pub fn of(process: &mut Guarded) -> Self {
        let out = reader(process.child().stdout.take());
        let err = reader(process.child().stderr.take());
        let status = until_or("the end of the sweep", patience() * 6, || process.ended());
        let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        Self { status, stdout, stderr }
    }
}

/// Reads a pipe to its end, beside whatever else is read.
fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
