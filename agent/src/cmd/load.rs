//! `agent load`: the native load client. Status 0: some measured request was answered; 1: none was; 2: nothing was
//! sent because of the arguments or the corpus (spec `variadic-harness` B.1).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ContextKind;
use proto::limits::default;
use serde_json::{Map, Value};

use crate::load::arrival::Arrivals;
use crate::load::export::{self, ExportPlan, Metrics, Percentiles};
use crate::load::leg::{self, LegError};
use crate::load::making::{Making, Material};
use crate::load::plan::{Ask, BadTarget, Endpoint, Plan, Profile, Prompts, Sampling, Target};
use crate::load::prompts::{self, Entry};
use crate::load::record::PhaseName;

const PROMPTS: &str = "Prompts by token count";
const EXPORT: &str = "The export of a trial's step";
/// Failed requests that are named in the log.
const FAILURES_SHOWN: usize = 10;
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// Arguments of `agent load`.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true, args_override_self = true)]
pub struct Args {
    /// Base URL, `http://HOST[:PORT][/PATH]`; HOST is an IP address or localhost
    #[arg(long, required_unless_present = "make_prompts")]
    url: Option<String>,
    /// Sent as `model`
    #[arg(long, default_value = "model")]
    model: String,
    /// Corpus file
    #[arg(long, value_name = "FILE", required_unless_present_any = ["random_input_len", "sharegpt"])]
    dataset: Option<PathBuf>,
    /// Measured requests; warm-up is extra
    #[arg(long, default_value_t = 128)]
    num_prompts: usize,
    /// Warm-up requests [default: max(concurrency, 4)]
    #[arg(long)]
    warmup: Option<usize>,
    /// Workers of the closed loop, and connections opened before the window
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// Tokens to ask for, where the prompt does not bring its own
    #[arg(long, default_value_t = 256)]
    max_tokens: u64,
    /// Sampling temperature
    #[arg(long, default_value_t = 0.6)]
    temperature: f64,
    /// Nucleus bound
    #[arg(long, default_value_t = 0.95)]
    top_p: f64,
    /// Top k
    #[arg(long, default_value_t = 20)]
    top_k: i64,
    /// Seed of every request, and of the arrival schedule
    #[arg(long, default_value_t = 0)]
    seed: i64,
    /// Longest silence on a socket, seconds
    #[arg(long, default_value_t = 1800.0)]
    timeout: f64,
    /// Names the leg in the log and in the file
    #[arg(long, default_value = "leg")]
    label: String,
    /// Recorded only
    #[arg(long, default_value = "")]
    arm: String,
    /// Recorded only
    #[arg(long, default_value_t = 1)]
    round: i64,
    /// Leg file, written whole or not at all
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// How streams are read and connections used
    #[arg(long, value_enum, default_value = "strict", help_heading = "Beyond the published client")]
    profile: Profile,
    /// Which call is made
    #[arg(long, value_enum, default_value = "chat", help_heading = "Beyond the published client")]
    endpoint: Endpoint,
    /// closed, constant:RATE, poisson:RATE, gamma:RATE:BURSTINESS or ramp:FROM:TO (requests per second)
    #[arg(long, default_value = "closed", help_heading = "Beyond the published client")]
    arrival: String,
    /// Most requests in flight in an open loop; those beyond it are late, and the file says by how much
    #[arg(long, help_heading = "Beyond the published client")]
    max_in_flight: Option<usize>,
    /// Longest request, seconds
    #[arg(long, help_heading = "Beyond the published client")]
    request_timeout: Option<f64>,
    /// Address of a name in --url, HOST:IP; the client never asks a resolver
    #[arg(long, value_name = "HOST:IP", help_heading = "Beyond the published client")]
    resolve: Vec<String>,
    /// Leaves temperature, top_p, top_k and seed to the server
    #[arg(long, help_heading = "Beyond the published client")]
    no_sampling: bool,
    /// Sends ignore_eos
    #[arg(long, help_heading = "Beyond the published client")]
    ignore_eos: bool,
    /// JSON object merged into every body, last
    #[arg(long, value_name = "JSON", help_heading = "Beyond the published client")]
    extra_body: Option<String>,
    /// More request headers
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Beyond the published client")]
    header: Vec<String>,
    /// Environment variable that holds the bearer token
    #[arg(long, value_name = "NAME", help_heading = "Beyond the published client")]
    api_key_env: Option<String>,
    /// Front of `x-request-id` of the measured requests; their index follows
    #[arg(long, value_name = "TEXT", help_heading = "Beyond the published client")]
    request_id_prefix: Option<String>,
    /// Cores for the client, e.g. 1,3-5
    #[arg(long, value_name = "LIST", help_heading = "Beyond the published client")]
    cpus: Option<String>,
    /// Does not measure the client's own error against a mock after the leg
    #[arg(long, help_heading = "Beyond the published client")]
    no_calibration: bool,

