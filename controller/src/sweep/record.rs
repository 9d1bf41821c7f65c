//! What a whole sweep leaves for `controller baseline` (review findings, section A): means of passing trials per cell,
//! and a fingerprint of everything that must not change inside a window.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::outputs::{CellView, View};
use super::plan::PlannedCell;
use crate::baseline::record::{CellRecord, CellState, EntryRecord, RunRecord};
use crate::baseline::store::{self, StoreError};
use crate::campaign::state::digest;
use crate::run::vram;

/// Saves the record once: the first time that every trial is there is the observation, and nothing overwrites it.
pub fn save(view: &View<'_>, cells: &[CellView<'_>]) -> Result<(), StoreError> {
    match store::read(&[view.dir.to_path_buf()]) {
        Err(StoreError::Empty(_)) => store::save(view.dir, &record(view, cells)).map(drop),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn record(view: &View<'_>, cells: &[CellView<'_>]) -> RunRecord {
    let (manifest, plan) = (view.manifest, view.plan);
    let name = plan.recipe_path.file_stem().map_or_else(|| "recipe".into(), |stem| stem.to_string_lossy().into_owned());
    let entry = EntryRecord {
        fingerprint: fingerprint(view),
        skipped: None,
        cells: cells.iter().map(|cell| (cell.stats.identity.name.clone(), cell_record(view, cell))).collect(),
    };
    RunRecord {
        schema_version: 1,
        run_id: manifest.run_id.clone(),
        trigger: manifest.trigger,
        started_at: manifest.started().unix_timestamp(),
        entries: BTreeMap::from([(name, entry)]),
    }
}

fn cell_record(view: &View<'_>, cell: &CellView<'_>) -> CellRecord {
    let figures = &cell.stats;
    let state = if figures.did_not_run() {
        CellState::DidNotRun
    } else if figures.failed + figures.errored > 0 {
        CellState::Failed
    } else {
        CellState::Passed
    };
    let reason = match state {
        CellState::Passed => None,
        CellState::Failed | CellState::DidNotRun => Some(figures.hints.first().map_or_else(
            || format!("{} failed and {} errored of {} trials", figures.failed, figures.errored, figures.trials),
            |(hint, _)| hint.clone(),
        )),
    };
    let config = serde_json::Value::Object(view.plan.cells[cell.position].cell.trial_config());
    CellRecord {
        state,
        reason,
        config_sha256: Some(digest(config.to_string().as_bytes())),
        metrics: figures.metrics.iter().map(|metric| (metric.name.clone(), metric.mean())).collect(),
        mean_step_time_ms: (figures.timing.mean > 0.0).then_some(figures.timing.mean),
        correctness: BTreeMap::new(),
    }
}

fn fingerprint(view: &View<'_>) -> BTreeMap<String, Option<String>> {
    let manifest = view.manifest;
    let agents: BTreeSet<&str> = manifest.agents.values().map(|agent| agent.sha256.as_str()).collect();
    let of_trials = |read: &dyn Fn(&PlannedCell) -> Option<String>| {
        let values: BTreeSet<String> = view.plan.cells.iter().filter_map(read).collect();
        joined(values.iter().map(String::as_str))
    };
    let image = |cell: &PlannedCell| {
        let trial = &cell.loaded.as_ref()?.trial;
        // A reference by digest says what it is; behind a tag only the engine knows.
        let digest = trial.image.split_once('@').map(|(_, digest)| digest.to_owned());
        let known = digest.or_else(|| manifest.images.get(&cell.cell.name).cloned());
        trial.own.runtime.is_container().then_some(known).flatten()
    };
    let facts = [
        ("recipe_sha256", Some(manifest.recipe.sha256.clone())),
        ("agent_digest", joined(agents.into_iter())),
        ("controller_version", Some(manifest.controller_version.clone())),
        ("image_digest", of_trials(&image)),
        ("bench_tool", of_trials(&|cell| Some(cell.loaded.as_ref()?.trial.own.bench_tool.as_str().to_owned()))),
        ("runtime", of_trials(&|cell| Some(cell.loaded.as_ref()?.trial.own.runtime.as_str().to_owned()))),
        ("host", joined(manifest.hosts().into_iter())),
        ("kernel", manifest.host.kernel.clone()),
        ("gpu_model", vram::models(Path::new("/sys"))),
    ];
    facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn joined<'a>(values: impl Iterator<Item = &'a str>) -> Option<String> {
    let all: Vec<&str> = values.collect();
    (!all.is_empty()).then(|| all.join(", "))
}
