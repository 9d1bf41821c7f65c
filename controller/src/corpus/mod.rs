//! The five-band prompt corpus of the mixed-load harness (harness spec section A).
//!
//! A pure function of (bytes of three sources, seed, weights, count): [`source`] reads, [`bands`] shares the
//! count out, [`plan`] makes every draw in the published order and keeps only what is needed to write an item
//! later, [`mod@write`] streams the corpus and its manifest. [`rng`] and [`pyjson`] are the two layers that make
//! the bytes those of the published builder: its generator and its JSON text.

pub mod bands;
pub mod plan;
pub mod pyjson;
pub mod rng;
pub mod source;
pub mod write;

use std::path::Path;

use bands::{AllocationError, Weights};
use plan::{Plan, PlanError};
use rng::Seed;
use source::{SourceError, Sources};
use write::{Manifest, WriteError};

/// What to build. Source paths stay as typed, because the manifest records them so.
#[derive(Debug, Clone)]
pub struct Request {
    /// GSM8K rows, JSONL with `question`.
    pub gsm8k: String,
    /// HumanEval rows, JSONL with `prompt`.
    pub humaneval: String,
    /// Sonnet lines, plain text.
    pub sonnet: String,
    /// Prompts to build.
    pub count: i64,
    /// Generator seed.
    pub seed: Seed,
    /// Band shares.
    pub weights: Weights,
    /// `generator` of the manifest; the upstream constant unless the caller names itself.
    pub generator: String,
}

/// Why a corpus was not built; nothing of it is on disk then.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The count.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// A draw that the sources cannot supply.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An output file.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Builds the corpus into `out` and the manifest into `manifest`; returns the manifest's text.
///
/// Both files appear whole or not at all: everything that can be refused is refused before the first byte.
pub fn build(request: &Request, out: &Path, manifest: &Path) -> Result<String, BuildError> {
    let counts = request.weights.allocate(request.count)?;
    let sources = Sources::read(&request.gsm8k, &request.humaneval, &request.sonnet)?;
    let plan = Plan::draw(&sources, &counts, &request.seed)?;
    let corpus_sha256 = write::corpus(&sources, &plan, out)?;
    let text = Manifest { request, counts: &counts, sources: &sources, plan: &plan, corpus_sha256 }.text();
    write::text(&text, manifest)?;
    Ok(text)
}
