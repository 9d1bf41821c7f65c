//! How far a sweep is and how long it will take, on stderr: a line that moves on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::Value;

use super::book::Book;
use super::plan::Plan;
use super::trial::{TrialRecord, Verdict};
use crate::campaign::order::human;
use crate::result::details::significant;
use crate::run::progress::bar;

/// Shows progress.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A moving line where stderr is a terminal.
    pub fn on_stderr() -> Self {
        Self { bar: std::io::stderr().is_terminal().then(bar) }
    }

    /// The moving line, so that log lines can be written around it.
    pub fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    /// Says a line that stays.
    pub fn say(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.println(text);
        } else {
            // A reader that went away must not end a sweep.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Shows what is going on; nothing without a terminal.
    pub fn show(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
            bar.tick();
        }
    }

    /// Takes the moving line away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds that the trials still owed will take: what trials of the same cell took, else what trials took. `None`
/// before there was any.
pub fn left(plan: &Plan, book: &Book) -> Option<f64> {
    let mut walls: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for position in 0..plan.cells.len() {
        // What was refused at once says nothing about how long a trial takes.
        let ran = book.of(position).filter(|entry| entry.record.verdict() != Verdict::Error);
        walls.insert(position, ran.map(|entry| entry.record.wall_clock_sec).collect());
    }
    let all: Vec<f64> = walls.values().flatten().copied().collect();
    let overall = proto::stats::mean(&all)?;
    let owed = plan.selected().map(|(position, _)| {
        let each = walls.get(&position).and_then(|own| proto::stats::mean(own)).unwrap_or(overall);
        #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
        let count = book.pending(plan, position) as f64;
        each * count
    });
    Some(owed.sum())
}

/// `left about 12 min`, or what the deadlines allow.
pub fn left_in_words(plan: &Plan, book: &Book) -> String {
    match left(plan, book) {
        Some(seconds) if seconds > 0.0 => format!("left about {}", human(seconds)),
        Some(_) => "nothing left".to_owned(),
        None => format!("left at most {}, by the deadlines", human(budget(plan, book))),
    }
}

/// Seconds that the trials still owed may take by their own deadlines.
pub fn budget(plan: &Plan, book: &Book) -> f64 {
    let cells = plan.selected().filter_map(|(position, cell)| {
        let trial = &cell.loaded.as_ref()?.trial;
        #[expect(clippy::cast_precision_loss, reason = "seconds and counts")]
        let seconds = trial.timing.timeout_sec as f64 * book.pending(plan, position) as f64;
        Some(seconds)
    });
    cells.sum()
}

/// What became of a trial, in one line.
pub fn trial_in_words(record: &TrialRecord) -> String {
    let verdict = match record.verdict() {
        Verdict::Pass => "passed",
        Verdict::Fail => "FAILED",
        Verdict::Error => "ERROR",
    };
    let took = human(Duration::from_secs_f64(record.wall_clock_sec.max(0.0)).as_secs_f64());
    let mut words = format!("{verdict} in {took}");
    let figures =
        [("TTFT", "median_ttft_ms", "ms"), ("TPOT", "median_tpot_ms", "ms"), ("output", "output_throughput", "tok/s")];
    for (name, key, unit) in figures {
        if let Some(value) = record.metrics().and_then(|metrics| metrics.get(key)).and_then(Value::as_f64) {
            let _ = write!(words, "  {name} {} {unit}", significant(value));
        }
    }
    if let Some(reason) = first_reason(record) {
        let _ = write!(words, "  {reason}");
    }
    words
}

/// The first failure that names its step, else the first, in a few words.
fn first_reason(record: &TrialRecord) -> Option<String> {
    let details = record.result.get("failure_details")?.as_array()?;
    let detail = details.iter().find(|detail| detail.get("step").is_some()).or(details.first())?;
    let text = |key: &str| detail.get(key).and_then(Value::as_str);
    match (text("reason"), text("detail").or_else(|| text("error"))) {
        (Some(reason), Some(detail)) => Some(format!("{reason}: {}", one_line(detail))),
        (Some(reason), None) => Some(reason.to_owned()),
        (None, Some(error)) => Some(one_line(error)),
        (None, None) => None,
    }
}

/// The first line, cut to what fits a terminal.
fn one_line(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.lines().next().unwrap_or("");
    if line.chars().count() <= MOST {
        line.to_owned()
    } else {
        format!("{}...", line.chars().take(MOST).collect::<String>())
    }
}
