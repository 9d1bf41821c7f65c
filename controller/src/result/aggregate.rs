//! The metrics of a trial: what was asked for, and means, sums and distributions over its exports (contract I.2).

use proto::export::{Counter, Export, Lengths, OutputLens, OutputLensShape, Scalar};
use proto::stats;
use serde_json::{Map, Number, Value, json};

use super::observed::{Observed, Record};
use crate::config::trial::{Data, RuntimeKind, Trial};

/// Export keys that echo the request or are counters: never published as a mean.
const ECHO: &[&str] = &["num_prompts", "max_concurrency", "burstiness", "completed", "failed"];

/// All metrics of the trial, in the order of contract I.2.
pub fn metrics(trial: &Trial, seen: &Observed) -> Map<String, Value> {
    let mut out = requested(trial, seen);
    // An export may echo more of the request than ECHO lists; what was asked for is ours to say.
    let requested_keys: Vec<String> = out.keys().cloned().collect();
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    if let Some(sec) = seen.markers.server_startup_sec {
        put("server_startup_sec", sec_value(sec));
    }
    if !seen.records.is_empty() {
        let means = means(&seen.records);
        for (key, mean) in means.whole.iter().filter(|(key, _)| !requested_keys.contains(key)) {
            put(key, float(*mean));
        }
        if !means.partial.is_empty() {
            put("partial_metrics", json!(means.partial));
        }
        for (key, counter) in [
            ("completed_total", (|e: &Export| &e.completed) as fn(&Export) -> &Counter),
            ("failed_total", |e: &Export| &e.failed),
        ] {
            if let Some(total) = total(&seen.records, counter) {
                put(key, total);
            }
        }
        if let Some(mean) = means.get("output_throughput") {
            put("tokens_per_sec", float(mean));
        }
        if trial.expectation().respects_eos() {
            lengths(trial, &seen.records, &mut put);
        }
        put("steps", seen.records.iter().map(step).collect());
        let paths: Vec<_> = seen.records.iter().map(|r| r.path.display().to_string()).collect();
        put("result_files", json!(paths));
    }
    if let Some(elapsed) = seen.container_elapsed {
        put("container_elapsed_sec", float(elapsed.as_secs_f64()));
    }
    out
}

