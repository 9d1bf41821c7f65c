//! Events and figures in words: one line each, safe for any terminal.

use std::fmt::Write;

use proto::event::{Event, EventBody, Figures, Phase, Step, StepKind};
use proto::status::{PASS, Status};

use crate::agent_link::{LinkEvent, LogSource};

/// `12.3 s`, `4:05`, `1:02:03`.
pub fn duration(ms: u64) -> String {
    let sec = ms / 1000;
    match sec {
        0..60 => format!("{}.{} s", sec, ms % 1000 / 100),
        60..3600 => format!("{}:{:02}", sec / 60, sec % 60),
        _ => format!("{}:{:02}:{:02}", sec / 3600, sec / 60 % 60, sec % 60),
    }
}

/// The phase with its step.
pub fn phase(phase: Phase) -> String {
    match phase {
        Phase::Boot => "boot".into(),
        Phase::WaitHealth => "wait for /health".into(),
        Phase::WaitGenerate => "wait for /health_generate".into(),
        Phase::ReadBack => "read back sampling".into(),
        Phase::GenerateProbe => "generate probe".into(),
        Phase::Warmup(n) => format!("warmup {n}"),
        Phase::Measure(n) => format!("measure {n}"),
        Phase::Teardown => "teardown".into(),
        Phase::Done => "done".into(),
    }
}

/// `step 2/3` or `warmup 1/1`.
pub fn step(step: Step) -> String {
    let kind = match step.kind {
        StepKind::Warmup => "warmup",
        StepKind::Measured => "step",
    };
    format!("{kind} {}/{}", step.number, step.total)
}

/// A figure, or a dash where there is none.
pub fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if !value.is_finite() => "-".into(),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// The figures that are there.
pub fn figures(figures: &Figures) -> String {
    let mut words = Vec::new();
    let mut say = |name: &str, value: Option<f64>, unit: &str| {
        if value.is_some() {
            words.push(format!("{name} {}{unit}", figure(value)));
        }
    };
    say("TTFT", figures.median_ttft_ms, " ms");
    say("p99", figures.p99_ttft_ms, " ms");
    say("TPOT", figures.median_tpot_ms, " ms");
    say("output", figures.output_throughput, " tok/s");
    say("requests", figures.request_throughput, "/s");
    words.join(", ")
}

/// Bytes in binary units.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Text from a log or another process, without anything that could move a cursor or pose as something else.
pub fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => out.push_str("    "),
            '\n' | '\r' => out.push(' '),
            c if c.is_control() || is_direction(c) => out.push('\u{b7}'),
            c => out.push(c),
        }
    }
    out
}

/// Marks that reorder what stands around them.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Passes over a terminal's escape sequence: CSI up to its final byte, OSC up to its end, else one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            for c in chars.by_ref() {
                if ('\u{40}'..='\u{7e}').contains(&c) {
                    break;
                }
            }
        }
        Some(']') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    break;
                }
                if c == '\u{1b}' {
                    chars.next();
                    break;
                }
            }
        }
        Some(_) | None => {}
    }
}

/// One event in words; `None` for samples, which are not worth a line.
pub fn event(event: &Event) -> Option<String> {
    let text = match &event.body {
        EventBody::Started { token, agent_version, model, warmup_steps, steps, num_prompts, .. } => format!(
            "trial {token}: {model}, {warmup_steps} warmup and {steps} measured steps of {num_prompts} requests (agent {agent_version})"
        ),
        EventBody::PhaseEntered { phase: entered, deadline_ms } => {
            let limit = deadline_ms.map(|deadline| deadline.saturating_sub(event.at_ms));
            let limit = limit.map_or_else(String::new, |ms| format!(", at most {}", duration(ms)));
            format!("{}{limit}", phase(*entered))
        }
        EventBody::ServerStarted { pid } => format!("server started, pid {pid}"),
        EventBody::HealthChanged { path, answer } => format!("{path} answers {answer}"),
        EventBody::ServerReady { startup_ms } => format!("server ready after {}", duration(*startup_ms)),
        EventBody::FirstToken { elapsed_ms } => format!("first token after {}", duration(*elapsed_ms)),
        EventBody::StepStarted { step: begun } => format!("{} started", step(*begun)),
        EventBody::StepFinished { step: ended, verdict, detail, elapsed_ms, figures: measured, .. } => {
            let detail = if verdict == PASS { figures(measured) } else { detail.clone() };
            format!("{} {verdict} after {}: {detail}", step(*ended), duration(*elapsed_ms))
        }
        EventBody::FindingRaised { finding } => format!("finding: {}; {}", finding.detail, finding.hint),
        EventBody::Stopping { cause } => format!("stopping: {cause}"),
        EventBody::ServerStopped { detail, elapsed_ms } => {
            format!("server stopped after {}: {detail}", duration(*elapsed_ms))
        }
        EventBody::LogsDropped { source, lines } => format!("{lines} {source} log lines left out for everybody"),
        EventBody::ResourcesSampled { .. } => return None,
        EventBody::Finished { exit, reason } => format!("finished: {reason}, exit status {exit}"),
    };
    Some(plain(text.as_bytes()))
}

