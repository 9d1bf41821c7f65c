//! Cleaning what proven-dead trials left (design section 6): entries of the registry, and containers that carry our
//! labels although no entry tells of them. Everything that is not proven dead is named and left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::finding::{Finding, FindingId};
use proto::names::{self, RunToken};

use super::cli::Cli;
use super::container::Container;
use super::identity::{Life, ProcessIdentity, Stat, descendants};
use super::lease::{self, LeaseState};
use super::registry::{Entry, Found, Registry};
use super::removal::{self, Pace};
use super::timings::Timings;
use crate::result::observed::Removal;

/// What cleaning found and did.
#[derive(Debug, Default)]
pub struct Report {
    /// Removed, in words.
    pub removed: Vec<String>,
    /// There and not proven dead, in words.
    pub unknown: Vec<String>,
    /// Should be gone and is not.
    pub failed: Vec<String>,
    /// Trials that live.
    pub living: Vec<String>,
}

impl Report {
    /// For the document.
    pub fn findings(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        if !self.removed.is_empty() {
            out.push(Finding::new(
                FindingId::LeftoversRemoved,
                self.removed.join("; "),
                "an earlier controller died without cleaning up; look why it was killed",
            ));
        }
        if !self.unknown.is_empty() || !self.failed.is_empty() {
            let all: Vec<_> = self.unknown.iter().chain(&self.failed).cloned().collect();
            out.push(Finding::new(
                FindingId::LeftoversUnknown,
                all.join("; "),
                "look at each: it may hold a GPU or a port; remove it by hand if nobody needs it",
            ));
        }
        out
    }
}

/// How far cleaning goes.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Only say what would be done.
    pub dry_run: bool,
    /// For one client call and for one agent to end.
    pub patience: Duration,
}

/// Cleans the registry, and then the containers of these clients that no entry told of.
pub async fn clean(registry: &Registry, clients: &[PathBuf], scope: Scope, timings: &Timings) -> Report {
    let mut report = Report::default();
    let mut known = Vec::new();
    for found in registry.entries() {
        known.push(found.entry.token.clone());
        match found.life {
            Life::Alive => report.living.push(describe(&found.entry)),
            Life::Unknown => {
                report.unknown.push(format!("{} (its controller is not proven dead)", describe(&found.entry)));
            }
            Life::Dead if scope.dry_run => report.removed.push(format!("would remove {}", describe(&found.entry))),
            Life::Dead => dead_entry(&found, scope, timings, &mut report).await,
        }
    }
    for client in clients {
        labelled(&Cli::new(client), &known, scope, timings, &mut report).await;
    }
    report
}

fn describe(entry: &Entry) -> String {
    match (&entry.container, &entry.agent) {
        (Some(container), _) => format!("container {container}"),
        (None, Some(agent)) => format!("agent {} of trial {}", agent.pid, entry.token),
        (None, None) => format!("trial {}", entry.token),
    }
}

async fn dead_entry(found: &Found, scope: Scope, timings: &Timings, report: &mut Report) {
    let Ok(token) = RunToken::parse(&found.entry.token) else { return };
    let gone = match (&found.entry.client, &found.entry.container, &found.entry.agent) {
        (Some(client), Some(container), _) => {
            remove_container(&Cli::new(client), container, &token, scope, timings).await
        }
        (_, _, Some(agent)) => end_agent(agent, scope.patience).await,
        _ => Ok(false),
    };
    match gone {
        Ok(was_there) => {
            small_files(&found.entry.out_dir, &token);
            let _ = found.forget();
            if was_there {
                report.removed.push(describe(&found.entry));
            }
        }
        Err(why) => report.failed.push(format!("{}: {why}", describe(&found.entry))),
    }
}

/// Socket and lease of a trial that is over: they hold nothing that anybody would read.
pub fn small_files(out_dir: &Path, token: &RunToken) {
    for name in [names::socket(token), names::lease(token)] {
        let _ = fs::remove_file(out_dir.join(name));
    }
}

/// Whether it was there; an error when its absence could not be proven.
async fn remove_container(
    cli: &Cli,
    name: &str,
    token: &RunToken,
    scope: Scope,
    timings: &Timings,
) -> Result<bool, String> {
    let runtime = Container::new(cli.clone(), name.to_owned(), token.clone());
    let (_keep, until) = removal::deadline(scope.patience);
    let pace = Pace { passes: 0, absences: 1, look_first: true };
    let outcome = removal::remove(&runtime, pace, until, timings).await;
    match outcome.removal {
        Removal::Proven | Removal::NotNeeded => Ok(outcome.was_there),
        Removal::NotProven { detail, command } => Err(format!("{detail}; by hand: {command}")),
    }
}

/// SIGTERM, patience, SIGKILL to the agent and to what descends from it.
async fn end_agent(agent: &ProcessIdentity, patience: Duration) -> Result<bool, String> {
    match agent.life() {
        Life::Dead => return Ok(false),
        Life::Unknown => return Err("its agent is not proven dead".to_owned()),
        Life::Alive => {}
    }
    let tree: Vec<Stat> = descendants(agent.pid);
    let _ = kill(Pid::from_raw(agent.pid), Signal::SIGTERM);
    if !gone_within(agent, patience).await {
        for stat in descendants(agent.pid).iter().chain(&tree) {
            kill_exactly(stat);
        }
        if agent.life() == Life::Alive {
            let _ = kill(Pid::from_raw(agent.pid), Signal::SIGKILL);
        }
        if !gone_within(agent, Duration::from_secs(5)).await {
            return Err("it does not end on SIGKILL".to_owned());
        }
    }
    // What the agent did not take along.
    tree.iter().for_each(kill_exactly);
    Ok(true)
}

