//! The knobs: what the stand-in is asked to be. One mechanism: `FAKE_TS_SCRIPT` holds a JSON object, or the path of
//! a file with one. Every key has a default; an unknown key is refused by name, so a typo cannot make a test pass.
//! `tests/README.md` documents each knob.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The variable that holds the script or names its file.
pub const VARIABLE: &str = "FAKE_TS_SCRIPT";

/// The whole script.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// File to which every process of the stand-in appends what it saw (JSON lines).
    pub journal: Option<PathBuf>,
    /// Every process ends itself after so many seconds, whatever happens (a test must not leave anything behind).
    pub max_life_s: u32,
    /// `tokenspeed version`.
    pub version: Version,
    /// `tokenspeed --help`.
    pub help: Help,
    /// How long `serve` needs to become ready.
    pub startup: Startup,
    /// Who ignores SIGTERM and SIGINT.
    pub deaf: Deaf,
    /// How `serve` ends on SIGTERM.
    pub stop: Stop,
    /// What the control port answers.
    pub control: Control,
    /// The gateway's peculiarities.
    pub gateway: Gateway,
    /// How fast and how much it generates: the known truth.
    pub engine: Engine,
    /// Faults of single generation requests.
    pub requests: Vec<RequestRule>,
    /// Faults of the server's processes.
    pub faults: Vec<Fault>,
    /// What `bench serve` does wrong.
    pub bench: Bench,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            journal: None,
            max_life_s: 1800,
            version: Version::default(),
            help: Help::default(),
            startup: Startup::default(),
            deaf: Deaf::default(),
            stop: Stop::default(),
            control: Control::default(),
            gateway: Gateway::default(),
            engine: Engine::default(),
            requests: Vec::new(),
            faults: Vec::new(),
            bench: Bench::default(),
        }
    }
}

/// `tokenspeed version`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Version {
    /// What is printed, without the final newline.
    pub text: String,
    /// Exit status.
    pub exit: u8,
    /// Never answers.
    pub hang: bool,
}

impl Default for Version {
    fn default() -> Self {
        Self { text: "TokenSpeed v0.1.0".into(), exit: 0, hang: false }
    }
}

/// `tokenspeed --help`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Help {
    /// False: the build has no `bench` (as 0.1.1): it is not listed and calling it is a usage error.
    pub bench: bool,
    /// Printed instead of the help.
    pub text: Option<String>,
    /// Exit status.
    pub exit: u8,
    /// Never answers.
    pub hang: bool,
}

impl Default for Help {
    fn default() -> Self {
        Self { bench: true, text: None, exit: 0, hang: false }
    }
}

/// Phases up to readiness.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Startup {
    /// From start to ready. Gateway up at 60 %, worker registered at 80 %, control port at 100 %.
    pub ms: u64,
}

impl Default for Startup {
    fn default() -> Self {
        Self { ms: 100 }
    }
}

/// Who ignores SIGTERM and SIGINT.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deaf {
    /// The orchestrator.
    pub leader: bool,
    /// Engine and gateway.
    pub children: bool,
}

/// The end on SIGTERM.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Idle time before the gateway goes (the real one needs about 5000).
    pub drain_ms: u64,
    /// The orchestrator's exit status.
    pub exit: u8,
}

/// The control port.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Not bound at all (as the real one when the port is taken).
    pub absent: bool,
    /// Binds this address instead of loopback.
    pub host: Option<String>,
    /// `/health`, one answer after the other.
    pub health: Answers,
    /// `/health_generate`, one answer after the other.
    pub health_generate: Answers,
    /// `Location` of 3xx answers.
    pub location: Option<String>,
    /// `/get_server_info`.
    pub server_info: ServerInfo,
}

/// A sequence of answers; the last one stays, or the sequence starts again.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answers {
    /// In order; never empty.
    pub sequence: Vec<Answer>,
    /// Start again after the last one.
    pub cycle: bool,
}

impl Default for Answers {
    fn default() -> Self {
        Self { sequence: vec![Answer::Status(200)], cycle: false }
    }
}

impl Answers {
    /// The answer to the `n`th question, counted from 0.
    pub fn at(&self, n: usize) -> Answer {
        let Some(last) = self.sequence.len().checked_sub(1) else { return Answer::Status(200) };
        let index = if self.cycle { n % (last + 1) } else { n.min(last) };
        self.sequence[index]
    }
}

/// One answer of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// This HTTP status.
    Status(u16),
    /// Something that is no answer.
    Silence(Silence),
}

/// Ways of not answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// The connection stays open and nothing comes.
    Hang,
    /// The connection is closed without a byte.
    Close,
}

