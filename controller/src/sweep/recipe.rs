//! AORTA recipe files, mode triage, as they are (integration notes, section 5): a field that is not supported is
//! refused by name, never ignored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map as JsonMap, Value as Json};

use super::registry::{CellEnvironment, Registry};
use super::stop_after::StopAfter;
use crate::config::value::{Map, Node, Pos, Value};
use crate::launch::guard;

/// The names under which AORTA knows this benchmark; what the recipe says is what is written.
pub const WORKLOADS: [&str; 2] = ["ts_bench", "tokenspeed_serve"];

/// Ratio of mean step times from which a cell counts as slower, where the recipe is silent.
const DEFAULT_THRESHOLD: f64 = 1.15;

/// A recipe, every name in it resolved.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// As the recipe says.
    pub workload: String,
    /// As the recipe says.
    pub ticket: Option<String>,
    /// Trials per cell, unless the cell says otherwise.
    pub trials: u32,
    /// Steps per trial, unless the cell says otherwise.
    pub steps: u32,
    /// Whether each trial's output is kept in files.
    pub save_logs: bool,
    /// `auto`, `in_process` or `process`; every trial runs in a process of its own whatever it says.
    pub trial_isolation: String,
    /// See [`super::confound::classify`].
    pub threshold: f64,
    /// The named baseline.
    pub baseline: Option<String>,
    /// When a cell may stop before its cap.
    pub stop_after: Option<StopAfter>,
    /// The cells, in order.
    pub cells: Vec<Cell>,
}

/// One row of the matrix.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Unique.
    pub name: String,
    /// Registry names.
    pub mitigations: Vec<String>,
    /// Where its trials run.
    pub environment: CellEnvironment,
    /// The cell's own, for the record.
    pub extra_env: BTreeMap<String, String>,
    /// Environment's, mitigations', recipe's and cell's variables, the later winning.
    pub trial_env: BTreeMap<String, String>,
    /// Trials.
    pub trials: u32,
    /// Steps per trial.
    pub steps: u32,
    /// Recipe's and cell's configuration, the cell's winning key by key.
    pub workload_config: JsonMap<String, Json>,
}

impl Cell {
    /// The configuration of one trial, as AORTA injects it (integration notes, section 2).
    pub fn trial_config(&self) -> JsonMap<String, Json> {
        let mut config = self.workload_config.clone();
        config.insert("steps".into(), self.steps.into());
        config.insert("_aorta_environment".into(), self.environment.to_config());
        config.insert("_aorta_trial_isolation".into(), "process".into());
        config.insert("_aorta_trial_env".into(), serde_json::json!(self.trial_env));
        config
    }
}

/// What is wrong with a recipe: the field, the rule, the remedy, the place.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("recipe: {key} {rule}{}", .at.map(|at| format!(" ({at})")).unwrap_or_default())]
pub struct RecipeError {
    /// The field, with its path: `cells[1].mitigations`.
    pub key: String,
    /// The rule that is broken, the value included.
    pub rule: String,
    /// What to do.
    pub hint: String,
    /// Where.
    pub at: Option<Pos>,
}

fn fail<T>(
    key: impl Into<String>,
    at: Pos,
    rule: impl Into<String>,
    hint: impl Into<String>,
) -> Result<T, RecipeError> {
    Err(RecipeError { key: key.into(), rule: rule.into(), hint: hint.into(), at: Some(at) })
}

/// Keys of the recipe itself.
const TOP: [&str; 13] = [
    "schema_version",
    "workload",
    "trials",
    "steps",
    "cells",
    "mode",
    "ticket",
    "workload_config",
    "extra_env",
    "save_logs",
    "trial_isolation",
    "confound",
    "stop_after",
];
/// Keys of a cell.
const CELL: [&str; 7] = ["name", "mitigations", "environment", "extra_env", "trials", "steps", "workload_config"];

