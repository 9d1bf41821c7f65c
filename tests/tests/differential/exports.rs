//! Trials as the host sees them afterwards: a configuration, exports as bytes, what the agent printed, how it ended.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::dice::{Dice, Mood};

/// One finished trial.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) config: String,
    /// Step and bytes.
    pub(crate) exports: Vec<(u32, Vec<u8>)>,
    pub(crate) stdout: String,
    /// `None`: the deadline passed.
    pub(crate) exit: Option<i32>,
}

impl Trial {
    /// The question of what both layers make of it.
    pub(crate) fn question(&self) -> Value {
        json!({
            "op": "export", "yaml": self.config, "exports": self.bytes(), "stdout": self.stdout, "exit_code": self.exit,
        })
    }

    /// The question of which exports can be read at all.
    pub(crate) fn reading(&self) -> Value {
        json!({"op": "read", "exports": self.bytes()})
    }

    fn bytes(&self) -> Vec<Value> {
        self.exports.iter().map(|(step, bytes)| json!([step, base64(bytes)])).collect()
    }

    /// For a person.
    pub(crate) fn shown(&self) -> String {
        let texts: Vec<_> = self.exports.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
        format!("{} exit {:?}\n      {}", self.config, self.exit, texts.join("\n      "))
    }
}

/// Bytes as the line protocol carries them.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

/// What the step was asked for.
struct Asked {
    prompts: usize,
    output_len: usize,
    samples: usize,
    eos: bool,
}

/// A document before it is written: raw JSON under each key, so that nothing is normalised.
type Document = Vec<(String, String)>;

const CORE: &[&str] = &[
    "completed",
    "failed",
    "duration",
    "output_throughput",
    "request_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "total_output_tokens",
    "p99_itl_ms",
    "p99_tpot_ms",
    "burstiness",
    "num_prompts",
    "input_len",
    "seed",
];

const ODD: &[&str] = &[
    "true",
    "false",
    "null",
    "\"32\"",
    "32.0",
    "-1",
    "0",
    "0.0",
    "-0.0",
    "1.5",
    "12.5",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "1e-400",
    "[]",
    "{}",
    "[1, 2]",
    "\"\"",
    "99999999999999999999",
    "5e-324",
    "1E2",
    "-3.5",
    "9007199254740993",
    "1e3",
];

fn huge_integer() -> String {
    format!("1{}", "0".repeat(400))
}

fn sound(dice: &mut Dice, asked: &Asked) -> Document {
    let figure = |dice: &mut Dice| format!("{}.{}", 1 + dice.below(500), dice.below(100));
    let per_choice = 1 + dice.below(asked.output_len.min(64));
    let completions = asked.prompts * asked.samples;
    let total = if asked.eos { completions * per_choice } else { asked.prompts * asked.output_len };
    let mut document: Document = vec![
        ("label".into(), "\"bench-step1\"".into()),
        ("completed".into(), asked.prompts.to_string()),
        ("failed".into(), "0".into()),
        ("total_output_tokens".into(), total.to_string()),
        ("num_prompts".into(), asked.prompts.to_string()),
    ];
    for key in [
        "duration",
        "output_throughput",
        "request_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "median_ttft_ms",
    ] {
        document.push((key.into(), figure(dice)));
    }
    if total > asked.prompts || dice.chance(50) {
        for key in ["mean_tpot_ms", "median_tpot_ms"] {
            document.push((key.into(), figure(dice)));
        }
    }
    for key in ["p99_tpot_ms", "p99_itl_ms", "median_itl_ms", "median_e2el_ms", "max_output_tokens_per_s"] {
        if dice.chance(70) {
            document.push((key.into(), figure(dice)));
        }
    }
    if dice.chance(30) {
        document.push(("burstiness".into(), "Infinity".into()));
        document.push(("itls".into(), "[[0.1, NaN], []]".into()));
        document.push(("generated_texts".into(), "[\"\\u00e9\\n\", \"{\"]".into()));
    }
    if asked.eos && dice.chance(75) {
        document.push(("output_lens".into(), lengths(dice, asked, per_choice)));
    }
    document
}

