//! The client's word about itself: how late it was, how full its core was, and what it reports of a server whose
//! times are known. A leg whose client error would show in the published figures is `client_bound`.

use std::time::Duration;

use proto::stats::{percentile, sorted};
use serde::Serialize;

use crate::load::client::Settings;
use crate::load::histogram::Histogram;
use crate::load::host;
use crate::load::mock::{self, Shape};
use crate::load::plan::{Plan, Profile};
use crate::load::record::Record;

/// Error allowed at the median, as a share of the figure.
const SHARE_P50: f64 = 0.02;
/// Error allowed at p99, as a share of the figure.
const SHARE_P99: f64 = 0.05;
/// Error that no table shows, milliseconds: half of its last digit.
const UNSEEN_MS: f64 = 0.05;
/// Share of token gaps without length that shows in an ITL p99.
const MERGED: f64 = 0.005;
/// Share of a core beyond which the client is taken for full.
const CPU_FULL: f64 = 0.9;

/// What a phase says about the client.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Kernel stamp to read.
    pub read_lag: &'a Histogram,
    /// Intended to actual send.
    pub send_lag: &'a Histogram,
    /// CPU time of the phase.
    pub cpu: Duration,
    /// Wall time of the phase.
    pub wall_s: f64,
    /// Its records.
    pub records: &'a [Record],
}

/// What the client certifies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certification {
    /// `kernel`: bytes are stamped by the kernel as they arrive; `read`: by the client as it reads them.
    pub stamps: &'static str,
    /// Kernel stamp to read, per read; null where the kernel stamps nothing.
    pub read_lag_ms: Option<Lag>,
    /// Intended to actual send, per request; in a closed loop from a worker's end to its next request.
    pub send_lag_ms: Option<Lag>,
    /// Share of one core over the measured phase.
    pub cpu_share: Option<f64>,
    /// Resident memory at its highest, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Against the mock.
    pub calibration: Calibration,
    /// The figures are not to be trusted beyond the client's own error.
    pub client_bound: bool,
    /// Why, with figures.
    pub reasons: Vec<String>,
}

/// Percentiles of a lag, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lag {
    n: u64,
    p50: f64,
    p99: f64,
    max: f64,
}

/// The client against a mock of the leg's own shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum Calibration {
    /// Done.
    Measured(Errors),
    /// Not done.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Reported minus true, milliseconds, and what was true.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Streams at a time.
    pub streams: usize,
    /// Tokens in each.
    pub tokens: usize,
    /// Median.
    pub ttft_error_p50_ms: f64,
    /// p99.
    pub ttft_error_p99_ms: f64,
    /// Median.
    pub itl_error_p50_ms: f64,
    /// p99.
    pub itl_error_p99_ms: f64,
    /// Of the mock.
    pub true_ttft_p50_ms: f64,
    /// Of the mock.
    pub true_itl_p50_ms: f64,
}

/// p50 and p99, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Median.
    pub p50: f64,
    /// p99.
    pub p99: f64,
}

/// What the verdict is made from.
#[derive(Debug, Clone, Copy)]
struct Facts {
    ttft: Option<Pair>,
    itl: Option<Pair>,
    /// Read lag, where the stamps are the client's own.
    stamp_lag: Option<Pair>,
    /// Read lag, whoever stamps.
    read_lag: Option<Pair>,
    /// Of the reads, at p99.9: a stalled client is late in few of them.
    read_lag_worst_ms: f64,
    /// Share of token gaps without any length: two pieces of text in one read, or in one segment.
    merged_share: f64,
    send_lag_mean_ms: f64,
    mean_latency_ms: f64,
    send_lag_p99_ms: f64,
    open_loop: bool,
    cpu_share: f64,
    errors: Option<Errors>,
}

