//! What really happened, as the gateway saw it: the measure of every client's error (`GET /truth`).

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Samples that are kept of each kind (4 bytes each); later ones are counted only.
const SAMPLE_LIMIT: usize = 8_000_000;

/// Durations in milliseconds.
#[derive(Debug, Default)]
pub struct Samples {
    ms: Vec<f32>,
    dropped: u64,
}

/// A distribution, in milliseconds; percentiles interpolate between order statistics. Zeros without samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Samples beyond the limit, not in the figures.
    pub dropped: u64,
}

impl Samples {
    /// Adds one.
    pub fn push(&mut self, duration: Duration) {
        if self.ms.len() < SAMPLE_LIMIT {
            self.ms.push(duration.as_secs_f32() * 1e3);
        } else {
            self.dropped += 1;
        }
    }

    /// The figures so far.
    pub fn distribution(&self) -> Distribution {
        let mut sorted = self.ms.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        #[expect(clippy::cast_precision_loss, reason = "at most 8 million samples")]
        let n = sorted.len() as f64;
        if sorted.is_empty() {
            return Distribution::default();
        }
        let at = |p: f64| {
            let rank = p * (n - 1.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to len - 1")]
            let low = rank.floor() as usize;
            let (a, b) = (f64::from(sorted[low]), f64::from(sorted[(low + 1).min(sorted.len() - 1)]));
            a + (b - a) * rank.fract()
        };
        Distribution {
            count: sorted.len() as u64,
            mean: sorted.iter().map(|x| f64::from(*x)).sum::<f64>() / n,
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            dropped: self.dropped,
        }
    }
}

/// Counters and samples since the last reset.
#[derive(Debug)]
pub struct Truth {
    since: Instant,
    cpu_at_reset: f64,
    /// Generation requests that were accepted.
    pub requests: u64,
    /// Requests whose last byte was handed to the socket.
    pub completed: u64,
    /// Requests that met a scripted fault.
    pub faults: u64,
    /// Streams whose client went away.
    pub client_gone: u64,
    /// Tokens written.
    pub tokens: u64,
    /// Writes that carried tokens.
    pub writes: u64,
    /// Steps at which a stream was left out because its client does not read.
    pub stalled: u64,
    /// Most streams at a time.
    pub max_active: usize,
    /// Connections accepted.
    pub connections: u64,
    /// Generation requests on a connection that had served before.
    pub reused: u64,
    /// Request read to first token written.
    pub ttft: Samples,
    /// Between a stream's writes.
    pub itl: Samples,
    /// How late each step began.
    pub late: Samples,
}

/// The document of `GET /truth`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Report {
    /// Generation requests that were accepted.
    pub requests: u64,
    /// Requests whose last byte was handed to the socket.
    pub completed: u64,
    /// Requests that met a scripted fault.
    pub faults: u64,
    /// Streams whose client went away.
    pub client_gone: u64,
    /// Streams right now.
    pub active: usize,
    /// Most streams at a time.
    pub max_active: usize,
    /// Connections accepted.
    pub connections: u64,
    /// Generation requests on a connection that had served before.
    pub reused: u64,
    /// Tokens written.
    pub tokens: u64,
    /// Writes that carried tokens.
    pub writes: u64,
    /// Steps at which a stream was left out because its client does not read.
    pub stalled: u64,
    /// Request read to first token written.
    pub ttft_ms: Distribution,
    /// Between a stream's writes.
    pub itl_ms: Distribution,
    /// How late each step began.
    pub late_tick_ms: Distribution,
    /// CPU time of the gateway process.
    pub cpu_s: f64,
    /// Since the start or the last reset.
    pub elapsed_s: f64,
}

impl Truth {
    /// Starts counting.
    pub fn start() -> Self {
        Self {
            since: Instant::now(),
            cpu_at_reset: cpu_seconds(),
            requests: 0,
            completed: 0,
            faults: 0,
            client_gone: 0,
            tokens: 0,
            writes: 0,
            stalled: 0,
            max_active: 0,
            connections: 0,
            reused: 0,
            ttft: Samples::default(),
            itl: Samples::default(),
            late: Samples::default(),
        }
    }

    /// The document.
    pub fn report(&self, active: usize) -> Report {
        Report {
            requests: self.requests,
            completed: self.completed,
            faults: self.faults,
            client_gone: self.client_gone,
            active,
            max_active: self.max_active,
            connections: self.connections,
            reused: self.reused,
            tokens: self.tokens,
            writes: self.writes,
            stalled: self.stalled,
            ttft_ms: self.ttft.distribution(),
            itl_ms: self.itl.distribution(),
            late_tick_ms: self.late.distribution(),
            cpu_s: cpu_seconds() - self.cpu_at_reset,
            elapsed_s: self.since.elapsed().as_secs_f64(),
        }
    }
}

fn cpu_seconds() -> f64 {
    usage_seconds(UsageWho::RUSAGE_SELF)
}

/// User and system time, in seconds.
pub fn usage_seconds(who: UsageWho) -> f64 {
    let Ok(usage) = getrusage(who) else { return 0.0 };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a test's CPU time")]
    let seconds = micros as f64 / 1e6;
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate() {
        let mut samples = Samples::default();
        for ms in [4, 1, 3, 2] {
            samples.push(Duration::from_millis(ms));
        }
        let d = samples.distribution();
        assert!((d.p50 - 2.5).abs() < 1e-6 && (d.max - 4.0).abs() < 1e-6 && (d.mean - 2.5).abs() < 1e-6, "{d:?}");
        assert!((d.p99 - 3.97).abs() < 1e-5, "{d:?}");
        assert_eq!(Samples::default().distribution(), Distribution::default());
    }
}
