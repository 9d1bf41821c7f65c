//! Every cell of an AORTA recipe: read, validated, run trial by trial, aggregated as AORTA does it.
//!
//! [`recipe`], [`registry`] and [`sidecar`] say what is asked for, [`mod@plan`] validates it cell by cell and [`dry_run`]
//! prints that. [`folder`], [`manifest`], [`filed`] and [`book`] know what is on disk and what of it counts, [`local`]
//! runs one trial as a child, [`drive`] brings them together. [`trial`], [`cell`], [`confound`] and [`groups`] are the
//! figures; [`outputs`] writes [`matrix`], [`page`] and [`record`] of them after every trial.

pub mod book;
pub mod cell;
pub mod confound;
pub mod drive;
pub mod dry_run;
pub mod filed;
pub mod folder;
pub mod groups;
pub mod local;
pub mod manifest;
pub mod matrix;
pub mod outputs;
pub mod page;
pub mod plan;
pub mod plots;
pub mod progress;
pub mod recipe;
pub mod record;
pub mod registry;
pub mod sidecar;
pub mod stop_after;
pub mod summary;
pub mod table;
pub mod trial;
