//! Extra arguments: JSON arrays, flags that are ours, abbreviations, the drain rule (contract A.3, D).

use crate::limits;
use crate::text::{BadUint, strict_uint};

/// Why a JSON argument array was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArray {
    /// Not JSON at all.
    #[error("is not valid JSON ({0})")]
    NotJson(String),
    /// JSON, but not an array of strings.
    #[error("must be a JSON array of strings")]
    NotStrings,
    /// An argument cannot hold U+0000.
    #[error("item {0} contains a NUL byte")]
    Nul(usize),
}

/// Decodes a JSON array of strings into arguments, one for one.
pub fn decode_array(text: &str) -> Result<Vec<String>, BadArray> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| BadArray::NotJson(e.to_string()))?;
    let serde_json::Value::Array(items) = value else { return Err(BadArray::NotStrings) };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let serde_json::Value::String(word) = item else { return Err(BadArray::NotStrings) };
            if word.contains('\0') { Err(BadArray::Nul(index)) } else { Ok(word) }
        })
        .collect()
}

/// Serve flags that tie the server to its trial.
pub const OWNED_SERVE: &[&str] = &["--host", "--port", "--control-port", "--served-model-name"];
/// Owned as well under rollout.
pub const OWNED_SERVE_ROLLOUT: &[&str] = &["--sampling-backend"];

/// Bench flags that tie the export to the cell that asked for it. The last three are not in the original
/// list: `--input-len` and `--output-len` overwrite the lengths, `--append-result` makes the export no JSON
/// (contract D.3).
pub const OWNED_BENCH: &[&str] = &[
    "--base-url",
    "--output-file",
    "--num-prompts",
    "--label",
    "--request-id-prefix",
    "--random-input-len",
    "--random-output-len",
    "--model",
    "--tokenizer",
    "--backend",
    "--endpoint",
    "--dataset-name",
    "--dataset-path",
    "--percentile-metrics",
    "--metric-percentiles",
    "--max-concurrency",
    "--request-rate",
    "--num-warmups",
    "--ignore-eos",
    "--seed",
    "--save-detailed",
    "--input-len",
    "--output-len",
    "--append-result",
];
/// Owned as well under rollout; the second replaces the first entirely.
pub const OWNED_BENCH_ROLLOUT: &[&str] = &["--extra-body", "--extra-request-body"];

/// What the native load client takes from `bench_args` (design section 7), and whether a value follows. Everything else
/// there is the trial's own, or belongs to the other tool.
pub const NATIVE_EXTRAS: &[(&str, bool)] = &[
    ("--cpus", true),
    ("--extra-body", true),
    ("--header", true),
    ("--no-calibration", false),
    ("--request-timeout", true),
    ("--timeout", true),
];

/// An extra argument that the native load client is not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNative {
    /// Not one of [`NATIVE_EXTRAS`].
    #[error("may not hold {0:?} with the native bench tool")]
    Unknown(String),
    /// The flag stands without a value.
    #[error("{0} is given without a value")]
    NoValue(&'static str),
    /// Rollout makes the body.
    #[error("may not set --extra-body: under rollout the body is made from rollout_samples, temperature and top_p")]
    Body,
}

impl BadNative {
    /// What may be written.
    pub const HINT: &str = "it takes --cpus, --extra-body, --header, --no-calibration, --request-timeout and --timeout; \
         a flag of `tokenspeed bench serve` goes with bench_tool: tokenspeed";
}

/// Judges `bench_args` under `bench_tool: native`, one rule for both sides.
pub fn check_native(extras: &[String], rollout: bool) -> Result<(), BadNative> {
    let mut words = extras.iter();
    while let Some(word) = words.next() {
        let (option, inline) = word.split_once('=').map_or((word.as_str(), false), |(head, _)| (head, true));
        let known = NATIVE_EXTRAS.iter().find(|(flag, takes)| *flag == option && (*takes || !inline));
        let Some((flag, takes)) = known else { return Err(BadNative::Unknown(option.to_owned())) };
        if rollout && *flag == "--extra-body" {
            return Err(BadNative::Body);
        }
        if *takes && !inline && words.next().is_none() {
            return Err(BadNative::NoValue(flag));
        }
    }
    Ok(())
}

/// An extra argument that would shadow a flag of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// The word as it was written, without a value.
    pub word: String,
    /// The owned flag that it sets.
    pub flag: &'static str,
}

impl Shadow {
    /// Whether the word is an abbreviation of the flag rather than the flag itself.
    pub fn is_prefix(&self) -> bool {
        self.word != self.flag
    }
}

/// The option part of a word: the text before the first `=`, if it starts with `--` and has something after the dashes.
fn option_of(word: &str) -> Option<&str> {
    let option = word.split_once('=').map_or(word, |(head, _)| head);
    (option.len() > 2 && option.starts_with("--")).then_some(option)
}

