//! Starting children: own session or group, no stdin, clean signals, explicit environment, no descriptor of ours.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nix::unistd::Pid;

use super::Setup;
use super::group::Group;
use crate::config::Argv;

/// How a child stands apart from us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// A session of its own: the server.
    Session,
    /// A group of its own: bench and queries.
    Group,
}

/// Where a child's output goes.
#[derive(Debug)]
pub(super) enum Output {
    /// Both streams to the end of one file.
    File(File),
    /// Stdout into a pipe, stderr nowhere.
    Pipe(OwnedFd),
}

/// Starts a child and returns its group. The caller reaps it.
pub(super) fn spawn(setup: &Setup, argv: &Argv, apart: Apart, output: Output) -> io::Result<Group> {
    let mut command = Command::new(&argv.program);
    command.args(&argv.args).env_clear().envs(setup.environment.iter().map(|(k, v)| (k, v)));
    command.stdin(no_input()?);
    match output {
        Output::File(file) => command.stdout(file.try_clone()?).stderr(file),
        Output::Pipe(fd) => command.stdout(fd).stderr(nowhere()),
    };
    before_exec(&mut command, apart);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
    // The handle is dropped without waiting: there is one reaper.
    Group::of(pid).ok_or_else(|| io::Error::other("the child has no group of its own"))
}

#[expect(unsafe_code, reason = "between fork and exec: only async-signal-safe calls, no allocation")]
fn before_exec(command: &mut Command, apart: Apart) {
    let setup = move || {
        // SAFETY: setsid, setpgid, signal, sigprocmask, prctl and close_range are plain system calls on the
        // calling process; nothing here touches memory that another thread of the parent could hold locked.
        unsafe {
            match apart {
                Apart::Session => libc::setsid(),
                Apart::Group => libc::setpgid(0, 0),
            };
            // An ignored disposition is inherited over exec: under nohup SIGHUP would be.
            for signal in 1..=libc::SIGRTMAX() {
                if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            // Ours is blocked, for the signalfd; a child that inherits that cannot be ended by SIGTERM.
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            // A second net under the sweep: children are spawned by the main thread, which lives as long as
            // the process (failure scenario FS-32).
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            // Whatever we were started with stays ours; kernels before 5.11 lack the call.
            libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        }
        Ok(())
    };
    // SAFETY: see above.
    unsafe {
        command.pre_exec(setup);
    }
}

/// `/dev/null`, or where an image has none a pipe that nobody writes to: end of file at once (FS-43).
fn no_input() -> io::Result<Stdio> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        Err(_) => io::pipe().map(|(reader, _)| reader.into()),
    }
}

/// `/dev/null`, or where an image has none the agent's own stderr.
fn nowhere() -> Stdio {
    OpenOptions::new().write(true).open("/dev/null").map_or_else(|_| Stdio::inherit(), Stdio::from)
}

/// Creates a file of ours afresh, for appending: what an earlier run with the same token left goes first, and
/// no link is followed. Nobody else may read what children print; only where the folder belongs to another uid (a
/// container that runs as root for a caller who does not) must its owner be able to.
pub(super) fn create_log(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = std::fs::metadata(folder)?.uid() == nix::unistd::geteuid().as_raw();
    let mode = if own { 0o600 } else { 0o644 };
    OpenOptions::new().append(true).create_new(true).mode(mode).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// An exit status as a shell shows it: 128 + n for a signal.
pub(super) fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(-1)
}
