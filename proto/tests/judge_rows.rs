//! The judgement of exports, row by row of the contract's section K, each row with its number.

use proto::exit::AgentExit;
use proto::export::{Counter, Expectation, Layer, LengthSource, OutputLensShape, Part, Rollout, Unsound, judge, read};
use proto::limits::Dataset;
use serde_json::{Value, json};

const BOTH: [Layer; 2] = [Layer::Agent, Layer::Host];

/// A sound export of 32 requests; `change` is laid over it, null removes a key.
fn export(change: &Value) -> String {
    let Value::Object(change) = change else { panic!("changes are an object") };
    let mut doc = json!({
        "completed": 32, "failed": 0, "duration": 2.0, "output_throughput": 1600.0, "request_throughput": 16.0,
        "total_token_throughput": 1800.0, "mean_ttft_ms": 20.0, "median_ttft_ms": 19.0, "mean_tpot_ms": 2.0,
        "median_tpot_ms": 2.0, "total_output_tokens": 3200,
    });
    for (key, value) in change {
        doc[key] = value.clone();
    }
    if let Value::Object(fields) = &mut doc {
        fields.retain(|_, value| !value.is_null());
    }
    doc.to_string()
}

fn status(text: &str, expectation: &Expectation, layer: Layer) -> u8 {
    match read(text.as_bytes()) {
        Ok(export) => judge(&export, expectation, layer).map_or_else(|bad| bad.exit().code(), |_| 0),
        Err(_) => AgentExit::ResultJsonUnusable.code(),
    }
}

fn rollout(samples: u64, floor: u64) -> Expectation {
    Expectation {
        num_prompts: 32,
        dataset: Dataset::Random,
        output_len: 200,
        ignore_eos: false,
        rollout: Some(Rollout { samples, min_mean_output_tokens: floor }),
    }
}

fn plain(dataset: Dataset, output_len: u64, ignore_eos: bool) -> Expectation {
    Expectation { num_prompts: 32, dataset, output_len, ignore_eos, rollout: None }
}

fn lens(entries: usize, length: u64) -> Value {
    json!({ "output_lens": vec![length; entries] })
}

/// Both layers must come to the same status.
#[track_caller]
fn both(row: &str, expectation: &Expectation, text: &str, wanted: u8) {
    for layer in BOTH {
        assert_eq!(status(text, expectation, layer), wanted, "row {row}, {layer:?}");
    }
}

#[test]
fn rows_116_to_131_cardinality_cap_and_floor() {
    let mut mean_799 = vec![8; 32];
    mean_799[0] = 7;
    let with = |mut list: Vec<u64>, entry: u64| {
        list[5] = entry;
        json!({ "output_lens": list })
    };
    let table = [
        ("116", 1, lens(32, 16), 0),
        ("117", 1, lens(32, 8), 0),
        ("118", 1, json!({ "output_lens": mean_799 }), 56),
        ("119", 1, lens(31, 16), 54),
        ("119", 1, lens(33, 16), 54),
        ("119", 1, lens(64, 16), 54),
        ("119", 1, lens(0, 16), 54),
        ("120", 4, lens(128, 16), 0),
        ("121", 4, lens(128, 1), 56),
        ("122", 4, lens(32, 64), 59),
        ("123", 8, lens(32, 8), 59),
        ("124", 4, lens(33, 16), 54),
        ("124", 4, lens(127, 16), 54),
        ("125", 4, lens(1, 16), 54),
        ("126", 1, with(vec![16; 32], 201), 54),
        ("127", 1, with(vec![16; 32], 200), 0),
        ("128", 8, lens(32, 800), 59),
        ("129", 8, lens(32, 1600), 59),
        ("130", 8, lens(32, 1601), 54),
        ("131", 8, with(vec![16; 256], 201), 54),
        ("131, at the cap", 8, with(vec![16; 256], 200), 0),
    ];
    for (row, samples, change, wanted) in table {
        both(row, &rollout(samples, 8), &export(&change), wanted);
    }
}

