//! The status page of `--once`: all that is known of a trial, in lines.

use std::fmt::Write;

use proto::event::StepKind;
use proto::status::{PASS, Status};

use super::words::{self, duration, figure};

/// The page. Times are relative to `status.at_ms`.
pub fn render(status: &Status) -> String {
    let mut page = String::new();
    let now = status.at_ms;
    let clean = |text: &str| words::plain(text.as_bytes());
    let _ =
        writeln!(page, "trial    {}  {}  agent {}", clean(&status.token), clean(&status.model), status.agent_version);
    let _ = writeln!(page, "now      {}", words::headline(status, now));
    let _ = writeln!(
        page,
        "steps    {} of {} measured passed, {} failed, {} requests each",
        status.steps_passed, status.steps, status.steps_failed, status.num_prompts
    );
    for (index, span) in status.phases.iter().enumerate() {
        let end = status.phases.get(index + 1).map_or(now, |next| next.from_ms);
        let head = if index == 0 { "phases " } else { "       " };
        let _ =
            writeln!(page, "{head}  {:<26} {}", words::phase(span.phase), duration(end.saturating_sub(span.from_ms)));
    }
    if !status.results.is_empty() {
        let _ = writeln!(
            page,
            "         {:<12} {:<26} {:>9} {:>9} {:>9} {:>10}",
            "step", "verdict", "TTFT ms", "p99 ms", "TPOT ms", "tok/s"
        );
    }
    for result in &status.results {
        let figures = &result.figures;
        let _ = writeln!(
            page,
            "         {:<12} {:<26} {:>9} {:>9} {:>9} {:>10}",
            words::step(result.step),
            clean(&result.verdict),
            figure(figures.median_ttft_ms),
            figure(figures.p99_ttft_ms),
            figure(figures.median_tpot_ms),
            figure(figures.output_throughput)
        );
        if result.verdict != PASS {
            let _ = writeln!(page, "           {}", clean(&result.detail));
        }
    }
    let spread = Spread::of(status);
    if let Some(spread) = spread {
        let _ = writeln!(page, "         {}", spread.line());
    }
    for answer in &status.health {
        let _ = writeln!(
            page,
            "health   {} answers {} since {}",
            clean(&answer.path),
            clean(&answer.answer),
            duration(now.saturating_sub(answer.at_ms))
        );
    }
    for process in &status.processes {
        let _ = writeln!(
            page,
            "process  {:>7} {:<8} {:<16} {:>6.1} % {:>11}",
            process.pid,
            process.role,
            clean(&process.name),
            process.cpu_percent,
            words::bytes(process.rss_bytes)
        );
    }
    for finding in &status.findings {
        let _ = writeln!(page, "finding  {}; {}", clean(&finding.detail), clean(&finding.hint));
    }
    if !status.lease.is_empty() {
        let _ = writeln!(page, "lease    {}", clean(&status.lease));
    }
    page
}

/// Mean and spread over the measured steps that passed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Median TTFT: mean, coefficient of variation in percent.
    pub ttft: Option<(f64, f64)>,
    /// Median TPOT.
    pub tpot: Option<(f64, f64)>,
    /// Output throughput.
    pub throughput: Option<(f64, f64)>,
}

impl Spread {
    /// Over at least two steps; a figure that one of them lacks has none.
    pub fn of(status: &Status) -> Option<Self> {
        let passed: Vec<_> = status
            .results
            .iter()
            .filter(|result| result.step.kind == StepKind::Measured && result.verdict == PASS)
            .collect();
        if passed.len() < 2 {
            return None;
        }
        let over = |pick: fn(&proto::event::Figures) -> Option<f64>| {
            let values: Option<Vec<f64>> = passed.iter().map(|result| pick(&result.figures)).collect();
            let values = values?;
            let mean = proto::stats::mean(&values)?;
            let spread = proto::stats::sample_std(&values)?;
            (mean > 0.0).then(|| (mean, spread / mean * 100.0))
        };
        Some(Self {
            ttft: over(|figures| figures.median_ttft_ms),
            tpot: over(|figures| figures.median_tpot_ms),
            throughput: over(|figures| figures.output_throughput),
        })
    }

    /// `mean of 3: TTFT 46.30 ms ±1.2 %, ...`
    pub fn line(&self) -> String {
        let say = |name: &str, value: Option<(f64, f64)>, unit: &str| {
            value.map(|(mean, percent)| format!("{name} {}{unit} \u{b1}{percent:.1} %", figure(Some(mean))))
        };
        let words: Vec<String> =
            [say("TTFT", self.ttft, " ms"), say("TPOT", self.tpot, " ms"), say("output", self.throughput, " tok/s")]
                .into_iter()
                .flatten()
                .collect();
        format!("mean: {}", words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::event::Event;

    #[test]
    fn the_page_of_a_recorded_trial() {
        let mut status = Status::default();
        for line in include_str!("recorded.jsonl").lines() {
            status.apply(&serde_json::from_str::<Event>(line).unwrap());
        }
        insta::assert_snapshot!(render(&status));
    }
}
