//! Every cell of an AORTA recipe: read, validated, run trial by trial, aggregated as AORTA does it.

pub mod cell;
pub mod confound;
pub mod matrix;
pub mod recipe;
pub mod registry;
pub mod table;
pub mod trial;
