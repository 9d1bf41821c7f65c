//! Names of everything that a trial writes below `<out>/` (contract B.7; design sections 4 to 6).
//!
//! Every name ends in `.<token>` or contains `.<token>.`, so that one rule finds all of a trial's files.

use std::fmt;

/// Identifies one trial in file names, container name and labels.
///
/// One to 64 characters of `[A-Za-z0-9_.-]`, not beginning with `.` or `-`: safe in a path, a container
/// name and a label, whoever chose it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunToken(String);

/// A run token that would not be safe in file and container names.
#[derive(Debug, thiserror::Error)]
#[error("run token {value:?} must be 1 to 64 characters of [A-Za-z0-9_.-], not beginning with '.' or '-'")]
pub struct BadToken {
    /// What was given.
    pub value: String,
}

impl RunToken {
    /// Checks the alphabet and the length.
    pub fn parse(value: &str) -> Result<Self, BadToken> {
        let ok = (1..=64).contains(&value.len())
            && !value.starts_with(['.', '-'])
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if ok { Ok(Self(value.to_owned())) } else { Err(BadToken { value: value.to_owned() }) }
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `bench.<token>.step<n>.json`: the export of measured step `n`, counted from 1.
pub fn export(token: &RunToken, step: u32) -> String {
    format!("bench.{token}.step{step}.json")
}

/// `bench-warmup.<token>.step<n>.json`: the export of a discarded step.
pub fn warmup_export(token: &RunToken, step: u32) -> String {
    format!("bench-warmup.{token}.step{step}.json")
}

/// The step number in the name of a measured export of this token; `None` for every other name.
pub fn export_step(token: &RunToken, name: &str) -> Option<u32> {
    let digits =
        name.strip_prefix("bench.")?.strip_prefix(token.as_str())?.strip_prefix(".step")?.strip_suffix(".json")?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

/// `bench-server.<token>.log`: stdout and stderr of the server.
pub fn server_log(token: &RunToken) -> String {
    format!("bench-server.{token}.log")
}

/// `bench-log.<token>.<prefix>.step<n>.log`: stdout and stderr of one bench step.
pub fn bench_log(token: &RunToken, warmup: bool, step: u32) -> String {
    format!("bench-log.{token}.{}.step{step}.log", if warmup { "bench-warmup" } else { "bench" })
}

/// `markers.<token>.log`: the marker lines, which decide a verdict (design section 5).
pub fn markers(token: &RunToken) -> String {
    format!("markers.{token}.log")
}

/// `events.<token>.jsonl`: the journal.
pub fn journal(token: &RunToken) -> String {
    format!("events.{token}.jsonl")
}

/// `agent.<token>.sock`: the status stream.
pub fn socket(token: &RunToken) -> String {
    format!("agent.{token}.sock")
}

/// `lease.<token>`: locked by the living controller (design section 6).
pub fn lease(token: &RunToken) -> String {
    format!("lease.{token}")
}

/// `reaper.<token>.log`: output of the detached helper.
pub fn reaper_log(token: &RunToken) -> String {
    format!("reaper.{token}.log")
}

/// Whether a file name belongs to this trial: ends in `.<token>` or contains `.<token>.`.
pub fn belongs_to(token: &RunToken, name: &str) -> bool {
    name.strip_suffix(token.as_str()).is_some_and(|head| head.ends_with('.')) || name.contains(&format!(".{token}."))
}

/// `aorta-ts-serve-<token>`: the container's name (contract F.5).
pub fn container(token: &RunToken) -> String {
    format!("aorta-ts-serve-{token}")
}

/// Longest path that fits into a unix socket address, in bytes.
pub const SOCKET_PATH_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    /// FS-79.
    #[test]
    fn tokens_are_safe_names() {
        for bad in ["", "../x", "-rm", "a/b", "a\nb", ".x", "a b", "ä", &"a".repeat(65)] {
            assert!(RunToken::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["1-2", "4711-123456789", "A_b.c-d", &"a".repeat(64)] {
            assert_eq!(RunToken::parse(good).unwrap().as_str(), good);
        }
    }

    /// FS-70.
    #[test]
    fn step_number_only_of_own_measured_exports() {
        let token = RunToken::parse("7-1").unwrap();
        assert_eq!(export_step(&token, &export(&token, 10)), Some(10));
        for other in [
            "bench-warmup.7-1.step1.json",
            "bench.7-10.step1.json",
            "bench.7-1.step.json",
            "bench.7-1.step01.json",
            "bench.7-1.step1.json.tmp",
            "xbench.7-1.step1.json",
            "bench.7-1.step0.json",
        ] {
            assert_eq!(export_step(&token, other), None, "{other}");
        }
    }

    /// FS-79.
    #[test]
    fn only_own_files_belong() {
        let token = RunToken::parse("7.1").unwrap();
        for name in [
            export(&token, 1),
            server_log(&token),
            lease(&token),
            socket(&token),
            journal(&token),
            markers(&token),
            bench_log(&token, true, 1),
        ] {
            assert!(belongs_to(&token, &name), "{name}");
        }
        for name in ["bench.7-1.step1.json", "lease.17.1", "lease.7.1x", "7.1", "home"] {
            assert!(!belongs_to(&token, name), "{name}");
        }
    }
}
