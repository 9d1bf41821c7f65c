//! Intervals from resampling, over legs and over the requests within each, and verdicts on ratios.
//!
//! A leg is one server boot; requests of one boot share its luck, so pooling them and resampling requests alone
//! would promise far too much. Each replicate draws as many legs as there are, with replacement, and within
//! every drawn leg its requests, with replacement; beside it one is drawn with every leg kept, which tells what
//! the requests alone contribute. Few legs understate what is left, the variation between boots, by the factor
//! `(L - 1) / L` in variance and by the tails of a normal where Student's belong, so that part is widened by
//! `t / z * sqrt(L / (L - 1))`, on the logarithmic scale. With one leg the variation between boots is unknown:
//! the interval then covers the requests only and says so.
//!
//! Deterministic: the draws depend on the label of the figure and on nothing else.

use rand_mt::Mt64;
use schemars::JsonSchema;
use serde::Serialize;

use super::student::{NORMAL_975, t_975};

/// Draws for one figure.
#[derive(Debug)]
pub struct Draws(Mt64);

impl Draws {
    /// A generator that depends on `label` only.
    pub fn new(label: &str) -> Self {
        // FNV-1a: a fixed spread of labels over seeds.
        let seed = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(Mt64::new(seed))
    }

    /// A position below `n` (at least 1).
    #[expect(clippy::cast_possible_truncation, reason = "the product's high half is below n")]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// A standard normal number, for tests of what intervals promise.
    #[expect(clippy::cast_precision_loss, reason = "53 bits of it")]
    pub fn normal(&mut self) -> f64 {
        let mut uniform = || ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let (u, v) = (uniform(), uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// Fewest and most replicates, and about how many draws may be spent on one figure.
const LEAST_REPLICATES: usize = 200;
const MOST_REPLICATES: usize = 1000;
const DRAWS_PER_FIGURE: usize = 20_000_000;

fn replicate_count(samples: usize) -> usize {
    (DRAWS_PER_FIGURE / samples.max(1)).clamp(LEAST_REPLICATES, MOST_REPLICATES)
}

/// A figure and its resampled values.
#[derive(Debug, Clone)]
pub struct Resampled {
    /// The figure itself.
    pub value: f64,
    /// Legs that had samples.
    pub legs: usize,
    /// Legs drawn, and requests within them.
    replicates: Vec<f64>,
    /// Every leg kept, requests drawn within it.
    kept: Vec<f64>,
}

/// One replicate with legs drawn, one with every leg kept; `one` gets the legs and the draws.
fn both(
    draws: &mut Draws,
    legs: usize,
    count: usize,
    mut one: impl FnMut(&[usize], &mut Draws) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let all: Vec<usize> = (0..legs).collect();
    let (mut replicates, mut kept) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let some: Vec<usize> = (0..legs).map(|_| draws.below(legs)).collect();
        replicates.extend(one(&some, draws));
        kept.extend(one(&all, draws));
    }
    (replicates, kept)
}

/// A 95 % interval around a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Interval {
    /// Lower end, in the unit of the figure.
    pub low: f64,
    /// Upper end, in the unit of the figure.
    pub high: f64,
    /// Replicates drawn.
    pub replicates: usize,
    /// Legs behind the figure; with 1 the variation between server boots is not in the interval.
    pub legs: usize,
    /// Factor by which the part that varies between legs was widened, because legs are few.
    pub widened: f64,
}

impl Resampled {
    /// The median of all samples of all legs.
    pub fn median(label: &str, legs: &[&[f64]]) -> Option<Self> {
        Self::median_of(label, legs, replicate_count(legs.iter().map(|leg| leg.len()).sum()))
    }