    /// Makes prompts of this many tokens from the tokenizer's vocabulary, in a process of its own
    #[arg(long, value_name = "TOKENS", requires = "tokenizer", conflicts_with_all = ["dataset", "sharegpt"], help_heading = PROMPTS)]
    random_input_len: Option<usize>,
    /// Takes prompts, and how many tokens to ask for, from a ShareGPT file, read in a process of its own
    #[arg(long, value_name = "FILE", requires = "tokenizer", conflicts_with = "dataset", help_heading = PROMPTS)]
    sharegpt: Option<PathBuf>,
    /// Folder with tokenizer.json, the file, or an id in the Hugging Face cache
    #[arg(long, value_name = "PATH|ID", help_heading = PROMPTS)]
    tokenizer: Option<String>,
    /// Writes the prompts to a corpus file (- is stdout), sends nothing, and ends
    #[arg(long, value_name = "OUT", conflicts_with = "dataset", help_heading = PROMPTS)]
    make_prompts: Option<PathBuf>,

    /// Export in the keys of `tokenspeed bench serve`, written whole or not at all
    #[arg(long, value_name = "FILE", help_heading = EXPORT)]
    export: Option<PathBuf>,
    /// Latencies in the export
    #[arg(long, value_name = "LIST", default_value = default::PERCENTILE_METRICS, help_heading = EXPORT)]
    percentile_metrics: Metrics,
    /// Percentiles of each
    #[arg(long, value_name = "LIST", default_value = default::METRIC_PERCENTILES, help_heading = EXPORT)]
    metric_percentiles: Percentiles,
    /// Keeps the arrays of single requests in the export, texts among them
    #[arg(long, help_heading = EXPORT)]
    save_detailed: bool,
}

