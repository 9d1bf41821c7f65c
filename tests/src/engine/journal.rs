//! What each process of the stand-in saw, for tests: one JSON object a line, appended in one write.

use super::script::Script;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;

/// Appends to the script's journal; does nothing without one.
#[derive(Debug, Clone)]
pub struct Journal {
    path: Option<std::path::PathBuf>,
    role: &'static str,
    /// Descriptors that were open at the start: what the parent let through.
    inherited: Vec<u32>,
    /// Signals that were blocked at the start, as /proc has them.
    blocked: String,
}

impl Journal {
    /// The journal of one process; made before anything else is opened.
    pub fn new(script: &Script, role: &'static str) -> Self {
        let inherited = if script.journal.is_some() { open_fds() } else { Vec::new() };
        let blocked = if script.journal.is_some() { blocked_signals() } else { String::new() };
        Self { path: script.journal.clone(), role, inherited, blocked }
    }

    /// The process' start: argv, environment, identity and inherited descriptors.
    pub fn start(&self) {
        let pid = nix::unistd::getpid();
        let sid = nix::unistd::getsid(None).map_or(-1, nix::unistd::Pid::as_raw);
        let env: serde_json::Map<String, Value> = std::env::vars_os()
            .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned().into()))
            .collect();
        let argv: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let fields = json!({"argv": argv, "env": env, "ppid": nix::unistd::getppid().as_raw(),
            "pgid": nix::unistd::getpgrp().as_raw(), "sid": sid, "fds": self.inherited, "blocked": self.blocked,
            "stdin": std::fs::read_link("/proc/self/fd/0").ok(), "pid": pid.as_raw()});
        self.note("start", fields);
    }

    /// Any other event.
    pub fn note(&self, event: &str, fields: Value) {
        let Some(path) = &self.path else { return };
        let mut line = json!({"role": self.role, "event": event, "pid": std::process::id(),
            "at_ns": monotonic_ns(), "cpu_us": cpu_us()});
        if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
            line.extend(fields);
        }
        let text = format!("{line}\n");
        // The journal is for the test that asked for it: a server must not fail because of it.
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
            let _ = file.write_all(text.as_bytes());
        }
    }
}

impl Drop for Journal {
    /// A process that ends by itself says so last.
    fn drop(&mut self) {
        self.note("end", json!({}));
    }
}

/// The mask of blocked signals, in hex.
fn blocked_signals() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or_default().trim().to_owned()
}

/// `CLOCK_MONOTONIC`, which every process of this machine shares.
fn monotonic_ns() -> i64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

/// CPU time of this process so far, both modes, microseconds.
fn cpu_us() -> i64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let of = |t: nix::sys::time::TimeVal| t.tv_sec() * 1_000_000 + t.tv_usec();
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| of(usage.user_time()) + of(usage.system_time()))
}

/// Numbers of the open descriptors, without the one that lists them.
fn open_fds() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let links = entries.filter_map(Result::ok).filter_map(|e| {
        let number = e.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(e.path()).ok()?;
        (!target.starts_with("/proc")).then_some(number)
    });
    let mut found: Vec<u32> = links.collect();
    found.sort_unstable();
    found
}
