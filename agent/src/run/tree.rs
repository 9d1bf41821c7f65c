//! The process tree, from /proc by hand: cheap, and honest where there is no /proc.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use proto::event::ProcessSample;

/// One process as `/proc/<pid>/stat` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) name: String,
    /// `Z` or `X` is dead already.
    pub(super) state: u8,
    /// User and system time, clock ticks.
    pub(super) ticks: u64,
    /// Since boot, clock ticks: with the pid it names a process for good.
    pub(super) started: u64,
    /// Pages.
    pub(super) resident: u64,
}

impl Process {
    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// Reads `pid (name) state ppid pgrp ...`; the name may hold blanks and parentheses.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (head, rest) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(rest + 1..)?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
    let signed = |at: usize| fields.get(at).and_then(|f| f.parse::<i32>().ok());
    Some(Process {
        pid: text[..head].trim().parse().ok()?,
        name: text.get(head + 1..rest)?.to_owned(),
        state: *fields.first()?.as_bytes().first()?,
        parent: signed(1)?,
        group: signed(2)?,
        ticks: number(11)? + number(12)?,
        started: number(19)?,
        resident: number(21)?,
    })
}

/// Every process that this /proc shows; empty where there is none, or it is of another pid namespace: its numbers
/// would mean other processes here.
pub(super) fn all(proc: &Path) -> Vec<Process> {
    if !is_visible(proc) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.flatten().filter(|e| e.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
    // A process may go away between the two reads: then it is not in the list.
    pids.filter_map(|e| parse_stat(&fs::read(e.path().join("stat")).ok()?)).collect()
}

/// Whether this /proc shows us, under the pid that we have in our own namespace.
pub(super) fn is_visible(proc: &Path) -> bool {
    let shown = fs::read_link(proc.join("self")).ok().and_then(|link| link.to_str()?.parse::<i32>().ok());
    shown == Some(Pid::this().as_raw())
}

/// Pids of the descendants of `root`, itself not among them.
pub(super) fn descendants(processes: &[Process], root: i32) -> HashSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let (mut found, mut open) = (HashSet::new(), vec![root]);
    while let Some(parent) = open.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

/// Living processes that are ours to end: everything else in the namespace for PID 1, otherwise the descendants
/// of this process, which as a subreaper adopts what leaves its group.
///
/// `None` where /proc cannot say.
pub(super) fn strays(proc: &Path) -> Option<Vec<Process>> {
    if !is_visible(proc) {
        return None;
    }
    let own = Pid::this().as_raw();
    let all = all(proc);
    let ours = if own == 1 { None } else { Some(descendants(&all, own)) };
    let is_ours = |p: &Process| ours.as_ref().map_or(p.parent != 0, |ours| ours.contains(&p.pid));
    Some(all.into_iter().filter(|p| p.pid != own && p.is_alive() && is_ours(p)).collect())
}

/// Whether a group has a member that is not a zombie; `None` where /proc cannot say.
pub(super) fn group_lives(proc: &Path, group: i32) -> Option<bool> {
    is_visible(proc).then(|| all(proc).iter().any(|p| p.group == group && p.is_alive()))
}

/// Names and pids for a sentence.
pub(super) fn describe(processes: &[Process]) -> String {
    let shown: Vec<String> = processes.iter().take(20).map(|p| format!("{} ({})", p.pid, p.name)).collect();
    let more = processes.len().saturating_sub(20);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}

/// CPU and memory of the tree, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    proc: PathBuf,
    before: BTreeMap<(i32, u64), u64>,
    taken: Option<std::time::Instant>,
}

impl Sampler {
    pub(super) fn new(proc: PathBuf) -> Self {
        Self { proc, ..Self::default() }
    }

    /// Samples this process and its descendants; roles by group, `stranger` for what left both.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "shares in percent, for a screen")]
    pub(super) fn sample(&mut self, server: Option<i32>, bench: Option<i32>) -> Vec<ProcessSample> {
        let own = Pid::this().as_raw();
        let all = all(&self.proc);
        let ours = descendants(&all, own);
        let below = |root: Option<i32>| root.map(|root| (root, descendants(&all, root))).unwrap_or_default();
        let (server, bench) = (below(server), below(bench));
        let in_tree = |p: &Process, tree: &(i32, HashSet<i32>)| {
            tree.0 != 0 && (p.pid == tree.0 || p.group == tree.0 || tree.1.contains(&p.pid))
        };
        let elapsed = self.taken.map(|t| t.elapsed().as_secs_f64()).filter(|s| *s > 0.0);
        let (ticks, page) = (system(libc::_SC_CLK_TCK, 100), system(libc::_SC_PAGESIZE, 4096));
        let mut now = BTreeMap::new();
        let mut samples = Vec::new();
        for process in all.iter().filter(|p| p.is_alive() && (p.pid == own || ours.contains(&p.pid))) {
            let key = (process.pid, process.started);
            now.insert(key, process.ticks);
            let used = self.before.get(&key).map(|before| process.ticks.saturating_sub(*before));
            let share = used.zip(elapsed).map_or(0.0, |(used, sec)| used as f64 / ticks as f64 / sec * 100.0);
            let role = match process {
                p if p.pid == own => "agent",
                p if in_tree(p, &server) => "server",
                p if in_tree(p, &bench) => "bench",
                _ => "stranger",
            };
            samples.push(ProcessSample {
                pid: process.pid.unsigned_abs(),
                parent: process.parent.unsigned_abs(),
                name: process.name.clone(),
                role: role.to_owned(),
                cpu_percent: share as f32,
                rss_bytes: process.resident * page,
            });
        }
        self.before = now;
        self.taken = Some(std::time::Instant::now());
        samples
    }
}

#[expect(unsafe_code, reason = "sysconf reads a constant of the system")]
fn system(name: libc::c_int, fallback: u64) -> u64 {
    // SAFETY: no pointer is passed.
    u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|n| *n > 0).unwrap_or(fallback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_parentheses() {
        let stat = b"42 (smg::router) x)) S 7 40 40 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 9999 1000 321 18446744073709551615\n";
        let process = parse_stat(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.group), (42, 7, 40));
        assert_eq!(process.name, "smg::router) x)");
        assert_eq!((process.ticks, process.started, process.resident), (110, 9999, 321));
        assert_eq!(parse_stat(b"42 (x"), None);
    }

    #[test]
    fn trees_are_followed_to_the_leaves() {
        let process = |pid, parent| Process {
            pid,
            parent,
            group: pid,
            name: String::new(),
            state: b'S',
            ticks: 0,
            started: 0,
            resident: 0,
        };
        let all = [process(2, 1), process(3, 2), process(4, 3), process(5, 1)];
        assert_eq!(descendants(&all, 2), HashSet::from([3, 4]));
    }

    #[test]
    fn we_see_ourselves() {
        let mut sampler = Sampler::new("/proc".into());
        let taken = sampler.sample(None, None);
        let own = taken.iter().find(|s| s.role == "agent").unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.rss_bytes > 0);
        assert!(Sampler::new("/nonexistent".into()).sample(None, None).is_empty());
    }
}