/// Reads a recipe.
pub fn read(root: &Value, registry: &Registry) -> Result<Recipe, RecipeError> {
    let top = Fields::of("", root, &TOP)?;
    match top.get("schema_version").map(|v| (&v.node, v.at)) {
        Some((Node::Int(1), _)) => {}
        Some((_, at)) => return fail("schema_version", at, "must be the integer 1", "write `schema_version: 1`"),
        None => return fail("schema_version", root.at, "is required", "write `schema_version: 1`"),
    }
    if let Some(mode) = top.text("mode")?
        && mode != "triage"
    {
        return fail("mode", top.at("mode"), format!("is {mode:?}; only triage recipes are run here"), "leave it out");
    }
    let workload = top.required_text("workload", "name the workload, ts_bench")?;
    if !WORKLOADS.contains(&workload.as_str()) {
        let hint = "run other workloads with AORTA itself";
        return fail(
            "workload",
            top.at("workload"),
            format!("is {workload:?}, must be ts_bench or tokenspeed_serve"),
            hint,
        );
    }
    let trials = top.required_count("trials")?;
    let steps = top.required_count("steps")?;
    let stop_after = top.get("stop_after").map(stop_after).transpose()?;
    let extra_env = top.env("extra_env")?;
    let shared = workload_config("workload_config", top.get("workload_config"))?;
    let confound =
        top.get("confound").map(|v| Fields::of("confound.", v, &["threshold", "baseline_cell"])).transpose()?;
    let cells = cells(&top, root.at, &Shared { trials, steps, extra_env, config: shared, stop_after }, registry)?;
    let trial_isolation = top.text("trial_isolation")?.unwrap_or_else(|| "auto".into());
    if !["auto", "in_process", "process"].contains(&trial_isolation.as_str()) {
        let rule = format!("is {trial_isolation:?}, must be auto, in_process or process");
        return fail("trial_isolation", top.at("trial_isolation"), rule, "leave it out");
    }
    let (threshold, baseline) = match &confound {
        None => (DEFAULT_THRESHOLD, None),
        Some(fields) => (threshold(fields)?, fields.text("baseline_cell")?),
    };
    if let (Some(name), Some(fields)) = (&baseline, &confound)
        && !cells.iter().any(|cell| cell.name == *name)
    {
        let rule = format!("is {name:?}, which no cell is called");
        return fail("confound.baseline_cell", fields.at("baseline_cell"), rule, "name one of the cells");
    }
    let names: Vec<(&str, &[String])> = cells.iter().map(|c| (c.name.as_str(), c.mitigations.as_slice())).collect();
    if super::confound::resolve_baseline(&names, baseline.as_deref(), |_| false).is_none() {
        let hint = "call one cell baseline-*, give one the mitigations [none], or set confound.baseline_cell";
        return fail("cells", top.at("cells"), "have no baseline to compare with", hint);
    }
    let save_logs = match top.get("save_logs").map(|v| (&v.node, v.at)) {
        None => false,
        Some((Node::Bool(on), _)) => *on,
        Some((_, at)) => return fail("save_logs", at, "must be true or false", "write true or false"),
    };
    let ticket = top.text("ticket")?;
    Ok(Recipe { workload, ticket, trials, steps, save_logs, trial_isolation, threshold, baseline, stop_after, cells })
}

fn threshold(fields: &Fields<'_>) -> Result<f64, RecipeError> {
    let Some(value) = fields.get("threshold") else { return Ok(DEFAULT_THRESHOLD) };
    #[expect(clippy::cast_precision_loss, reason = "a ratio near 1")]
    let number = match value.node {
        Node::Int(whole) => whole as f64,
        Node::Float(float) => float,
        Node::Null | Node::Bool(_) | Node::BigInt(_) | Node::Str(_) | Node::Date(_) | Node::Seq(_) | Node::Map(_) => {
            f64::NAN
        }
    };
    if number.is_finite() && number > 0.0 {
        return Ok(number);
    }
    fail("confound.threshold", value.at, format!("must be a number above 0, got {}", value.shown()), "1.15 is usual")
}

fn stop_after(value: &Value) -> Result<StopAfter, RecipeError> {
    use super::trial::Verdict;
    let fields = Fields::of("stop_after.", value, &["events", "max_trials", "event_verdict"])?;
    let events = fields.required_count("events")?;
    let max_trials = fields.required_count("max_trials")?;
    if max_trials < events {
        let rule = format!("is {max_trials}, below events ({events})");
        return fail("stop_after.max_trials", fields.at("max_trials"), rule, "allow at least as many trials as events");
    }
    let event = match fields.text("event_verdict")?.as_deref() {
        None | Some("fail") => Verdict::Fail,
        Some("pass") => Verdict::Pass,
        Some("error") => Verdict::Error,
        Some(other) => {
            let rule = format!("is {other:?}, must be fail, pass or error");
            return fail("stop_after.event_verdict", fields.at("event_verdict"), rule, "leave it out for fail");
        }
    };
    Ok(StopAfter { events, max_trials, event })
}

/// What cells take from the recipe.
struct Shared {
    trials: u32,
    steps: u32,
    extra_env: BTreeMap<String, String>,
    config: JsonMap<String, Json>,
    stop_after: Option<StopAfter>,
}