/// One of the two legitimate shapes, entries around what was generated.
fn lengths(dice: &mut Dice, asked: &Asked, per_choice: usize) -> String {
    let per_request = dice.chance(35);
    let count = if per_request { asked.prompts } else { asked.prompts * asked.samples };
    let cap = asked.output_len * if per_request { asked.samples } else { 1 };
    let mut entries: Vec<String> = (0..count).map(|_| (per_choice + dice.below(3)).min(cap).to_string()).collect();
    if dice.chance(20) && !entries.is_empty() {
        let at = dice.below(entries.len());
        dice.word(&["0", "5.0", "1e0"]).clone_into(&mut entries[at]);
        if dice.chance(30) {
            entries[at] = cap.to_string();
        }
    }
    format!("[{}]", entries.join(", "))
}

/// Spoils one part.
fn spoil(dice: &mut Dice, document: &mut Document, asked: &Asked) {
    let key = dice.word(CORE).to_owned();
    let at = document.iter().position(|(k, _)| *k == key);
    match dice.below(if asked.eos { 12 } else { 8 }) {
        0 => document.retain(|(k, _)| *k != key),
        1 => {
            let value = dice.word(ODD).to_owned();
            document.push((key, value));
        }
        2 => {
            let count = (asked.prompts + dice.below(3)).saturating_sub(1);
            document.retain(|(k, _)| k != "completed");
            document.push(("completed".into(), count.to_string()));
            if dice.chance(30) {
                document.retain(|(k, _)| k != "duration");
            }
        }
        3 => {
            document.retain(|(k, _)| k != "failed");
            document.push(("failed".into(), dice.word(&["1", "-1", "true", "false", "0.0", "null"]).to_owned()));
        }
        4 if dice.chance(30) => document.push((key, huge_integer())),
        // Everything about the last piece of the list concerns lengths.
        8.. => spoil_lengths(dice, document, asked),
        _ => {
            let value = dice.word(ODD).to_owned();
            match at {
                Some(at) => document[at].1 = value,
                None => document.push((key, value)),
            }
        }
    }
}

fn spoil_lengths(dice: &mut Dice, document: &mut Document, asked: &Asked) {
    document.retain(|(k, _)| k != "output_lens");
    let (c, n, cap) = (asked.prompts, asked.samples, asked.output_len);
    let fill = |count: usize, value: usize| format!("[{}]", vec![value.to_string(); count].join(","));
    let odd = dice.word(&[
        "true",
        "-1",
        "1.5",
        "\"9\"",
        "NaN",
        "null",
        "Infinity",
        "[1]",
        "{}",
        "1e400",
        "-0.0",
        "99999999999999999999",
    ]);
    let text = match dice.below(12) {
        0 => fill(c * n, 1),
        1 => fill(c, n),
        2 => fill(c + 1, 3),
        3 => fill((c * n).saturating_sub(1), 3),
        4 => fill(c * n, cap + 1),
        5 => fill(c, cap * n),
        6 => fill(c, cap * n + 1),
        7 => dice.word(&["null", "{}", "\"x\"", "[]", "3", "true"]).to_owned(),
        8 => fill(1, 16),
        9 => format!("[{}{odd}]", "4,".repeat((c * n).saturating_sub(1))),
        10 => format!("[{}{odd}]", "4,".repeat(c.saturating_sub(1))),
        _ if dice.chance(50) => format!("[{}{}]", "4,".repeat((c * n).saturating_sub(1)), huge_integer()),
        _ => fill(c * n, 0),
    };
    document.push(("output_lens".into(), text));
}

