//! Chance with a seed: the same seed makes the same cases on every machine.

use tests::engine::bench::dataset::Random;

/// The stand-in's generator, with the choices that cases are made of.
#[derive(Debug, Clone)]
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed.cast_signed()))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).unwrap_or(0)
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