fn cells(top: &Fields<'_>, at: Pos, shared: &Shared, registry: &Registry) -> Result<Vec<Cell>, RecipeError> {
    let Some(list) = top.get("cells") else { return fail("cells", at, "are required", "list at least one cell") };
    let items = list.as_seq().unwrap_or_default();
    if items.is_empty() {
        return fail("cells", list.at, "must be a list of at least one cell", "list at least one cell");
    }
    let mut names = BTreeSet::new();
    let mut cells = vec![];
    for (index, item) in items.iter().enumerate() {
        let path = format!("cells[{index}].");
        let cell = cell(&Fields::of(&path, item, &CELL)?, item.at, shared, registry)?;
        if !names.insert(cell.name.clone()) {
            let rule = format!("is {:?}, which another cell is called", cell.name);
            return fail(format!("{path}name"), item.at, rule, "give every cell a name of its own");
        }
        cells.push(cell);
    }
    Ok(cells)
}

fn cell(fields: &Fields<'_>, at: Pos, shared: &Shared, registry: &Registry) -> Result<Cell, RecipeError> {
    let name = fields.required_text("name", "give the cell a name")?;
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let sound = name.starts_with(first) && name.chars().all(|c| first(c) || c == '.' || c == '-');
    if !sound || ["matrix.md", "matrix.json"].contains(&name.as_str()) {
        let hint = "use letters, digits, `_`, `.` and `-`, beginning with a letter, a digit or `_`";
        return fail(fields.path("name"), fields.at("name"), format!("is {name:?}, which cannot name a folder"), hint);
    }
    let mitigations = mitigations(fields, at)?;
    let environment = match fields.get("environment") {
        None => return fail(fields.path("environment"), at, "is required", "write `environment: local`"),
        Some(value) => environment(fields, value, registry)?,
    };
    let extra_env = fields.env("extra_env")?;
    let mut trial_env = environment.env().clone();
    trial_env.extend(resolve(fields, &mitigations, registry)?);
    trial_env.extend(shared.extra_env.clone());
    trial_env.extend(extra_env.clone());
    if shared.stop_after.is_some() && fields.get("trials").is_some() {
        let hint = "leave it out: the cap is stop_after.max_trials";
        return fail(fields.path("trials"), fields.at("trials"), "cannot stand beside stop_after", hint);
    }
    let mut config = shared.config.clone();
    config.extend(workload_config(&fields.path("workload_config"), fields.get("workload_config"))?);
    Ok(Cell {
        trials: fields.count("trials")?.unwrap_or_else(|| shared.stop_after.map_or(shared.trials, |s| s.max_trials)),
        steps: fields.count("steps")?.unwrap_or(shared.steps),
        workload_config: config,
        name,
        mitigations,
        environment,
        extra_env,
        trial_env,
    })
}

fn mitigations(fields: &Fields<'_>, at: Pos) -> Result<Vec<String>, RecipeError> {
    let key = fields.path("mitigations");
    let hint = "list registry names, [none] for the baseline";
    let Some(value) = fields.get("mitigations") else { return fail(key, at, "are required", hint) };
    let names: Option<Vec<String>> =
        value.as_seq().map(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect()).unwrap_or_default();
    match names {
        Some(names) if !names.is_empty() => Ok(names),
        _ => fail(key, value.at, format!("must be a list of at least one name, got {}", value.shown()), hint),
    }
}

/// The variables of stacked mitigations, which must not disagree.
fn resolve(
    fields: &Fields<'_>,
    names: &[String],
    registry: &Registry,
) -> Result<BTreeMap<String, String>, RecipeError> {
    let (key, at) = (fields.path("mitigations"), fields.at("mitigations"));
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for name in names {
        let Some(bundle) = registry.mitigation(name) else {
            let near = crate::config::keys::nearest(name, registry.mitigation_names());
            let hint =
                near.map_or_else(|| "see `aorta mitigations list`".into(), |near| format!("did you mean {near}?"));
            return fail(key, at, format!("name {name:?}, which is not registered"), hint);
        };
        for (variable, value) in bundle {
            if let Some(other) = env.insert(variable.clone(), value.clone())
                && other != *value
            {
                let rule = format!("disagree on {variable}: {other:?} and {value:?}");
                return fail(key, at, rule, "stack mitigations that set different variables");
            }
        }
    }
    Ok(env)
}

