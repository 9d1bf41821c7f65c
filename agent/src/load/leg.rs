//! One leg: warm-up to completion, scrape, measured phase, scrape, certification; and the leg file that says so (spec
//! `variadic-harness` B.5 and B.8).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use proto::stats::exact_mean;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::load::certify::{self, Certification, Evidence};
use crate::load::client::{Broken, Client, Phase, Settings};
use crate::load::clock::Clock;
use crate::load::host::{self, BadHost};
use crate::load::outcome::Class;
use crate::load::plan::{Plan, Profile, Prompts};
use crate::load::prompts::{self, BadPrompts, Prompt};
use crate::load::record::{PhaseName, Record};
use crate::load::request::Template;
use crate::load::scrape::{Scrape, scrape};

/// A leg that could not be run, or not be written.
#[derive(Debug, thiserror::Error)]
pub enum LegError {
    /// Nothing was sent.
    #[error(transparent)]
    Prompts(#[from] BadPrompts),
    /// Nothing was sent.
    #[error(transparent)]
    Host(#[from] BadHost),
    /// The event loop failed.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The leg file cannot be written.
    #[error("{path:?} cannot be written: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LegError {
    /// Whether the arguments are at fault and nothing was sent (exit status 2).
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Prompts(_) | Self::Host(_))
    }
}

/// The whole leg file.
#[derive(Debug, Serialize)]
pub struct LegFile {
    /// What a reader wants first.
    pub summary: Summary,
    /// Every option.
    pub config: Map<String, Value>,
    /// Before the measured phase.
    pub metrics_before: Scrape,
    /// After it.
    pub metrics_after: Scrape,
    /// Warm-up first, then measured, by queue index.
    pub records: Vec<Record>,
    /// What the client says about itself.
    pub client: ClientReport,
}

/// `summary` of the leg file.
#[derive(Debug, Serialize)]
pub struct Summary {
    leg: String,
    arm: String,
    round: i64,
    concurrency: usize,
    warmup_requests: usize,
    measured_requests: usize,
    warm_wall_s: f64,
    /// Seconds.
    pub measured_wall_s: f64,
    /// Over the measured records.
    pub headline_warm: Headline,
    headline_all: Headline,
}

/// Figures of a view, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Headline {
    /// Figures.
    Figures(Figures),
    /// None.
    None {
        /// Requests answered.
        ok: usize,
        /// Why.
        error: &'static str,
    },
}

/// The figures of a headline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    ok: usize,
    requests: usize,
    wall_s: f64,
    output_tokens: u64,
    output_tok_s: f64,
    mean_ttft_ms: f64,
    median_ttft_ms: f64,
    mean_tpot_ms: Option<f64>,
    decode_only_tok_s: Option<f64>,
}

/// What the client says about itself; not part of the published leg file.
#[derive(Debug, Serialize)]
pub struct ClientReport {
    version: &'static str,
    profile: &'static str,
    /// `closed`, or the open loop's policy: never pooled with another (spec F).
    arrivals: String,
    /// Wall clock at the start of the measured phase, Unix milliseconds.
    wall_anchor_ms: u64,
    /// Planned requests are the sum of the classes, per phase.
    outcomes: Map<String, Value>,
    connections: Connections,
    /// Most requests in flight at one time.
    pub peak_in_flight: usize,
    /// Its own error.
    pub certification: Certification,
}

impl ClientReport {
    /// Why the leg is `client_bound`; none when it is not.
    pub fn reasons(&self) -> &[String] {
        &self.certification.reasons
    }
}

#[derive(Debug, Serialize)]
struct Connections {
    opened_before_warmup: usize,
    opened_before_window: usize,
    measured_on_ready: usize,
    measured_on_new: usize,
}

/// A finished leg.
#[derive(Debug)]
pub struct Leg {
    /// The file's content.
    pub file: LegFile,
    /// Measured requests that were answered.
    pub measured_ok: usize,
}

