//! The five bands, the `--weights` grammar and the sharing out of a count (harness spec A.3, A.4).

use std::fmt;
use std::str::FromStr;

use super::source::trim;

/// A band, in the order in which bands are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Band {
    /// Short question: one GSM8K question.
    S,
    /// Code completion: one HumanEval prompt.
    M,
    /// Prose summary: a block of sonnet lines.
    L,
    /// Long code review: several HumanEval prompts.
    Xl,
    /// As XL, with the target sized to a served context of 8192 tokens.
    Xxl,
}

impl Band {
    /// All bands, in drawing order.
    pub const ALL: [Self; 5] = [Self::S, Self::M, Self::L, Self::Xl, Self::Xxl];

    /// The name in weights, ids and manifests. Case-sensitive.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::M => "M",
            Self::L => "L",
            Self::Xl => "XL",
            Self::Xxl => "XXL",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|band| band.name() == name)
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Shares of the published corpora; XXL has none, so a corpus built without naming it is the old one.
pub const DEFAULT_WEIGHTS: &str = "S=0.35,M=0.40,L=0.15,XL=0.10";

/// Largest count: hundreds of gigabytes of corpus, and the last one at which every index fits comfortably.
const MAX_COUNT: u32 = 100_000_000;

/// Largest distance of the sum of shares from 1.
const SUM_TOLERANCE: f64 = 1e-9;

/// Band shares in command-line order; they sum to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights(Vec<(Band, f64)>);

/// A `--weights` text that is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WeightsError {
    /// No `=`.
    #[error("{0:?} is not BAND=SHARE; write for example {DEFAULT_WEIGHTS}")]
    NotAPair(String),
    /// Unknown band.
    #[error("{0:?} is not a band; the bands are S, M, L, XL and XXL")]
    UnknownBand(String),
    /// The same band again.
    #[error("band {0} is named twice")]
    Twice(Band),
    /// Not a number.
    #[error("the share {1:?} of band {0} is not a number")]
    NotANumber(Band, String),
    /// NaN or infinite.
    #[error("the share {1:?} of band {0} is not finite")]
    NotFinite(Band, String),
    /// Below zero.
    #[error("the share {1} of band {0} is negative")]
    Negative(Band, f64),
    /// Nothing named.
    #[error("no bands are named; write for example {DEFAULT_WEIGHTS}")]
    Empty,
    /// Shares that are not a whole.
    #[error("the shares sum to {0}, not to 1")]
    Sum(f64),
}

impl FromStr for Weights {
    type Err = WeightsError;

    fn from_str(text: &str) -> Result<Self, WeightsError> {
        let mut shares: Vec<(Band, f64)> = Vec::new();
        for piece in text.split(',').map(trim).filter(|piece| !piece.is_empty()) {
            let (name, share) = piece.split_once('=').ok_or_else(|| WeightsError::NotAPair(piece.to_owned()))?;
            let name = trim(name);
            let band = Band::from_name(name).ok_or_else(|| WeightsError::UnknownBand(name.to_owned()))?;
            if shares.iter().any(|(named, _)| *named == band) {
                return Err(WeightsError::Twice(band));
            }
            let value: f64 = trim(share).parse().map_err(|_| WeightsError::NotANumber(band, share.to_owned()))?;
            if !value.is_finite() {
                return Err(WeightsError::NotFinite(band, share.to_owned()));
            }
            if value < 0.0 {
                return Err(WeightsError::Negative(band, value));
            }
            shares.push((band, value));
        }
        if shares.is_empty() {
            return Err(WeightsError::Empty);
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(WeightsError::Sum(sum));
        }
        Ok(Self(shares))
    }
}

/// A count that cannot be shared out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// Below zero.
    #[error("--count {0} is negative; give 0 or more")]
    Negative(i64),
    /// More than this build numbers.
    #[error("--count {0} is above the largest count of {MAX_COUNT}")]
    TooLarge(i64),
}

/// Prompts per band, in command-line order; a band named with nothing to do keeps its 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts(Vec<(Band, u32)>);

impl Counts {
    /// In command-line order.
    pub fn iter(&self) -> impl Iterator<Item = (Band, u32)> + '_ {
        self.0.iter().copied()
    }

    /// Prompts of one band; 0 when it is not named.
    pub fn of(&self, band: Band) -> u32 {
        self.iter().find(|(named, _)| *named == band).map_or(0, |(_, count)| count)
    }
}

