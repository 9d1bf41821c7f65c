//! What a run would do, as JSON (`controller run --dry-run`; design section 2): the host is checked, nothing is
//! pulled, staged or started.

use std::path::{Path, PathBuf};

use proto::finding::{Finding, FindingId};
use schemars::JsonSchema;
use serde::Serialize;

use super::host::{self, Client};
use super::identity::{Identity, own_process};
use super::start::{self, HostEnv, Places};
use super::{argv, scratch, stage};
use crate::config::Loaded;
use crate::config::trial::{Data, Pull, RuntimeKind, Trial};
use crate::error::{HostError, SCHEMA_VERSION};

/// The plan of one trial.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Plan {
    /// Version of the documents.
    pub schema_version: u32,
    /// What holds the agent.
    pub runtime: RuntimeKind,
    /// The image; null in the process runtime.
    pub image: Option<String>,
    /// Whether the image is on this host; null in the process runtime.
    pub image_present: Option<bool>,
    /// Its id, where it is on this host. Not part of the printed plan.
    #[serde(skip)]
    pub image_id: Option<String>,
    /// Program and arguments. Secrets go by name; values from the cell's mitigations read `***`.
    pub argv: Vec<String>,
    /// Names of the variables that the agent gets, sorted.
    pub environment: Vec<String>,
    /// The agent's file and digest.
    pub agent: PlannedAgent,
    /// Where exports and logs would go.
    pub out: PathBuf,
    /// Gateway port of this dry run; an automatic one is chosen again by the run.
    pub port: u16,
    /// Control port, likewise.
    pub control_port: u16,
    /// Seconds.
    pub deadlines: Deadlines,
    /// Steps, in order.
    pub warmup_steps: u32,
    /// Measured steps.
    pub steps: u32,
    /// What is odd about the configuration.
    pub findings: Vec<Finding>,
}

/// The agent of a plan.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PlannedAgent {
    /// On the host.
    pub path: PathBuf,
    /// Of its contents.
    pub sha256: String,
}

/// Deadlines of a plan, seconds.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Deadlines {
    /// One pull; null where nothing is pulled.
    pub pull_sec: Option<u64>,
    /// Until `/health` answers.
    pub ready_sec: u64,
    /// One bench step.
    pub bench_sec: u64,
    /// SIGTERM to SIGKILL for the server.
    pub teardown_grace_sec: u64,
    /// The orchestrator's gateway.
    pub gateway_startup_sec: u64,
    /// Everything in the container.
    pub container_sec: u64,
    /// Grace after a lost controller; 0 is off.
    pub lease_sec: u64,
}

/// Checks the host and makes the plan.
pub async fn plan(loaded: &Loaded, kfd: &Path, host_env: &HostEnv) -> Result<Plan, HostError> {
    let trial = &loaded.trial;
    let identity = Identity::current();
    let client = Client::find(trial)?;
    host::gpu(trial, kfd)?;
    scratch::inspect(&trial.place, identity.uid)?;
    let image_id = match &client {
        None => None,
        Some(client) => {
            client.local(|name| host_env.get(name)).await?;
            client.reachable().await?;
            Some(client.image_id(&trial.image).await?)
        }
    };
    let image_present = image_id.as_ref().map(Option::is_some);
    if image_present == Some(false) && trial.own.pull == Pull::Never {
        return Err(host::no_image(&trial.image));
    }
    let dir = scratch::dir_of(&trial.place, identity.uid);
    let (bin, out) = (dir.join("bin"), dir.join("out"));
    let source = stage::find_agent(trial.own.agent_path.as_deref())?;
    let agent = match client {
        Some(_) => stage::agent_to_stage(&bin, &source)?,
        None => stage::agent_in_place(&source)?,
    };
    let dataset = match &trial.load.data {
        Data::Sharegpt { path, .. } => Some(stage::dataset_to_stage(&dir.join("datasets"), path)?),
        Data::Random { .. } => None,
    };
    let places = Places {
        bin: &bin,
        out: &out,
        hf_home: &scratch::hf_home_of(&trial.place, identity.uid),
        dataset: dataset.as_deref(),
        agent: &agent,
    };
    let token = start::new_token()?;
    let start = start::start(trial, &places, &token, &identity, &own_process()?, host_env)?;
    let mut findings = loaded.findings.clone();
    findings.extend(start.secret_unset.then(|| secret_unset(trial)));
    Ok(Plan {
        schema_version: SCHEMA_VERSION,
        runtime: trial.own.runtime,
        image: trial.own.runtime.is_container().then(|| trial.image.clone()),
        image_present,
        image_id: image_id.flatten(),
        argv: argv::shown(&start.argv, trial),
        environment: start.agent_env_names,
        agent: PlannedAgent { path: source, sha256: agent.sha256.clone() },
        out: out.clone(),
        port: start.ports.gateway,
        control_port: start.ports.control,
        deadlines: deadlines(trial, image_present),
        warmup_steps: trial.load.warmup_steps,
        steps: trial.load.steps,
        findings,
    })
}

fn deadlines(trial: &Trial, image_present: Option<bool>) -> Deadlines {
    let pulls = match (trial.own.pull, image_present) {
        (_, None) | (Pull::Never, _) | (Pull::Missing, Some(true)) => false,
        (Pull::Missing, Some(false)) | (Pull::Always, Some(_)) => true,
    };
    let timing = &trial.timing;
    Deadlines {
        pull_sec: pulls.then_some(trial.own.pull_timeout_sec),
        ready_sec: timing.ready_timeout_sec,
        bench_sec: timing.bench_timeout_sec,
        teardown_grace_sec: timing.teardown_grace_sec,
        gateway_startup_sec: timing.gateway_startup_timeout_sec,
        container_sec: timing.timeout_sec,
        lease_sec: trial.own.lease_sec,
    }
}

/// Failure scenario FS-78, as amended: named and not there is a finding, and the trial goes on.
pub fn secret_unset(trial: &Trial) -> Finding {
    let detail = format!("hf_token_env names {}, which is not set on this host", trial.place.hf_token_env);
    Finding::new(FindingId::SecretUnset, detail, "export it where the controller runs, or remove hf_token_env")
}
