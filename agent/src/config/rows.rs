//! Contract section K.1, by row number.

use super::*;
use proto::env;

fn source(pairs: &[(&str, &str)]) -> Source {
    let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Source::new(pairs, Flags::default()).unwrap()
}

fn plan(pairs: &[(&str, &str)]) -> LaunchPlan {
    parse(&source(pairs)).unwrap_or_else(|e| panic!("{pairs:?}: {e}"))
}

/// Every environment must be refused with the phrase.
fn refused(row: u32, phrase: &str, environments: &[&[(&str, &str)]]) {
    for pairs in environments {
        match parse(&source(pairs)) {
            Ok(_) => panic!("row {row}: {pairs:?} was accepted"),
            Err(error) => assert!(error.to_string().contains(phrase), "row {row}: {pairs:?}: {error}"),
        }
    }
}

fn serve(pairs: &[(&str, &str)]) -> Vec<String> {
    plan(pairs).serve_argv("tokenspeed".into()).args
}

fn bench(pairs: &[(&str, &str)]) -> Vec<String> {
    plan(pairs).bench_argv("tokenspeed".into(), StepId::Measured(1)).args
}

fn value<'a>(args: &'a [String], flag: &str) -> Option<&'a str> {
    let at = args.iter().position(|a| a == flag)?;
    args.get(at + 1).map(String::as_str)
}

const ROLLOUT: &[(&str, &str)] = &[("TS_ROLLOUT", "1"), ("TS_TEMPERATURE", "1.0"), ("TS_IGNORE_EOS", "0")];

fn with(
    base: &[(&'static str, &'static str)],
    more: &[(&'static str, &'static str)],
) -> Vec<(&'static str, &'static str)> {
    base.iter().filter(|(k, _)| !more.iter().any(|(m, _)| m == k)).chain(more).copied().collect()
}

#[test]
fn rows_1_to_11_ports() {
    refused(1, "TS_PORT must be a positive integer, got 'abc'", &[&[("TS_PORT", "abc")]]);
    refused(2, "must be between", &[&[("TS_PORT", "0")]]);
    refused(3, "must not be zero-padded", &[&[("TS_PORT", "00")]]);
    refused(4, "zero-padded", &[&[("TS_PORT", "08000")]]);
    refused(5, "between 1024", &[&[("TS_PORT", "1023")]]);
    refused(6, "between 1024 and 65534", &[&[("TS_PORT", "65535")]]);
    assert_eq!(plan(&[("TS_PORT", "65535"), ("TS_CONTROL_PORT", "65534")]).gateway_port, 65535);
    refused(8, "must differ", &[&[("TS_PORT", "9000"), ("TS_CONTROL_PORT", "9000")]]);
    refused(9, "TS_CONTROL_PORT must be between", &[&[("TS_CONTROL_PORT", "0")]]);
    assert_eq!(plan(&[("TS_CONTROL_PORT", "")]).control_port, 8001, "row 10");
    refused(11, "must be between", &[&[("TS_PORT", "99999999999999999999")]]);
}

#[test]
fn rows_12_to_16_timeouts() {
    for bad in ["0", "86401"] {
        refused(12, "must be between 1 and 86400", &[&[("TS_READY_TIMEOUT", bad)]]);
    }
    assert_eq!(plan(&[("TS_READY_TIMEOUT", "86400")]).ready_timeout_sec, 86400);
    refused(13, "positive integer", &[&[("TS_READY_TIMEOUT", "+900")], &[("TS_READY_TIMEOUT", " 900")]]);
    refused(14, "must be between 5 and 3600", &[&[("TS_TEARDOWN_GRACE", "4")], &[("TS_TEARDOWN_GRACE", "3601")]]);
    for good in ["5", "3600"] {
        plan(&[("TS_TEARDOWN_GRACE", good)]);
    }
    refused(15, "positive integer", &[&[("TS_TEARDOWN_GRACE", "-5")]]);
    refused(16, "zero-padded", &[&[("TS_TEARDOWN_GRACE", "045")]]);
}

