//! The command line of `bench serve`, as the real tool's argparse reads it.

use crate::engine::argparse::{self, Given, Options, Takes};

const OPTIONS: Options = &[
    ("--help", Takes::Nothing),
    ("--dataset-name", Takes::One),
    ("--dataset-path", Takes::One),
    ("--num-prompts", Takes::One),
    ("--input-len", Takes::One),
    ("--output-len", Takes::One),
    ("--max-model-len", Takes::One),
    ("--skip-min-tokens-check", Takes::Nothing),
    ("--sharegpt-output-len", Takes::One),
    ("--random-input-len", Takes::One),
    ("--random-output-len", Takes::One),
    ("--random-range-ratio", Takes::One),
    ("--random-prefix-len", Takes::One),
    ("--request-id-prefix", Takes::One),
    ("--label", Takes::One),
    ("--backend", Takes::One),
    ("--base-url", Takes::One),
    ("--host", Takes::One),
    ("--port", Takes::One),
    ("--endpoint", Takes::One),
    ("--header", Takes::Many),
    ("--model", Takes::One),
    ("--served-model-name", Takes::One),
    ("--tokenizer", Takes::One),
    ("--skip-tokenizer-init", Takes::Nothing),
    ("--trust-remote-code", Takes::Nothing),
    ("--request-rate", Takes::One),
    ("--burstiness", Takes::One),
    ("--max-concurrency", Takes::One),
    ("--num-warmups", Takes::One),
    ("--ready-check-timeout-sec", Takes::One),
    ("--disable-tqdm", Takes::Nothing),
    ("--profile", Takes::Nothing),
    ("--profile-num-steps", Takes::One),
    ("--profile-activities", Takes::Many),
    ("--seed", Takes::One),
    ("--ignore-eos", Takes::Nothing),
    ("--disable-ignore-eos", Takes::Nothing),
    ("--apply-chat-template", Takes::Nothing),
    ("--logprobs", Takes::One),
    ("--extra-body", Takes::One),
    ("--extra-request-body", Takes::One),
    ("--goodput", Takes::Many),
    ("--percentile-metrics", Takes::One),
    ("--metric-percentiles", Takes::One),
    ("--ramp-up-strategy", Takes::One),
    ("--ramp-up-start-rps", Takes::One),
    ("--ramp-up-end-rps", Takes::One),
    ("--insecure", Takes::Nothing),
    ("--save-result", Takes::Nothing),
    ("--append-result", Takes::Nothing),
    ("--save-detailed", Takes::Nothing),
    ("--result-dir", Takes::One),
    ("--output-file", Takes::One),
];

/// Which API is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// `/v1/completions`, as `openai`.
    OpenAi,
    /// The same under the engine's own name.
    TokenSpeed,
    /// `/v1/chat/completions`.
    Chat,
}

impl Backend {
    /// As it stands in the export.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::TokenSpeed => "tokenspeed",
            Self::Chat => "openai-chat",
        }
    }
}

/// Where the prompts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dataset {
    /// Synthetic words.
    Random,
    /// A file of conversations.
    ShareGpt(String),
}

