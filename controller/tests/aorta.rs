//! AORTA's own trial documents through our aggregation: its matrix, figure by figure and line by line.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its fixture must fail")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use controller::sweep::cell::{CellIdentity, CellStats};
use controller::sweep::confound::{Confound, classify};
use controller::sweep::filed;
use controller::sweep::matrix::{Row, RunHeader, json_document, matrix_markdown, perf_markdown};
use serde_json::{Map, Value};

fn fixture(set: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/aorta").join(set).join(name)
}

fn text(set: &str, name: &str) -> String {
    std::fs::read_to_string(fixture(set, name)).unwrap()
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A cell of the golden matrix, aggregated by us from its trials; the first one stands for all of a cell, which
/// differ in their wall clock alone.
fn aggregated(set: &str, golden: &Value, steps: u32) -> Option<CellStats> {
    let name = golden["name"].as_str().unwrap();
    let trial = filed::read(&fixture(set, &format!("trials/{name}.json")))?.record;
    let count = usize::try_from(golden["trials"].as_u64().unwrap()).unwrap();
    let identity = CellIdentity {
        name: name.to_owned(),
        mitigations: serde_json::from_value(golden["mitigations"].clone()).unwrap(),
        environment: golden["environment"].as_str().unwrap().to_owned(),
        extra_env: strings(&golden["extra_env"]),
        resolved_env_vars: strings(&golden["resolved_env_vars"]),
        workload_config: object(&golden["workload_config"]),
        steps,
    };
    let paths = serde_json::from_value(golden["trial_paths"].clone()).unwrap();
    Some(CellStats::aggregate(identity, &vec![trial; count], paths, None))
}

fn header(golden: &Value) -> RunHeader {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    RunHeader {
        workload: text(&golden["workload"]),
        ticket: golden["ticket"].as_str().map(str::to_owned),
        trial_isolation: text(&golden["trial_isolation"]),
        trial_isolation_requested: text(&golden["trial_isolation_requested"]),
        trials: u32::try_from(golden["trials_per_cell"].as_u64().unwrap()).unwrap(),
        steps: u32::try_from(golden["steps_per_trial"].as_u64().unwrap()).unwrap(),
        timestamp: text(&golden["run_timestamp"]),
        baseline: golden["baseline_cell"].as_str().map(str::to_owned),
        threshold: golden["confound"]["threshold"].as_f64().unwrap(),
        baseline_configured: golden["confound"]["baseline_cell_configured"].as_str().map(str::to_owned),
        stop_after: None,
        warnings: serde_json::from_value(golden["warnings"].clone()).unwrap(),
        recipe_path: text(&golden["recipe_source"]["path"]),
        recipe_sha256: text(&golden["recipe_source"]["sha256"]),
        resolved_sha256: text(&golden["recipe_source"]["resolved_sha256"]),
        version: text(&golden["runtime_provenance"]["package_version"]),
    }
}

/// Paths at which two values differ; doubles may differ in their last digits.
fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(mine), Value::Object(other)) => {
            let keys: Vec<&String> = mine.keys().collect();
            if keys != other.keys().collect::<Vec<_>>() && !path.contains("env") {
                found.push(format!("{path}: keys {keys:?} and {:?}", other.keys().collect::<Vec<_>>()));
            }
            for (key, value) in mine {
                differences(&format!("{path}.{key}"), value, other.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(mine), Value::Array(other)) if mine.len() == other.len() => {
            for (at, (mine, other)) in mine.iter().zip(other).enumerate() {
                differences(&format!("{path}[{at}]"), mine, other, found);
            }
        }
        (Value::Number(mine), Value::Number(other)) if mine.is_f64() && other.is_f64() => {
            let (mine, other) = (mine.as_f64().unwrap(), other.as_f64().unwrap());
            if (mine - other).abs() > other.abs() * 1e-12 {
                found.push(format!("{path}: {mine} and {other}"));
            }
        }
        (mine, other) if mine == other => {}
        (mine, other) => found.push(format!("{path}: {mine} and {other}")),
    }
}

fn golden(set: &str) -> Value {
    serde_json::from_str(&text(set, "matrix.json")).unwrap()
}

fn rows<'a>(golden: &Value, cells: &'a [CellStats]) -> Vec<Row<'a>> {
    let baseline = cells.iter().find(|cell| golden["baseline_cell"] == cell.identity.name);
    let threshold = golden["confound"]["threshold"].as_f64().unwrap();
    let environment = |cell: &CellStats| {
        let all = golden["cells"].as_array().unwrap();
        all.iter().find(|known| known["name"] == cell.identity.name).unwrap()["resolved_environment"].clone()
    };
    cells
        .iter()
        .map(|cell| Row { cell, confound: classify(cell, baseline, threshold), environment: environment(cell) })
        .collect()
}

/// Headings, head lines, hints and tables; prose is everybody's own.
fn said(markdown: &str) -> Vec<&str> {
    let hint = |line: &str| line.starts_with("- **") && line.contains(" trials): ");
    markdown.lines().filter(|line| line.starts_with(['#', '|', '*']) || hint(line)).collect()
}

/// Seventeen cells of AORTA's own serving workload, one trial each: everything that can go wrong.
#[test]
fn the_serving_matrix_is_aortas() {
    let golden = golden("serve");
    let steps = u32::try_from(golden["steps_per_trial"].as_u64().unwrap()).unwrap();
    let cells: Vec<CellStats> =
        golden["cells"].as_array().unwrap().iter().map(|cell| aggregated("serve", cell, steps).unwrap()).collect();
    assert_eq!(cells.len(), 17);
    let rows = rows(&golden, &cells);
    let header = header(&golden);
    let mut ours = json_document(&header, &rows);
    ours["runtime_provenance"] = golden["runtime_provenance"].clone();
    let mut found = Vec::new();
    differences("matrix", &ours, &golden, &mut found);
    assert_eq!(found, [""; 0], "{}", found.join("\n"));
    assert_eq!(said(&matrix_markdown(&header, &rows)), said(&text("serve", "matrix.md")));
    assert_eq!(said(&perf_markdown(&header, &rows)), said(&text("serve", "perf.md")));
}

/// Thirteen cells of a throw-away plugin; the trial that holds bare NaN is no JSON and is not read.
#[test]
fn the_plugins_matrix_is_aortas() {
    let golden = golden("plugin");
    let all = golden["cells"].as_array().unwrap();
    let cells: Vec<CellStats> = all.iter().filter_map(|cell| aggregated("plugin", cell, 3)).collect();
    let names: Vec<&str> = cells.iter().map(|cell| cell.identity.name.as_str()).collect();
    assert_eq!((cells.len(), names.contains(&"nanm")), (12, false));
    for row in rows(&golden, &cells) {
        let theirs = all.iter().find(|known| known["name"] == row.cell.identity.name).unwrap();
        let ours = row.cell.to_json(&row.confound.tag(), row.confound.ratio(), &row.environment);
        let mut found = Vec::new();
        differences(&row.cell.identity.name, &ours, theirs, &mut found);
        // Step times that come from the wall clock are of the second trial too.
        let of_the_clock = |line: &String| {
            line.contains("wall_clock") || (row.cell.identity.name == "notimes" && line.contains("step_time"))
        };
        found.retain(|line| !of_the_clock(line));
        assert_eq!(found, [""; 0], "{}", found.join("\n"));
    }
    let slow = cells.iter().position(|cell| cell.identity.name == "slow").unwrap();
    assert!(matches!(rows(&golden, &cells)[slow].confound, Confound::Speed(_)));
}
