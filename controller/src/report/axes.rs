//! The axes of the report over successful records (harness spec C.2), as columns.

/// What is measured per request; all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Time to the first content chunk.
    Ttft,
    /// TTFT less the time that the other tokens of the first chunk took; an estimate.
    TtftCorrected,
    /// Time per output token after the first, by the server's own token count. The primary inter-token axis.
    Tpot,
    /// Gaps between chunks; secondary, because a chunk may carry several tokens.
    Itl,
    /// Whole request.
    E2el,
}

impl Axis {
    /// In the order of the tables.
    pub const ALL: [Self; 5] = [Self::Ttft, Self::TtftCorrected, Self::Tpot, Self::Itl, Self::E2el];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::TtftCorrected => "ttft_corrected",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::E2el => "e2el",
        }
    }

    /// Its cell in the published tables.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Ttft => "ttft ms",
            Self::TtftCorrected => "ttft_corrected (est) ms",
            Self::Tpot => "tpot ms",
            Self::Itl => "itl ms",
            Self::E2el => "e2el ms",
        }
    }
}

/// One successful request, in the units of the record file.
#[derive(Debug, Clone, Copy)]
pub struct Timing<'a> {
    /// Seconds.
    pub ttft: f64,
    /// Seconds.
    pub latency: f64,
    /// Seconds.
    pub itls: &'a [f64],
    /// `usage.completion_tokens`; `None` where the server reported none, or 0.
    pub tokens: Option<f64>,
    /// Chunks with content.
    pub chunks: f64,
    /// Code points of the first chunk.
    pub first_chunk_chars: f64,
    /// Code points in all; `None` where they were not recorded, or 0.
    pub total_chars: Option<f64>,
}

/// Columns of the records of one phase of one leg.
#[derive(Debug, Default)]
pub struct Pool {
    axes: [Vec<f64>; 5],
    /// Gaps of each counted request, in the order of the gap column.
    pub gap_counts: Vec<u32>,
    /// Completion tokens of each counted request.
    pub out_tokens: Vec<f64>,
    /// Tokens per chunk.
    pub tokens_per_chunk: Vec<f64>,
    /// Characters per token.
    pub chars_per_token: Vec<f64>,
    /// Tokens in the first chunk, estimated from its characters.
    pub first_chunk_tokens: Vec<f64>,
    /// Records without a usage token count: not on any axis.
    pub dropped_no_usage: usize,
    /// Corrections at or below zero: refused, not floored.
    pub over_corrected: usize,
}

impl Pool {
    /// Values of an axis.
    pub fn axis(&self, axis: Axis) -> &[f64] {
        &self.axes[axis as usize]
    }

    /// Records that count.
    pub fn counted(&self) -> usize {
        self.out_tokens.len()
    }

    /// Completion tokens in all.
    pub fn tokens(&self) -> f64 {
        self.out_tokens.iter().fold(0.0, |sum, tokens| sum + tokens)
    }

    /// Adds a successful record.
    #[expect(clippy::cast_possible_truncation, reason = "chunks of one answer")]
    pub fn add(&mut self, request: Timing<'_>) {
        let Some(tokens) = request.tokens else {
            self.dropped_no_usage += 1;
            return;
        };
        let [ttft, corrected, tpot, itl, e2el] = &mut self.axes;
        self.out_tokens.push(tokens);
        ttft.push(request.ttft * 1000.0);
        e2el.push(request.latency * 1000.0);
        itl.extend(request.itls.iter().map(|gap| gap * 1000.0));
        self.gap_counts.push(request.itls.len() as u32);
        if request.chunks > 0.0 {
            self.tokens_per_chunk.push(tokens / request.chunks);
        }
        let per_token = (tokens > 1.0).then(|| (request.latency - request.ttft) / (tokens - 1.0));
        tpot.extend(per_token.map(|seconds| seconds * 1000.0));
        if let Some(total_chars) = request.total_chars {
            let chars_per_token = total_chars / tokens;
            let first_tokens = request.first_chunk_chars / chars_per_token;
            self.chars_per_token.push(chars_per_token);
            self.first_chunk_tokens.push(first_tokens);
            if let Some(per_token) = per_token {
                let value = request.ttft - (first_tokens - 1.0).max(0.0) * per_token;
                if value <= 0.0 {
                    self.over_corrected += 1;
                } else {
                    corrected.push(value * 1000.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Timing<'_> = Timing {
        ttft: 0.2,
        latency: 0.2 + 0.03 * 7.0,
        itls: &[],
        tokens: Some(8.0),
        chunks: 1.0,
        first_chunk_chars: 32.0,
        total_chars: Some(32.0),
    };

    #[test]
    fn an_over_correction_is_refused_and_counted() {
        let mut pool = Pool::default();
        pool.add(PLAIN);
        assert_eq!((pool.over_corrected, pool.axis(Axis::TtftCorrected).len()), (1, 0));
        assert_eq!(pool.axis(Axis::Ttft), [200.0]);
        pool.add(Timing { ttft: 0.3, latency: 0.3 + 0.21, ..PLAIN });
        assert!((pool.axis(Axis::TtftCorrected)[0] - 90.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let mut pool = Pool::default();
        pool.add(Timing { tokens: None, ..PLAIN });
        assert_eq!((pool.counted(), pool.dropped_no_usage), (0, 1));
        assert!(Axis::ALL.iter().all(|axis| pool.axis(*axis).is_empty()));
        pool.add(Timing { tokens: Some(1.0), total_chars: None, chunks: 0.0, ..PLAIN });
        assert_eq!(pool.counted(), 1);
        assert!(pool.axis(Axis::Tpot).is_empty() && pool.axis(Axis::TtftCorrected).is_empty());
        assert!(pool.chars_per_token.is_empty() && pool.tokens_per_chunk.is_empty());
    }
}