/// Arguments that cannot be run as written.
#[derive(Debug, thiserror::Error)]
enum BadArgs {
    #[error(transparent)]
    Target(#[from] BadTarget),
    #[error(transparent)]
    Arrivals(#[from] crate::load::arrival::BadArrivals),
    #[error("{flag} must be {rule}, got {value}")]
    Value { flag: &'static str, rule: &'static str, value: String },
    #[error("{flag} is not for --profile variadic, which is the published client to the letter; use --profile strict")]
    NotPublished { flag: &'static str },
    #[error("{flag} is for an open loop; set --arrival")]
    OpenLoopOnly { flag: &'static str },
    #[error("--api-key-env {0}: the variable is not set, or not text")]
    NoKey(String),
    #[error("{flag} is missing; {hint}")]
    Missing { flag: &'static str, hint: &'static str },
}

impl BadArgs {
    const fn flag(&self) -> &'static str {
        match self {
            Self::Target(_) => "--url",
            Self::Arrivals(_) => "--arrival",
            Self::NoKey(_) => "--api-key-env",
            Self::Value { flag, .. }
            | Self::NotPublished { flag }
            | Self::OpenLoopOnly { flag }
            | Self::Missing { flag, .. } => flag,
        }
    }
}

/// Runs the command.
pub fn main(mut args: Args) -> ExitCode {
    if let Some(out) = args.make_prompts.take() {
        return make_prompts(&args, &out);
    }
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(error) => return fail(&error, USAGE),
    };
    let mut log = |line: &str| {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    match measure(&plan, &mut log) {
        Ok(0) => ExitCode::from(FAILED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&error, if error.is_usage() { USAGE } else { FAILED }),
    }
}

/// `--make-prompts`: status 0, or 2 where no prompts could be made or written.
fn make_prompts(args: &Args, out: &Path) -> ExitCode {
    let made = match making(args) {
        Ok(making) => making.make(args.warmup.unwrap_or(0), args.num_prompts),
        Err(error) => return fail(&error, USAGE),
    };
    let entries: Vec<Entry> = match made {
        Ok(prompts) => prompts.into_iter().map(prompts::Entry::new).collect(),
        Err(error) => return fail(&error, USAGE),
    };
    let written = if out == Path::new("-") {
        let mut stdout = std::io::stdout().lock();
        let whole = serde_json::to_writer(&mut stdout, &entries).map_err(std::io::Error::from);
        whole.and_then(|()| stdout.flush()).map_err(|source| LegError::Write { path: out.to_path_buf(), source })
    } else {
        leg::write_atomically(out, &entries)
    };
    written.map_or_else(|error| fail(&error, USAGE), |()| ExitCode::SUCCESS)
}

fn making(args: &Args) -> Result<Making, BadArgs> {
    let of = match (&args.random_input_len, &args.sharegpt) {
        (Some(len), _) => Material::RandomInputLen(*len),
        (None, Some(path)) => Material::Sharegpt(path.clone()),
        (None, None) => {
            return Err(BadArgs::Missing {
                flag: "--random-input-len",
                hint: "or --sharegpt: what to make prompts from",
            });
        }
    };
    let hint = "prompts by token count need one";
    let tokenizer = args.tokenizer.clone().ok_or(BadArgs::Missing { flag: "--tokenizer", hint })?;
    Ok(Making { tokenizer, of, seed: args.seed })
}

fn fail(error: &dyn std::error::Error, status: u8) -> ExitCode {
    eprintln!("agent load: {error}");
    ExitCode::from(status)
}

fn measure(plan: &Plan, log: &mut dyn FnMut(&str)) -> Result<usize, LegError> {
    let leg = leg::run(plan, log)?;
    if let Some(out) = &plan.out {
        leg::write_atomically(out, &leg.file)?;
    }
    let failed = leg.file.records.iter().filter(|record| record.phase == PhaseName::Measured);
    for (i, error) in failed.filter_map(|record| Some((record.i, record.err.as_ref()?))).take(FAILURES_SHOWN) {
        eprintln!("agent load: request {i}: {error}");
    }
    if let Some(export) = &plan.export {
        leg::write_atomically(&export.path, &export::document(plan, export, &leg.file))?;
    }
    for reason in leg.file.client.reasons() {
        eprintln!("agent load: client_bound: {reason}");
    }
    log(&format!("CLIENT_RESULT {}", serde_json::to_string(&leg.file.summary).unwrap_or_default()));
    Ok(leg.measured_ok)
}

/// Whether a command line, `load` first, can be run: where not, the flag at fault, and what is wrong.
pub fn check(words: &[String]) -> Result<(), (Option<String>, String)> {
    #[derive(clap::Parser)]
    #[command(name = "load", disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let parsed = <Line as clap::Parser>::try_parse_from(words).map_err(|error| {
        let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string);
        let flag = flag.and_then(|arg| arg.split_whitespace().next().map(str::to_owned));
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        (flag, first)
    })?;
    plan(parsed.args).map(drop).map_err(|error| (Some(error.flag().to_owned()), error.to_string()))
}

