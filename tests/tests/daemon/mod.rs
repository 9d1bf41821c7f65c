//! A Docker daemon of a test's own: own socket, data root, exec root and containerd, no bridge, no firewall rule, so
//! that it can be stopped, killed and frozen. Never the machine's own.

use controller::launch::host::find_on_path;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use tests::patience::until;
use tests::processes::{Guarded, Process, all};
use tests::{needs, programs};

/// The daemon and everything that belongs to it; gone with the test.
#[derive(Debug)]
pub(crate) struct Daemon {
    folder: tempfile::TempDir,
    live_restore: bool,
    process: Option<Guarded>,
}

impl Daemon {
    /// Starts one; `None`, and a skip, where this machine does not let a test do that.
    ///
    /// # Panics
    /// Without a folder for it.
    pub(crate) fn start(test: &str, live_restore: bool) -> Option<Self> {
        if !needs::root(test) || !needs::static_programs(test) {
            return None;
        }
        let (Some(client), true) = (find_on_path("docker"), find_on_path("dockerd").is_some()) else {
            needs::skip(test, "no docker or no dockerd");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("ts-dockerd-").tempdir().expect("a folder");
        // The machine's own settings would contradict the options below.
        fs::write(folder.path().join("daemon.json"), "{}").expect("a file");
        let mut daemon = Self { folder, live_restore, process: None };
        let words = format!("#!/bin/sh\nexec {} -H {} \"$@\"\n", client.display(), daemon.socket());
        fs::write(daemon.client(), words).expect("a client");
        fs::set_permissions(daemon.client(), fs::Permissions::from_mode(0o755)).expect("a mode");
        daemon.spawn();
        let answers = |daemon: &mut Self| match daemon.process.as_mut().map(Guarded::ended) {
            Some(None) => daemon.call(&["version"]).status.success().then_some(true),
            // It refused to start.
            Some(Some(_)) | None => Some(false),
        };
        if until("a daemon of our own", || answers(&mut daemon)) {
            return Some(daemon);
        }
        let log = fs::read_to_string(daemon.path("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default().to_owned();
        needs::skip(test, &format!("dockerd cannot be started here: {last}"));
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.path("d.sock").display())
    }

    fn spawn(&mut self) {
        let at = |name: &str| self.path(name).display().to_string();
        let mut command = Command::new("dockerd");
        command.args(["--config-file", &at("daemon.json"), "-H", &self.socket(), "--data-root", &at("data")]);
        command.args(["--exec-root", &at("exec"), "--pidfile", &at("pid"), "--storage-driver", "vfs"]);
        command.args(["--bridge=none", "--iptables=false", "--ip-masq=false"]);
        if self.live_restore {
            command.arg("--live-restore");
        }
        let log = fs::File::create(self.path("log")).expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.process = Guarded::spawn(&mut command).ok();
    }

    /// The client of this daemon, to be named as `container_cli`.
    pub(crate) fn client(&self) -> PathBuf {
        self.path("docker")
    }

    /// One call of its client.
    ///
    /// # Panics
    /// When it cannot be made at all.
    pub(crate) fn call(&self, args: &[&str]) -> Output {
        Command::new("timeout").arg("20").arg(self.client()).args(args).output().expect("timeout(1)")
    }

    /// An image from scratch that holds the static stand-in alone.
    ///
    /// # Panics
    /// When it cannot be made.
    pub(crate) fn image(&self) -> String {
        let context = self.path("image");
        fs::create_dir_all(&context).expect("a folder");
        fs::copy(programs::tokenspeed(), context.join("tokenspeed")).expect("the stand-in");
        let file = "FROM scratch\nCOPY tokenspeed /bin/tokenspeed\nENV PATH=/bin\n";
        fs::write(context.join("Dockerfile"), file).expect("a Dockerfile");
        let built = self.call(&["build", "--quiet", &context.display().to_string()]);
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        String::from_utf8_lossy(&built.stdout).trim().to_owned()
    }

    /// Names of all containers, a line each; `None` when the daemon does not say.
    pub(crate) fn containers(&self) -> Option<String> {
        let listed = self.call(&["ps", "-a", "--format", "{{.Names}}"]);
        listed.status.success().then(|| String::from_utf8_lossy(&listed.stdout).trim().to_owned())
    }

    /// Signals the daemon itself.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Ends the daemon by a signal and waits for its end. With live-restore its containers live on.
    ///
    /// # Panics
    /// When it does not end.
    pub(crate) fn stop(&mut self, signal: Signal) {
        self.signal(signal);
        if let Some(process) = &mut self.process {
            process.wait();
        }
        let ours = self.path("exec/containerd/containerd.toml").display().to_string();
        let lives = |process: &Process| process.state != 'Z' && process.command.contains(&ours);
        until("the end of its containerd", || (!all().iter().any(lives)).then_some(()));
        // A dead one that nobody has reaped yet would be taken for a living one.
        let _ = fs::remove_file(self.path("exec/containerd/containerd.pid"));
    }

    /// Starts it again after its end.
    ///
    /// # Panics
    /// When it does not answer.
    pub(crate) fn start_again(&mut self) {
        // Its old guard would take shims and containers along.
        std::mem::forget(self.process.take());
        self.spawn();
        until("the daemon's return", || self.call(&["version"]).status.success().then_some(()));
    }

    /// Shims of its containers.
    pub(crate) fn shims(&self) -> Vec<Process> {
        let ours = self.path("exec").display().to_string();
        let shim = |process: &Process| process.command.contains("containerd-shim") && process.command.contains(&ours);
        all().into_iter().filter(shim).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        for name in self.containers().unwrap_or_default().lines() {
            let _ = self.call(&["rm", "-f", name]);
        }
        self.signal(Signal::SIGTERM);
        if let Some(process) = &mut self.process {
            let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while process.ended().is_none() && std::time::Instant::now() < limit {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        // What names this folder: containerd and shims that were left by a kill.
        let ours = self.folder.path().display().to_string();
        for process in all().into_iter().filter(|process| process.command.contains(&ours)) {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        self.process = None;
        for mount in ["exec/netns/default", "data"] {
            let _ = umount2(&self.path(mount), MntFlags::MNT_DETACH);
        }
    }
}