/// SIGKILL, if the number is still the same process.
fn kill_exactly(stat: &Stat) {
    if Stat::of(stat.pid).is_some_and(|now| now.start_time == stat.start_time) {
        let _ = kill(Pid::from_raw(stat.pid), Signal::SIGKILL);
    }
}

async fn gone_within(process: &ProcessIdentity, patience: Duration) -> bool {
    let until = tokio::time::Instant::now() + patience;
    while process.life() == Life::Alive {
        if tokio::time::Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// A container that carries our labels.
#[derive(Debug, PartialEq, Eq)]
struct Labelled {
    name: String,
    token: RunToken,
    owner: ProcessIdentity,
    out_dir: PathBuf,
}

const FORMAT: &str = concat!(
    "{{.Names}}\t{{.Label \"ts-bench.run-token\"}}\t{{.Label \"ts-bench.uid\"}}\t{{.Label \"ts-bench.boot-id\"}}",
    "\t{{.Label \"ts-bench.pidns\"}}\t{{.Label \"ts-bench.host-pid\"}}\t{{.Label \"ts-bench.start-time\"}}",
    "\t{{.Label \"ts-bench.out\"}}"
);

fn labelled_line(line: &str, uid: u32) -> Option<Labelled> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, token, owner_uid, boot_id, pidns, pid, start_time, out] = fields.try_into().ok()?;
    if owner_uid.parse() != Ok(uid) {
        return None;
    }
    Some(Labelled {
        name: name.split(',').next()?.trim_start_matches('/').to_owned(),
        token: RunToken::parse(token).ok()?,
        owner: ProcessIdentity {
            boot_id: boot_id.to_owned(),
            pid_namespace: pidns.parse().ok()?,
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        },
        out_dir: PathBuf::from(out),
    })
}

async fn labelled(cli: &Cli, known: &[String], scope: Scope, timings: &Timings, report: &mut Report) {
    let uid = nix::unistd::geteuid().as_raw();
    let filter = format!("label=ts-bench.uid={uid}");
    let args = ["ps", "-a", "--no-trunc", "--filter", &filter, "--format", FORMAT];
    // A host without this client, or without its daemon, has none of its containers in reach.
    let Ok(answer) = cli.call(&args, scope.patience).await else { return };
    for found in answer.stdout.lines().filter_map(|line| labelled_line(line, uid)) {
        if known.iter().any(|token| token == found.token.as_str()) {
            continue;
        }
        let lease = lease::look(&found.out_dir.join(names::lease(&found.token)));
        let free = matches!(lease, LeaseState::Free | LeaseState::Missing);
        let name = format!("container {}", found.name);
        match found.owner.life() {
            Life::Alive => report.living.push(name),
            Life::Dead if !free => report.unknown.push(format!("{name} (its lease is held)")),
            Life::Unknown => report.unknown.push(format!("{name} (its controller is not proven dead)")),
            Life::Dead if scope.dry_run => report.removed.push(format!("would remove {name}")),
            Life::Dead => match remove_container(cli, &found.name, &found.token, scope, timings).await {
                Ok(_) => {
                    small_files(&found.out_dir, &found.token);
                    report.removed.push(name);
                }
                Err(why) => report.failed.push(format!("{name}: {why}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-17.
    #[test]
    fn labels_of_another_user_or_of_nobody_are_passed_over() {
        let line = |uid: &str| format!("t-1\t7-1\t{uid}\tboot\t4026531836\t7\t4711\t/out");
        let found = labelled_line(&line("5"), 5).unwrap();
        assert_eq!((found.name.as_str(), found.owner.pid, found.owner.start_time), ("t-1", 7, 4711));
        assert_eq!(labelled_line(&line("6"), 5), None);
        assert_eq!(labelled_line("t-1\t\t\t\t\t\t\t", 5), None);
        assert_eq!(labelled_line("t-1\t../x\t5\tb\t1\t7\t1\t/out", 5), None);
    }

    #[tokio::test]
    async fn the_agent_of_a_dead_controller_is_ended_with_its_children() {
        // Ignores SIGTERM, as does its child.
        let mut agent = std::process::Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; sh -c \"trap '' TERM; echo up; while :; do sleep 1; done\" & wait; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(agent.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        let identity = ProcessIdentity::of(i32::try_from(agent.id()).unwrap()).unwrap();
        let tree = descendants(identity.pid);
        assert!(!tree.is_empty());
        assert_eq!(end_agent(&identity, Duration::from_millis(100)).await, Ok(true));
        agent.wait().unwrap();
        assert_eq!(identity.life(), Life::Dead);
        for stat in tree {
            let gone = ProcessIdentity { start_time: stat.start_time, pid: stat.pid, ..identity.clone() };
            assert!(gone_within(&gone, Duration::from_secs(20)).await, "{stat:?}");
        }
    }
}
