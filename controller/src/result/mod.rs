//! The result of a trial: what was seen ([`observed`]), what the exports say ([`collect`]), what follows from
//! both ([`aggregate`], [`details`], [`assemble`]), the document ([`document`]), its atomic store ([`store`]) and its words ([`words`]).
//!
//! Everything but `collect` and `store` is pure, so that each row of contract section I is a table test.

pub mod aggregate;
pub mod assemble;
pub mod collect;
pub mod details;
pub mod document;
pub mod observed;
pub mod store;
pub mod words;

#[cfg(test)]
mod tests;
