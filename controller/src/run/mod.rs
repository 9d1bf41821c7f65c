//! One trial, from a validated configuration to its end, whatever happens on the way.
//!
//! | module | job |
//! |---|---|
//! | [`machine`] | pure: what follows from what |
//! | [`dispatcher`] | the one loop: picks an input, asks the machine, acts |
//! | [`signals`] | SIGTERM, SIGHUP, SIGINT, the parent's end, and the hour of death |
//! | [`runtime`], [`container`], [`process`], [`cli`] | what holds the agent, behind one trait |
//! | [`removal`] | removing and proving absence |
//! | [`client`], [`output`] | the child, its streams, bounded |
//! | [`journal`] | the agent's own files, read while it writes them |
//! | [`reap`] | what proven-dead trials left |
//! | [`lease`], [`registry`], [`identity`] | who lives, and who is proven dead |
//! | [`vram`] | GPU memory before and after |
//! | [`timings`] | every wait, in one struct |

pub mod cli;
pub mod client;
pub mod container;
pub mod identity;
pub mod journal;
pub mod lease;
pub mod machine;
pub mod output;
pub mod process;
pub mod reap;
pub mod registry;
pub mod removal;
pub mod runtime;
pub mod signals;
pub mod timings;
pub mod vram;