fn environment(fields: &Fields<'_>, value: &Value, registry: &Registry) -> Result<CellEnvironment, RecipeError> {
    let key = fields.path("environment");
    if let Some(name) = value.as_str() {
        return match registry.environment(name) {
            Some(Ok(environment)) => Ok(environment),
            Some(Err(unsupported)) => {
                fail(key, value.at, format!("is {name:?}, which {unsupported}"), "use local or an image")
            }
            None => {
                fail(key, value.at, format!("is {name:?}, which is not registered"), "use local, or {docker: IMAGE}")
            }
        };
    }
    let inline = Fields::of(&format!("{key}."), value, &["docker", "env"])?;
    let image = inline.required_text("docker", "name the image")?;
    Ok(CellEnvironment::inline(image, inline.env("env")?))
}

fn workload_config(key: &str, value: Option<&Value>) -> Result<JsonMap<String, Json>, RecipeError> {
    let Some(value) = value else { return Ok(JsonMap::new()) };
    let Some(map) = value.as_map() else {
        return fail(key, value.at, format!("must be a mapping, got {}", value.shown()), "write `key: value` lines");
    };
    let mut config = JsonMap::new();
    for (name, value) in map.iter() {
        let Some(text) = name.as_str() else {
            return fail(key, name.at, format!("has the key {}, keys must be strings", name.shown()), "quote it");
        };
        if text == "steps" || text.starts_with("_aorta_") {
            let hint = "steps belong to the recipe or the cell; _aorta_* keys are the platform's";
            return fail(format!("{key}.{text}"), name.at, "cannot be set here", hint);
        }
        config.insert(text.to_owned(), value.to_json());
    }
    Ok(config)
}

/// The fields of one mapping, with the path that messages name.
struct Fields<'a> {
    prefix: String,
    map: &'a Map,
    at: Pos,
}

