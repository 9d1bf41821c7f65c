//! Speculative acceptance of a leg: from the server's counters, else from usage, else absent (harness spec C.6).

use super::leg::Leg;

/// What is known about accepted draft tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Acceptance {
    /// Counters of the server went down: nothing can be said.
    CounterReset,
    /// From the server's counters.
    Metrics {
        /// Tokens accepted.
        accepted: f64,
        /// Tokens proposed; above zero.
        proposed: f64,
        /// Accepted per completion token.
        per_token: Option<f64>,
    },
    /// From the usage of the requests; nothing was proposed that is known.
    Usage {
        /// Tokens accepted.
        accepted: f64,
        /// Accepted per completion token.
        per_token: Option<f64>,
    },
    /// The engine exposes none. Never a zero.
    Absent,
}

/// Acceptance over the measured phase of a leg.
pub fn acceptance(leg: &Leg) -> Acceptance {
    let tokens = leg.records.measured.tokens();
    let per_token = |accepted: f64| (tokens > 0.0).then(|| accepted / tokens);
    if let (Some(proposed), Some(accepted)) =
        (delta(leg, "spec_decode_num_draft_tokens_total"), delta(leg, "spec_decode_num_accepted_tokens_total"))
    {
        if proposed < 0.0 || accepted < 0.0 {
            return Acceptance::CounterReset;
        }
        if proposed > 0.0 {
            return Acceptance::Metrics { accepted, proposed, per_token: per_token(accepted) };
        }
    }
    match leg.records.accepted {
        Some(accepted) => Acceptance::Usage { accepted, per_token: per_token(accepted) },
        None => Acceptance::Absent,
    }
}

/// Growth of all series of a counter between the scrapes; `None` when it is not there or a scrape failed.
fn delta(leg: &Leg, name: &str) -> Option<f64> {
    let (before, after) = (leg.before.as_ref()?, leg.after.as_ref()?);
    after
        .iter()
        .filter(|(series, _)| series.split('{').next().is_some_and(|base| base.ends_with(name)))
        .map(|(series, value)| value - before.get(series).copied().unwrap_or(0.0))
        .reduce(|sum, value| sum + value)
}
