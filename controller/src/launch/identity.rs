//! Who runs the trial: the user inside, and the process that owns it (contract F.6; design section 4, labels).

use std::path::Path;

use proto::names::RunToken;

use super::docker_args::LABEL_PREFIX;
use crate::error::HostError;
use crate::run::identity::ProcessIdentity;

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

    /// Labels of the container of a trial, in the order in which they are passed (design section 4).
    pub fn labels(&self, controller: &ProcessIdentity, token: &RunToken, out: &Path) -> Vec<(String, String)> {
        let label = |name: &str, value: String| (format!("{LABEL_PREFIX}{name}"), value);
        vec![
            label("run-token", token.to_string()),
            label("uid", self.uid.to_string()),
            label("boot-id", controller.boot_id.clone()),
            label("pidns", controller.pid_namespace.to_string()),
            label("host-pid", controller.pid.to_string()),
            label("start-time", controller.start_time.to_string()),
            label("out", out.display().to_string()),
        ]
    }
}

/// This process, so exactly that nobody else can be taken for it.
pub fn own_process() -> Result<ProcessIdentity, HostError> {
    ProcessIdentity::own().ok_or_else(|| {
        HostError::new(
            None,
            "/proc",
            "this process cannot read its own start time",
            "mount /proc; it tells trials apart",
        )
    })
}
