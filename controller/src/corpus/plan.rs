//! Every draw of a corpus, in the published order (harness spec A.6), held in a form that is small and can be
//! written later in any order.
//!
//! The final shuffle comes after all draws, so the picks of an item must be at hand when its turn to be
//! written comes. XL and XXL items have dozens of picks each; instead of storing them, the generator is
//! stored every `STRIDE` items and the draws in between are made again. That holds a corpus of any size at
//! about 47 bytes per prompt, whatever the sources look like.

use super::bands::{Band, Counts};
use super::rng::{Rng, Sampler, Seed};
use super::source::{Source, Sources};

/// Target of an L block in characters.
pub const L_TARGET_CHARS: u32 = 3200;
/// Target of an XL prompt in characters.
pub const XL_TARGET_CHARS: u32 = 9000;
/// Target of an XXL prompt in characters.
///
/// Sized to fit a served context, not to a round number of tokens. On the published 144-prompt corpus the XL
/// band has 3.21 characters per prompt token at the mean (9011/2804) and 3.11 at the worst (10048/3233); L has
/// 3.83, so a ratio blended over bands flatters. 21000/3.21 is about 6540 tokens, 2.2 times XL's median.
/// Overshoot: XL realised 11044 characters in the 192-prompt corpus, 22.7 % over target at k_mid 20, of which
/// 10 points are the jitter of k (2/20) and 12.7 points sampling spread; at k_mid 47 that is
/// 2/47 + 12.7 % * sqrt(20/47) = 12.54 %, taken as 1.125. Budget: context 8192 less 192 output less 57 chat
/// template = 7943 tokens; ceiling 21000 * 1.125 / 3.11 = 7596. Headroom 346 tokens at the worst ratio, 583 at
/// the mean (harness spec A.5).
pub const XXL_TARGET_CHARS: u32 = 21_000;

/// Head of every L prompt; a part of the corpus bytes.
pub const L_INSTRUCTION: &str = "Read the following passage and write a short prose summary of it. \
                                 Say what it is about, in your own words.\n\n";
/// Head of every XL and XXL prompt; a part of the corpus bytes.
pub const XL_INSTRUCTION: &str = "Below are several Python function signatures with their docstrings. For each one, \
                                  say in a single sentence what the function is supposed to do, and name the edge \
                                  case its docstring leaves undefined.\n\n";

/// Items between two stored generators. A generator has 2504 bytes: 40 per item, and at most 63 items drawn again.
const STRIDE: u32 = 64;

/// Draws that the sources cannot supply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "band {band} asks for {wanted} prompts, but takes each row of {path} at most once and there are {limit}; \
     lower --count or the share of {band}, or give a longer source"
)]
pub struct PlanError {
    /// The band.
    pub band: Band,
    /// Its count.
    pub wanted: u32,
    /// Rows of its source.
    pub limit: u32,
    /// The source as typed.
    pub path: String,
}

/// Sizes derived from the sources; `rules` of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Lines of a middling L block.
    pub l_mid: u32,
    /// Fewest and most lines of an L block.
    pub l_range: (u32, u32),
    /// HumanEval prompts of a middling XL prompt.
    pub xl_mid: u32,
    /// The same for XXL.
    pub xxl_mid: u32,
}

impl Rules {
    fn of(sources: &Sources) -> Self {
        let lines = sources.sonnet.len();
        let l_mid = rounded(f64::from(L_TARGET_CHARS) / sources.mean_line).min(lines).max(1);
        let low = rounded(f64::from(l_mid) * 0.75).max(1);
        let high = rounded(f64::from(l_mid) * 1.25).min(lines);
        let mid = |target: u32| rounded(f64::from(target) / sources.mean_prompt).max(2);
        Self { l_mid, l_range: (low, high), xl_mid: mid(XL_TARGET_CHARS), xxl_mid: mid(XXL_TARGET_CHARS) }
    }
}

/// Nearest integer, halves to even.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; a length is never negative")]
fn rounded(value: f64) -> u32 {
    value.round_ties_even() as u32
}

/// Lengths that a band turned out to have, in characters, instruction included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Realised {
    /// Items.
    pub n: u32,
    /// Shortest.
    pub min: u32,
    /// The upper median.
    pub median: u32,
    /// Longest.
    pub max: u32,
    /// Mean.
    pub mean: f64,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    start: u32,
    lines: u32,
}