/// Looks at a measured phase, and at the client beside a mock.
pub fn certify(plan: &Plan, settings: &Settings, evidence: &Evidence<'_>, streams: usize) -> Certification {
    let kernel = !evidence.read_lag.is_empty();
    let measured = || evidence.records.iter().filter(|r| r.ok).filter_map(|r| r.measured.as_ref());
    let ttft = pair(measured().filter_map(|m| m.ttft).map(|s| s * 1e3).collect());
    let itl = pair(measured().flat_map(|m| m.itls.iter().map(|s| s * 1e3)).collect());
    let merged: Vec<f64> =
        measured().flat_map(|m| m.itls.iter().map(|gap| if *gap > 0.0 { 0.0 } else { 1.0 })).collect();
    let latencies: Vec<f64> = measured().map(|m| m.latency * 1e3).collect();
    let chunks: Vec<f64> = measured().map(|m| count(m.n_chunks)).collect();
    let calibration = match (plan.calibrate, ttft) {
        (false, _) => Calibration::Skipped { reason: "switched off".to_owned() },
        (true, None) => Calibration::Skipped { reason: "no request was answered".to_owned() },
        (true, Some(ttft)) => {
            let tokens = proto::stats::mean(&chunks).unwrap_or(1.0);
            let shape = Shape::new(streams, ttft.p50, itl.map_or(0.0, |itl| itl.p50), tokens);
            mock::calibrate(&shape, settings)
        }
    };
    let cpu_share = if evidence.wall_s > 0.0 { evidence.cpu.as_secs_f64() / evidence.wall_s } else { 0.0 };
    let read_lag = lag(evidence.read_lag);
    let send_lag = lag(evidence.send_lag);
    let as_pair = |lag: Option<Lag>| lag.map(|lag| Pair { p50: lag.p50, p99: lag.p99 });
    let facts = Facts {
        ttft,
        itl,
        stamp_lag: as_pair(read_lag).filter(|_| plan.profile == Profile::Variadic),
        read_lag: as_pair(read_lag),
        read_lag_worst_ms: evidence.read_lag.percentile(99.9).map_or(0.0, millis),
        merged_share: proto::stats::mean(&merged).unwrap_or(0.0),
        send_lag_mean_ms: evidence.send_lag.mean().map_or(0.0, millis),
        mean_latency_ms: proto::stats::mean(&latencies).unwrap_or(0.0),
        send_lag_p99_ms: send_lag.map_or(0.0, |lag| lag.p99),
        open_loop: plan.arrivals != crate::load::arrival::Arrivals::Closed,
        cpu_share,
        errors: match &calibration {
            Calibration::Measured(errors) => Some(*errors),
            Calibration::Skipped { .. } => None,
        },
    };
    let reasons = if ttft.is_some() { verdict(&facts) } else { Vec::new() };
    Certification {
        stamps: if kernel && plan.profile == Profile::Strict { "kernel" } else { "read" },
        read_lag_ms: read_lag,
        send_lag_ms: send_lag,
        cpu_share: (evidence.wall_s > 0.0).then_some(cpu_share),
        peak_memory_bytes: host::peak_memory(),
        calibration,
        client_bound: !reasons.is_empty(),
        reasons,
    }
}

/// Every way in which the client's error would show.
fn verdict(facts: &Facts) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut compare = |what: &str, error: f64, figure: f64, share: f64| {
        if error.abs() > UNSEEN_MS && error.abs() > figure * share {
            reasons.push(format!("{what} is {error:.3} ms, over {:.0} % of {figure:.3} ms", share * 100.0));
        }
    };
    if let Some(errors) = &facts.errors {
        if let Some(ttft) = facts.ttft {
            compare("calibrated error of TTFT p50", errors.ttft_error_p50_ms, ttft.p50, SHARE_P50);
            compare("calibrated error of TTFT p99", errors.ttft_error_p99_ms, ttft.p99, SHARE_P99);
        }
        if let Some(itl) = facts.itl {
            compare("calibrated error of ITL p50", errors.itl_error_p50_ms, itl.p50, SHARE_P50);
            compare("calibrated error of ITL p99", errors.itl_error_p99_ms, itl.p99, SHARE_P99);
        }
    }
    if let (Some(lag), Some(ttft)) = (facts.stamp_lag, facts.ttft) {
        compare("read lag p50 in TTFT", lag.p50, ttft.p50, SHARE_P50);
        compare("read lag p99 in TTFT", lag.p99, ttft.p99, SHARE_P99);
    }
    if let (Some(lag), Some(itl)) = (facts.stamp_lag, facts.itl) {
        compare("read lag p99 in ITL", lag.p99, itl.p99, SHARE_P99);
    }
    // A stamp of the kernel is the last segment's: a client that is late by a whole gap reads two tokens as one.
    if let (Some(lag), Some(itl)) = (facts.read_lag, facts.itl.filter(|itl| itl.p50 > 0.0)) {
        compare("read lag p99, which merges tokens,", lag.p99, itl.p50, 1.0);
    }
    if facts.open_loop {
        if let Some(ttft) = facts.ttft {
            compare("schedule lag p99", facts.send_lag_p99_ms, ttft.p99, SHARE_P99);
        }
    } else {
        compare(
            "mean idle time of a worker between requests",
            facts.send_lag_mean_ms,
            facts.mean_latency_ms,
            SHARE_P50,
        );
    }
    // The lag counts from the last segment, so that after a stall it is anything below one gap, and all the gaps that
    // the read has swallowed are in the first one.
    if let Some(itl) = facts.itl.filter(|itl| itl.p50 > 0.0)
        && facts.merged_share >= MERGED
        && facts.read_lag_worst_ms > itl.p50 / 2.0
    {
        reasons.push(format!(
            "{:.1} % of the token gaps have no length: late reads held several tokens (read lag p99.9 {:.3} ms of {:.3})",
            facts.merged_share * 100.0,
            facts.read_lag_worst_ms,
            itl.p50
        ));
    }
    if facts.cpu_share > CPU_FULL {
        reasons.push(format!("the client used {:.0} % of its core", facts.cpu_share * 100.0));
    }
    reasons
}

