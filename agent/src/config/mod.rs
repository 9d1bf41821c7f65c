//! From the environment to a [`LaunchPlan`]: every rule of contract section A, in the order of A.6.
//!
//! Pure but for three looks at the file system (dataset, output directory, PATH), each in its own
//! function. Nothing is created here. A plan cannot be made that the supervisor would have to check again.

mod argv;
mod listen;
mod native;
mod parse;
mod place;
mod plan;
#[cfg(test)]
mod rows;
mod source;
mod usage;

pub use argv::Argv;
pub use listen::Listen;
pub use parse::parse;
pub use place::{creatable, create_out_dir, find_tokenspeed};
pub use plan::{Data, Decimal, Drain, LaunchPlan, Load, Rollout, Secret, StepId};
pub use source::{Flags, Source};
pub use usage::{Stage, UsageError};

use std::path::{Path, PathBuf};

/// Everything that is checked before something is started: the settings, the output directory by
/// `out_dir` ([`create_out_dir`] or [`creatable`]), and the way to `tokenspeed`.
///
/// A wrong count is reported after a missing `tokenspeed`, as contract A.6 has it, but creates nothing.
pub fn validate(
    source: &Source,
    path: Option<&str>,
    out_dir: impl Fn(&Path) -> Result<(), UsageError>,
) -> Result<(LaunchPlan, PathBuf), UsageError> {
    let plan = parse(source).map_err(|error| match error.stage {
        Stage::BeforeOutDir => error,
        Stage::Counts => find_tokenspeed(path).err().unwrap_or(error),
    })?;
    out_dir(&plan.out_dir)?;
    let tokenspeed = find_tokenspeed(path)?;
    Ok((plan, tokenspeed))
}