/// `/get_server_info`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerInfo {
    /// Where `sampling_backend` sits.
    pub shape: InfoShape,
    /// Reported instead of the resolved backend; any JSON value.
    pub sampling_backend: Option<serde_json::Value>,
    /// Statuses, one after the other.
    pub status: Answers,
    /// This body, verbatim, instead of the document.
    pub body: Option<String>,
}

/// Where `sampling_backend` sits in `/get_server_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InfoShape {
    /// Under `server_args` only (0.1.0).
    #[default]
    Nested,
    /// At the top level and under `server_args` (0.1.1).
    Flat,
    /// At the top level only.
    TopOnly,
    /// Nowhere.
    Absent,
}

/// The gateway's peculiarities.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Binds this address, whatever `--host` says (`0.0.0.0`).
    pub host: Option<String>,
}

/// The known truth.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    /// A request's first token comes at the first step at or after this age.
    pub ttft_ms: f64,
    /// Length of a step; every active stream gets one chunk per step. 0: as fast as the sockets take it.
    pub itl_ms: f64,
    /// Tokens in a chunk.
    pub tokens_per_chunk: u32,
    /// Where EOS is not ignored, the lengths of successive choices, used in turn; empty: the asked length.
    pub eos_lens: Vec<u32>,
    /// How usage is told.
    pub usage: Usage,
    /// The finish reason comes in an empty event of its own (as the real gateway) instead of with the last token.
    pub finish_event: bool,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            ttft_ms: 20.0,
            itl_ms: 2.0,
            tokens_per_chunk: 1,
            eos_lens: Vec::new(),
            usage: Usage::OwnEvent,
            finish_event: false,
        }
    }
}

/// How usage is told to a client that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// In a last event with empty `choices`.
    #[default]
    OwnEvent,
    /// Beside the last choice (llama.cpp).
    WithLast,
    /// Not at all.
    None,
}

/// Which generation requests misbehave, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestRule {
    /// Every so many requests (1: all of them).
    pub every: u64,
    /// Not the first so many.
    #[serde(default)]
    pub skip_first: u64,
    /// Counts and hits only the requests of these steps (known by `x-request-id`, which dataset random sends).
    #[serde(default)]
    pub on: Option<StepSelector>,
    /// What happens.
    #[serde(rename = "do")]
    pub fault: RequestFault,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFault {
    /// This status at once, with an error object.
    Status(u16),
    /// The connection breaks half-way.
    Cut,
    /// The body ends cleanly half-way: no usage, no `[DONE]`.
    Eof,
    /// 200, then an error object instead of tokens.
    ErrorFirst,
    /// 200, half of the tokens, then an error object and `[DONE]`.
    ErrorLate,
    /// Half of the tokens, with usage: an early end that looks proper.
    Short,
    /// Everything but usage.
    NoUsage,
    /// Half of the tokens, then silence.
    Stall,
    /// The connection is closed without a byte.
    Close,
}

/// Steps of a benchmark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepSelector {
    /// Warm-up or measured; both when absent.
    pub kind: Option<StepKind>,
    /// Counted from 1; all when absent.
    pub step: Option<u32>,
}

impl StepSelector {
    /// Whether this step is meant.
    pub fn matches(&self, step: Step) -> bool {
        self.kind.is_none_or(|kind| kind == step.kind) && self.step.is_none_or(|n| n == step.number)
    }
}

/// Discarded or measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A discarded step.
    Warmup,
    /// A measured step.
    Measured,
}

/// One step of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Warm-up or measured.
    pub kind: StepKind,
    /// Counted from 1.
    pub number: u32,
}

/// A fault of the server: when, and what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub at: Trigger,
    /// What.
    #[serde(rename = "do")]
    pub action: Action,
}

/// When a fault strikes; each fault strikes once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// At once, nothing bound yet.
    Start,
    /// A third of the way through start-up, nothing bound yet.
    Loading,
    /// As soon as it is ready, before the control port answers.
    Ready,
    /// After the `n`th `/health` was answered with 200.
    Health(u64),
    /// After the `n`th `/health_generate` was answered with 200.
    HealthGenerate(u64),
    /// When the `n`th generation request arrives.
    Request(u64),
    /// When a request of such a step arrives.
    Step(StepTrigger),
    /// On the first SIGTERM.
    Sigterm,
}

/// A request of a step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTrigger {
    /// Warm-up or measured.
    pub kind: StepKind,
    /// Counted from 1.
    pub step: u32,
    /// The `n`th request of the step, counted from 1.
    #[serde(default = "one")]
    pub request: u64,
}

fn one() -> u64 {
    1
}

