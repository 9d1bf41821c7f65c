//! The lines that decide a verdict beside exit status and exports (contract B.6; design section 5).
//!
//! The agent writes every marker to stdout and, at the same moment, to `<out>/markers.<token>.log`; the
//! controller reads the file and takes stdout only when there is no file.

use std::fmt;

/// What the controller learns from the marker lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markers {
    /// Whole seconds from server start to readiness: the first such line counts.
    pub server_startup_sec: Option<u64>,
    /// How many measured steps began.
    pub step_starts: u32,
    /// What the last RESULT line said.
    pub result: Option<Outcome>,
    /// Digests that the agent noted when it audited measured steps: (step, sha256 in hex).
    pub digests: Vec<(u32, String)>,
}

/// The RESULT line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// `TS_BENCH_RESULT: pass`
    Pass,
    /// `TS_BENCH_RESULT: fail`
    Fail,
}

/// One marker line, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// `TS_BENCH_INFO: <text>`
    Info(String),
    /// `TS_BENCH_METRIC: server_startup_sec=<n>`
    ServerStartupSec(u64),
    /// `TS_BENCH_STEP_START: <n>`
    StepStart(u32),
    /// `TS_BENCH_INFO: step <n> sha256=<hex>`
    StepDigest(u32, String),
    /// `TS_BENCH_OK: <text>`
    Ok(String),
    /// `TS_BENCH_FAIL: <text>`
    Fail(String),
    /// `TS_BENCH_RESULT: pass|fail`
    Result(Outcome),
}

impl Marker {
    /// Whether the line also goes to the markers file: every marker but plain INFO.
    pub const fn is_recorded(&self) -> bool {
        !matches!(self, Self::Info(_))
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Info(text) => write!(f, "TS_BENCH_INFO: {text}"),
            Self::ServerStartupSec(sec) => write!(f, "TS_BENCH_METRIC: server_startup_sec={sec}"),
            Self::StepStart(step) => write!(f, "TS_BENCH_STEP_START: {step}"),
            Self::StepDigest(step, hex) => write!(f, "TS_BENCH_INFO: step {step} sha256={hex}"),
            Self::Ok(text) => write!(f, "TS_BENCH_OK: {text}"),
            Self::Fail(text) => write!(f, "TS_BENCH_FAIL: {text}"),
            Self::Result(Outcome::Pass) => f.write_str("TS_BENCH_RESULT: pass"),
            Self::Result(Outcome::Fail) => f.write_str("TS_BENCH_RESULT: fail"),
        }
    }
}

impl Markers {
    /// Reads the lines of a markers file, or of stdout where there is none. Bytes that are no marker are passed over.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut markers = Self::default();
        for line in bytes.split(|b| *b == b'\n') {
            if let Ok(line) = std::str::from_utf8(line) {
                markers.line(line.trim_end_matches('\r'));
            }
        }
        markers
    }

    fn line(&mut self, line: &str) {
        let leading_digits = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse::<u64>().ok()
        };
        if let Some(rest) = line.strip_prefix("TS_BENCH_METRIC: server_startup_sec=") {
            self.server_startup_sec = self.server_startup_sec.or_else(|| leading_digits(rest));
        } else if let Some(rest) = line.strip_prefix("TS_BENCH_STEP_START: ") {
            self.step_starts += u32::from(leading_digits(rest).is_some());
        } else if let Some(rest) = line.strip_prefix("TS_BENCH_RESULT: ") {
            match rest {
                "pass" => self.result = Some(Outcome::Pass),
                "fail" => self.result = Some(Outcome::Fail),
                _ => {}
            }
        } else if let Some((step, hex)) =
            line.strip_prefix("TS_BENCH_INFO: step ").and_then(|rest| rest.split_once(" sha256="))
            && let Ok(step) = step.parse()
            && hex.len() == 64
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
        {
            self.digests.push((step, hex.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let lines = [
            Marker::Info("model=m".into()),
            Marker::ServerStartupSec(307),
            Marker::StepStart(1),
            Marker::StepDigest(1, "a".repeat(64)),
            Marker::StepStart(2),
            Marker::Fail("step 2 served_request_shortfall".into()),
            Marker::Result(Outcome::Fail),
        ];
        let text: Vec<u8> = lines.iter().flat_map(|m| format!("{m}\n").into_bytes()).collect();
        let read = Markers::parse(&text);
        assert_eq!(read.server_startup_sec, Some(307));
        assert_eq!(read.step_starts, 2);
        assert_eq!(read.result, Some(Outcome::Fail));
        assert_eq!(read.digests, [(1, "a".repeat(64))]);
    }

    #[test]
    fn noise_is_no_marker() {
        let read = Markers::parse(b"x TS_BENCH_STEP_START: 1\nTS_BENCH_STEP_START: x\n\xff\xfe\nTS_BENCH_METRIC: server_startup_sec=\nTS_BENCH_METRIC: server_startup_sec=3\r\nTS_BENCH_METRIC: server_startup_sec=9\n");
        assert_eq!(read, Markers { server_startup_sec: Some(3), ..Markers::default() });
    }
}
