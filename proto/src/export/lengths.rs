//! The entries of `output_lens`, kept as counts per length: whatever the number of requests, only the number of different
//! lengths takes memory, and everything that is published comes from it exactly.

use std::collections::BTreeMap;

/// How many tokens each completion (or each request) generated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lengths {
    counts: BTreeMap<u64, u64>,
    entries: u64,
    sum: u128,
}

/// Figures over a pool of lengths (contract I.2, `generated_tokens_*`), tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    /// Number of entries.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Sample deviation (n - 1); none below two entries.
    pub std: Option<f64>,
    /// Percentiles 50, 90 and 99 by linear interpolation between order statistics.
    pub p50: f64,
    /// See [`Self::p50`].
    pub p90: f64,
    /// See [`Self::p50`].
    pub p99: f64,
}

#[expect(clippy::cast_precision_loss, reason = "entries are below 2^53 by construction, counts in practice")]
impl Lengths {
    /// Lengths above this are no token counts: every whole double below it is exact.
    pub const MAX: u64 = 1 << 53;
    /// The same as a double.
    pub(super) const MAX_F64: f64 = Self::MAX as f64;
    /// Different lengths that are kept; models have shorter contexts.
    pub const MAX_DIFFERENT: usize = 1 << 18;

    /// Adds one entry; `false` when it is beyond [`Self::MAX`], or one more different length than
    /// [`Self::MAX_DIFFERENT`].
    #[must_use]
    pub fn push(&mut self, length: u64) -> bool {
        if length > Self::MAX || (self.counts.len() >= Self::MAX_DIFFERENT && !self.counts.contains_key(&length)) {
            return false;
        }
        *self.counts.entry(length).or_insert(0) += 1;
        self.entries += 1;
        self.sum += u128::from(length);
        true
    }

    /// Pools another step's entries with these.
    pub fn merge(&mut self, other: &Self) {
        for (length, count) in &other.counts {
            *self.counts.entry(*length).or_insert(0) += count;
        }
        self.entries += other.entries;
        self.sum += other.sum;
    }

    /// Number of entries.
    pub fn count(&self) -> u64 {
        self.entries
    }

    /// Sum of all entries, tokens.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The longest entry; `None` without entries.
    pub fn max(&self) -> Option<u64> {
        self.counts.last_key_value().map(|(length, _)| *length)
    }

    /// Mean of the entries; `None` without entries.
    pub fn mean(&self) -> Option<f64> {
        (self.entries > 0).then(|| self.sum as f64 / self.entries as f64)
    }

    /// Every different length with the number of its entries, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().map(|(length, count)| (*length, *count))
    }

    /// The entry at a rank of the sorted list, counted from 0.
    fn ranked(&self, rank: u64) -> f64 {
        let mut passed = 0;
        for (length, count) in &self.counts {
            passed += count;
            if passed > rank {
                return *length as f64;
            }
        }
        self.max().unwrap_or_default() as f64
    }

    /// Percentile of the entries, as [`crate::stats::percentile`] of the sorted list would be; `p` in percent.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rank within the list")]
    pub fn percentile(&self, p: f64) -> Option<f64> {
        let last = self.entries.checked_sub(1)? as f64;
        let index = (last * p / 100.0).clamp(0.0, last);
        let (low, high) = (self.ranked(index.floor() as u64), self.ranked(index.ceil() as u64));
        Some(low + (high - low) * (index - index.floor()))
    }

    /// Everything that is published of a pool; `None` without entries.
    pub fn distribution(&self) -> Option<Distribution> {
        let mean = self.mean()?;
        let std = (self.entries > 1).then(|| {
            let squares: f64 = self.iter().map(|(length, count)| count as f64 * (length as f64 - mean).powi(2)).sum();
            (squares / (self.entries - 1) as f64).sqrt()
        });
        Some(Distribution {
            count: self.entries,
            mean,
            min: *self.counts.first_key_value()?.0,
            max: self.max()?,
            std,
            p50: self.percentile(50.0)?,
            p90: self.percentile(90.0)?,
            p99: self.percentile(99.0)?,
        })
    }
}

impl FromIterator<u64> for Lengths {
    /// Pools lengths, leaving out what [`Lengths::push`] refuses.
    fn from_iter<T: IntoIterator<Item = u64>>(lengths: T) -> Self {
        let mut pool = Self::default();
        for length in lengths {
            let _ = pool.push(length);
        }
        pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats;
    use proptest::prelude::*;

    #[test]
    fn contract_row_241() {
        let pool: Lengths = [10, 10, 10, 10, 10, 10, 10, 4000].into_iter().collect();
        let figures = pool.distribution().unwrap();
        assert_eq!((figures.count, figures.min, figures.max, figures.p50), (8, 10, 4000, 10.0));
        assert!((figures.p99 - (10.0 + 3990.0 * 0.93)).abs() < 1e-9);
        assert_eq!(Lengths::default().distribution(), None);
        let single: Lengths = [7].into_iter().collect();
        assert_eq!(single.distribution().map(|f| (f.std, f.p90, f.mean)), Some((None, 7.0, 7.0)));
    }

    #[test]
    fn bounds_of_entries() {
        let mut pool = Lengths::default();
        assert!(pool.push(Lengths::MAX) && !pool.push(Lengths::MAX + 1));
        assert!((1..Lengths::MAX_DIFFERENT as u64).all(|length| pool.push(length)));
        assert!(!pool.push(0), "one length too many");
        assert!(pool.push(1), "a known length always fits");
        assert_eq!(pool.count(), Lengths::MAX_DIFFERENT as u64 + 1);
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_list(first in prop::collection::vec(0u64..50, 0..40), second in prop::collection::vec(0u64..4000, 0..40)) {
            let mut pool: Lengths = first.iter().copied().collect();
            pool.merge(&second.iter().copied().collect());
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let list = stats::sorted(first.iter().chain(&second).map(|v| *v as f64).collect());
            let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
                (a, b) => a == b,
            };
            let figures = pool.distribution();
            prop_assert_eq!(pool.count(), list.len() as u64);
            prop_assert!(close(pool.mean(), stats::mean(&list)));
            prop_assert!(close(figures.and_then(|f| f.std), stats::sample_std(&list)));
            for (p, seen) in [(50.0, figures.map(|f| f.p50)), (90.0, figures.map(|f| f.p90)), (99.0, figures.map(|f| f.p99)), (25.0, pool.percentile(25.0))] {
                prop_assert!(close(seen, stats::percentile(&list, p)));
            }
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let ends = figures.map(|f| (f.min as f64, f.max as f64));
            prop_assert_eq!(ends, list.first().copied().zip(list.last().copied()));
        }
    }
}
