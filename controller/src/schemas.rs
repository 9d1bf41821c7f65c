//! JSON Schemas of documents that are read by hand, because their readers say where and why a field is wrong: AORTA
//! recipes, and the leg files of the mixed-load client.

use serde_json::{Value, json};

use crate::config::schema;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A recipe of AORTA, mode triage, as `controller sweep` takes it (integration notes, section 5).
pub fn recipe() -> Value {
    let count = json!({"type": "integer", "minimum": 1});
    let env = json!({"type": "object", "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": "string"}});
    let mut config = schema::config();
    if let Some(object) = config.as_object_mut() {
        object.remove("$schema");
        object.insert("title".into(), "workload_config".into());
        // AORTA injects these itself; a recipe that holds them is refused.
        let injected = json!({"anyOf": [{"const": "steps"}, {"pattern": "^_aorta_"}]});
        object.insert("propertyNames".into(), json!({ "not": injected }));
    }
    let cell = json!({
        "type": "object",
        "required": ["name", "mitigations", "environment"],
        "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$", "not": {"enum": ["matrix.md", "matrix.json"]}},
            "mitigations": {"type": "array", "minItems": 1, "items": {"type": "string"},
                "description": "Registry names; [none] for the baseline."},
            "environment": {
                "description": "A registered name, or an image.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "required": ["docker"], "additionalProperties": false,
                        "properties": {"docker": {"type": "string"}, "env": env}},
                ],
            },
            "extra_env": env,
            "trials": count,
            "steps": count,
            "workload_config": {"$ref": "#/$defs/workload_config"},
        },
    });
    json!({
        "$schema": DRAFT,
        "title": "Recipe of AORTA, mode triage",
        "type": "object",
        "required": ["schema_version", "workload", "trials", "steps", "cells"],
        "additionalProperties": false,
        "properties": {
            "schema_version": {"const": 1},
            "mode": {"const": "triage"},
            "workload": {"enum": crate::sweep::recipe::WORKLOADS},
            "ticket": {"type": "string"},
            "trials": count,
            "steps": count,
            "workload_config": {"$ref": "#/$defs/workload_config"},
            "extra_env": env,
            "save_logs": {"type": "boolean"},
            "trial_isolation": {"enum": ["auto", "in_process", "process"]},
            "confound": {"type": "object", "additionalProperties": false, "properties": {
                "threshold": {"type": "number", "exclusiveMinimum": 0, "default": 1.15},
                "baseline_cell": {"type": "string"}}},
            "stop_after": {"type": "object", "required": ["events", "max_trials"], "additionalProperties": false,
                "properties": {"events": count, "max_trials": count, "event_verdict": {"enum": ["fail", "pass", "error"]}}},
            "cells": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/cell"}},
        },
        "$defs": {"cell": cell, "workload_config": config},
    })
}

