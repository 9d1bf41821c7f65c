//! Who a process is beyond its number: boot, pid namespace and start time tell a living process from a later one that
//! got the same pid (design section 6).

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// One process of one boot of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// `/proc/sys/kernel/random/boot_id`
    pub boot_id: String,
    /// Inode of `/proc/self/ns/pid`, in which `pid` counts.
    pub pid_namespace: u64,
    /// Process id.
    pub pid: i32,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
}

/// What can be said about a process that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is there.
    Alive,
    /// It is proven gone.
    Dead,
    /// Another boot, another namespace, or nobody can say.
    Unknown,
}

/// Identity of this boot.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Inode of this process's pid namespace.
pub fn pid_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// One line of `/proc/<pid>/stat`, as far as it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: i32,
    /// Short name.
    pub name: String,
    /// `R`, `S`, `Z`, ...
    pub state: char,
    /// Parent.
    pub parent: i32,
    /// Session.
    pub session: i32,
    /// Start, in clock ticks since boot.
    pub start_time: u64,
}

impl Stat {
    /// Reads `/proc/<pid>/stat`; `None` when there is no such process.
    pub fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name may hold blanks and brackets, so fields count from the last bracket.
    fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it only waits to be reaped.
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Every process that this one may see.
pub fn all_processes() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir(Path::new("/proc")) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).filter_map(Stat::of).collect()
}

/// All descendants of a process, nearest first.
pub fn descendants(of: i32) -> Vec<Stat> {
    let all = all_processes();
    let mut found: Vec<Stat> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|s| s.parent == parent) {
            // A table read while it changes may hold a pid twice.
            if !found.iter().any(|f| f.pid == child.pid) {
                parents.push(child.pid);
                found.push(child.clone());
            }
        }
    }
    found
}

impl ProcessIdentity {
    /// Identity of a process of this boot and namespace; `None` when it is not there or /proc is not to be had.
    pub fn of(pid: i32) -> Option<Self> {
        let start_time = Stat::of(pid)?.start_time;
        Some(Self { boot_id: boot_id()?, pid_namespace: pid_namespace()?, pid, start_time })
    }

    /// Identity of this process.
    pub fn own() -> Option<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// Whether it lives, as far as this process can prove.
    pub fn life(&self) -> Life {
        if boot_id().is_none_or(|boot| boot != self.boot_id) || pid_namespace() != Some(self.pid_namespace) {
            return Life::Unknown;
        }
        match Stat::of(self.pid) {
            Some(stat) if stat.start_time == self.start_time && !stat.is_zombie() => Life::Alive,
            Some(_) => Life::Dead,
            // `/proc` mounted with hidepid shows nothing of others: ask the kernel itself.
            None => match nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), None) {
                Err(nix::errno::Errno::ESRCH) => Life::Dead,
                Ok(()) | Err(_) => Life::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_alone_is_nobody() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(own.life(), Life::Alive);
        let reused = ProcessIdentity { start_time: own.start_time + 1, ..own.clone() };
        assert_eq!(reused.life(), Life::Dead);
        let other_boot = ProcessIdentity { boot_id: "x".into(), ..own.clone() };
        assert_eq!(other_boot.life(), Life::Unknown);
        let elsewhere = ProcessIdentity { pid_namespace: own.pid_namespace + 1, ..own };
        assert_eq!(elsewhere.life(), Life::Unknown);
    }

    #[test]
    fn a_zombie_is_dead_and_a_name_may_hold_brackets() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let identity = ProcessIdentity::of(pid).unwrap();
        while !Stat::of(pid).unwrap().is_zombie() {
            std::thread::yield_now();
        }
        assert_eq!(identity.life(), Life::Dead);
        child.wait().unwrap();
        assert_eq!(identity.life(), Life::Dead);
        let stat = Stat::parse("7 (a) (b) S 1 7 6 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0").unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.session, stat.start_time), ("a) (b", 1, 6, 4711));
    }
}
