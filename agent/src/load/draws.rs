//! Random draws of the load client: arrivals and prompts, each from its own seed, the same on every machine.

use rand_mt::Mt;

/// Random draws from one seed.
#[derive(Debug)]
pub struct Draws(Mt);

impl Draws {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        let words = [seed & 0xFFFF_FFFF, seed >> 32].map(|word| u32::try_from(word).unwrap_or(0));
        Self(Mt::new_with_key(words))
    }

    /// Uniform below `bound`; 0 for a bound of 0.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounds stay far below 2^53"
    )]
    pub fn below(&mut self, bound: usize) -> usize {
        (((1.0 - self.unit()) * bound as f64) as usize).min(bound.saturating_sub(1))
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (self.0.next_u32() >> 5, self.0.next_u32() >> 6);
        1.0 - (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma of the given shape and scale 1 (Marsaglia and Tsang, 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if (shape - 1.0).abs() < f64::EPSILON {
            return -self.unit().ln();
        }
        if shape < 1.0 {
            return self.gamma(shape + 1.0) * self.unit().powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_everything_and_is_fair() {
        let mut draws = Draws::new(3);
        let mut first = [0_u32; 5];
        for _ in 0..10_000 {
            let mut items = [0, 1, 2, 3, 4];
            draws.shuffle(&mut items);
            first[items[0]] += 1;
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3, 4]);
        }
        assert!(first.iter().all(|count| (1_800..2_200).contains(count)), "{first:?}");
        assert_eq!(draws.below(0), 0);
        assert!((0..1000).all(|_| draws.below(3) < 3));
    }
}
