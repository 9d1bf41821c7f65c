//! Extra processes: sleepers in other groups or sessions, orphans, zombies, storms. Each is this program again.

use super::journal::Journal;
use super::script::{Script, SessionKind, Spawn};
use nix::sys::signal::{SigHandler, Signal};
use std::io;
use std::process::{Child, Command, ExitCode, Stdio};

/// The hidden sub-command.
pub const COMMAND: &str = "__helper";

/// This program again. `/proc/self/exe` also works where the file was replaced or `argv[0]` is a bare name.
pub fn myself(command: &str) -> io::Result<Command> {
    let by_name = || std::env::args_os().next().map(Into::into);
    let Some(program) = std::env::current_exe().ok().or_else(by_name) else {
        return Err(io::Error::new(io::ErrorKind::NotFound, "this program's own file"));
    };
    let mut child = Command::new(program);
    child.arg(command);
    Ok(child)
}

/// Starts the extra processes; `socket` becomes their stdin, which is how they hold it open.
pub fn spawn(what: &Spawn, socket: Option<std::os::fd::BorrowedFd<'_>>) -> io::Result<Vec<Child>> {
    let mut children = Vec::new();
    for _ in 0..what.count {
        let mut command = myself(COMMAND)?;
        command.arg(match what.session {
            SessionKind::Shared => "shared",
            SessionKind::OwnGroup => "own_group",
            SessionKind::OwnSession => "own_session",
        });
        command.args(what.orphan.then_some("orphan")).args(what.deaf.then_some("deaf"));
        command.stdin(match socket {
            Some(fd) => Stdio::from(fd.try_clone_to_owned()?),
            None => Stdio::null(),
        });
        let mut child = command.spawn()?;
        if what.orphan {
            // The middle one exits as soon as the last one runs.
            child.wait()?;
        } else {
            children.push(child);
        }
    }
    Ok(children)
}

/// Many short-lived processes whose parents are gone before they are.
pub fn fork_storm(count: u32) -> io::Result<()> {
    for _ in 0..count {
        myself(COMMAND)?.args(["shared", "orphan", "brief"]).stdin(Stdio::null()).spawn()?.wait()?;
    }
    Ok(())
}

/// Dead children that nobody waits for.
pub fn zombies(count: u32) -> io::Result<()> {
    for _ in 0..count {
        // Dropping the handle leaves the child to whoever inherits it.
        drop(myself(COMMAND)?.args(["shared", "brief"]).stdin(Stdio::null()).spawn()?);
    }
    Ok(())
}

/// Ignores the polite signals.
pub fn go_deaf() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        ignore(signal);
    }
}

/// Ignores one signal.
pub fn ignore(signal: Signal) {
    #[expect(unsafe_code, reason = "setting SIG_IGN runs no code of ours in signal context")]
    // SAFETY: SIG_IGN is a valid disposition and no handler is installed.
    let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) };
}

/// The helper's own main.
pub fn main(script: &Script, words: &[String]) -> ExitCode {
    let has = |word: &str| words.iter().any(|w| w == word);
    if has("own_group") {
        let _ = nix::unistd::setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(0));
    }
    if has("own_session") {
        let _ = nix::unistd::setsid();
    }
    if has("orphan") {
        let rest = words.iter().filter(|w| !["orphan", "own_group", "own_session"].contains(&w.as_str()));
        let again = myself(COMMAND).and_then(|mut command| command.args(rest).spawn());
        return if again.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if has("brief") {
        return ExitCode::SUCCESS;
    }
    if has("deaf") {
        go_deaf();
    }
    Journal::new(script, "helper").start();
    loop {
        nix::unistd::pause();
    }
}