/// The settings of one run.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, Clone, PartialEq)]
pub struct BenchArgs {
    /// API.
    pub backend: Backend,
    /// Scheme, host and port.
    pub base_url: String,
    /// Path.
    pub endpoint: String,
    /// Extra request headers.
    pub headers: Vec<(String, String)>,
    /// `model_id` of the export.
    pub model: Option<String>,
    /// The request field instead of it.
    pub served_model_name: Option<String>,
    /// `tokenizer_id` of the export.
    pub tokenizer: Option<String>,
    /// Prompts.
    pub dataset: Dataset,
    /// How many.
    pub num_prompts: usize,
    /// Tokens of a random prompt.
    pub input_len: u32,
    /// Tokens asked for (random).
    pub output_len: u32,
    /// Tokens asked for (sharegpt), instead of the recorded answer's.
    pub sharegpt_output_len: Option<u32>,
    /// Spread of random lengths.
    pub range_ratio: f64,
    /// Shared prefix of random prompts.
    pub prefix_len: u32,
    /// Of `x-request-id`.
    pub request_id_prefix: String,
    /// Of the export.
    pub label: Option<String>,
    /// Requests a second; infinite: all at once.
    pub request_rate: f64,
    /// Shape of the gamma distribution of the gaps.
    pub burstiness: f64,
    /// Requests in flight; 0 or absent: no limit.
    pub max_concurrency: Option<i64>,
    /// Requests before the run, counted nowhere.
    pub num_warmups: i64,
    /// How long the first request may be retried; 0: not sent.
    pub ready_check_timeout_sec: i64,
    /// Of the prompts.
    pub seed: i64,
    /// Sent as `ignore_eos`.
    pub ignore_eos: bool,
    /// Merged into each request.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Limits in ms by metric.
    pub goodput: Vec<(String, f64)>,
    /// Metrics in the export.
    pub metrics: Vec<String>,
    /// Percentiles of each.
    pub percentiles: Vec<f64>,
    /// The seven lists.
    pub save_detailed: bool,
    /// Append to the file.
    pub append_result: bool,
    /// The export.
    pub output: Output,
    /// Most prompt and output tokens of a conversation together.
    pub max_model_len: Option<u32>,
    /// Also short conversations.
    pub skip_min_tokens_check: bool,
}

/// Where the export goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Nowhere.
    None,
    /// This file.
    File(String),
    /// A name made up from the settings, in this directory.
    Named(Option<String>),
}

/// A command line that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// By argparse: exit 2.
    Usage(String),
    /// By the tool's own checks: a traceback, exit 1.
    Value(String),
    /// Help was asked for: exit 0.
    Help,
}