/// Whether a word sets `flag`: the flag itself or a proper prefix of it, never a longer word (contract D.4).
pub fn sets(word: &str, flag: &str) -> bool {
    option_of(word).is_some_and(|option| flag.starts_with(option))
}

/// The first extra that sets an owned flag. Every word is looked at, also behind a literal `--`: values are not recognised.
pub fn find_shadow(extras: &[String], owned: &[&[&'static str]]) -> Option<Shadow> {
    extras.iter().find_map(|word| {
        let option = option_of(word)?;
        // The exact name first, so that `--seed` is not reported as an abbreviation of a longer flag.
        let flags = || owned.iter().flat_map(|list| list.iter().copied());
        let flag = flags().find(|f| *f == option).or_else(|| flags().find(|f| f.starts_with(option)))?;
        Some(Shadow { word: option.to_owned(), flag })
    })
}

/// Serve flags whose value the agent generates unless the extras set them.
pub mod generated {
    /// The orchestrator's budget for its gateway, seconds.
    pub const GATEWAY_STARTUP_TIMEOUT: &str = "--gateway-startup-timeout";
    /// The orchestrator's budget for the engine, seconds.
    pub const ENGINE_STARTUP_TIMEOUT: &str = "--engine-startup-timeout";
    /// Seconds for draining.
    pub const DRAIN_TIMEOUT: &str = "--drain-timeout";
}

/// Whether the extras supply a generated flag.
pub fn supplies(extras: &[String], flag: &str) -> bool {
    extras.iter().any(|word| sets(word, flag))
}

/// Why an explicit drain timeout was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDrain {
    /// The flag stands without a value.
    #[error("given without a value")]
    NoValue,
    /// The value does not fit inside the grace.
    #[error(transparent)]
    Value(#[from] BadUint),
}

/// Judges an explicit `--drain-timeout` among the serve extras: the last occurrence must lie strictly inside the
/// grace; one without a value is refused wherever it stands. `None` when the extras do not set it.
pub fn explicit_drain(extras: &[String], teardown_grace_sec: u64) -> Result<Option<u64>, BadDrain> {
    let mut last = None;
    for (index, word) in extras.iter().enumerate().filter(|(_, word)| sets(word, generated::DRAIN_TIMEOUT)) {
        let value = match word.split_once('=') {
            Some((_, value)) => value,
            None => match extras.get(index + 1) {
                Some(next) if !next.starts_with('-') => next,
                _ => return Err(BadDrain::NoValue),
            },
        };
        last = Some(value);
    }
    match last {
        None => Ok(None),
        Some(value) => Ok(Some(strict_uint(value, drain_range(teardown_grace_sec))?)),
    }
}

/// Drain timeouts that end inside a grace, seconds.
pub fn drain_range(teardown_grace_sec: u64) -> std::ops::RangeInclusive<u64> {
    let grace = teardown_grace_sec.max(*limits::TEARDOWN_GRACE_SEC.start());
    1..=grace - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_native_client_takes_few_extras() {
        let check =
            |words: &[&str], rollout| check_native(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), rollout);
        for good in [
            &[][..],
            &["--no-calibration", "--header", "Connection=close", "--timeout=5"],
            &["--extra-body", "{\"ignore_eos\": false}", "--cpus", "--odd"],
        ] {
            assert_eq!(check(good, false), Ok(()), "{good:?}");
        }
        for bad in ["--ready-check-timeout-sec", "--seed", "--num-prompts=4", "--time", "--no-calibration=1", "x", "--"]
        {
            assert!(matches!(check(&[bad, "4"], false), Err(BadNative::Unknown(_))), "{bad}");
        }
        assert_eq!(check(&["--header"], false), Err(BadNative::NoValue("--header")));
        assert_eq!(check(&["--extra-body={}"], true), Err(BadNative::Body));
        assert!(NATIVE_EXTRAS.iter().all(|(flag, _)| BadNative::HINT.contains(flag)));
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn arrays_rows_30_to_35() {
        for bad in ["null", "{}", "\"x\"", "[1]", "[[\"a\"]]", "[true]", "[\"--n\", 4]"] {
            assert_eq!(decode_array(bad), Err(BadArray::NotStrings), "{bad}");
        }
        assert!(matches!(decode_array("--tp 2"), Err(BadArray::NotJson(_))));
        assert_eq!(decode_array(r#"["a\u0000b"]"#), Err(BadArray::Nul(0)));
        assert_eq!(decode_array("[]"), Ok(vec![]));
        assert_eq!(decode_array(r#"["--goodput","ttft:100 x","*",""]"#).unwrap(), ["--goodput", "ttft:100 x", "*", ""]);
        assert_eq!(decode_array(r#"["--extra-body","{\"a\": 1}"]"#).unwrap(), ["--extra-body", "{\"a\": 1}"]);
    }

    #[test]
    fn drain_rows_22_to_29() {
        let judge = |list: &[&str]| explicit_drain(&words(list), 45);
        assert!(matches!(judge(&["--drain-timeout", "60"]), Err(BadDrain::Value(BadUint::OutOfRange { .. }))));
        assert!(judge(&["--drain-timeout=60"]).is_err());
        assert!(judge(&["--drain-timeout", "30", "--drain-timeout", "60"]).is_err());
        assert_eq!(judge(&["--drain-timeout", "60", "--drain-timeout", "30"]), Ok(Some(30)));
        assert!(judge(&["--d=600"]).is_err());
        assert!(judge(&["--drain", "600"]).is_err());
        assert_eq!(judge(&["--drain-timeout", "--tp", "2"]), Err(BadDrain::NoValue));
        assert_eq!(judge(&["--drain-timeout=30", "--drain-timeout"]), Err(BadDrain::NoValue));
        assert_eq!(judge(&["--drain-timeout=030"]), Err(BadDrain::Value(BadUint::ZeroPadded("030".into()))));
        assert_eq!(judge(&["--drain-timeout", "44"]), Ok(Some(44)));
        assert_eq!(judge(&["--drain-timeout-mode", "fast"]), Ok(None));
        assert_eq!(judge(&["--note", "x --drain-timeout 5"]), Ok(None));
    }

    #[test]
    fn owned_rows_36_to_52() {
        let serve = |list: &[&str]| find_shadow(&words(list), &[OWNED_SERVE]).map(|s| s.flag);
        for (list, flag) in [
            (&["--port", "1"][..], "--port"),
            (&["--port=1"], "--port"),
            (&["--po"], "--port"),
            (&["--served"], "--served-model-name"),
            (&["--", "--port", "1"], "--port"),
            (&["--host", "0.0.0.0"], "--host"),
            (&["--control-port", "1"], "--control-port"),
        ] {
            assert_eq!(serve(list), Some(flag), "{list:?}");
        }
        assert!(serve(&["--p", "1"]).is_some() && serve(&["--h"]).is_some());
        for list in [
            &["--tensor-parallel-size", "2"][..],
            &["--tp", "2"],
            &["--enforce-eager"],
            &["--port-range", "1"],
            &["-x"],
            &["--"],
            &["{\"--port\": 1}"],
        ] {
            assert_eq!(serve(list), None, "{list:?}");
        }
        let bench = |list: &[&str]| find_shadow(&words(list), &[OWNED_BENCH]).map(|s| s.flag);
        for flag in OWNED_BENCH {
            assert_eq!(bench(&[flag, "x"]), Some(*flag));
            assert_eq!(bench(&[&format!("{flag}=x")]), Some(*flag));
        }
        assert_eq!(bench(&["--max-conc", "1"]), Some("--max-concurrency"));
        assert_eq!(bench(&["--foo", "--seed"]), Some("--seed"));
        assert!(bench(&["--s", "1"]).is_some() && bench(&["--m"]).is_some());
        assert_eq!(bench(&["--seed-offset", "1"]), None);
        assert_eq!(bench(&["--extra-body", "{}"]), None);
        let rollout = |list: &[&str]| find_shadow(&words(list), &[OWNED_BENCH, OWNED_BENCH_ROLLOUT]).map(|s| s.flag);
        assert_eq!(rollout(&["--extra-b", "{}"]), Some("--extra-body"));
        assert_eq!(rollout(&["--extra-request-body={}"]), Some("--extra-request-body"));
    }

    #[test]
    fn an_abbreviation_is_told_from_the_flag() {
        let shadow = |word: &str| find_shadow(&words(&[word]), &[OWNED_SERVE]).unwrap();
        assert!(!shadow("--port").is_prefix() && !shadow("--port=1").is_prefix());
        assert!(shadow("--po").is_prefix() && shadow("--po=1").is_prefix());
    }

    #[test]
    fn a_drain_ends_a_second_before_the_grace() {
        assert_eq!(drain_range(45), 1..=44);
        assert_eq!(drain_range(5), 1..=4);
        // Graces that nobody may set still give a range.
        assert_eq!(drain_range(0), 1..=4);
        assert_eq!(explicit_drain(&words(&["--drain-timeout", "44"]), 45), Ok(Some(44)));
        for (grace, value) in [(45, "45"), (5, "5"), (5, "0")] {
            assert!(explicit_drain(&words(&["--drain-timeout", value]), grace).is_err(), "{value} in {grace}");
        }
    }

    #[test]
    fn a_longer_word_supplies_nothing() {
        assert!(!supplies(&words(&["--drain-timeout-mode", "fast"]), generated::DRAIN_TIMEOUT));
        assert!(!supplies(&words(&["--note", "x --drain-timeout 5"]), generated::DRAIN_TIMEOUT));
        assert!(supplies(&words(&["--drain", "30"]), generated::DRAIN_TIMEOUT));
        assert!(supplies(&words(&["--gateway-s", "5"]), generated::GATEWAY_STARTUP_TIMEOUT));
    }
}
