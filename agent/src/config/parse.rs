//! The rules of contract section A, in the order of A.6: the order decides which message a doubly wrong
//! environment gets.

use std::fs::File;
use std::path::{Path, PathBuf};

use proto::args::{
    self, BadArray, BadDrain, OWNED_BENCH, OWNED_BENCH_ROLLOUT, OWNED_SERVE, OWNED_SERVE_ROLLOUT, Shadow,
};
use proto::env;
use proto::limits::{self, BenchTool, Dataset, SamplingBackend, default};
use proto::names::RunToken;
use proto::text::strict_uint;

use super::{Data, Decimal, Drain, LaunchPlan, Listen, Load, Rollout, Secret, Source, UsageError};

type Checked<T> = Result<T, UsageError>;

/// Turns settings into a plan, or says what is wrong with the first one that is.
pub fn parse(source: &Source) -> Checked<LaunchPlan> {
    let rollout_asked = source.get(env::TS_ROLLOUT) == Some("1");
    let (gateway_port, control_port) = ports(source)?;
    let serve_args = array(source, env::TS_SERVE_ARGS)?;
    let bench_args = array(source, env::TS_BENCH_ARGS)?;
    owned(env::TS_SERVE_ARGS, &serve_args, OWNED_SERVE, OWNED_SERVE_ROLLOUT, rollout_asked)?;
    third_port(&serve_args, [gateway_port, control_port])?;
    // The native client's extras are an allowed few, judged with the whole plan.
    if source.get(env::TS_BENCH_TOOL) != Some(BenchTool::Native.as_str()) {
        owned(env::TS_BENCH_ARGS, &bench_args, OWNED_BENCH, OWNED_BENCH_ROLLOUT, rollout_asked)?;
    }
    let (dataset, dataset_path) = dataset(source)?;
    let ignore_eos = ignore_eos(source, dataset, rollout_asked)?;
    let ready_timeout_sec =
        uint(source, env::TS_READY_TIMEOUT, limits::READY_TIMEOUT_SEC)?.unwrap_or(default::READY_TIMEOUT_SEC);
    let teardown_grace_sec =
        uint(source, env::TS_TEARDOWN_GRACE, limits::TEARDOWN_GRACE_SEC)?.unwrap_or(default::TEARDOWN_GRACE_SEC);
    let rollout_on = switch(source, env::TS_ROLLOUT)?;
    let save_detailed = switch(source, env::TS_SAVE_DETAILED)?;
    let floor = count(source, env::TS_MIN_MEAN_OUTPUT_TOKENS, 0, 0, u64::MAX)?;
    let rollout = rollout(source, rollout_on, ignore_eos, floor, save_detailed, dataset)?;
    let drain = drain(source, teardown_grace_sec, &serve_args)?;
    let own = own(source, [gateway_port, control_port])?;

    let counts = counts(source).map_err(UsageError::late)?;

    let model = source.or(env::TS_MODEL, default::MODEL);
    let plan = LaunchPlan {
        token: own.token,
        out_dir: PathBuf::from(source.or(env::TS_OUT_DIR, default::OUT_DIR)),
        served_model: source.or(env::TS_SERVED_MODEL_NAME, &model),
        tokenizer: source.or(env::TS_TOKENIZER, &model),
        model,
        gateway_port,
        control_port,
        ready_timeout_sec,
        gateway_startup_timeout: source.or(env::TS_GATEWAY_STARTUP_TIMEOUT, &ready_timeout_sec.to_string()),
        bench_timeout_sec: counts.bench_timeout_sec,
        teardown_grace_sec,
        drain,
        steps: counts.steps,
        warmup_steps: counts.warmup_steps,
        load: Load {
            data: dataset_path.map_or(Data::Random { input_len: counts.input_len }, |path| Data::Sharegpt { path }),
            num_prompts: counts.num_prompts,
            output_len: counts.output_len,
            max_concurrency: source.get(env::TS_MAX_CONCURRENCY).map(str::to_owned),
            request_rate: source.or(env::TS_REQUEST_RATE, default::REQUEST_RATE),
            num_warmups: counts.num_warmups,
            ignore_eos,
            seed: source.or(env::TS_SEED, &default::SEED.to_string()),
            percentile_metrics: source.or(env::TS_PERCENTILE_METRICS, default::PERCENTILE_METRICS),
            metric_percentiles: source.or(env::TS_METRIC_PERCENTILES, default::METRIC_PERCENTILES),
            save_detailed,
        },
        rollout,
        serve_args,
        bench_args,
        bench_tool: own.bench_tool,
        lease_sec: own.lease_sec,
        lease_named: source.get(env::TS_LEASE_SEC).is_some(),
        generate_probe: own.generate_probe,
        grpc_listen: own.grpc_listen,
        grpc_token: own.grpc_token,
        metrics_listen: own.metrics_listen,
    };
    super::native::check(&plan)?;
    Ok(plan)
}

