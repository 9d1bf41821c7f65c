//! Contract K.4, row by row: texts in, trials or refusals out.

use std::path::Path;

use proptest::prelude::*;
use proto::finding::FindingId;
use proto::limits::{Dataset, SamplingBackend};

use super::source::{Format, parse};
use super::trial::{Data, Gate, GateSide, RuntimeKind, Trial};
use super::{Loaded, Overrides, keys, validate};
use crate::error::ConfigErrors;

fn read(yaml: &str) -> Result<Loaded, ConfigErrors> {
    validate(parse(yaml, Format::Yaml).unwrap_or_else(|e| panic!("{yaml}: {e}")), &Overrides::default())
}

fn ok(yaml: &str) -> Trial {
    read(yaml).unwrap_or_else(|e| panic!("{yaml}: {e}")).trial
}

/// The first refusal; it names its key, begins as agreed and has a remedy.
fn refused(yaml: &str, key: &str) -> String {
    let errors = read(yaml).err().unwrap_or_else(|| panic!("accepted: {yaml}"));
    let error = errors.first;
    assert_eq!(error.key.as_deref(), Some(key), "{yaml}: {error}");
    assert!(error.message.starts_with("tokenspeed_serve: ") && error.message.contains(key), "{yaml}: {error}");
    assert!(!error.hint.is_empty(), "{yaml}: {error}");
    error.message
}

#[test]
fn rows_145_to_148_integers() {
    for bad in ["0", "-1", "true", "1.9", "null", "[]", "abc", "{}", "2026-01-01", "1e3", "18446744073709551616"] {
        refused(&format!("num_prompts: {bad}"), "num_prompts");
    }
    assert!(refused("num_prompts: true", "num_prompts").contains("boolean"));
    assert!(refused("num_prompts: 1.9", "num_prompts").contains("must be a whole number"));
    assert!(refused("num_prompts: abc", "num_prompts").contains("must be an integer"));
    assert!(refused("num_prompts: -1", "num_prompts").contains(">= 1"));
    for good in ["32.0", "\"32\"", "32", "0x20", "3_2", "040"] {
        assert_eq!(ok(&format!("num_prompts: {good}")).load.num_prompts, 32, "{good}");
    }
    for bad in ["\"08\"", "08", "\"+5\"", "\" 5 \"", "\"3_0\"", "\"\"", "\"-5\"", "\"99999999999999999999\""] {
        refused(&format!("num_prompts: {bad}"), "num_prompts");
    }
    for bad in [".inf", ".nan", "-.inf"] {
        assert!(refused(&format!("num_prompts: {bad}"), "num_prompts").contains("finite"));
    }
}

#[test]
fn rows_149_and_150_steps_and_concurrency() {
    for bad in ["true", "1.9", "0", "4294967296"] {
        refused(&format!("steps: {bad}"), "steps");
    }
    assert_eq!(ok("steps: null").load.steps, 1);
    assert_eq!(ok("steps: 3").load.steps, 3);
    assert!(refused("max_concurrency: 0", "max_concurrency").contains("omit it"));
    assert_eq!(ok("max_concurrency: null").load.max_concurrency, None);
    assert_eq!(ok("{}").load.max_concurrency, None);
    assert_eq!(ok("max_concurrency: 8").load.max_concurrency, Some(8));
}

#[test]
fn rows_151_to_154_request_rate() {
    for unlimited in ["\"inf\"", "inf", "\" INF \"", "\"+inf\"", "Infinity"] {
        assert_eq!(ok(&format!("request_rate: {unlimited}")).load.request_rate, "inf", "{unlimited}");
    }
    let huge = format!("1{}", "0".repeat(400));
    for bad in [
        ".inf",
        "1.0e+999",
        "1.0e999",
        "\"1e999\"",
        "\"-inf\"",
        ".nan",
        "\"nan\"",
        "0",
        "-3.5",
        "true",
        &huge,
        "null",
        "abc",
        "\"\"",
        "[]",
        "\"1__0\"",
        "\"_1\"",
        "\"0x10\"",
    ] {
        refused(&format!("request_rate: {bad}"), "request_rate");
    }
    assert!(refused(&format!("request_rate: {huge}"), "request_rate").contains("too large"));
    for (given, sent) in
        [("4", "4.0"), ("\"8\"", "8.0"), ("0.5", "0.5"), ("1e3", "1000.0"), ("\"1_0\"", "10.0"), ("1.0e+20", "1e+20")]
    {
        assert_eq!(ok(&format!("request_rate: {given}")).load.request_rate, sent, "{given}");
    }
}

