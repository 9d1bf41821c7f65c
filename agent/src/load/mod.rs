//! The native streaming load client.

pub mod arrival;
pub mod certify;
pub mod chunk;
pub mod client;
pub mod clock;
pub mod histogram;
pub mod host;
pub mod http;
pub mod leg;
pub mod mock;
pub mod outcome;
pub mod plan;
pub mod prompts;
pub mod record;
pub mod request;
pub mod scrape;
pub mod sse;
pub mod stream;
