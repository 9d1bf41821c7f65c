//! What was run where, by what, and in which order: written before a trial may begin and after it ended, so that a
//! killed sweep is told apart from one that never started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::plan::{Agent, Plan};
use crate::baseline::record::Trigger;
use crate::run::identity::ProcessIdentity;

/// Version of the file.
pub const SCHEMA_VERSION: u32 = 1;

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Unique among all sweeps.
    pub run_id: String,
    /// Of the first session, RFC 3339.
    pub started_at: String,
    /// Why it was started first.
    pub trigger: Trigger,
    /// Path, as given, and digest of the recipe's bytes.
    pub recipe: RecipeSource,
    /// Version of this program.
    pub controller_version: String,
    /// Where it runs.
    pub host: Host,
    /// By cell.
    pub agents: BTreeMap<String, Agent>,
    /// Ids of the images that were on this host when a session began, by cell.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// The recipe, every name resolved.
    pub resolved: Value,
    /// One per call.
    pub sessions: Vec<Session>,
    /// One per start of a trial, in order.
    pub attempts: Vec<Attempt>,
}

/// Which recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecipeSource {
    /// As given.
    pub path: String,
    /// Of its bytes, hex.
    pub sha256: String,
}

/// Which machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Logical processors.
    pub cpus: Option<usize>,
}

impl Host {
    /// This one.
    pub fn current() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            name: nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()),
            kernel: kernel.map(|text| text.trim().to_owned()),
            cpus: std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        }
    }
}

/// One call of `controller sweep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// RFC 3339.
    pub started_at: String,
    /// Name of the machine.
    #[serde(default)]
    pub host: Option<String>,
    /// How it ended: `complete`, or the signal; null while it runs, and for good where it was killed.
    pub end: Option<String>,
}

/// One start of one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Name of the cell.
    pub cell: String,
    /// From 0.
    pub trial: u32,
    /// Position in `sessions`.
    pub session: usize,
    /// RFC 3339.
    pub started_at: String,
    /// The trial's controller.
    pub process: Option<ProcessIdentity>,
    /// Null while it runs, and where nobody saw the end.
    pub end: Option<AttemptEnd>,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// AORTA's word, or `interrupted`: not counted, and run again.
    pub status: String,
    /// From its start; null where nobody saw the end.
    pub wall_clock_sec: Option<f64>,
}

/// An attempt that ended without a result that counts.
pub const INTERRUPTED: &str = "interrupted";

