//! Counts of durations in log-linear buckets, 1/32 wide: constant memory however long a leg runs.

use std::time::Duration;

use crate::load::clock::nanos;

const STEPS: usize = 32;
const STEP_BITS: u32 = 5;
/// The first 32 ns, and 59 octaves above them: every u64.
const BUCKETS: usize = STEPS * 60;

/// Durations, counted.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, span: Duration) {
        let ns = nanos(span);
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// How many were counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Upper edge of the bucket that holds percentile `p`, never above the maximum; `None` when empty.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    pub fn percentile(&self, p: f64) -> Option<Duration> {
        let rank = (self.total.checked_sub(1)? as f64 * p / 100.0).round() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen > rank {
                return Some(Duration::from_nanos(upper(index).min(self.max)));
            }
        }
        Some(Duration::from_nanos(self.max))
    }

    /// Arithmetic mean; `None` when empty.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.total))?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The largest; zero when empty.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }
}

fn bucket(ns: u64) -> usize {
    let Some(octave) = ns.checked_ilog2().and_then(|log| log.checked_sub(STEP_BITS)) else {
        return usize::try_from(ns).unwrap_or(0);
    };
    let step = usize::try_from(ns >> octave).unwrap_or(0) - STEPS;
    ((octave as usize + 1) * STEPS + step).min(BUCKETS - 1)
}

fn upper(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let (octave, step) = (index / STEPS - 1, index % STEPS);
    (((STEPS + step + 1) as u64) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_tight_and_in_order() {
        assert!((0..200_000).map(bucket).is_sorted());
        for ns in (0..200_000).chain((0..40).map(|shift| 1 << shift)).chain([u64::MAX >> 2]) {
            let index = bucket(ns);
            let edge = upper(index);
            assert!(edge >= ns && edge - ns <= ns / 32, "{ns}: bucket {index} ends at {edge}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_of_a_thousand() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(50.0), histogram.mean()), (None, None));
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        for (p, us) in [(0.0, 1), (50.0, 500), (99.0, 990), (100.0, 1000)] {
            let found = histogram.percentile(p).unwrap().as_secs_f64() * 1e6;
            assert!((found / f64::from(us) - 1.0).abs() < 0.04, "p{p}: {found}");
        }
        assert_eq!(histogram.max(), Duration::from_millis(1));
        assert_eq!(histogram.mean(), Some(Duration::from_nanos(500_500)));
    }
}
