//! Prompts: synthetic words (one word is one token of the offline tokenizer), or recorded conversations.

use super::args::{BenchArgs, Dataset};
use serde::Deserialize;

/// One request to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The text.
    pub prompt: String,
    /// Its tokens.
    pub prompt_len: u32,
    /// Tokens asked for.
    pub output_len: u32,
    /// `x-request-id`; random data only.
    pub request_id: Option<String>,
}

/// A small deterministic generator (splitmix64): the same seed gives the same prompts in the same order.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: i64) -> Self {
        Self(seed.cast_unsigned())
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    /// From 0 (excluded) to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma with this shape and mean 1 (Marsaglia and Tsang).
    pub fn gamma_of_mean_one(&mut self, shape: f64) -> f64 {
        let boost = if shape < 1.0 { self.unit().powf(1.0 / shape) } else { 1.0 };
        let d = if shape < 1.0 { shape + 1.0 } else { shape } - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return boost * d * v / shape;
            }
        }
    }
}

/// The prompts of a run; the error is the real tool's sentence.
pub fn samples(args: &BenchArgs) -> Result<Vec<Sample>, String> {
    match &args.dataset {
        Dataset::Random => Ok(random(args)),
        Dataset::ShareGpt(path) => sharegpt(args, path),
    }
}

fn words(random: &mut Random, count: u32) -> String {
    let words: Vec<String> = (0..count).map(|_| format!("w{:04}", random.below(4093))).collect();
    words.join(" ")
}

fn random(args: &BenchArgs) -> Vec<Sample> {
    let mut random = Random::new(args.seed);
    let prefix = words(&mut random, args.prefix_len);
    let length = |random: &mut Random, len: u32| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "lengths of prompts")]
        let spread = (f64::from(len) * args.range_ratio.clamp(0.0, 1.0)) as u32;
        let low = (len - spread).max(1);
        low + u32::try_from(random.below(u64::from(len + spread - low) + 1)).unwrap_or(0)
    };
    (0..args.num_prompts)
        .map(|index| {
            let (input, output) = (length(&mut random, args.input_len), length(&mut random, args.output_len));
            let own = words(&mut random, input);
            Sample {
                prompt: if prefix.is_empty() { own } else { format!("{prefix} {own}") },
                prompt_len: input + args.prefix_len,
                output_len: output,
                request_id: Some(format!("{}{index}", args.request_id_prefix)),
            }
        })
        .collect()
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(alias = "conversation", default)]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

fn sharegpt(args: &BenchArgs, path: &str) -> Result<Vec<Sample>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let all: Vec<Conversation> = serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
    let mut pairs: Vec<(String, String)> = all
        .into_iter()
        .filter_map(|c| {
            let mut turns = c.conversations.into_iter();
            Some((turns.next()?.value, turns.next()?.value))
        })
        .collect();
    let mut random = Random::new(args.seed);
    for i in (1..pairs.len()).rev() {
        let j = usize::try_from(random.below(i as u64 + 1)).unwrap_or(0);
        pairs.swap(i, j);
    }
    let count = |text: &str| u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX);
    let samples = pairs.into_iter().filter_map(|(prompt, answer)| {
        let (prompt_len, output_len) = (count(&prompt), args.sharegpt_output_len.unwrap_or_else(|| count(&answer)));
        let long_enough = args.skip_min_tokens_check || (prompt_len >= 4 && output_len >= 4);
        let fits = args.max_model_len.is_none_or(|most| prompt_len + output_len <= most);
        (long_enough && fits).then_some(Sample { prompt, prompt_len, output_len, request_id: None })
    });
    let samples: Vec<Sample> = samples.take(args.num_prompts).collect();
    if samples.is_empty() { Err("no usable conversation".into()) } else { Ok(samples) }
}

/// When each request is due, in seconds from the start: the gaps are scaled so that the last one is due at
/// count / rate, as the real tool does.
pub fn schedule(count: usize, rate: f64, burstiness: f64, seed: i64) -> Vec<f64> {
    if rate.is_infinite() {
        return vec![0.0; count];
    }
    let mut random = Random::new(seed ^ 0x5eed);
    let mut due = 0.0;
    let mut schedule: Vec<f64> = (0..count)
        .map(|_| {
            due += if burstiness.is_infinite() { 1.0 } else { random.gamma_of_mean_one(burstiness) } / rate;
            due
        })
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
    let scale = count as f64 / rate / due;
    for at in &mut schedule {
        *at *= scale;
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_ends_where_the_rate_says() {
        for burstiness in [0.5, 1.0, 4.0, f64::INFINITY] {
            let due = schedule(200, 50.0, burstiness, 3);
            assert!((due[199] - 4.0).abs() < 1e-9 && due.is_sorted(), "{burstiness}");
        }
        assert_eq!(schedule(3, f64::INFINITY, 1.0, 0), [0.0; 3]);
    }

    #[test]
    fn gamma_has_its_mean_and_spread() {
        for shape in [0.5, 1.0, 4.0] {
            let mut random = Random::new(1);
            let draws: Vec<f64> = (0..20_000).map(|_| random.gamma_of_mean_one(shape)).collect();
            let mean = draws.iter().sum::<f64>() / 20_000.0;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
            assert!((mean - 1.0).abs() < 0.05 && (variance * shape - 1.0).abs() < 0.1, "{shape} {mean} {variance}");
        }
    }
}