#[test]
fn rows_155_to_157_booleans() {
    let message = refused("ignore_eos: false", "ignore_eos");
    assert!(message.contains("sharegpt") && message.contains("extra-body"), "{message}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    assert!(!ok(&format!("{{dataset: sharegpt, dataset_path: {path}, ignore_eos: false}}")).load.ignore_eos);
    for (key, value) in
        [("ignore_eos", "\"yes\""), ("keep_work_dir", "null"), ("exclusive_gpus", "1"), ("rollout", "\"true\"")]
    {
        assert!(refused(&format!("{key}: {value}"), key).contains("must be a bool"));
    }
    // `yes` without quotes is a boolean of YAML 1.1.
    assert!(ok("exclusive_gpus: yes").gpus.exclusive);
}

#[test]
fn rows_158_and_159_ports() {
    for bad in ["80", "0", "1023", "65536", "70000", "-1", "\"8000\"", "8000.0", "null", "true", "[]", "Auto"] {
        refused(&format!("port: {bad}"), "port");
        refused(&format!("control_port: {bad}"), "control_port");
    }
    assert!(refused("port: 80", "port").contains("1024..65535"));
    assert!(refused("port: \"8000\"", "port").contains("must be an int or \"auto\""));
    refused("{port: 8000, control_port: 8000}", "control_port");
    let ports = ok("{port: 8000, control_port: auto}").ports;
    assert_eq!((ports.gateway, ports.control), (Some(8000), None));
    assert_eq!(ok("{port: 1024, control_port: 65535}").ports.control, Some(65535));
    let taken = "{port: 9000, serve_args: [\"--prometheus-port\", \"9000\"]}";
    assert!(refused(taken, "serve_args").contains("--prometheus-port"));
}

/// FS-84.
#[test]
fn rows_160_to_162_deadlines() {
    refused("ready_timeout_sec: 86401", "ready_timeout_sec");
    refused("teardown_grace_sec: 4", "teardown_grace_sec");
    refused("teardown_grace_sec: 3601", "teardown_grace_sec");
    assert_eq!(ok("teardown_grace_sec: 5").timing.teardown_grace_sec, 5);
    assert!(refused("timeout_sec: 900", "timeout_sec").contains("greater than ready_timeout_sec"));
    assert_eq!(ok("timeout_sec: 901").timing.timeout_sec, 901);
    for (steps, contract) in [(1, 5145), (3, 8745)] {
        let timeout = |probe| ok(&format!("{{steps: {steps}, generate_probe: {probe}}}")).timing.timeout_sec;
        assert_eq!(timeout(false), contract);
        // Design section 3a: the probe's window is added to the derived deadline.
        assert_eq!(timeout(true), contract + 120);
    }
    assert_eq!(ok("ready_timeout_sec: 2400").timing.gateway_startup_timeout_sec, 2400);
}

/// Failure scenario FS-84.
#[test]
fn deadlines_saturate() {
    let huge = ok("{bench_timeout_sec: 31536000, steps: 4294967295, warmup_steps: 4294967295}");
    assert_eq!(huge.timing.timeout_sec, 900 + 2 * 4_294_967_295 * 31_536_000 + 45 + 600 + 120);
    // What the agent would refuse is refused here (seed, "the same values").
    refused("bench_timeout_sec: 31536001", "bench_timeout_sec");
    // Null is no number, also where the default is derived (contract E.1).
    refused("gateway_startup_timeout_sec: null", "gateway_startup_timeout_sec");
    refused("timeout_sec: null", "timeout_sec");
    let short = read("{timeout_sec: 4544, bench_timeout_sec: 1800}").unwrap();
    assert!(short.findings.iter().any(|f| f.id == FindingId::ConfigDoubtful && f.detail.contains("4545")));
    assert!(read("{timeout_sec: 4545, bench_timeout_sec: 1800}").unwrap().findings.is_empty());
}

#[test]
fn row_163_percentiles() {
    for (bad, phrase) in [
        ("\"0,50\"", "must be in (0, 100)"),
        ("\"50,100\"", "must be in (0, 100)"),
        ("\"50,abc\"", "is not a number"),
        ("\"50,,90\"", "empty entry"),
        ("\"nan\"", "must be in (0, 100)"),
    ] {
        let message = refused(&format!("metric_percentiles: {bad}"), "metric_percentiles");
        assert!(message.contains(phrase), "{message}");
    }
    assert_eq!(ok("metric_percentiles: \"99.9\"").load.metric_percentiles, "99.9");
    assert_eq!(ok("metric_percentiles: 99").load.metric_percentiles, "99");
    assert_eq!(ok("metric_percentiles: \"50, 90\"").load.metric_percentiles, "50, 90");
}

#[test]
fn row_164_dataset() {
    refused("dataset: foo", "dataset");
    refused("dataset: sharegpt", "dataset_path");
    refused("{dataset: sharegpt, dataset_path: /nowhere/at/all.json}", "dataset_path");
    refused("{dataset: sharegpt, dataset_path: /tmp}", "dataset_path");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    refused(&format!("{{dataset: random, dataset_path: {path}}}"), "dataset_path");
    // Links are followed, the name is trimmed.
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link.json");
    std::os::unix::fs::symlink(file.path(), &link).unwrap();
    let trial = ok(&format!("{{dataset: ' sharegpt ', dataset_path: {}}}", link.display()));
    assert_eq!(trial.load.data.dataset(), Dataset::Sharegpt);
    let Data::Sharegpt { path, .. } = trial.load.data else { panic!("random") };
    assert_eq!(path, file.path().canonicalize().unwrap());
}

#[test]
fn rows_165_and_166_gates() {
    refused("gates: []", "gates");
    assert_eq!(ok("gates: null").gates, []);
    let unknown = read("gates: {max_median_tfft_ms: 1}").err().unwrap().first;
    assert!(unknown.message.contains("unknown gate") && unknown.hint.contains("max_median_ttft_ms"), "{unknown}");
    for bad in ["true", "0", "-1", ".inf", "null", ".nan", "fast"] {
        refused(&format!("gates: {{max_median_ttft_ms: {bad}}}"), "gates.max_median_ttft_ms");
    }
    let trial = ok("gates: {min_output_throughput: 1.5, max_p99_itl_ms: 50}");
    let gate = |key: &str, side, metric: &str, bound| Gate { key: key.into(), side, metric: metric.into(), bound };
    assert_eq!(
        trial.gates,
        [
            gate("min_output_throughput", GateSide::Min, "output_throughput", 1.5),
            gate("max_p99_itl_ms", GateSide::Max, "p99_itl_ms", 50.0),
        ]
    );
    for name in keys::GATES {
        ok(&format!("gates: {{{name}: 1}}"));
    }
    // YAML 1.1 reads the first as a text; to the original it is a number all the same.
    for (bound, value) in [("1e3", 1000.0), ("\"1.5e2\"", 150.0), ("\" 5 \"", 5.0), ("1_0", 10.0)] {
        assert_eq!(ok(&format!("gates: {{max_p99_itl_ms: {bound}}}")).gates[0].bound.to_bits(), f64::to_bits(value));
    }
    for bad in ["\"inf\"", "\"nan\"", "\"1e999\"", "\"-1e3\"", "\"\""] {
        refused(&format!("gates: {{max_p99_itl_ms: {bad}}}"), "gates.max_p99_itl_ms");
    }
}

#[test]
fn rows_167_to_171_argument_lists() {
    assert!(refused("serve_args: \"--foo 'bar\"", "serve_args").contains("is not a parseable command line"));
    assert_eq!(ok("serve_args: '--x \"a b\"'").serve_args, ["--x", "a b"]);
    assert_eq!(ok("serve_args: [2, true, null]").serve_args, ["2", "True", "None"]);
    assert_eq!(ok("serve_args: null").serve_args, Vec::<String>::new());
    refused("serve_args: 5", "serve_args");
    refused("serve_args: [[1]]", "serve_args");
    assert!(refused("bench_args: [ok, \"a\\0b\"]", "bench_args[1]").contains("NUL"));
    for bad in [
        "[\"--drain-timeout\", \"+5\"]",
        "[--drain-timeout, \"45\"]",
        "[--drain-timeout, \"0\"]",
        "[--drain-timeout, \"08\"]",
        "[--drain-timeout]",
        "[--drain-timeout, --tp]",
    ] {
        refused(&format!("serve_args: {bad}"), "serve_args");
    }
    ok("serve_args: [--drain-timeout, \"44\"]");
}

/// Contract D.5: what the agent would refuse is refused before a node is taken.
#[test]
fn owned_flags_are_refused_on_the_host() {
    let message = refused("bench_args: [--max-conc, \"1\"]", "bench_args");
    assert!(message.contains("--max-concurrency") && message.contains("abbreviates"), "{message}");
    refused("serve_args: \"--port 9000\"", "serve_args");
    refused("serve_args: [--served]", "serve_args");
    ok("bench_args: [--extra-body, '{\"ignore_eos\": false}']");
    refused("{rollout: true, bench_args: [--extra-body, '{}']}", "bench_args");
    refused("{rollout: true, serve_args: [--sampling-backend=triton]}", "serve_args");
    ok("serve_args: [--sampling-backend=triton]");
}

#[test]
fn row_172_unknown_keys() {
    let loaded = read("{num_prompt: 4, _aorta_whatever: 1, steps: 2}").unwrap();
    let [finding] = loaded.findings.as_slice() else { panic!("{:?}", loaded.findings) };
    assert_eq!(finding.id, FindingId::UnknownKey);
    assert!(
        finding.detail.contains("ignoring unknown workload_config key \"num_prompt\" (line 1, column 2)"),
        "{finding:?}"
    );
    assert!(finding.hint.contains("num_prompts"), "{finding:?}");
    assert_eq!(loaded.trial.load.num_prompts, 64);
}

#[test]
fn rows_173_to_175_image_and_devices() {
    assert_eq!(ok("{_aorta_environment: {docker: X}, image: Y}").image, "X");
    for none in ["{docker: null}", "{docker: ''}", "{name: local}", "null", "local"] {
        assert_eq!(ok(&format!("{{_aorta_environment: {none}, image: Y}}")).image, "Y", "{none}");
    }
    assert_eq!(ok("image: ''").image, keys::IMAGE);
    assert_eq!(ok("hip_visible_devices: 0").gpus.hip_visible_devices.as_deref(), Some("0"));
    assert_eq!(ok("hip_visible_devices: ''").gpus.hip_visible_devices.as_deref(), Some(""));
    assert_eq!(ok("hip_visible_devices: 0,1").gpus.hip_visible_devices.as_deref(), Some("0,1"));
    assert_eq!(ok("hip_visible_devices: null").gpus.hip_visible_devices, None);
}

#[test]
fn rows_176_to_178_rollout_is_a_mode() {
    for key in keys::ROLLOUT_ONLY {
        for value in ["1", "null"] {
            assert!(refused(&format!("{key}: {value}"), key).contains("requires rollout: true"));
        }
    }
    assert!(ok("save_detailed: true").load.save_detailed);
    refused("{rollout: true, ignore_eos: true}", "ignore_eos");
}

#[test]
fn row_179_rollout_defaults() {
    let load = ok("rollout: true").load;
    let rollout = load.rollout.unwrap();
    assert_eq!((rollout.samples, rollout.temperature, rollout.top_p), (4, 1.0, None));
    assert_eq!((rollout.min_mean_output_tokens, rollout.sampling_backend), (8, SamplingBackend::Triton));
    assert!(load.save_detailed && !load.ignore_eos);
}

#[test]
fn rows_180_to_182_rollout_ranges() {
    for (key, bad) in [
        ("temperature", &["0", "2.01", "true", ".inf", "null", "hot", "-1", "1e0"][..]),
        ("top_p", &["0", "1.01", "true", ".nan", "x"]),
        ("rollout_samples", &["0", "1025", "true", "null"]),
        ("min_mean_output_tokens", &["-1", "true", "null", "1.5"]),
    ] {
        for value in bad {
            refused(&format!("{{rollout: true, {key}: {value}}}"), key);
        }
    }
    let rollout = |yaml: &str| ok(&format!("{{rollout: true, {yaml}}}")).load.rollout.unwrap();
    assert_eq!(rollout("temperature: 2").temperature.to_string(), "2");
    assert_eq!(rollout("temperature: 0.0000001").temperature.to_string(), "0.0000001");
    assert_eq!(rollout("top_p: null").top_p, None);
    assert_eq!(rollout("top_p: 1").top_p, Some(1.0));
    assert_eq!(rollout("rollout_samples: 1024").samples, 1024);
}

#[test]
fn rows_183_to_185_rollout_cross_rules() {
    let message = refused("{rollout: true, output_len: 4}", "min_mean_output_tokens");
    assert!(message.contains("any run"), "{message}");
    ok("{rollout: true, output_len: 8}");
    let hint = read("{rollout: true, output_len: 4}").err().unwrap().first.hint;
    assert!(hint.contains("min_mean_output_tokens: 0"), "{hint}");
    ok("{rollout: true, output_len: 4, min_mean_output_tokens: 0}");
    let file = tempfile::NamedTempFile::new().unwrap();
    ok(&format!("{{rollout: true, output_len: 4, dataset: sharegpt, dataset_path: {}}}", file.path().display()));
    for bad in ["greedy", "flashinfer", "flashinfer_full", "\"\"", "x", "1"] {
        refused(&format!("{{rollout: true, sampling_backend: {bad}}}"), "sampling_backend");
    }
    assert_eq!(
        ok("{rollout: true, sampling_backend: triton_full}").load.rollout.unwrap().sampling_backend,
        SamplingBackend::TritonFull
    );
    refused("{rollout: true, save_detailed: false}", "save_detailed");
    ok("{rollout: true, save_detailed: false, min_mean_output_tokens: 0}");
    ok("{rollout: true, save_detailed: false, rollout_samples: 1}");
}

/// Row 186: every recipe of the repository, cell by cell.
#[test]
fn row_186_recipes_load_without_a_remark() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recipes");
    let mut cells = 0;
    for dir in [root.clone(), root.join("tokenspeed")] {
        for file in std::fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        {
            let recipe = super::source::read(&file).unwrap();
            let recipe = recipe.root.as_map().unwrap();
            let Some(list) = recipe.get("cells").and_then(super::value::Value::as_seq) else { continue };
            for cell in list {
                let cell = cell.as_map().unwrap();
                let mut config = super::value::Map::default();
                for part in [recipe.get("workload_config"), cell.get("workload_config")].into_iter().flatten() {
                    for (key, value) in part.as_map().unwrap().iter() {
                        config.insert(key.clone(), value.clone());
                    }
                }
                let root = super::value::Value::new(super::value::Node::Map(config), super::value::Pos::default());
                let loaded = validate(super::value::Document { root, duplicates: Vec::new() }, &Overrides::default())
                    .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                let remarks: Vec<_> =
                    loaded.findings.iter().filter(|f| f.id != FindingId::ToolConcurrencyCap).collect();
                assert!(remarks.is_empty(), "{}: {remarks:?}", file.display());
                cells += 1;
            }
        }
    }
    assert!(cells >= 39, "{cells}");
}

