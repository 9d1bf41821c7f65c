//! What a person sees while a trial runs, on stderr: a line that moves on a terminal, plain lines elsewhere, JSON lines
//! for programs. Shows; never decides.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::event::{Figures, StepKind};
use serde_json::json;

use super::dispatcher::step_label;
use super::journal::Told;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A moving line on a terminal, plain lines elsewhere
    Auto,
    /// Plain lines
    Plain,
    /// A JSON object per line
    Json,
    /// Nothing
    None,
}

/// What is shown.
#[derive(Debug)]
pub struct View<'a> {
    /// Phase of the trial.
    pub phase: &'a str,
    /// What the agent told.
    pub told: &'a Told,
    /// Since the controller started.
    pub elapsed: Duration,
    /// Measured steps.
    pub steps: u32,
    /// Discarded steps.
    pub warmup_steps: u32,
}

/// Shows progress.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    phase: String,
    results: usize,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Plain,
    Json,
    None,
}

/// Says one line from elsewhere (a pull, staging).
#[derive(Debug, Clone)]
pub struct Noter {
    bar: Option<ProgressBar>,
    plain: bool,
}

impl Noter {
    /// Says it.
    pub fn say(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(line.to_owned());
        } else if self.plain {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

impl Progress {
    /// In the wanted mode.
    pub fn new(mode: Mode) -> Self {
        let shown = match mode {
            Mode::Auto if std::io::stderr().is_terminal() => Shown::Bar(bar()),
            Mode::Auto | Mode::Plain => Shown::Plain,
            Mode::Json => Shown::Json,
            Mode::None => Shown::None,
        };
        Self { shown, phase: String::new(), results: 0 }
    }

    /// For lines from elsewhere.
    pub fn noter(&self) -> Noter {
        match &self.shown {
            Shown::Bar(bar) => Noter { bar: Some(bar.clone()), plain: false },
            Shown::Plain => Noter { bar: None, plain: true },
            Shown::Json | Shown::None => Noter { bar: None, plain: false },
        }
    }

    /// The moving line, so that log lines can be written around it.
    pub fn bar(&self) -> Option<ProgressBar> {
        match &self.shown {
            Shown::Bar(bar) => Some(bar.clone()),
            Shown::Plain | Shown::Json | Shown::None => None,
        }
    }

    /// Shows what is new.
    pub fn update(&mut self, view: &View<'_>) {
        // Between two steps the last label stands.
        let label = label(view).unwrap_or_else(|| self.phase.clone());
        match &self.shown {
            Shown::None => {}
            Shown::Bar(bar) => {
                bar.set_message(format!("{label}{}", last_figures(view)));
                bar.tick();
            }
            Shown::Plain => {
                if label != self.phase {
                    line(&format!("[{:7.1} s] {label}", view.elapsed.as_secs_f64()));
                }
            }
            Shown::Json => {
                if label != self.phase {
                    let ms = u64::try_from(view.elapsed.as_millis()).unwrap_or(u64::MAX);
                    line(&json!({ "elapsed_ms": ms, "phase": view.phase, "label": label }).to_string());
                }
            }
        }
        self.phase = label;
        self.results_since(view);
    }

    /// A line per step that ended.
    fn results_since(&mut self, view: &View<'_>) {
        let results = &view.told.status.results;
        for result in results.iter().skip(self.results) {
            let name = step_label(result.step.kind, result.step.number, result.step.total);
            match &self.shown {
                Shown::Plain => {
                    let figures = figures(&result.figures);
                    line(&format!("[{:7.1} s] {name}: {}{figures}", view.elapsed.as_secs_f64(), result.verdict));
                }
                Shown::Bar(bar) => bar.println(format!("{name}: {}{}", result.verdict, figures(&result.figures))),
                Shown::Json => {
                    let value = json!({ "step": result.step, "verdict": result.verdict, "figures": result.figures });
                    line(&value.to_string());
                }
                Shown::None => {}
            }
        }
        self.results = self.results.max(results.len());
    }

    /// Takes the moving line away.
    pub fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// A moving line on stderr.
pub(crate) fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

fn line(text: &str) {
    // A reader that went away must not end a trial.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Phase and step, as people count; nothing between two steps and after the last.
fn label(view: &View<'_>) -> Option<String> {
    Some(match &view.told.status.running {
        Some(run) if view.phase == "warmup" || view.phase == "measure" => {
            let total = match run.step.kind {
                StepKind::Warmup => view.warmup_steps,
                StepKind::Measured => view.steps,
            };
            step_label(run.step.kind, run.step.number, total)
        }
        Some(_) | None => match view.phase {
            // The agent is done before the controller is, and the summary says so.
            "warmup" | "measure" | "done" => return None,
            "prepare" => "preparing".to_owned(),
            "start" | "boot" => "starting".to_owned(),
            "wait_health" => "waiting for the server to be ready".to_owned(),
            "wait_generate" | "generate_probe" => "waiting for the first token".to_owned(),
            "read_back" => "reading back the sampling backend".to_owned(),
            "teardown" => "server teardown".to_owned(),
            "stopping" => "stopping".to_owned(),
            "removal" => "removing, and proving that it is gone".to_owned(),
            "collect" => "reading exports".to_owned(),
            "gpu_memory_wait" => "waiting for GPU memory".to_owned(),
            other => other.to_owned(),
        },
    })
}

fn last_figures(view: &View<'_>) -> String {
    view.told.status.results.last().map(|r| figures(&r.figures)).unwrap_or_default()
}

fn figures(figures: &Figures) -> String {
    let mut out = String::new();
    for (name, value, unit) in [
        ("TTFT", figures.median_ttft_ms, "ms"),
        ("TPOT", figures.median_tpot_ms, "ms"),
        ("output", figures.output_throughput, "tok/s"),
    ] {
        if let Some(value) = value {
            let _ = write!(out, "  {name} {} {unit}", crate::result::details::significant(value));
        }
    }
    out
}