/// Runs a leg. Log lines go to `log`, one call each.
pub fn run(plan: &Plan, log: &mut dyn FnMut(&str)) -> Result<Leg, LegError> {
    let warmup = plan.warmup_requests();
    let prompts = match &plan.prompts {
        Prompts::File(path) => prompts::read(path, warmup, plan.num_prompts)?,
        Prompts::Made(making) => making.make_elsewhere(warmup, plan.num_prompts)?,
    };
    host::prepare(plan)?;
    let template = Template::new(&plan.target, &plan.ask, plan.profile);
    let clock = Clock::start();
    let settings = settings(plan);
    let mut client = Client::new(settings.clone(), clock)?;
    let (warm, measured) = prompts.split_at(warmup);

    let before_warmup = open(&mut client, plan)?;
    log(&format!("[{}] warmup {warmup} at c={}", plan.label, plan.concurrency));
    let warm_phase = phase(&mut client, plan, &template, warm, PhaseName::Warmup, log)?;
    let metrics_before = scrape(&plan.target);
    let before_window = open(&mut client, plan)?;
    log(&format!("[{}] measured {} at c={}", plan.label, plan.num_prompts, plan.concurrency));
    let cpu_before = host::cpu_time();
    let measured_phase = phase(&mut client, plan, &template, measured, PhaseName::Measured, log)?;
    let cpu = host::cpu_time().saturating_sub(cpu_before);
    let metrics_after = scrape(&plan.target);
    drop(client);

    let (warm_wall, wall) =
        (warm_phase.end.secs_since(warm_phase.start), measured_phase.end.secs_since(measured_phase.start));
    let wall_anchor_ms = clock.wall_anchor_ms() + measured_phase.start.0 / 1_000_000;
    let peak_in_flight = measured_phase.peak_in_flight;
    let (read_lag, send_lag) = (measured_phase.read_lag.clone(), measured_phase.send_lag.clone());
    let kept = measured_phase.finished.iter().filter(|finished| finished.ready).count();
    let mut outcomes = Map::new();
    outcomes.insert("warmup".to_owned(), classes(&warm_phase));
    outcomes.insert("measured".to_owned(), classes(&measured_phase));
    let mut records = records(warm_phase, warm, PhaseName::Warmup, plan);
    let warm_count = records.len();
    records.extend(self::records(measured_phase, measured, PhaseName::Measured, plan));
    let measured_view = &records[warm_count..];
    let measured_ok = measured_view.iter().filter(|record| record.ok).count();
    let evidence = Evidence { read_lag: &read_lag, send_lag: &send_lag, cpu, wall_s: wall, records: measured_view };
    let certification = certify::certify(plan, &settings, &evidence, peak_in_flight);
    let summary = Summary {
        leg: plan.label.clone(),
        arm: plan.arm.clone(),
        round: plan.round,
        concurrency: plan.concurrency,
        warmup_requests: warmup,
        measured_requests: plan.num_prompts,
        warm_wall_s: warm_wall,
        measured_wall_s: wall,
        headline_warm: headline(measured_view, wall),
        headline_all: headline(&records, warm_wall + wall),
    };
    let client = ClientReport {
        version: env!("CARGO_PKG_VERSION"),
        profile: plan.profile.as_str(),
        arrivals: plan.arrivals.to_string(),
        wall_anchor_ms,
        outcomes,
        connections: Connections {
            opened_before_warmup: before_warmup,
            opened_before_window: before_window,
            measured_on_ready: kept,
            measured_on_new: plan.num_prompts - kept,
        },
        peak_in_flight,
        certification,
    };
    let file = LegFile { summary, config: config(plan), metrics_before, metrics_after, records, client };
    Ok(Leg { file, measured_ok })
}

