//! The campaign file, parsed into types once: what `--file` may say, what the original's environment knobs override,
//! and the [`Campaign`] that the rest works with.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::source;
use crate::corpus::bands::{DEFAULT_WEIGHTS, Weights};
use crate::corpus::rng::Seed;
use crate::error::ConfigError;

/// A campaign: arms x rungs x rounds on one corpus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Where the prompts come from.
    pub corpus: Corpus,
    /// The sides of the comparison, in the order of odd rounds.
    #[schemars(length(min = 1))]
    pub arms: Vec<Arm>,
    /// Concurrencies, in the order of odd rounds. Knob `RUNGS`.
    #[serde(default = "default::rungs")]
    #[schemars(length(min = 1), inner(range(min = 1)))]
    pub rungs: Vec<u32>,
    /// Passes; even ones run arms and rungs in reverse. Knob `ROUNDS`.
    #[serde(default = "default::rounds")]
    #[schemars(range(min = 1))]
    pub rounds: u32,
    /// What the client asks for.
    #[serde(default)]
    pub client: Client,
    /// Files whose bytes must be these before anything runs: weights, sources, binaries.
    #[serde(default)]
    pub files: Vec<Pin>,
    /// How often a server is booted.
    #[serde(default)]
    pub boot: Boot,
    /// Seconds until a server must answer.
    #[serde(default = "default::ready_timeout_sec")]
    pub ready_timeout_sec: u32,
    /// Seconds between SIGTERM and SIGKILL.
    #[serde(default = "default::stop_grace_sec")]
    pub stop_grace_sec: u32,
    /// Seconds of rest after a server has stopped.
    #[serde(default = "default::settle_sec")]
    pub settle_sec: u32,
    /// Share of measured requests that must be answered for a leg to count as recorded.
    #[serde(default = "default::min_ok_share")]
    pub min_ok_share: f64,
    /// What the time budget assumes where nothing has been measured yet.
    #[serde(default)]
    pub assume: Assume,
}

/// Where the prompts come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Corpus {
    /// A corpus that is there.
    File(PathBuf),
    /// Built at the start of every run; cheap and deterministic.
    Build(Build),
}

/// Arguments of `controller corpus build`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// GSM8K rows.
    pub gsm8k: String,
    /// HumanEval rows.
    pub humaneval: String,
    /// Plain text.
    pub sonnet: String,
    /// Prompts. Knob `CORPUS_COUNT`.
    #[serde(default = "default::corpus_count")]
    pub count: i64,
    /// Seed. Knob `CORPUS_SEED`.
    #[serde(default)]
    pub seed: i64,
    /// Band shares.
    #[serde(default = "default::weights")]
    pub weights: String,
}

/// What the client asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Client {
    /// `variadic` or `strict`.
    pub profile: Profile,
    /// Measured requests per leg. Knob `NPROMPTS`.
    pub num_prompts: u32,
    /// Warm-up requests per leg; absent: max(rung, 4).
    pub warmup: Option<u32>,
    /// `max_tokens`. Knob `OUTLEN`.
    pub max_tokens: u32,
    /// Knob `TEMP`.
    pub temperature: f64,
    /// Knob `TOPP`.
    pub top_p: f64,
    /// Knob `TOPK`.
    pub top_k: i64,
    /// Knob `SEED`.
    pub seed: i64,
    /// Longest silence on a socket, seconds.
    pub timeout_sec: f64,
    /// More arguments of `agent load`, the same for every arm.
    pub args: Vec<String>,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            profile: Profile::Variadic,
            num_prompts: 128,
            warmup: None,
            max_tokens: 192,
            temperature: 0.6,
            top_p: 0.95,
            top_k: 20,
            seed: 0,
            timeout_sec: 1800.0,
            args: Vec::new(),
        }
    }
}

/// Profile of the client (design section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The published client to the letter.
    Variadic,
    /// Ours.
    Strict,
}

impl Profile {
    /// The exact spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Variadic => "variadic",
            Self::Strict => "strict",
        }
    }
}

/// How often a server is booted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// For every leg.
    #[default]
    Cell,
    /// For all rungs of one arm in one round, as the original did.
    Block,
}

