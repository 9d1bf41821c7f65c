//! What the host must offer before a trial starts: the client, a local engine that answers, GPUs, the image
//! (contract F.1; failure scenarios FS-05, FS-06). All waits are bounded; nothing is started but the client's queries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::config::trial::{Pull, RuntimeKind, Trial};
use crate::error::HostError;
use crate::run::cli::{Answer, Cli, Group, NoAnswer};

/// Longest wait for one answer of the client.
const QUERY: Duration = Duration::from_secs(20);
/// How much of the client's words an error repeats, in bytes.
const TAIL: usize = 2000;

/// The container client of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its file.
    pub program: PathBuf,
    /// Whose it is.
    pub runtime: RuntimeKind,
}

/// A program on PATH: a name without a slash is looked up, a path is taken as it is.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let runs = |path: &Path| path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| runs(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|path| runs(path))
}

/// `/dev/kfd` must be ours to read and write (contract F.1, 3).
pub fn gpu(trial: &Trial, kfd: &Path) -> Result<(), HostError> {
    use nix::unistd::{AccessFlags, access};
    if !trial.gpus.required {
        return Ok(());
    }
    access(kfd, AccessFlags::R_OK | AccessFlags::W_OK).map_err(|errno| {
        let message = format!("no accessible ROCm GPU: {} cannot be read and written ({errno})", kfd.display());
        let hint = "run on a GPU node as a member of the groups video and render, or set require_gpu: false";
        HostError::new(Some("require_gpu"), kfd.display().to_string(), message, hint)
    })
}

/// The image is not here and must not be fetched.
pub(super) fn no_image(image: &str) -> HostError {
    let message = format!("image {image} is not on this host, and pull is never");
    HostError::new(Some("image"), image, message, "pull it by hand, or set pull: missing")
}

impl Client {
    /// Finds the client of a container runtime on PATH; `None` for the process runtime.
    pub fn find(trial: &Trial) -> Result<Option<Self>, HostError> {
        let name = &trial.own.container_cli;
        if !trial.own.runtime.is_container() {
            return Ok(None);
        }
        let Some(program) = find_on_path(name) else {
            let message = format!("'{name}' not on PATH");
            let hint = "install the container client, or set container_cli, or use --runtime process";
            return Err(HostError::new(Some("container_cli"), name.clone(), message, hint));
        };
        Ok(Some(Self { program, runtime: trial.own.runtime }))
    }

    async fn ask(&self, args: &[&str]) -> Result<Answer, HostError> {
        Cli::new(&self.program).call(args, QUERY).await.map_err(|error| {
            let reason = match error {
                NoAnswer::Io { source, .. } => format!("cannot be run ({source})"),
                NoAnswer::Timeout { .. } => format!("gave no answer within {} s", QUERY.as_secs()),
            };
            let message = format!("{} {} {reason}", self.program.display(), args.join(" "));
            let hint = "try the same command by hand; the engine must answer before a trial starts";
            HostError::new(Some("container_cli"), self.program.display().to_string(), message, hint)
        })
    }

