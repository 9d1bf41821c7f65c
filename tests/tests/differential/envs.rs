//! Environments of the agent.

use std::path::Path;

use crate::dice::{Dice, Mood};

pub(crate) type Environment = Vec<(String, String)>;

struct Variable(&'static str, &'static [&'static str], &'static [&'static str]);

const BAD_COUNTS: &[&str] = &["0", "abc", "-1", "032", "00", "+5", " 5", "1.0", "５", "99999999999999999999"];

#[rustfmt::skip]
const VARIABLES: &[Variable] = &[
    Variable("TS_MODEL", &["m/n", "x y", ""], &["*", "-m", "\u{fc}"]),
    Variable("TS_SERVED_MODEL_NAME", &["served", "", "Qwen/Qwen3-0.6B"], &["a b"]),
    Variable("TS_TOKENIZER", &["tok", ""], &["*"]),
    Variable("TS_PORT", &["8000", "1024", "9000", "65534", ""], &["abc", "0", "00", "08000", "1023", "65535", "65536", "-5", "+8000", "8000.0", " 8000", "99999999999999999999"]),
    Variable("TS_CONTROL_PORT", &["8001", "1024", "65535", "", "9001"], &["8000", "0", "abc", "1023", "65536", "08001", "99999999999999999999"]),
    Variable("TS_READY_TIMEOUT", &["1", "900", "1800", "1801", "86400", ""], &["0", "86401", "+900", " 900", "0900", "99999999999999999999"]),
    Variable("TS_TEARDOWN_GRACE", &["5", "15", "16", "45", "3600", ""], &["4", "3601", "-5", "045", "0", "x", "99999999999999999999"]),
    Variable("TS_DRAIN_TIMEOUT", &["1", "3", "4", ""], &["0", "44", "45", "60", "04", "abc", "3600"]),
    Variable("TS_GATEWAY_STARTUP_TIMEOUT", &["60", "", "abc"], &["0"]),
    Variable("TS_BENCH_STEPS", &["1", "2", ""], BAD_COUNTS),
    Variable("TS_BENCH_WARMUP_STEPS", &["0", "1", ""], BAD_COUNTS),
    Variable("TS_NUM_PROMPTS", &["1", "32", ""], BAD_COUNTS),
    Variable("TS_INPUT_LEN", &["1", "512", ""], BAD_COUNTS),
    Variable("TS_OUTPUT_LEN", &["8", "128", "1024", ""], BAD_COUNTS),
    Variable("TS_NUM_WARMUPS", &["0", "1", "5", ""], BAD_COUNTS),
    Variable("TS_BENCH_TIMEOUT", &["1", "1800", "31536000", ""], &["0", "abc", "-1", "032", "31536001", "99999999999999999999"]),
    Variable("TS_MAX_CONCURRENCY", &["8", "", "x y"], &["0"]),
    Variable("TS_REQUEST_RATE", &["inf", "4.0", ""], &["*"]),
    Variable("TS_IGNORE_EOS", &["1", ""], &["0", "true", "01"]),
    Variable("TS_SEED", &["0", "7", ""], &["abc"]),
    Variable("TS_PERCENTILE_METRICS", &["ttft", ""], &["a b"]),
    Variable("TS_METRIC_PERCENTILES", &["50", ""], &["*"]),
    Variable("TS_DATASET", &["random", ""], &["Random", "sharegpt", " random", "x"]),
    Variable("TS_DATASET_PATH", &[""], &["/nowhere", "/"]),
    Variable("TS_SAVE_DETAILED", &["0", "1", ""], &["yes", "2", "01"]),
    Variable("TS_ROLLOUT", &["0", ""], &["2", "yes", "01"]),
    Variable("TS_RUN_TOKEN", &["7-1", "a.b_c"], &[".x"]),
    Variable("TS_SERVE_ARGS", &["", "[]", r#"["--tp","2"]"#, r#"["--enforce-eager"]"#, r#"["--drain-timeout","4"]"#, r#"["--drain=3"]"#, r#"["--gateway-s","5"]"#, r#"["--gateway-startup-timeout=5"]"#, r#"["--port-range","1"]"#, r#"["a b","*","","\n","\u00e9"]"#, r#"["--drain-timeout-mode","fast"]"#, r#"["--note","x --drain-timeout 5"]"#, r#"["--drain-timeout","600","--drain-timeout","4"]"#, r#" [ "-x" ] "#, r#"["--sampling-backend","greedy"]"#, r#"["--engine-startup-timeout","5"]"#, r#"["--drain-timeout","04","--drain-timeout=4"]"#],
        &["null", "{}", "\"x\"", "[1]", "[[\"a\"]]", "[true]", "--tp 2", r#"["a\u0000b"]"#, r#"["--port","1"]"#, r#"["--port=1"]"#, r#"["--p","1"]"#, r#"["--served"]"#, r#"["--host","0.0.0.0"]"#, r#"["--control-port","1"]"#, r#"["--","--port","1"]"#, r#"["--foo","--port"]"#, r#"["--drain-timeout","5000"]"#, r#"["--d=600"]"#, r#"["--drain-timeout","--tp","2"]"#, r#"["--drain-timeout=30","--drain-timeout"]"#, r#"["--drain-timeout=030"]"#, r#"["--drain-timeout="]"#, r#"["--drain-timeout","+5"]"#, "[", r#"["a",]"#, r#"["\ud800"]"#, "[NaN]", r#"["a"] x"#, "[\"a\tb\"]", r#"["--prometheus-port","8000"]"#, r#"["--drain-timeout","-5","--drain-timeout","4"]"#, r#"["--drain-timeout","99999999999999999999"]"#, r#"["--drain-timeout", "4", "--drain-timeout", "5000"]"#]),
    Variable("TS_BENCH_ARGS", &["", "[]", r#"["--goodput","ttft:100 x","*",""]"#, r#"["--extra-body","{\"a\": 1}"]"#, r#"["--seed-offset","1"]"#, r#"["-x"]"#, r#"["--"]"#, r#"["{\"--seed\": 1}"]"#, r#"["--disable-ignore-eos"]"#, r#"["--extra-request-body","{}"]"#, r#"["--random-range-ratio","1.0"]"#],
        &[r#"["--seed","1"]"#, r#"["--s","1"]"#, r#"["--max-conc","1"]"#, r#"["--m"]"#, r#"["--ignore-eos=1"]"#, r#"["--output-file=x"]"#, r#"["--num-prompts","4"]"#, r#"["--foo","--seed"]"#, r#"["--save-detailed"]"#, r#"["--sa"]"#, r#"["--input-len","4"]"#, r#"["--output-len=4"]"#, r#"["--append-result"]"#, r#"["--a"]"#, r#"["--","--seed","1"]"#, "[3]", r#"["--label"]"#, r#"["--base-url=x"]"#]),
];

#[rustfmt::skip]
const ROLLOUT: &[Variable] = &[
    Variable("TS_ROLLOUT_SAMPLES", &["1", "4", "1024", ""], &["0", "1025", "04", "x", "+1", "99999999999999999999"]),
    Variable("TS_TEMPERATURE", &["1.0", "0.7", "2", "1", "0.001"], &["1e0", ".5", "1.", "1.2.3", "-1", "x", "0", "0.000000", "2.5", "", "+1", " 1", "１", "inf", "nan"]),
    Variable("TS_TOP_P", &["1.0", "0.95", ""], &["0", "1.01", "1e0", ".5", "x", "1."]),
    Variable("TS_MIN_MEAN_OUTPUT_TOKENS", &["0", "4", "8", ""], &["abc", "-1", "129", "5000", "+4", "4.0", "08", "99999999999999999999"]),
    Variable("TS_SAMPLING_BACKEND", &["triton", "triton_full", ""], &["greedy", "flashinfer", "Triton", "triton ", "x"]),
];

/// Every value of every variable by itself, and in a sound rollout where it belongs there.
pub(crate) fn each_alone() -> Vec<Environment> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let values = |variable: &'static Variable| variable.1.iter().chain(variable.2).map(|value| (variable.0, *value));
    let plain = VARIABLES.iter().flat_map(values).map(|(name, value)| vec![pair(name, value)]);
    let rollout = ROLLOUT.iter().flat_map(values).flat_map(|(name, value)| {
        let mut mode = vec![pair("TS_ROLLOUT", "1"), pair("TS_IGNORE_EOS", "0"), pair("TS_SAVE_DETAILED", "1")];
        if name != "TS_TEMPERATURE" {
            mode.push(pair("TS_TEMPERATURE", "1.0"));
        }
        mode.push(pair(name, value));
        [mode, vec![pair(name, value)]]
    });
    plain.chain(rollout).collect()
}

/// One environment.
pub(crate) fn environment(dice: &mut Dice, mood: Mood, sharegpt: &Path) -> Environment {
    let sharegpt = &sharegpt.display().to_string();
    let mut pairs = Environment::new();
    let mut put = |name: &str, value: &str| match pairs.iter_mut().find(|(n, _)| n == name) {
        Some((_, known)) => value.clone_into(known),
        None => pairs.push((name.to_owned(), value.to_owned())),
    };
    let rollout = dice.chance(35);
    if rollout {
        put("TS_ROLLOUT", "1");
        put("TS_TEMPERATURE", dice.word(ROLLOUT[1].1));
        put("TS_IGNORE_EOS", dice.word(&["0", "0", "false"]));
        put("TS_SAVE_DETAILED", dice.word(&["1", "1", "1", "0"]));
        for variable in ROLLOUT {
            if dice.chance(50) {
                put(variable.0, dice.word(variable.1));
            }
        }
    }
    if dice.chance(20) {
        put("TS_DATASET", "sharegpt");
        put("TS_DATASET_PATH", if dice.chance(10) { "/" } else { sharegpt });
        if !rollout {
            put("TS_IGNORE_EOS", dice.word(&["1", "0", "no"]));
        }
    }
    for _ in 0..dice.below(6) {
        let variable = dice.pick(VARIABLES);
        if !["TS_IGNORE_EOS", "TS_ROLLOUT", "TS_DATASET", "TS_DATASET_PATH", "TS_SAVE_DETAILED"].contains(&variable.0) {
            put(variable.0, dice.word(variable.1));
        }
    }
    let off = match mood {
        Mood::Valid => 0,
        Mood::Near => 1,
        Mood::Wild => 2 + dice.below(2),
    };
    for _ in 0..off {
        let list = if dice.chance(if rollout { 50 } else { 10 }) { ROLLOUT } else { VARIABLES };
        let variable = dice.pick(list);
        put(variable.0, dice.word(variable.2));
    }
    pairs
}
