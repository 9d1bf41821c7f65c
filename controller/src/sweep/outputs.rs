//! What is made of the trials, after every one of them: matrix.json, matrix.md, perf.md, report.html,
//! recipe.resolved.yaml, and the run record for baselines once everything is there.

use std::io::{self, Write as _};
use std::path::Path;

use serde_json::Value;
use time::macros::format_description;

use super::book::{Book, Entry};
use super::cell::{CellIdentity, CellStats};
use super::confound::{Confound, classify, resolve_baseline};
use super::groups;
use super::manifest::Manifest;
use super::matrix::{Row, RunHeader, json_document, matrix_markdown, perf_markdown};
use super::plan::Plan;
use super::trial::{TrialRecord, Verdict};
use super::{page, record};
use crate::campaign::state::digest;
use crate::report::plots::PlotError;
use crate::whole_file::WholeFile;

/// A sweep as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// What was asked for.
    pub plan: &'a Plan,
    /// How it came about.
    pub manifest: &'a Manifest,
    /// The trials.
    pub book: &'a Book,
    /// Where it stands.
    pub dir: &'a Path,
}

/// Reports that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file system.
    #[error("output directory: {0}")]
    Io(#[from] io::Error),
    /// A plot; a fault of this program.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// The run record.
    #[error(transparent)]
    Record(#[from] crate::baseline::store::StoreError),
}

/// A cell with its trials, aggregated.
#[derive(Debug)]
pub struct CellView<'a> {
    /// Position in the plan.
    pub position: usize,
    /// Its trials, by index.
    pub entries: Vec<(u32, &'a Entry)>,
    /// Its figures.
    pub stats: CellStats,
}

impl<'a> View<'a> {
    /// Every cell that has trials, in the recipe's order.
    pub fn cells(&self) -> Vec<CellView<'a>> {
        let with_trials = self.plan.cells.iter().enumerate().filter_map(|(position, planned)| {
            let cell = &planned.cell;
            let entries: Vec<(u32, &Entry)> =
                (0..cell.trials).filter_map(|index| Some((index, self.book.get(position, index)?))).collect();
            if entries.is_empty() {
                return None;
            }
            let records: Vec<TrialRecord> = entries.iter().map(|(_, entry)| entry.record.clone()).collect();
            let paths = entries.iter().map(|(_, entry)| entry.path.display().to_string()).collect();
            let identity = CellIdentity {
                name: cell.name.clone(),
                mitigations: cell.mitigations.clone(),
                environment: cell.environment.name.clone(),
                extra_env: cell.extra_env.clone(),
                resolved_env_vars: cell.trial_env.clone(),
                workload_config: cell.workload_config.clone(),
                steps: cell.steps,
            };
            let mut stats = CellStats::aggregate(identity, &records, paths, None);
            let verdicts: Vec<Verdict> = records.iter().map(TrialRecord::verdict).collect();
            stats.stop_after_note = self.plan.recipe.stop_after.map(|stop| stop.note(&verdicts));
            stats.resumed = entries.iter().all(|(_, entry)| entry.resumed);
            Some(CellView { position, entries, stats })
        });
        with_trials.collect()
    }

    /// Trials that are there, and all that the recipe asks for at most.
    pub fn counts(&self) -> (usize, usize) {
        let there = (0..self.plan.cells.len()).map(|position| self.book.of(position).count()).sum::<usize>();
        let owed = (0..self.plan.cells.len()).map(|position| self.book.pending(self.plan, position)).sum::<usize>();
        (there, there + owed)
    }
}