/// What the link tells, in words, beside events and log lines.
pub fn link(told: &LinkEvent) -> Option<String> {
    let text = match told {
        LinkEvent::Event(_) | LinkEvent::Log(_) => return None,
        LinkEvent::Waiting { reason } => format!("waiting for the agent: {reason}"),
        LinkEvent::Connected { peer, from_seq } => {
            let resumed = if *from_seq > 1 { format!(", resumed at event {from_seq}") } else { String::new() };
            let notice = if peer.notice.is_empty() { String::new() } else { format!("; {}", peer.notice) };
            format!("connected to agent {}{resumed}{notice}", peer.version)
        }
        LinkEvent::Gap { first, last } => format!("events {first} to {last} are no longer held"),
        LinkEvent::LogsDropped { source, lines } => {
            format!("{lines} {}log lines left out", source.map_or("", source_word))
        }
        LinkEvent::Unreadable { reason } => format!("not readable by this build: {reason}"),
        LinkEvent::Lost { reason } => format!("connection lost, trying again: {reason}"),
        LinkEvent::Ended { reason } => format!("stream ended: {reason}"),
    };
    Some(plain(text.as_bytes()))
}

const fn source_word(source: LogSource) -> &'static str {
    match source {
        LogSource::Server => "server ",
        LogSource::Bench => "bench ",
    }
}

/// The trial in one line: where it is and what it has.
pub fn headline(status: &Status, now_ms: u64) -> String {
    if let Some(ending) = &status.finished {
        return format!("finished: {} (exit status {})", plain(ending.reason.as_bytes()), ending.exit);
    }
    let since = status.phases.last().map_or(0, |span| span.from_ms);
    let deadline = status.phases.last().and_then(|span| span.deadline_ms);
    let mut text = format!("{} for {}", phase(status.phase()), duration(now_ms.saturating_sub(since)));
    match deadline {
        Some(deadline) if deadline >= now_ms => {
            let _ = write!(text, ", {} left", duration(deadline - now_ms));
        }
        Some(deadline) => {
            let _ = write!(text, ", {} over its time", duration(now_ms - deadline));
        }
        None => {}
    }
    if let Some(cause) = &status.stopping {
        let _ = write!(text, "; stopping: {}", plain(cause.as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_figures_read_well() {
        assert_eq!(
            [0, 999, 59_949, 60_000, 3_599_999, 3_600_000].map(duration),
            ["0.0 s", "0.9 s", "59.9 s", "1:00", "59:59", "1:00:00"]
        );
        assert_eq!(
            [None, Some(f64::NAN), Some(1.5), Some(123.45), Some(3538.4)].map(figure),
            ["-", "-", "1.50", "123.5", "3538"]
        );
        assert_eq!([0, 1023, 1536, 5 << 30, 3 << 41].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "6.0 TiB"]);
    }

    #[test]
    fn nothing_from_outside_moves_the_cursor() {
        assert_eq!(
            plain(b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x1b]8;;y\x1b\\z\r\nA\tB\x00\xff"),
            "red xz  A    B\u{b7}\u{fffd}"
        );
        assert_eq!(plain("a\u{202e}b\u{9b}c".as_bytes()), "a\u{b7}b\u{b7}c");
        assert_eq!(plain(b"\x1b"), "");
    }
}
