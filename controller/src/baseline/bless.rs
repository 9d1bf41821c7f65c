//! Derives bounds from a window of nights: the extreme over all of it, times the margin. All or nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use time::Date;

use super::file::BaselineFile;
use super::policy::{GATEABLE, Policy, direction, never};
use super::record::{CellState, EntryRecord, RunRecord, Trigger};

/// Nights of a window.
pub const WINDOW_NIGHTS: usize = 10;

/// What a bless is asked to do.
#[derive(Debug, Clone)]
pub struct Request {
    /// Metrics to gate; empty refreshes correctness values only.
    pub metrics: Vec<String>,
    /// Margin, 0.25 for a quarter.
    pub margin: f64,
    /// Nights of the window.
    pub nights: usize,
    /// Entries; empty means every entry of the records.
    pub entries: Vec<String>,
    /// Whether runs started by hand count as nights.
    pub include_manual: bool,
    /// Whether holes may be left out of the window instead of ending it. Written into the file.
    pub bridge_holes: bool,
    /// Fingerprint fields that may differ inside the window. Written into the file.
    pub allow_mixed: Vec<String>,
}

/// Why nothing is blessed. Each line names entry, cell or field, night and reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlessError {
    /// The request itself.
    #[error("{0}")]
    Request(String),
    /// The records.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
}

/// One bound, with where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Derived {
    /// Entry.
    pub entry: String,
    /// Cell.
    pub cell: String,
    /// Metric.
    pub metric: String,
    /// Direction.
    pub policy: Policy,
    /// The bound.
    pub bound: f64,
    /// Observations.
    pub n: usize,
    /// Smallest of the window.
    pub min: f64,
    /// Largest of the window.
    pub max: f64,
    /// Night that set the bound.
    pub night: Date,
}

impl Derived {
    /// `max / min - 1` of the window; infinite from zero.
    pub fn spread(&self) -> f64 {
        spread(self.min, self.max)
    }
}

fn spread(min: f64, max: f64) -> f64 {
    if min > 0.0 { max / min - 1.0 } else { f64::INFINITY }
}

/// What a bless did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Bounds derived.
    pub derived: Vec<Derived>,
    /// Entries left as they are, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Where a metric stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It can be blessed now.
    Ready,
    /// The longest run of usable nights is too short.
    NeedsNights(usize),
    /// It varies by more than the margin, or is zero.
    SpreadAboveMargin,
    /// It may not be gated automatically.
    NotByRule,
}

/// A row of the plan.
#[derive(Debug, Clone)]
pub struct PlanRow {
    /// Entry.
    pub entry: String,
    /// Cell.
    pub cell: String,
    /// Metric.
    pub metric: String,
    /// Where it stands.
    pub standing: Standing,
    /// What it would get, where there is a window.
    pub derived: Option<Derived>,
}

/// One night of one entry.
struct Night<'a> {
    date: Date,
    entry: &'a EntryRecord,
}

/// The nights of an entry, one per date, oldest first. A date with several runs keeps the last.
fn nights<'a>(records: &'a [RunRecord], entry: &str, include_manual: bool) -> Vec<Night<'a>> {
    let mut by_date: BTreeMap<Date, (i64, &EntryRecord)> = BTreeMap::new();
    for record in records.iter().filter(|r| include_manual || r.trigger == Trigger::Scheduled) {
        if let (Some(date), Some(found)) = (record.night(), record.entries.get(entry)) {
            let slot = by_date.entry(date).or_insert((record.started_at, found));
            if record.started_at >= slot.0 {
                *slot = (record.started_at, found);
            }
        }
    }
    by_date.into_iter().map(|(date, (_, entry))| Night { date, entry }).collect()
}

/// Cells of the newest night that was not skipped.
fn cells<'a>(nights: &[Night<'a>]) -> Vec<&'a str> {
    let newest = nights.iter().rev().find(|night| night.entry.skipped.is_none());
    newest.map_or_else(Vec::new, |night| night.entry.cells.keys().map(String::as_str).collect())
}