/// The baseline among the cells that have trials, and what to say about it.
fn baseline(plan: &Plan, cells: &[CellView<'_>], warnings: &mut Vec<String>) -> Option<String> {
    let candidates: Vec<(&str, &[String])> = cells
        .iter()
        .map(|cell| (cell.stats.identity.name.as_str(), cell.stats.identity.mitigations.as_slice()))
        .collect();
    let idle = |name: &str| cells.iter().any(|c| c.stats.identity.name == name && c.stats.did_not_run());
    let wanted = plan.recipe.baseline.as_deref();
    if let Some(name) = resolve_baseline(&candidates, wanted, idle) {
        if wanted.is_some() && idle(name) {
            warnings.push(format!(
                "the named baseline {name} ran no trial to its measurement: nothing is compared; see cells/{name}/"
            ));
        }
        return Some(name.to_owned());
    }
    let name = resolve_baseline(&candidates, wanted, |_| false)?;
    warnings
        .push(format!("the baseline {name} ran no trial to its measurement: nothing is compared; see cells/{name}/"));
    Some(name.to_owned())
}

/// Writes everything. `unfinished` says why trials are missing, where some are.
pub fn write(view: &View<'_>, unfinished: Option<&str>) -> Result<(), OutputError> {
    let plan = view.plan;
    // JSON is YAML; it loads as a recipe, here and in AORTA.
    let resolved = format!("{}\n", pretty(&plan.resolved()));
    text(&view.dir.join("recipe.resolved.yaml"), &resolved)?;
    let cells = view.cells();
    let mut warnings = Vec::new();
    let (there, all) = view.counts();
    if there < all {
        let why = unfinished.unwrap_or("cells were left out by --cell");
        warnings.push(format!("incomplete: {there} of {all} trials are here, {why}; --resume goes on"));
    }
    let hosts = view.manifest.hosts();
    if hosts.len() > 1 {
        warnings.push(format!("trials are from several machines: {}", hosts.join(", ")));
    }
    let baseline = baseline(plan, &cells, &mut warnings);
    for cell in &cells {
        let trials: Vec<(u32, TrialRecord)> = cell.entries.iter().map(|(i, e)| (*i, e.record.clone())).collect();
        warnings.extend(groups::flags(&cell.stats.identity.name, &trials));
    }
    let header = header(view, baseline, warnings, digest(resolved.as_bytes()));
    let against = cells.iter().map(|c| &c.stats).find(|stats| Some(&stats.identity.name) == header.baseline.as_ref());
    let rows: Vec<Row<'_>> = cells
        .iter()
        .map(|cell| Row {
            cell: &cell.stats,
            confound: classify(&cell.stats, against, plan.recipe.threshold),
            environment: plan.cells[cell.position].cell.environment.to_matrix(),
        })
        .collect();
    debug_assert!(rows.iter().filter(|row| row.confound == Confound::Baseline).count() <= 1);
    text(&view.dir.join("matrix.json"), &ascii(&pretty(&json_document(&header, &rows))))?;
    text(&view.dir.join("matrix.md"), &matrix_markdown(&header, &rows))?;
    text(&view.dir.join("perf.md"), &perf_markdown(&header, &rows))?;
    text(&view.dir.join("report.html"), &page::render(view, &header, &cells, &rows)?)?;
    if there == all {
        record::save(view, &cells)?;
    }
    Ok(())
}

fn header(view: &View<'_>, baseline: Option<String>, warnings: Vec<String>, resolved_sha256: String) -> RunHeader {
    let recipe = &view.plan.recipe;
    let stamp = format_description!("[year]-[month]-[day]T[hour]-[minute]-[second]");
    RunHeader {
        workload: recipe.workload.clone(),
        ticket: recipe.ticket.clone(),
        // A trial is a process of its own whatever the recipe asks for.
        trial_isolation: "process".to_owned(),
        trial_isolation_requested: recipe.trial_isolation.clone(),
        trials: recipe.stop_after.map_or(recipe.trials, |stop| stop.max_trials),
        steps: recipe.steps,
        timestamp: view.manifest.started().format(stamp).unwrap_or_default(),
        baseline,
        threshold: recipe.threshold,
        baseline_configured: recipe.baseline.clone(),
        stop_after: recipe.stop_after.map(super::stop_after::StopAfter::to_json),
        warnings,
        recipe_path: view.plan.recipe_path.display().to_string(),
        recipe_sha256: view.plan.recipe_sha256.clone(),
        resolved_sha256,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Non-ASCII characters as JSON escapes, as AORTA writes its matrix.
fn ascii(json: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

fn text(path: &Path, content: &str) -> io::Result<()> {
    let file = WholeFile::create(path)?;
    file.handle().write_all(content.as_bytes())?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_ascii_is_escaped() {
        assert_eq!(ascii("{\"a\": \"\u{2014} \u{1f600}\"}"), "{\"a\": \"\\u2014 \\ud83d\\ude00\"}");
    }
}
