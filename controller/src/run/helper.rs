//! The detached helper: goes on removing a container whose controller had to die by its signal (design section 6). It
//! is this program again, in a session of its own, writing to `<out>/reaper.<token>.log`.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use proto::names::{self, RunToken};

use super::cli::Cli;
use super::container::Container;
use super::prepare::Prepared;
use super::reap;
use super::registry::Registry;
use super::removal::{self, Pace};
use super::timings::Timings;
use crate::result::document::ReaperRecord;
use crate::result::observed::{Removal, RunIdentity};

/// Starts it; `None` where there is nothing that it could remove, or it cannot be started.
pub fn spawn(prepared: &Prepared, identity: &RunIdentity, timings: &Timings) -> Option<ReaperRecord> {
    let (client, container) = (prepared.client.as_ref()?, identity.container.as_ref()?);
    let log = identity.out_dir.join(names::reaper_log(&identity.token));
    let open = || OpenOptions::new().append(true).create(true).mode(0o644).custom_flags(libc::O_NOFOLLOW).open(&log);
    let (out, err) = match open().and_then(|file| Ok((file.try_clone()?, file))) {
        Ok((out, err)) => (Stdio::from(out), Stdio::from(err)),
        // A full disk must not keep the container alive.
        Err(_) => (Stdio::null(), Stdio::null()),
    };
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("reap")
        .args(["--helper-for", identity.token.as_str()])
        .arg("--helper-client")
        .arg(client)
        .args(["--helper-container", container])
        .args(["--helper-seconds", &timings.helper.as_secs().to_string()])
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    // SAFETY: setsid is async-signal-safe and touches no memory of ours.
    #[expect(unsafe_code, reason = "pre_exec is the only way into a new session")]
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(std::io::Error::from));
    }
    match command.spawn() {
        Ok(child) => Some(ReaperRecord { pid: child.id(), log: log.display().to_string() }),
        Err(error) => {
            tracing::error!("no helper could be started: {error}; by hand: {}", prepared.runtime.by_hand());
            None
        }
    }
}

/// Takes the trial off the list and its small files away, once its controller is dead: that takes a moment longer than
/// the removal may have taken. What is not forgotten here is left to the next `run` or `reap`.
async fn forget(token: &RunToken) {
    let Ok(registry) = Registry::open(None) else { return };
    for _ in 0..50 {
        if let Some(out_dir) = registry.forget_dead(token) {
            return reap::small_files(&out_dir, token);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the helper does: removes and proves until it is done or its time is over. `true` when nothing is left.
pub async fn run(client: &Path, container: &str, token: &RunToken, limit: Duration) -> bool {
    let runtime = Container::new(Cli::new(client), container.to_owned(), token.clone());
    let (_keep, until) = removal::deadline(limit);
    // The controller is gone, its client is killed: what the daemon was still creating must be waited for.
    let pace = Pace { passes: 1, absences: 3, look_first: true };
    let outcome = removal::remove(&runtime, pace, until, &Timings::default()).await;
    match outcome.removal {
        Removal::Proven | Removal::NotNeeded => {
            tracing::info!("{container} is gone");
            forget(token).await;
            true
        }
        Removal::NotProven { detail, command } => {
            tracing::error!("{container} is not proven to be gone: {detail}; by hand: {command}");
            false
        }
    }
}