/// Runs of consecutive nights in which every cell has every metric; a night or a date without breaks a run.
fn runs<'n, 'a>(nights: &'n [Night<'a>], metrics: &[&str], bridge: bool) -> Vec<Vec<&'n Night<'a>>> {
    let cells = cells(nights);
    let usable = |night: &Night<'_>| {
        night.entry.skipped.is_none()
            && night.entry.cells.values().all(|cell| cell.state == CellState::Passed)
            && cells.iter().all(|name| {
                let cell = night.entry.cells.get(*name);
                cell.is_some_and(|cell| metrics.iter().all(|metric| cell.observation(metric).is_some()))
            })
    };
    let mut runs: Vec<Vec<&Night<'a>>> = Vec::new();
    let mut last: Option<Date> = None;
    for night in nights {
        if !usable(night) {
            if !bridge {
                last = None;
            }
            continue;
        }
        let follows = last.is_some_and(|last| bridge || last.next_day() == Some(night.date));
        match runs.last_mut() {
            Some(run) if follows => run.push(night),
            _ => runs.push(vec![night]),
        }
        last = Some(night.date);
    }
    runs
}

/// The last `count` nights of the newest run that is long enough; else the length of the longest run.
fn window<'n, 'a>(runs: Vec<Vec<&'n Night<'a>>>, count: usize) -> Result<Vec<&'n Night<'a>>, usize> {
    let longest = runs.iter().map(Vec::len).max().unwrap_or(0);
    let newest = runs.into_iter().rev().find(|run| run.len() >= count).ok_or(longest)?;
    Ok(newest[newest.len() - count..].to_vec())
}

/// Fields with more than one value inside the window, each with the night where it changed.
fn mixed(window: &[&Night<'_>], allowed: &[String]) -> Vec<String> {
    let fields: BTreeSet<&str> =
        window.iter().flat_map(|night| night.entry.fingerprint.keys()).map(String::as_str).collect();
    let mut found = Vec::new();
    let mut compare = |field: &str, value: &dyn Fn(&Night<'_>) -> Option<String>| {
        if allowed
            .iter()
            .any(|name| name == field || field.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with(" of cell ")))
        {
            return;
        }
        for (at, pair) in window.windows(2).enumerate() {
            let (before, after) = (value(pair[0]), value(pair[1]));
            if before != after {
                let shown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
                found.push(format!(
                    "{field} changes in night {} of the window ({}): {} before, {} after",
                    at + 2,
                    pair[1].date,
                    shown(before),
                    shown(after)
                ));
                return;
            }
        }
    };
    for field in fields {
        compare(field, &|night| night.entry.fingerprint.get(field).cloned().flatten());
    }
    let names: BTreeSet<&str> = window.iter().flat_map(|night| night.entry.cells.keys()).map(String::as_str).collect();
    for cell in names {
        let field = format!("config_sha256 of cell {cell}");
        compare(&field, &|night| {
            night.entry.cells.get(cell).map(|cell| cell.config_sha256.clone().unwrap_or_default())
        });
    }
    found
}