/// `output_lens` of 32 entries, the sixth as written here.
fn raw_lens(entry: &str) -> String {
    let mut entries = vec!["16"; 32];
    entries[5] = entry;
    export(&json!({})).replacen('{', &format!("{{\"output_lens\": [{}],", entries.join(", ")), 1)
}

/// The whole value of `output_lens` as written here.
fn raw_array(value: &str) -> String {
    export(&json!({})).replacen('{', &format!("{{\"output_lens\": {value},"), 1)
}

#[test]
fn rows_132_to_136_entries_and_types_whatever_the_floor() {
    let digits = "9".repeat(401);
    for floor in [8, 0] {
        for entry in [
            "true",
            "false",
            "-1",
            "1.5",
            "\"9\"",
            "NaN",
            "Infinity",
            "-Infinity",
            "null",
            "[]",
            "[16]",
            "{}",
            "1e400",
            "-0.5",
            "1e-3",
            &digits,
            "9007199254740993",
            "18446744073709551616",
        ] {
            both("132, 134, 136", &rollout(1, floor), &raw_lens(entry), 54);
        }
        for value in ["null", "{}", "\"x\"", "16", "true", "NaN"] {
            both("133, 134", &rollout(1, floor), &raw_array(value), 54);
        }
        for (samples, entries, length) in
            [(1, 31, 16), (1, 33, 16), (1, 0, 16), (4, 33, 16), (4, 127, 16), (8, 32, 1601)]
        {
            both("134", &rollout(samples, floor), &export(&lens(entries, length)), 54);
        }
        for entry in ["16.0", "1.6e1", "0", "-0", "-0.0", "200", "2e2"] {
            both("whole entries (L.2)", &rollout(1, floor), &raw_lens(entry), 0);
        }
    }
}

#[test]
fn row_135_floor_0_leaves_the_shape_alone() {
    for layer in BOTH {
        let per_request = read(export(&lens(32, 64)).as_bytes()).unwrap();
        assert_eq!(judge(&per_request, &rollout(8, 0), layer), Ok(OutputLensShape::PerRequest));
        let per_choice = read(export(&lens(256, 64)).as_bytes()).unwrap();
        assert_eq!(judge(&per_choice, &rollout(8, 0), layer), Ok(OutputLensShape::PerChoice));
        let absent = read(export(&json!({})).as_bytes()).unwrap();
        assert_eq!(judge(&absent, &rollout(8, 0), layer), Ok(OutputLensShape::Absent));
    }
}

#[test]
fn rows_137_to_139_fallback_without_the_array() {
    let one = rollout(1, 8);
    for layer in BOTH {
        let short = read(export(&json!({ "total_output_tokens": 33 })).as_bytes()).unwrap();
        let verdict = judge(&short, &one, layer).unwrap_err();
        assert_eq!(verdict, Unsound::TooShort { mean: 33.0 / 32.0, floor: 8, basis: LengthSource::PerRequest });
        assert!(verdict.detail().contains("total_output_tokens / completed per request"), "{}", verdict.detail());
    }
    both("138", &one, &export(&json!({ "total_output_tokens": 256 })), 0);
    both("138, one less", &one, &export(&json!({ "total_output_tokens": 255 })), 56);
    for total in [json!(null), json!(true), json!(0), json!(-5), json!("256"), json!(256.0), json!(256.5)] {
        both("139", &one, &export(&json!({ "total_output_tokens": total })), 54);
    }
    // At several samples the fallback is refused outright (H.5), which outweighs a broken total only at the agent.
    both("L.2", &rollout(4, 8), &export(&json!({})), 59);
    assert_eq!(status(&export(&json!({ "total_output_tokens": null })), &rollout(4, 8), Layer::Agent), 59);
    assert_eq!(status(&export(&json!({ "total_output_tokens": null })), &rollout(4, 8), Layer::Host), 54);
    // A total beyond i128 is an integer all the same, and far above any floor.
    let huge = export(&json!({})).replace("3200", &"9".repeat(60));
    both("H.1", &one, &huge, 0);
}

