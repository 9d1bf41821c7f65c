//! From text to a [`Trial`](trial::Trial): YAML or JSON, keys, coercion, cross-field rules (contract section E).
//!
//! [`source`] reads a file or stdin, [`json`] and [`yaml`] make [`value::Value`]s of it, [`mod@load`] makes a trial of
//! those by the table in [`keys`]. The first three know nothing of trials and serve recipes as well.

mod doubts;
pub mod json;
pub mod keys;
pub mod load;
mod reader;
mod rollout;
pub mod scalar;
pub mod schema;
pub mod source;
#[cfg(test)]
mod tests;
pub mod trial;
pub mod value;
mod words;
pub mod yaml;

pub use load::{Loaded, Overrides, load, validate};
