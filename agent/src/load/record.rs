//! The record of one request: the published fields (spec `variadic-harness` B.6), and in the strict profile ours.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::load::client::Finished;
use crate::load::clock::Stamp;
use crate::load::outcome::Class;
use crate::load::prompts::Prompt;

/// Which phase a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseName {
    /// Before the window.
    Warmup,
    /// In the window.
    Measured,
}

impl PhaseName {
    /// Its name in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Measured => "measured",
        }
    }
}

/// One request, in the order of the published keys.
#[derive(Debug, Serialize)]
pub struct Record {
    /// What was measured; a broken request of the variadic profile has nothing of it.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// Whether there is a first piece, and in the strict profile whether the answer is complete.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub err: Option<String>,
    /// Within the phase, from 0.
    pub i: usize,
    /// From the corpus.
    pub id: String,
    /// From the corpus.
    pub band: String,
    /// Which phase.
    pub phase: PhaseName,
    /// Since the phase's start, seconds.
    pub t_dispatch: f64,
    /// Fields of our own, strict profile only: the published client's records end above.
    #[serde(flatten)]
    pub own: Option<Own>,
}

/// What the stream showed.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Start to first piece, seconds.
    pub ttft: Option<f64>,
    /// Start to end, seconds.
    pub latency: f64,
    /// Pieces.
    pub n_chunks: u64,
    /// Code points.
    pub first_chunk_chars: u64,
    /// Code points.
    pub total_chars: u64,
    /// Gaps between pieces, seconds.
    pub itls: Vec<f64>,
    /// As the server sent it.
    pub usage: Option<Box<RawValue>>,
    /// Copied from the usage.
    pub accepted_draft_tokens: Option<Box<RawValue>>,
}

/// Our own fields; moments in seconds since the phase's start.
#[derive(Debug, Serialize)]
pub struct Own {
    /// How it ended.
    pub outcome: Class,
    /// When it should have been sent.
    pub t_intended: f64,
    /// When its last byte was handed to the kernel.
    pub t_sent: Option<f64>,
    /// Whether the connection had answered a request before.
    pub connection_reused: bool,
    /// Start to the new connection, seconds; null on one that was there.
    pub connect: Option<f64>,
    /// Start to the first event of whatever content, seconds.
    pub first_event: Option<f64>,
    /// Start to the first event with choices, seconds.
    pub first_choice: Option<f64>,
    /// Start to the last event with choices, seconds.
    pub last_choice: Option<f64>,
    /// Whether `[DONE]` came.
    pub done: bool,
    /// Tries; never more than one, because a retry would hide a failure.
    pub attempts: u32,
    /// Tokens asked for, where the prompt brought its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_len: Option<u64>,
    /// Tokens of the prompt, where its maker counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_len: Option<u64>,
    /// The generated text, where it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The keys of a usage that the client itself needs.
#[derive(Debug, Default, serde::Deserialize)]
struct Usage<'a> {
    #[serde(default, rename = "completion_tokens")]
    completion: Option<serde_json::Value>,
    #[serde(default, rename = "prompt_tokens")]
    prompt: Option<serde_json::Value>,
    #[serde(default, borrow, rename = "accepted_draft_tokens")]
    accepted: Option<&'a RawValue>,
}

impl Record {
    /// The record of a request that has ended.
    pub fn new(
        finished: Finished,
        index: usize,
        prompt: &Prompt,
        phase: PhaseName,
        start: Stamp,
        published: bool,
    ) -> Self {
        let began = finished.started;
        let span = |at: Option<Stamp>| at.map(|at| at.secs_since(began));
        let seen = finished.seen;
        let class = finished.verdict.as_ref().map_or_else(|failure| failure.class, |()| Class::Complete);
        let broken = !matches!(class, Class::Complete | Class::Empty);
        let own = (!published).then(|| Own {
            outcome: class,
            t_intended: finished.intended.secs_since(start),
            t_sent: finished.sent.map(|at| at.secs_since(start)),
            connection_reused: finished.reused,
            connect: span(finished.connected),
            first_event: span(seen.first_event),
            first_choice: span(seen.first_choice),
            last_choice: span(seen.last_choice),
            done: seen.done.is_some(),
            attempts: 1,
            output_len: prompt.output_len,
            prompt_len: prompt.prompt_len,
            text: seen.text,
        });
        let usage = seen.usage.and_then(|text| RawValue::from_string(text).ok());
        let accepted = usage
            .as_deref()
            .and_then(|usage| serde_json::from_str::<Usage<'_>>(usage.get()).ok()?.accepted.map(RawValue::to_owned));
        // All timings of a broken stream are dropped by the published client.
        let measured = (!broken || !published).then(|| Measured {
            ttft: span(seen.first_piece),
            latency: finished.ended.secs_since(began),
            n_chunks: seen.chunks,
            first_chunk_chars: seen.first_chars,
            total_chars: seen.total_chars,
            itls: seen.gaps.iter().map(|ns| Stamp(*ns).secs_since(Stamp(0))).collect(),
            usage,
            accepted_draft_tokens: accepted,
        });
        Self {
            measured,
            ok: finished.verdict.is_ok(),
            err: finished.verdict.err().map(|failure| {
                // The one text that is pinned (B.6).
                if failure.class == Class::Empty { failure.detail } else { failure.to_string() }
            }),
            i: index,
            id: prompt.id.clone(),
            band: prompt.band.clone(),
            phase,
            t_dispatch: began.secs_since(start),
            own,
        }
    }

    /// `usage.completion_tokens`; `None` when missing, null, zero or no count.
    pub fn completion_tokens(&self) -> Option<u64> {
        self.usage_count(|usage| usage.completion)
    }

    /// `usage.prompt_tokens`, likewise.
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.usage_count(|usage| usage.prompt)
    }

    fn usage_count(&self, field: impl Fn(Usage<'_>) -> Option<serde_json::Value>) -> Option<u64> {
        let usage = self.measured.as_ref()?.usage.as_deref()?;
        let parsed = serde_json::from_str::<Usage<'_>>(usage.get()).ok()?;
        field(parsed)?.as_u64().filter(|count| *count > 0)
    }
}