#[test]
fn row_140_sharegpt_has_no_cap() {
    let expectation = Expectation { dataset: Dataset::Sharegpt, ..rollout(1, 8) };
    both("140", &expectation, &raw_lens("100000"), 0);
    both(
        "140, per request",
        &Expectation { dataset: Dataset::Sharegpt, ..rollout(4, 0) },
        &export(&lens(32, 100_000)),
        0,
    );
}

#[test]
fn row_141_a_shortfall_is_reported_alone() {
    for lens in ["[true]", "null", "[1]"] {
        let text = raw_array(lens).replace("\"completed\":32", "\"completed\":31");
        both("141", &rollout(1, 8), &text, 55);
        let verdict = judge(&read(text.as_bytes()).unwrap(), &rollout(1, 8), Layer::Host).unwrap_err();
        assert_eq!(verdict.detail(), "completed=31 failed=0, expected completed=32 failed=0");
    }
}

#[test]
fn row_142_an_entry_of_0_is_a_length() {
    both("142", &rollout(1, 8), &raw_lens("0"), 0);
}

#[test]
fn row_143_and_231_one_token_needs_no_tpot() {
    let one_token = export(&json!({ "mean_tpot_ms": null, "median_tpot_ms": null, "total_output_tokens": null }));
    both("143, 231", &plain(Dataset::Random, 1, true), &one_token, 0);
    assert_eq!(status(&one_token, &plain(Dataset::Random, 2, true), Layer::Host), 54, "row 231");
    assert_eq!(status(&one_token, &plain(Dataset::Random, 2, true), Layer::Agent), 0, "the host's rule");
    // Either of the two missing is enough.
    for key in ["mean_tpot_ms", "median_tpot_ms"] {
        assert_eq!(status(&export(&json!({ key: null })), &plain(Dataset::Random, 2, true), Layer::Host), 54);
    }
}

/// FS-59, FS-60, FS-62.
#[test]
fn rows_91_to_95_and_228_counters() {
    let plain = plain(Dataset::Random, 128, true);
    for (row, completed, failed, wanted) in [
        ("sound", "32", "0", 0),
        ("H.2", "31", "1", 55),
        ("H.2", "32", "1", 55),
        ("228", "30", "0", 55),
        ("91", "32", "-1", 55),
        ("H.2", "33", "0", 55),
        ("H.2", "0", "0", 55),
        ("93", "true", "false", 54),
        ("93", "32", "false", 54),
        ("93", "\"32\"", "0", 54),
        ("93", "32.0", "0", 54),
        ("93", "32", "0.0", 54),
        ("93", "3.2e1", "0", 54),
        ("93", "null", "0", 54),
        ("93", "32", "null", 54),
        ("93", "[32]", "0", 54),
        ("93", "{}", "0", 54),
        ("93", "NaN", "0", 54),
        ("93", "32", "Infinity", 54),
        ("H.2", "32", "-0", 0),
        ("type before count", "31", "false", 54),
        ("type before count", "true", "1", 54),
    ] {
        let text = export(&json!({}))
            .replace("\"completed\":32", &format!("\"completed\":{completed}"))
            .replace("\"failed\":0", &format!("\"failed\":{failed}"));
        both(row, &plain, &text, wanted);
    }
    for key in ["completed", "failed"] {
        both("93, absent", &plain, &export(&json!({ key: null })), 54);
    }
    // The trap: a boolean equals 1 in Python.
    let trap = export(&json!({ "completed": true, "failed": false }));
    both("93", &Expectation { num_prompts: 1, ..plain.clone() }, &trap, 54);
    for text in ["", "{", "{\"completed\": 3", "[]", "3", "null", "\"x\"", "{}{}", "{} x"] {
        both("94", &plain, text, 54);
    }
    let invalid = [b"{\"label\": \"\xff\", ", &export(&json!({})).as_bytes()[1..]].concat();
    assert!(read(&invalid[..]).is_err(), "row 94, invalid UTF-8 in a text that nobody reads");
    let nan = export(&json!({})).replacen('{', "{\"std_itl_ms\": NaN, ", 1);
    both("95", &plain, &nan, 0);
}