#[test]
fn rows_17_to_29_drain() {
    let drain =
        |pairs: &[(&str, &str)]| serve(pairs).windows(2).find(|w| w[0] == "--drain-timeout").map(|w| w[1].clone());
    assert_eq!(drain(&[]).as_deref(), Some("40"), "row 17");
    for (grace, expected) in [("16", "11"), ("15", "13"), ("5", "3")] {
        assert_eq!(drain(&[("TS_TEARDOWN_GRACE", grace)]).as_deref(), Some(expected), "row 18");
    }
    assert_eq!(drain(&[("TS_DRAIN_TIMEOUT", "44")]).as_deref(), Some("44"), "row 19");
    for bad in ["45", "60", "0"] {
        refused(19, "TS_DRAIN_TIMEOUT must be between 1 and 44", &[&[("TS_DRAIN_TIMEOUT", bad)]]);
    }
    plan(&[("TS_TEARDOWN_GRACE", "5"), ("TS_DRAIN_TIMEOUT", "4")]);
    refused(20, "between 1 and 4", &[&[("TS_TEARDOWN_GRACE", "5"), ("TS_DRAIN_TIMEOUT", "5")]]);
    assert_eq!(drain(&[("TS_DRAIN_TIMEOUT", "")]).as_deref(), Some("40"), "row 21");
    refused(
        22,
        "serve_args --drain-timeout must be between",
        &[
            &[("TS_SERVE_ARGS", r#"["--drain-timeout","60"]"#)],
            &[("TS_SERVE_ARGS", r#"["--drain-timeout=60"]"#)],
            &[("TS_SERVE_ARGS", r#"["--drain-timeout","30","--drain-timeout","60"]"#)],
            &[("TS_SERVE_ARGS", r#"["--d=600"]"#)],
            &[("TS_SERVE_ARGS", r#"["--drain","600"]"#)],
        ],
    );
    let last_wins = serve(&[("TS_SERVE_ARGS", r#"["--drain-timeout","60","--drain-timeout","30"]"#)]);
    assert_eq!(last_wins.iter().filter(|a| *a == "--drain-timeout").count(), 2, "row 25: nothing generated");
    refused(
        27,
        "given without a value",
        &[
            &[("TS_SERVE_ARGS", r#"["--drain-timeout","--tp","2"]"#)],
            &[("TS_SERVE_ARGS", r#"["--drain-timeout=30","--drain-timeout"]"#)],
        ],
    );
    refused(29, "zero-padded", &[&[("TS_SERVE_ARGS", r#"["--drain-timeout=030"]"#)]]);
    // Review finding C-01.
    assert_eq!(drain(&[("TS_SERVE_ARGS", r#"["--drain-timeout-mode","fast"]"#)]).as_deref(), Some("40"));
    assert_eq!(drain(&[("TS_SERVE_ARGS", r#"["--note","x --drain-timeout 5"]"#)]).as_deref(), Some("40"));
    assert_eq!(drain(&[("TS_SERVE_ARGS", r#"["--drain","30"]"#)]), None);
}

#[test]
fn rows_30_to_35_arrays() {
    for bad in ["null", "{}", "\"x\"", "[1]", "[[\"a\"]]"] {
        for name in ["TS_SERVE_ARGS", "TS_BENCH_ARGS"] {
            refused(30, "must be a JSON array of strings", &[&[(name, bad)]]);
        }
    }
    refused(31, "TS_SERVE_ARGS is not valid JSON", &[&[("TS_SERVE_ARGS", "--tp 2")]]);
    refused(32, "item 0 contains a NUL", &[&[("TS_SERVE_ARGS", r#"["a\u0000b"]"#)]]);
    assert_eq!(plan(&[("TS_SERVE_ARGS", "[]")]).serve_args, Vec::<String>::new(), "row 33");
    let args = bench(&[("TS_BENCH_ARGS", r#"["--goodput","ttft:100 x","*",""]"#)]);
    assert_eq!(args[args.len() - 4..], ["--goodput", "ttft:100 x", "*", ""], "row 34");
    let args = bench(&[("TS_BENCH_ARGS", r#"["--extra-body","{\"a\": 1}"]"#)]);
    assert_eq!(args[args.len() - 2..], ["--extra-body", "{\"a\": 1}"], "row 35");
}

/// FS-51.
#[test]
fn rows_36_to_52_owned_flags() {
    refused(
        36,
        "TS_SERVE_ARGS may not set --port",
        &[&[("TS_SERVE_ARGS", r#"["--port","1"]"#)], &[("TS_SERVE_ARGS", r#"["--port=1"]"#)]],
    );
    for bad in [r#"["--p","1"]"#, r#"["--po"]"#, r#"["--h"]"#, r#"["--served"]"#] {
        refused(37, "is a prefix of it", &[&[("TS_SERVE_ARGS", bad)]]);
    }
    for bad in [r#"["--control-port","1"]"#, r#"["--served-model-name","x"]"#, r#"["--host","0.0.0.0"]"#] {
        refused(38, "may not set", &[&[("TS_SERVE_ARGS", bad)]]);
    }
    for good in [
        r#"["--tensor-parallel-size","2"]"#,
        r#"["--tp","2"]"#,
        r#"["--enforce-eager"]"#,
        r#"["--port-range","1"]"#,
        r#"["--sampling-backend","greedy"]"#,
    ] {
        let args = serve(&[("TS_SERVE_ARGS", good)]);
        let extras: Vec<String> = serde_json::from_str(good).unwrap();
        assert!(args.ends_with(&extras), "rows 39, 40, 52");
    }
    for flag in proto::args::OWNED_BENCH {
        for spelled in [format!("[\"{flag}\",\"x\"]"), format!("[\"{flag}=x\"]")] {
            refused(41, &format!("TS_BENCH_ARGS may not set {flag}"), &[&[("TS_BENCH_ARGS", &spelled)]]);
        }
    }
    refused(42, "may not set --max-concurrency", &[&[("TS_BENCH_ARGS", r#"["--max-conc","1"]"#)]]);
    refused(43, "may not set --se", &[&[("TS_BENCH_ARGS", r#"["--se","1"]"#)]]);
    for good in
        [r#"["--seed-offset","1"]"#, r#"["-x"]"#, r#"["--"]"#, r#"["{\"--seed\": 1}"]"#, r#"["--extra-body","{}"]"#]
    {
        plan(&[("TS_BENCH_ARGS", good)]);
    }
    refused(45, "--ignore-eos", &[&[("TS_BENCH_ARGS", r#"["--ignore-eos=1"]"#)]]);
    refused(46, "may not set --port", &[&[("TS_SERVE_ARGS", r#"["--","--port","1"]"#)]]);
    refused(47, "may not set --seed", &[&[("TS_BENCH_ARGS", r#"["--foo","--seed"]"#)]]);
    for extra in [r#"["--extra-body","{}"]"#, r#"["--extra-b","{}"]"#] {
        refused(50, "may not set --extra-body", &[&with(ROLLOUT, &[("TS_BENCH_ARGS", extra)])]);
    }
    refused(
        52,
        "may not set --sampling-backend",
        &[&with(ROLLOUT, &[("TS_SERVE_ARGS", r#"["--sampling-backend","greedy"]"#)])],
    );
}

#[test]
fn rows_53_to_56_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.json");
    std::fs::write(&path, "[]").unwrap();
    let good = path.to_str().unwrap();
    let (folder, gone) = (dir.path().to_str().unwrap(), dir.path().join("gone").display().to_string());
    refused(53, "must be random or sharegpt", &[&[("TS_DATASET", "Random")]]);
    refused(53, "requires TS_DATASET_PATH", &[&[("TS_DATASET", "sharegpt")]]);
    for bad in [folder, &gone] {
        refused(53, "is not readable", &[&[("TS_DATASET", "sharegpt"), ("TS_DATASET_PATH", bad)]]);
    }
    refused(53, "is meaningless", &[&[("TS_DATASET_PATH", good)]]);
    let sharegpt = [("TS_DATASET", "sharegpt"), ("TS_DATASET_PATH", good)];
    let args = bench(&sharegpt);
    assert_eq!(value(&args, "--dataset-path"), Some(good), "row 54");
    assert!(!args.iter().any(|a| a.starts_with("--random")), "row 54");
    refused(55, "cannot take effect", &[&[("TS_IGNORE_EOS", "0")], &[("TS_IGNORE_EOS", "true")]]);
    let args = bench(&[sharegpt[0], sharegpt[1], ("TS_IGNORE_EOS", "0")]);
    assert!(!args.iter().any(|a| a == "--ignore-eos"), "row 56");
}

#[test]
fn rows_57_to_59_counts() {
    refused(57, "TS_NUM_PROMPTS must be >= 1", &[&[("TS_NUM_PROMPTS", "0")]]);
    refused(57, "must be a positive integer", &[&[("TS_NUM_PROMPTS", "abc")]]);
    refused(57, "zero-padded", &[&[("TS_NUM_PROMPTS", "032")]]);
    refused(58, "must be >= 1", &[&[("TS_BENCH_STEPS", "0")], &[("TS_BENCH_TIMEOUT", "0")]]);
    refused(58, "must be a positive integer", &[&[("TS_INPUT_LEN", "-1")]]);
    assert_eq!(plan(&[("TS_BENCH_WARMUP_STEPS", "0")]).first_step(), StepId::Measured(1), "row 59");
    refused(59, "must be a non-negative integer", &[&[("TS_BENCH_WARMUP_STEPS", "-1")], &[("TS_NUM_WARMUPS", "x")]]);
}

#[test]
fn rows_60_61_place_and_order() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("out");
    let out_text = out.to_str().unwrap();
    let missing = Some("/nonexistent");
    let run = |pairs: &[(&str, &str)]| validate(&source(pairs), missing, create_out_dir).unwrap_err().to_string();
    for wrong in ["x", "0"] {
        // Before the directory: not created, and the count's message only where tokenspeed is there.
        assert!(run(&[("TS_OUT_DIR", out_text), ("TS_PORT", wrong)]).contains("TS_PORT"));
        assert!(run(&[("TS_OUT_DIR", out_text), ("TS_NUM_PROMPTS", wrong)]).contains("not on PATH"));
        assert!(!out.exists());
    }
    assert!(run(&[("TS_OUT_DIR", out_text)]).contains("'tokenspeed' not on PATH"), "row 60");
    assert!(out.exists(), "row 60");
    std::fs::write(root.path().join("file"), "").unwrap();
    let below = root.path().join("file/out");
    assert!(run(&[("TS_OUT_DIR", below.to_str().unwrap())]).contains("cannot create out dir"), "row 61");
}

#[test]
fn rows_62_to_64_switches() {
    refused(
        62,
        "must be 0 or 1",
        &[&[("TS_SAVE_DETAILED", "yes")], &[("TS_ROLLOUT", "2")], &[("TS_GENERATE_PROBE", "on")]],
    );
    assert!(bench(&[("TS_SAVE_DETAILED", "1")]).contains(&"--save-detailed".to_owned()), "row 63");
    for (name, value) in [
        ("TS_TEMPERATURE", "0.7"),
        ("TS_TOP_P", "0.9"),
        ("TS_ROLLOUT_SAMPLES", "4"),
        ("TS_MIN_MEAN_OUTPUT_TOKENS", "8"),
        ("TS_SAMPLING_BACKEND", "triton"),
    ] {
        refused(64, &format!("{name} is set without TS_ROLLOUT=1"), &[&[(name, value)]]);
        plan(&[(name, "")]);
    }
}

#[test]
fn rows_65_to_75_rollout() {
    refused(65, "requires TS_TEMPERATURE", &[&[("TS_ROLLOUT", "1"), ("TS_IGNORE_EOS", "0")]]);
    for bad in ["1e0", ".5", "1.", "1.2.3", "-1", "x"] {
        refused(66, "plain decimal", &[&with(ROLLOUT, &[("TS_TEMPERATURE", bad)])]);
    }
    for bad in ["0", "0.000000", "2.5"] {
        refused(67, "TS_TEMPERATURE must be greater than 0", &[&with(ROLLOUT, &[("TS_TEMPERATURE", bad)])]);
    }
    plan(&with(ROLLOUT, &[("TS_TEMPERATURE", "2"), ("TS_TOP_P", "1.0")]));
    for bad in ["0", "1.01"] {
        refused(69, "TS_TOP_P must be greater than 0", &[&with(ROLLOUT, &[("TS_TOP_P", bad)])]);
    }
    for bad in ["0", "1025", "04"] {
        refused(70, "TS_ROLLOUT_SAMPLES must", &[&with(ROLLOUT, &[("TS_ROLLOUT_SAMPLES", bad)])]);
    }
    refused(71, "incompatible", &[&[("TS_ROLLOUT", "1"), ("TS_TEMPERATURE", "1")]]);
    refused(72, "non-negative integer", &[&with(ROLLOUT, &[("TS_MIN_MEAN_OUTPUT_TOKENS", "abc")])]);
    let floor = ("TS_MIN_MEAN_OUTPUT_TOKENS", "8");
    refused(73, "caps each completion", &[&with(ROLLOUT, &[("TS_OUTPUT_LEN", "4"), floor])]);
    let many = with(ROLLOUT, &[("TS_ROLLOUT_SAMPLES", "4"), floor]);
    refused(74, "requires TS_SAVE_DETAILED=1", &[&many]);
    plan(&with(&many, &[("TS_SAVE_DETAILED", "1")]));
    plan(&with(&many, &[("TS_MIN_MEAN_OUTPUT_TOKENS", "0")]));
    for bad in ["greedy", "flashinfer", "Triton"] {
        refused(75, "TS_SAMPLING_BACKEND", &[&with(ROLLOUT, &[("TS_SAMPLING_BACKEND", bad)])]);
    }
    assert_eq!(
        value(&serve(&with(ROLLOUT, &[("TS_SAMPLING_BACKEND", "triton_full")])), "--sampling-backend"),
        Some("triton_full")
    );
}

#[test]
fn rows_102_to_106_argv() {
    assert_eq!(value(&serve(&[("TS_MODEL", "m"), ("TS_SERVED_MODEL_NAME", "m")]), "--served-model-name"), None);
    assert_eq!(value(&serve(&[("TS_MODEL", "m"), ("TS_SERVED_MODEL_NAME", "x")]), "--served-model-name"), Some("x"));
    assert_eq!(value(&serve(&[]), "--gateway-startup-timeout"), Some("900"));
    for extras in [r#"["--gateway-startup-timeout=5"]"#, r#"["--gateway-s","5"]"#] {
        assert_eq!(value(&serve(&[("TS_SERVE_ARGS", extras)]), "--gateway-startup-timeout"), None, "row 103");
    }
    assert_eq!(value(&bench(&[]), "--max-concurrency"), None, "row 104");
    assert_eq!(value(&bench(&[("TS_MAX_CONCURRENCY", "8")]), "--max-concurrency"), Some("8"));
    let four = with(ROLLOUT, &[("TS_ROLLOUT_SAMPLES", "4"), ("TS_SAVE_DETAILED", "1")]);
    let args = bench(&four);
    assert_eq!(value(&args, "--extra-body"), Some(r#"{"ignore_eos": false, "n": 4, "temperature": 1.0}"#), "row 105");
    assert!(!args.iter().any(|a| a == "--ignore-eos"), "row 105");
    let body = plan(&with(&four, &[("TS_TOP_P", "0.95"), ("TS_TEMPERATURE", "00.70")])).extra_body().unwrap();
    assert_eq!(body, r#"{"ignore_eos": false, "n": 4, "temperature": 0.7, "top_p": 0.95}"#);
    let args = bench(&[]);
    for (flag, present) in [("--extra-body", false), ("--save-detailed", false), ("--ignore-eos", true)] {
        assert_eq!(args.iter().any(|a| a == flag), present, "row 106 {flag}");
    }
}

#[test]
fn the_engine_budget_is_raised_only_where_it_would_cut_the_deadline() {
    let flag = "--engine-startup-timeout";
    assert_eq!(value(&serve(&[("TS_READY_TIMEOUT", "1800")]), flag), None);
    assert_eq!(value(&serve(&[("TS_READY_TIMEOUT", "1801")]), flag), Some("1801"));
    let extras = [("TS_READY_TIMEOUT", "2400"), ("TS_SERVE_ARGS", r#"["--engine-startup-timeout","3000"]"#)];
    assert_eq!(value(&serve(&extras), flag), Some("3000"));
}

#[test]
fn the_order_of_a6_decides_the_message() {
    // Each is wrong like the one before it, too.
    let ladder: &[(&str, &str, &str)] = &[
        ("TS_NUM_PROMPTS", "0", "TS_NUM_PROMPTS"),
        ("TS_BENCH_STEPS", "0", "TS_BENCH_STEPS"),
        ("TS_SERVE_ARGS", r#"["--drain-timeout=60"]"#, "--drain-timeout"),
        ("TS_DRAIN_TIMEOUT", "99", "TS_DRAIN_TIMEOUT"),
        ("TS_TEMPERATURE", "1", "TS_TEMPERATURE"),
        ("TS_SAVE_DETAILED", "2", "TS_SAVE_DETAILED"),
        ("TS_ROLLOUT", "2", "TS_ROLLOUT"),
        ("TS_TEARDOWN_GRACE", "1", "TS_TEARDOWN_GRACE"),
        ("TS_READY_TIMEOUT", "0", "TS_READY_TIMEOUT"),
        ("TS_IGNORE_EOS", "0", "TS_IGNORE_EOS"),
        ("TS_DATASET", "x", "TS_DATASET"),
        ("TS_BENCH_ARGS", "[\"--seed\"]", "TS_BENCH_ARGS"),
        ("TS_CONTROL_PORT", "8000", "must differ"),
        ("TS_PORT", "x", "TS_PORT must be"),
    ];
    for rungs in 1..=ladder.len() {
        let pairs: Vec<_> = ladder[..rungs].iter().map(|(k, v, _)| (*k, *v)).collect();
        refused(0, ladder[rungs - 1].2, &[&pairs]);
    }
}

/// FS-53, FS-79.
#[test]
fn variables_of_our_own() {
    assert_eq!((plan(&[]).lease_sec, plan(&[]).lease_named, plan(&[]).generate_probe), (20, false, false));
    assert_eq!(plan(&[("TS_LEASE_SEC", "0")]).lease_sec, 0);
    refused(0, "TS_LEASE_SEC must be between 0 and 86400", &[&[("TS_LEASE_SEC", "86401")]]);
    refused(0, "TS_BENCH_TOOL must be tokenspeed or native", &[&[("TS_BENCH_TOOL", "x")]]);
    refused(0, "TS_RUN_TOKEN is not usable", &[&[("TS_RUN_TOKEN", "../x")]]);
    refused(0, "requires TS_GRPC_TOKEN", &[&[("TS_GRPC_LISTEN", "tcp://0.0.0.0:9000")]]);
    let open = plan(&[("TS_GRPC_LISTEN", "tcp://0.0.0.0:9000"), ("TS_GRPC_TOKEN", "canary")]);
    assert!(!format!("{open:?}").contains("canary"));
    refused(0, "which the server needs", &[&[("TS_GRPC_LISTEN", "tcp://127.0.0.1:8001")]]);
    refused(0, "--prometheus-port must differ", &[&[("TS_SERVE_ARGS", r#"["--prometheus-port","8000"]"#)]]);
    plan(&[("TS_SERVE_ARGS", r#"["--prometheus-port","9000"]"#)]);
}

#[test]
fn an_error_names_setting_value_and_remedy() {
    let error = parse(&source(&[("TS_PORT", "08000")])).unwrap_err();
    assert_eq!(error.to_string(), "usage TS_PORT must not be zero-padded, got '08000'\n  write 8000");
    let error = parse(&source(&[(env::TS_BENCH_ARGS, r#"["--num-p=4"]"#)])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "usage TS_BENCH_ARGS may not set --num-prompts: '--num-p' is a prefix of it, and abbreviations are resolved\n  \
         set the workload_config field num_prompts instead"
    );
}

#[cfg(feature = "tokenizer")]
#[test]
fn the_native_tool_gets_a_command_line_that_it_can_run() {
    let native = |more: &[(&'static str, &'static str)]| {
        let plan = plan(&with(&[("TS_BENCH_TOOL", "native")], more));
        plan.step_argv("/bin/tokenspeed".as_ref(), "/ts-bin/agent".as_ref(), StepId::Measured(2))
    };
    let argv = native(&[("TS_MAX_CONCURRENCY", "8"), ("TS_RUN_TOKEN", "t")]);
    assert_eq!((argv.program.to_str(), argv.args[0].as_str()), (Some("/ts-bin/agent"), "load"));
    for (flag, expected) in [
        ("--url", "http://127.0.0.1:8000"),
        ("--tokenizer", "Qwen/Qwen3-0.6B"),
        ("--random-input-len", "1024"),
        ("--max-tokens", "128"),
        ("--num-prompts", "64"),
        ("--warmup", "1"),
        ("--concurrency", "8"),
        ("--label", "native-bench-step2"),
        ("--request-id-prefix", "aorta-t-bench-s2"),
        ("--export", "/ts-out/bench.t.step2.json"),
    ] {
        assert_eq!(value(&argv.args, flag), Some(expected), "{flag}");
    }
    assert_eq!(value(&native(&[]).args, "--concurrency"), Some("64"), "no limit: everything at once");
    assert_eq!(value(&native(&[("TS_MAX_CONCURRENCY", "0")]).args, "--concurrency"), Some("64"), "nor is 0 one");
    let paced = native(&[("TS_REQUEST_RATE", "2.5"), ("TS_MAX_CONCURRENCY", "9")]).args;
    assert_eq!(value(&paced, "--arrival"), Some("poisson:2.5"));
    assert_eq!((value(&paced, "--max-in-flight"), value(&paced, "--concurrency")), (Some("9"), Some("9")));
    let paced = native(&[("TS_REQUEST_RATE", "2.5"), ("TS_NUM_PROMPTS", "9000")]).args;
    assert_eq!((value(&paced, "--max-in-flight"), value(&paced, "--concurrency")), (None, Some("256")));
    let rollout = with(ROLLOUT, &[("TS_ROLLOUT_SAMPLES", "4"), ("TS_SAVE_DETAILED", "1")]);
    let rollout = native(&rollout).args;
    assert_eq!(value(&rollout, "--extra-body"), Some(r#"{"ignore_eos": false, "n": 4, "temperature": 1.0}"#));
    assert!(!rollout.iter().any(|a| a == "--ignore-eos") && rollout.iter().any(|a| a == "--save-detailed"));
    let extras = native(&[("TS_BENCH_ARGS", r#"["--cpus","1","--extra-body","{\"x\":1}"]"#)]).args;
    assert!(extras.ends_with(&["--cpus", "1", "--extra-body", r#"{"x":1}"#].map(str::to_owned)));
}

#[cfg(feature = "tokenizer")]
#[test]
fn what_the_native_tool_cannot_run_is_refused_by_name() {
    let native = |phrase: &str, more: &[(&'static str, &'static str)]| {
        refused(0, phrase, &[&with(&[("TS_BENCH_TOOL", "native")], more)]);
    };
    native("TS_REQUEST_RATE cannot be run", &[("TS_REQUEST_RATE", "-1")]);
    native("TS_REQUEST_RATE cannot be run", &[("TS_REQUEST_RATE", "nan")]);
    native("TS_MAX_CONCURRENCY cannot be run", &[("TS_MAX_CONCURRENCY", "many")]);
    native("TS_SEED cannot be run", &[("TS_SEED", "x")]);
    native("TS_METRIC_PERCENTILES cannot be run", &[("TS_METRIC_PERCENTILES", "50,101")]);
    native("TS_BENCH_ARGS may not hold \"--seed\"", &[("TS_BENCH_ARGS", r#"["--seed","1"]"#)]);
    native("TS_BENCH_ARGS may not hold \"--goodput\"", &[("TS_BENCH_ARGS", r#"["--goodput","ttft:1"]"#)]);
    native("TS_BENCH_ARGS cannot be run", &[("TS_BENCH_ARGS", r#"["--extra-body","[]"]"#)]);
    native("TS_BENCH_ARGS may not set --extra-body", &with(ROLLOUT, &[("TS_BENCH_ARGS", r#"["--extra-body={}"]"#)]));
    native("/nowhere/tokenizer.json is not there", &[("TS_TOKENIZER", "/nowhere")]);
}
