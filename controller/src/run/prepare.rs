//! Everything before the spawn: dead leftovers, host checks, staging, image, ports, environment, lease, registry, GPU
//! memory. Whatever fails here is the host's fault and no result; nothing is started but bounded queries.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::finding::{Finding, FindingId};

use super::cli::Cli;
use super::client::Launch;
use super::container::Container;
use super::identity::ProcessIdentity;
use super::lease::Lease;
use super::process::{ProcessTree, become_subreaper};
use super::progress::Noter;
use super::registry::{Entry, Registered, Registry};
use super::runtime::Runtime;
use super::timings::{Roots, Timings};
use super::{reap, vram};
use crate::config::trial::Trial;
use crate::error::HostError;
use crate::launch::host::{self, Client as HostClient};
use crate::launch::identity::{Identity, own_process};
use crate::launch::ports::Ports;
use crate::launch::start::{self, HostEnv, Staged, Start};
use crate::launch::{plan, scratch};
use crate::result::document::AgentIdentity;
use crate::result::observed::{RunIdentity, Survivor};

/// A trial that can be spawned.
#[derive(Debug)]
pub struct Prepared {
    /// What is spawned.
    pub launch: Launch,
    /// What is asked and removed.
    pub runtime: Arc<dyn Runtime>,
    /// The process runtime's own view.
    tree: Option<Arc<ProcessTree>>,
    /// Resolved.
    pub ports: Ports,
    /// The agent.
    pub agent: AgentIdentity,
    agent_path: PathBuf,
    /// Held from here on.
    pub lease: Option<Lease>,
    registered: Option<Registered>,
    entry: Entry,
    /// GPU memory before the run; `None` where it is not watched.
    pub gpu_before: Option<vram::Sample>,
    /// How long the image took, where it had to be fetched.
    pub pull: Option<Duration>,
    /// Remarks.
    pub findings: Vec<Finding>,
    /// The container client, for the detached helper.
    pub client: Option<PathBuf>,
}

/// Where a trial's places are, before anything is made.
pub fn out_dir(trial: &Trial) -> PathBuf {
    scratch::dir_of(&trial.place, Identity::current().uid).join("out")
}

/// Makes a trial ready to be spawned.
pub async fn prepare(
    trial: Arc<Trial>,
    identity: RunIdentity,
    roots: Roots,
    timings: Timings,
    note: Noter,
) -> Result<Prepared, HostError> {
    let caller = Identity::current();
    let registry = Registry::open(roots.registry.as_deref()).map_err(|error| {
        HostError::new(None, "registry", &error, "the list of living trials must be ours alone; see the path named")
    })?;
    let client = HostClient::find(&trial)?;
    if let Some(client) = &client {
        client.local(|name| std::env::var_os(name)).await?;
        client.reachable().await?;
    }
    host::gpu(&trial, &roots.kfd)?;
    let program = client.as_ref().map(|c| c.program.clone());
    let scope = reap::Scope { dry_run: false, patience: timings.query_call };
    let cleaned = reap::clean(&registry, program.as_slice(), scope, &timings).await;
    let mut findings = cleaned.findings();

    note.say("staging");
    let staged = staged(&trial, &caller).await?;
    let pull = match &client {
        Some(client) => {
            let here = client.has_image(&trial.image).await?;
            let begun = Instant::now();
            client.provide_image(&trial, |line| note.say(line)).await?;
            (!here).then(|| begun.elapsed())
        }
        None => None,
    };
    let host_env = HostEnv::current();
    let controller = own_process()?;
    let start = start::start(&trial, &staged.places(), &identity.token, &caller, &controller, &host_env)?;
    if start.secret_unset {
        findings.push(plan::secret_unset(&trial));
    }
    let ports = start.ports;
    let launch = launch(start, client.as_ref());

    let (runtime, tree) = runtime(&identity, program.clone())?;
    let lease = take_lease(&trial, &identity, &mut findings)?;
    let entry = Entry {
        token: identity.token.to_string(),
        runtime: trial.own.runtime,
        client: program.as_ref().map(|p| p.display().to_string()),
        container: identity.container.clone(),
        out_dir: identity.out_dir.clone(),
        socket: identity.out_dir.join(proto::names::socket(&identity.token)),
        controller,
        agent: None,
    };
    // On the list before anything of it exists: what a dead controller left must be findable.
    let registered = match registry.register(&entry) {
        Ok(registered) => registered,
        Err(error) => {
            if let Some(lease) = lease {
                lease.retire();
            }
            let message = format!("the trial cannot be listed: {error}");
            return Err(HostError::new(None, "registry", message, "make room on that file system"));
        }
    };
    Ok(Prepared {
        launch,
        runtime,
        tree,
        ports,
        agent: AgentIdentity { version: None, sha256: Some(staged.agent.sha256) },
        agent_path: staged.agent.path,
        lease,
        registered: Some(registered),
        entry,
        gpu_before: gpu_before(&trial, &roots, &mut findings),
        pull,
        findings,
        client: program,
    })
}