/// p50 and p99 of samples; `None` without any.
pub fn pair(samples: Vec<f64>) -> Option<Pair> {
    let samples = sorted(samples);
    Some(Pair { p50: percentile(&samples, 50.0)?, p99: percentile(&samples, 99.0)? })
}

fn lag(histogram: &Histogram) -> Option<Lag> {
    Some(Lag {
        n: histogram.len(),
        p50: millis(histogram.percentile(50.0)?),
        p99: millis(histogram.percentile(99.0)?),
        max: millis(histogram.max()),
    })
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "chunk counts stay far below 2^52")]
fn count(chunks: u64) -> f64 {
    chunks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            ttft: Some(Pair { p50: 50.0, p99: 60.0 }),
            itl: Some(Pair { p50: 10.0, p99: 12.0 }),
            stamp_lag: None,
            read_lag: Some(Pair { p50: 0.02, p99: 3.0 }),
            read_lag_worst_ms: 9.0,
            merged_share: 0.001,
            send_lag_mean_ms: 0.05,
            mean_latency_ms: 1000.0,
            send_lag_p99_ms: 8.0,
            open_loop: false,
            cpu_share: 0.4,
            errors: Some(Errors {
                streams: 8,
                tokens: 10,
                ttft_error_p50_ms: 0.2,
                ttft_error_p99_ms: 1.0,
                itl_error_p50_ms: 0.01,
                itl_error_p99_ms: 0.3,
                true_ttft_p50_ms: 50.0,
                true_itl_p50_ms: 10.0,
            }),
        }
    }

    #[test]
    fn each_error_is_named_when_it_would_show() {
        assert_eq!(verdict(&good()), Vec::<String>::new());
        let errors = good().errors.unwrap();
        let cases: [(&str, Facts); 10] = [
            ("TTFT p50", Facts { errors: Some(Errors { ttft_error_p50_ms: 1.1, ..errors }), ..good() }),
            ("TTFT p99", Facts { errors: Some(Errors { ttft_error_p99_ms: -3.1, ..errors }), ..good() }),
            ("ITL p50", Facts { errors: Some(Errors { itl_error_p50_ms: 0.21, ..errors }), ..good() }),
            ("ITL p99", Facts { errors: Some(Errors { itl_error_p99_ms: 0.7, ..errors }), ..good() }),
            ("in TTFT", Facts { stamp_lag: Some(Pair { p50: 1.1, p99: 0.1 }), ..good() }),
            ("merges tokens", Facts { read_lag: Some(Pair { p50: 0.1, p99: 10.5 }), ..good() }),
            ("have no length", Facts { merged_share: 0.01, ..good() }),
            ("schedule lag", Facts { open_loop: true, ..good() }),
            ("idle time", Facts { send_lag_mean_ms: 21.0, ..good() }),
            ("its core", Facts { cpu_share: 0.95, ..good() }),
        ];
        for (name, facts) in cases {
            let reasons = verdict(&facts);
            assert!(reasons.len() == 1 && reasons[0].contains(name), "{name}: {reasons:?}");
        }
    }

    #[test]
    fn what_no_table_shows_is_no_reason() {
        let errors = good().errors.unwrap();
        let small = Facts {
            itl: Some(Pair { p50: 0.001, p99: 0.002 }),
            read_lag: None,
            errors: Some(Errors { itl_error_p50_ms: 0.04, itl_error_p99_ms: 0.04, ..errors }),
            ..good()
        };
        assert!(verdict(&small).is_empty());
        // A server that sends two tokens at a time, and a client that was never late.
        assert!(verdict(&Facts { merged_share: 0.4, read_lag_worst_ms: 0.3, ..good() }).is_empty());
    }
}
