//! `controller report` against the published report's tables and full-precision figures.

#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use controller::report::acceptance::{Acceptance, acceptance};
use controller::report::axes::Axis;
use controller::report::document::schema;
use controller::report::figures::{Figures, PERCENTS, Report, spread};
use controller::report::leg::Leg;
use controller::report::{load, markdown};
use serde_json::Value;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/variadic/report")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn controller(dir: &Path, argv: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_controller")).arg("report").args(argv).current_dir(dir).output().unwrap()
}

/// Notes are ours to word: every line that is neither empty, heading nor table row.
fn without_notes(text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| match line.chars().next() {
            Some('\n' | '#' | '|') => line,
            _ => "<note>\n",
        })
        .collect()
}

#[test]
fn stdout_is_the_published_text_and_nothing_more() {
    for case in json(&golden().join("cases.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let dir = golden().join(name);
        let argv: Vec<&str> = case["argv"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        let output = controller(&dir, &argv);
        assert_eq!(i64::from(output.status.code().unwrap()), case["exit_code"].as_i64().unwrap(), "{name}");
        let expected = fs::read_to_string(dir.join("expected.md")).unwrap();
        assert_eq!(without_notes(&String::from_utf8(output.stdout).unwrap()), expected, "{name}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.lines().count() as u64, case["stderr_lines"].as_u64().unwrap(), "{name}: {stderr}");
        for words in case["stderr_first_words"].as_array().unwrap() {
            assert!(stderr.lines().any(|line| line.starts_with(words.as_str().unwrap())), "{name}: {stderr}");
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn assert_list(found: &[f64], expected: &Value, what: &str) {
    let expected: Vec<f64> = expected.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert_eq!(found, expected, "{what}");
}

fn assert_leg(leg: &Leg, expected: &Value, what: &str) {
    let (measured, axes) = (&leg.records.measured, &expected["axes_measured"]);
    for axis in Axis::ALL {
        assert_list(measured.axis(axis), &axes[axis.name()], &format!("{what} {}", axis.name()));
    }
    assert_list(&measured.out_tokens, &axes["out_tokens"], what);
    assert_list(&measured.tokens_per_chunk, &axes["toks_per_chunk"], what);
    assert_list(&measured.first_chunk_tokens, &axes["first_chunk_tokens"], what);
    assert_list(&measured.chars_per_token, &axes["chars_per_token"], what);
    assert_eq!(measured.counted() as u64, axes["n"].as_u64().unwrap(), "{what}");
    assert_eq!(measured.dropped_no_usage as u64, axes["dropped_no_usage"].as_u64().unwrap(), "{what}");
    assert_eq!(measured.over_corrected as u64, axes["over_corrected"].as_u64().unwrap(), "{what}");
    assert_eq!(leg.counted_by(), axes["counted_by"].as_str().unwrap(), "{what}");
    assert_eq!(leg.publishable(), axes["publishable"].as_bool().unwrap(), "{what}");

    let wanted = &expected["acceptance"];
    let source = wanted["source"].as_str().unwrap();
    match acceptance(leg) {
        Acceptance::CounterReset => assert_eq!(source, "counter reset inside the leg"),
        Acceptance::Absent => assert_eq!(source, "absent"),
        Acceptance::Metrics { accepted, proposed, per_token } => {
            assert_eq!(source, "/metrics");
            assert_eq!(Some(proposed), number(&wanted["draft"]));
            assert_eq!(Some(accepted), number(&wanted["accepted"]));
            assert_eq!(Some(accepted / proposed), number(&wanted["rate"]));
            assert_eq!(per_token, number(&wanted["per_output_token"]));
        }
        Acceptance::Usage { accepted, per_token } => {
            assert_eq!(source, "usage");
            assert_eq!(Some(accepted), number(&wanted["accepted"]));
            assert_eq!(per_token, number(&wanted["per_output_token"]));
        }
    }
}

fn assert_figures(found: Option<Figures>, expected: &Value, what: &str) {
    assert_eq!(found.map_or(0, |f| f.n) as u64, expected["n"].as_u64().unwrap(), "{what}");
    for (at, percent) in PERCENTS.iter().enumerate() {
        assert_eq!(found.map(|f| f.percentiles[at]), number(&expected[format!("p{percent}")]), "{what} p{percent}");
    }
    assert_eq!(found.map(|f| f.max), number(&expected["max"]), "{what} max");
    assert_eq!(found.map(|f| f.mean), number(&expected["mean"]), "{what} mean");
}

fn assert_spread(report: &Report, legs: &[usize], expected: &Value) {
    let figures = || legs.iter().map(|at| &report.leg_figures[*at]);
    let rates: Vec<f64> = figures().map(|f| f.output_tok_s).collect();
    assert_list(&rates, &expected["out_tok_s"], "out_tok_s");
    assert_eq!(spread(&rates), number(&expected["out_tok_s_spread"]));
    let tails: Vec<Option<f64>> = figures().map(|f| f.measured[Axis::Ttft as usize].map(|t| t.p95())).collect();
    let wanted: Vec<Option<f64>> = expected["p95_ttft_ms"].as_array().unwrap().iter().map(number).collect();
    assert_eq!(tails, wanted);
    assert_eq!(spread(&tails.into_iter().flatten().collect::<Vec<_>>()), number(&expected["p95_spread"]));
}

#[test]
fn figures_agree_to_the_last_digit() {
    let mut legs = 0;
    for case in json(&golden().join("cases.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let expected = json(&golden().join(name).join("expected.json"));
        let (_, report) = load(golden().join(name).join("legs").to_str().unwrap(), "*-r*-c*.json");
        let Ok(report) = report else {
            assert_eq!(name, "r6-empty");
            continue;
        };
        assert_eq!(report.legs.len(), expected["legs"].as_object().unwrap().len(), "{name}");
        for leg in &report.legs {
            let file = Path::new(&leg.path).file_name().unwrap().to_str().unwrap();
            assert_leg(leg, &expected["legs"][file], &format!("{name} {file}"));
            legs += 1;
        }
        assert_eq!(report.cells.len(), expected["cells"].as_object().unwrap().len(), "{name}");
        for cell in &report.cells {
            let wanted = &expected["cells"][format!("{}|{}", cell.key.arm, cell.key.concurrency)];
            for axis in Axis::ALL {
                let what = format!("{name} {} {}", cell.label, axis.name());
                assert_figures(cell.warm[axis as usize], &wanted["warm_only"][axis.name()], &what);
                assert_figures(cell.all[axis as usize], &wanted["with_warmup"][axis.name()], &what);
            }
            assert_spread(&report, &cell.legs, &wanted["spread"]);
        }
    }
    assert!(legs >= 17, "{legs}");
}

#[test]
fn number_format() {
    for case in json(&golden().join("number_format.json")).as_array().unwrap() {
        let digits = usize::try_from(case["digits"].as_u64().unwrap()).unwrap();
        assert_eq!(markdown::fixed(case["value"].as_f64().unwrap(), digits), case["text"].as_str().unwrap(), "{case}");
    }
    assert_eq!(markdown::fixed(None, 1), "-");
    assert_eq!(markdown::fixed(f64::NAN, 1), "-");
}

#[test]
fn percentiles() {
    for case in json(&golden().join("percentiles.json")).as_array().unwrap() {
        let values: Vec<f64> = case["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let sorted = proto::stats::sorted(values.clone());
        for (percent, expected) in case["p"].as_object().unwrap() {
            let found = proto::stats::percentile(&sorted, percent.parse().unwrap());
            assert_eq!(found, expected.as_f64(), "p{percent} of {values:?}");
        }
        let found = Figures::of(&mut values.clone());
        for (at, percent) in PERCENTS.iter().enumerate() {
            if let Some(expected) = case["p"].get(percent.to_string()) {
                assert_eq!(found.map(|f| f.percentiles[at]), expected.as_f64());
            }
        }
    }
}

fn copy_legs(case: &str, to: &Path) {
    for entry in fs::read_dir(golden().join(case).join("legs")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Legs of our own client pool with nobody else's, whatever their arm and load.
#[test]
fn another_tool_or_profile_is_another_cell() {
    let dir = tempfile::tempdir().unwrap();
    copy_legs("r1-two-arms", dir.path());
    let path = dir.path().join("OURS-r2-c4.json");
    let mut leg = json(&path);
    leg["client"] = serde_json::json!({"profile": "strict", "arrivals": "closed"});
    fs::write(&path, leg.to_string()).unwrap();
    let (_, report) = load(dir.path().to_str().unwrap(), "*.json");
    let report = report.unwrap();
    let labels: Vec<String> =
        report.cells.iter().map(|c| format!("{} {} {}", c.label, c.key.concurrency, c.legs.len())).collect();
    let ours = "OURS [published client]";
    assert_eq!(
        labels,
        [&format!("{ours} 1 2"), &format!("{ours} 4 1"), "OURS [native, strict] 4 1", "THEIRS 1 2", "THEIRS 4 2"]
    );
    assert_eq!(report.arms(), ["OURS [native, strict]", ours, "THEIRS"]);
}

#[test]
fn refusals_name_file_and_key() {
    let dir = tempfile::tempdir().unwrap();
    copy_legs("r5-ties", dir.path());
    let path = dir.path().join("T-r2-c1.json");
    let whole = json(&path);
    let mut leg = whole.clone();
    leg["summary"].as_object_mut().unwrap().remove("measured_wall_s");
    fs::write(&path, leg.to_string()).unwrap();
    let output = controller(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "refused before anything is printed");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("T-r2-c1.json") && stderr.contains("measured_wall_s"), "{stderr}");

    for (argv, status, fragment) in [
        (&["--glob", "***"][..], 1, "--glob"),
        (&["--glob", "x*"], 1, "NO LEG PRODUCED A RESULT"),
        (&["--dir", "nowhere"], 1, "NO LEG PRODUCED A RESULT"),
        (&["--frob"], 2, "--frob"),
    ] {
        let output = controller(dir.path(), argv);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{argv:?}: {stderr}");
        assert!(stderr.contains(fragment) && output.stdout.is_empty(), "{argv:?}: {stderr}");
    }
}

fn document(case: &str) -> (String, Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let (html, json_file) = (dir.path().join("r.html"), dir.path().join("r.json"));
    let (html_arg, json_arg) = (html.to_str().unwrap(), json_file.to_str().unwrap());
    let argv = ["--dir", "legs", "--glob", "*-r*-c*.json", "--extended", "--html", html_arg, "--json", json_arg];
    let output = controller(&golden().join(case), &argv);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), json(&json_file), fs::read_to_string(html).unwrap())
}

/// The additions follow the published text, which stays as it is; they say the same in every run.
#[test]
fn extended_output() {
    for case in ["r1-two-arms", "r2-one-odd-leg", "r3-nothing-publishable", "r4-three-rounds"] {
        let (stdout, _, _) = document(case);
        let at = stdout.find("\n## Before quoting a figure").unwrap();
        let expected = fs::read_to_string(golden().join(case).join("expected.md")).unwrap();
        assert_eq!(without_notes(&stdout[..at]), expected, "{case}");
        insta::assert_snapshot!(case, &stdout[at..]);
    }
}

#[test]
fn documents_are_what_their_schema_says() {
    let schema = schema();
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    for case in ["r1-two-arms", "r2-one-odd-leg", "r3-nothing-publishable", "r4-three-rounds", "r5-ties"] {
        let (_, mut document, _) = document(case);
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{case}: {errors:#?}");
        document["legs"][0].as_object_mut().unwrap().remove("publishable");
        assert!(!validator.is_valid(&document), "the schema must be able to refuse");
    }
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let dir = tempfile::tempdir().unwrap();
    copy_legs("r1-two-arms", dir.path());
    for round in [1, 2] {
        // An arm that would break a page that did not escape it.
        let path = dir.path().join(format!("THEIRS-r{round}-c1.json"));
        let mut leg = json(&path);
        leg["summary"]["arm"] = "<script>alert(1)</script>&".into();
        fs::write(&path, leg.to_string()).unwrap();
    }
    let page = dir.path().join("page.html");
    let output = controller(dir.path(), &["--glob", "*-r*-c*.json", "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let page = fs::read_to_string(page).unwrap();
    for foreign in ["<script", "src=", "href=", "@import", "url(", "<link", "<iframe"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let addresses = page.matches("http").count();
    assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count(), "only the name of SVG itself");
    // Two loads x two axes, throughput, a cloud per cell, lengths.
    assert_eq!(page.matches("<figure><svg").count(), 2 * 2 + 1 + 4 + 1);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"));
}

/// A figure that cannot be trusted gets no verdict, however clear it looks.
#[test]
fn verdicts_are_withheld_where_legs_are_in_doubt() {
    let verdicts = |edit: &dyn Fn(&mut Value)| -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        copy_legs("r1-two-arms", dir.path());
        let path = dir.path().join("THEIRS-r2-c1.json");
        let mut leg = json(&path);
        edit(&mut leg);
        fs::write(&path, leg.to_string()).unwrap();
        let (_, report) = load(dir.path().to_str().unwrap(), "*-r*-c*.json");
        let document = controller::report::analysis::document(&report.unwrap(), &[]);
        let document = serde_json::to_value(document).unwrap();
        let of = |c: &Value| (c["verdict"].as_str().unwrap().to_owned(), c["words"].as_str().unwrap().to_owned());
        let rows = document["comparisons"].as_array().unwrap();
        rows.iter().filter(|c| c["axis"] == "itl" && c["concurrency"] == 1).map(of).collect()
    };
    let itl = |edit: &dyn Fn(&mut Value)| verdicts(edit).into_iter().next();
    assert_eq!(itl(&|_| {}).unwrap().0, "worse", "gaps of 82 ms against 19 ms");
    let (verdict, words) = itl(&|leg| leg["config"] = serde_json::json!({"max_tokens": 64})).unwrap();
    assert_eq!(verdict, "worse", "one leg that tells a setting does not differ from legs that tell none: {words}");
    let (verdict, words) = itl(&|leg| leg["records"][6]["usage"] = Value::Null).unwrap();
    assert!(verdict == "undecided" && words.contains("G-USAGE"), "{words}");
    let alone = itl(&|leg| leg["client"] = serde_json::json!({"profile": "strict", "arrivals": "closed"})).unwrap();
    assert!(alone.0 == "undecided" && alone.1.contains("one round"), "{alone:?}");

    let bound = serde_json::json!({"certification": {"client_bound": true, "reasons": ["lag 4 ms"]}});
    let dir = tempfile::tempdir().unwrap();
    copy_legs("r1-two-arms", dir.path());
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut leg = json(&path);
        leg["client"] = bound.clone();
        fs::write(&path, leg.to_string()).unwrap();
    }
    let output = controller(dir.path(), &["--glob", "*-r*-c*.json", "--extended"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the client itself was the limit: lag 4 ms"));
    assert!(text.contains("is client_bound") && !text.contains("| better |") && !text.contains("| worse |"));
}