/// What the event loop needs to know of a plan.
fn settings(plan: &Plan) -> Settings {
    Settings {
        profile: plan.profile,
        addresses: plan.target.addresses.clone(),
        concurrency: plan.concurrency,
        max_in_flight: plan.max_in_flight.unwrap_or(usize::MAX),
        timeout: plan.timeout,
        request_timeout: plan.request_timeout,
        keep_text: plan.keep_text,
    }
}

fn open(client: &mut Client, plan: &Plan) -> Result<usize, Broken> {
    match plan.profile {
        Profile::Strict => client.open_connections(plan.concurrency),
        Profile::Variadic => Ok(0),
    }
}

fn phase(
    client: &mut Client,
    plan: &Plan,
    template: &Template,
    prompts: &[Prompt],
    name: PhaseName,
    log: &mut dyn FnMut(&str),
) -> Result<Phase, Broken> {
    // Warm-up is always a closed loop: its end, not its arrival, is what it is for.
    let schedule = match name {
        PhaseName::Warmup => None,
        PhaseName::Measured => plan.arrivals.schedule(prompts.len(), plan.seed),
    };
    let total = prompts.len();
    client.run_phase(
        total,
        schedule.as_deref(),
        &|item| {
            let index = (name == PhaseName::Measured).then_some(item);
            template.render(&prompts[item].text, prompts[item].output_len, index)
        },
        &mut |done, last| {
            if done % 25 == 0 {
                // The time is the last request's duration, not the phase's age: the published format.
                let secs = last.as_secs_f64();
                log(&format!("  [{}/{}] {done}/{total} t={secs:.0}s", plan.label, name.as_str()));
            }
        },
    )
}

fn classes(phase: &Phase) -> Value {
    let count = |class: Class| {
        let of = |finished: &&crate::load::client::Finished| match &finished.verdict {
            Ok(()) => class == Class::Complete,
            Err(failure) => failure.class == class,
        };
        phase.finished.iter().filter(of).count()
    };
    let mut counts = Map::new();
    counts.insert("planned".to_owned(), json!(phase.finished.len()));
    for class in Class::ALL {
        counts.insert(class.as_str().to_owned(), json!(count(*class)));
    }
    Value::Object(counts)
}

fn records(phase: Phase, prompts: &[Prompt], name: PhaseName, plan: &Plan) -> Vec<Record> {
    let published = plan.profile == Profile::Variadic;
    let start = phase.start;
    let pairs = phase.finished.into_iter().zip(prompts).enumerate();
    pairs.map(|(index, (finished, prompt))| Record::new(finished, index, prompt, name, start, published)).collect()
}

/// `headline_warm` and `headline_all` (spec `variadic-harness` B.8).
pub fn headline(records: &[Record], wall_s: f64) -> Headline {
    let samples: Vec<Sample> = records
        .iter()
        .filter(|record| record.ok)
        .filter_map(|record| {
            let measured = record.measured.as_ref()?;
            Some(Sample { ttft: measured.ttft?, latency: measured.latency, tokens: record.completion_tokens() })
        })
        .collect();
    figures(&samples, records.len(), wall_s)
}