/// One side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// In file names and tables: letters, digits, `_` and `.`.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// Served model name.
    #[serde(default = "default::model")]
    pub model: String,
    /// The server's command line. Neither this nor `container`: the server runs already, and is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The server as a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Added to the server's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The server's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Answers 200 once the server is ready.
    #[serde(default = "default::ready_path")]
    pub ready_path: String,
    /// A trial of a risky route before the first leg, and what to set when it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// A server in a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// `docker` or `podman`, or a path.
    #[serde(default = "default::cli")]
    pub cli: String,
    /// The image; must be there.
    pub image: String,
    /// Options of `run`, e.g. mounts and devices.
    #[serde(default)]
    pub options: Vec<String>,
    /// The command inside.
    #[serde(default)]
    pub args: Vec<String>,
}

/// The draft-route probe: the server at the top rung under a small load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Environment for all legs of the arm when the probe fails.
    pub fallback_env: BTreeMap<String, String>,
    /// Measured requests.
    #[serde(default = "default::probe_prompts")]
    pub num_prompts: u32,
    /// Warm-up requests.
    #[serde(default = "default::probe_warmup")]
    pub warmup: u32,
    /// `max_tokens`.
    #[serde(default = "default::probe_tokens")]
    pub max_tokens: u32,
}

/// A file and its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The file.
    pub path: PathBuf,
    /// Lower-case hex.
    pub sha256: String,
}

/// Assumptions of the time budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Assume {
    /// Boot to ready, seconds.
    pub boot_sec: f64,
    /// Tokens per second of one stream.
    pub tok_s_per_stream: f64,
    /// Time to first token, seconds.
    pub ttft_sec: f64,
}

impl Default for Assume {
    fn default() -> Self {
        Self { boot_sec: 120.0, tok_s_per_stream: 30.0, ttft_sec: 1.0 }
    }
}

mod default {
    pub(super) fn rungs() -> Vec<u32> {
        vec![1, 4, 8]
    }
    pub(super) const fn rounds() -> u32 {
        2
    }
    pub(super) const fn ready_timeout_sec() -> u32 {
        1800
    }
    pub(super) const fn stop_grace_sec() -> u32 {
        40
    }
    pub(super) const fn settle_sec() -> u32 {
        5
    }
    pub(super) const fn min_ok_share() -> f64 {
        0.95
    }
    pub(super) const fn corpus_count() -> i64 {
        192
    }
    pub(super) fn weights() -> String {
        super::DEFAULT_WEIGHTS.to_owned()
    }
    pub(super) fn model() -> String {
        "model".to_owned()
    }
    pub(super) fn ready_path() -> String {
        "/v1/models".to_owned()
    }
    pub(super) fn cli() -> String {
        "docker".to_owned()
    }
    pub(super) const fn probe_prompts() -> u32 {
        8
    }
    pub(super) const fn probe_warmup() -> u32 {
        2
    }
    pub(super) const fn probe_tokens() -> u32 {
        64
    }
}

/// Options of `agent load` that the campaign sets itself.
const OWNED: [&str; 17] = [
    "--url",
    "--model",
    "--dataset",
    "--num-prompts",
    "--warmup",
    "--concurrency",
    "--max-tokens",
    "--temperature",
    "--top-p",
    "--top-k",
    "--seed",
    "--timeout",
    "--label",
    "--arm",
    "--round",
    "--out",
    "--profile",
];

/// Reads, overrides and checks a campaign. `knob` gives the value of an environment variable.
pub fn load(path: &Path, knob: &dyn Fn(&str) -> Option<String>) -> Result<Campaign, ConfigError> {
    let document = source::read(path)?;
    let mut campaign: Campaign = serde_json::from_value(document.root.to_json())
        .map_err(|error| refuse("the campaign", &error.to_string(), "see `controller schema campaign`"))?;
    campaign.override_by(knob)?;
    campaign.check()?;
    Ok(campaign)
}

fn refuse(key: &str, rule: &str, hint: &str) -> ConfigError {
    ConfigError {
        key: Some(key.to_owned()),
        value: None,
        message: format!("campaign: {key}: {rule}"),
        hint: hint.to_owned(),
        at: None,
    }
}