fn plan(args: Args) -> Result<Plan, BadArgs> {
    let hint = "the server to load";
    let url = args.url.clone().ok_or(BadArgs::Missing { flag: "--url", hint })?;
    let target = Target::parse(&url, &args.resolve)?;
    let arrivals: Arrivals = args.arrival.parse()?;
    if args.concurrency == 0 {
        return Err(BadArgs::Value { flag: "--concurrency", rule: "at least 1", value: "0".to_owned() });
    }
    if args.max_in_flight == Some(0) {
        return Err(BadArgs::Value { flag: "--max-in-flight", rule: "at least 1", value: "0".to_owned() });
    }
    if args.max_in_flight.is_some() && arrivals == Arrivals::Closed {
        return Err(BadArgs::OpenLoopOnly { flag: "--max-in-flight" });
    }
    for (flag, value) in [("--temperature", args.temperature), ("--top-p", args.top_p)] {
        if !value.is_finite() {
            return Err(BadArgs::Value { flag, rule: "a finite number", value: value.to_string() });
        }
    }
    if args.profile == Profile::Variadic {
        let given = [
            (args.endpoint != Endpoint::Chat, "--endpoint"),
            (arrivals != Arrivals::Closed, "--arrival"),
            (args.request_timeout.is_some(), "--request-timeout"),
            (args.no_sampling, "--no-sampling"),
            (args.ignore_eos, "--ignore-eos"),
            (args.extra_body.is_some(), "--extra-body"),
            (!args.header.is_empty(), "--header"),
            (args.api_key_env.is_some(), "--api-key-env"),
            (args.request_id_prefix.is_some(), "--request-id-prefix"),
            (args.export.is_some(), "--export"),
        ];
        if let Some((_, flag)) = given.into_iter().find(|(given, _)| *given) {
            return Err(BadArgs::NotPublished { flag });
        }
    }
    let prompts = match &args.dataset {
        Some(path) => Prompts::File(path.clone()),
        None => Prompts::Made(making(&args)?),
    };
    let text = |id: &str| id.bytes().all(|b| (b' '..=b'~').contains(&b));
    if let Some(prefix) = args.request_id_prefix.as_deref().filter(|prefix| !text(prefix)) {
        let value = format!("{prefix:?}");
        return Err(BadArgs::Value { flag: "--request-id-prefix", rule: "printable ASCII", value });
    }
    let export = args.export.map(|path| ExportPlan {
        path,
        metrics: args.percentile_metrics,
        percentiles: args.metric_percentiles,
        detailed: args.save_detailed,
    });
    let sampling = Sampling { temperature: args.temperature, top_p: args.top_p, top_k: args.top_k, seed: args.seed };
    Ok(Plan {
        target,
        profile: args.profile,
        ask: Ask {
            model: args.model,
            endpoint: args.endpoint,
            max_tokens: args.max_tokens,
            sampling: (!args.no_sampling).then_some(sampling),
            ignore_eos: args.ignore_eos,
            extra_body: extra_body(args.extra_body)?,
            headers: headers(&args.header, args.api_key_env)?,
            request_id_prefix: args.request_id_prefix,
        },
        url,
        prompts,
        num_prompts: args.num_prompts,
        warmup: args.warmup,
        concurrency: args.concurrency,
        arrivals,
        seed: args.seed.unsigned_abs(),
        max_in_flight: args.max_in_flight,
        timeout: seconds("--timeout", args.timeout)?,
        request_timeout: args.request_timeout.map(|limit| seconds("--request-timeout", limit)).transpose()?,
        label: args.label,
        arm: args.arm,
        round: args.round,
        out: args.out,
        cpus: args.cpus.map_or(Ok(Vec::new()), |list| cpus(&list))?,
        calibrate: !args.no_calibration,
        keep_text: export.as_ref().is_some_and(|export| export.detailed),
        export,
    })
}

fn seconds(flag: &'static str, value: f64) -> Result<Duration, BadArgs> {
    let span = Duration::try_from_secs_f64(value).ok().filter(|span| !span.is_zero());
    span.ok_or_else(|| BadArgs::Value { flag, rule: "a positive number of seconds", value: value.to_string() })
}

fn extra_body(text: Option<String>) -> Result<Map<String, Value>, BadArgs> {
    let Some(text) = text else { return Ok(Map::new()) };
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) | Err(_) => Err(BadArgs::Value { flag: "--extra-body", rule: "a JSON object", value: text }),
    }
}

