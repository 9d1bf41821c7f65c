//! What a sweep would run: the recipe, its cells validated one by one, and everything that speaks against starting.
//! Nothing is made or started here; `--dry-run` ends with it.

use std::path::{Path, PathBuf};

use proto::finding::Finding;
use serde_json::{Map, Value, json};

use super::recipe::{self, Cell, Recipe};
use super::registry::Registry;
use crate::campaign::state::digest;
use crate::config::{self, Loaded, Overrides, json as json_reader, keys, source};
use crate::launch::plan::plan;
use crate::launch::start::HostEnv;

/// What the command line asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The recipe file.
    pub recipe: PathBuf,
    /// Sidecar files with more mitigations and environments.
    pub sidecars: Vec<PathBuf>,
    /// Only these cells; all where empty.
    pub cells: Vec<String>,
    /// Trials per cell, over what the recipe says.
    pub trials: Option<u32>,
    /// Passed on to every trial.
    pub overrides: Overrides,
}

/// A recipe ready to be run, or why not.
#[derive(Debug, Clone)]
pub struct Plan {
    /// With `--trials` applied.
    pub recipe: Recipe,
    /// As given.
    pub recipe_path: PathBuf,
    /// SHA-256 of its bytes, hex.
    pub recipe_sha256: String,
    /// Every cell of the recipe, in its order.
    pub cells: Vec<PlannedCell>,
    /// Passed on to every trial.
    pub overrides: Overrides,
}

/// A cell and what is known about it.
#[derive(Debug, Clone)]
pub struct PlannedCell {
    /// As the recipe has it.
    pub cell: Cell,
    /// Whether this call runs it.
    pub selected: bool,
    /// Its trial, where the configuration is sound.
    pub loaded: Option<Loaded>,
    /// The agent that its trials would run, once the host was looked at.
    pub agent: Option<Agent>,
    /// The id of its image, where that is on this host already.
    pub image_id: Option<String>,
    /// What speaks against it.
    pub problems: Vec<Problem>,
}

/// An agent binary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Agent {
    /// On this host.
    pub path: PathBuf,
    /// Of its bytes, hex.
    pub sha256: String,
}

/// Whose fault a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The recipe's: exit status 64.
    Config,
    /// This host's: exit status 69.
    Host,
}

/// One reason not to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whose.
    pub fault: Fault,
    /// Key, value, rule.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n  hint: {}", self.message, self.hint)
    }
}

fn config_problem(message: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem { fault: Fault::Config, message: message.into(), hint: hint.into() }
}

impl Plan {
    /// Reads the recipe and validates every cell that is asked for. The error is about the recipe or the command line
    /// as a whole; what is wrong with single cells stands in [`PlannedCell::problems`].
    pub fn read(request: &Request) -> Result<Self, Problem> {
        let document =
            source::read(&request.recipe).map_err(|error| config_problem(error.to_string(), error.hint.clone()))?;
        let bytes = std::fs::read(&request.recipe).map_err(|error| {
            config_problem(format!("{}: {error}", request.recipe.display()), "name a readable file")
        })?;
        let registry = Registry::with_sidecars(&request.sidecars)
            .map_err(|error| config_problem(error.to_string(), "mend the sidecar, or leave --mitigations-file out"))?;
        let mut recipe = recipe::read(&document.root, &registry)
            .map_err(|error| config_problem(error.to_string(), error.hint.clone()))?;
        if let Some(trials) = request.trials {
            if recipe.stop_after.is_some() {
                let hint = "leave --trials out; stop_after.max_trials is the cap";
                return Err(config_problem("--trials cannot stand beside the recipe's stop_after", hint));
            }
            recipe.trials = trials;
            recipe.cells.iter_mut().for_each(|cell| cell.trials = trials);
        }
        if let Some(unknown) = request.cells.iter().find(|name| !recipe.cells.iter().any(|c| c.name == **name)) {
            let names = || recipe.cells.iter().map(|cell| cell.name.as_str());
            let hint = keys::nearest(unknown, names()).map_or_else(
                || format!("the cells are {}", names().collect::<Vec<_>>().join(", ")),
                |near| format!("did you mean {near}?"),
            );
            return Err(config_problem(format!("--cell {unknown}: the recipe has no such cell"), hint));
        }
        let cells = recipe
            .cells
            .iter()
            .map(|cell| {
                let selected = request.cells.is_empty() || request.cells.contains(&cell.name);
                PlannedCell::new(cell, selected, &request.overrides)
            })
            .collect();
        Ok(Self {
            recipe,
            recipe_path: request.recipe.clone(),
            recipe_sha256: digest(&bytes),
            cells,
            overrides: request.overrides.clone(),
        })
    }

    /// Looks at the host with the eyes of every selected cell: client, image, GPU, scratch, agent, ports.
    pub async fn look_at_host(&mut self, kfd: &Path) {
        let env = HostEnv::current();
        for cell in self.cells.iter_mut().filter(|cell| cell.selected) {
            let Some(loaded) = &cell.loaded else { continue };
            match plan(loaded, kfd, &env).await {
                Ok(plan) => {
                    cell.agent = Some(Agent { path: plan.agent.path, sha256: plan.agent.sha256 });
                    cell.image_id = plan.image_id;
                }
                Err(error) => {
                    let problem = Problem { fault: Fault::Host, message: error.message.clone(), hint: error.hint };
                    cell.problems.push(problem);
                }
            }
        }
    }