impl Campaign {
    /// The original's environment knobs.
    fn override_by(&mut self, knob: &dyn Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        fn set<T: std::str::FromStr>(
            knob: &dyn Fn(&str) -> Option<String>,
            name: &str,
            field: &mut T,
        ) -> Result<(), ConfigError> {
            if let Some(text) = knob(name).filter(|text| !text.trim().is_empty()) {
                let bad = || {
                    refuse(
                        name,
                        &format!("environment variable holds {text:?}, not a number"),
                        "unset it or set a number",
                    )
                };
                *field = text.trim().parse().map_err(|_| bad())?;
            }
            Ok(())
        }
        if let Some(text) = knob("RUNGS").filter(|text| !text.trim().is_empty()) {
            let rungs = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
            self.rungs = rungs.map_err(|_| {
                refuse(
                    "RUNGS",
                    &format!("environment variable holds {text:?}"),
                    "separate concurrencies by blanks, e.g. RUNGS=\"1 4 8\"",
                )
            })?;
        }
        set(knob, "ROUNDS", &mut self.rounds)?;
        set(knob, "NPROMPTS", &mut self.client.num_prompts)?;
        set(knob, "OUTLEN", &mut self.client.max_tokens)?;
        set(knob, "TEMP", &mut self.client.temperature)?;
        set(knob, "TOPP", &mut self.client.top_p)?;
        set(knob, "TOPK", &mut self.client.top_k)?;
        set(knob, "SEED", &mut self.client.seed)?;
        if let Corpus::Build(build) = &mut self.corpus {
            set(knob, "CORPUS_COUNT", &mut build.count)?;
            set(knob, "CORPUS_SEED", &mut build.seed)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.arms.is_empty() {
            return Err(refuse("arms", "must not be empty", "name at least one arm with name and url"));
        }
        let mut names = BTreeSet::new();
        for arm in &self.arms {
            arm.check()?;
            if !names.insert(&arm.name) {
                return Err(refuse("arms", &format!("{:?} is there twice", arm.name), "give each arm its own name"));
            }
        }
        let distinct: BTreeSet<u32> = self.rungs.iter().copied().collect();
        if self.rungs.is_empty() || distinct.len() != self.rungs.len() || distinct.contains(&0) {
            return Err(refuse("rungs", &format!("{:?}", self.rungs), "list different concurrencies of at least 1"));
        }
        let at_least_one = [
            ("rounds", self.rounds),
            ("client.num_prompts", self.client.num_prompts),
            ("client.max_tokens", self.client.max_tokens),
            ("ready_timeout_sec", self.ready_timeout_sec),
        ];
        if let Some((key, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Err(refuse(key, "must be at least 1", "set a positive number"));
        }
        if !(self.min_ok_share > 0.0 && self.min_ok_share <= 1.0) {
            return Err(refuse(
                "min_ok_share",
                "must be above 0 and at most 1",
                "1 accepts only legs without a failure",
            ));
        }
        let finite = [("client.temperature", self.client.temperature), ("client.top_p", self.client.top_p)];
        if let Some((key, _)) = finite.iter().find(|(_, value)| !value.is_finite()) {
            return Err(refuse(key, "must be a finite number", "set a number"));
        }
        if !(self.client.timeout_sec.is_finite() && self.client.timeout_sec > 0.0) {
            return Err(refuse("client.timeout_sec", "must be positive", "set seconds"));
        }
        let assumed = [self.assume.boot_sec, self.assume.tok_s_per_stream, self.assume.ttft_sec];
        if !assumed.iter().all(|value| value.is_finite() && *value > 0.0) {
            return Err(refuse("assume", "every figure must be positive", "they only serve the time budget"));
        }
        let clash = self.client.args.iter().find(|arg| {
            let name = arg.split('=').next().unwrap_or_default();
            name.len() > 2 && name.starts_with("--") && OWNED.contains(&name)
        });
        if let Some(arg) = clash {
            return Err(refuse(
                "client.args",
                &format!("{arg} is set by the campaign itself"),
                "use the key of that name",
            ));
        }
        for pin in &self.files {
            let hex =
                pin.sha256.len() == 64 && pin.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if !hex {
                return Err(refuse(
                    "files",
                    &format!("{}: sha256 {:?}", pin.path.display(), pin.sha256),
                    "write 64 lower-case hex digits",
                ));
            }
        }
        if let Corpus::Build(build) = &self.corpus {
            let weights: Result<Weights, _> = build.weights.parse();
            weights.map_err(|error| {
                refuse("corpus.build.weights", &error.to_string(), "for example S=0.35,M=0.40,L=0.15,XL=0.10")
            })?;
            if build.count < i64::from(self.most_prompts()) {
                return Err(refuse(
                    "corpus.build.count",
                    &format!("is {}, and the largest leg needs {}", build.count, self.most_prompts()),
                    "raise it to at least num_prompts + the largest warm-up",
                ));
            }
        }
        Ok(())
    }

    /// Warm-up requests at a rung.
    pub fn warmup(&self, rung: u32) -> u32 {
        self.client.warmup.unwrap_or(rung.max(4))
    }

    /// Prompts that the largest leg uses.
    pub fn most_prompts(&self) -> u32 {
        let warmup = self.rungs.iter().map(|rung| self.warmup(*rung)).max().unwrap_or(0);
        self.client.num_prompts.saturating_add(warmup)
    }

    /// The largest rung.
    pub fn top_rung(&self) -> u32 {
        self.rungs.iter().copied().max().unwrap_or(1)
    }
}

impl Build {
    /// The request of the corpus builder; the weights have been checked.
    pub fn request(&self) -> Result<crate::corpus::Request, String> {
        Ok(crate::corpus::Request {
            gsm8k: self.gsm8k.clone(),
            humaneval: self.humaneval.clone(),
            sonnet: self.sonnet.clone(),
            count: self.count,
            seed: self.seed.to_string().parse::<Seed>().map_err(|error| error.to_string())?,
            weights: self.weights.parse::<Weights>().map_err(|error| error.to_string())?,
            generator: "benchmarks/variadic/build_corpus.py".to_owned(),
        })
    }
}

impl Arm {
    fn check(&self) -> Result<(), ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if self.name.is_empty() || !self.name.chars().all(plain) || self.name.starts_with('.') {
            return Err(refuse("arms.name", &format!("{:?}", self.name), "use letters, digits, _ and ."));
        }
        let key = |field: &str| format!("arms.{}.{field}", self.name);
        if let Err(error) = super::server::Place::parse(&self.url) {
            return Err(refuse(&key("url"), &error, "write http://HOST:PORT"));
        }
        if self.command.is_some() && self.container.is_some() {
            return Err(refuse(
                &key("command"),
                "stands beside container",
                "give one of them, or neither for a running server",
            ));
        }
        if self.command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
            return Err(refuse(&key("command"), "is empty", "give program and arguments as a list"));
        }
        if self.is_running() && (!self.env.is_empty() || self.cwd.is_some() || self.probe.is_some()) {
            return Err(refuse(
                &key("env"),
                "env, cwd and probe need a server that the campaign starts",
                "give command or container",
            ));
        }
        if !self.ready_path.starts_with('/') {
            return Err(refuse(&key("ready_path"), "must begin with /", "for example /v1/models"));
        }
        Ok(())
    }