    fn median_of(label: &str, legs: &[&[f64]], replicates: usize) -> Option<Self> {
        let legs: Vec<&[f64]> = legs.iter().copied().filter(|leg| !leg.is_empty()).collect();
        let total: usize = legs.iter().map(|leg| leg.len()).sum();
        // Every sample becomes its rank in the pool; a replicate counts how often each rank was drawn.
        let mut pool: Vec<(f64, u32)> = Vec::with_capacity(total);
        for (leg, samples) in (0_u32..).zip(&legs) {
            pool.extend(samples.iter().map(|sample| (*sample, leg)));
        }
        pool.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks: Vec<Vec<u32>> = legs.iter().map(|leg| Vec::with_capacity(leg.len())).collect();
        for (rank, (_, leg)) in (0_u32..).zip(&pool) {
            ranks[*leg as usize].push(rank);
        }
        let value = middle(pool.len(), |rank| pool[rank].0)?;
        let mut draws = Draws::new(label);
        let mut times = vec![0_u32; total];
        let (replicates, kept) = both(&mut draws, legs.len(), replicates, |members, draws| {
            times.fill(0);
            let mut size = 0;
            for leg in members.iter().map(|at| &ranks[*at]) {
                size += leg.len();
                for _ in 0..leg.len() {
                    times[leg[draws.below(leg.len())] as usize] += 1;
                }
            }
            median_of_counts(size, &times, |rank| pool[rank].0)
        });
        Some(Self { value, legs: legs.len(), replicates, kept })
    }

    /// The median of pooled values that come in clusters (the gaps of one request belong together).
    ///
    /// Each leg is a list of `(values at or below the median, half of those equal to it; values)` per cluster.
    /// A replicate is the share `p` of values below the median in the resample; by the usual linearisation the
    /// resample's own median is the pool's quantile at `1 - p`, which `quantile` supplies.
    pub fn clustered_median(label: &str, legs: &[Vec<(f64, f64)>], quantile: impl Fn(f64) -> f64) -> Option<Self> {
        let legs: Vec<&Vec<(f64, f64)>> = legs.iter().filter(|leg| !leg.is_empty()).collect();
        let total: usize = legs.iter().map(|leg| leg.len()).sum();
        if total == 0 {
            return None;
        }
        let mut draws = Draws::new(label);
        let (replicates, kept) = both(&mut draws, legs.len(), replicate_count(total), |members, draws| {
            let (mut below, mut all) = (0.0, 0.0);
            for leg in members.iter().map(|at| legs[*at]) {
                for _ in 0..leg.len() {
                    let cluster = leg[draws.below(leg.len())];
                    below += cluster.0;
                    all += cluster.1;
                }
            }
            Some(quantile((1.0 - below / all).clamp(0.0, 1.0)))
        });
        Some(Self { value: quantile(0.5), legs: legs.len(), replicates, kept })
    }

    /// `scale / mean` of all samples of all legs (decode-only throughput from times per token).
    pub fn inverse_mean(label: &str, legs: &[&[f64]], scale: f64) -> Option<Self> {
        let legs: Vec<&[f64]> = legs.iter().copied().filter(|leg| !leg.is_empty()).collect();
        let total: usize = legs.iter().map(|leg| leg.len()).sum();
        let value = scale / proto::stats::exact_mean(&legs.concat())?;
        let mut draws = Draws::new(label);
        let (replicates, kept) = both(&mut draws, legs.len(), replicate_count(total), |members, draws| {
            let (mut sum, mut count) = (0.0, 0.0);
            for leg in members.iter().map(|at| legs[*at]) {
                for _ in 0..leg.len() {
                    sum += leg[draws.below(leg.len())];
                    count += 1.0;
                }
            }
            Some(scale / (sum / count))
        });
        Some(Self { value, legs: legs.len(), replicates, kept })
    }

    /// A rate that only whole legs have: the sum of the first numbers over the sum of the second.
    pub fn rate(label: &str, legs: &[(f64, f64)]) -> Option<Self> {
        let rate = |sums: (f64, f64)| if sums.1 > 0.0 { sums.0 / sums.1 } else { f64::NAN };
        let value = rate(legs.iter().fold((0.0, 0.0), |sum, leg| (sum.0 + leg.0, sum.1 + leg.1)));
        if !value.is_finite() {
            return None;
        }
        let mut draws = Draws::new(label);
        let (replicates, kept) = both(&mut draws, legs.len(), MOST_REPLICATES, |members, _| {
            let legs = members.iter().map(|at| legs[*at]);
            Some(rate(legs.fold((0.0, 0.0), |sum, leg| (sum.0 + leg.0, sum.1 + leg.1))))
        });
        Some(Self { value, legs: legs.len(), replicates, kept })
    }

    /// The interval of the figure; `None` where nothing varies that could be resampled, or where the logarithm
    /// of the figure does not exist.
    pub fn interval(&self) -> Option<Interval> {
        let widened = widening(self.legs, self.legs.saturating_sub(1));
        self.widened_by(widened)
    }