impl<'a> Fields<'a> {
    fn of(prefix: &str, value: &'a Value, known: &[&str]) -> Result<Self, RecipeError> {
        let shown = if prefix.is_empty() { "the recipe" } else { prefix.trim_end_matches('.') };
        let Some(map) = value.as_map() else {
            return fail(
                shown,
                value.at,
                format!("must be a mapping, not {}", value.kind()),
                "write `key: value` lines",
            );
        };
        for (key, _) in map.iter() {
            let name = key.text().unwrap_or_default();
            if !known.contains(&name.as_str()) {
                let near = crate::config::keys::nearest(&name, known.iter().copied());
                let hint =
                    near.map_or_else(|| format!("supported: {}", known.join(", ")), |n| format!("did you mean {n}?"));
                return fail(format!("{prefix}{name}"), key.at, "is not supported", hint);
            }
        }
        Ok(Self { prefix: prefix.to_owned(), map, at: value.at })
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    fn at(&self, key: &str) -> Pos {
        self.get(key).map_or(self.at, |value| value.at)
    }

    fn text(&self, key: &str) -> Result<Option<String>, RecipeError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) if value.is_null() => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => fail(self.path(key), value.at, format!("must be a string, got {}", value.shown()), "quote it"),
            },
        }
    }

    fn required_text(&self, key: &str, hint: &str) -> Result<String, RecipeError> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => fail(self.path(key), self.at(key), "is required", hint),
        }
    }

    fn count(&self, key: &str) -> Result<Option<u32>, RecipeError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number =
            if let Node::Int(number) = value.node { u32::try_from(number).ok().filter(|n| *n >= 1) } else { None };
        match number {
            Some(number) => Ok(Some(number)),
            None => fail(
                self.path(key),
                value.at,
                format!("must be an integer of at least 1, got {}", value.shown()),
                "write a count",
            ),
        }
    }

    fn required_count(&self, key: &str) -> Result<u32, RecipeError> {
        match self.count(key)? {
            Some(count) => Ok(count),
            None => fail(self.path(key), self.at, "is required", "write a count of at least 1"),
        }
    }

    fn env(&self, key: &str) -> Result<BTreeMap<String, String>, RecipeError> {
        let Some(value) = self.get(key) else { return Ok(BTreeMap::new()) };
        let Some(map) = value.as_map() else {
            return fail(
                self.path(key),
                value.at,
                format!("must be a mapping, got {}", value.shown()),
                "write NAME: \"value\"",
            );
        };
        let mut env = BTreeMap::new();
        for (name, value) in map.iter() {
            let text = name.text().unwrap_or_default();
            if !guard::is_name(&text) {
                return fail(
                    self.path(key),
                    name.at,
                    format!("has {text:?}, which is no variable name"),
                    "use [A-Za-z_][A-Za-z0-9_]*",
                );
            }
            match value.as_str() {
                Some(content) if !content.contains('\0') => {
                    env.insert(text, content.to_owned());
                }
                // The value may be a secret that was mistyped: it is not repeated.
                _ => {
                    return fail(
                        format!("{}.{text}", self.path(key)),
                        value.at,
                        "must be a string without NUL",
                        "quote the value",
                    );
                }
            }
        }
        Ok(env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    fn parse(text: &str) -> Result<Recipe, RecipeError> {
        read(&yaml::parse(text).unwrap().root, &Registry::builtin())
    }

    const SOUND: &str = "
schema_version: 1
workload: ts_bench
trials: 2
steps: 3
workload_config: {num_prompts: 8, model: a}
extra_env: {A: 'recipe', B: 'recipe'}
cells:
  - {name: baseline-x, mitigations: [none], environment: local}
  - name: b
    mitigations: [hsa_no_sdma, xnack]
    environment: {docker: 'example/image:1', env: {INL: y, HSA_XNACK: '7'}}
    extra_env: {B: 'cell'}
    trials: 1
    steps: 5
    workload_config: {model: b}
";

    #[test]
    fn cells_take_what_they_do_not_say_from_the_recipe() {
        let recipe = parse(SOUND).unwrap();
        let [first, second] = &recipe.cells[..] else { panic!("two cells") };
        assert_eq!((first.trials, first.steps, second.trials, second.steps), (2, 3, 1, 5));
        assert_eq!(second.workload_config["model"], "b");
        assert_eq!(second.workload_config["num_prompts"], 8);
        // Environment < mitigations < recipe < cell.
        let expected = [("A", "recipe"), ("B", "cell"), ("HSA_ENABLE_SDMA", "0"), ("HSA_XNACK", "1"), ("INL", "y")];
        let env: Vec<(&str, &str)> = second.trial_env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(env, expected);
        assert_eq!(second.trial_config()["_aorta_environment"]["docker"], "example/image:1");
        assert!((recipe.threshold - 1.15).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (change, key) in [
            (("steps: 3", "steps: 3\ncollect: [rocprof]"), "collect"),
            (("steps: 3", "steps: true"), "steps"),
            (("steps: 3", "steps: 0"), "steps"),
            (("steps: 3", "steps: 3\nmode: probe"), "mode"),
            (("schema_version: 1", "schema_version: 2"), "schema_version"),
            (("workload: ts_bench", "workload: race"), "workload"),
            (("num_prompts: 8", "steps: 8"), "workload_config.steps"),
            (("num_prompts: 8", "_aorta_x: 8"), "workload_config._aorta_x"),
            (("A: 'recipe'", "A: 1"), "extra_env.A"),
            (("A: 'recipe'", "'A-': 'x'"), "extra_env"),
            (("mitigations: [none]", "mitigations: []"), "cells[0].mitigations"),
            (("mitigations: [none]", "mitigations: [hsa_no_smda]"), "cells[0].mitigations"),
            (("hsa_no_sdma, xnack", "hsa_enable_cache, hsa_disable_cache"), "cells[1].mitigations"),
            (("environment: local", "environment: emulated-rocjitsu"), "cells[0].environment"),
            (("environment: local", "environment: nowhere"), "cells[0].environment"),
            (("name: b\n", "name: baseline-x\n"), "cells[1].name"),
            (("name: b\n", "name: ../b\n"), "cells[1].name"),
            (("name: b\n", "name: b\n    retries: 2\n"), "cells[1].retries"),
            (("steps: 3", "steps: 3\nconfound: {baseline_cell: nobody}"), "confound.baseline_cell"),
            (("steps: 3", "steps: 3\nconfound: {threshold: 0}"), "confound.threshold"),
            (("steps: 3", "steps: 3\nstop_after: {events: 2, max_trials: 1}"), "stop_after.max_trials"),
            (("steps: 3", "steps: 3\nstop_after: {events: 1, max_trials: 2}"), "cells[1].trials"),
        ] {
            let text = SOUND.replacen(change.0, change.1, 1);
            assert_ne!(text, SOUND, "{change:?}");
            let error = parse(&text).expect_err(key);
            assert_eq!(error.key, key, "{error}");
            assert!(!error.hint.is_empty());
        }
        assert!(
            parse(&SOUND.replacen("hsa_no_sdma, xnack", "hsa_no_smda", 1)).unwrap_err().hint.contains("hsa_no_sdma")
        );
    }

    #[test]
    fn a_recipe_without_a_baseline_is_refused() {
        let text = SOUND.replacen("baseline-x, mitigations: [none]", "x, mitigations: [xnack]", 1);
        assert_eq!(parse(&text).unwrap_err().key, "cells");
    }
}
