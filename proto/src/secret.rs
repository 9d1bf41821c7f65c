//! Values that must not appear in anything derived from a child's words: events, tails, results (design section 6,
//! failure scenario FS-77). A child's own log file stays what the child wrote.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

use crate::env::SECRETS;

/// Shorter values are no secrets and would eat half of every text.
const SHORTEST: usize = 8;

/// Secrets that a child was given.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[(&'static str, Vec<u8>)]>);

impl Secrets {
    /// Those among a child's variables.
    pub fn among<'a>(environment: impl IntoIterator<Item = (&'a OsString, &'a OsString)>) -> Self {
        let known = |name: &OsStr| SECRETS.iter().copied().find(|secret| name == *secret);
        let secret = |(name, value): (&OsString, &OsString)| Some((known(name)?, value.as_encoded_bytes().to_vec()));
        Self(environment.into_iter().filter_map(secret).filter(|(_, value)| value.len() >= SHORTEST).collect())
    }

    /// The text with the name of each secret in its place.
    pub fn hide<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let mut out = Cow::Borrowed(text);
        for (name, value) in self.0.iter() {
            let mut from = 0;
            while let Some(at) = find(&out[from..], value) {
                let mark = format!("[{name}]");
                out.to_mut().splice(from + at..from + at + value.len(), mark.bytes());
                from += at + mark.len();
            }
        }
        out
    }
}

fn find(text: &[u8], value: &[u8]) -> Option<usize> {
    text.windows(value.len()).position(|window| window == value)
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_names_wherever_they_stand() {
        let env: Vec<(OsString, OsString)> =
            [("HF_TOKEN", "hf_canary1"), ("TS_GRPC_TOKEN", "short"), ("PATH", "/usr/bin:/bin")]
                .map(|(name, value)| (name.into(), value.into()))
                .into();
        let secrets = Secrets::among(env.iter().map(|(name, value)| (name, value)));
        let hide = |text: &str| String::from_utf8(secrets.hide(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(hide("hf_canary1"), "[HF_TOKEN]");
        assert_eq!(hide("a hf_canary1hf_canary1 b"), "a [HF_TOKEN][HF_TOKEN] b");
        assert_eq!(hide("PATH=/usr/bin:/bin short hf_canary"), "PATH=/usr/bin:/bin short hf_canary");
        assert!(matches!(secrets.hide(b"nothing"), Cow::Borrowed(_)));
        assert_eq!(format!("{secrets:?}"), "[\"HF_TOKEN\"]");
    }
}
