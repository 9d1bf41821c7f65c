//! A server of one arm: started as a process group or a container, waited for, stopped with everything below it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::file::{Arm, Container};

/// Between two tries of readiness.
const POLL: Duration = Duration::from_millis(250);
/// For one try.
const TRY: Duration = Duration::from_secs(3);
/// For one call of the container client.
const CLIENT: Duration = Duration::from_mins(1);

/// Host and port of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Without brackets.
    pub host: String,
    /// Never 0.
    pub port: u16,
}

impl Place {
    /// Host and port of `http://HOST[:PORT][/PATH]`.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = match url.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(format!("{url:?}: https is not supported; use http, or a local TLS-terminating proxy"));
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) | None => return Err(format!("{url:?} is not http://HOST[:PORT]")),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => v6.split_once(']').map(|(host, port)| (host, port.strip_prefix(':').unwrap_or("80"))),
            None => Some(authority.split_once(':').unwrap_or((authority, "80"))),
        }
        .ok_or_else(|| format!("{url:?} is not http://HOST[:PORT]"))?;
        let port = port.parse().ok().filter(|port: &u16| *port != 0);
        match port {
            Some(port) if !host.is_empty() => Ok(Self { host: host.to_owned(), port }),
            Some(_) | None => Err(format!("{url:?} has no usable host and port")),
        }
    }

    /// Looks the name up: the load client itself never asks a resolver.
    pub async fn resolve(&self) -> Result<SocketAddr, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let mut found = found.map_err(|error| format!("{}: {error}", self.host))?;
        found.next().ok_or_else(|| format!("{}: no address", self.host))
    }

    /// `--resolve` entries for the load client: none where it needs none.
    pub fn resolve_args(&self, address: SocketAddr) -> Vec<String> {
        if self.host.parse::<std::net::IpAddr>().is_ok() || self.host.eq_ignore_ascii_case("localhost") {
            return Vec::new();
        }
        vec!["--resolve".to_owned(), format!("{}:{}", self.host, address.ip())]
    }
}

/// The status of one GET; `None`: nobody answers.
pub async fn ask(address: SocketAddr, path: &str) -> Option<u16> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut head = Vec::new();
        let mut buffer = [0; 512];
        while !head.contains(&b'\n') && head.len() < 8192 {
            let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
            head.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&head).split_whitespace().nth(1)?.parse().ok()
    };
    timeout(TRY, exchange).await.ok().flatten()
}

/// Why a server is not there.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Another server would be measured.
    #[error(
        "something answers at {0} already; stop it, or give the arm as a running server (neither command nor container)"
    )]
    Occupied(String),
    /// Not to be started.
    #[error("{program}: {source}")]
    Spawn {
        /// What.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// Ended by itself.
    #[error("the server ended while starting ({status}); see {log:?}")]
    Died {
        /// How.
        status: String,
        /// Its output.
        log: PathBuf,
    },
    /// Too slow.
    #[error("the server did not answer {path} with 200 within {seconds} s; see {log:?}")]
    NotReady {
        /// What was asked.
        path: String,
        /// Limit.
        seconds: u64,
        /// Its output.
        log: PathBuf,
    },
}

/// A started server; dropped, its whole group is killed.
#[derive(Debug)]
pub struct Server {
    child: Child,
    group: Pid,
    container: Option<(String, String)>,
    log: PathBuf,
    over: bool,
}

impl Server {
    /// Starts the arm's server; the caller waits with [`Server::ready`].
    pub async fn start(
        arm: &Arm,
        fallback: &BTreeMap<String, String>,
        name: &str,
        log: &Path,
        address: SocketAddr,
    ) -> Result<Self, BootError> {
        if TcpStream::connect(address).await.is_ok() {
            return Err(BootError::Occupied(arm.url.clone()));
        }
        let argv = arm.container.as_ref().map_or_else(
            || arm.command.clone().unwrap_or_default(),
            |container| container_argv(container, arm, fallback, name),
        );
        let program = argv.first().cloned().unwrap_or_default();
        let failed = |source: std::io::Error| BootError::Spawn { program: program.clone(), source };
        let out = File::create(log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        let mut command = Command::new(&program);
        command.args(&argv[1..]).envs(&arm.env).envs(fallback);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        if let Some(cwd) = &arm.cwd {
            command.current_dir(cwd);
        }
        // SAFETY: between fork and exec, one async-signal-safe system call.
        #[expect(unsafe_code, reason = "the server's leader must not outlive a killed campaign")]
        unsafe {
            command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(std::io::Error::from));
        }
        let child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        let container = arm.container.as_ref().map(|container| (container.cli.clone(), name.to_owned()));
        Ok(Self { child, group: Pid::from_raw(pid), container, log: log.to_path_buf(), over: false })
    }