    /// The cells that this call runs.
    pub fn selected(&self) -> impl Iterator<Item = (usize, &PlannedCell)> {
        self.cells.iter().enumerate().filter(|(_, cell)| cell.selected)
    }

    /// Everything that speaks against starting, each once, with the cells that it is about.
    pub fn problems(&self) -> Vec<(Vec<&str>, &Problem)> {
        let mut found: Vec<(Vec<&str>, &Problem)> = Vec::new();
        for (_, cell) in self.selected() {
            for problem in &cell.problems {
                match found.iter_mut().find(|(_, known)| *known == problem) {
                    Some((cells, _)) => cells.push(&cell.cell.name),
                    None => found.push((vec![&cell.cell.name], problem)),
                }
            }
        }
        found
    }

    /// What is odd about the cells' configurations, each once, with the cells that it is about.
    pub fn findings(&self) -> Vec<(Vec<&str>, &Finding)> {
        let mut found: Vec<(Vec<&str>, &Finding)> = Vec::new();
        for (_, cell) in self.selected() {
            for finding in cell.loaded.iter().flat_map(|loaded| &loaded.findings) {
                match found.iter_mut().find(|(_, known)| *known == finding) {
                    Some((cells, _)) => cells.push(&cell.cell.name),
                    None => found.push((vec![&cell.cell.name], finding)),
                }
            }
        }
        found
    }

    /// The recipe with every name resolved: what was asked for, whoever wrote it down. Loads as a recipe again.
    pub fn resolved(&self) -> Value {
        let recipe = &self.recipe;
        let stop_after = recipe.stop_after.map(super::stop_after::StopAfter::to_json);
        let mut document = json!({
            "schema_version": 1,
            "workload": recipe.workload,
            "ticket": recipe.ticket,
            "trials": recipe.trials,
            "steps": recipe.steps,
            "save_logs": recipe.save_logs,
            "trial_isolation": recipe.trial_isolation,
            "confound": {"threshold": recipe.threshold, "baseline_cell": recipe.baseline},
            "stop_after": stop_after,
            "cells": self.cells.iter().map(|c| c.resolved(recipe.stop_after.is_some())).collect::<Vec<_>>(),
        });
        let Some(top) = document.as_object_mut() else { return document };
        top.retain(|_, value| !value.is_null());
        if let Some(confound) = top.get_mut("confound").and_then(Value::as_object_mut) {
            confound.retain(|_, value| !value.is_null());
        }
        document
    }

    /// Everything that makes a cell's figures what they are, hashed: its resolved form, the agent, this program, and
    /// what the command line sets over it. `None` where the cell is not sound or no agent is known.
    pub fn fingerprint(&self, cell: &PlannedCell, agent_sha256: Option<&str>) -> Option<String> {
        let loaded = cell.loaded.as_ref()?;
        let question = json!({
            "workload": self.recipe.workload,
            "config": cell.cell.trial_config(),
            "mitigations": cell.cell.mitigations,
            "image": loaded.trial.image,
            "runtime": loaded.trial.own.runtime,
            "agent": agent_sha256?,
            "version": env!("CARGO_PKG_VERSION"),
        });
        Some(digest(question.to_string().as_bytes()))
    }
}

impl PlannedCell {
    fn new(cell: &Cell, selected: bool, overrides: &Overrides) -> Self {
        let mut planned =
            Self { cell: cell.clone(), selected, loaded: None, agent: None, image_id: None, problems: Vec::new() };
        let text = Value::Object(cell.trial_config()).to_string();
        // The text is ours, so the places in it are nobody's: messages name the key.
        match json_reader::parse(&text).map(|document| config::validate(document, overrides)) {
            Ok(Ok(loaded)) => planned.loaded = Some(loaded),
            Ok(Err(errors)) => {
                planned.problems.extend(errors.iter().map(|e| config_problem(e.message.clone(), e.hint.clone())));
            }
            Err(error) => planned.problems.push(config_problem(error.message, "simplify workload_config")),
        }
        planned
    }

    /// The cell as a recipe would say it with nothing left to look up.
    fn resolved(&self, capped: bool) -> Value {
        let cell = &self.cell;
        let environment = cell.environment.docker().map_or_else(
            || json!(cell.environment.name),
            |image| json!({"docker": image, "env": cell.environment.env()}),
        );
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| {
            fields.insert(key.to_owned(), value);
        };
        put("name", json!(cell.name));
        put("mitigations", json!(cell.mitigations));
        put("environment", environment);
        put("extra_env", json!(cell.trial_env));
        if !capped {
            put("trials", json!(cell.trials));
        }
        put("steps", json!(cell.steps));
        put("workload_config", Value::Object(cell.workload_config.clone()));
        Value::Object(fields)
    }
}
