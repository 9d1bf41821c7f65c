//! Statistics of a run, with the real tool's definitions (CLI facts 2.5).

use super::args::BenchArgs;
use super::client::{Output, count_words};
use crate::engine::script::LensShape;

/// What a run amounts to.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Served requests.
    pub completed: i64,
    /// The others.
    pub failed: i64,
    /// Prompt tokens of served requests.
    pub total_input: i64,
    /// Output tokens.
    pub total_output: i64,
    /// `output_lens` of the export.
    pub output_lens: Vec<i64>,
    /// Served requests per second that met all limits.
    pub goodput: f64,
    /// Events in the fullest second.
    pub max_output_tokens_per_s: f64,
    /// Requests in the fullest second.
    pub max_concurrent_requests: i64,
    /// By name, in the export's order.
    pub distributions: [(&'static str, Distribution); 4],
}

/// Samples in seconds.
#[derive(Debug, Clone, Default)]
pub struct Distribution(Vec<f64>);

impl Distribution {
    fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    /// Mean in ms; 0 without samples, as everywhere here.
    pub fn mean_ms(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.iter().sum::<f64>() / count(self.0.len()) * 1e3 }
    }

    /// Population standard deviation in ms.
    pub fn std_ms(&self) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let mean = self.mean_ms() / 1e3;
        (self.0.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count(self.0.len())).sqrt() * 1e3
    }

    /// Percentile in ms, interpolated linearly.
    pub fn percentile_ms(&self, p: f64) -> f64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0.0 };
        let rank = p / 100.0 * count(last);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the last index")]
        let low = rank.floor() as usize;
        let (a, b) = (self.0[low], self.0[(low + 1).min(last)]);
        (a + (b - a) * rank.fract()) * 1e3
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of requests and tokens")]
fn count(n: usize) -> f64 {
    n as f64
}

/// Tokens of one request: as the server says, else counted in the text.
fn tokens_of(output: &Output) -> i64 {
    let said = output.output_tokens.filter(|n| *n > 0);
    i64::from(said.unwrap_or_else(|| count_words(&output.text)))
}

/// Computes everything from what the client saw.
pub fn compute(args: &BenchArgs, outputs: &[Output], duration: f64, shape: LensShape) -> Metrics {
    let served: Vec<&Output> = outputs.iter().filter(|o| o.success).collect();
    let lens: Vec<i64> = outputs.iter().map(|o| if o.success { tokens_of(o) } else { 0 }).collect();
    let output_lens = match shape {
        LensShape::PerRequest => lens.clone(),
        LensShape::PerChoice => outputs
            .iter()
            .flat_map(|o| if o.success { o.per_choice.iter().map(|n| i64::from(*n)).collect() } else { vec![0] })
            .collect(),
    };
    #[expect(clippy::cast_precision_loss, reason = "tokens of a request")]
    let tpot = |o: &Output| match tokens_of(o) {
        n if n > 1 => Some((o.latency - o.ttft) / (n - 1) as f64),
        _ => None,
    };
    let value = |o: &Output, name: &str| match name {
        "ttft" => o.ttft,
        "tpot" => tpot(o).unwrap_or(0.0),
        _ => o.latency,
    };
    let good = served.iter().filter(|o| args.goodput.iter().all(|(name, ms)| value(o, name) <= ms / 1e3)).count();
    let (max_output_tokens_per_s, max_concurrent_requests) = fullest_second(&served);
    let collect = |f: &dyn Fn(&Output) -> Vec<f64>| Distribution::new(served.iter().flat_map(|o| f(o)).collect());
    Metrics {
        completed: i64::try_from(served.len()).unwrap_or(i64::MAX),
        failed: i64::try_from(outputs.len() - served.len()).unwrap_or(i64::MAX),
        total_input: served.iter().map(|o| i64::from(o.prompt_len)).sum(),
        total_output: lens.iter().sum(),
        output_lens,
        goodput: count(good) / duration,
        max_output_tokens_per_s,
        max_concurrent_requests,
        distributions: [
            ("ttft", collect(&|o| vec![o.ttft])),
            ("tpot", collect(&|o| tpot(o).into_iter().collect())),
            ("itl", collect(&|o| o.itl.clone())),
            ("e2el", collect(&|o| vec![o.latency])),
        ],
    }
}

/// Events and requests in the fullest second since the first start.
fn fullest_second(served: &[&Output]) -> (f64, i64) {
    let first = served.iter().map(|o| o.start).fold(f64::INFINITY, f64::min);
    let mut events: Vec<u32> = Vec::new();
    let mut requests: Vec<i64> = Vec::new();
    for output in served {
        let mut at = output.start + output.ttft - first;
        add(&mut events, second(at), 1);
        for gap in &output.itl {
            at += gap;
            add(&mut events, second(at), 1);
        }
        for s in second(output.start - first)..=second(output.start + output.latency - first) {
            add(&mut requests, s, 1);
        }
    }
    (f64::from(events.into_iter().max().unwrap_or(0)), requests.into_iter().max().unwrap_or(0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
fn second(at: f64) -> usize {
    at.max(0.0) as usize
}

fn add<T: Copy + Default + std::ops::AddAssign>(counts: &mut Vec<T>, index: usize, n: T) {
    if counts.len() <= index {
        counts.resize(index + 1, T::default());
    }
    counts[index] += n;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_figures() {
        let d = Distribution::new(vec![0.004, 0.001, 0.003, 0.002]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(d.mean_ms(), 2.5) && near(d.percentile_ms(50.0), 2.5) && near(d.percentile_ms(100.0), 4.0));
        assert!(near(d.std_ms(), 1.25_f64.sqrt()));
        assert!(near(Distribution::default().percentile_ms(99.0), 0.0));
    }
}
