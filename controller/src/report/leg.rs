//! One leg: what its file says, and the key under which it may be pooled.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::axes::Pool;

/// What may be pooled: the same arm at the same load, made by the same tool in the same profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellKey {
    /// The arm; `?` where the file names none.
    pub arm: String,
    /// Workers.
    pub concurrency: i64,
    /// How the requests were made and when they were sent.
    pub method: Method,
}

/// How the requests of a leg were made; never compared across.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Method {
    /// The tool; `None` for the published client, which does not name itself.
    pub tool: Option<String>,
    /// Its profile.
    pub profile: Option<String>,
    /// Arrival policy with its rate; `None` for the closed loop.
    pub load: Option<String>,
}

impl Method {
    /// In words, for headings that must tell two methods apart.
    pub fn words(&self) -> String {
        let tool = self.tool.as_deref().unwrap_or("published client");
        let mut words = vec![tool.to_owned()];
        words.extend(self.profile.clone());
        words.extend(self.load.clone());
        words.join(", ")
    }
}

/// One record, for the plot over time.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Seconds since the phase began.
    pub at_s: f32,
    /// Milliseconds.
    pub ttft_ms: f32,
    /// Milliseconds.
    pub e2el_ms: f32,
    /// Warm-up or not.
    pub warmup: bool,
}

/// A scrape of the server's counters; `None` where it failed.
pub type Scrape = Option<BTreeMap<String, f64>>;

/// One leg.
#[derive(Debug)]
pub struct Leg {
    /// Where it was read, as printed.
    pub path: String,
    /// `summary` of the file.
    pub summary: Summary,
    /// `config` of the file.
    pub config: Map<String, Value>,
    /// Counters before the measured phase.
    pub before: Scrape,
    /// Counters after it.
    pub after: Scrape,
    /// `records` of the file.
    pub records: Records,
}

/// The records of a leg, as columns.
#[derive(Debug, Default)]
pub struct Records {
    /// Measured.
    pub measured: Pool,
    /// Every other successful one: warm-up, mostly.
    pub rest: Pool,
    /// Successful measured records, with usage or without.
    pub ok_measured: usize,
    /// Bands in order of first appearance.
    pub bands: Vec<String>,
    /// Band and prompt tokens of the measured records whose server reported them.
    pub prompts: Vec<(u32, f64)>,
    /// Accepted draft tokens of the measured records that tell them; `None` when none does.
    pub accepted: Option<f64>,
    /// TTFT in ms of the first successful warm-up request by dispatch.
    pub cold_ttft_ms: Option<f64>,
    /// Failed measured records by the kind of their error.
    pub failures: BTreeMap<String, usize>,
    /// For the plot over time.
    pub points: Vec<Point>,
}

/// The summary of a leg.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Label of the leg.
    pub label: String,
    /// Round.
    pub round: i64,
    /// Requests of the measured phase.
    pub measured_requests: i64,
    /// Seconds of the measured phase.
    pub measured_wall_s: f64,
    /// Cell.
    pub key: CellKey,
    /// Why the client says that its own limits show in the figures; `None` when it does not say so.
    pub client_bound: Option<String>,
}

