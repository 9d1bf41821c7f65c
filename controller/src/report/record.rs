//! The shape of a leg file, for whoever writes or checks one: its JSON Schema. Reading is [`super::read`]'s.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Map, Value};

use super::document::Document;

/// JSON Schema of a leg file (`controller schema record`).
pub fn record_schema() -> Schema {
    schema_for!(LegFile)
}

/// JSON Schema of `controller report --json`.
pub fn report_schema() -> Schema {
    schema_for!(Document)
}

macro_rules! shape {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct $name { $($(#[$field_doc])* $field: $kind,)* }
    };
}

shape! {
    /// One leg: one arm at one load in one round.
    LegFile {
        /// What the leg was and how long its phases took.
        summary: Summary,
        /// Every option of the client, as given.
        config: Option<Map<String, Value>>,
        /// The server's counters before the measured phase.
        metrics_before: Option<Scrape>,
        /// The server's counters after it.
        metrics_after: Option<Scrape>,
        /// Warm-up first, then measured, each by queue index.
        records: Vec<Record>,
        /// What the native client says about itself: profile, arrivals, outcomes, certification. The published
        /// client writes none.
        client: Option<Map<String, Value>>,
    }
}

shape! {
    /// What a leg was.
    Summary {
        /// Label.
        leg: Option<String>,
        /// Arm; empty or absent reads as `?`.
        arm: Option<String>,
        /// Round, from 1.
        round: i64,
        /// Workers.
        concurrency: i64,
        /// Warm-up requests.
        warmup_requests: Option<u64>,
        /// Requests of the measured phase.
        measured_requests: i64,
        /// Seconds.
        warm_wall_s: Option<f64>,
        /// Seconds.
        measured_wall_s: f64,
        /// The client's own figures over the measured records; the report does not use them.
        headline_warm: Option<Map<String, Value>>,
        /// The same over all records.
        headline_all: Option<Map<String, Value>>,
    }
}

shape! {
    /// A scrape of `/metrics`: counters, or why there are none.
    Scrape {
        /// Whether it succeeded.
        available: bool,
        /// Counters by series.
        counters: Option<BTreeMap<String, f64>>,
        /// Why not.
        error: Option<String>,
    }
}

shape! {
    /// One request. A failed one has only `ok`, `err` and what the queue knew.
    Record {
        /// Request sent to first content chunk, seconds.
        ttft: Option<f64>,
        /// Request sent to closed, seconds.
        latency: Option<f64>,
        /// Chunks with content.
        n_chunks: Option<u64>,
        /// Code points of the first chunk.
        first_chunk_chars: Option<u64>,
        /// Code points of all chunks.
        total_chars: Option<u64>,
        /// Gaps between chunks, seconds.
        itls: Option<Vec<f64>>,
        /// As the server sent it.
        usage: Option<Usage>,
        /// Copied from usage.
        accepted_draft_tokens: Option<f64>,
        /// Whether there was content.
        ok: bool,
        /// Why not.
        err: Option<String>,
        /// Index within its phase, from 0.
        i: u64,
        /// From the corpus.
        id: String,
        /// From the corpus.
        band: String,
        /// `warmup` or `measured`.
        phase: String,
        /// Seconds since the phase began; slightly negative is possible.
        t_dispatch: f64,
        /// Class of the end; native client, strict profile.
        outcome: Option<String>,
        /// When it should have been sent, seconds since the phase began; native client, strict profile.
        t_intended: Option<f64>,
        /// When its last byte went to the kernel; native client, strict profile.
        t_sent: Option<f64>,
        /// Whether the connection was there already; native client, strict profile.
        connection_reused: Option<bool>,
    }
}

shape! {
    /// Token counts of the server.
    Usage {
        /// Tokens of the prompt.
        prompt_tokens: Option<u64>,
        /// Tokens generated; 0 counts as none.
        completion_tokens: Option<u64>,
    }
}
