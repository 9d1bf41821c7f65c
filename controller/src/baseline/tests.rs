//! A-01 to A-12 of the review findings, by number.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bless::{BlessError, Request, Standing, bless, plan};
use super::check::{Row, Verdict, check};
use super::file::BaselineFile;
use super::record::{CellRecord, CellState, EntryRecord, RunRecord, Trigger};
use super::store;

const DAY: i64 = 86_400;
const FIRST: i64 = 1_790_000_000;
const TPOT: [f64; 10] = [1.90, 1.94, 1.92, 1.91, 2.00, 1.93, 1.95, 1.92, 1.94, 1.91];

fn cell(metrics: &[(&str, f64)]) -> CellRecord {
    CellRecord {
        state: CellState::Passed,
        reason: None,
        config_sha256: Some("c1".to_owned()),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        mean_step_time_ms: None,
        correctness: BTreeMap::new(),
    }
}

fn entry(cells: &[(&str, CellRecord)]) -> EntryRecord {
    let fingerprint = [("recipe_sha256", "H1"), ("image_digest", "I1"), ("bench_tool", "tokenspeed")];
    EntryRecord {
        fingerprint: fingerprint.iter().map(|(k, v)| ((*k).to_owned(), Some((*v).to_owned()))).collect(),
        skipped: None,
        cells: cells.iter().map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect(),
    }
}

fn run(night: i64, entries: &[(&str, EntryRecord)]) -> RunRecord {
    RunRecord {
        schema_version: 1,
        run_id: format!("run-{night}"),
        trigger: Trigger::Scheduled,
        started_at: FIRST + night * DAY,
        entries: entries.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone())).collect(),
    }
}