    /// Waits until the server answers 200.
    pub async fn ready(&mut self, address: SocketAddr, path: &str, limit: Duration) -> Result<Duration, BootError> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Err(BootError::Died { status: status.to_string(), log: self.log.clone() });
            }
            if ask(address, path).await == Some(200) {
                return Ok(started.elapsed());
            }
            if started.elapsed() >= limit {
                let seconds = limit.as_secs();
                return Err(BootError::NotReady { path: path.to_owned(), seconds, log: self.log.clone() });
            }
            tokio::select! {
                _ = self.child.wait() => {}
                () = sleep(POLL) => {}
            }
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops it: SIGTERM to the group, SIGKILL after the grace, and no container of its name is left.
    pub async fn stop(mut self, grace: Duration) -> Result<(), String> {
        if self.ended().is_none() {
            let _ = killpg(self.group, Signal::SIGTERM);
            let _ = timeout(grace, self.child.wait()).await;
        }
        // The group outlives its leader where the leader left children behind.
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait().await;
        self.over = true;
        let Some((cli, name)) = &self.container else { return Ok(()) };
        let _ = run(cli, &["rm", "-f", name]).await;
        // `rm -f` of a missing container succeeds in current clients: absence is proven by a query.
        match run(cli, &["ps", "-aq", "--filter", &format!("name=^/?{name}$")]).await {
            Ok(listed) if listed.trim().is_empty() => Ok(()),
            Ok(_) => Err(format!("container {name} is still there; run: {cli} rm -f {name}")),
            Err(error) => {
                Err(format!("whether container {name} is gone is not known ({error}); run: {cli} rm -f {name}"))
            }
        }
    }

    /// The sequence limit that the server says it resolved, from the last line of its log that names one.
    pub fn sequence_limit(&self) -> Option<u32> {
        sequence_limit(&std::fs::read_to_string(&self.log).ok()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.over {
            let _ = killpg(self.group, Signal::SIGKILL);
            if let Some((cli, name)) = &self.container {
                let _ = std::process::Command::new(cli)
                    .args(["rm", "-f", name])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}

async fn run(cli: &str, args: &[&str]) -> Result<String, String> {
    let call = Command::new(cli).args(args).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(CLIENT, call).await.map_err(|_| format!("{cli} {} did not end", args[0]))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Values of variables stay out of the argument list: the client takes them from its own environment.
fn container_argv(container: &Container, arm: &Arm, fallback: &BTreeMap<String, String>, name: &str) -> Vec<String> {
    let mut argv: Vec<String> =
        [container.cli.as_str(), "run", "--rm", "--name", name, "--network", "host", "--pull", "never"]
            .map(str::to_owned)
            .to_vec();
    for key in arm.env.keys().chain(fallback.keys().filter(|key| !arm.env.contains_key(*key))) {
        argv.extend(["-e".to_owned(), key.clone()]);
    }
    argv.extend(container.options.iter().cloned());
    argv.push(container.image.clone());
    argv.extend(container.args.iter().cloned());
    argv
}

/// `max_num_seqs [from] X to Y`: Y of the last such text (spec `variadic-harness` D.3, G-RESOLVED).
fn sequence_limit(log: &str) -> Option<u32> {
    let number = |text: &str| text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    let found = log.match_indices("max_num_seqs").filter_map(|(at, name)| {
        let mut words = log[at + name.len()..].lines().next()?.split_whitespace();
        let first = words.next()?;
        let from = if first == "from" { words.next()? } else { first };
        number(from)?;
        (words.next()? == "to").then(|| words.next().and_then(number))?
    });
    found.last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |url| Place::parse(url).unwrap();
        assert_eq!(place("http://127.0.0.1:8811/x"), Place { host: "127.0.0.1".into(), port: 8811 });
        assert_eq!(place("http://box"), Place { host: "box".into(), port: 80 });
        assert_eq!(place("http://[::1]:9"), Place { host: "::1".into(), port: 9 });
        for bad in ["https://x", "x:1", "http://", "http://x:0", "http://x:y", "http://[::1"] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
        let address = "10.0.0.7:9".parse().unwrap();
        assert_eq!(place("http://box:9").resolve_args(address), ["--resolve", "box:10.0.0.7"]);
        assert!(place("http://localhost:9").resolve_args(address).is_empty());
    }

    #[test]
    fn the_last_resolved_limit_counts() {
        let log = "x max_num_seqs from 8 to 4\nmax_num_seqs 16 to 2, y\nmax_num_seqs=8\nmax_num_seqs from 8\n";
        assert_eq!(sequence_limit(log), Some(2));
        assert_eq!(sequence_limit("nothing\nmax_num_seqs to 3"), None);
    }

    #[test]
    fn containers_get_variables_by_name() {
        let arm: Arm = serde_json::from_value(
            serde_json::json!({"name": "A", "url": "http://127.0.0.1:1", "env": {"X": "secret"},
            "container": {"image": "i:1", "options": ["-v", "a:b"], "args": ["serve"]}}),
        )
        .unwrap();
        let fallback = BTreeMap::from([("X".to_owned(), "1".to_owned()), ("Y".to_owned(), "2".to_owned())]);
        let argv = container_argv(arm.container.as_ref().unwrap(), &arm, &fallback, "n").join(" ");
        assert_eq!(argv, "docker run --rm --name n --network host --pull never -e X -e Y -v a:b i:1 serve");
    }
}