    fn widened_by(&self, widened: f64) -> Option<Interval> {
        let logs = |replicates: &[f64]| {
            let logs: Vec<f64> = replicates.iter().map(|r| (r / self.value).ln()).collect();
            logs.iter().all(|log| log.is_finite()).then(|| proto::stats::sorted(logs))
        };
        let (drawn, kept) = (logs(&self.replicates)?, logs(&self.kept)?);
        if self.value <= 0.0 || drawn.first() == drawn.last() {
            return None;
        }
        // Distance of an end from the figure: what the requests contribute, and the rest, widened.
        let distance = |percent: f64, side: f64| {
            let of = |logs| proto::stats::percentile(logs, percent).map(|log| (side * log).max(0.0));
            let (both, requests) = (of(&drawn)?, of(&kept)?);
            let boots = (both.powi(2) - requests.powi(2)).max(0.0);
            Some((requests.powi(2) + widened.powi(2) * boots).sqrt())
        };
        let (low, high) = (distance(2.5, -1.0)?, distance(97.5, 1.0)?);
        Some(Interval {
            low: self.value * (-low).exp(),
            high: self.value * high.exp(),
            replicates: drawn.len(),
            legs: self.legs,
            widened,
        })
    }

    /// This figure over another, resampled independently.
    pub fn over(&self, other: &Self) -> Ratio {
        let divided = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a / b).collect();
        let resampled = Self {
            value: self.value / other.value,
            legs: self.legs.min(other.legs),
            replicates: divided(&self.replicates, &other.replicates),
            kept: divided(&self.kept, &other.kept),
        };
        let interval = resampled.widened_by(ratio_widening(self.legs, other.legs));
        Ratio { value: resampled.value, legs: (self.legs, other.legs), interval }
    }
}

/// `t / z * sqrt(L / (L - 1))`; 1 for a single leg, of which nothing between legs is known.
#[expect(clippy::cast_precision_loss, reason = "a count of legs")]
fn widening(legs: usize, freedom: usize) -> f64 {
    if legs < 2 { 1.0 } else { t_975(freedom) / NORMAL_975 * (legs as f64 / (legs - 1) as f64).sqrt() }
}

fn ratio_widening(a: usize, b: usize) -> f64 {
    widening(a.min(b), (a + b).saturating_sub(2))
}

fn middle(n: usize, at: impl Fn(usize) -> f64) -> Option<f64> {
    let last = n.checked_sub(1)?;
    let (low, high) = (at(last / 2), at(last.div_ceil(2)));
    Some(low + (high - low) * 0.5)
}

fn median_of_counts(size: usize, times: &[u32], at: impl Fn(usize) -> f64) -> Option<f64> {
    let last = size.checked_sub(1)?;
    let (want_low, want_high) = (last / 2, last.div_ceil(2));
    let mut seen = 0;
    let mut low = None;
    for (rank, count) in times.iter().enumerate() {
        seen += *count as usize;
        if low.is_none() && seen > want_low {
            low = Some(at(rank));
        }
        if seen > want_high {
            return low.map(|low| low + (at(rank) - low) * 0.5);
        }
    }
    None
}

/// A figure of one arm over the same figure of another.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// First over second.
    pub value: f64,
    /// Legs behind each.
    pub legs: (usize, usize),
    /// Its interval.
    pub interval: Option<Interval>,
}

/// Which way a figure is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Latencies.
    Lower,
    /// Throughputs.
    Higher,
}

/// What the data says about the first arm against the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval of the ratio lies wholly on the good side of 1.
    Better,
    /// The interval of the ratio lies wholly on the bad side of 1.
    Worse,
    /// Neither.
    Undecided,
}

/// Rounds beyond which nobody should be sent for.
pub const MOST_ROUNDS: usize = 50;

impl Ratio {
    /// The verdict. One round of either arm decides nothing: boots vary, and by how much is not known then.
    pub fn verdict(&self, better: Better) -> Verdict {
        let Some(interval) = self.interval.filter(|_| self.legs.0.min(self.legs.1) >= 2) else {
            return Verdict::Undecided;
        };
        let (below, above) = (interval.high < 1.0, interval.low > 1.0);
        match better {
            Better::Lower if below => Verdict::Better,
            Better::Lower if above => Verdict::Worse,
            Better::Higher if above => Verdict::Better,
            Better::Higher if below => Verdict::Worse,
            Better::Lower | Better::Higher => Verdict::Undecided,
        }
    }