    /// Whether the server runs already and is not the campaign's to start.
    pub fn is_running(&self) -> bool {
        self.command.is_none() && self.container.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, knobs: &[(&str, &str)]) -> Result<Campaign, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("campaign.yaml");
        std::fs::write(&path, text).unwrap();
        load(&path, &|name| knobs.iter().find(|(knob, _)| *knob == name).map(|(_, value)| (*value).to_owned()))
    }

    const SMALL: &str = "corpus: {file: corpus.json}\narms:\n- {name: OURS, url: 'http://127.0.0.1:8811', command: [server]}\n\
                         - {name: THEIRS, url: 'http://127.0.0.1:8812'}\n";

    #[test]
    fn the_published_defaults() {
        let campaign = parse(SMALL, &[]).unwrap();
        assert_eq!((campaign.rungs.as_slice(), campaign.rounds), (&[1, 4, 8][..], 2));
        let client = &campaign.client;
        assert_eq!((client.num_prompts, client.max_tokens, client.top_k, client.seed), (128, 192, 20, 0));
        assert_eq!((client.profile, campaign.boot), (Profile::Variadic, Boot::Cell));
        assert_eq!((campaign.most_prompts(), campaign.top_rung(), campaign.warmup(1)), (136, 8, 4));
        assert!(campaign.arms[1].is_running() && !campaign.arms[0].is_running());
    }

    #[test]
    fn the_schema_takes_what_the_reader_takes() {
        let schema = schemars::schema_for!(Campaign).to_value();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let good =
            serde_json::json!({"corpus": {"file": "c.json"}, "arms": [{"name": "A", "url": "http://127.0.0.1:1"}]});
        let full = serde_json::to_value(parse(SMALL, &[]).unwrap()).unwrap();
        for campaign in [&good, &full] {
            let errors: Vec<String> = validator.iter_errors(campaign).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
            assert!(parse(&campaign.to_string(), &[]).is_ok());
        }
        for (pointer, bad) in [
            ("/arms", serde_json::json!([])),
            ("/corpus", serde_json::json!({})),
            ("/arms/0/name", serde_json::json!(1)),
            ("/arms/0/probe", serde_json::json!({"num_prompts": 4})),
            ("/rungs", serde_json::json!([0])),
            ("/rounds", serde_json::json!(0)),
            ("/boot", serde_json::json!("never")),
            ("/colour", serde_json::json!("red")),
        ] {
            let mut value = full.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            value.pointer_mut(parent).unwrap()[key] = bad;
            assert!(!validator.is_valid(&value) && parse(&value.to_string(), &[]).is_err(), "{pointer}");
        }
    }

    #[test]
    fn the_originals_knobs_override() {
        let knobs = [
            ("RUNGS", "2 16"),
            ("ROUNDS", "3"),
            ("NPROMPTS", "9"),
            ("OUTLEN", "7"),
            ("TEMP", "0"),
            ("TOPP", "1"),
            ("TOPK", "-1"),
            ("SEED", "5"),
        ];
        let campaign = parse(SMALL, &knobs).unwrap();
        assert_eq!((campaign.rungs.as_slice(), campaign.rounds), (&[2, 16][..], 3));
        let client = &campaign.client;
        assert_eq!((client.num_prompts, client.max_tokens, client.top_k, client.seed), (9, 7, -1, 5));
        assert!(client.temperature == 0.0 && (client.top_p - 1.0).abs() < f64::EPSILON);
        for (name, value) in [("RUNGS", "1,4"), ("RUNGS", "0"), ("ROUNDS", "x"), ("NPROMPTS", "0"), ("TEMP", "nan")] {
            assert!(parse(SMALL, &[(name, value)]).is_err(), "{name}={value}");
        }
        assert!(parse(SMALL, &[("ROUNDS", "")]).is_ok(), "an empty knob is none");
    }

    #[test]
    fn bad_campaigns_name_the_key() {
        for (more, words) in [
            ("rung: [1]", "rung"),
            ("rungs: [4, 4]", "rungs"),
            ("rounds: 0", "rounds"),
            ("min_ok_share: 0", "min_ok_share"),
            ("client: {args: ['--seed=4']}", "--seed"),
            ("files: [{path: x, sha256: abc}]", "sha256"),
            ("assume: {boot_sec: 0}", "assume"),
        ] {
            let error = parse(&format!("{SMALL}{more}\n"), &[]).unwrap_err();
            assert!(error.message.contains(words) && !error.hint.is_empty(), "{more}: {error}");
        }
        for (arm, words) in [
            ("{name: A-B, url: 'http://127.0.0.1:1'}", "arms.name"),
            ("{name: A, url: 'https://127.0.0.1:1'}", "https"),
            ("{name: A, url: 'http://127.0.0.1:1', command: []}", "command"),
            ("{name: A, url: 'http://127.0.0.1:1', command: [x], container: {image: y}}", "container"),
            ("{name: A, url: 'http://127.0.0.1:1', env: {X: y}}", "env"),
        ] {
            let error = parse(&format!("corpus: {{file: c}}\narms: [{arm}]\n"), &[]).unwrap_err();
            assert!(error.message.contains(words), "{arm}: {error}");
        }
        let twice =
            "corpus: {file: c}\narms: [{name: A, url: 'http://127.0.0.1:1'}, {name: A, url: 'http://127.0.0.1:2'}]\n";
        assert!(parse(twice, &[]).unwrap_err().message.contains("twice"));
        let small = "corpus: {build: {gsm8k: g, humaneval: h, sonnet: s, count: 135}}\narms: [{name: A, url: 'http://127.0.0.1:1'}]\n";
        assert!(parse(small, &[]).unwrap_err().message.contains("136"));
    }
}