    /// The engine must be on this machine: bind mounts and GPU readings are of this one (FS-06). Environment first,
    /// then the client's own context.
    pub async fn local(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<(), HostError> {
        let variable = match self.runtime {
            RuntimeKind::Podman => "CONTAINER_HOST",
            RuntimeKind::Docker | RuntimeKind::Process => "DOCKER_HOST",
        };
        let refuse = |from: &str, endpoint: &str| {
            let message =
                format!("the container engine is at {endpoint} (from {from}), not behind a local unix socket");
            let hint = format!("unset {variable} or choose a local context; mounts and GPUs are of this machine");
            Err(HostError::new(Some("container_cli"), endpoint.to_owned(), message, hint))
        };
        if let Some(endpoint) = env(variable).filter(|value| !value.is_empty()) {
            let endpoint = endpoint.to_string_lossy();
            return if endpoint.starts_with("unix://") { Ok(()) } else { refuse(variable, &endpoint) };
        }
        match self.runtime {
            RuntimeKind::Podman => {
                let answer = self.ask(&["info", "--format", "{{.Host.ServiceIsRemote}}"]).await?;
                if answer.stdout == "true" { refuse("podman's connection", "a remote service") } else { Ok(()) }
            }
            RuntimeKind::Docker | RuntimeKind::Process => {
                // Clients before 19.03 have no contexts, and then no remote one.
                let answer = self.ask(&["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]).await?;
                let endpoint = &answer.stdout;
                if !answer.is_ok() || endpoint.is_empty() || endpoint.starts_with("unix://") {
                    Ok(())
                } else {
                    refuse("the current context", endpoint)
                }
            }
        }
    }

    /// The engine must answer; returns its version.
    pub async fn reachable(&self) -> Result<String, HostError> {
        let format = match self.runtime {
            RuntimeKind::Podman => "{{.Client.Version}}",
            RuntimeKind::Docker | RuntimeKind::Process => "{{.Server.Version}}",
        };
        let answer = self.ask(&["version", "--format", format]).await?;
        if answer.is_ok() {
            return Ok(answer.stdout);
        }
        let message = format!("the container engine does not answer: {}", tail(&answer.stderr));
        let hint = "start the engine, or join the group that may use its socket";
        Err(HostError::new(Some("container_cli"), self.program.display().to_string(), message, hint))
    }

    /// Whether the image is here.
    pub async fn has_image(&self, image: &str) -> Result<bool, HostError> {
        Ok(self.image_id(image).await?.is_some())
    }

    /// The image's id, whatever its tag said before; `None` where it is not here.
    pub async fn image_id(&self, image: &str) -> Result<Option<String>, HostError> {
        let answer = self.ask(&["image", "inspect", "--format", "{{.Id}}", image]).await?;
        Ok(answer.is_ok().then_some(answer.stdout))
    }

    /// Gets the image as `pull` says, before the trial's clock starts; the run itself never pulls. `progress` gets
    /// each line of the client. Dropping the future ends the client.
    pub async fn provide_image(&self, trial: &Trial, mut progress: impl FnMut(&str)) -> Result<(), HostError> {
        let image = trial.image.as_str();
        let here = self.has_image(image).await?;
        match trial.own.pull {
            Pull::Missing | Pull::Never if here => return Ok(()),
            Pull::Never => return Err(no_image(image)),
            Pull::Missing | Pull::Always => {}
        }
        let limit = Duration::from_secs(trial.own.pull_timeout_sec);
        let failed = |reason: String| {
            let message = format!("image {image} could not be pulled: {reason}");
            HostError::new(
                Some("image"),
                image,
                message,
                "check the name, the network and the registry login, or pull it by hand",
            )
        };
        match tokio::time::timeout(limit, self.pull(image, &mut progress)).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(words))) => Err(failed(words)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("not within pull_timeout_sec ({} s)", limit.as_secs()))),
        }
    }

    /// `None` when it worked, else the client's words.
    async fn pull(&self, image: &str, progress: &mut impl FnMut(&str)) -> std::io::Result<Option<String>> {
        let mut child = Command::new(&self.program)
            .args(["pull", image])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // Whatever gives the pull up ends the client and its helpers.
        let group = Group::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let lines = async {
            let Some(stdout) = stdout else { return };
            let mut reader = BufReader::new(stdout.take(PULL_OUTPUT_MAX));
            let mut lines = (&mut reader).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                progress(String::from_utf8_lossy(&line).trim_end());
            }
            drain(reader.into_inner().into_inner()).await;
        };
        let words = async {
            let mut bytes = Vec::new();
            let Some(stderr) = stderr else { return bytes };
            let mut stderr = stderr.take(PULL_OUTPUT_MAX);
            let _ = stderr.read_to_end(&mut bytes).await;
            drain(stderr.into_inner()).await;
            bytes
        };
        let ((), words) = tokio::join!(lines, words);
        let status = child.wait().await?;
        group.over();
        let words = String::from_utf8_lossy(&words);
        Ok((!status.success()).then(|| if words.trim().is_empty() { status.to_string() } else { tail(&words) }))
    }
}

/// A client says less than this in a pull; more is read and dropped, so that the client never blocks.
const PULL_OUTPUT_MAX: u64 = 4 << 20;

async fn drain(mut from: impl tokio::io::AsyncRead + Unpin) {
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
}

/// The end of a text, trimmed, on a character boundary.
fn tail(text: &str) -> String {
    let text = text.trim();
    let from = text.len().saturating_sub(TAIL);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[from..].to_owned()
}