#[test]
fn keys_of_our_own() {
    let own = ok("{}").own;
    assert_eq!((own.runtime, own.container_cli.as_str(), own.lease_sec), (RuntimeKind::Docker, "docker", 20));
    assert_eq!(own.pull_timeout_sec, 3600);
    assert!(own.generate_probe && !own.strict_load && ok("{}").gpus.required);
    let process = ok("runtime: process");
    assert!(!process.gpus.required);
    assert!(ok("{runtime: process, require_gpu: true}").gpus.required);
    assert_eq!(ok("runtime: podman").own.container_cli, "podman");
    for (key, bad) in [
        ("runtime", "kvm"),
        ("pull", "maybe"),
        ("bench_tool", "wrk"),
        ("lease_sec", "-1"),
        ("lease_sec", "86401"),
        ("pull_timeout_sec", "0"),
    ] {
        refused(&format!("{key}: {bad}"), key);
    }
    let overrides = Overrides { runtime: Some(RuntimeKind::Process), agent_path: Some("/a".into()) };
    let document = parse("{runtime: docker, agent_path: /b, shm_size: 1g, image: x}", Format::Yaml).unwrap();
    let loaded = validate(document, &overrides).unwrap();
    assert_eq!(loaded.trial.own.agent_path.as_deref(), Some(Path::new("/a")));
    assert!(!loaded.trial.gpus.required);
    let [ignored] = loaded.findings.as_slice() else { panic!("{:?}", loaded.findings) };
    assert_eq!(ignored.id, FindingId::IgnoredUnderProcess);
    assert!(ignored.detail.contains("image, shm_size"), "{ignored:?}");
}

