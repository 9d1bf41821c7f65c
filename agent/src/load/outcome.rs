//! How a request ended: one class each, so that what was planned is the sum of the classes.

use serde::Serialize;

macro_rules! classes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// The class of one request's end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Class { $($(#[$doc])* $variant,)* }

        impl Class {
            /// Every class.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name in files.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

classes! {
    /// Answered to the end, with at least one piece of text.
    Complete = "complete";
    /// Answered to the end without any text: there is no first token to time.
    Empty = "empty";
    /// The answer stopped before its end: a cut body, a closed connection, no `[DONE]` and no finish reason.
    Truncated = "truncated";
    /// The server answered with an error status.
    ServerStatus = "server_status";
    /// A 200 stream carried an error object.
    InBandError = "in_band_error";
    /// What came is not an event stream of completions.
    ProtocolError = "protocol_error";
    /// Nothing came for longer than the limit.
    Timeout = "timeout";
    /// No connection could be made.
    Connect = "connect";
    /// A reused connection was reset, or closed, before the first byte of an answer: a keep-alive race.
    StaleConnection = "stale_connection";
    /// This side could not do its part (descriptors, ports, memory).
    ClientFault = "client_fault";
}

/// A request that was not answered as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub class: Class,
    /// What was seen, in words.
    pub detail: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.class.as_str(), self.detail)
    }
}

impl Failure {
    /// A failure from its parts.
    pub fn new(class: Class, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }
}