struct Sample {
    ttft: f64,
    latency: f64,
    tokens: Option<u64>,
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
fn figures(samples: &[Sample], requests: usize, wall_s: f64) -> Headline {
    let ok = samples.len();
    if ok == 0 {
        return Headline::None { ok, error: "no successful request" };
    }
    let Some(tokens) = samples.iter().map(|sample| sample.tokens).collect::<Option<Vec<u64>>>() else {
        return Headline::None { ok, error: "a request reported no usage token count" };
    };
    let output_tokens: u64 = tokens.iter().sum();
    let ttfts: Vec<f64> = samples.iter().map(|sample| sample.ttft).collect();
    let tpots: Vec<f64> = samples
        .iter()
        .zip(&tokens)
        .filter(|(_, tokens)| **tokens > 1)
        .map(|(sample, tokens)| (sample.latency - sample.ttft) / (*tokens - 1) as f64)
        .collect();
    let mean_tpot = exact_mean(&tpots);
    Headline::Figures(Figures {
        ok,
        requests,
        wall_s,
        output_tokens,
        output_tok_s: if wall_s > 0.0 { output_tokens as f64 / wall_s } else { 0.0 },
        mean_ttft_ms: exact_mean(&ttfts).unwrap_or_default() * 1000.0,
        median_ttft_ms: median(ttfts) * 1000.0,
        mean_tpot_ms: mean_tpot.map(|tpot| tpot * 1000.0),
        decode_only_tok_s: mean_tpot.filter(|tpot| *tpot != 0.0).map(|tpot| 1.0 / tpot),
    })
}

fn median(values: Vec<f64>) -> f64 {
    let sorted = proto::stats::sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// Every option: the published ones in their order, then ours.
fn config(plan: &Plan) -> Map<String, Value> {
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| {
        config.insert(key.to_owned(), value);
    };
    put("url", json!(plan.url));
    put("model", json!(plan.ask.model));
    match &plan.prompts {
        Prompts::File(path) => put("dataset", json!(path)),
        Prompts::Made(making) => put("dataset", json!(making)),
    }
    put("num_prompts", json!(plan.num_prompts));
    put("warmup", json!(plan.warmup));
    put("concurrency", json!(plan.concurrency));
    put("max_tokens", json!(plan.ask.max_tokens));
    put("temperature", json!(plan.ask.sampling.map(|s| s.temperature)));
    put("top_p", json!(plan.ask.sampling.map(|s| s.top_p)));
    put("top_k", json!(plan.ask.sampling.map(|s| s.top_k)));
    put("seed", json!(plan.ask.sampling.map(|s| s.seed)));
    put("timeout", json!(plan.timeout.as_secs_f64()));
    put("label", json!(plan.label));
    put("arm", json!(plan.arm));
    put("round", json!(plan.round));
    put("out", json!(plan.out));
    put("profile", json!(plan.profile.as_str()));
    if plan.profile == Profile::Strict {
        put("endpoint", json!(plan.ask.endpoint.as_str()));
        put("arrival", json!(plan.arrivals.to_string()));
        put("max_in_flight", json!(plan.max_in_flight));
        put("request_timeout", json!(plan.request_timeout.map(|t| t.as_secs_f64())));
        put("ignore_eos", json!(plan.ask.ignore_eos));
        put("extra_body", Value::Object(plan.ask.extra_body.clone()));
        // Names only: a header may carry a secret.
        put("headers", json!(plan.ask.headers.iter().map(|(name, _)| name).collect::<Vec<_>>()));
        put("cpus", json!(plan.cpus));
    }
    config
}

/// Writes a file so that it is whole or not there: temporary file, sync, rename.
pub fn write_atomically(path: &Path, content: &impl Serialize) -> Result<(), LegError> {
    let failed = |source: io::Error| LegError::Write { path: path.to_path_buf(), source };
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".tmp-{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || {
        let mut out = BufWriter::with_capacity(256 * 1024, File::create(&temporary)?);
        serde_json::to_writer(&mut out, content)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_headlines_to_the_last_digit() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/variadic/client/headline.json");
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(cases.len(), 7);
        for case in cases {
            let records = case["records"].as_array().unwrap();
            let samples: Vec<Sample> = records
                .iter()
                .filter(|record| record["ok"] == true)
                .map(|record| Sample {
                    ttft: record["ttft"].as_f64().unwrap(),
                    latency: record["latency"].as_f64().unwrap(),
                    tokens: record["usage"]["completion_tokens"].as_u64().filter(|tokens| *tokens > 0),
                })
                .collect();
            let found = figures(&samples, records.len(), case["wall_s"].as_f64().unwrap());
            assert_eq!(serde_json::to_value(found).unwrap(), case["headline"]);
        }
    }
}
