//! What is fuzzed, and what must hold for every input beside "no panic, no hang". Both the fuzzer and the ordinary
//! tests (`tests/tests/fuzz_corpus.rs`) run these functions.

use controller::config::source::{Format, parse};
use controller::config::trial::{RuntimeKind, Trial};
use controller::config::{Overrides, validate};
use controller::launch::{docker_args, guard};
use proto::args::{self, OWNED_BENCH, OWNED_BENCH_ROLLOUT, OWNED_SERVE, OWNED_SERVE_ROLLOUT};
use proto::export::{self, Expectation, Layer, Rollout};
use proto::limits::Dataset;
use serde_json::{Value, json};

/// One target.
pub(crate) type Target = fn(&[u8]);

/// Every target by name; the corpus of each is the folder of that name.
pub(crate) const ALL: &[(&str, Target)] = &[
    ("export", export),
    ("arguments", arguments),
    ("docker_args", docker_arguments),
    ("config_yaml", config_yaml),
    ("config_json", config_json),
    ("rate", rate),
    ("percentiles", percentiles),
];

/// The export reader and the judgement of both layers.
fn export(data: &[u8]) {
    let hashed = export::read(data);
    let plain = export::read_unhashed(data);
    assert_eq!(hashed.is_ok(), plain.is_ok(), "the hash changes the reading");
    let Ok(export) = hashed else {
        // A document that any reader takes, ours must take too: all but repeated keys is JSON to both.
        assert!(!is_plain_object(data), "a plain JSON object is refused: {plain:?}");
        return;
    };
    assert_eq!(export.bytes, data.len() as u64);
    for (key, value) in &export.scalars {
        assert!(value.as_f64().is_finite(), "{key} is {value:?}");
    }
    for samples in [None, Some(1), Some(4)] {
        for dataset in [Dataset::Random, Dataset::Sharegpt] {
            let rollout = samples.map(|samples| Rollout { samples, min_mean_output_tokens: 8 });
            let expectation =
                Expectation { num_prompts: 2, dataset, output_len: 16, ignore_eos: rollout.is_none(), rollout };
            let agent = export::judge(&export, &expectation, Layer::Agent);
            let host = export::judge(&export, &expectation, Layer::Host);
            // The host has more rules, never fewer.
            assert!(agent.is_ok() || host.is_err(), "{agent:?} but {host:?}");
            for verdict in [agent, host] {
                let _ = verdict.map_err(|unsound| (unsound.detail(), unsound.hint(), unsound.exit()));
            }
        }
    }
}

/// One JSON object that `serde_json` reads whole, without a key that stands twice.
fn is_plain_object(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(text) else { return false };
    // Repeated keys melt into one: the document is then shorter when written again, key by key.
    export::JUDGED.iter().all(|judged| text.matches(&format!("\"{judged}\"")).count() <= 1)
        && !text.contains('\\')
        && map.len() < 1000
}

/// JSON argument arrays, owned flags, abbreviations, the drain rule.
fn arguments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(words) = args::decode_array(text) else { return };
    assert_eq!(serde_json::from_str::<Vec<String>>(text).ok().as_ref(), Some(&words), "one for one");
    assert!(words.iter().all(|word| !word.contains('\0')));
    for lists in [&[OWNED_SERVE][..], &[OWNED_SERVE, OWNED_SERVE_ROLLOUT], &[OWNED_BENCH, OWNED_BENCH_ROLLOUT]] {
        if let Some(shadow) = args::find_shadow(&words, lists) {
            assert!(shadow.flag.starts_with(&shadow.word) && shadow.word.starts_with("--"));
        }
    }
    for grace in [0, 5, 45, u64::MAX] {
        if let Ok(Some(drain)) = args::explicit_drain(&words, grace) {
            assert!(drain >= 1 && drain < grace.max(5));
            assert!(args::supplies(&words, args::generated::DRAIN_TIMEOUT));
        }
    }
}

/// A trial with these words under a key.
fn validated(config: &Value) -> Option<Trial> {
    let document = parse(&config.to_string(), Format::Json).expect("our own JSON is read");
    validate(document, &Overrides::default()).ok().map(|loaded| loaded.trial)
}

/// The guard over arguments of the container client: one per line.
fn docker_arguments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let words: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let trial = validated(&json!({})).expect("the defaults are a trial");
    let owned = guard::Owned::of(&trial);
    for runtime in [RuntimeKind::Docker, RuntimeKind::Podman] {
        if docker_args::check(&words, &owned, runtime).is_ok() {
            // What may stand by itself may stand twice; what was refused alone stays refused behind it.
            let behind = [words.clone(), vec!["--init".into(), "--name=x".into()]].concat();
            let open = docker_args::check(&behind, &owned, runtime).is_ok();
            let last = words.last().map_or("", String::as_str);
            assert!(!open || last.starts_with('-'), "{words:?}: --name=x is let through behind it");
        }
    }
}

fn config(text: &str, format: Format) {
    let Ok(document) = parse(text, format) else { return };
    match validate(document, &Overrides::default()) {
        Err(errors) => {
            let _ = errors.to_string();
        }
        Ok(loaded) => agent_takes(&loaded.trial),
    }
}

/// What the host accepts never exits 64 in the container.
fn agent_takes(trial: &Trial) {
    use controller::launch::env::{Locations, Run, agent as environment};
    if trial.load.data.dataset() == Dataset::Sharegpt {
        return; // Its file is not here.
    }
    let identity = controller::launch::identity::Identity { uid: 1, gid: 1, user: "u".into() };
    let token = proto::names::RunToken::parse("7-1").expect("a token");
    let ports = controller::launch::ports::Ports {
        gateway: trial.ports.gateway.unwrap_or(if trial.ports.control == Some(18000) { 18001 } else { 18000 }),
        control: trial.ports.control.unwrap_or(if trial.ports.gateway == Some(18002) { 18003 } else { 18002 }),
    };
    let run = Run { token: &token, ports, identity: &identity, no_proxy: None };
    let env = environment(trial, &Locations::in_container(trial), &run);
    let pairs = env.into_iter().map(|(name, value)| (name.into(), value.into()));
    let plan = agent::config::Source::new(pairs, agent::config::Flags::default())
        .and_then(|source| agent::config::parse(&source));
    if let Err(error) = plan {
        panic!("the host accepts and the container refuses: {error}");
    }
}

/// The configuration reader, YAML.
fn config_yaml(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        config(text, Format::Yaml);
    }
}

/// The configuration reader, JSON.
fn config_json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(document) = parse(text, Format::Json) {
        // Stricter than `serde_json` in nothing but depth and size of numbers.
        let _ = document.root.to_json().to_string();
    }
    config(text, Format::Json);
}

/// The grammar of `request_rate`.
fn rate(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(trial) = validated(&json!({"request_rate": text})) else { return };
    let rate = trial.load.request_rate;
    assert!(
        rate == "inf" || rate.parse::<f64>().is_ok_and(|rate| rate > 0.0 && rate.is_finite()),
        "{text:?} is {rate}"
    );
    let again = validated(&json!({"request_rate": rate})).map(|trial| trial.load.request_rate);
    assert_eq!(again.as_deref(), Some(rate.as_str()), "what is sent reads back");
}

/// The grammar of `metric_percentiles`.
fn percentiles(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(trial) = validated(&json!({"metric_percentiles": text})) else { return };
    for entry in trial.load.metric_percentiles.split(',') {
        let number: f64 = entry.trim().replace('_', "").parse().expect("a number");
        assert!(number > 0.0 && number < 100.0, "{entry:?}");
    }
}
