//! What the client asks of the machine: descriptors, cores, its own CPU time.

use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::unistd::Pid;

use crate::load::plan::Plan;

/// Descriptors that are not connections.
const SPARE: u64 = 64;

/// A machine that cannot run the plan.
#[derive(Debug, thiserror::Error)]
pub enum BadHost {
    /// Too few descriptors.
    #[error(
        "--concurrency {wanted} needs {} open files and the hard limit is {hard}; raise it (ulimit -Hn) or lower \
         --concurrency", *wanted as u64 + SPARE
    )]
    Files {
        /// Connections.
        wanted: usize,
        /// Limit.
        hard: u64,
    },
    /// No such core.
    #[error("--cpus {cpus:?}: {source}; give cores that this process may use")]
    Cpus {
        /// As given.
        cpus: Vec<usize>,
        /// Why.
        source: Errno,
    },
}

/// Raises the soft limit of open files and binds this thread to its cores.
pub fn prepare(plan: &Plan) -> Result<(), BadHost> {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if (plan.concurrency as u64).saturating_add(SPARE) > hard {
            return Err(BadHost::Files { wanted: plan.concurrency, hard });
        }
        if soft < hard {
            // A failure shows as requests of class client_fault, should they ever need more than the soft limit.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
    if plan.cpus.is_empty() {
        return Ok(());
    }
    bind(&plan.cpus).map_err(|source| BadHost::Cpus { cpus: plan.cpus.clone(), source })
}

/// Binds the calling thread.
pub fn bind(cpus: &[usize]) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Cores that the calling thread may use.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// CPU time of the calling thread so far, user and system.
pub fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0))
    };
    micros(usage.user_time()) + micros(usage.system_time())
}

/// Resident memory at its highest, bytes.
pub fn peak_memory() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    u64::try_from(usage.max_rss()).ok().map(|kilobytes| kilobytes * 1024)
}