fn uint(source: &Source, name: &str, range: std::ops::RangeInclusive<u64>) -> Checked<Option<u64>> {
    let Some(value) = source.get(name) else { return Ok(None) };
    strict_uint(value, range).map(Some).map_err(|e| bad_uint(name, value, &e))
}

fn bad_uint(name: &str, value: &str, error: &proto::text::BadUint) -> UsageError {
    let usage = UsageError::new(name, error.to_string());
    match error {
        proto::text::BadUint::ZeroPadded(_) => {
            let plain = value.trim_start_matches('0');
            usage.hint(format!("write {}", if plain.is_empty() { "0" } else { plain }))
        }
        proto::text::BadUint::NotDigits(_) | proto::text::BadUint::OutOfRange { .. } => usage,
    }
}

fn port(source: &Source, name: &str, range: std::ops::RangeInclusive<u64>) -> Checked<Option<u16>> {
    Ok(uint(source, name, range)?.and_then(|port| u16::try_from(port).ok()))
}

fn ports(source: &Source) -> Checked<(u16, u16)> {
    let derived = source.get(env::TS_CONTROL_PORT).is_none();
    let range = if derived { limits::PORT_WITH_DERIVED_CONTROL } else { limits::PORT };
    let gateway = port(source, env::TS_PORT, range)?.unwrap_or(default::PORT);
    let control = port(source, env::TS_CONTROL_PORT, limits::PORT)?.unwrap_or_else(|| gateway + 1);
    if gateway == control {
        let problem = format!("and {} must differ, both are {gateway}", env::TS_CONTROL_PORT);
        return Err(UsageError::new(env::TS_PORT, problem)
            .hint("readiness is asked on the control port and the load goes to the gateway"));
    }
    Ok((gateway, control))
}

fn array(source: &Source, name: &str) -> Checked<Vec<String>> {
    let Some(text) = source.get(name) else { return Ok(Vec::new()) };
    args::decode_array(text).map_err(|error| {
        let hint = match error {
            BadArray::NotJson(_) | BadArray::NotStrings => {
                r#"the workload serialises the recipe's list; by hand write e.g. ["--foo","bar baz"]"#
            }
            BadArray::Nul(_) => "an argument cannot hold a NUL byte",
        };
        UsageError::new(name, error.to_string()).hint(hint)
    })
}

fn owned(
    name: &str,
    extras: &[String],
    always: &'static [&'static str],
    under_rollout: &'static [&'static str],
    rollout: bool,
) -> Checked<()> {
    let lists: &[&[&str]] = if rollout { &[always, under_rollout] } else { &[always] };
    let Some(shadow) = args::find_shadow(extras, lists) else { return Ok(()) };
    let problem = if shadow.is_prefix() {
        format!("may not set {}: '{}' is a prefix of it, and abbreviations are resolved", shadow.flag, shadow.word)
    } else {
        format!("may not set {}", shadow.flag)
    };
    Err(UsageError::new(name, problem).hint(field_hint(&shadow)))
}

