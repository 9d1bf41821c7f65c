//! What to spawn for a trial: one answer for every runtime, so that the lifecycle above needs no other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use proto::names::{self, RunToken};

use super::argv::{self, Container};
use super::env::{self, Environment, Locations};
use super::identity::Identity;
use super::ports::{self, Ports};
use super::scratch::{self, Scratch};
use super::stage::{self, Agent, Progress};
use crate::config::trial::{Data, Trial};
use crate::error::HostError;
use crate::run::identity::ProcessIdentity;

/// The trial's places, agent and dataset, made.
#[derive(Debug)]
pub struct Staged {
    /// Directories.
    pub scratch: Scratch,
    /// The agent: staged for a container, in place for a process.
    pub agent: Agent,
    /// The staged dataset, where the trial has one.
    pub dataset: Option<PathBuf>,
}

/// Makes scratch, stages agent and dataset (contract F.1, 4). `progress` hears of large copies.
pub fn stage(trial: &Trial, identity: &Identity, progress: Progress<'_>) -> Result<Staged, HostError> {
    let source = stage::find_agent(trial.own.agent_path.as_deref())?;
    let scratch = scratch::prepare(&trial.place, identity.uid)?;
    let agent = if trial.own.runtime.is_container() {
        stage::stage_agent(&scratch, &source)?
    } else {
        stage::agent_in_place(&source)?
    };
    let dataset = match &trial.load.data {
        Data::Sharegpt { path, .. } => Some(stage::stage_dataset(&scratch, path, progress)?),
        Data::Random { .. } => None,
    };
    Ok(Staged { scratch, agent, dataset })
}

/// Directories and files of a trial on the host, made or to be made.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// Staged agents.
    pub bin: &'a Path,
    /// Exports and logs.
    pub out: &'a Path,
    /// Hugging Face cache.
    pub hf_home: &'a Path,
    /// Staged dataset.
    pub dataset: Option<&'a Path>,
    /// The agent.
    pub agent: &'a Agent,
}

impl Staged {
    /// As borrowed paths.
    pub fn places(&self) -> Places<'_> {
        Places {
            bin: &self.scratch.bin,
            out: &self.scratch.out,
            hf_home: &self.scratch.hf_home,
            dataset: self.dataset.as_deref(),
            agent: &self.agent,
        }
    }
}

/// What of the host's environment a start depends on.
#[derive(Debug, Clone)]
pub struct HostEnv {
    vars: Vec<(OsString, OsString)>,
}

impl HostEnv {
    /// This process's own.
    pub fn current() -> Self {
        Self { vars: std::env::vars_os().collect() }
    }

    /// From pairs.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { vars: pairs.into_iter().collect() }
    }

    /// One variable.
    pub fn get(&self, name: &str) -> Option<OsString> {
        self.vars.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    }

    /// Hosts that go past the host's proxies.
    fn no_proxy(&self) -> Option<String> {
        let value = self.get("NO_PROXY").or_else(|| self.get("no_proxy"))?;
        value.into_string().ok()
    }
}

/// One process to spawn.
#[derive(Debug, Clone)]
pub struct Start {
    /// Program and arguments. Never logged: environment values of a container stand in it.
    pub argv: Vec<String>,
    /// The child's whole environment, with the token where there is one. Never logged.
    pub env: Vec<(OsString, OsString)>,
    /// Resolved.
    pub ports: Ports,
    /// The container's name; `None` for the process runtime.
    pub container: Option<String>,
    /// Names of what the agent gets, sorted; values stay out of every document.
    pub agent_env_names: Vec<String>,
    /// The config names a secret that this host does not have (failure scenario FS-78).
    pub secret_unset: bool,
}

/// Token of a run: process id and monotonic nanoseconds (contract F.5).
pub fn new_token() -> Result<RunToken, HostError> {
    let failed =
        |reason: String| HostError::new(None, "CLOCK_MONOTONIC", reason, "this is a fault of the host's clock");
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map_err(|e| failed(e.to_string()))?;
    let nanoseconds = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    RunToken::parse(&format!("{}-{nanoseconds}", std::process::id())).map_err(|e| failed(e.to_string()))
}

/// Resolves the ports and says what to spawn. Nothing is started.
pub fn start(
    trial: &Trial,
    places: &Places<'_>,
    token: &RunToken,
    identity: &Identity,
    controller: &ProcessIdentity,
    host: &HostEnv,
) -> Result<Start, HostError> {
    let in_container = trial.own.runtime.is_container();
    let shares_host = !in_container || trial.place.network == "host";
    let ports = ports::resolve(trial.ports, ports::metrics_port(&trial.serve_args), shares_host)?;
    let no_proxy = host.no_proxy();
    let run = env::Run { token, ports, identity, no_proxy: no_proxy.as_deref() };
    let at = if in_container {
        Locations::in_container(trial)
    } else {
        Locations {
            out: places.out.to_owned(),
            hf_home: places.hf_home.to_owned(),
            dataset: places.dataset.map(Path::to_owned),
        }
    };
    let agent_env: Environment = env::agent(trial, &at, &run);
    let secret = env::hf_token(trial, |name| host.get(name));
    let agent_env_names = agent_env.keys().cloned().collect();
    let secret_unset = secret.is_none() && trial.place.hf_token_env_named;
    let passed = secret.as_deref();
    let (argv, env, container) = if in_container {
        let name = names::container(token);
        let labels = identity.labels(controller, token, places.out);
        let argv = argv::run(&Container {
            trial,
            name: &name,
            identity,
            bin: places.bin,
            agent: &places.agent.file_name,
            out: places.out,
            hf_home: places.hf_home,
            dataset: places.dataset,
            env: &agent_env,
            passes_token: passed.is_some(),
            labels: &labels,
        });
        (argv, env::client(host.vars.clone(), passed), Some(name))
    } else {
        let argv = vec![places.agent.path.display().to_string(), "run".to_owned()];
        (argv, env::process(host.vars.clone(), trial, &agent_env, passed), None)
    };
    Ok(Start { argv, env, ports, container, agent_env_names, secret_unset })
}

/// Whether a name is one of the trial's secrets, for whoever prints an environment.
pub fn is_secret(trial: &Trial, name: &OsStr) -> bool {
    name == trial.place.hf_token_env.as_str() || proto::env::SECRETS.iter().any(|secret| name == *secret)
}