#[test]
fn counters_beyond_every_machine_integer_are_a_shortfall() {
    let digits = "9".repeat(401);
    let text = export(&json!({})).replace("\"completed\":32", &format!("\"completed\":{digits}"));
    both("B-02", &rollout(1, 8), &text, 55);
    let Err(Unsound::Shortfall { completed: Counter::Huge(_), failed, expected: 32 }) =
        judge(&read(text.as_bytes()).unwrap(), &rollout(1, 8), Layer::Agent)
    else {
        panic!("an integer by type that is not the number asked for");
    };
    assert_eq!(failed, Counter::Integer(0));
}

#[test]
fn row_229_shortfall_and_no_ttft() {
    let text = export(&json!({ "completed": 30, "mean_ttft_ms": null, "median_ttft_ms": null }));
    both("229", &plain(Dataset::Random, 128, true), &text, 55);
}

/// FS-62.
#[test]
fn row_230_core_metrics_are_the_hosts() {
    let expectation = plain(Dataset::Random, 128, true);
    let always = [
        "duration",
        "output_throughput",
        "request_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "median_ttft_ms",
    ];
    for key in always.into_iter().chain(["mean_tpot_ms", "median_tpot_ms"]) {
        for value in
            ["null", "0", "0.0", "-0.0", "-1", "-0.001", "true", "\"1\"", "NaN", "Infinity", "-Infinity", "1e400", "[]"]
        {
            let text = export(&json!({ key: null })).replacen('{', &format!("{{\"{key}\": {value},"), 1);
            assert_eq!(status(&text, &expectation, Layer::Agent), 0, "{key}: {value}");
            let Err(Unsound::Unusable { part: Part::Metrics, detail }) =
                judge(&read(text.as_bytes()).unwrap(), &expectation, Layer::Host)
            else {
                panic!("{key}: {value}");
            };
            assert!(detail.contains(key), "{detail}");
        }
        let tiny = export(&json!({ key: null })).replacen('{', &format!("{{\"{key}\": 5e-324,"), 1);
        both("greater than 0 is enough", &expectation, &tiny, 0);
    }
    let text = export(&json!({ "duration": null, "median_ttft_ms": -3.5, "output_throughput": 0 }));
    let verdict = judge(&read(text.as_bytes()).unwrap(), &expectation, Layer::Host).unwrap_err();
    assert_eq!(
        verdict.detail(),
        "duration is missing or no finite number; output_throughput is 0, not above 0; median_ttft_ms is -3.5, not above 0"
    );
}

#[test]
fn row_232_sharegpt_decides_from_the_export() {
    let no_tpot =
        |total: Value| export(&json!({ "mean_tpot_ms": null, "median_tpot_ms": null, "total_output_tokens": total }));
    for ignore_eos in [true, false] {
        // The output length of the recipe means nothing here.
        let expectation = plain(Dataset::Sharegpt, 1, ignore_eos);
        for (total, wanted) in [
            (json!(32), 0),
            (json!(33), 54),
            (json!(null), 54),
            (json!(0), 54),
            (json!(-5), 54),
            (json!(12.5), 54),
            (json!(true), 54),
            (json!(31), 0),
        ] {
            assert_eq!(status(&no_tpot(total.clone()), &expectation, Layer::Host), wanted, "row 232, {total}");
            assert_eq!(status(&no_tpot(total.clone()), &expectation, Layer::Agent), 0, "row 232, {total}");
        }
        both("232, with TPOT", &expectation, &export(&json!({ "total_output_tokens": 33 })), 0);
    }
}