fn written(document: &Document) -> String {
    let pairs: Vec<_> = document.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Bytes that are no export, or hardly one.
fn wild(dice: &mut Dice, text: &str) -> Vec<u8> {
    let cut = |share: usize| text.as_bytes()[..text.len() * share / 100].to_vec();
    match dice.below(16) {
        0 => Vec::new(),
        1 => b"[]".to_vec(),
        2 => b"null".to_vec(),
        3 => cut(60),
        4 => cut(98),
        5 => [b"\xEF\xBB\xBF".as_slice(), text.as_bytes()].concat(),
        6 => [text.as_bytes(), b"{}"].concat(),
        7 => [text.as_bytes(), b" \n\t\r"].concat(),
        8 => text.replace("\"label\"", "\"\\u006cabel\\ud800\"").into_bytes(),
        9 => [b"{\"x\": \"\xff\", ".as_slice(), &text.as_bytes()[1..]].concat(),
        10 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        11 => text.replace("\"failed\"", "\"f\\u0061iled\"").into_bytes(),
        12 => text.replacen('{', &format!("{{\"deep\": {}{}, ", "[".repeat(90), "]".repeat(90)), 1).into_bytes(),
        13 => text.replace(", ", ",\u{a0}").into_bytes(),
        14 => text
            .replace(
                "\"bench-step1\"",
                dice.word(&["\"a\tb\"", "01", "+1", "1.", ".5", "'x'", "nan", "\"\\x\"", "- 1", "1e", "Inf"]),
            )
            .into_bytes(),
        _ => format!("  {text}\n").into_bytes(),
    }
}

const GATES: &[&str] = &[
    "max_median_ttft_ms: 250",
    "max_p99_tpot_ms: 300",
    "max_p99_itl_ms: 100",
    "min_output_throughput: 200",
    "min_request_throughput: 0.5",
    "max_median_e2el_ms: 1",
];

/// One trial.
pub(crate) fn trial(dice: &mut Dice, mood: Mood, sharegpt: &Path) -> Trial {
    let mut config = String::from("{require_gpu: false");
    let rollout = dice.chance(55);
    let mut asked =
        Asked { prompts: 1 + dice.below(6), output_len: *dice.pick(&[1, 2, 8, 64, 200]), samples: 1, eos: rollout };
    let steps = 1 + dice.below(3);
    // Writing to a text cannot fail.
    let _ = write!(config, ", num_prompts: {}, output_len: {}, steps: {steps}", asked.prompts, asked.output_len);
    let conversations = dice.chance(30);
    if conversations {
        let _ = write!(config, ", dataset: sharegpt, dataset_path: {:?}", sharegpt.display().to_string());
    }
    if rollout {
        asked.samples = *dice.pick(&[1, 1, 2, 4, 8]);
        let detailed = asked.samples > 1 || dice.chance(70);
        let highest = asked.output_len.min(9);
        let floor = if dice.chance(30) { 0 } else { dice.below(highest + 1) };
        let _ = write!(
            config,
            ", rollout: true, rollout_samples: {}, min_mean_output_tokens: {floor}, save_detailed: {detailed}",
            asked.samples
        );
    } else if conversations && dice.chance(60) {
        asked.eos = true;
        config.push_str(", ignore_eos: false, save_detailed: true");
    }
    if dice.chance(30) {
        let gates: Vec<_> = GATES.iter().filter(|_| dice.chance(30)).copied().collect();
        let _ = write!(config, ", gates: {{{}}}", gates.join(", "));
    }
    config.push('}');

    let mut exports = Vec::new();
    let spoilt = 1 + dice.below(steps);
    for step in 1..=steps {
        let mut document = sound(dice, &asked);
        let faults = match mood {
            Mood::Valid => 0,
            Mood::Near => usize::from(step == spoilt),
            Mood::Wild => dice.below(3),
        };
        for _ in 0..faults {
            spoil(dice, &mut document, &asked);
        }
        let text = written(&document);
        let bytes = if mood == Mood::Wild && dice.chance(50) { wild(dice, &text) } else { text.into_bytes() };
        if mood == Mood::Valid || dice.chance(90) {
            exports.push((u32::try_from(step).unwrap_or(1), bytes));
        }
    }
    let started = if mood == Mood::Valid { steps } else { dice.below(steps + 1) };
    let mut stdout = String::from("TS_BENCH_INFO: model=m\nTS_BENCH_METRIC: server_startup_sec=307\n");
    for step in 1..=started {
        let _ = writeln!(stdout, "TS_BENCH_STEP_START: {step}");
    }
    let exit = match mood {
        Mood::Valid => Some(0),
        Mood::Near | Mood::Wild if dice.chance(70) => Some(0),
        Mood::Near | Mood::Wild if dice.chance(20) => None,
        Mood::Near | Mood::Wild => Some(*dice.pick(&[50, 51, 52, 53, 54, 55, 64, 125, 137, 143, 1, -9, -15])),
    };
    Trial { config, exports, stdout, exit }
}