/// All draws of one corpus.
#[derive(Debug)]
pub struct Plan {
    /// Derived sizes.
    pub rules: Rules,
    realised: Vec<(Band, Realised)>,
    s: Vec<u32>,
    m: Vec<u32>,
    l: Vec<Block>,
    xl: u32,
    checkpoints: Vec<Rng>,
    order: Vec<u32>,
}

/// One prompt, named by what it is made of.
#[derive(Debug)]
pub enum Item<'a> {
    /// A GSM8K question.
    Question(u32),
    /// A HumanEval prompt.
    Prompt(u32),
    /// Sonnet lines from `start`, this many.
    Block {
        /// First line.
        start: u32,
        /// Lines.
        lines: u32,
    },
    /// Several HumanEval prompts.
    Prompts(Band, &'a [u32]),
}

impl Item<'_> {
    /// The band of the item.
    pub const fn band(&self) -> Band {
        match self {
            Self::Question(_) => Band::S,
            Self::Prompt(_) => Band::M,
            Self::Block { .. } => Band::L,
            Self::Prompts(band, _) => *band,
        }
    }

    /// The pieces of the text, in order.
    pub fn pieces<'a>(&'a self, sources: &'a Sources) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match self {
            Self::Question(at) => Box::new(std::iter::once(sources.gsm8k.text(*at))),
            Self::Prompt(at) => Box::new(std::iter::once(sources.humaneval.text(*at))),
            Self::Block { start, lines } => {
                Box::new(joined(L_INSTRUCTION, "\n", (*start..*start + *lines).map(|at| sources.sonnet.text(at))))
            }
            Self::Prompts(_, picks) => {
                Box::new(joined(XL_INSTRUCTION, "\n\n", picks.iter().map(|at| sources.humaneval.text(*at))))
            }
        }
    }

    fn chars(&self, sources: &Sources) -> u32 {
        let sum = |instruction: &str, gap: u32, parts: u32, chars: u64| {
            let total = u64::try_from(instruction.len()).unwrap_or(u64::MAX)
                + u64::from(gap) * u64::from(parts.saturating_sub(1))
                + chars;
            u32::try_from(total).unwrap_or(u32::MAX)
        };
        let of = |source: &Source, at: u32| u64::from(source.chars(at));
        match self {
            Self::Question(at) => sources.gsm8k.chars(*at),
            Self::Prompt(at) => sources.humaneval.chars(*at),
            Self::Block { start, lines } => {
                sum(L_INSTRUCTION, 1, *lines, (*start..*start + *lines).map(|at| of(&sources.sonnet, at)).sum())
            }
            Self::Prompts(_, picks) => {
                let parts = u32::try_from(picks.len()).unwrap_or(u32::MAX);
                sum(XL_INSTRUCTION, 2, parts, picks.iter().map(|at| of(&sources.humaneval, *at)).sum())
            }
        }
    }
}

fn joined<'a>(
    head: &'a str,
    gap: &'a str,
    parts: impl Iterator<Item = &'a str> + 'a,
) -> impl Iterator<Item = &'a str> + 'a {
    let body = parts.enumerate().flat_map(move |(at, part)| [if at == 0 { "" } else { gap }, part]);
    std::iter::once(head).chain(body)
}

/// The draws of XL and XXL items, one after the other.
struct Review<'a> {
    sources: &'a Sources,
    rules: Rules,
    sampler: Sampler,
    picks: Vec<u32>,
}

impl Review<'_> {
    /// Draws the next item. `k` is drawn before it is capped by the rows there are.
    fn draw(&mut self, rng: &mut Rng, band: Band) {
        let mid = if band == Band::Xxl { self.rules.xxl_mid } else { self.rules.xl_mid };
        let k = rng.between(mid.saturating_sub(2).max(2), mid.saturating_add(2));
        let rows = self.sources.humaneval.len();
        self.sampler.sample(rng, rows, k.min(rows), &mut self.picks);
    }
}

