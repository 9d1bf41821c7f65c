//! What was asked of the bench, as people write it on a command line: the words of both `audit` commands.

use super::judge::{Expectation, Rollout};
use crate::limits::{self, Dataset};
use crate::text::strict_uint;

/// An expectation as written; `None` is "not said".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Requests per step.
    pub num_prompts: Option<String>,
    /// `random` or `sharegpt`.
    pub dataset: Option<String>,
    /// Tokens.
    pub output_len: Option<String>,
    /// `true` or `false`.
    pub ignore_eos: Option<String>,
    /// Rollout mode.
    pub rollout: bool,
    /// Completions per prompt.
    pub rollout_samples: Option<String>,
    /// Tokens per completion; 0 is off.
    pub min_mean_output_tokens: Option<String>,
}

/// An expectation that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag} {rule}")]
pub struct BadAsk {
    /// The option, as on the command line.
    pub flag: &'static str,
    /// What it must be and what it is.
    pub rule: String,
}

/// Values of rollout options that nobody said: those of the layer that is spoken to (contract A.2, E.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutDefaults {
    /// Completions per prompt.
    pub samples: u64,
    /// Tokens per completion.
    pub min_mean_output_tokens: u64,
}

impl RolloutDefaults {
    /// What the agent takes an environment without the variables to mean.
    pub const AGENT: Self = Self { samples: 1, min_mean_output_tokens: 0 };
    /// What the controller takes a config without the keys to mean.
    pub const CONTROLLER: Self = Self {
        samples: limits::default::ROLLOUT_SAMPLES,
        min_mean_output_tokens: limits::default::MIN_MEAN_OUTPUT_TOKENS,
    };
}

impl Asked {
    /// Whether nothing was said at all.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// The expectation, by the rules of a trial's own settings.
    pub fn resolve(&self, defaults: RolloutDefaults) -> Result<Expectation, BadAsk> {
        let bad = |flag, rule: String| BadAsk { flag, rule };
        let number = |flag, text: &Option<String>, min, max, default| match text {
            None => Ok(default),
            Some(text) => strict_uint(text, min..=max).map_err(|error| bad(flag, error.to_string())),
        };
        if self.num_prompts.is_none() {
            return Err(bad("--num-prompts", "is missing: the number of requests that a step was asked for".into()));
        }
        let num_prompts = number("--num-prompts", &self.num_prompts, 1, u64::MAX, 0)?;
        let dataset = match &self.dataset {
            None => Dataset::Random,
            Some(text) => Dataset::parse(text)
                .ok_or_else(|| bad("--dataset", format!("must be random or sharegpt, got '{text}'")))?,
        };
        let output_len = number("--output-len", &self.output_len, 1, u64::MAX, limits::default::OUTPUT_LEN)?;
        let ignore_eos = match self.ignore_eos.as_deref() {
            None => !self.rollout,
            Some("true") => true,
            Some("false") => false,
            Some(text) => return Err(bad("--ignore-eos", format!("must be true or false, got '{text}'"))),
        };
        let rollout = if self.rollout {
            Some(Rollout {
                samples: number(
                    "--rollout-samples",
                    &self.rollout_samples,
                    *limits::ROLLOUT_SAMPLES.start(),
                    *limits::ROLLOUT_SAMPLES.end(),
                    defaults.samples,
                )?,
                min_mean_output_tokens: number(
                    "--min-mean-output-tokens",
                    &self.min_mean_output_tokens,
                    0,
                    u64::MAX,
                    defaults.min_mean_output_tokens,
                )?,
            })
        } else {
            for (flag, text) in [
                ("--rollout-samples", &self.rollout_samples),
                ("--min-mean-output-tokens", &self.min_mean_output_tokens),
            ] {
                if let Some(text) = text {
                    return Err(bad(flag, format!("means something under --rollout only, got '{text}' without it")));
                }
            }
            None
        };
        if let Some(Rollout { min_mean_output_tokens: floor, .. }) = rollout {
            if ignore_eos {
                return Err(bad(
                    "--ignore-eos",
                    "must be false under --rollout, whose lengths are a measurement".into(),
                ));
            }
            if dataset == Dataset::Random && floor > output_len {
                return Err(bad(
                    "--min-mean-output-tokens",
                    format!("must not be above --output-len, which caps each completion: {floor} > {output_len}"),
                ));
            }
        }
        Ok(Expectation { num_prompts, dataset, output_len, ignore_eos, rollout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Asked {
        let mut asked = Asked::default();
        let mut words = words.split_whitespace();
        while let Some(word) = words.next() {
            if word == "rollout" {
                asked.rollout = true;
                continue;
            }
            let value = words.next().map(str::to_owned);
            match word {
                "n" => asked.num_prompts = value,
                "dataset" => asked.dataset = value,
                "osl" => asked.output_len = value,
                "eos" => asked.ignore_eos = value,
                "samples" => asked.rollout_samples = value,
                "floor" => asked.min_mean_output_tokens = value,
                _ => panic!("{word}"),
            }
        }
        asked
    }

    #[test]
    fn defaults_are_those_of_a_trial() {
        let resolve = |words| asked(words).resolve(RolloutDefaults::CONTROLLER).unwrap();
        let plain =
            Expectation { num_prompts: 32, dataset: Dataset::Random, output_len: 128, ignore_eos: true, rollout: None };
        assert_eq!(resolve("n 32"), plain);
        assert_eq!(resolve("n 32 eos true osl 128 dataset random"), plain);
        let rollout = |samples, floor| Expectation {
            ignore_eos: false,
            rollout: Some(Rollout { samples, min_mean_output_tokens: floor }),
            ..plain.clone()
        };
        assert_eq!(resolve("n 32 rollout"), rollout(4, 8));
        assert_eq!(asked("n 32 rollout").resolve(RolloutDefaults::AGENT).unwrap(), rollout(1, 0));
        assert_eq!(resolve("n 32 rollout samples 1024 floor 128 eos false"), rollout(1024, 128));
        // The cap is no cap where lengths come from conversations.
        assert_eq!(resolve("n 1 dataset sharegpt rollout floor 129").dataset, Dataset::Sharegpt);
        assert!(Asked::default().is_silent() && !asked("rollout").is_silent());
    }

    #[test]
    fn refusals_name_the_option() {
        for (words, flag) in [
            ("", "--num-prompts"),
            ("n 0", "--num-prompts"),
            ("n 08", "--num-prompts"),
            ("n -1", "--num-prompts"),
            ("n 1.5", "--num-prompts"),
            ("n 1 dataset Random", "--dataset"),
            ("n 1 osl 0", "--output-len"),
            ("n 1 osl x", "--output-len"),
            ("n 1 eos 1", "--ignore-eos"),
            ("n 1 eos TRUE", "--ignore-eos"),
            ("n 1 rollout eos true", "--ignore-eos"),
            ("n 1 samples 4", "--rollout-samples"),
            ("n 1 floor 0", "--min-mean-output-tokens"),
            ("n 1 rollout samples 0", "--rollout-samples"),
            ("n 1 rollout samples 1025", "--rollout-samples"),
            ("n 1 rollout floor -1", "--min-mean-output-tokens"),
            ("n 1 rollout floor 129", "--min-mean-output-tokens"),
        ] {
            let error = asked(words).resolve(RolloutDefaults::AGENT).expect_err(words);
            assert_eq!(error.flag, flag, "{words}");
            assert!(error.to_string().starts_with(flag), "{error}");
        }
    }
}