fn derive(window: &[&Night<'_>], entry: &str, cell: &str, metric: &str, margin: f64) -> Option<Derived> {
    let policy = direction(metric)?;
    let series: Vec<(Date, f64)> = window
        .iter()
        .filter_map(|night| Some((night.date, night.entry.cells.get(cell)?.observation(metric)?)))
        .collect();
    let lowest = series.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let highest = series.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (bound, night) = match policy {
        Policy::Max => (highest.1 * (1.0 + margin), highest.0),
        Policy::Min => (lowest.1 * (1.0 - margin), lowest.0),
        Policy::Equal => return None,
    };
    Some(Derived {
        entry: entry.to_owned(),
        cell: cell.to_owned(),
        metric: metric.to_owned(),
        policy,
        bound,
        n: series.len(),
        min: lowest.1,
        max: highest.1,
        night,
    })
}

/// A multiplicative margin means nothing around zero, and nothing below the noise.
fn meaningless(derived: &Derived, margin: f64) -> Option<String> {
    if derived.max <= 0.0 || derived.min <= 0.0 {
        return Some(format!("its window reaches {} and a margin on nothing is nothing", derived.min.min(derived.max)));
    }
    (derived.spread() > margin).then(|| {
        format!(
            "it varies by {:.1}% inside the window, more than the margin of {:.1}%",
            derived.spread() * 100.0,
            margin * 100.0
        )
    })
}

fn check_request(request: &Request) -> Result<(), BlessError> {
    let refuse = |text: String| Err(BlessError::Request(text));
    if !request.margin.is_finite() || request.margin <= 0.0 {
        return refuse(format!("--margin {}: give a finite number above 0, such as 0.25", request.margin));
    }
    if request.nights == 0 {
        return refuse("--nights 0: give at least 1".to_owned());
    }
    for metric in &request.metrics {
        if let Some(reason) = never(metric) {
            return refuse(format!("--metric {metric}: {reason}"));
        }
        if direction(metric) == Some(Policy::Min) && request.margin >= 1.0 {
            return refuse(format!("--margin {}: must be below 1 for {metric}, or its floor is 0", request.margin));
        }
    }
    Ok(())
}

fn scope(records: &[RunRecord], request: &Request) -> Result<Vec<String>, BlessError> {
    let known: BTreeSet<&str> = records.iter().flat_map(|record| record.entries.keys()).map(String::as_str).collect();
    if let Some(unknown) = request.entries.iter().find(|entry| !known.contains(entry.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        return Err(BlessError::Request(format!(
            "--entry {unknown}: not in the records, which hold {}",
            known.join(", ")
        )));
    }
    Ok(if request.entries.is_empty() {
        known.into_iter().map(str::to_owned).collect()
    } else {
        request.entries.clone()
    })
}

/// Derives bounds and puts them into `file`. On an error the file is as it was.
pub fn bless(records: &[RunRecord], request: &Request, file: &mut BaselineFile) -> Result<Outcome, BlessError> {
    check_request(request)?;
    let mut outcome = Outcome::default();
    let mut changed: Vec<(String, Map<String, Value>)> = Vec::new();
    let mut refused = Vec::new();
    for entry in scope(records, request)? {
        let nights = nights(records, &entry, request.include_manual);
        let Some(newest) = nights.last() else {
            refused.push(format!("{entry}: no scheduled run among the records; --include-manual takes the others"));
            continue;
        };
        if let Some(reason) = &newest.entry.skipped {
            outcome.skipped.push((entry.clone(), reason.clone()));
            continue;
        }
        let failing: Vec<String> = newest
            .entry
            .cells
            .iter()
            .filter(|(_, cell)| cell.state != CellState::Passed)
            .map(|(name, cell)| {
                let reason = cell.reason.as_deref().unwrap_or("no reason recorded");
                format!("{entry}: cell {name} did not pass in the night of {}: {reason}", newest.date)
            })
            .collect();
        if !failing.is_empty() {
            refused.extend(failing);
            continue;
        }
        match entry_bounds(&nights, &entry, request) {
            Ok((derived, fingerprints)) => {
                let value = rewritten(file.value(&entry), newest, &derived, &fingerprints, request);
                changed.push((entry, value));
                outcome.derived.extend(derived);
            }
            Err(reasons) => refused.extend(reasons),
        }
    }
    if !refused.is_empty() {
        return Err(BlessError::Refused(refused));
    }
    for (entry, value) in &changed {
        file.put(entry, value).map_err(|error| BlessError::Request(format!("{entry}: {error}")))?;
    }
    Ok(outcome)
}

type Bounds = (Vec<Derived>, Map<String, Value>);

fn entry_bounds(nights: &[Night<'_>], entry: &str, request: &Request) -> Result<Bounds, Vec<String>> {
    if request.metrics.is_empty() {
        return Ok((Vec::new(), Map::new()));
    }
    let metrics: Vec<&str> = request.metrics.iter().map(String::as_str).collect();
    let window = window(runs(nights, &metrics, request.bridge_holes), request.nights).map_err(|longest| {
        vec![format!(
            "{entry}: the longest run of usable nights is {longest}, and the window needs {}: every cell passed, \
             with {} in it",
            request.nights,
            metrics.join(", ")
        )]
    })?;
    let mut reasons: Vec<String> =
        mixed(&window, &request.allow_mixed).into_iter().map(|reason| format!("{entry}: {reason}")).collect();
    let mut all = Vec::new();
    for cell in cells(nights) {
        for metric in &metrics {
            let Some(derived) = derive(&window, entry, cell, metric, request.margin) else { continue };
            match meaningless(&derived, request.margin) {
                Some(reason) => reasons.push(format!("{entry}: cell {cell}, {metric}: {reason}")),
                None => all.push(derived),
            }
        }
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let newest = window.last().map(|night| &night.entry.fingerprint);
    let fingerprint =
        newest.into_iter().flatten().map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>();
    Ok((all, fingerprint))
}

/// The entry with what was derived now; everything else in it stays.
fn rewritten(
    mut entry: Map<String, Value>,
    newest: &Night<'_>,
    derived: &[Derived],
    fingerprint: &Map<String, Value>,
    request: &Request,
) -> Map<String, Value> {
    for (name, record) in &newest.entry.cells {
        edit(&mut entry, "cells", |cells| {
            edit(cells, name, |cell| {
                cell.insert("passed".to_owned(), json!(true));
                for bound in derived.iter().filter(|bound| bound.cell == *name) {
                    let value = json!({"policy": bound.policy.word(), "value": bound.bound});
                    edit(cell, "metrics", |metrics| drop(metrics.insert(bound.metric.clone(), value)));
                }
                for (key, value) in &record.correctness {
                    edit(cell, "correctness", |values| drop(values.insert(key.clone(), value.clone())));
                }
            });
        });
    }
    if let Some(nights) = derived.iter().map(|d| d.n).max() {
        let mut blessed = Map::new();
        blessed.insert("nights".to_owned(), json!(nights));
        blessed.insert("newest_night".to_owned(), json!(newest.date.to_string()));
        blessed.insert("margin".to_owned(), json!(request.margin));
        blessed.insert("fingerprint".to_owned(), Value::Object(fingerprint.clone()));
        if request.bridge_holes {
            blessed.insert("holes_bridged".to_owned(), json!(true));
        }
        if request.include_manual {
            blessed.insert("manual_runs_included".to_owned(), json!(true));
        }
        if !request.allow_mixed.is_empty() {
            blessed.insert("mixed_fields_allowed".to_owned(), json!(request.allow_mixed));
        }
        entry.insert("blessed".to_owned(), Value::Object(blessed));
    }
    entry
}

/// Changes the object under `key`, which is made when there is none; anything else there gives way to it.
fn edit(map: &mut Map<String, Value>, key: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let slot = map.entry(key).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = json!({});
    }
    if let Value::Object(object) = slot {
        change(object);
    }
}

/// Where every metric stands; writes nothing.
pub fn plan(records: &[RunRecord], request: &Request) -> Result<Vec<PlanRow>, BlessError> {
    check_request(&Request { metrics: Vec::new(), ..request.clone() })?;
    let mut rows = Vec::new();
    for entry in scope(records, request)? {
        let nights = nights(records, &entry, request.include_manual);
        let others: BTreeSet<&str> = nights
            .iter()
            .flat_map(|night| night.entry.cells.values())
            .flat_map(|cell| cell.metrics.keys())
            .map(String::as_str)
            .filter(|metric| direction(metric).is_none())
            .collect();
        for cell in cells(&nights) {
            let row = |metric: &str, standing, derived| PlanRow {
                entry: entry.clone(),
                cell: cell.to_owned(),
                metric: metric.to_owned(),
                standing,
                derived,
            };
            for (metric, _) in GATEABLE {
                let found = window(runs(&nights, &[metric], request.bridge_holes), request.nights);
                rows.push(match found {
                    Err(longest) => row(metric, Standing::NeedsNights(longest), None),
                    Ok(window) => {
                        let derived = derive(&window, &entry, cell, metric, request.margin);
                        let standing = match &derived {
                            Some(derived) if meaningless(derived, request.margin).is_none() => Standing::Ready,
                            Some(_) | None => Standing::SpreadAboveMargin,
                        };
                        row(metric, standing, derived)
                    }
                });
            }
            rows.extend(others.iter().map(|metric| row(metric, Standing::NotByRule, None)));
        }
    }
    Ok(rows)
}
