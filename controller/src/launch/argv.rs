//! The command line of the container client, as a pure function (contract F.6 with the replacements of design section 4).

use std::path::Path;

use super::docker_args;
use super::env::{DATASET_MOUNT, Environment, HF_MOUNT};
use super::identity::Identity;
use crate::config::trial::{RuntimeKind, Trial};

/// Where the directory of staged agents is mounted.
pub const BIN_MOUNT: &str = "/ts-bin";

/// Everything that a container is made from.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    /// The trial.
    pub trial: &'a Trial,
    /// The container's name.
    pub name: &'a str,
    /// The calling user.
    pub identity: &'a Identity,
    /// Host directory that holds the staged agents.
    pub bin: &'a Path,
    /// File name of the agent in it.
    pub agent: &'a str,
    /// Host directory of exports and logs.
    pub out: &'a Path,
    /// Host directory of the Hugging Face cache.
    pub hf_home: &'a Path,
    /// Staged dataset on the host.
    pub dataset: Option<&'a Path>,
    /// The agent's environment.
    pub env: &'a Environment,
    /// Whether a token goes in, by name.
    pub passes_token: bool,
    /// Labels, in order.
    pub labels: &'a [(String, String)],
}

/// The client's argv, program included. Never logged: environment values may be secret.
pub fn run(c: &Container<'_>) -> Vec<String> {
    let trial = c.trial;
    let mut argv = Argv(vec![trial.own.container_cli.clone(), "run".into(), "--rm".into()]);
    argv.pair("--name", c.name);
    argv.pair("--pull", "never");
    // A container that logs without bound fills the host's disk (FS-42).
    let driver = match trial.own.runtime {
        RuntimeKind::Podman => "k8s-file",
        RuntimeKind::Docker | RuntimeKind::Process => "local",
    };
    argv.pair("--log-driver", driver);
    argv.pair("--log-opt", "max-size=16m");
    if trial.gpus.required {
        argv.pair("--device", "/dev/kfd");
        argv.pair("--device", "/dev/dri");
        argv.pair("--group-add", "video");
        argv.pair("--group-add", "render");
    }
    argv.pair("--security-opt", "seccomp=unconfined");
    argv.pair("--network", &trial.place.network);
    argv.pair("--shm-size", &trial.place.shm_size);
    argv.pair("--mount", &mount(c.bin, BIN_MOUNT, true));
    argv.pair("--mount", &mount(c.out, proto::limits::default::OUT_DIR, false));
    argv.pair("--mount", &mount(c.hf_home, HF_MOUNT, false));
    if let Some(dataset) = c.dataset {
        argv.pair("--mount", &mount(dataset, DATASET_MOUNT, true));
    }
    if trial.place.run_as_current_user {
        // Without it a rootless podman maps the caller to root inside, and `--user` to nobody's files.
        if trial.own.runtime == RuntimeKind::Podman && c.identity.uid != 0 {
            argv.pair("--userns", "keep-id");
        }
        argv.pair("--user", &format!("{}:{}", c.identity.uid, c.identity.gid));
    }
    for (name, value) in c.labels {
        argv.pair("--label", &format!("{name}={value}"));
    }
    for (name, value) in c.env {
        argv.pair("-e", &format!("{name}={value}"));
    }
    if c.passes_token {
        argv.pair("-e", proto::env::HF_TOKEN);
    }
    argv.0.extend(trial.docker_args.iter().cloned());
    argv.pair("--entrypoint", &format!("{BIN_MOUNT}/{}", c.agent));
    argv.0.push(trial.image.clone());
    argv.0
}

struct Argv(Vec<String>);

impl Argv {
    fn pair(&mut self, option: &str, value: &str) {
        self.0.extend([option.to_owned(), value.to_owned()]);
    }
}

/// A bind mount, which fails when its source is missing. The clients read the value as one CSV record.
fn mount(source: &Path, target: &str, readonly: bool) -> String {
    let source = format!("source={}", source.display());
    let source =
        if source.contains([',', '"', '\n', '\r']) { format!("\"{}\"", source.replace('"', "\"\"")) } else { source };
    let readonly = if readonly { ",readonly" } else { "" };
    format!("type=bind,{source},target={target}{readonly}")
}

/// What an argv shows where it is printed: values that did not come from the configuration's own keys are left out,
/// those of the cell's mitigations and those in `docker_args`.
pub fn shown(argv: &[String], trial: &Trial) -> Vec<String> {
    if !trial.own.runtime.is_container() {
        return argv.to_vec();
    }
    // The extras end where `--entrypoint <agent> <image>` begins.
    let end = argv.len().saturating_sub(3);
    let begin = end.saturating_sub(trial.docker_args.len());
    let mut shown: Vec<String> = argv[..begin].to_vec();
    for index in 1..begin {
        if argv[index - 1] == "-e"
            && let Some((name, _)) = argv[index].split_once('=')
            && trial.trial_env.contains_key(name)
        {
            shown[index] = format!("{name}={}", docker_args::HIDDEN);
        }
    }
    shown.extend(docker_args::without_values(&argv[begin..end]));
    shown.extend_from_slice(&argv[end..]);
    shown
}