impl Weights {
    /// In command-line order.
    pub fn iter(&self) -> impl Iterator<Item = (Band, f64)> + '_ {
        self.0.iter().copied()
    }

    /// Shares `count` out by the largest remainder; ties go to the smaller band name (L < M < S < XL < XXL).
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "count fits u32, so does every share of it"
    )]
    pub fn allocate(&self, count: i64) -> Result<Counts, AllocationError> {
        if count < 0 {
            return Err(AllocationError::Negative(count));
        }
        let total = u32::try_from(count).ok().filter(|n| *n <= MAX_COUNT).ok_or(AllocationError::TooLarge(count))?;
        let raw: Vec<f64> = self.iter().map(|(_, share)| f64::from(total) * share).collect();
        let mut counts: Vec<(Band, u32)> =
            self.iter().zip(&raw).map(|((band, _), raw)| (band, raw.trunc() as u32)).collect();
        let given: i64 = counts.iter().map(|(_, base)| i64::from(*base)).sum();
        let short = usize::try_from(count - given).unwrap_or(0);
        let mut order: Vec<usize> = (0..counts.len()).collect();
        let remainder = |at: usize| raw[at] - f64::from(counts[at].1);
        order.sort_by(|a, b| {
            remainder(*b).total_cmp(&remainder(*a)).then_with(|| counts[*a].0.name().cmp(counts[*b].0.name()))
        });
        for at in order.into_iter().take(short) {
            counts[at].1 += 1;
        }
        Ok(Counts(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn grammar() {
        for text in ["S=1", " S = 1 ,", ",,S=1,,", "S=.4,M=+.5,L=1e-1", "S=5.e-1,M=5.0E-1", "S=-0.0,M=1"] {
            assert!(text.parse::<Weights>().is_ok(), "{text}");
        }
        for (text, fragment) in [
            ("S:0.5,M=0.5", "S:0.5"),
            ("S:0.5,M=0.5", "BAND=SHARE"),
            ("S=0.5,XXXL=0.5", "XXXL"),
            ("s=1", "\"s\""),
            ("=1", "\"\""),
            ("S=0.5,S=0.5", "S is named twice"),
            ("S=half,M=0.5", "half"),
            ("S=0.5=0.5", "0.5=0.5"),
            ("S=,M=1", "not a number"),
            ("S=0.5,M=nan", "M is not finite"),
            ("S=0.5,M=-inf", "M is not finite"),
            ("S=1.2,M=-0.2", "negative"),
            ("", "no bands"),
            (" , ,", "no bands"),
            ("S=0.5,M=0.4", "sum"),
            ("S=0.5,M=0.500000002", "sum"),
            // The first defect from the left wins, and piece defects come before those of the whole.
            ("S=2,M=-1,Q=1", "negative"),
            ("S=0.5,S=nan", "twice"),
        ] {
            let error = text.parse::<Weights>().unwrap_err().to_string();
            assert!(error.contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn vectors() {
        let counts = |text: &str, count| text.parse::<Weights>().unwrap().allocate(count).unwrap();
        let of = |counts: Counts| Band::ALL.map(|band| counts.of(band));
        assert_eq!(of(counts(DEFAULT_WEIGHTS, 144)), [50, 58, 22, 14, 0]);
        assert_eq!(of(counts(DEFAULT_WEIGHTS, 192)), [67, 77, 29, 19, 0]);
        assert_eq!(of(counts("S=0.2,M=0.2,L=0.2,XL=0.2,XXL=0.2", 137)), [27, 28, 28, 27, 27]);
        let weights: Weights = DEFAULT_WEIGHTS.parse().unwrap();
        assert_eq!(weights.allocate(-1), Err(AllocationError::Negative(-1)));
        assert_eq!(weights.allocate(100_000_001), Err(AllocationError::TooLarge(100_000_001)));
    }

    proptest! {
        #[test]
        fn every_prompt_is_given_to_somebody(count in 0_i64..1_000_000, cuts in prop::array::uniform4(0.0_f64..1.0)) {
            let mut cuts = cuts;
            cuts.sort_by(f64::total_cmp);
            let edges = [0.0, cuts[0], cuts[1], cuts[2], cuts[3], 1.0];
            let text: Vec<String> =
                Band::ALL.iter().enumerate().map(|(i, b)| format!("{b}={}", edges[i + 1] - edges[i])).collect();
            let weights: Weights = text.join(",").parse().unwrap();
            let counts = weights.allocate(count).unwrap();
            prop_assert_eq!(counts.iter().map(|(_, n)| i64::from(n)).sum::<i64>(), count);
            for ((_, share), (_, n)) in weights.iter().zip(counts.iter()) {
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let exact = share * count as f64;
                prop_assert!((f64::from(n) - exact).abs() <= 1.0, "{n} for {exact}");
            }
        }
    }
}