/// Where the value belongs instead.
fn field_hint(shadow: &Shadow) -> String {
    let field = match shadow.flag {
        "--host" => return "the server listens on 127.0.0.1 only".to_owned(),
        "--base-url" | "--backend" | "--endpoint" | "--output-file" | "--label" | "--request-id-prefix" => {
            return "this is what ties the export to the trial and is never configured".to_owned();
        }
        "--append-result" => return "an export holds exactly one result".to_owned(),
        "--extra-body" | "--extra-request-body" => {
            return "under rollout the body is made from rollout_samples, temperature and top_p".to_owned();
        }
        "--random-input-len" | "--input-len" => "input_len",
        "--random-output-len" | "--output-len" => "output_len",
        "--dataset-name" => "dataset",
        flag => &flag.trim_start_matches("--").replace('-', "_"),
    };
    format!("set the workload_config field {field} instead")
}

/// The gateway's metrics port must not be one of ours (review finding C-02).
fn third_port(extras: &[String], ours: [u16; 2]) -> Checked<()> {
    const FLAG: &str = "--prometheus-port";
    for (index, word) in extras.iter().enumerate().filter(|(_, word)| args::sets(word, FLAG)) {
        // An abbreviation that could mean something else is not ours to judge.
        if !word.starts_with(FLAG) {
            continue;
        }
        let value = word.split_once('=').map(|(_, v)| v).or_else(|| extras.get(index + 1).map(String::as_str));
        if value.and_then(|v| v.parse().ok()).is_some_and(|port: u16| ours.contains(&port)) {
            let problem = format!("{FLAG} must differ from {} and {}", env::TS_PORT, env::TS_CONTROL_PORT);
            return Err(UsageError::new(env::TS_SERVE_ARGS, problem).hint("choose a third port for the metrics"));
        }
    }
    Ok(())
}

fn dataset(source: &Source) -> Checked<(Dataset, Option<PathBuf>)> {
    let name = source.or(env::TS_DATASET, Dataset::Random.as_str());
    let dataset = Dataset::parse(&name)
        .ok_or_else(|| UsageError::new(env::TS_DATASET, format!("must be random or sharegpt, got '{name}'")))?;
    let path = source.get(env::TS_DATASET_PATH);
    match (dataset, path) {
        (Dataset::Random, None) => Ok((dataset, None)),
        (Dataset::Random, Some(_)) => {
            Err(UsageError::new(env::TS_DATASET_PATH, "is meaningless with TS_DATASET=random")
                .hint("unset it, or set TS_DATASET=sharegpt"))
        }
        (Dataset::Sharegpt, None) => Err(UsageError::new(env::TS_DATASET, "=sharegpt requires TS_DATASET_PATH")
            .hint("nothing is downloaded here: name a ShareGPT JSON file")),
        (Dataset::Sharegpt, Some(path)) => {
            readable(Path::new(path))?;
            Ok((dataset, Some(PathBuf::from(path))))
        }
    }
}

