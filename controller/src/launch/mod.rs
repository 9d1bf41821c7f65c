//! Everything between a valid trial and a running agent: environment, container argv, guards, scratch, staging,
//! ports, and what the host must offer (contract section F; design sections 2 and 4).
//!
//! The order of a run: [`host`] checks what is there, [`start::stage`] makes the trial's places and copies, and
//! [`start::start`] says which process to spawn. [`plan`] says the same without making anything. [`mod@env`], [`argv`],
//! [`guard`] and [`docker_args`] are pure; the rest touches the host and fails with a
//! [`HostError`](crate::error::HostError).

pub mod argv;
pub mod docker_args;
mod elf;
pub mod env;
pub mod guard;
pub mod host;
#[cfg(test)]
mod host_tests;
pub mod identity;
pub mod plan;
pub mod ports;
pub mod scratch;
pub mod stage;
pub mod start;
#[cfg(test)]
mod tests;
