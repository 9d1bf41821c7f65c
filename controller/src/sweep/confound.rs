//! Whether a cell's difference from the baseline may be one of speed (integration notes, sections 5 and 8).

use super::cell::CellStats;
use super::trial::StepTimeSource;

/// What the Confound column says.
#[derive(Debug, Clone, PartialEq)]
pub enum Confound {
    /// The whole cell could not run.
    Error,
    /// No trial reached its measurement.
    DidNotRun,
    /// The cell that others are compared with.
    Baseline,
    /// Not comparable.
    NotComparable,
    /// Slower than the threshold allows; the ratio of mean step times.
    Speed(f64),
    /// Neither slower nor failing less.
    NoEffect(f64),
    /// Failing less at no cost in speed.
    Neutral(f64),
}

impl Confound {
    /// The column's text.
    pub fn tag(&self) -> String {
        match self {
            Self::Error => "error".into(),
            Self::DidNotRun => "did_not_run".into(),
            Self::Baseline => "(baseline)".into(),
            Self::NotComparable => "n/a".into(),
            Self::Speed(ratio) => format!("speed (+{:.0}%)", ((ratio - 1.0) * 100.0).round_ties_even()),
            Self::NoEffect(_) => "no effect".into(),
            Self::Neutral(_) => "-".into(),
        }
    }

    /// Mean step time over the baseline's, where it means something.
    pub const fn ratio(&self) -> Option<f64> {
        match self {
            Self::Speed(ratio) | Self::NoEffect(ratio) | Self::Neutral(ratio) => Some(*ratio),
            Self::Error | Self::DidNotRun | Self::Baseline | Self::NotComparable => None,
        }
    }
}

/// Classifies one cell against the baseline; the first rule that speaks decides.
pub fn classify(cell: &CellStats, baseline: Option<&CellStats>, threshold: f64) -> Confound {
    if cell.error.is_some() {
        return Confound::Error;
    }
    if cell.did_not_run() {
        return Confound::DidNotRun;
    }
    let Some(baseline) = baseline else { return Confound::NotComparable };
    if cell.identity.name == baseline.identity.name {
        return Confound::Baseline;
    }
    // Only the workload's own clock gives step times; anything else folds set-up and tear-down in.
    let timed = |c: &CellStats| c.error.is_none() && c.timing.mean > 0.0 && c.source == StepTimeSource::PerStep;
    if !timed(baseline) || !timed(cell) {
        return Confound::NotComparable;
    }
    let ratio = cell.timing.mean / baseline.timing.mean;
    if ratio > threshold {
        Confound::Speed(ratio)
    } else if cell.failure_rate() >= baseline.failure_rate() {
        Confound::NoEffect(ratio)
    } else {
        Confound::Neutral(ratio)
    }
}

/// Picks the baseline among `(name, mitigations)`: the named one, else the first called `baseline-*`, else the first
/// with mitigations exactly `[none]`, else the only one. `skip` leaves cells out of all rules but the first.
pub fn resolve_baseline<'a>(
    cells: &[(&'a str, &[String])],
    named: Option<&str>,
    skip: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    if let Some(named) = named {
        return cells.iter().map(|(name, _)| *name).find(|name| *name == named);
    }
    let candidates: Vec<_> = cells.iter().filter(|(name, _)| !skip(name)).collect();
    let prefixed = candidates.iter().find(|(name, _)| name.starts_with("baseline-"));
    let plain = || candidates.iter().find(|(_, mitigations)| *mitigations == ["none"]);
    let only = || if candidates.len() == 1 { candidates.first() } else { None };
    prefixed.or_else(plain).or_else(only).map(|(name, _)| *name)
}