/// What was asked for; present on failure too.
fn requested(trial: &Trial, seen: &Observed) -> Map<String, Value> {
    let load = &trial.load;
    let (input_len, output_len) = match load.data {
        Data::Random { input_len, output_len } => (Some(input_len), Some(output_len)),
        // A shape that was not sent must not label the result.
        Data::Sharegpt { .. } => (None, None),
    };
    let rollout = load.rollout.as_ref();
    // Strings, or the sweep would average them into the performance table.
    let port = |port: Option<u16>| port.map(|p| p.to_string());
    let image = match seen.identity.runtime {
        RuntimeKind::Docker | RuntimeKind::Podman => Some(&trial.image),
        RuntimeKind::Process => None,
    };
    let server_log = seen.identity.out_dir.join(proto::names::server_log(&seen.identity.token));
    let pairs = [
        ("image", json!(image)),
        ("model", json!(trial.model.model)),
        ("served_model_name", json!(trial.model.served)),
        ("num_prompts", json!(load.num_prompts)),
        ("dataset", json!(load.data.dataset().as_str())),
        ("input_len", json!(input_len)),
        ("output_len", json!(output_len)),
        ("max_concurrency", json!(load.max_concurrency)),
        ("request_rate", json!(load.request_rate)),
        ("num_warmups", json!(load.num_warmups)),
        ("ignore_eos", json!(load.ignore_eos)),
        ("bench_steps", json!(load.steps)),
        ("warmup_steps", json!(load.warmup_steps)),
        ("bench_tool", json!(trial.own.bench_tool.as_str())),
        ("gateway_port", json!(port(seen.identity.gateway_port))),
        ("control_port", json!(port(seen.identity.control_port))),
        ("server_log", json!(server_log.display().to_string())),
        ("rollout", json!(rollout.is_some())),
        ("rollout_samples", json!(rollout.map(|r| r.samples))),
        ("min_mean_output_tokens", json!(rollout.map(|r| r.min_mean_output_tokens))),
        ("temperature", json!(rollout.map(|r| r.temperature))),
        ("top_p", json!(rollout.and_then(|r| r.top_p))),
        ("sampling_backend", json!(rollout.map(|r| r.sampling_backend.as_str()))),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Means over steps, and the keys that only some steps have.
#[derive(Debug)]
pub struct Means {
    whole: Vec<(String, f64)>,
    partial: Vec<String>,
}

impl Means {
    /// The mean of a metric that every step carries.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.whole.iter().find(|(k, _)| k == key).map(|(_, mean)| *mean)
    }
}

/// The arithmetic mean of each scalar that every record has: over a part of the steps it would be another number.
pub fn means(records: &[Record]) -> Means {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in records.iter().flat_map(|r| &r.export.scalars) {
        if !ECHO.contains(&key.as_str()) && !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let mut means = Means { whole: Vec::new(), partial: Vec::new() };
    for key in keys {
        let values: Option<Vec<f64>> = records.iter().map(|r| r.export.scalar(key).map(Scalar::as_f64)).collect();
        match values.and_then(|v| stats::mean(&v)).filter(|mean| mean.is_finite()) {
            Some(mean) => means.whole.push((key.to_owned(), mean)),
            None => means.partial.push(key.to_owned()),
        }
    }
    means.partial.sort();
    means
}

/// Sum of a counter over the records in which it is an integer by type; `None` when the sum fits no JSON integer.
fn total(records: &[Record], counter: fn(&Export) -> &Counter) -> Option<Value> {
    let mut sum = 0i128;
    for record in records {
        match counter(&record.export) {
            Counter::Integer(n) => sum = sum.checked_add(*n)?,
            Counter::Huge(_) | Counter::NotInteger(_) | Counter::Absent => {}
        }
    }
    i64::try_from(sum).ok().map(Value::from)
}

/// Length figures of cells in which the model may stop by itself.
fn lengths(trial: &Trial, records: &[Record], put: &mut impl FnMut(&str, Value)) {
    let per_request: Option<Vec<f64>> = records.iter().map(tokens_per_request).collect();
    if let Some(mean) = per_request.and_then(|v| stats::mean(&v)) {
        put("mean_output_tokens_per_request", float(mean));
    }
    let expectation = trial.expectation();
    let shapes: Vec<_> = records.iter().map(|r| lens_shape(&r.export, &expectation)).collect();
    // Only a shape that holds for every step is the trial's.
    if trial.load.rollout.is_some()
        && let Some(Some(first)) = shapes.first()
        && shapes.iter().all(|s| *s == Some(*first))
    {
        put("output_lens_shape", json!(first.as_str()));
    }
    // A pool over whichever steps happen to have the array would describe a subset while reading as the trial's.
    let mut pool = Lengths::default();
    for (record, shape) in records.iter().zip(&shapes) {
        match (&record.export.output_lens, shape) {
            (OutputLens::Whole(lengths), Some(OutputLensShape::PerChoice | OutputLensShape::PerRequest)) => {
                pool.merge(lengths);
            }
            (OutputLens::Whole(_) | OutputLens::Absent | OutputLens::Invalid(_), _) => return,
        }
    }
    let Some(figures) = pool.distribution() else { return };
    put("generated_tokens_count", json!(figures.count));
    put("generated_tokens_mean", float(figures.mean));
    put("generated_tokens_min", json!(figures.min));
    put("generated_tokens_max", json!(figures.max));
    if let Some(std) = figures.std {
        put("generated_tokens_std", float(std));
    }
    put("generated_tokens_p50", float(figures.p50));
    put("generated_tokens_p90", float(figures.p90));
    put("generated_tokens_p99", float(figures.p99));
}

/// `total_output_tokens / completed` of one step.
#[expect(clippy::cast_precision_loss, reason = "a request count")]
fn tokens_per_request(record: &Record) -> Option<f64> {
    let total = record.export.scalar("total_output_tokens")?.as_f64();
    match &record.export.completed {
        Counter::Integer(completed) if *completed > 0 => Some(total / *completed as f64),
        Counter::Integer(_) | Counter::Huge(_) | Counter::NotInteger(_) | Counter::Absent => None,
    }
}

/// The shape of a valid `output_lens`, as the shared judgement sees it; `None` when the export is not sound.
fn lens_shape(export: &Export, expectation: &proto::export::Expectation) -> Option<OutputLensShape> {
    // The floor is no question of readability: switched off, the judgement speaks about the array alone.
    let mut readable = expectation.clone();
    if let Some(rollout) = &mut readable.rollout {
        rollout.min_mean_output_tokens = 0;
    }
    proto::export::judge(export, &readable, proto::export::Layer::Agent).ok()
}

/// One step's scalars, integers kept as integers, echo keys and counters included.
fn step(record: &Record) -> Value {
    let mut out = Map::new();
    out.insert("step".into(), json!(record.step));
    for (key, scalar) in &record.export.scalars {
        let value = match scalar {
            Scalar::Integer(i) => json!(i),
            Scalar::Float(f) => float(*f),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

/// A finite number; null for what JSON cannot write.
pub fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Whole seconds as the float that AORTA's consumers expect.
#[expect(clippy::cast_precision_loss, reason = "seconds of a start-up")]
fn sec_value(sec: u64) -> Value {
    float(sec as f64)
}
