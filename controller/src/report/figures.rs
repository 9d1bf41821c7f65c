//! The figures of legs and cells: computed once, printed by every form of the report.

use std::collections::BTreeMap;

use proto::stats::exact_mean;

use super::axes::{Axis, Pool};
use super::leg::{CellKey, Leg, Method};
use crate::stats::quantile::percentiles;

/// Percentiles of the pooled tables; headings come from here.
pub const PERCENTS: [u32; 4] = [50, 90, 95, 99];

/// What a set of values amounts to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Values.
    pub n: usize,
    /// At [`PERCENTS`].
    pub percentiles: [f64; 4],
    /// Largest.
    pub max: f64,
    /// Exact mean, rounded once.
    pub mean: f64,
}

impl Figures {
    /// Figures of values, which are reordered; `None` without any.
    pub fn of(values: &mut [f64]) -> Option<Self> {
        let mean = exact_mean(values)?;
        let percentiles = percentiles(values, PERCENTS)?;
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { n: values.len(), percentiles, max, mean })
    }

    /// The median.
    pub const fn p50(&self) -> f64 {
        self.percentiles[0]
    }

    /// The 95th percentile.
    pub const fn p95(&self) -> f64 {
        self.percentiles[2]
    }
}

/// Figures of the axes, in the order of [`Axis::ALL`].
pub type Axes = [Option<Figures>; 5];

/// Figures of one leg.
#[derive(Debug, Clone)]
pub struct LegFigures {
    /// Completion tokens over the measured wall clock, prefill and failures included.
    pub output_tok_s: f64,
    /// Tokens a second of one stream after its first token.
    pub decode_only_tok_s: Option<f64>,
    /// Measured.
    pub measured: Axes,
    /// Mean TTFT in ms, warm-up included.
    pub mean_ttft_with_warmup: Option<f64>,
}

/// Figures of one cell: all rounds pooled.
#[derive(Debug)]
pub struct Cell {
    /// What is pooled.
    pub key: CellKey,
    /// The arm as printed: with its method where the report holds several of the same arm.
    pub label: String,
    /// Positions of its legs, in path order.
    pub legs: Vec<usize>,
    /// Warm-up discarded.
    pub warm: Axes,
    /// Every successful request.
    pub all: Axes,
    /// Mean completion tokens per chunk.
    pub tokens_per_chunk: Option<f64>,
    /// Mean characters per token.
    pub chars_per_token: Option<f64>,
    /// Mean estimated tokens of the first chunk.
    pub first_chunk_tokens: Option<f64>,
    /// Measured records with a usage token count.
    pub counted: usize,
    /// Corrections refused among them.
    pub over_corrected: usize,
}

impl Cell {
    /// Positions of its legs, by round; path order within one.
    pub fn by_round(&self, legs: &[Leg]) -> Vec<usize> {
        let mut sorted = self.legs.clone();
        sorted.sort_by_key(|at| legs[*at].summary.round);
        sorted
    }
}

/// Everything that a report says.
#[derive(Debug)]
pub struct Report {
    /// In path order.
    pub legs: Vec<Leg>,
    /// Figures of each leg.
    pub leg_figures: Vec<LegFigures>,
    /// In the order of their keys.
    pub cells: Vec<Cell>,
}

impl Report {
    /// Computes all figures.
    pub fn of(legs: Vec<Leg>) -> Self {
        let leg_figures = legs.iter().map(leg_figures).collect();
        let mut by_key: BTreeMap<&CellKey, Vec<usize>> = BTreeMap::new();
        for (at, leg) in legs.iter().enumerate() {
            by_key.entry(&leg.summary.key).or_default().push(at);
        }
        let cells = by_key.into_iter().map(|(key, members)| cell(key, members, &legs)).collect();
        Self { legs, leg_figures, cells }
    }

    /// The cell of a leg.
    pub fn cell_of(&self, leg: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.legs.contains(&leg))
    }

    /// Labels of the arms, in string order.
    pub fn arms(&self) -> Vec<&str> {
        let mut arms: Vec<&str> = self.cells.iter().map(|cell| cell.label.as_str()).collect();
        arms.sort_unstable();
        arms.dedup();
        arms
    }
}

/// Values of an axis over some pools, in order.
pub fn pooled<'a>(pools: impl Iterator<Item = &'a Pool>, axis: Axis) -> Vec<f64> {
    let parts: Vec<&[f64]> = pools.map(|pool| pool.axis(axis)).collect();
    parts.concat()
}

fn leg_figures(leg: &Leg) -> LegFigures {
    let measured = &leg.records.measured;
    let wall = leg.summary.measured_wall_s;
    let axes = Axis::ALL.map(|axis| Figures::of(&mut measured.axis(axis).to_vec()));
    let all = pooled([measured, &leg.records.rest].into_iter(), Axis::Ttft);
    LegFigures {
        output_tok_s: if wall == 0.0 { 0.0 } else { measured.tokens() / wall },
        decode_only_tok_s: axes[Axis::Tpot as usize].map(|tpot| 1000.0 / tpot.mean),
        measured: axes,
        mean_ttft_with_warmup: exact_mean(&all),
    }
}

fn cell(key: &CellKey, members: Vec<usize>, legs: &[Leg]) -> Cell {
    let measured = || members.iter().map(|at| &legs[*at].records.measured);
    let rest = || members.iter().map(|at| &legs[*at].records.rest);
    let (mut warm, mut all) = ([None; 5], [None; 5]);
    for axis in Axis::ALL {
        let mut values = pooled(measured(), axis);
        warm[axis as usize] = Figures::of(&mut values);
        all[axis as usize] = if rest().all(|pool| pool.axis(axis).is_empty()) {
            warm[axis as usize]
        } else {
            rest().for_each(|pool| values.extend_from_slice(pool.axis(axis)));
            Figures::of(&mut values)
        };
    }
    let mean = |column: fn(&Pool) -> &Vec<f64>| {
        exact_mean(&measured().flat_map(|pool| column(pool).iter().copied()).collect::<Vec<_>>())
    };
    Cell {
        label: label(key, legs),
        warm,
        all,
        tokens_per_chunk: mean(|pool| &pool.tokens_per_chunk),
        chars_per_token: mean(|pool| &pool.chars_per_token),
        first_chunk_tokens: mean(|pool| &pool.first_chunk_tokens),
        counted: measured().map(Pool::counted).sum(),
        over_corrected: measured().map(|pool| pool.over_corrected).sum(),
        key: key.clone(),
        legs: members,
    }
}

/// The arm, with its method where another method of the same arm is in the report.
fn label(key: &CellKey, legs: &[Leg]) -> String {
    let others = |method: &Method| {
        legs.iter().map(|leg| &leg.summary.key).any(|other| other.arm == key.arm && other.method != *method)
    };
    if others(&key.method) { format!("{} [{}]", key.arm, key.method.words()) } else { key.arm.clone() }
}

/// `max / min - 1` of the values above zero; `None` below two of them.
pub fn spread(values: &[f64]) -> Option<f64> {
    let present: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
    let (min, max) = present.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), v| (v.min(min), v.max(max)));
    (present.len() >= 2).then(|| max / min - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(spread(&[36.82, 78.86]), Some(1.141_770_776_751_765_3));
        assert_eq!(spread(&[0.0, 5.0]), None);
        assert_eq!(spread(&[5.0]), None);
        assert_eq!(spread(&[f64::NAN, 5.0, 10.0]), Some(1.0));
    }
}