/// A leg file of the mixed-load client with its records (harness spec B.6 and B.8; our own fields from design section 7).
pub fn record() -> Value {
    let maybe_seconds = json!({"type": ["number", "null"], "minimum": 0});
    let count = json!({"type": "integer", "minimum": 0});
    let record = json!({
        "type": "object",
        "description": "One request. A failed one keeps only ok, err, i, id, band, phase and t_dispatch of the published fields.",
        "required": ["ok", "i", "id", "band", "phase", "t_dispatch"],
        "properties": {
            "ok": {"type": "boolean"},
            "err": {"type": "string"},
            "i": {"type": "integer", "minimum": 0, "description": "Index within its phase."},
            "id": {"type": "string"},
            "band": {"type": "string"},
            "phase": {"enum": ["warmup", "measured"]},
            "t_dispatch": {"type": "number", "description": "Seconds since the phase began."},
            "ttft": maybe_seconds,
            "latency": {"type": "number", "minimum": 0, "description": "Seconds."},
            "n_chunks": count,
            "first_chunk_chars": count,
            "total_chars": count,
            "itls": {"type": "array", "items": {"type": "number"}, "description": "Gaps between chunks, seconds."},
            "usage": {"type": ["object", "null"], "description": "As the server sent it."},
            "accepted_draft_tokens": {"type": ["number", "null"]},
        },
        "if": {"properties": {"ok": {"const": true}}},
        "then": {"required": ["ttft", "latency", "n_chunks", "first_chunk_chars", "total_chars", "itls", "usage"]},
        "else": {"required": ["err"]},
    });
    json!({
        "$schema": DRAFT,
        "title": "Leg file of the mixed-load client",
        "type": "object",
        "required": ["summary", "config", "metrics_before", "metrics_after", "records"],
        "properties": {
            "summary": {"type": "object", "required": ["leg", "arm", "round", "concurrency", "warmup_requests",
                "measured_requests", "warm_wall_s", "measured_wall_s", "headline_warm", "headline_all"]},
            "config": {"type": "object"},
            "metrics_before": {"$ref": "#/$defs/scrape"},
            "metrics_after": {"$ref": "#/$defs/scrape"},
            "records": {"type": "array", "items": {"$ref": "#/$defs/record"}},
        },
        "$defs": {
            "record": record,
            "scrape": {"type": "object", "required": ["available"], "properties": {"available": {"type": "boolean"},
                "counters": {"type": "object", "additionalProperties": {"type": "number"}}, "error": {"type": "string"}}},
        },
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn files(dir: &str, extension: &str) -> Vec<PathBuf> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir);
        let all = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let list: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
        assert!(!list.is_empty(), "{}", dir.display());
        list
    }

    #[test]
    fn every_recipe_of_ours_fits_and_bad_ones_do_not() {
        let validator = jsonschema::draft202012::new(&recipe()).unwrap();
        for file in files("recipes/tokenspeed", "yaml").into_iter().chain(files("recipes", "yaml")) {
            let value = crate::config::source::read(&file).unwrap().root.to_json();
            let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", file.display());
        }
        let good = json!({"schema_version": 1, "workload": "ts_bench", "trials": 1, "steps": 1,
            "cells": [{"name": "a", "mitigations": ["none"], "environment": {"docker": "x", "env": {"A": "b"}}}]});
        assert!(validator.is_valid(&good));
        for (pointer, bad) in [
            ("/schema_version", json!(2)),
            ("/trials", json!(0)),
            ("/trials", json!(true)),
            ("/workload", json!("fsdp")),
            ("/cells", json!([])),
            ("/cells/0/name", json!("a/b")),
            ("/cells/0/mitigations", json!([])),
            ("/cells/0/environment", json!({"env": {}})),
            ("/cells/0/environment/env/A", json!(1)),
        ] {
            let mut value = good.clone();
            *value.pointer_mut(pointer).unwrap() = bad;
            assert!(!validator.is_valid(&value), "{pointer}");
        }
        for (key, bad) in [
            ("workload_config", json!({"steps": 3})),
            ("workload_config", json!({"_aorta_trial_env": {}})),
            ("workload_config", json!({"num_prompts": 0})),
            ("condition", json!("x")),
            ("stop_after", json!({"events": 1})),
        ] {
            let mut value = good.clone();
            value[key] = bad;
            assert!(!validator.is_valid(&value), "{key}");
        }
    }

    #[test]
    fn published_leg_files_fit() {
        let validator = jsonschema::draft202012::new(&record()).unwrap();
        let mut legs = 0;
        // The other cases hold legs of older clients, or odd ones on purpose; the report reads those leniently.
        for file in files("tests/fixtures/variadic/report/r1-two-arms/legs", "json") {
            let value: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", file.display());
            legs += 1;
            let mut broken = value;
            broken["records"][0]["phase"] = json!("later");
            assert!(!validator.is_valid(&broken), "{}", file.display());
        }
        assert!(legs > 4, "{legs}");
    }
}
