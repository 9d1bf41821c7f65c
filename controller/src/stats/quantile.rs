//! Percentiles of unsorted samples, and how much data stands behind one.

use schemars::JsonSchema;
use serde::Serialize;

/// Percentiles (in percent, ascending) of unsorted samples, which are reordered; `None` without samples.
///
/// The definition is `proto::stats::percentile`'s: linear between order statistics at `(n - 1) * p / 100`.
/// Selection instead of a sort keeps ten million gaps cheap.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "index within the slice"
)]
pub fn percentiles<const N: usize>(samples: &mut [f64], percents: [u32; N]) -> Option<[f64; N]> {
    let last = samples.len().checked_sub(1)?;
    let mut found = [0.0; N];
    let mut from = 0;
    for (value, percent) in found.iter_mut().zip(percents) {
        let index = (last as f64 * f64::from(percent) / 100.0).clamp(0.0, last as f64);
        let (low, high) = (index.floor() as usize, index.ceil() as usize);
        // Everything before `from` is already no larger than what comes after it.
        let (_, at_low, above) = samples[from..].select_nth_unstable_by(low - from, f64::total_cmp);
        let at_low = *at_low;
        let at_high = if high == low { at_low } else { above.iter().copied().fold(f64::INFINITY, f64::min) };
        *value = at_low + (at_high - at_low) * (index - low as f64);
        from = low;
    }
    Some(found)
}

/// How far the number of samples supports a percentile.
///
/// p99 over 128 requests is the second-worst request: a maximum wearing a percentile's name (variadic seed).
/// So fewer than 2 samples beyond a percentile withhold it, fewer than 10 mark it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// At least 10 samples lie beyond it.
    Enough,
    /// 2 to 9 samples lie beyond it: a handful of requests decide it.
    Few,
    /// Fewer than 2 samples lie beyond it: not a percentile.
    Withheld,
}

impl Support {
    /// Support of a percentile (in percent, at least 50) among `n` samples.
    pub const fn of(n: usize, percent: u32) -> Self {
        let beyond_percent = n.saturating_mul(100_usize.saturating_sub(percent as usize));
        if beyond_percent < 200 {
            Self::Withheld
        } else if beyond_percent < 1000 {
            Self::Few
        } else {
            Self::Enough
        }
    }

    /// Samples from which a percentile (50 to 99) is no longer withheld.
    pub const fn least_samples(percent: u32) -> usize {
        200_usize.div_ceil(100_usize.saturating_sub(percent as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(mut samples in prop::collection::vec(-1e3_f64..1e3, 1..300)) {
            // Ties are the common case in coarse clocks.
            for sample in &mut samples {
                *sample = sample.round();
            }
            let sorted = proto::stats::sorted(samples.clone());
            let percents = [0, 50, 90, 95, 99, 100];
            let found = percentiles(&mut samples, percents).unwrap();
            for (value, percent) in found.iter().zip(percents) {
                prop_assert_eq!(Some(*value), proto::stats::percentile(&sorted, f64::from(percent)));
            }
        }
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(percentiles(&mut [], [50]), None);
        assert_eq!(percentiles(&mut [7.0], [50, 99]), Some([7.0, 7.0]));
    }

    #[test]
    fn support() {
        const E: Support = Support::Enough;
        const F: Support = Support::Few;
        const W: Support = Support::Withheld;
        let of = |percent| [3, 4, 19, 20, 39, 40, 128, 199, 200, 999, 1000].map(|n| Support::of(n, percent));
        assert_eq!(of(99), [W, W, W, W, W, W, W, W, F, F, E]);
        assert_eq!(of(95), [W, W, W, W, W, F, F, F, E, E, E]);
        assert_eq!(of(50), [W, F, F, E, E, E, E, E, E, E, E]);
        for percent in [50, 90, 95, 99] {
            let least = Support::least_samples(percent);
            assert_ne!(Support::of(least, percent), W);
            assert_eq!(Support::of(least - 1, percent), W);
        }
    }
}
