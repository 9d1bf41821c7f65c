//! Processes under test: started in a group of their own with a mark in their environment, which every descendant
//! inherits whatever session or parent it ends up with. The guard kills all of them when a test ends, however it ends.

use crate::patience::{patience, until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The variable that marks processes.
pub const MARK: &str = "TS_TEST_MARK";

/// One process of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Parent.
    pub ppid: i32,
    /// Group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// `R`, `S`, `T`, `Z`, ...
    pub state: char,
    /// Its command line, words joined by blanks.
    pub command: String,
}

fn process(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses too.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&words).replace('\0', " ").trim().to_owned();
    Some(Process { pid, ppid: parent, pgid: group, sid: session, state, command })
}

/// All processes.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| process(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// Those that carry a mark; zombies have no environment any more and are not among them.
pub fn marked(mark: &str) -> Vec<Process> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let carries = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted)
    };
    all().into_iter().filter(|process| carries(process.pid)).collect()
}

/// Members of a session, zombies among them.
pub fn of_session(sid: i32) -> Vec<Process> {
    all().into_iter().filter(|process| process.sid == sid).collect()
}

/// Members of a process group, zombies among them.
pub fn of_group(pgid: i32) -> Vec<Process> {
    all().into_iter().filter(|process| process.pgid == pgid).collect()
}

/// Waits until nothing with this mark is left.
///
/// # Panics
/// When something is, after [`patience`]; the message lists it.
pub fn assert_gone(mark: &str) {
    let deadline = std::time::Instant::now() + patience();
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "processes that outlived the test: {left:#?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A started program and all that descends from it.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    mark: String,
    status: Option<ExitStatus>,
}

/// A mark that no other test uses.
pub fn new_mark() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Guarded {
    /// Starts a program in a group of its own, without stdin.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mark = new_mark();
        let child = command.env(MARK, &mark).process_group(0).stdin(Stdio::null()).spawn()?;
        Ok(Self { child, mark, status: None })
    }

    /// Its pid, which is its group too.
    ///
    /// # Panics
    /// Never: the kernel's pids fit.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// The mark that its descendants carry.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Its pipes, where it was started with some.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether it has ended, and how.
    ///
    /// # Panics
    /// When the kernel does not say.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child of ours");
        }
        self.status
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not come within [`patience`].
    pub fn wait(&mut self) -> ExitStatus {
        let pid = self.pid();
        until(&format!("the end of process {pid}"), || self.ended())
    }

    /// Signals the process alone.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(self.pid(), signal);
    }

    /// Signals its group.
    pub fn signal_group(&self, signal: Signal) {
        let _ = killpg(self.pid(), signal);
    }

    /// Everything alive that descends from it, itself too.
    pub fn family(&self) -> Vec<Process> {
        marked(&self.mark)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // A group id is only ours as long as its leader is not reaped.
        if self.ended().is_none() {
            let _ = killpg(self.pid(), Signal::SIGKILL);
            let _ = self.child.wait();
        }
        // A fork in progress can escape one sweep; nothing escapes when a whole look finds nobody.
        for _ in 0..100 {
            let left = marked(&self.mark);
            if left.is_empty() {
                break;
            }
            for process in left {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-89.
    #[test]
    fn the_guard_ends_what_left_the_group() {
        let script = "(setsid sleep 300 &) ; trap '' TERM; sleep 300";
        let guarded = Guarded::spawn(Command::new("sh").args(["-c", script])).expect("sh");
        let mark = guarded.mark().to_owned();
        until("three processes", || (guarded.family().len() >= 3).then_some(()));
        let elsewhere = guarded.family().iter().any(|process| process.pgid != guarded.pid().as_raw());
        assert!(elsewhere, "{:?}", guarded.family());
        drop(guarded);
        assert_gone(&mark);
    }
}
