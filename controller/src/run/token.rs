//! Who a run is, before anything of it exists (contract F.5).

use proto::names;

use super::prepare;
use crate::config::trial::Trial;
use crate::error::HostError;
use crate::launch::start::new_token;
use crate::result::observed::RunIdentity;

/// A new identity for one run of a trial.
pub fn identity(trial: &Trial) -> Result<RunIdentity, HostError> {
    let token = new_token()?;
    let container = trial.own.runtime.is_container().then(|| names::container(&token));
    Ok(RunIdentity {
        token,
        runtime: trial.own.runtime,
        container,
        out_dir: prepare::out_dir(trial),
        gateway_port: None,
        control_port: None,
    })
}