/// Ten nights of one entry `A` with one cell `baseline`.
fn ten(metrics: impl Fn(usize) -> Vec<(&'static str, f64)>) -> Vec<RunRecord> {
    (0..10).map(|n| run(i64::try_from(n).unwrap(), &[("A", entry(&[("baseline", cell(&metrics(n)))]))])).collect()
}

fn tpot_nights() -> Vec<RunRecord> {
    ten(|n| vec![("median_tpot_ms", TPOT[n]), ("p99_itl_ms", 20.0)])
}

fn request(metrics: &[&str]) -> Request {
    Request {
        metrics: metrics.iter().map(|m| (*m).to_owned()).collect(),
        margin: 0.25,
        nights: 10,
        entries: Vec::new(),
        include_manual: false,
        bridge_holes: false,
        allow_mixed: Vec::new(),
    }
}

fn blessed(records: &[RunRecord], metrics: &[&str]) -> BaselineFile {
    let mut file = BaselineFile::default();
    bless(records, &request(metrics), &mut file).unwrap();
    BaselineFile::parse(&file.text().unwrap()).unwrap()
}

fn refusal(records: &[RunRecord], request: &Request) -> String {
    let text = r#"{"entries": {"A": {"kept": true}}}"#;
    let mut file = BaselineFile::parse(text).unwrap();
    let before = file.text().unwrap();
    let error = bless(records, request, &mut file).unwrap_err().to_string();
    assert_eq!(file.text().unwrap(), before, "a refusal changes nothing");
    error
}

fn value(file: &BaselineFile, entry: &str, path: &str) -> Option<Value> {
    Value::Object(file.value(entry)).pointer(path).cloned()
}

fn checked(file: &BaselineFile, record: &RunRecord) -> Vec<Row> {
    check(record, file, "baseline.json", &[]).unwrap()
}

fn verdict_of(file: &BaselineFile, cells: &[(&str, CellRecord)]) -> Vec<(String, Verdict)> {
    let rows = checked(file, &run(50, &[("A", entry(cells))]));
    rows.into_iter().map(|row| (row.cell + "/" + &row.metric, row.verdict)).collect()
}

#[test]
fn a_01_the_bound_is_the_extreme_of_the_window() {
    let mut file = BaselineFile::default();
    let outcome = bless(&tpot_nights(), &request(&["median_tpot_ms"]), &mut file).unwrap();
    assert_eq!(
        value(&file, "A", "/cells/baseline/metrics/median_tpot_ms"),
        Some(json!({"policy": "max", "value": 2.5}))
    );
    let derived = &outcome.derived[0];
    assert_eq!((derived.n, derived.min, derived.max), (10, 1.90, 2.00));
    assert_eq!(Some(derived.night), tpot_nights()[4].night());
    for (observed, verdict) in [(2.49, Verdict::Pass), (2.5, Verdict::Pass), (2.5001, Verdict::Fail)] {
        let rows = verdict_of(&file, &[("baseline", cell(&[("median_tpot_ms", observed)]))]);
        assert_eq!(rows, [("baseline/median_tpot_ms".to_owned(), verdict)], "{observed}");
    }
    // Floors mirror it.
    let floor = blessed(
        &ten(|n| vec![("output_throughput", 100.0 + f64::from(u8::try_from(n).unwrap()))]),
        &["output_throughput"],
    );
    let bound = value(&floor, "A", "/cells/baseline/metrics/output_throughput");
    assert_eq!(bound, Some(json!({"policy": "min", "value": 75.0})));
}

#[test]
fn a_02_cells_have_bounds_of_their_own() {
    let two = |a: f64, b: f64| [("A", cell(&[("median_tpot_ms", a)])), ("B", cell(&[("median_tpot_ms", b)]))];
    let nights: Vec<RunRecord> = (0..10).map(|n| run(n, &[("A", entry(&two(2.0, 1.6)))])).collect();
    let file = blessed(&nights, &["median_tpot_ms"]);
    let bound = |cell: &str| value(&file, "A", &format!("/cells/{cell}/metrics/median_tpot_ms/value"));
    assert_eq!((bound("A"), bound("B")), (Some(json!(2.5)), Some(json!(2.0))));
    let rows = verdict_of(&file, &two(2.2, 2.2));
    assert_eq!(rows, [("A/median_tpot_ms".to_owned(), Verdict::Pass), ("B/median_tpot_ms".to_owned(), Verdict::Fail)]);
    // A cell without a bound is recorded; a bound without a cell is reported.
    let rows = verdict_of(&file, &[("A", cell(&[("median_tpot_ms", 2.0)])), ("new", cell(&[]))]);
    let expected = [("A/median_tpot_ms", Verdict::Pass), ("B/", Verdict::Fail), ("new/", Verdict::Record)];
    assert_eq!(rows, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
}

#[test]
fn a_03_a_change_inside_the_window_voids_it() {
    let mut nights = tpot_nights();
    for night in &mut nights[6..] {
        night.entries.get_mut("A").unwrap().fingerprint.insert("recipe_sha256".to_owned(), Some("H2".to_owned()));
    }
    let error = refusal(&nights, &request(&["median_tpot_ms"]));
    assert!(error.contains("recipe_sha256") && error.contains("night 7"), "{error}");
    assert!(error.contains("H1") && error.contains("H2"), "{error}");
    let mut allowed = request(&["median_tpot_ms"]);
    allowed.allow_mixed = vec!["recipe_sha256".to_owned()];
    let mut file = BaselineFile::default();
    bless(&nights, &allowed, &mut file).unwrap();
    assert_eq!(value(&file, "A", "/blessed/mixed_fields_allowed"), Some(json!(["recipe_sha256"])));

    let mut nights = tpot_nights();
    nights[3].entries.get_mut("A").unwrap().cells.get_mut("baseline").unwrap().config_sha256 = Some("c2".to_owned());
    let error = refusal(&nights, &request(&["median_tpot_ms"]));
    assert!(error.contains("config_sha256 of cell baseline") && error.contains("night 4"), "{error}");

    let mut nights = tpot_nights();
    nights[9].entries.get_mut("A").unwrap().fingerprint.insert("bench_tool".to_owned(), Some("native".to_owned()));
    assert!(refusal(&nights, &request(&["median_tpot_ms"])).contains("bench_tool"), "tools never mix");
}

#[test]
fn a_04_only_recorded_metrics_get_bounds() {
    let mut nights = tpot_nights();
    for night in &mut nights {
        night.entries.get_mut("A").unwrap().cells.get_mut("baseline").unwrap().mean_step_time_ms = Some(1400.0);
    }
    let file = blessed(&nights, &["median_tpot_ms", "p99_itl_ms"]);
    assert!(!file.text().unwrap().contains("step_time_ms"));
    let metrics = value(&file, "A", "/cells/baseline/metrics").unwrap();
    assert_eq!(metrics.as_object().unwrap().keys().collect::<Vec<_>>(), ["median_tpot_ms", "p99_itl_ms"]);
    assert_eq!(value(&file, "A", "/cells/baseline/passed"), Some(json!(true)));

    // A hand-written one is honoured and carried over.
    let text = r#"{"entries": {"A": {"cells": {"baseline": {"step_time_ms": {"max": 1400}}}}}}"#;
    let mut file = BaselineFile::parse(text).unwrap();
    let slow = CellRecord { mean_step_time_ms: Some(2825.0), ..cell(&[]) };
    let rows = checked(&file, &run(50, &[("A", entry(&[("baseline", slow)]))]));
    assert_eq!((rows[0].metric.as_str(), rows[0].verdict), ("step_time_ms", Verdict::Fail));
    bless(&nights, &request(&["median_tpot_ms"]), &mut file).unwrap();
    assert_eq!(value(&file, "A", "/cells/baseline/step_time_ms"), Some(json!({"max": 1400})));
}

#[test]
fn a_05_a_margin_on_almost_nothing() {
    let nights = ten(|_| vec![("median_itl_ms", 0.0023), ("median_tpot_ms", 0.0), ("p99_itl_ms", 20.0)]);
    let error = refusal(&nights, &request(&["median_itl_ms"]));
    assert!(error.contains("median_itl_ms") && error.contains("p99_itl_ms") && error.contains("by hand"), "{error}");
    let error = refusal(&nights, &request(&["median_tpot_ms"]));
    assert!(error.contains("median_tpot_ms") && error.contains("nothing"), "{error}");
    let noisy = ten(|n| vec![("median_tpot_ms", if n == 4 { 2.6 } else { 2.0 })]);
    let error = refusal(&noisy, &request(&["median_tpot_ms"]));
    assert!(error.contains("30.0%") && error.contains("25.0%"), "{error}");

    let text = r#"{"entries": {"A": {"cells": {"baseline": {"metrics": {"median_itl_ms": {"policy": "max", "value": 0.5}}}}}}}"#;
    let file = BaselineFile::parse(text).unwrap();
    let rows = verdict_of(&file, &[("baseline", cell(&[("median_itl_ms", 0.6)]))]);
    assert_eq!(rows[0].1, Verdict::Fail, "gating by hand works");
}

#[test]
fn a_06_nights_that_did_not_run_are_holes() {
    let mut nights = tpot_nights();
    let broken = nights[4].entries.get_mut("A").unwrap().cells.get_mut("baseline").unwrap();
    broken.state = CellState::DidNotRun;
    // What a dead cell claims to have measured is no observation.
    broken.metrics.insert("median_tpot_ms".to_owned(), 9e9);
    let error = refusal(&nights, &request(&["median_tpot_ms"]));
    assert!(error.contains("longest run of usable nights is 5"), "{error}");
    let mut bridged = request(&["median_tpot_ms"]);
    (bridged.bridge_holes, bridged.nights) = (true, 9);
    let mut file = BaselineFile::default();
    bless(&nights, &bridged, &mut file).unwrap();
    assert_eq!(value(&file, "A", "/blessed/holes_bridged"), Some(json!(true)));

    // A date without a run is a hole as well.
    let mut gap = tpot_nights();
    for night in &mut gap[7..] {
        night.started_at += DAY;
    }
    assert!(refusal(&gap, &request(&["median_tpot_ms"])).contains("usable nights is 7"));

    let file = blessed(&tpot_nights(), &["median_tpot_ms", "p99_itl_ms"]);
    let rows = checked(&file, &run(50, &[("A", entry(&[("baseline", cell(&[("median_tpot_ms", 1.9)]))]))]));
    assert_eq!(rows.iter().map(|row| row.verdict).collect::<Vec<_>>(), [Verdict::Pass, Verdict::Fail]);
    assert!(rows[1].reason.starts_with("gate_metric_missing") && rows[1].metric == "p99_itl_ms");
    let dead = CellRecord { state: CellState::DidNotRun, ..cell(&[("median_tpot_ms", 1.9), ("p99_itl_ms", 20.0)]) };
    let rows = checked(&file, &run(50, &[("A", entry(&[("baseline", dead)]))]));
    assert!(rows.len() == 1 && rows[0].verdict == Verdict::Fail && rows[0].reason.starts_with("did_not_run"));
    assert_eq!(checked(&file, &run(50, &[]))[0].verdict, Verdict::Fail, "an armed entry that is not there");
    let skipped = EntryRecord { skipped: Some("no container daemon".to_owned()), ..entry(&[]) };
    let rows = checked(&file, &run(50, &[("A", skipped)]));
    assert_eq!((rows[0].verdict, rows[0].reason.as_str()), (Verdict::Skip, "no container daemon"));
}

#[test]
fn a_07_what_is_not_derived_now_is_kept() {
    let armed = "{ \"cells\" : {\"baseline\": {\"metrics\": {\"median_tpot_ms\": {\"policy\": \"max\",   \"value\": 2.50}}, \"note\": \"by hand\"}}}";
    let text = format!("{{\"owner\": \"perf\", \"entries\": {{\"Z\": {armed}, \"A\": {{\"why\": [1,2]}}}}}}");
    let mut file = BaselineFile::parse(&text).unwrap();
    bless(&tpot_nights(), &request(&["median_tpot_ms"]), &mut file).unwrap();
    let written = file.text().unwrap();
    let again = BaselineFile::parse(&written).unwrap();
    assert_eq!(again.raw("Z"), Some(armed), "byte for byte");
    assert!(written.contains("\"owner\": \"perf\""));
    assert_eq!(value(&again, "A", "/why"), Some(json!([1, 2])));
    assert_eq!(again.text().unwrap(), written, "writing again changes nothing");

    // A correctness-only refresh of an armed entry.
    let mut nights = tpot_nights();
    let newest = nights[9].entries.get_mut("A").unwrap().cells.get_mut("baseline").unwrap();
    newest.correctness.insert("checksum".to_owned(), json!("new"));
    let mut file = blessed(&tpot_nights(), &["median_tpot_ms"]);
    let mut kept = file.value("A");
    kept["cells"]["baseline"]["correctness"] = json!({"checksum": "old", "rows": 7});
    file.put("A", &kept).unwrap();
    bless(&nights, &request(&[]), &mut file).unwrap();
    assert_eq!(value(&file, "A", "/cells/baseline/correctness"), Some(json!({"checksum": "new", "rows": 7})));
    assert_eq!(value(&file, "A", "/cells/baseline/metrics/median_tpot_ms/value"), Some(json!(2.5)));
    assert_eq!(value(&file, "A", "/blessed/nights"), Some(json!(10)));
}

#[test]
fn a_08_every_run_has_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = tpot_nights();
    let manual = |id: &str, offset: i64| {
        let mut record =
            run(4, &[("A", entry(&[("baseline", cell(&[("median_tpot_ms", 9.0), ("p99_itl_ms", 20.0)]))]))]);
        (record.run_id, record.trigger, record.started_at) =
            (id.to_owned(), Trigger::Manual, record.started_at + offset);
        record
    };
    records.extend([manual("m1", 60), manual("m2", 60)]);
    for record in &records {
        store::save(dir.path(), record).unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 12);
    assert!(store::save(dir.path(), &records[4]).is_err(), "nothing is overwritten");
    let mut bad = records[0].clone();
    bad.run_id = "../x".to_owned();
    assert!(store::save(dir.path(), &bad).is_err());
    let read = store::read(&[dir.path().to_path_buf()]).unwrap();
    let file = blessed(&read, &["median_tpot_ms"]);
    let bound = value(&file, "A", "/cells/baseline/metrics/median_tpot_ms/value");
    assert_eq!(bound, Some(json!(2.5)), "manual runs are not in the series");

    let dir = tempfile::tempdir().unwrap();
    for night in 0..200 {
        let mut record = run(night, &[]);
        store::save(dir.path(), &record).unwrap();
        if night % 5 == 0 {
            record.trigger = Trigger::Manual;
            store::save(dir.path(), &record).unwrap();
        }
    }
    store::prune(dir.path(), store::RETENTION_NIGHTS).unwrap();
    let kept = store::read(&[dir.path().to_path_buf()]).unwrap();
    assert_eq!(kept.iter().filter(|record| record.trigger == Trigger::Scheduled).count(), 180);
    assert_eq!(store::prune(dir.path(), 180).unwrap().len(), 0);
}

#[test]
fn a_09_zero_is_a_value() {
    let text =
        r#"{"entries": {"A": {"cells": {"baseline": {"metrics": {"failed": {"policy": "equal", "value": 0}}}}}}}"#;
    let file = BaselineFile::parse(text).unwrap();
    for (metrics, verdict) in
        [(&[("failed", 0.0)][..], Verdict::Pass), (&[("failed", 1.0)], Verdict::Fail), (&[], Verdict::Fail)]
    {
        assert_eq!(verdict_of(&file, &[("baseline", cell(metrics))])[0].1, verdict);
    }
}

#[test]
fn a_10_direction_comes_from_the_list_only() {
    let nights = ten(|n| vec![("median_tpot_ms", TPOT[n]), ("p99_itl_ms", 20.0), ("final_loss", 3.0)]);
    let file = blessed(&nights, &["median_tpot_ms", "p99_itl_ms"]);
    assert!(!file.text().unwrap().contains("final_loss"));
    assert!(refusal(&nights, &request(&["final_loss"])).contains("final_loss"));
    for (bound, problem) in [
        (json!({"policy": "lower", "value": 3}), "\"lower\""),
        (json!({"value": 3}), "needs a policy"),
        (json!({"policy": "max", "value": "3"}), "needs a value"),
    ] {
        let text = json!({"entries": {"A": {"cells": {"base": {"metrics": {"final_loss": bound}}}}}}).to_string();
        let error = BaselineFile::parse(&text).unwrap().entry("b.json", "A").unwrap_err().to_string();
        assert!(error.contains("final_loss") && error.contains("base") && error.contains(problem), "{error}");
    }
    let text =
        json!({"entries": {"A": {"cells": {"base": {"metrics": {"final_loss": {"policy": "max", "value": 3}}}}}}});
    let file = BaselineFile::parse(&text.to_string()).unwrap();
    assert_eq!(verdict_of(&file, &[("base", cell(&[("final_loss", 4.0)]))])[0].1, Verdict::Fail);
}

#[test]
fn a_11_not_yet_and_cannot() {
    let nights = ten(|n| {
        let mut metrics =
            vec![("median_ttft_ms", 100.0), ("final_loss", 1.0), ("p99_tpot_ms", if n == 0 { 9.0 } else { 2.0 })];
        if n >= 4 {
            metrics.push(("p99_ttft_ms", 300.0));
        }
        metrics
    });
    let rows = plan(&nights, &request(&[])).unwrap();
    let standing = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().standing.clone();
    assert_eq!(standing("median_ttft_ms"), Standing::Ready);
    assert_eq!(standing("p99_ttft_ms"), Standing::NeedsNights(6));
    assert_eq!(standing("p99_tpot_ms"), Standing::SpreadAboveMargin);
    assert_eq!(standing("median_tpot_ms"), Standing::NeedsNights(0));
    assert_eq!(standing("final_loss"), Standing::NotByRule);
    let ready = rows.iter().find(|row| row.metric == "median_ttft_ms").unwrap().derived.clone().unwrap();
    assert_eq!((ready.bound, ready.n), (125.0, 10));
}

#[test]
fn a_12_all_or_nothing_but_a_skip_is_no_failure() {
    let good = || entry(&[("baseline", cell(&[("median_tpot_ms", 2.0)]))]);
    let skipped = || EntryRecord { skipped: Some("needs 8 GPUs of 1".to_owned()), ..entry(&[]) };
    let mut nights: Vec<RunRecord> =
        (0..10).map(|n| run(n, &[("A", good()), ("B", skipped()), ("C", good())])).collect();
    let old = "{\"cells\": {\"x\":   {\"metrics\": {\"median_tpot_ms\": {\"policy\":\"max\",\"value\":1}}}}}";
    let mut file = BaselineFile::parse(&format!("{{\"entries\": {{\"B\": {old}}}}}")).unwrap();
    let outcome = bless(&nights, &request(&["median_tpot_ms"]), &mut file).unwrap();
    assert_eq!(file.raw("B"), Some(old));
    assert_eq!(outcome.skipped, [("B".to_owned(), "needs 8 GPUs of 1".to_owned())]);
    assert_eq!(value(&file, "C", "/cells/baseline/metrics/median_tpot_ms/value"), Some(json!(2.5)));

    let third = nights[9].entries.get_mut("C").unwrap().cells.get_mut("baseline").unwrap();
    (third.state, third.reason) = (CellState::Failed, Some("timeout".to_owned()));
    let error = refusal(&nights, &request(&["median_tpot_ms"]));
    assert!(error.contains("C: cell baseline") && error.contains("timeout"), "{error}");
    // Even a refresh of correctness values never blesses a failing cell.
    assert!(refusal(&nights, &request(&[])).contains("timeout"));
}

#[test]
fn margins_and_names_are_refused_by_name() {
    let nights = tpot_nights();
    for margin in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut bad = request(&["median_tpot_ms"]);
        bad.margin = margin;
        assert!(refusal(&nights, &bad).contains("--margin"));
    }
    let mut floor = request(&["output_throughput"]);
    floor.margin = 1.0;
    assert!(refusal(&nights, &floor).contains("below 1"));
    let mut other = request(&["median_tpot_ms"]);
    other.entries = vec!["Q".to_owned()];
    assert!(refusal(&nights, &other).contains("--entry Q"));
    assert!(matches!(bless(&[], &request(&[]), &mut BaselineFile::default()), Ok(o) if o.derived.is_empty()));
    assert!(BaselineFile::parse(r#"{"entries": {"A": {}, "A": {}}}"#).is_err(), "the same entry twice");
    assert!(matches!(plan(&nights, &floor_margin()), Err(BlessError::Request(_))));
}

fn floor_margin() -> Request {
    Request { margin: f64::NAN, ..request(&[]) }
}

#[test]
fn no_bound_crosses_tools() {
    let file = blessed(&tpot_nights(), &["median_tpot_ms"]);
    let mut native = entry(&[("baseline", cell(&[("median_tpot_ms", 1.9)]))]);
    native.fingerprint.insert("bench_tool".to_owned(), Some("native".to_owned()));
    let native = run(50, &[("A", native)]);
    let rows = checked(&file, &native);
    assert!(rows.len() == 1 && rows[0].verdict == Verdict::Fail && rows[0].reason.starts_with("bench_tool_differs"));
    // Bounds from before the tool was written down are the default tool's, and so is a run that names none.
    let bound = json!({"median_tpot_ms": {"policy": "max", "value": 2.0}});
    let text = json!({"entries": {"A": {"cells": {"baseline": {"metrics": bound}}}}});
    let old = BaselineFile::parse(&text.to_string()).unwrap();
    assert!(checked(&old, &native).iter().any(|row| row.reason.starts_with("bench_tool_differs")));
    let unnamed = run(50, &[("A", EntryRecord { fingerprint: BTreeMap::new(), ..entry(&[("baseline", cell(&[]))]) })]);
    assert!(checked(&file, &unnamed).iter().all(|row| !row.reason.starts_with("bench_tool_differs")));
}