#[test]
fn row_233_rollout_of_single_tokens_needs_no_tpot() {
    let change =
        json!({ "mean_tpot_ms": null, "median_tpot_ms": null, "total_output_tokens": 32, "output_lens": vec![1; 32] });
    both("233", &rollout(1, 0), &export(&change), 0);
}

#[test]
fn row_239_arrays_of_cells_that_ignore_eos_fail_nothing() {
    for expectation in [plain(Dataset::Random, 128, true), plain(Dataset::Sharegpt, 128, true)] {
        both("H.4 scope", &expectation, &raw_array("[true]"), 0);
    }
    let natural = plain(Dataset::Sharegpt, 128, false);
    both("H.4 scope", &natural, &raw_array("[true]"), 54);
    both("H.4 scope", &natural, &export(&lens(31, 5)), 54);
    both("H.4 scope", &natural, &export(&lens(32, 5000)), 0);
}

#[test]
fn finding_b01_one_cause_one_detail() {
    // Mean 1 under a floor of 8, and a broken total: the export is unusable, and nothing else is said.
    for total in [json!(0), json!(12.5)] {
        let text = export(&json!({ "total_output_tokens": total, "output_lens": vec![1; 32] }));
        let Err(Unsound::Unusable { part: Part::Metrics, detail }) =
            judge(&read(text.as_bytes()).unwrap(), &rollout(1, 8), Layer::Host)
        else {
            panic!("{total}");
        };
        assert_eq!(detail, format!("total_output_tokens is {total}, not a positive whole number"));
        // The agent does not look at core metrics, and the lengths are sound and short.
        assert_eq!(status(&text, &rollout(1, 8), Layer::Agent), 56);
    }
    // The basis verdict, too, only speaks when everything else is usable.
    let text = export(&json!({ "duration": 0, "output_lens": vec![64; 32] }));
    assert_eq!(status(&text, &rollout(4, 8), Layer::Host), 54);
    assert_eq!(status(&text, &rollout(4, 8), Layer::Agent), 59);
}

#[test]
fn finding_b02_numbers_beyond_a_double_leave_the_record() {
    let digits = "9".repeat(401);
    let expectation = Expectation { dataset: Dataset::Sharegpt, ..rollout(1, 8) };
    for text in [
        raw_lens(&digits),
        export(&json!({ "total_output_tokens": null })).replacen(
            '{',
            &format!("{{\"total_output_tokens\": {digits},"),
            1,
        ),
        export(&json!({ "duration": null })).replacen('{', "{\"duration\": 1e400,", 1),
    ] {
        let export = read(text.as_bytes()).expect("the record stays");
        assert_eq!(judge(&export, &expectation, Layer::Host).unwrap_err().exit(), AgentExit::ResultJsonUnusable);
    }
}

#[test]
fn finding_b04_two_length_figures_may_differ_by_n() {
    let text = export(&json!({ "total_output_tokens": 2048, "output_lens": vec![16; 128] }));
    for layer in BOTH {
        assert_eq!(judge(&read(text.as_bytes()).unwrap(), &rollout(4, 8), layer), Ok(OutputLensShape::PerChoice));
    }
}

/// The seed's own examples (rollout mode, "Unscaled, the two rules contradicted each other" and "one token per choice").
#[test]
fn examples_of_the_seed() {
    for (length, total) in [(800, 25_600), (1600, 51_200), (8, 256)] {
        let text = export(&json!({ "output_lens": vec![length; 32], "total_output_tokens": total }));
        for layer in BOTH {
            let verdict = judge(&read(text.as_bytes()).unwrap(), &rollout(8, 8), layer).unwrap_err();
            assert_eq!(verdict, Unsound::LengthBasis { entries: Some(32), samples: 8, floor: 8 });
            assert!(verdict.hint().contains("min_mean_output_tokens: 0"), "{}", verdict.hint());
        }
    }
}