/// What a server fault does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The orchestrator ends with a status.
    Exit(Exit),
    /// The orchestrator dies by a signal (number); its children stay.
    Die(i32),
    /// One child ends; the orchestrator follows as the real one does.
    ChildExit(ChildExit),
    /// Gateway and control port accept and never answer; running streams freeze; start-up goes no further.
    Hang,
    /// This child's port is taken, by a socket that accepts nothing (before it binds: at `start` or `loading`).
    Occupy(ChildName),
    /// The whole process group stops itself (SIGSTOP).
    StopGroup,
    /// So many short-lived orphans, which PID 1 has to reap.
    ForkStorm(u32),
    /// So many dead children that nobody waits for.
    Zombies(u32),
    /// Writes to the log.
    Spam(Spam),
    /// Writes its environment to the log, as a careless server does.
    PrintEnv,
    /// More processes.
    Spawn(Spawn),
}

/// The orchestrator's exit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exit {
    /// Status.
    pub code: u8,
    /// Engine and gateway live on.
    pub leave_children: bool,
}

/// A child's end.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChildExit {
    /// Which.
    pub child: ChildName,
    /// With this status (the default is 0) ...
    #[serde(default)]
    pub code: u8,
    /// ... or by this signal (number).
    #[serde(default)]
    pub signal: Option<i32>,
}

/// The orchestrator's two children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildName {
    /// Engine, with the control port.
    Engine,
    /// Gateway, with the OpenAI surface.
    Gateway,
}

/// Output without sense.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spam {
    /// How much.
    pub bytes: u64,
    /// Line feeds in it.
    pub newlines: bool,
    /// All 256 byte values, escape codes and broken UTF-8 instead of letters.
    pub binary: bool,
}

impl Default for Spam {
    fn default() -> Self {
        Self { bytes: 1 << 20, newlines: false, binary: false }
    }
}

/// Processes beside the regular two.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spawn {
    /// How many.
    pub count: u32,
    /// Where they belong.
    pub session: SessionKind,
    /// Their parent exits at once, so that PID 1 or a subreaper inherits them.
    pub orphan: bool,
    /// Ignore SIGTERM, SIGINT and SIGHUP.
    pub deaf: bool,
    /// Keeps this listening socket open (it shares it with its owner).
    pub holds: Option<ChildName>,
}

impl Default for Spawn {
    fn default() -> Self {
        Self { count: 1, session: SessionKind::Shared, orphan: false, deaf: false, holds: None }
    }
}

/// Where an extra process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// The server's session and group.
    Shared,
    /// A group of its own in the server's session.
    OwnGroup,
    /// A session of its own.
    OwnSession,
}

/// What `bench serve` does wrong.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bench {
    /// Shape of `output_lens` where a request has several choices.
    pub output_lens: LensShape,
    /// Faults by step; all that match apply.
    pub faults: Vec<BenchFault>,
}

/// Shape of `output_lens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LensShape {
    /// One entry per request, the sum over its choices (what the real tool writes).
    #[default]
    PerRequest,
    /// One entry per choice.
    PerChoice,
}

/// Faults of the bench in some steps, by the stage in which they apply.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BenchFault {
    /// In these steps; in all when absent.
    pub on: StepSelector,
    /// Before the first request.
    pub before: Vec<Before>,
    /// To the document.
    pub document: Vec<Spoil>,
    /// To its bytes.
    pub bytes: Vec<Mangle>,
    /// Instead of writing them as the real tool does.
    pub place: Option<Place>,
    /// After writing.
    pub after: Vec<After>,
}

/// What the bench does before the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// Ignores SIGTERM, SIGINT and SIGHUP from now on.
    IgnoreSigterm,
    /// Starts a helper in its own group; `true`: one that ignores SIGTERM.
    Helper(bool),
    /// On SIGTERM: waits so many ms, writes a perfect export, exits 0.
    LateExport(u64),
    /// So many bytes on stdout.
    Stdout(u64),
    /// Its environment on stdout.
    PrintEnv,
    /// Exits: nothing sent, nothing written.
    Exit(u8),
    /// Sends nothing and waits for ever.
    Hang,
}

/// What is wrong with the document.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spoil {
    /// `completed` is smaller by this.
    Short(i64),
    /// `failed` is this.
    Failed(i64),
    /// Keys set to JSON values (new keys at the end).
    Set(serde_json::Map<String, serde_json::Value>),
    /// Keys set to verbatim text (`NaN`, `1e999`).
    SetRaw(std::collections::BTreeMap<String, String>),
    /// Keys left out.
    Remove(Vec<String>),
    /// Keys written a second time, before the real ones, with these values.
    Duplicate(serde_json::Map<String, serde_json::Value>),
    /// A string of so many bytes in a key that nobody knows.
    Pad(u64),
    /// So many nested arrays in a key that nobody knows.
    Nest(u64),
}

/// What is wrong with the file's bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mangle {
    /// This text instead of the document.
    Text(String),
    /// These bytes instead of the document.
    Raw(Vec<u8>),
    /// Zero bytes.
    Empty,
    /// Only this share of the bytes (0.5: half of them).
    Truncate(f64),
    /// Invalid bytes in a string that nobody reads.
    InvalidUtf8,
    /// A byte order mark first.
    Bom,
    /// Written as UTF-16.
    Utf16,
}

