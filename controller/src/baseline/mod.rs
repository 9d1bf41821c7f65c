//! Bounds from a window of nights, and nights against bounds (review findings, section A).
//!
//! [`record`] is what one run leaves, [`store`] keeps them under unique names, [`policy`] says which way a metric
//! is gated, [`mod@file`] holds the bounds and touches nothing it did not derive, [`bless`] derives them, [`check`]
//! holds a run against them. All but the store and the file's last step is pure.

pub mod bless;
pub mod check;
pub mod file;
pub mod policy;
pub mod record;
pub mod store;

#[cfg(test)]
mod tests;