#[test]
fn a_great_floor_and_great_lengths_compare_exactly() {
    let expectation = |floor| Expectation { dataset: Dataset::Sharegpt, ..rollout(1, floor) };
    let mut list = vec![4_000_000_u64; 32];
    both("H.5", &expectation(4_000_000), &export(&json!({ "output_lens": list })), 0);
    list[31] -= 1;
    both("H.5", &expectation(4_000_000), &export(&json!({ "output_lens": list })), 56);
}

#[test]
fn texts_name_values_and_remedies() {
    let detail = |text: &str, expectation: &Expectation| {
        let bad = judge(&read(text.as_bytes()).unwrap(), expectation, Layer::Host).unwrap_err();
        (bad.reason(), bad.detail(), bad.hint())
    };
    let (reason, text, hint) = detail(&export(&lens(32, 64)), &rollout(4, 8));
    assert_eq!(reason, "rollout_length_basis_unusable");
    assert_eq!(
        text,
        "output_lens has 32 entries, one per request, each the sum of 4 completions: a floor of 8 tokens per completion \
         cannot be held against them"
    );
    assert!(hint.contains("rollout_samples: 1"), "{hint}");
    let (reason, text, _) = detail(&export(&json!({})), &rollout(4, 8));
    assert_eq!(reason, "rollout_length_basis_unusable");
    assert!(text.starts_with("the export has no output_lens") && text.contains("a floor of 8"), "{text}");
    let (reason, text, hint) = detail(&export(&lens(128, 1)), &rollout(4, 8));
    assert_eq!(reason, "rollout_output_too_short");
    assert_eq!(
        text,
        "mean of 1.00 tokens (output_lens per completion) is below the floor of 8; every request was served, so this is a \
         policy that stopped generating, not a serving failure"
    );
    assert!(hint.contains("min_mean_output_tokens"), "{hint}");
    let (reason, text, _) = detail(&export(&lens(33, 16)), &rollout(4, 8));
    assert_eq!(
        (reason, text.as_str()),
        ("result_json_unusable", "output_lens has 33 entries for 32 requests of 4 completions, not 128 or 32")
    );
    let (_, text, _) = detail(&export(&lens(31, 16)), &rollout(1, 8));
    assert_eq!(text, "output_lens has 31 entries for 32 requests of 1 completions, not 32");
    let (_, text, hint) = detail(&raw_lens("201"), &rollout(1, 8));
    assert_eq!(text, "output_lens has an entry of 201 tokens (per_choice), above the 200 allowed");
    assert!(hint.contains("usage accounting"), "{hint}");
    let (_, text, _) = detail(&export(&lens(32, 1601)), &rollout(8, 8));
    assert_eq!(text, "output_lens has an entry of 1601 tokens (per_request), above the 1600 allowed");
    let (_, text, _) = detail(&raw_lens("true"), &rollout(1, 8));
    assert_eq!(text, "output_lens: entry 5 is true, not a whole number of tokens");
    let (_, text, _) = detail(&raw_array("\"x\""), &rollout(1, 8));
    assert_eq!(text, "output_lens: the string \"x\", not an array");
    let (reason, text, hint) = detail(&export(&json!({ "completed": "32" })), &rollout(1, 8));
    assert_eq!((reason, text.as_str()), ("result_json_unusable", "completed is the string \"32\", not a JSON integer"));
    assert!(hint.contains("JSON integers"), "{hint}");
    let (reason, _, hint) = detail(&export(&json!({ "failed": 2 })), &rollout(1, 8));
    assert_eq!(reason, "served_request_shortfall");
    assert!(hint.contains("server's log"), "{hint}");
    let (_, _, hint) = detail(&export(&json!({ "mean_ttft_ms": null })), &rollout(1, 8));
    assert!(hint.contains("percentile_metrics"), "{hint}");
}