/// What stands where the file should be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Nothing.
    Nothing,
    /// A link to this path; an existing target gets the bytes.
    Symlink(PathBuf),
    /// A FIFO.
    Fifo,
    /// A directory.
    Directory,
    /// A file of this length without data.
    Sparse(u64),
}

/// What the bench does after writing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// Asks the server for this fault.
    Fire(Action),
    /// Waits for ever.
    Hang,
    /// Dies by this signal (number).
    Die(i32),
    /// Exits with this status.
    Exit(u8),
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{VARIABLE}: cannot read {path:?}: {source}; name a JSON file or give the JSON object itself")]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not what a script looks like.
    #[error("{VARIABLE}: {source}; the knobs are listed in tests/README.md")]
    Parse {
        /// Where and why.
        source: serde_json::Error,
    },
    /// A value outside its range.
    #[error("{VARIABLE}: {key} is {value}, must be {rule}")]
    Range {
        /// The knob.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        rule: &'static str,
    },
}

impl Script {
    /// Reads the script that the environment names; the default one where it names none.
    pub fn load() -> Result<Self, ScriptError> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Self::default()),
            Some(value) => match value.to_str() {
                Some(text) if text.trim_start().starts_with('{') => Self::parse(text),
                _ => Self::read(Path::new(&value)),
            },
        }
    }

    fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path).map_err(|source| ScriptError::Read { path: path.into(), source })?;
        Self::parse(&text)
    }

    /// Parses and checks a script.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_json::from_str(text).map_err(|source| ScriptError::Parse { source })?;
        let range = |key, value: String, rule| Err(ScriptError::Range { key, value, rule });
        let time = |ms: f64| (0.0..=3_600_000.0).contains(&ms);
        if !time(script.engine.ttft_ms) {
            return range("engine.ttft_ms", script.engine.ttft_ms.to_string(), "0 to 3600000");
        }
        if !time(script.engine.itl_ms) {
            return range("engine.itl_ms", script.engine.itl_ms.to_string(), "0 to 3600000");
        }
        if script.engine.tokens_per_chunk == 0 {
            return range("engine.tokens_per_chunk", "0".into(), "at least 1");
        }
        if script.engine.eos_lens.contains(&0) {
            return range("engine.eos_lens", "0".into(), "lengths of at least 1");
        }
        if script.requests.iter().any(|rule| rule.every == 0) {
            return range("requests.every", "0".into(), "at least 1");
        }
        for answers in [&script.control.health, &script.control.health_generate, &script.control.server_info.status] {
            if answers.sequence.is_empty() {
                return range("control: sequence", "[]".into(), "at least one answer");
            }
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_unknown_keys() {
        let script = Script::parse("{}").expect("empty script");
        assert_eq!(script.engine.tokens_per_chunk, 1);
        let error = Script::parse(r#"{"engine":{"ttft":3}}"#).expect_err("typo").to_string();
        assert!(error.contains("`ttft`") && error.contains("ttft_ms"), "{error}");
        assert!(Script::parse(r#"{"engine":{"itl_ms":-1}}"#).is_err());
        assert!(Script::parse(r#"{"faults":[{"at":"ready","do":{"exit":{"kode":1}}}]}"#).is_err());
    }

    #[test]
    fn answers_stay_or_cycle() {
        let stay: Answers = serde_json::from_str(r#"{"sequence":[503,"hang",200]}"#).expect("answers");
        let seen: Vec<Answer> = (0..4).map(|n| stay.at(n)).collect();
        assert_eq!(
            seen,
            [Answer::Status(503), Answer::Silence(Silence::Hang), Answer::Status(200), Answer::Status(200)]
        );
        let cycle = Answers { sequence: vec![Answer::Status(200), Answer::Status(503)], cycle: true };
        assert_eq!(cycle.at(3), Answer::Status(503));
    }

    #[test]
    fn actions_have_short_forms() {
        let text = r#"{"faults":[
            {"at":{"step":{"kind":"measured","step":2}},"do":{"exit":{"code":3}}},
            {"at":"ready","do":"stop_group"},
            {"at":{"health":1},"do":{"spawn":{"session":"own_session","deaf":true,"holds":"gateway"}}}],
            "bench":{"faults":[{"bytes":["empty"]},{"on":{"kind":"warmup"},"document":[{"set":{"completed":true}}]}]}}"#;
        let script = Script::parse(text).expect("script");
        assert_eq!(script.faults[0].action, Action::Exit(Exit { code: 3, leave_children: false }));
        assert!(!script.bench.faults[1].on.matches(Step { kind: StepKind::Measured, number: 1 }));
    }
}