impl Plan {
    /// Makes all draws. Bands are drawn S, M, L, XL, XXL whatever the order of the weights.
    pub fn draw(sources: &Sources, counts: &Counts, seed: &Seed) -> Result<Self, PlanError> {
        let rules = Rules::of(sources);
        let mut rng = Rng::new(seed);
        let mut realised = Vec::new();
        let mut note = |band, lengths: Vec<u32>| realised.extend(realise(lengths).map(|figures| (band, figures)));

        let s = single(&mut rng, &sources.gsm8k, Band::S, counts)?;
        note(Band::S, s.iter().map(|at| Item::Question(*at).chars(sources)).collect());
        let m = single(&mut rng, &sources.humaneval, Band::M, counts)?;
        note(Band::M, m.iter().map(|at| Item::Prompt(*at).chars(sources)).collect());

        let available = sources.sonnet.len();
        let l: Vec<Block> = (0..counts.of(Band::L))
            .map(|_| {
                let lines = rng.between(rules.l_range.0, rules.l_range.1);
                Block { start: rng.below((available - lines + 1).max(1)), lines }
            })
            .collect();
        note(Band::L, l.iter().map(|b| Item::Block { start: b.start, lines: b.lines }.chars(sources)).collect());

        let xl = counts.of(Band::Xl);
        let reviews = xl + counts.of(Band::Xxl);
        let mut checkpoints = Vec::with_capacity(reviews.div_ceil(STRIDE) as usize);
        let mut review = Review { sources, rules, sampler: Sampler::default(), picks: Vec::new() };
        for (band, range) in [(Band::Xl, 0..xl), (Band::Xxl, xl..reviews)] {
            let mut lengths = Vec::with_capacity(range.len());
            for at in range {
                if at % STRIDE == 0 {
                    checkpoints.push(rng.clone());
                }
                review.draw(&mut rng, band);
                lengths.push(Item::Prompts(band, &review.picks).chars(sources));
            }
            note(band, lengths);
        }

        let total: u32 = counts.iter().map(|(_, count)| count).sum();
        let mut order: Vec<u32> = (0..total).collect();
        rng.shuffle(&mut order);
        Ok(Self { rules, realised, s, m, l, xl, checkpoints, order })
    }

    /// Prompts in the corpus.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes held on the heap: what a corpus costs beyond its sources.
    pub fn heap_bytes(&self) -> usize {
        fn of<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        of(&self.realised) + of(&self.s) + of(&self.m) + of(&self.l) + of(&self.checkpoints) + of(&self.order)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Realised lengths of the bands that have items, by band name in plain string order.
    pub fn realised(&self) -> Vec<(Band, Realised)> {
        let mut realised = self.realised.clone();
        realised.sort_by_key(|(band, _)| band.name());
        realised
    }

    /// Shows every item in corpus order to `visit`; stops at its first error.
    pub fn each<E>(
        &self,
        sources: &Sources,
        mut visit: impl FnMut(usize, &Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut review = Review { sources, rules: self.rules, sampler: Sampler::default(), picks: Vec::new() };
        for (position, id) in self.order.iter().enumerate() {
            visit(position, &self.item(*id, &mut review))?;
        }
        Ok(())
    }

    fn item<'a>(&self, id: u32, review: &'a mut Review<'_>) -> Item<'a> {
        let mut at = id as usize;
        if let Some(row) = self.s.get(at) {
            return Item::Question(*row);
        }
        at -= self.s.len();
        if let Some(row) = self.m.get(at) {
            return Item::Prompt(*row);
        }
        at -= self.m.len();
        if let Some(block) = self.l.get(at) {
            return Item::Block { start: block.start, lines: block.lines };
        }
        at -= self.l.len();
        let band_of = |at: usize| if at < self.xl as usize { Band::Xl } else { Band::Xxl };
        let first = at - at % STRIDE as usize;
        let mut rng = self.checkpoints[first / STRIDE as usize].clone();
        for before in first..=at {
            review.draw(&mut rng, band_of(before));
        }
        Item::Prompts(band_of(at), &review.picks)
    }
}

fn single(rng: &mut Rng, source: &Source, band: Band, counts: &Counts) -> Result<Vec<u32>, PlanError> {
    let (wanted, limit) = (counts.of(band), source.len());
    if wanted > limit {
        return Err(PlanError { band, wanted, limit, path: source.path.clone() });
    }
    let mut picks = Vec::with_capacity(wanted as usize);
    Sampler::default().sample(rng, limit, wanted, &mut picks);
    Ok(picks)
}

#[expect(clippy::cast_precision_loss, reason = "sums of text lengths stay far below 2^52")]
fn realise(mut lengths: Vec<u32>) -> Option<Realised> {
    lengths.sort_unstable();
    let (min, max) = (*lengths.first()?, *lengths.last()?);
    let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    Some(Realised {
        n: u32::try_from(lengths.len()).unwrap_or(u32::MAX),
        min,
        median: lengths[lengths.len() / 2],
        max,
        mean: total as f64 / lengths.len() as f64,
    })
}
