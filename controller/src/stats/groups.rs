//! Finds values that fall into two separate groups: one slow mode among fast ones, which an average would hide.
//!
//! Meant for a handful of steps, trials or legs, not for request latencies. Values are compared by their
//! ratios, because a mode is a factor, not an offset.

use schemars::JsonSchema;
use serde::Serialize;

/// Nothing closer than this is called apart: the seed quotes a cell as a spread from 10 % on.
const LEAST_RATIO: f64 = 1.10;
/// Two values alone have no spread to compare with; from this ratio on the seed asks for a variance study.
const LEAST_RATIO_OF_TWO: f64 = 1.25;
/// The gap must be this many times wider than the wider of the two groups.
const GAP_OVER_WIDTH: f64 = 3.0;

/// Values in two separate groups.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Groups {
    /// Positions of the values in the lower group, in input order.
    pub low: Vec<usize>,
    /// Positions of the values in the upper group, in input order.
    pub high: Vec<usize>,
    /// Largest value of the lower group.
    pub low_max: f64,
    /// Smallest value of the upper group.
    pub high_min: f64,
    /// `high_min / low_max`.
    pub ratio: f64,
}

/// The two groups that `values` fall into; `None` when they do not, or when one is not positive and finite.
pub fn separate(values: &[f64]) -> Option<Groups> {
    if values.len() < 2 || values.iter().any(|v| !v.is_finite() || *v <= 0.0) {
        return None;
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let ratio = |from: usize, to: usize| values[order[to]] / values[order[from]];
    let last = order.len() - 1;
    let cut = (0..last).max_by(|a, b| ratio(*a, a + 1).total_cmp(&ratio(*b, b + 1)))?;
    let gap = ratio(cut, cut + 1);
    let width = ratio(0, cut).max(ratio(cut + 1, last));
    let apart = if values.len() == 2 {
        gap > LEAST_RATIO_OF_TWO
    } else {
        gap > LEAST_RATIO && gap.ln() >= GAP_OVER_WIDTH * width.ln()
    };
    if !apart {
        return None;
    }
    let (low_max, high_min) = (values[order[cut]], values[order[cut + 1]]);
    let (mut low, mut high) = (order[..=cut].to_vec(), order[cut + 1..].to_vec());
    low.sort_unstable();
    high.sort_unstable();
    Some(Groups { low, high, low_max, high_min, ratio: gap })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::bootstrap::Draws;

    #[test]
    fn modes_of_the_seeds() {
        // The same binary in one session (variadic seed), and a compile excursion in one step (review A-04).
        let two = separate(&[78.86, 36.82]).unwrap();
        assert_eq!((two.low, two.high), (vec![1], vec![0]));
        let steps = separate(&[2825.0, 1398.78, 1410.0, 1435.82]).unwrap();
        assert_eq!((steps.low, steps.high), (vec![1, 2, 3], vec![0]));
        assert!((steps.ratio - 2825.0 / 1435.82).abs() < 1e-12);
        let halves = separate(&[10.0, 15.1, 10.2, 15.0, 10.1]).unwrap();
        assert_eq!((halves.low, halves.high), (vec![0, 2, 4], vec![1, 3]));
        assert_eq!((halves.low_max, halves.high_min), (10.2, 15.0));
    }

    #[test]
    fn one_crowd_is_not_two() {
        for values in [
            &[][..],
            &[5.0],
            &[5.0, 5.0],
            &[100.0, 124.0],
            &[100.0, 103.0, 106.0, 109.0],
            &[100.0, 104.0, 112.0],
            &[100.0, 120.0, 140.0, 165.0],
            &[0.0, 5.0, 5.0],
            &[1.0, f64::NAN, 9.0],
        ] {
            assert_eq!(separate(values), None, "{values:?}");
        }
    }

    /// Steady figures repeat within 3 % (review A.0): such a run is hardly ever called two groups.
    #[test]
    fn false_alarms_are_rare() {
        let mut draws = Draws::new("false alarms");
        for (sd, n, most) in [(0.01, 3, 0.001), (0.03, 3, 0.03), (0.03, 5, 0.01), (0.03, 10, 0.005), (0.06, 5, 0.05)] {
            let alarms = (0..4000)
                .filter(|_| separate(&(0..n).map(|_| (draws.normal() * sd).exp()).collect::<Vec<_>>()).is_some())
                .count();
            let share = f64::from(u32::try_from(alarms).unwrap()) / 4000.0;
            assert!(share <= most, "sd {sd}, n {n}: {share}");
        }
    }

    #[test]
    fn a_clear_mode_is_seldom_missed() {
        let mut draws = Draws::new("misses");
        let found = (0..1000)
            .filter(|_| {
                let values: Vec<f64> =
                    (0..6).map(|i| (draws.normal() * 0.02 + if i < 2 { 0.5 } else { 0.0 }).exp()).collect();
                separate(&values).is_some_and(|groups| groups.high == [0, 1])
            })
            .count();
        assert!(found > 950, "{found}");
    }
}
