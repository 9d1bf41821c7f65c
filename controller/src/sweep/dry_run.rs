//! `controller sweep --dry-run`: cells, load, time budget, problems; touches nothing.

use std::fmt::Write as _;

use comfy_table::Table;

use super::confound::resolve_baseline;
use super::plan::{Plan, PlannedCell};
use crate::campaign::order::human;
use crate::config::trial::{Data, Trial};

/// The whole, for a person.
pub fn text(plan: &Plan) -> String {
    let recipe = &plan.recipe;
    let mut out = String::new();
    let short = plan.recipe_sha256.get(..10).unwrap_or("");
    let mut put = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    put("recipe", format!("{} (sha256:{short})", plan.recipe_path.display()));
    put("workload", recipe.workload.clone());
    put("ticket", recipe.ticket.clone().unwrap_or_else(|| "(none)".to_owned()));
    let names: Vec<(&str, &[String])> =
        recipe.cells.iter().map(|cell| (cell.name.as_str(), cell.mitigations.as_slice())).collect();
    let baseline = resolve_baseline(&names, recipe.baseline.as_deref(), |_| false).unwrap_or("(none)");
    put("baseline", format!("{baseline}; a cell counts as slower from {} times its step time", recipe.threshold));
    if let Some(stop) = recipe.stop_after {
        put("stop after", format!("{} per cell, {} trials at most", stop.events, stop.max_trials));
    }
    for agent in agents(plan) {
        put("agent", agent);
    }
    let _ = writeln!(out, "\n{}", table(plan));
    for (_, cell) in plan.selected() {
        let variables: Vec<&str> = cell.cell.trial_env.keys().map(String::as_str).collect();
        if !variables.is_empty() {
            let _ = writeln!(out, "{} sets {}", cell.cell.name, variables.join(", "));
        }
    }
    for (cells, finding) in plan.findings() {
        let _ = writeln!(out, "{}: {}; {}", cells.join(", "), finding.detail, finding.hint);
    }
    let trials: u64 = plan.selected().map(|(_, cell)| u64::from(cell.cell.trials)).sum();
    let steps: u64 = plan
        .selected()
        .filter_map(|(_, cell)| {
            let load = &cell.loaded.as_ref()?.trial.load;
            Some(u64::from(cell.cell.trials) * (u64::from(load.steps) + u64::from(load.warmup_steps)))
        })
        .sum();
    let seconds: f64 = plan.selected().filter_map(|(_, cell)| budget(cell)).sum();
    let _ = writeln!(out, "{trials} trials with {steps} steps in all, at most {} by their deadlines", human(seconds));
    let problems = plan.problems();
    if problems.is_empty() {
        out.push_str("no problems\n");
    }
    for (cells, problem) in problems {
        let _ = writeln!(out, "problem in {}: {problem}", cells.join(", "));
    }
    out
}

/// Seconds that a cell may take by its deadlines.
#[expect(clippy::cast_precision_loss, reason = "seconds")]
fn budget(cell: &PlannedCell) -> Option<f64> {
    Some(f64::from(cell.cell.trials) * cell.loaded.as_ref()?.trial.timing.timeout_sec as f64)
}

fn agents(plan: &Plan) -> Vec<String> {
    let mut found: Vec<String> = plan
        .selected()
        .filter_map(|(_, cell)| cell.agent.as_ref())
        .map(|agent| format!("{} (sha256:{})", agent.path.display(), agent.sha256.get(..10).unwrap_or("")))
        .collect();
    found.dedup();
    found
}

fn table(plan: &Plan) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["cell", "mitigations", "where", "trials", "steps", "load of a step", "at most"]);
    for (_, cell) in plan.selected() {
        let recipe_cell = &cell.cell;
        let trial = cell.loaded.as_ref().map(|loaded| &loaded.trial);
        let unknown = || "(not valid)".to_owned();
        table.add_row([
            recipe_cell.name.clone(),
            recipe_cell.mitigations.join(", "),
            trial.map_or_else(unknown, place),
            recipe_cell.trials.to_string(),
            trial.map_or_else(unknown, |t| format!("{} + {} warm-up", t.load.steps, t.load.warmup_steps)),
            trial.map_or_else(unknown, load),
            budget(cell).map_or_else(unknown, human),
        ]);
    }
    table.to_string()
}

/// Runtime and image.
fn place(trial: &Trial) -> String {
    let runtime = trial.own.runtime;
    if runtime.is_container() { format!("{} {}", runtime.as_str(), trial.image) } else { runtime.as_str().to_owned() }
}

/// What one step sends.
pub fn load(trial: &Trial) -> String {
    let load = &trial.load;
    let shape = match &load.data {
        Data::Random { input_len, output_len } => format!("random {input_len} in, {output_len} out"),
        Data::Sharegpt { path, .. } => {
            format!("sharegpt {}", path.file_name().unwrap_or_default().to_string_lossy())
        }
    };
    let mut words = format!("{} x {shape}", load.num_prompts);
    match load.max_concurrency {
        Some(most) => {
            let _ = write!(words, ", {most} in flight");
        }
        None => words.push_str(", all in flight"),
    }
    if load.request_rate != "inf" {
        let _ = write!(words, ", {}/s", load.request_rate);
    }
    if let Some(rollout) = &load.rollout {
        let _ = write!(words, ", rollout of {}", rollout.samples);
    }
    if trial.own.bench_tool != proto::limits::BenchTool::Tokenspeed {
        let _ = write!(words, ", by {}", trial.own.bench_tool.as_str());
    }
    format!("{}: {words}", trial.model.model)
}
