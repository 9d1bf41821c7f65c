//! The OpenMetrics page: the trial, its phase, its steps and its processes, in base units (seconds, bytes,
//! ratios) and with the ecosystem's suffixes. A figure that is not there yet is left out, never zero.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use proto::event::{Phase, StepKind};
use proto::pb::v1::ServiceFigures;
use proto::status::{PASS, Status, StepResult};

use super::service::Shared;

/// What the page is.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page now.
pub(super) fn render(shared: &Shared) -> String {
    page(&shared.status(), &shared.figures())
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if index == 0 { '{' } else { ',' }, escape(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A gauge without labels, where there is a figure.
    fn gauge(&mut self, name: &str, unit: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.family(name, "gauge", unit, help);
            self.sample(name, &[], value);
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[expect(clippy::cast_precision_loss, reason = "a millisecond count of a trial is far below 2^52")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

const PHASES: [&str; 9] =
    ["boot", "wait_health", "wait_generate", "read_back", "generate_probe", "warmup", "measure", "teardown", "done"];

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Boot => PHASES[0],
        Phase::WaitHealth => PHASES[1],
        Phase::WaitGenerate => PHASES[2],
        Phase::ReadBack => PHASES[3],
        Phase::GenerateProbe => PHASES[4],
        Phase::Warmup(_) => PHASES[5],
        Phase::Measure(_) => PHASES[6],
        Phase::Teardown => PHASES[7],
        Phase::Done => PHASES[8],
    }
}

fn page(status: &Status, service: &ServiceFigures) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    trial(&mut page, status);
    steps(&mut page, status);
    engine(&mut page, status);
    processes(&mut page, status);
    own(&mut page, status, service);
    page.0.push_str("# EOF\n");
    page.0
}

fn trial(page: &mut Page, status: &Status) {
    page.family("tsbench_trial", "info", "", "The trial.");
    let contract = proto::CONTRACT_VERSION.to_string();
    page.sample(
        "tsbench_trial_info",
        &[
            ("run_token", &status.token),
            ("model", &status.model),
            ("version", env!("CARGO_PKG_VERSION")),
            ("contract_version", &contract),
        ],
        1,
    );
    page.gauge("tsbench_uptime_seconds", "seconds", "Since the agent started.", Some(seconds(status.at_ms)));
    page.family("tsbench_phase", "stateset", "", "Where the agent is.");
    let current = phase_name(status.phase());
    for name in PHASES {
        page.sample("tsbench_phase", &[("tsbench_phase", name)], u8::from(name == current));
    }
    let span = status.phases.last();
    let since = span.map(|span| seconds(status.at_ms.saturating_sub(span.from_ms)));
    page.gauge("tsbench_phase_elapsed_seconds", "seconds", "Since the phase began.", since);
    let left = span.and_then(|span| span.deadline_ms).map(|deadline| {
        if deadline >= status.at_ms { seconds(deadline - status.at_ms) } else { -seconds(status.at_ms - deadline) }
    });
    page.gauge("tsbench_phase_deadline_seconds", "seconds", "Until the phase must be over.", left);
    page.family("tsbench_stopping", "gauge", "", "1 while the trial is being stopped.");
    page.sample("tsbench_stopping", &[], u8::from(status.stopping.is_some()));
    let exit = status.finished.as_ref().map(|ending| ending.exit);
    page.gauge("tsbench_exit_status", "", "Exit status of the trial.", exit);
    page.family("tsbench_findings", "gauge", "", "Findings so far.");
    page.sample("tsbench_findings", &[], status.findings.len());
}

fn steps(page: &mut Page, status: &Status) {
    page.family("tsbench_steps_planned", "gauge", "", "Steps that the trial is made of.");
    page.sample("tsbench_steps_planned", &[("kind", "warmup")], status.warmup_steps);
    page.sample("tsbench_steps_planned", &[("kind", "measured")], status.steps);
    page.family("tsbench_steps_finished", "counter", "", "Measured steps that ended.");
    page.sample("tsbench_steps_finished_total", &[("verdict", PASS)], status.steps_passed);
    page.sample("tsbench_steps_finished_total", &[("verdict", "fail")], status.steps_failed);
    let Some(last) = status.results.iter().rev().find(|result| result.step.kind == StepKind::Measured) else { return };
    page.gauge("tsbench_last_step", "", "Number of the last measured step that ended.", Some(last.step.number));
    last_step(page, last);
}

/// Figures of the last measured step; tokens and requests are per second, times in seconds.
fn last_step(page: &mut Page, last: &StepResult) {
    let figures = &last.figures;
    let sec = |ms: Option<f64>| ms.map(|ms| ms / 1000.0);
    let rows = [
        ("tsbench_last_step_duration_seconds", "seconds", "Its duration by the bench.", figures.duration_sec),
        ("tsbench_last_step_ttft_median_seconds", "seconds", "Its median TTFT.", sec(figures.median_ttft_ms)),
        ("tsbench_last_step_ttft_p99_seconds", "seconds", "Its 99th percentile of TTFT.", sec(figures.p99_ttft_ms)),
        ("tsbench_last_step_tpot_median_seconds", "seconds", "Its median TPOT.", sec(figures.median_tpot_ms)),
        ("tsbench_last_step_itl_p99_seconds", "seconds", "Its 99th percentile of ITL.", sec(figures.p99_itl_ms)),
        ("tsbench_last_step_output_tokens_per_second", "", "Its output throughput.", figures.output_throughput),
        ("tsbench_last_step_requests_per_second", "", "Its request throughput.", figures.request_throughput),
    ];
    for (name, unit, help, value) in rows {
        page.gauge(name, unit, help, value.filter(|value| value.is_finite()));
    }
    page.gauge("tsbench_last_step_completed_requests", "", "Requests that it completed.", figures.completed);
    page.gauge("tsbench_last_step_failed_requests", "", "Requests that it failed.", figures.failed);
}

fn engine(page: &mut Page, status: &Status) {
    let startup = status.startup_ms.map(seconds);
    page.gauge("tsbench_server_startup_seconds", "seconds", "From its start to the first good /health.", startup);
    let first = status.first_token_ms.map(seconds);
    page.gauge("tsbench_generate_probe_seconds", "seconds", "First token of the generate probe.", first);
    if !status.health.is_empty() {
        page.family("tsbench_health_up", "gauge", "", "1 where the last answer of the path was 200.");
        for answer in &status.health {
            let up = answer.answer == "200" || answer.answer.starts_with("200 ");
            page.sample("tsbench_health_up", &[("path", &answer.path)], u8::from(up));
        }
    }
}

fn processes(page: &mut Page, status: &Status) {
    let mut roles: BTreeMap<&str, (u32, f64, u64)> = BTreeMap::new();
    for process in &status.processes {
        let sum = roles.entry(&process.role).or_default();
        sum.0 += 1;
        sum.1 += f64::from(process.cpu_percent) / 100.0;
        sum.2 = sum.2.saturating_add(process.rss_bytes);
    }
    if roles.is_empty() {
        return;
    }
    page.family("tsbench_processes", "gauge", "", "Processes of the trial by role.");
    for (role, (count, ..)) in &roles {
        page.sample("tsbench_processes", &[("role", role)], count);
    }
    page.family("tsbench_process_cpu_cores", "gauge", "", "Cores used by role, over the last sample.");
    for (role, (_, cores, _)) in &roles {
        page.sample("tsbench_process_cpu_cores", &[("role", role)], cores);
    }
    page.family("tsbench_process_resident_memory_bytes", "gauge", "bytes", "Resident memory by role.");
    for (role, (.., bytes)) in &roles {
        page.sample("tsbench_process_resident_memory_bytes", &[("role", role)], bytes);
    }
}

fn own(page: &mut Page, status: &Status, service: &ServiceFigures) {
    page.family("tsbench_events", "counter", "", "Events so far.");
    page.sample("tsbench_events_total", &[], service.next_seq.saturating_sub(1));
    page.family("tsbench_watchers", "gauge", "", "Streams of the status service.");
    page.sample("tsbench_watchers", &[], service.watchers);
    page.family("tsbench_watchers_cut", "counter", "", "Streams cut off because nobody read them.");
    page.sample("tsbench_watchers_cut_total", &[], service.watchers_cut);
    page.family("tsbench_log_lines_dropped", "counter", "", "Log lines left out: of all streams, of single ones.");
    page.sample("tsbench_log_lines_dropped_total", &[("scope", "all")], status.log_lines_dropped);
    page.sample("tsbench_log_lines_dropped_total", &[("scope", "watcher")], service.log_lines_dropped);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::event::{Event, EventBody, Figures, ProcessSample, Step};

    #[test]
    fn absent_figures_are_absent_and_labels_are_escaped() {
        let status = Status { token: "a\"b\\c\nd".into(), ..Status::default() };
        let text = page(&status, &ServiceFigures::default());
        assert!(text.contains(r#"run_token="a\"b\\c\nd""#), "{text}");
        assert!(!text.contains("startup") && !text.contains("last_step") && !text.contains("process_"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn units_are_base_units() {
        let mut status = Status::default();
        let step = Step { kind: StepKind::Measured, number: 2, total: 3 };
        let figures = Figures { median_ttft_ms: Some(46.25), p99_itl_ms: Some(f64::NAN), ..Figures::default() };
        let process = |pid, cpu_percent| ProcessSample {
            pid,
            parent: 1,
            name: "x".into(),
            role: "server".into(),
            cpu_percent,
            rss_bytes: 1 << 20,
        };
        let bodies = [
            EventBody::ServerReady { startup_ms: 307_500 },
            EventBody::ResourcesSampled { processes: vec![process(2, 50.0), process(3, 100.0)] },
            EventBody::StepFinished {
                step,
                verdict: PASS.into(),
                detail: String::new(),
                elapsed_ms: 1,
                figures,
                sha256: None,
            },
        ];
        for (seq, body) in (1..).zip(bodies) {
            status.apply(&Event { seq, at_ms: seq, body });
        }
        let text = page(&status, &ServiceFigures::default());
        for line in [
            "tsbench_server_startup_seconds 307.5",
            "tsbench_last_step_ttft_median_seconds 0.04625",
            "tsbench_process_cpu_cores{role=\"server\"} 1.5",
            "tsbench_process_resident_memory_bytes{role=\"server\"} 2097152",
            "tsbench_steps_finished_total{verdict=\"pass\"} 1",
            "tsbench_phase{tsbench_phase=\"boot\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("itl_p99"), "a NaN is no figure");
    }
}
