//! One trial, from a validated configuration to its end, whatever happens on the way.
//!
//! | module | job |
//! |---|---|
//! | [`machine`] | pure: what follows from what |
//! | [`dispatcher`] | the one loop: picks an input, asks the machine, acts |
//! | [`doubt`] | pure: when to ask whether the container is still there |
//! | [`signals`] | SIGTERM, SIGHUP, SIGINT, the parent's end, and the hour of death |
//! | [`runtime`], [`container`], [`process`], [`cli`] | what holds the agent, behind one trait |
//! | [`removal`] | removing and proving absence |
//! | [`descriptors`] | what no child inherits |
//! | [`client`], [`output`] | the child, its streams, bounded |
//! | [`journal`] | the agent's own files, read while it writes them |
//! | [`reap`] | what proven-dead trials left |
//! | [`lease`], [`registry`], [`identity`] | who lives, and who is proven dead |
//! | [`vram`] | GPU memory before and after |
//! | [`prepare`] | checks, staging, image, lease, registry: all before the spawn |
//! | [`gather`], [`writer`] | what is read in the end, and the document's writer |
//! | [`helper`] | goes on where the controller had to die |
//! | [`progress`] | what people see meanwhile |
//! | [`timings`] | every wait, in one struct |

pub mod cli;
pub mod client;
pub mod container;
pub mod descriptors;
pub mod dispatcher;
pub mod doubt;
pub mod gather;
pub mod helper;
pub mod identity;
pub mod journal;
pub mod lease;
pub mod logging;
pub mod machine;
pub mod output;
pub mod prepare;
pub mod process;
pub mod progress;
pub mod reap;
pub mod registry;
pub mod removal;
pub mod runtime;
pub mod signals;
pub mod timings;
pub mod token;
pub mod vram;
pub mod writer;