impl Summary {
    /// Reads `summary` and what `config` adds to it. The error is the key that is missing or unusable.
    pub fn read(summary: &Map<String, Value>, config: &Map<String, Value>) -> Result<Self, &'static str> {
        let text =
            |key: &str| [summary, config].into_iter().find_map(|map| map.get(key)?.as_str()).filter(|t| !t.is_empty());
        let integer = |key: &'static str| {
            let value = summary.get(key).ok_or(key)?;
            value.as_i64().or_else(|| whole(value.as_f64()?)).ok_or(key)
        };
        let concurrency = integer("concurrency")?;
        let load = text("load_model").filter(|model| *model != "closed" && *model != "closed_loop").map(|model| {
            let rate = [summary, config].into_iter().find_map(|map| map.get("rate")?.as_f64());
            rate.map_or_else(|| model.to_owned(), |rate| format!("{model} {rate}/s"))
        });
        let method =
            Method { tool: text("tool").map(str::to_owned), profile: text("profile").map(str::to_owned), load };
        Ok(Self {
            label: text("leg").unwrap_or_default().to_owned(),
            round: integer("round")?,
            measured_requests: integer("measured_requests")?,
            measured_wall_s: summary.get("measured_wall_s").and_then(Value::as_f64).ok_or("measured_wall_s")?,
            key: CellKey {
                arm: summary.get("arm").and_then(Value::as_str).filter(|arm| !arm.is_empty()).unwrap_or("?").to_owned(),
                concurrency,
                method,
            },
            client_bound: summary.get("client_bound").and_then(client_bound),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

fn client_bound(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some("the client's own error would show in the figures".to_owned()),
        Value::String(reason) => (!reason.is_empty()).then(|| reason.clone()),
        Value::Array(reasons) => (!reasons.is_empty()).then(|| {
            reasons
                .iter()
                .map(|r| r.as_str().map_or_else(|| r.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join("; ")
        }),
        Value::Number(_) | Value::Object(_) => Some(value.to_string()),
    }
}

impl Leg {
    /// Rule G-USAGE: every successful measured record carries a token count, and there is one.
    pub fn publishable(&self) -> bool {
        self.records.measured.dropped_no_usage == 0 && self.records.measured.counted() > 0
    }

    /// What the tokens were counted by.
    pub fn counted_by(&self) -> &'static str {
        match (self.records.measured.dropped_no_usage > 0, self.records.measured.counted() > 0) {
            (false, false) => "none",
            (false, true) => "usage",
            (true, false) => "chunks",
            (true, true) => "chunks+usage",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(summary: &Value, config: &Value) -> Result<Summary, &'static str> {
        Summary::read(summary.as_object().unwrap(), config.as_object().unwrap())
    }

    #[test]
    fn the_key_holds_what_must_not_be_pooled() {
        let published =
            json!({"arm": "A", "concurrency": 4, "round": 1, "measured_requests": 8, "measured_wall_s": 1.5});
        let key = |extra: Value, config: Value| {
            let mut summary = published.clone();
            summary.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            read(&summary, &config).unwrap().key
        };
        let plain = key(json!({}), json!({}));
        assert_eq!(plain.method, Method::default());
        assert_eq!(key(json!({"load_model": "closed"}), json!({})), plain);
        assert_eq!(key(json!({"arm": ""}), json!({})).arm, "?");
        assert_eq!(key(json!({"concurrency": 4.0}), json!({})), plain);
        let others = [
            key(json!({"concurrency": 8}), json!({})),
            key(json!({"tool": "native"}), json!({})),
            key(json!({}), json!({"profile": "strict", "tool": "native"})),
            key(json!({}), json!({"profile": "variadic", "tool": "native"})),
            key(json!({"load_model": "poisson", "rate": 2.5}), json!({})),
            key(json!({"load_model": "poisson", "rate": 3}), json!({})),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, plain);
            assert!(others[..at].iter().all(|before| before != other));
        }
        assert_eq!(others[4].method.words(), "published client, poisson 2.5/s");
    }

    #[test]
    fn a_missing_key_is_named() {
        let whole = json!({"concurrency": 4, "round": 1, "measured_requests": 8, "measured_wall_s": 1.5});
        for key in ["concurrency", "round", "measured_requests", "measured_wall_s"] {
            for wrong in [None, Some(Value::Null), Some(json!("4")), Some(json!(true))] {
                let mut summary = whole.clone();
                summary.as_object_mut().unwrap().remove(key);
                summary.as_object_mut().unwrap().extend(wrong.map(|value| (key.to_owned(), value)));
                assert_eq!(read(&summary, &json!({})).unwrap_err(), key);
            }
        }
    }

    #[test]
    fn a_client_that_was_the_limit_says_so() {
        for (value, bound) in [
            (json!(null), None),
            (json!(false), None),
            (json!([]), None),
            (json!(["lag", "cpu"]), Some("lag; cpu")),
            (json!("lag"), Some("lag")),
            (json!({"lag_ms": 4}), Some("{\"lag_ms\":4}")),
        ] {
            assert_eq!(client_bound(&value).as_deref(), bound, "{value}");
        }
        assert!(client_bound(&json!(true)).is_some());
    }
}
