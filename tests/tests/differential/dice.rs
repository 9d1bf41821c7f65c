//! Chance with a seed: the same seed makes the same cases on every machine.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    /// One of a list.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// One of a list of texts.
    pub(crate) fn word(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }

    /// True in so many of a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// How far from sound a case is meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Every part by itself is one that may be written.
    Valid,
    /// One part is off.
    Near,
    /// Anything.
    Wild,
}

impl Mood {
    pub(crate) fn of(case: usize) -> Self {
        match case % 5 {
            0 | 1 => Self::Valid,
            2 | 3 => Self::Near,
            _ => Self::Wild,
        }
    }
}