async fn staged(trial: &Arc<Trial>, caller: &Identity) -> Result<Staged, HostError> {
    let (trial, caller) = (Arc::clone(trial), caller.clone());
    match tokio::task::spawn_blocking(move || start::stage(&trial, &caller, &mut |_, _| {})).await {
        Ok(result) => result,
        Err(error) => Err(HostError::new(None, "staging", error, "this is a bug: report it")),
    }
}

fn launch(start: Start, client: Option<&HostClient>) -> Launch {
    let mut argv = start.argv.into_iter();
    let named = argv.next().unwrap_or_default();
    Launch {
        program: client.map_or_else(|| PathBuf::from(named), |client| client.program.clone()),
        args: argv.map(OsString::from).collect(),
        env: start.env,
        own_session: client.is_none(),
    }
}

fn take_lease(trial: &Trial, identity: &RunIdentity, findings: &mut Vec<Finding>) -> Result<Option<Lease>, HostError> {
    if trial.own.lease_sec == 0 {
        findings.push(Finding::new(
            FindingId::LeaseOff,
            "lease_sec is 0: an agent whose controller is killed goes on to the end",
            "set lease_sec to the seconds of grace that an agent should have",
        ));
        return Ok(None);
    }
    Lease::take(&identity.out_dir, &identity.token).map(Some).map_err(|error| {
        let message = format!("the lease cannot be taken in {}: {error}", identity.out_dir.display());
        let hint = "work_dir must be on a local file system with locks and with room; lease_sec: 0 goes without";
        HostError::new(Some("lease_sec"), trial.own.lease_sec, message, hint)
    })
}

type Held = (Arc<dyn Runtime>, Option<Arc<ProcessTree>>);

fn runtime(identity: &RunIdentity, client: Option<PathBuf>) -> Result<Held, HostError> {
    if let (Some(client), Some(name)) = (client, &identity.container) {
        return Ok((Arc::new(Container::new(Cli::new(client), name.clone(), identity.token.clone())), None));
    }
    become_subreaper().map_err(|errno| {
        HostError::new(
            Some("runtime"),
            "process",
            format!("cannot become a subreaper: {errno}"),
            "use a container runtime",
        )
    })?;
    let tree = Arc::new(ProcessTree::new());
    Ok((Arc::clone(&tree) as Arc<dyn Runtime>, Some(tree)))
}

fn gpu_before(trial: &Trial, roots: &Roots, findings: &mut Vec<Finding>) -> Option<vram::Sample> {
    if !trial.gpus.required {
        return None;
    }
    let sample = vram::sample(&roots.sysfs);
    if sample.is_empty() {
        findings.push(Finding::new(
            FindingId::GpuMemoryUnreadable,
            "no GPU shows its memory in /sys/class/drm: release after the trial is not checked",
            "look at the GPU's memory by hand before the next trial",
        ));
        return None;
    }
    Some(sample)
}