fn readable(path: &Path) -> Checked<()> {
    let problem = match File::open(path).and_then(|file| file.metadata()) {
        Ok(meta) if meta.is_file() => return Ok(()),
        Ok(_) => "not a regular file".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(UsageError::new(env::TS_DATASET_PATH, format!("{} is not readable: {problem}", path.display())))
}

/// `1` is on, every other value is off (contract A.2).
fn ignore_eos(source: &Source, dataset: Dataset, rollout: bool) -> Checked<bool> {
    let on = source.get(env::TS_IGNORE_EOS).is_none_or(|v| v == "1");
    if !on && dataset == Dataset::Random && !rollout {
        return Err(UsageError::new(env::TS_IGNORE_EOS, "=0 cannot take effect on dataset random").hint(
            "the bench CLI forces EOS off there; use TS_DATASET=sharegpt, TS_ROLLOUT=1, or \
             TS_BENCH_ARGS='[\"--extra-body\",\"{\\\"ignore_eos\\\": false}\"]'",
        ));
    }
    Ok(on)
}

fn switch(source: &Source, name: &str) -> Checked<bool> {
    match source.get(name) {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(UsageError::new(name, format!("must be 0 or 1, got '{other}'"))),
    }
}

/// Counts: digits, not zero-padded (A.2 allows the tightening), at least `min`.
fn count(source: &Source, name: &str, default: u64, min: u64, max: u64) -> Checked<u64> {
    let Some(value) = source.get(name) else { return Ok(default) };
    match strict_uint(value, min..=max) {
        Ok(number) => Ok(number),
        Err(proto::text::BadUint::NotDigits(_)) => {
            let kind = if min == 0 { "non-negative" } else { "positive" };
            Err(UsageError::new(name, format!("must be a {kind} integer, got '{value}'")))
        }
        Err(proto::text::BadUint::OutOfRange { .. }) if value == "0" => {
            Err(UsageError::new(name, format!("must be >= {min}, got '0'")))
        }
        Err(error) => Err(bad_uint(name, value, &error)),
    }
}

struct Counts {
    steps: u32,
    num_prompts: u64,
    input_len: u64,
    output_len: u64,
    bench_timeout_sec: u64,
    warmup_steps: u32,
    num_warmups: u64,
}

/// The counts, in the order in which the original judges them, after everything else.
fn counts(source: &Source) -> Checked<Counts> {
    let (min, max) = limits::BENCH_TIMEOUT_SEC.into_inner();
    Ok(Counts {
        steps: step_count(source, env::TS_BENCH_STEPS, default::STEPS, 1)?,
        num_prompts: count(source, env::TS_NUM_PROMPTS, default::NUM_PROMPTS, 1, u64::MAX)?,
        input_len: count(source, env::TS_INPUT_LEN, default::INPUT_LEN, 1, u64::MAX)?,
        output_len: count(source, env::TS_OUTPUT_LEN, default::OUTPUT_LEN, 1, u64::MAX)?,
        bench_timeout_sec: count(source, env::TS_BENCH_TIMEOUT, default::BENCH_TIMEOUT_SEC, min, max)?,
        warmup_steps: step_count(source, env::TS_BENCH_WARMUP_STEPS, default::WARMUP_STEPS, 0)?,
        num_warmups: count(source, env::TS_NUM_WARMUPS, default::NUM_WARMUPS, 0, u64::MAX)?,
    })
}

fn step_count(source: &Source, name: &str, default: u32, min: u64) -> Checked<u32> {
    let number = count(source, name, u64::from(default), min, u64::from(u32::MAX))?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Contract A.5.
fn rollout(
    source: &Source,
    on: bool,
    ignore_eos: bool,
    floor: u64,
    save_detailed: bool,
    dataset: Dataset,
) -> Checked<Option<Rollout>> {
    if !on {
        const SAMPLING: [&str; 5] = [
            env::TS_ROLLOUT_SAMPLES,
            env::TS_TEMPERATURE,
            env::TS_TOP_P,
            env::TS_MIN_MEAN_OUTPUT_TOKENS,
            env::TS_SAMPLING_BACKEND,
        ];
        return match SAMPLING.iter().find(|name| source.get(name).is_some()) {
            None => Ok(None),
            Some(name) => Err(UsageError::new(*name, "is set without TS_ROLLOUT=1")
                .hint("outside rollout mode no sampling parameter is sent, so it would change nothing")),
        };
    }
    let samples = uint(source, env::TS_ROLLOUT_SAMPLES, limits::ROLLOUT_SAMPLES)?.unwrap_or(1);
    let temperature = source.get(env::TS_TEMPERATURE).ok_or_else(|| {
        UsageError::new(env::TS_ROLLOUT, "=1 requires TS_TEMPERATURE").hint("name a temperature in (0, 2]")
    })?;
    let temperature = Decimal::parse(temperature, limits::TEMPERATURE_MAX)
        .map_err(|problem| UsageError::new(env::TS_TEMPERATURE, problem))?;
    let top_p = source
        .get(env::TS_TOP_P)
        .map(|value| Decimal::parse(value, limits::TOP_P_MAX))
        .transpose()
        .map_err(|problem| UsageError::new(env::TS_TOP_P, problem))?;
    if ignore_eos {
        return Err(UsageError::new(env::TS_ROLLOUT, "=1 is incompatible with TS_IGNORE_EOS=1")
            .hint("set TS_IGNORE_EOS=0: pinned outputs have no length distribution"));
    }
    let backend = match source.get(env::TS_SAMPLING_BACKEND) {
        None => SamplingBackend::Triton,
        Some(value) => {
            SamplingBackend::parse(value).map_err(|problem| UsageError::new(env::TS_SAMPLING_BACKEND, problem))?
        }
    };
    if samples > 1 && floor > 0 && !save_detailed {
        let problem = format!("={samples} with a floor of {floor} requires TS_SAVE_DETAILED=1");
        return Err(UsageError::new(env::TS_ROLLOUT_SAMPLES, problem)
            .hint("the floor needs lengths per completion; or set TS_MIN_MEAN_OUTPUT_TOKENS=0"));
    }
    // The cap itself is judged later with the other counts; here only what can be compared is.
    let cap = source.get(env::TS_OUTPUT_LEN).map_or(Some(default::OUTPUT_LEN), |v| v.parse().ok());
    if dataset == Dataset::Random
        && let Some(cap) = cap.filter(|cap| floor > *cap)
    {
        let problem = format!("={floor} is above TS_OUTPUT_LEN={cap}, which caps each completion");
        return Err(UsageError::new(env::TS_MIN_MEAN_OUTPUT_TOKENS, problem).hint("no run could satisfy it"));
    }
    Ok(Some(Rollout { samples, temperature, top_p, min_mean_output_tokens: floor, backend }))
}

fn drain(source: &Source, grace: u64, serve_args: &[String]) -> Checked<Drain> {
    let named = uint(source, env::TS_DRAIN_TIMEOUT, args::drain_range(grace))?;
    let explicit = args::explicit_drain(serve_args, grace).map_err(|error| {
        let usage = UsageError::new("serve_args --drain-timeout", error.to_string());
        match error {
            BadDrain::NoValue => usage.hint("give it whole seconds below the teardown grace"),
            BadDrain::Value(_) => usage.hint("it must end inside TS_TEARDOWN_GRACE; raise the grace for a longer one"),
        }
    })?;
    let generated = || Drain::Generated(named.unwrap_or_else(|| limits::derived_drain_sec(grace)));
    Ok(explicit.map_or_else(generated, Drain::InExtras))
}

struct Own {
    token: RunToken,
    lease_sec: u64,
    generate_probe: bool,
    bench_tool: BenchTool,
    grpc_listen: Listen,
    grpc_token: Option<Secret>,
    metrics_listen: Listen,
}

/// Variables of our own (design section 2).
fn own(source: &Source, ports: [u16; 2]) -> Checked<Own> {
    let token = RunToken::parse(&source.or(env::TS_RUN_TOKEN, &std::process::id().to_string()))
        .map_err(|error| UsageError::new(env::TS_RUN_TOKEN, format!("is not usable: {error}")))?;
    let lease_sec = uint(source, env::TS_LEASE_SEC, limits::LEASE_SEC)?.unwrap_or(default::LEASE_SEC);
    let generate_probe = switch(source, env::TS_GENERATE_PROBE)?;
    let bench_tool = match source.get(env::TS_BENCH_TOOL) {
        None => BenchTool::Tokenspeed,
        Some(value) => BenchTool::parse(value).ok_or_else(|| {
            UsageError::new(env::TS_BENCH_TOOL, format!("must be tokenspeed or native, got '{value}'"))
        })?,
    };
    let grpc_token = source.get(env::TS_GRPC_TOKEN).map(Secret::new);
    let listen = |name: &str, unset: Listen| {
        let address = source.get(name).map_or(Ok(unset), Listen::parse).map_err(|p| UsageError::new(name, p))?;
        if address.is_beyond_loopback() && grpc_token.is_none() {
            return Err(UsageError::new(name, "reaches beyond loopback and requires TS_GRPC_TOKEN")
                .hint("set a token, or listen on 127.0.0.1"));
        }
        if let Listen::Tcp(tcp) = address
            && ports.contains(&tcp.port())
        {
            let problem = format!("must not use port {}, which the server needs", tcp.port());
            return Err(UsageError::new(name, problem));
        }
        Ok(address)
    };
    Ok(Own {
        token,
        lease_sec,
        generate_probe,
        bench_tool,
        grpc_listen: listen(env::TS_GRPC_LISTEN, Listen::Default)?,
        metrics_listen: listen(env::TS_METRICS_LISTEN, Listen::Off)?,
        grpc_token,
    })
}
