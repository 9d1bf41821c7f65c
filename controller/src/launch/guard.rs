//! Names that belong to the protocol between host and container: no mitigation and no `docker_args` may set them,
//! because only one side would learn of it (contract F.7, F.8).

use std::collections::BTreeSet;

use super::env;
use crate::config::trial::Trial;
use crate::error::ConfigError;

/// Whether a text is a variable name: `[A-Za-z_][A-Za-z0-9_]*`.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The names that a trial owns.
#[derive(Debug, Clone)]
pub struct Owned {
    /// What this trial sets, and what the protocol sets under any configuration: absence is a setting too.
    protocol: BTreeSet<String>,
    /// Names that carry secrets, whether or not a value exists.
    secrets: BTreeSet<String>,
}

/// Whose a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The protocol's.
    Protocol,
    /// A secret's.
    Secret,
}

impl Owned {
    /// The names of one trial.
    pub fn of(trial: &Trial) -> Self {
        let secrets = proto::env::SECRETS.iter().map(|name| (*name).to_owned());
        Self { protocol: env::owned_names(trial), secrets: secrets.chain([trial.place.hf_token_env.clone()]).collect() }
    }

    /// Who owns a name, if anybody does.
    pub fn owner(&self, name: &str) -> Option<Owner> {
        if self.secrets.contains(name) {
            return Some(Owner::Secret);
        }
        self.protocol.contains(name).then_some(Owner::Protocol)
    }
}

/// Remedy for a secret that is named where it would become visible.
pub(super) const SECRET_HINT: &str =
    "export the credential in the host environment under the name in hf_token_env; it is passed by name only";

/// Refuses mitigations that redefine an owned name, all of them in one error each for protocol and secrets.
pub fn mitigations(trial: &Trial) -> Vec<ConfigError> {
    let owned = Owned::of(trial);
    let colliding = |owner: Owner| -> Vec<&str> {
        trial.trial_env.keys().map(String::as_str).filter(|name| owned.owner(name) == Some(owner)).collect()
    };
    let mut errors = Vec::new();
    let protocol = colliding(Owner::Protocol);
    if !protocol.is_empty() {
        let rule = format!("may not redefine what this workload sets itself: {}", protocol.join(", "));
        let hint = "remove them from the cell's mitigations or extra_env, and set the matching workload_config key";
        errors.push(ConfigError::about("_aorta_trial_env", rule, hint));
    }
    let secrets = colliding(Owner::Secret);
    if !secrets.is_empty() {
        let rule = format!("may not carry a credential: {}", secrets.join(", "));
        errors.push(ConfigError::about("_aorta_trial_env", rule, SECRET_HINT));
    }
    errors
}
