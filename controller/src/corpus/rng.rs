//! The published builder's generator (harness spec A.8): MT19937 from `rand_mt` under CPython's own seeding,
//! rejection sampling, shuffle and sample. A draw more or less here shifts every later one.

use std::fmt;
use std::str::FromStr;

use rand_mt::Mt;

/// Decimal digits that a seed may have; CPython's own limit for integers in text.
const MAX_DIGITS: usize = 4300;

/// An integer seed of any size. The sign is kept for the manifest; the generator takes the absolute value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    negative: bool,
    digits: String,
}

/// Text that is not a whole number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a whole number of at most {MAX_DIGITS} digits")]
pub struct SeedError(String);

impl FromStr for Seed {
    type Err = SeedError;

    fn from_str(text: &str) -> Result<Self, SeedError> {
        let trimmed = text.trim();
        let (negative, digits) = match trimmed.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
        };
        if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(SeedError(text.chars().take(40).collect()));
        }
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self { negative: false, digits: "0".to_owned() });
        }
        Ok(Self { negative, digits: digits.to_owned() })
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.negative { "-" } else { "" }, self.digits)
    }
}

impl Seed {
    /// 32-bit words of the absolute value, least significant first; zero is one word 0.
    fn words(&self) -> Vec<u32> {
        let mut words: Vec<u32> = vec![0];
        for digit in self.digits.bytes() {
            let mut carry = u64::from(digit - b'0');
            for word in &mut words {
                let value = u64::from(*word) * 10 + carry;
                *word = low(value);
                carry = value >> 32;
            }
            if carry != 0 {
                words.push(low(carry));
            }
        }
        words
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low(value: u64) -> u32 {
    value as u32
}

/// The generator; a clone replays the draws that follow.
#[derive(Debug, Clone)]
pub struct Rng(Mt);

impl Rng {
    /// A generator freshly seeded.
    pub fn new(seed: &Seed) -> Self {
        Self(Mt::new_with_key(seed.words()))
    }

    /// The top `bits` (1 to 32) of one output.
    pub fn getrandbits(&mut self, bits: u32) -> u32 {
        debug_assert!((1..=32).contains(&bits), "{bits} bits");
        self.0.next_u32() >> (32 - bits)
    }

    /// A number below `n` (at least 1). `n` = 1 draws too: one bit at a time until a 0 comes.
    pub fn below(&mut self, n: u32) -> u32 {
        debug_assert!(n > 0, "an empty range");
        let bits = u32::BITS - n.leading_zeros();
        loop {
            let value = self.getrandbits(bits);
            if value < n {
                return value;
            }
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// Shuffles in place.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(index(i + 1)) as usize;
            items.swap(i, j);
        }
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Samples without replacement, over and over from populations of any size, with memory that is reused.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Round in which a position was last taken.
    taken: Vec<u32>,
    round: u32,
    pool: Vec<u32>,
}

impl Sampler {
    /// Puts `k` positions of `0..n` into `picks`, in the order drawn. `k` must not exceed `n`.
    pub fn sample(&mut self, rng: &mut Rng, n: u32, k: u32, picks: &mut Vec<u32>) {
        debug_assert!(k <= n, "{k} of {n}");
        picks.clear();
        if u64::from(n) <= set_size(k) {
            self.pool.clear();
            self.pool.extend(0..n);
            for left in ((n - k + 1)..=n).rev() {
                let at = rng.below(left) as usize;
                picks.push(self.pool[at]);
                self.pool[at] = self.pool[left as usize - 1];
            }
            return;
        }
        self.next_round(n as usize);
        for _ in 0..k {
            let at = loop {
                let at = rng.below(n);
                if self.taken[at as usize] != self.round {
                    break at;
                }
            };
            self.taken[at as usize] = self.round;
            picks.push(at);
        }
    }

    fn next_round(&mut self, n: usize) {
        if self.taken.len() < n {
            self.taken.resize(n, 0);
        }
        self.round = self.round.checked_add(1).unwrap_or_else(|| {
            self.taken.fill(0);
            1
        });
    }
}

/// Populations up to this size are sampled from a shrinking pool, larger ones by rejection.
fn set_size(k: u32) -> u64 {
    let mut size = 21;
    if k > 5 {
        let mut power: u64 = 4;
        while power < 3 * u64::from(k) {
            power *= 4;
        }
        size += power;
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(text: &str) -> Seed {
        text.parse().unwrap()
    }

    #[test]
    fn seeds_are_integers_of_any_size() {
        for (text, shown) in [("0", "0"), ("-0", "0"), ("+5", "5"), (" 007 ", "7"), ("-12", "-12")] {
            assert_eq!(seed(text).to_string(), shown);
        }
        assert_eq!(seed("4294967296").words(), [0, 1]);
        assert_eq!(seed("-18446744073709551615").words(), [u32::MAX, u32::MAX]);
        assert_eq!(seed("340282366920938463463374607431768211456").words(), [0, 0, 0, 0, 1]);
        let long = "9".repeat(MAX_DIGITS + 1);
        for bad in ["", "-", "1.0", "0x10", "1e3", "+-1", "five", "1 2", &long] {
            assert!(bad.parse::<Seed>().is_err(), "{bad}");
        }
    }

    #[test]
    fn quick_vectors() {
        let mut rng = Rng::new(&seed("0"));
        let raw: Vec<u32> = (0..4).map(|_| rng.getrandbits(32)).collect();
        assert_eq!(raw, [3_626_764_237, 1_654_615_998, 3_255_389_356, 3_823_568_514]);
        let mut picks = Vec::new();
        Sampler::default().sample(&mut Rng::new(&seed("0")), 1319, 5, &mut picks);
        assert_eq!(picks, [788, 861, 82, 530, 1047]);
        let mut six = [0, 1, 2, 3, 4, 5];
        Rng::new(&seed("0")).shuffle(&mut six);
        assert_eq!(six, [4, 2, 1, 0, 5, 3]);
        let mut rng = Rng::new(&seed("0"));
        assert_eq!([rng.below(1), rng.below(1), rng.below(1)], [0, 0, 0]);
        assert_eq!(rng.getrandbits(32), 1_112_038_970, "a range of one consumes bits");
    }

    #[test]
    fn pool_sizes() {
        for (k, size) in [(5, 21), (6, 85), (21, 85), (22, 277), (85, 277), (86, 1045), (341, 1045)] {
            assert_eq!(set_size(k), size, "{k}");
        }
    }

    /// The memory of a sampler never changes what it draws.
    #[test]
    fn a_used_sampler_draws_like_a_fresh_one() {
        let mut used = Sampler { round: u32::MAX - 1, ..Sampler::default() };
        for (n, k) in [(500, 30), (40, 30), (1000, 6), (500, 30), (22, 5), (21, 21), (1, 1), (3, 0)] {
            let (mut a, mut b) = (Rng::new(&seed("9")), Rng::new(&seed("9")));
            let (mut first, mut second) = (Vec::new(), Vec::new());
            used.sample(&mut a, n, k, &mut first);
            Sampler::default().sample(&mut b, n, k, &mut second);
            assert_eq!(first, second);
            assert_eq!(a.getrandbits(32), b.getrandbits(32));
            let mut distinct = first.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), k as usize);
            assert!(distinct.iter().all(|p| *p < n));
        }
    }
}
