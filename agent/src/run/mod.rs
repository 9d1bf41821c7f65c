//! One trial: server up, truly serving, bench steps, audit, teardown.
//!
//! One thread decides. [`driver::Driver`] selects over signals (child exits among them), answers of probes
//! and audits, deadlines and commands; each becomes an [`machine::Input`]; [`machine::Machine::step`], which
//! has no clock and does no I/O, returns effects; the driver performs them. Everything that could wait
//! happens elsewhere: probes and audits in tasks, the lease and the copying of logs in threads, stdout
//! behind a bounded queue.
//!
//! The driver is the only one who spawns and the only one who reaps, so nobody can steal a status: an
//! orphan that was re-parented here is reaped in passing. Exactly one owner knows each group: the server's
//! (its own session), the bench's (its own group), and at the end the strays that left theirs.

mod audit;
mod child;
mod driver;
mod follow;
mod group;
mod lease;
mod listeners;
pub mod machine;
mod out;
mod pair;
mod perform;
mod probe;
mod query;
mod signals;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use proto::exit::AgentExit;

use crate::config::LaunchPlan;
use crate::timing::{Roots, Timings};

pub use signals::{block as block_signals, restore as restore_signals};

/// Everything that a trial needs to know before it starts.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What to do.
    pub plan: Arc<LaunchPlan>,
    /// The program to serve and, by default, to bench with.
    pub tokenspeed: PathBuf,
    /// This program, which is the bench of `bench_tool: native`.
    pub agent: PathBuf,
    /// Environment of every child, secrets of ours left out.
    pub environment: Vec<(OsString, OsString)>,
    /// How long things may take.
    pub timings: Timings,
    /// Where the system is looked at.
    pub roots: Roots,
}

/// Runs the trial to its end and says how it ended. Signals must be blocked already
/// ([`block_signals`]), since a signal to PID 1 that finds no handler is lost.
///
/// Where this process is not PID 1 it becomes the parent of a pair (design section 6).
pub fn run(setup: Setup) -> AgentExit {
    pair::run(&setup.timings.clone(), setup.plan.teardown_grace_sec, &setup.roots.clone(), move || driver::run(setup))
}

/// Environment of the children: the agent's own without its secret, and loopback kept away from proxies.
pub fn child_environment(own: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    const LOOPBACK: &str = "127.0.0.1,localhost,::1";
    let mut environment: Vec<(OsString, OsString)> =
        own.into_iter().filter(|(name, _)| name != proto::env::TS_GRPC_TOKEN).collect();
    let proxied = environment.iter().any(|(name, _)| name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy"));
    if proxied {
        for name in ["NO_PROXY", "no_proxy"] {
            match environment.iter_mut().find(|(known, _)| known == name) {
                Some((_, value)) if value.is_empty() => *value = LOOPBACK.into(),
                Some((_, value)) => {
                    value.push(",");
                    value.push(LOOPBACK);
                }
                None => environment.push((name.into(), LOOPBACK.into())),
            }
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-45.
    #[test]
    fn children_get_no_secret_and_reach_loopback() {
        let env = |pairs: &[(&str, &str)]| {
            let own: Vec<_> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            child_environment(own)
                .into_iter()
                .map(|(k, v)| format!("{}={}", k.display(), v.display()))
                .collect::<Vec<_>>()
        };
        assert_eq!(env(&[("TS_GRPC_TOKEN", "canary"), ("A", "b")]), ["A=b"]);
        let proxied = env(&[("HTTP_PROXY", "http://p"), ("no_proxy", "x.org")]);
        assert!(proxied.contains(&"no_proxy=x.org,127.0.0.1,localhost,::1".to_owned()), "{proxied:?}");
        assert!(proxied.contains(&"NO_PROXY=127.0.0.1,localhost,::1".to_owned()), "{proxied:?}");
    }
}