    /// Rounds of each arm beyond the present ones after which the interval would exclude 1, if the ratio and the
    /// variation stay as they are. `None`: not within [`MOST_ROUNDS`] in all.
    #[expect(clippy::cast_precision_loss, reason = "a count of legs")]
    pub fn more_rounds(&self) -> Option<usize> {
        let now = self.legs.0.min(self.legs.1);
        if now < 2 {
            // The variation between boots is unknown; the second round makes it known.
            return Some(2 - now);
        }
        let (interval, distance) = (self.interval?, self.value.ln().abs());
        let half = (interval.high / self.value).ln().max((self.value / interval.low).ln());
        let scale = half / ratio_widening(self.legs.0, self.legs.1) * (now as f64).sqrt();
        (now..=MOST_ROUNDS)
            .find(|rounds| scale / (*rounds as f64).sqrt() * ratio_widening(*rounds, *rounds) < distance)
            .map(|rounds| rounds - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Legs whose log level varies with sd `between`, of requests that vary with sd `within`.
    fn legs(draws: &mut Draws, count: usize, requests: usize, between: f64, within: f64) -> Vec<Vec<f64>> {
        (0..count)
            .map(|_| {
                let level = draws.normal() * between;
                (0..requests).map(|_| 100.0 * (level + draws.normal() * within).exp()).collect()
            })
            .collect()
    }

    fn median(label: &str, legs: &[Vec<f64>]) -> Resampled {
        // Fewer replicates than in earnest: the ends of one interval are rougher, what they cover is not.
        Resampled::median_of(label, &legs.iter().map(Vec::as_slice).collect::<Vec<_>>(), 120).unwrap()
    }

    #[test]
    fn the_median_is_the_pooled_one() {
        assert!(Resampled::median("x", &[]).is_none());
        assert!(Resampled::median("x", &[&[], &[]]).is_none());
        let one = Resampled::median("x", &[&[3.0, 1.0], &[], &[2.0, 10.0]]).unwrap();
        assert_eq!((one.value, one.legs), (2.5, 2));
        let interval = one.interval().unwrap();
        assert!(interval.low <= 2.5 && interval.high >= 2.5);
        assert!(Resampled::median("x", &[&[5.0; 9]]).unwrap().interval().is_none(), "nothing varies");
    }

    #[test]
    fn the_same_data_gives_the_same_interval() {
        let data = legs(&mut Draws::new("data"), 3, 40, 0.02, 0.2);
        assert_eq!(median("a", &data).interval(), median("a", &data).interval());
        assert_ne!(median("a", &data).interval(), median("b", &data).interval());
    }

    /// What "95 %" means: over many experiments with known truth the interval holds it, whether the boots or the
    /// requests vary more.
    #[test]
    fn intervals_cover_the_truth() {
        for (count, between, within) in [(2, 0.05, 0.1), (2, 0.0, 0.3), (3, 0.05, 0.1), (4, 0.0, 0.3), (5, 0.1, 0.1)] {
            let mut draws = Draws::new("coverage");
            let experiments = 100;
            let covered = (0..experiments)
                .filter(|i| {
                    let data = legs(&mut draws, count, 24, between, within);
                    let interval = median(&format!("experiment {i}"), &data).interval().unwrap();
                    interval.low <= 100.0 && interval.high >= 100.0
                })
                .count();
            assert!(covered * 100 >= experiments * 91, "{count} legs, {between}, {within}: {covered} of {experiments}");
        }
    }

    /// Two arms that are the same are seldom told apart; arms that differ are, and more rounds help.
    #[test]
    fn verdicts() {
        let mut draws = Draws::new("verdicts");
        let mut run = |rounds, difference: f64| {
            let mut found = [0; 3];
            for i in 0..60 {
                let a = legs(&mut draws, rounds, 24, 0.03, 0.1);
                let mut b = legs(&mut draws, rounds, 24, 0.03, 0.1);
                b.iter_mut().flatten().for_each(|v| *v *= difference);
                let ratio = median(&format!("a{i}"), &a).over(&median(&format!("b{i}"), &b));
                found[ratio.verdict(Better::Lower) as usize] += 1;
                let opposite = ratio.verdict(Better::Higher);
                assert_eq!(ratio.verdict(Better::Lower) == Verdict::Undecided, opposite == Verdict::Undecided);
            }
            found
        };
        for rounds in [2, 3, 5] {
            let [better, worse, _] = run(rounds, 1.0);
            assert!(better + worse <= 4, "{rounds} rounds: {better} + {worse} of 60 told apart");
        }
        let [better, worse, undecided] = run(2, 1.3);
        assert!(better > 30 && worse == 0, "{better} {worse} {undecided}");
        assert!(run(4, 1.15)[0] > run(2, 1.15)[0]);
    }

    #[test]
    fn one_round_decides_nothing() {
        let data = legs(&mut Draws::new("one"), 1, 100, 0.0, 0.01);
        let faster: Vec<Vec<f64>> = vec![data[0].iter().map(|v| v / 2.0).collect()];
        let ratio = median("f", &faster).over(&median("d", &data));
        assert!(ratio.interval.unwrap().high < 0.6);
        assert_eq!(ratio.verdict(Better::Lower), Verdict::Undecided);
        assert_eq!(ratio.more_rounds(), Some(1));
    }

    #[test]
    fn more_rounds_narrow_the_interval_until_it_decides() {
        let ratio = |value: f64, half: f64| Ratio {
            value,
            legs: (2, 2),
            interval: Some(Interval {
                low: value / half.exp(),
                high: value * half.exp(),
                replicates: 1000,
                legs: 2,
                widened: ratio_widening(2, 2),
            }),
        };
        assert_eq!(ratio(1.5, 0.1).more_rounds(), Some(0), "decided already");
        let close = ratio(1.1, 0.2).more_rounds().unwrap();
        let closer = ratio(1.03, 0.2).more_rounds().unwrap();
        assert!(close >= 1 && closer > close, "{close} {closer}");
        assert_eq!(ratio(1.000_1, 0.2).more_rounds(), None);
    }

    #[test]
    fn rates_and_means() {
        let rate = Resampled::rate("r", &[(100.0, 2.0), (90.0, 2.0)]).unwrap();
        assert!((rate.value - 47.5).abs() < 1e-12);
        let interval = rate.interval().unwrap();
        assert!(interval.low < 45.0 && interval.high > 50.0);
        assert!(Resampled::rate("r", &[(100.0, 2.0)]).unwrap().interval().is_none(), "one leg varies with nothing");
        assert!(Resampled::rate("r", &[(0.0, 0.0)]).is_none());
        let decode = Resampled::inverse_mean("d", &[&[20.0, 30.0], &[25.0]], 1000.0).unwrap();
        assert!((decode.value - 40.0).abs() < 1e-12);
        assert!(decode.interval().unwrap().low < 40.0);
    }

    /// Gaps of one request belong together: a clustered interval must be wider than one that takes them as free.
    #[test]
    fn clusters_widen() {
        let mut draws = Draws::new("clusters");
        let requests: Vec<Vec<f64>> = (0..30)
            .map(|_| {
                let level = draws.normal() * 0.2;
                (0..50).map(|_| 20.0 * (level + draws.normal() * 0.02).exp()).collect()
            })
            .collect();
        let pool = proto::stats::sorted(requests.concat());
        let m = proto::stats::percentile(&pool, 50.0).unwrap();
        let clusters: Vec<(f64, f64)> = requests
            .iter()
            .map(|r| (f64::from(u32::try_from(r.iter().filter(|v| **v < m).count()).unwrap()), 50.0))
            .collect();
        let quantile = |p: f64| proto::stats::percentile(&pool, p * 100.0).unwrap();
        let clustered = Resampled::clustered_median("c", &[clusters], quantile).unwrap();
        let free = Resampled::median("f", &[&pool]).unwrap();
        assert_eq!(clustered.value.to_bits(), free.value.to_bits());
        let width = |r: &Resampled| r.interval().map(|i| (i.high / i.low).ln()).unwrap();
        assert!(width(&clustered) > 3.0 * width(&free), "{} {}", width(&clustered), width(&free));
    }
}
