//! The native streaming load client: `agent load` (design section 7; spec `variadic-harness` B).
//!
//! Theory of operation. A leg ([`leg`]) reads its prompts, opens connections, runs the warm-up to completion, scrapes,
//! runs the measured phase, scrapes, certifies itself and writes one file. A phase is one epoll loop on one thread
//! ([`client`]); everything it decides about bytes is pure and knows neither sockets nor clocks:
//!
//! ```text
//! bytes + stamp -> http (head, framing) -> sse (events) -> chunk (what an event says) -> stream (timeline, verdict)
//! ```
//!
//! When a request is sent is decided in one place: [`arrival`] gives a schedule, or none for the closed loop. Every
//! request ends in exactly one class ([`outcome`]), and none is ever sent twice. What a reader may believe is said by
//! the client itself ([`certify`]), from the lag of every read and from a [`mock`] whose times are known.

pub mod arrival;
pub mod certify;
pub mod chunk;
pub mod client;
pub mod clock;
pub mod draws;
pub mod export;
pub mod histogram;
pub mod host;
pub mod http;
pub mod leg;
pub mod making;
pub mod mock;
pub mod outcome;
pub mod plan;
pub mod prompts;
pub mod record;
pub mod request;
pub mod scrape;
pub mod sse;
pub mod stream;
pub mod tokenizer;