#[test]
fn load_findings_and_strict_load() {
    let many = "{max_concurrency: 1024, num_prompts: 2048}";
    assert!(read(many).unwrap().findings.iter().any(|f| f.id == FindingId::ToolConcurrencyCap));
    for fine in [
        "{max_concurrency: 100, num_prompts: 2048}",
        "{num_prompts: 100}",
        "{max_concurrency: 1024, num_prompts: 2048, bench_tool: native}",
    ] {
        assert!(read(fine).unwrap().findings.is_empty(), "{fine}");
    }
    refused("{max_concurrency: 1024, num_prompts: 2048, strict_load: true}", "max_concurrency");
    refused("{num_prompts: 101, strict_load: true}", "max_concurrency");
    let doubt = read("percentile_metrics: tpot").unwrap().findings;
    assert!(doubt.iter().any(|f| f.id == FindingId::ConfigDoubtful && f.detail.contains("ttft")), "{doubt:?}");
    assert!(read("percentile_metrics: 'tpot, ttft'").unwrap().findings.is_empty());
}

#[test]
fn documents_of_any_shape() {
    assert_eq!(ok("{config: {model: m, steps: 2}, _aorta_trial_env: {A: b}}").model.model, "m");
    assert_eq!(ok("config: {model: m}").model.served, "m");
    let twice = read("{model: a, config: {model: b}}").unwrap();
    assert_eq!(twice.trial.model.model, "b");
    assert_eq!(twice.findings[0].id, FindingId::ConfigDoubtful);
    let twice = read("model: a\nmodel: b").unwrap();
    assert_eq!((twice.trial.model.model.as_str(), twice.findings.len()), ("b", 1));
    for bad in ["[]", "text", "", "3"] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
    assert!(read("1: 2").is_err());
}