impl Manifest {
    /// Of a sweep that begins.
    pub fn new(plan: &Plan, run_id: String, trigger: Trigger) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            run_id,
            started_at: rfc3339(OffsetDateTime::now_utc()),
            trigger,
            recipe: RecipeSource { path: plan.recipe_path.display().to_string(), sha256: plan.recipe_sha256.clone() },
            controller_version: env!("CARGO_PKG_VERSION").to_owned(),
            host: Host::current(),
            agents: BTreeMap::new(),
            images: BTreeMap::new(),
            resolved: plan.resolved(),
            sessions: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// When the sweep began.
    pub fn started(&self) -> OffsetDateTime {
        OffsetDateTime::parse(&self.started_at, &Rfc3339).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Begins a session and takes note of the agents that it runs.
    pub fn begin_session(&mut self, plan: &Plan) {
        let host = Host::current().name;
        self.sessions.push(Session { started_at: rfc3339(OffsetDateTime::now_utc()), host, end: None });
        for (_, cell) in plan.selected() {
            if let Some(agent) = &cell.agent {
                self.agents.insert(cell.cell.name.clone(), agent.clone());
            }
            if let Some(image) = &cell.image_id {
                self.images.insert(cell.cell.name.clone(), image.clone());
            }
        }
    }

    /// Machines that the sessions ran on, each once.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.sessions.iter().filter_map(|session| session.host.as_deref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// What differs between the sweep on disk and the plan, in words; trials may grow or shrink, all else may not
    /// (review finding D-02).
    pub fn differences(&self, plan: &Plan) -> Vec<String> {
        let mut found = Vec::new();
        differences("", &without_trials(&self.resolved), &without_trials(&plan.resolved()), &mut found);
        let version = env!("CARGO_PKG_VERSION");
        if self.controller_version != version {
            found.push(format!("controller version: {} then, {version} now", self.controller_version));
        }
        for (_, cell) in plan.selected() {
            let name = &cell.cell.name;
            if let (Some(then), Some(now)) = (self.images.get(name), &cell.image_id)
                && then != now
            {
                found.push(format!("image of {name}: {then} then, {now} now"));
            }
            if let (Some(then), Some(now)) = (self.agents.get(&cell.cell.name), &cell.agent)
                && then.sha256 != now.sha256
            {
                let short = |agent: &Agent| agent.sha256.get(..12).unwrap_or("").to_owned();
                let line =
                    format!("agent: sha256 {}.. then, {}.. now ({})", short(then), short(now), now.path.display());
                if !found.contains(&line) {
                    found.push(line);
                }
            }
        }
        found
    }
}

/// A wall clock as files hold it.
pub fn rfc3339(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_default()
}

/// The resolved recipe without counts of trials, cells by name.
fn without_trials(resolved: &Value) -> Value {
    let mut value = resolved.clone();
    let Some(top) = value.as_object_mut() else { return value };
    top.remove("trials");
    // Where trials are written and how they are isolated changes no figure.
    top.remove("save_logs");
    top.remove("trial_isolation");
    let cells = match top.remove("cells") {
        Some(Value::Array(cells)) => cells,
        _ => Vec::new(),
    };
    let named = cells.into_iter().filter_map(|mut cell| {
        let fields = cell.as_object_mut()?;
        fields.remove("trials");
        Some((fields.get("name")?.as_str()?.to_owned(), cell))
    });
    top.insert("cells".into(), Value::Object(named.collect()));
    value
}

/// Paths at which two documents differ; values are shown, except those of variables.
fn differences(path: &str, then: &Value, now: &Value, found: &mut Vec<String>) {
    if let (Value::Object(then), Value::Object(now)) = (then, now) {
        let keys: std::collections::BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        for key in keys {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let null = &Value::Null;
            differences(&path, then.get(key).unwrap_or(null), now.get(key).unwrap_or(null), found);
        }
        return;
    }
    if then == now {
        return;
    }
    let secret = path.contains(".extra_env") || path.contains(".env");
    let shown = |value: &Value| match value {
        Value::Null => "absent".to_owned(),
        Value::Object(_) => "present".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.to_string(),
    };
    found.push(if secret {
        format!("{path} differs")
    } else {
        format!("{path}: {} then, {} now", shown(then), shown(now))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::Request;
    use serde_json::json;

    fn plan(change: impl FnOnce(&mut Value)) -> Plan {
        let mut recipe = json!({"schema_version": 1, "workload": "ts_bench", "trials": 2, "steps": 1,
            "workload_config": {"model": "m", "num_prompts": 4},
            "cells": [{"name": "a", "mitigations": ["none"], "environment": "local", "extra_env": {"KEY": "old"}}]});
        change(&mut recipe);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        std::fs::write(&path, recipe.to_string()).unwrap();
        let mut plan = Plan::read(&Request { recipe: path, ..Request::default() }).unwrap();
        plan.cells[0].agent = Some(Agent { path: "agent".into(), sha256: "1".repeat(64) });
        plan.cells[0].image_id = Some("sha256:1".to_owned());
        plan
    }

    fn manifest() -> Manifest {
        let plan = plan(|_| {});
        let mut manifest = Manifest::new(&plan, "r".to_owned(), Trigger::Manual);
        manifest.begin_session(&plan);
        serde_json::from_value(serde_json::to_value(&manifest).unwrap()).unwrap()
    }

    /// D-02: a difference is named, and values of variables are not repeated.
    #[test]
    fn what_changed_is_named() {
        let then = manifest();
        assert_eq!(then.differences(&plan(|_| {})), [""; 0]);
        assert_eq!(then.differences(&plan(|r| r["trials"] = json!(5))), [""; 0], "more trials are no other question");
        assert_eq!(then.differences(&plan(|r| r["save_logs"] = json!(true))), [""; 0]);
        for (change, words) in [
            (
                json!({"workload_config": {"model": "m", "num_prompts": 5}}),
                "cells.a.workload_config.num_prompts: 4 then, 5 now",
            ),
            (json!({"steps": 2}), "cells.a.steps: 1 then, 2 now"),
            (json!({"confound": {"threshold": 2}}), "confound.threshold: 1.15 then, 2.0 now"),
            (json!({"extra_env": {"OTHER": "secret"}}), "cells.a.extra_env.OTHER differs"),
            (json!({"workload": "tokenspeed_serve"}), "workload: \"ts_bench\" then, \"tokenspeed_serve\" now"),
        ] {
            let found = then.differences(&plan(|recipe| {
                for (key, value) in change.as_object().unwrap() {
                    recipe[key] = value.clone();
                }
            }));
            assert!(found.iter().any(|line| line == words), "{words}: {found:?}");
            assert!(!found.join("").contains("secret"));
        }
        let other = json!({"name": "b", "mitigations": ["xnack"], "environment": "local"});
        let more = plan(|r| r["cells"].as_array_mut().unwrap().push(other));
        assert_eq!(then.differences(&more), ["cells.b: absent then, present now"]);
    }

    #[test]
    fn another_agent_image_or_version_is_named() {
        let mut then = manifest();
        let mut now = plan(|_| {});
        now.cells[0].agent = Some(Agent { path: "new/agent".into(), sha256: "2".repeat(64) });
        now.cells[0].image_id = Some("sha256:2".to_owned());
        then.controller_version = "0.0.1".to_owned();
        let found = then.differences(&now).join("\n");
        for part in [
            "controller version: 0.0.1 then",
            "agent: sha256 111111111111.. then",
            "image of a: sha256:1 then, sha256:2 now",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        // An image that was pulled in between is no other image.
        then.images.clear();
        assert!(!then.differences(&now).join("").contains("image"));
    }
}