impl BenchArgs {
    /// Reads the words after `bench serve`.
    #[expect(clippy::too_many_lines, reason = "a table of options, read in order")]
    pub fn parse(words: &[String]) -> Result<Self, Refusal> {
        let given = argparse::parse(OPTIONS, words).map_err(Refusal::Usage)?;
        if given.flag("--help") || given.unknown.iter().any(|word| word == "-h") {
            return Err(Refusal::Help);
        }
        let strays: Vec<&str> = given.unknown.iter().chain(&given.positionals).map(String::as_str).collect();
        if !strays.is_empty() {
            return Err(Refusal::Usage(format!("unrecognized arguments: {}", strays.join(" "))));
        }
        let get = Typed(&given);
        let backend = match get.choice("--backend", "openai", &["openai", "tokenspeed", "openai-chat"])? {
            "tokenspeed" => Backend::TokenSpeed,
            "openai-chat" => Backend::Chat,
            _ => Backend::OpenAi,
        };
        let random = get.choice("--dataset-name", "random", &["sharegpt", "random"])? == "random";
        let body = |name: &str| match given.one(name).map(serde_json::from_str) {
            None => Ok(None),
            Some(Ok(serde_json::Value::Object(map))) => Ok(Some(map)),
            Some(Ok(_)) => Err(Refusal::Value("the extra body must be a JSON object".into())),
            Some(Err(_)) => Err(Refusal::Usage(format!(
                "argument {name}: invalid loads value: '{}'",
                given.one(name).unwrap_or_default()
            ))),
        };
        let extra_body = match (body("--extra-request-body")?, body("--extra-body")?) {
            (Some(replaces), _) => replaces,
            (None, given) => given.unwrap_or_default(),
        };
        let base_url = match given.one("--base-url") {
            Some(url) => url.to_owned(),
            None => {
                format!("http://{}:{}", given.one("--host").unwrap_or("127.0.0.1"), get.int("--port", 8000)?)
            }
        };
        let endpoint = given.one("--endpoint").unwrap_or("/v1/completions").to_owned();
        let ending = if backend == Backend::Chat { "chat/completions" } else { "completions" };
        if !endpoint.ends_with(ending) {
            return Err(Refusal::Value(format!("the API URL must end in {ending}")));
        }
        let headers = given.options.get("--header").map(Vec::as_slice).unwrap_or_default();
        let headers = headers
            .iter()
            .map(|item| match item.split_once('=') {
                Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
                None => Err(Refusal::Value("Invalid header format. Please use KEY=VALUE format.".into())),
            })
            .collect::<Result<_, _>>()?;
        if given.one("--ramp-up-strategy").is_some() {
            return Err(Refusal::Value("the stand-in has no ramp-up".into()));
        }
        let dataset = match (random, given.one("--dataset-path")) {
            (true, None) => Dataset::Random,
            (true, Some(_)) => return Err(Refusal::Value("Cannot use 'random' dataset with --dataset-path.".into())),
            (false, Some(path)) => Dataset::ShareGpt(path.to_owned()),
            (false, None) => return Err(Refusal::Value("no --dataset-path and no network to fetch it".into())),
        };
        let goodput = parse_goodput(given.options.get("--goodput").map(Vec::as_slice).unwrap_or_default())?;
        let percentiles = given
            .one("--metric-percentiles")
            .unwrap_or("99")
            .split(',')
            .map(|word| {
                py_float(word).ok_or_else(|| Refusal::Value(format!("could not convert string to float: '{word}'")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let output_len = get.optional_length("--output-len")?;
        let random_output_len = output_len.map_or_else(|| get.length("--random-output-len", 128), Ok)?;
        let sharegpt_output_len = match output_len {
            Some(len) => Some(len),
            None => get.optional_length("--sharegpt-output-len")?,
        };
        if !random && sharegpt_output_len.is_some_and(|len| len < 4) {
            return Err(Refusal::Value("output_len too small".into()));
        }
        let num_prompts = get.int("--num-prompts", 1000)?;
        let text = |name: &str| given.one(name).map(str::to_owned);
        let output = match (text("--output-file"), given.flag("--save-result") || given.flag("--append-result")) {
            (Some(file), _) => Output::File(file),
            (None, true) => Output::Named(text("--result-dir")),
            (None, false) => Output::None,
        };
        let completions = matches!(backend, Backend::OpenAi | Backend::TokenSpeed);
        let asked_ignore = given.flag("--ignore-eos") && !given.flag("--disable-ignore-eos");
        Ok(Self {
            backend,
            base_url,
            endpoint,
            headers,
            model: text("--model"),
            served_model_name: text("--served-model-name"),
            tokenizer: text("--tokenizer"),
            num_prompts: usize::try_from(num_prompts)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| Refusal::Value("No requests provided.".into()))?,
            input_len: get
                .optional_length("--input-len")?
                .map_or_else(|| get.length("--random-input-len", 1024), Ok)?,
            output_len: random_output_len,
            sharegpt_output_len,
            range_ratio: get.float("--random-range-ratio", 0.0)?,
            prefix_len: get.length("--random-prefix-len", 0)?,
            request_id_prefix: text("--request-id-prefix").unwrap_or_else(|| "bench-".into()),
            label: text("--label"),
            request_rate: get.float("--request-rate", f64::INFINITY)?,
            burstiness: get.float("--burstiness", 1.0)?,
            max_concurrency: get.optional_int("--max-concurrency")?,
            num_warmups: get.int("--num-warmups", 0)?,
            ready_check_timeout_sec: get.int("--ready-check-timeout-sec", 600)?,
            seed: get.int("--seed", 0)?,
            // With random data the tool forces it on, even against --disable-ignore-eos.
            ignore_eos: asked_ignore || (random && completions),
            extra_body,
            goodput,
            metrics: given
                .one("--percentile-metrics")
                .unwrap_or("ttft,tpot,itl")
                .split(',')
                .map(str::to_owned)
                .collect(),
            percentiles,
            save_detailed: given.flag("--save-detailed"),
            append_result: given.flag("--append-result"),
            output,
            dataset,
            max_model_len: get.optional_length("--max-model-len")?,
            skip_min_tokens_check: given.flag("--skip-min-tokens-check"),
        })
    }
}

fn parse_goodput(words: &[String]) -> Result<Vec<(String, f64)>, Refusal> {
    words
        .iter()
        .map(|word| {
            let (name, limit) = word.split_once(':').ok_or_else(|| {
                Refusal::Value("Specify service level objectives for goodput as \"KEY:VALUE\" pairs.".into())
            })?;
            let limit = py_float(limit).filter(|limit| *limit >= 0.0);
            match (["ttft", "tpot", "e2el"].contains(&name), limit) {
                (true, Some(limit)) => Ok((name.to_owned(), limit)),
                _ => Err(Refusal::Value(format!("Invalid goodput metric {word:?}."))),
            }
        })
        .collect()
}

struct Typed<'a>(&'a Given);

impl Typed<'_> {
    fn choice<'a>(&'a self, name: &str, default: &'a str, choices: &[&str]) -> Result<&'a str, Refusal> {
        let value = self.0.one(name).unwrap_or(default);
        if choices.contains(&value) {
            return Ok(value);
        }
        let list: Vec<String> = choices.iter().map(|choice| format!("'{choice}'")).collect();
        Err(Refusal::Usage(format!("argument {name}: invalid choice: '{value}' (choose from {})", list.join(", "))))
    }

    fn optional_int(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.0
            .one(name)
            .map(|text| {
                py_int(text).ok_or_else(|| Refusal::Usage(format!("argument {name}: invalid int value: '{text}'")))
            })
            .transpose()
    }

    fn int(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    fn optional_length(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let outside = |_| Refusal::Value(format!("{name} must be a length"));
        self.optional_int(name)?.map(u32::try_from).transpose().map_err(outside)
    }

    fn length(&self, name: &str, default: u32) -> Result<u32, Refusal> {
        Ok(self.optional_length(name)?.unwrap_or(default))
    }

    fn float(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        match self.0.one(name) {
            None => Ok(default),
            Some(text) => {
                py_float(text).ok_or_else(|| Refusal::Usage(format!("argument {name}: invalid float value: '{text}'")))
            }
        }
    }
}

/// Python's `int(text)`: blanks around, a sign, underscores between digits.
pub fn py_int(text: &str) -> Option<i64> {
    digits_without_underscores(text.trim())?.parse().ok()
}

/// Python's `float(text)`.
pub fn py_float(text: &str) -> Option<f64> {
    digits_without_underscores(text.trim())?.parse().ok()
}

/// Underscores are allowed between two digits only.
fn digits_without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |i: Option<usize>| i.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    let fine = (0..bytes.len()).all(|i| bytes[i] != b'_' || (digit(i.checked_sub(1)) && digit(Some(i + 1))));
    fine.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<BenchArgs, Refusal> {
        BenchArgs::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_and_last_wins() {
        let args = parse("--model m --num-prompts 3 --num-pro=1_0 --request-rate inf --burst infinity").expect("args");
        assert_eq!((args.num_prompts, args.input_len, args.output_len), (10, 1024, 128));
        assert!(args.request_rate.is_infinite() && args.burstiness.is_infinite() && args.ignore_eos);
        let args = parse("--output-len 7 --random-output-len 9 --disable-ignore-eos").expect("args");
        assert_eq!((args.output_len, args.sharegpt_output_len, args.ignore_eos), (7, Some(7), true));
        let args = parse(r#"--extra-body {"n":4} --extra-request-body {"n":2}"#).expect("args");
        assert_eq!(args.extra_body["n"], 2);
    }

    #[test]
    fn exit_statuses_of_mistakes() {
        for line in ["--nope", "--backend vllm", "--num-prompts x", "--extra-body {", "--num-prompts", "stray"] {
            assert!(matches!(parse(line), Err(Refusal::Usage(_))), "{line}");
        }
        for line in ["--num-prompts 0", "--metric-percentiles x", "--dataset-path p", "--goodput itl:3"] {
            assert!(matches!(parse(line), Err(Refusal::Value(_))), "{line}");
        }
    }

    #[test]
    fn numbers_as_python_reads_them() {
        assert_eq!((py_int(" 1_000 "), py_int("+5"), py_int("1__0"), py_int("_1")), (Some(1000), Some(5), None, None));
        assert_eq!((py_float("-inf"), py_float("1e3"), py_float("x")), (Some(f64::NEG_INFINITY), Some(1e3), None));
    }
}