#[test]
fn every_error_is_collected_in_order_with_its_place() {
    let errors = read("seed: -1\nmodel: [a]\nnum_prompts: 0\nport: x\n").err().unwrap();
    let seen: Vec<_> = errors.iter().map(|e| (e.key.clone().unwrap(), e.at.unwrap().line)).collect();
    assert_eq!(seen, [("model".into(), 2), ("num_prompts".into(), 3), ("seed".into(), 1), ("port".into(), 4)]);
    insta::assert_snapshot!(errors);
}

#[test]
fn json_and_yaml_give_the_same_trial() {
    let json = r#"{"model": "m", "num_prompts": 8, "request_rate": 1e1, "gates": {"max_p99_ttft_ms": 5}, "serve_args": ["a"]}"#;
    let yaml = "model: m\nnum_prompts: 8\nrequest_rate: 10\ngates:\n  max_p99_ttft_ms: 5\nserve_args: [a]\n";
    let json = validate(parse(json, Format::Json).unwrap(), &Overrides::default()).unwrap();
    assert_eq!(format!("{:?}", json.trial), format!("{:?}", ok(yaml)));
}

/// FS-77.
#[test]
fn environment_values_never_show() {
    for bad in [
        "{_aorta_trial_env: {TS_PORT: s3cret}}",
        "{_aorta_trial_env: {HF_TOKEN: s3cret}}",
        "{_aorta_trial_env: {A: [s3cret]}}",
        "{_aorta_trial_env: {1a: s3cret}}",
    ] {
        let errors = read(bad).err().unwrap_or_else(|| panic!("{bad}"));
        assert!(!errors.to_string().contains("s3cret"), "{errors}");
        let document = serde_json::to_string(&crate::error::ErrorDocument::from(&errors)).unwrap();
        assert!(!document.contains("s3cret"), "{document}");
    }
}

proptest! {
    #[test]
    fn the_rate_grammar_never_panics_and_is_finite(text in "[ +\\-0-9_.eEinfaIN]{0,12}") {
        use super::value::{Node, Pos, Value};
        if let Ok(sent) = super::load::rate(&Value::new(Node::Str(text), Pos::default())) {
            let number: f64 = sent.parse().unwrap();
            prop_assert!(sent == "inf" || (number.is_finite() && number > 0.0), "{}", sent);
        }
    }

    #[test]
    fn no_document_panics(text in "([a-z_]{1,12}: ?(\\.inf|-?[0-9_.]{0,5}|\\[.{0,6}\\]|.{0,8})\n){0,4}") {
        if let Ok(document) = parse(&text, Format::Yaml) {
            let _ = validate(document, &Overrides::default());
        }
    }
}
