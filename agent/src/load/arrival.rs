//! When requests are sent. Closed loop: when a worker is free. Open loop: by a schedule that is drawn from the seed
//! before the window opens, so that nothing the server does can move it.

use std::time::Duration;

use crate::load::draws::Draws;

/// Requests per second, positive and finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate(f64);

/// An arrival policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// A worker sends its next request as soon as its last one has ended.
    Closed,
    /// Equal gaps.
    Constant(Rate),
    /// Gamma gaps of the given shape (vLLM's burstiness): 1 is Poisson, below 1 bursts, above 1 evens out.
    Gamma {
        /// Mean rate.
        rate: Rate,
        /// Shape.
        burstiness: f64,
    },
    /// Equal steps of rate from request to request.
    Ramp {
        /// At the first gap.
        from: Rate,
        /// At the last gap.
        to: Rate,
    },
}

/// An arrival policy that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "--arrival {0:?} must be closed, constant:RATE, poisson:RATE, gamma:RATE:BURSTINESS or ramp:FROM:TO, \
     each number positive, rates in requests per second"
)]
pub struct BadArrivals(pub String);

impl std::str::FromStr for Arrivals {
    type Err = BadArrivals;

    fn from_str(text: &str) -> Result<Self, BadArrivals> {
        let bad = || BadArrivals(text.to_owned());
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let numbers: Vec<f64> = rest
            .split(':')
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| bad())?;
        if !numbers.iter().all(|n| n.is_finite() && *n > 0.0) {
            return Err(bad());
        }
        match (kind, numbers.as_slice()) {
            ("closed", []) if rest.is_empty() => Ok(Self::Closed),
            ("constant", &[rate]) => Ok(Self::Constant(Rate(rate))),
            ("poisson", &[rate]) => Ok(Self::Gamma { rate: Rate(rate), burstiness: 1.0 }),
            ("gamma", &[rate, burstiness]) => Ok(Self::Gamma { rate: Rate(rate), burstiness }),
            ("ramp", &[from, to]) => Ok(Self::Ramp { from: Rate(from), to: Rate(to) }),
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => write!(f, "closed"),
            Self::Constant(rate) => write!(f, "constant:{}", rate.0),
            Self::Gamma { rate, burstiness } if (burstiness - 1.0).abs() < f64::EPSILON => {
                write!(f, "poisson:{}", rate.0)
            }
            Self::Gamma { rate, burstiness } => write!(f, "gamma:{}:{burstiness}", rate.0),
            Self::Ramp { from, to } => write!(f, "ramp:{}:{}", from.0, to.0),
        }
    }
}

impl Arrivals {
    /// Requests per second; `None` where there is no one rate: the closed loop and the ramp.
    pub const fn rate(&self) -> Option<f64> {
        match self {
            Self::Constant(rate) | Self::Gamma { rate, .. } => Some(rate.0),
            Self::Closed | Self::Ramp { .. } => None,
        }
    }

    /// Times of `count` sends after the phase's start; `None` for the closed loop, which has no schedule.
    #[expect(clippy::cast_precision_loss, reason = "request counts stay far below 2^52")]
    pub fn schedule(&self, count: usize, seed: u64) -> Option<Vec<Duration>> {
        let mut draws = Draws::new(seed);
        let gap = |index: usize, draws: &mut Draws| match self {
            Self::Closed => 0.0,
            Self::Constant(rate) => 1.0 / rate.0,
            Self::Gamma { rate, burstiness } => draws.gamma(*burstiness) / (burstiness * rate.0),
            Self::Ramp { from, to } => {
                let share = if count > 2 { (index - 1) as f64 / (count - 2) as f64 } else { 0.0 };
                1.0 / (from.0 + (to.0 - from.0) * share)
            }
        };
        if matches!(self, Self::Closed) {
            return None;
        }
        let mut at = 0.0;
        let times = (0..count).map(|index| {
            if index > 0 {
                at += gap(index, &mut draws);
            }
            Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX)
        });
        Some(times.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(text: &str, count: usize) -> Vec<f64> {
        let times = text.parse::<Arrivals>().unwrap().schedule(count, 7).unwrap();
        assert_eq!((times.len(), times[0]), (count, Duration::ZERO));
        times.windows(2).map(|pair| pair[1].as_secs_f64() - pair[0].as_secs_f64()).collect()
    }

    #[test]
    fn policies_are_read_or_refused() {
        for text in ["closed", "constant:2.5", "poisson:4", "gamma:4:0.5", "ramp:1:9"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "open",
            "closed:1",
            "constant",
            "constant:0",
            "poisson:-1",
            "poisson:inf",
            "gamma:1",
            "ramp:1:x",
            "constant:1:2",
        ] {
            assert!(bad.parse::<Arrivals>().is_err(), "{bad}");
        }
        assert!(Arrivals::Closed.schedule(3, 0).is_none());
    }

    #[test]
    fn gaps_have_the_mean_and_spread_of_their_policy() {
        for (text, mean, variation) in [
            ("constant:50", 0.02, 0.0),
            ("poisson:50", 0.02, 1.0),
            ("gamma:50:4", 0.02, 0.5),
            ("gamma:50:0.25", 0.02, 2.0),
        ] {
            let gaps = gaps(text, 40_001);
            let found = proto::stats::mean(&gaps).unwrap();
            let spread = proto::stats::sample_std(&gaps).unwrap() / found;
            assert!((found / mean - 1.0).abs() < 0.03, "{text}: mean {found}");
            assert!((spread - variation).abs() < 0.06, "{text}: variation {spread}");
        }
    }

    #[test]
    fn a_ramp_climbs_between_its_ends() {
        let gaps = gaps("ramp:10:100", 101);
        assert!((gaps[0] - 0.1).abs() < 1e-6 && (gaps[99] - 0.01).abs() < 1e-6, "{gaps:?}");
        assert!(gaps.windows(2).all(|pair| pair[1] < pair[0]));
    }

    #[test]
    fn the_seed_decides() {
        let draw = |seed| "poisson:5".parse::<Arrivals>().unwrap().schedule(9, seed);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1), draw(1 + (1 << 32)));
    }
}
