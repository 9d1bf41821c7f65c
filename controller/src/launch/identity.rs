//! Who runs the trial: the user inside, and the process that owns it (contract F.6; design section 4, labels).

use crate::error::HostError;

/// The calling user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Name in the host's user table, or `aorta-<uid>` when there is none.
    pub user: String,
}

impl Identity {
    /// The effective user of this process.
    pub fn current() -> Self {
        Self::of(nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
    }

    /// A user by numbers.
    pub fn of(uid: u32, gid: u32) -> Self {
        let user = nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|user| user.name);
        Self { uid, gid, user: user.unwrap_or_else(|| format!("aorta-{uid}")) }
    }
}

/// The controller process, so exactly that nobody else can be taken for it (design section 6, registry).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Boot id of the kernel.
    pub boot_id: String,
    /// Inode of the pid namespace.
    pub pidns: u64,
    /// Process id in that namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start_time: u64,
}

impl Owner {
    /// This process.
    pub fn current() -> Result<Self, HostError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            HostError::new(None, what, format!("cannot read {what} ({error})"), "mount /proc; it tells trials apart")
        };
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| failed(path, &error));
        let stat = read("/proc/self/stat")?;
        let start_time = start_time(&stat).ok_or_else(|| failed("/proc/self/stat", &"unexpected form"))?;
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_err(|error| failed("/proc/self/ns/pid", &error))?;
        Ok(Self {
            uid: nix::unistd::geteuid().as_raw(),
            boot_id: read("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            pidns: std::os::unix::fs::MetadataExt::ino(&namespace),
            pid: std::process::id(),
            start_time,
        })
    }

    /// Labels of the container of a trial, in the order in which they are passed.
    pub fn labels(&self, token: &proto::names::RunToken, out: &std::path::Path) -> Vec<(String, String)> {
        let label = |name: &str, value: String| (format!("{}{name}", super::docker_args::LABEL_PREFIX), value);
        vec![
            label("run-token", token.to_string()),
            label("uid", self.uid.to_string()),
            label("boot-id", self.boot_id.clone()),
            label("pidns", self.pidns.to_string()),
            label("host-pid", self.pid.to_string()),
            label("start-time", self.start_time.to_string()),
            label("out", out.display().to_string()),
        ]
    }
}

/// Field 22 of a stat line; the command in parentheses may hold anything.
pub fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