impl Prepared {
    /// Notes the spawned process.
    pub fn spawned(&mut self, pid: i32) {
        if self.tree.is_none() {
            return;
        }
        self.entry.agent = ProcessIdentity::of(pid);
        if let Some(registered) = &mut self.registered
            && let Err(error) = registered.update(&self.entry)
        {
            tracing::warn!("the list of living trials could not be updated: {error}");
        }
    }

    /// What it means that the client could not be started.
    pub fn spawn_error(&self, trial: &Trial, error: &io::Error) -> HostError {
        let program = self.launch.program.display().to_string();
        if trial.own.runtime.is_container() {
            let message = format!("the container client {program} cannot be started: {error}");
            return HostError::new(
                Some("container_cli"),
                program,
                message,
                "check the client and the host's process limits",
            );
        }
        let message = format!("the agent {program} cannot be executed: {error}");
        HostError::new(Some("agent_path"), program, message, "name an agent for this machine with --agent")
    }

    /// What a status of the client says about the host; `None` when it says something about the trial.
    pub fn client_error(&self, trial: &Trial, code: i32, foreign: bool, stderr: &str) -> Option<HostError> {
        let client = self.launch.program.display();
        let agent = self.agent_path.display();
        match code {
            // A file that is no program is given to a shell, which answers as the container client would.
            126 | 127 if !trial.own.runtime.is_container() => {
                let message = format!("the agent {agent} cannot be executed on this host ({code}): {stderr}");
                let hint = "name an agent for this machine with --agent";
                Some(HostError::new(Some("agent_path"), code, message, hint))
            }
            126 | 127 => {
                let words = stderr.to_ascii_lowercase();
                let message = format!(
                    "{client} answered {code}: the agent {agent} could not be executed in {}: {stderr}",
                    trial.image
                );
                // The same statuses stand for a device or a mount that the host does not have (FS-02).
                let (key, hint) = if words.contains("device") || words.contains("mount") {
                    (
                        "require_gpu",
                        "the host lacks a device or a mount that the container asks for: see the client's words; require_gpu: false goes without GPUs",
                    )
                } else {
                    (
                        "agent_path",
                        "use the static agent (`make build` leaves it in dist/agent) and an image for this machine",
                    )
                };
                Some(HostError::new(Some(key), code, message, hint))
            }
            125 if foreign => {
                let name = self.entry.container.clone().unwrap_or_default();
                let message = format!("a container called {name} that is not ours is there already: {stderr}");
                Some(HostError::new(
                    None,
                    name,
                    message,
                    "it was left alone; remove it if nobody needs it, and run again",
                ))
            }
            _ => None,
        }
    }

    /// Processes that outlived the agent.
    pub fn survivors(&self) -> Vec<Survivor> {
        self.tree.as_ref().map(|tree| tree.survivors()).unwrap_or_default()
    }

    /// Gives lease, entry and socket back, and the trial's files where they are not kept. Only once nothing of the
    /// trial can be alive. Another call does nothing.
    pub fn release(&mut self, identity: &RunIdentity, keep: bool) {
        if let Some(lease) = self.lease.take() {
            lease.retire();
        }
        if let Some(registered) = self.registered.take() {
            reap::small_files(&identity.out_dir, &identity.token);
            if !keep {
                remove_files(identity);
            }
            registered.remove();
        }
    }
}

/// `keep_work_dir: false`: everything under a name of this trial, links not followed, and nothing else (row 249).
fn remove_files(identity: &RunIdentity) {
    let listing = std::fs::read_dir(&identity.out_dir).into_iter().flatten().flatten();
    for entry in listing {
        let ours = entry.file_name().to_str().is_some_and(|name| proto::names::belongs_to(&identity.token, name));
        if ours && let Err(error) = std::fs::remove_file(entry.path()) {
            tracing::warn!("could not remove {}: {error}", entry.path().display());
        }
    }
}
