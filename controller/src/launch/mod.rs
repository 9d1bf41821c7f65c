//! Everything between a valid trial and a running agent: environment, container argv, guards, scratch, staging,
//! ports, and what the host must offer (contract section F; design sections 2 and 4).
//!
//! [`env`], [`argv`], [`guard`] and [`docker_args`] are pure; the rest touches the host and fails with a
//! [`HostError`](crate::error::HostError).

pub mod argv;
pub mod docker_args;
pub mod env;
pub mod guard;
pub mod identity;
pub mod ports;