fn headers(given: &[String], api_key_env: Option<String>) -> Result<Vec<(String, String)>, BadArgs> {
    let mut headers = Vec::new();
    for text in given {
        let bad = |rule| BadArgs::Value { flag: "--header", rule, value: format!("{:?}", text.split('=').next()) };
        let (name, value) = text.split_once('=').ok_or_else(|| bad("NAME=VALUE"))?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) || value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7F) {
            return Err(bad("a header name, =, and a value without control characters"));
        }
        if ["host", "content-length", "transfer-encoding", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
            return Err(bad("a header that the client does not set itself"));
        }
        headers.push((name.to_owned(), value.to_owned()));
    }
    if let Some(name) = api_key_env {
        let key = std::env::var(&name).ok().filter(|key| !key.is_empty() && !key.bytes().any(|b| b < b' '));
        headers.push(("Authorization".to_owned(), format!("Bearer {}", key.ok_or(BadArgs::NoKey(name))?)));
    }
    Ok(headers)
}

fn cpus(list: &str) -> Result<Vec<usize>, BadArgs> {
    let bad = || BadArgs::Value { flag: "--cpus", rule: "a list of cores such as 1,3-5", value: format!("{list:?}") };
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().map_err(|_| bad())?, to.parse().map_err(|_| bad())?);
        if from > to || to >= nix::sched::CpuSet::count() {
            return Err(bad());
        }
        cores.extend(from..=to);
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(more: &[&str]) -> Result<Plan, String> {
        let line = [&["x", "--url", "http://127.0.0.1:1/", "--dataset", "c.json"], more].concat();
        plan(Line::try_parse_from(line).map_err(|e| e.to_string())?.args).map_err(|e| e.to_string())
    }

    #[test]
    fn the_published_defaults() {
        let plan = parse(&[]).unwrap();
        assert_eq!((plan.num_prompts, plan.warmup, plan.concurrency, plan.ask.max_tokens), (128, None, 1, 256));
        let sampling = Sampling { temperature: 0.6, top_p: 0.95, top_k: 20, seed: 0 };
        assert_eq!(plan.ask.sampling, Some(sampling));
        assert_eq!(
            (plan.timeout, plan.label.as_str(), plan.arm.as_str(), plan.round),
            (Duration::from_mins(30), "leg", "", 1)
        );
        assert_eq!((plan.ask.model.as_str(), plan.profile, plan.warmup_requests()), ("model", Profile::Strict, 4));
        assert_eq!(parse(&["--concurrency", "9"]).unwrap().warmup_requests(), 9);
        assert_eq!(parse(&["--seed", "-3", "--top-k=-1"]).unwrap().ask.sampling.unwrap().top_k, -1);
    }

    #[test]
    fn bad_arguments_name_flag_and_rule() {
        for (more, words) in [
            (&["--concurrency", "0"][..], "--concurrency"),
            (&["--num-prompts", "-1"], "--num-prompts"),
            (&["--timeout", "0"], "--timeout"),
            (&["--timeout", "nan"], "--timeout"),
            (&["--temperature", "nan"], "--temperature"),
            (&["--extra-body", "[1]"], "--extra-body"),
            (&["--header", "a"], "--header"),
            (&["--header", "a=b\r\nc: d"], "--header"),
            (&["--header", "Host=x"], "--header"),
            (&["--cpus", "3-1"], "--cpus"),
            (&["--cpus", "x"], "--cpus"),
            (&["--arrival", "often"], "--arrival"),
            (&["--max-in-flight", "3"], "open loop"),
            (&["--api-key-env", "TS_TEST_NOT_SET"], "TS_TEST_NOT_SET"),
            (&["--profile", "variadic", "--ignore-eos"], "--ignore-eos"),
            (&["--profile", "variadic", "--arrival", "poisson:1"], "--arrival"),
        ] {
            let error = parse(more).unwrap_err();
            assert!(error.contains(words), "{more:?}: {error}");
        }
        assert!(!parse(&["--header", "secret-without-equals"]).unwrap_err().contains("value"), "values stay unprinted");
    }
}
