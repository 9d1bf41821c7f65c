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
    /// Reads `summary`, and what `config` and our client's own `client` add to it. The error is the key that is
    /// missing or unusable.
    pub fn read(
        summary: &Map<String, Value>,
        config: &Map<String, Value>,
        client: Option<&Map<String, Value>>,
    ) -> Result<Self, &'static str> {
        let text = |keys: &[&str]| {
            let mut maps = client.into_iter().chain([summary, config]);
            maps.find_map(|map| keys.iter().find_map(|key| map.get(*key)?.as_str())).filter(|text| !text.is_empty())
        };
        let integer = |key: &'static str| {
            let value = summary.get(key).ok_or(key)?;
            value.as_i64().or_else(|| whole(value.as_f64()?)).ok_or(key)
        };
        let concurrency = integer("concurrency")?;
        let method = Method {
            tool: text(&["tool"]).or(client.map(|_| "native")).map(str::to_owned),
            profile: text(&["profile"]).map(str::to_owned),
            load: text(&["arrivals", "arrival"]).filter(|arrivals| *arrivals != "closed").map(str::to_owned),
        };
        Ok(Self {
            label: text(&["leg"]).unwrap_or_default().to_owned(),
            round: integer("round")?,
            measured_requests: integer("measured_requests")?,
            measured_wall_s: summary.get("measured_wall_s").and_then(Value::as_f64).ok_or("measured_wall_s")?,
            key: CellKey {
                arm: summary.get("arm").and_then(Value::as_str).filter(|arm| !arm.is_empty()).unwrap_or("?").to_owned(),
                concurrency,
                method,
            },
            client_bound: client.and_then(client_bound),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
}

/// Why the client certified itself as the limit.
fn client_bound(client: &Map<String, Value>) -> Option<String> {
    let certification = client.get("certification")?;
    if certification.get("client_bound") != Some(&Value::Bool(true)) {
        return None;
    }
    let reasons: Vec<&str> = certification
        .get("reasons")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    Some(if reasons.is_empty() { "it gives no reason".to_owned() } else { reasons.join("; ") })
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

    fn read(summary: &Value, config: &Value, client: &Value) -> Result<Summary, &'static str> {
        Summary::read(summary.as_object().unwrap(), config.as_object().unwrap(), client.as_object())
    }

    #[test]
    fn the_key_holds_what_must_not_be_pooled() {
        let published =
            json!({"arm": "A", "concurrency": 4, "round": 1, "measured_requests": 8, "measured_wall_s": 1.5});
        let key = |change: Value, config: Value, client: Value| {
            let mut summary = published.clone();
            summary.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            read(&summary, &config, &client).unwrap().key
        };
        let none = || json!({});
        let plain = key(none(), none(), json!(null));
        assert_eq!(plain.method, Method::default());
        assert_eq!(key(json!({"arm": ""}), none(), json!(null)).arm, "?");
        assert_eq!(key(json!({"concurrency": 4.0}), none(), json!(null)), plain);
        let native = |profile: &str, arrivals: &str| json!({"profile": profile, "arrivals": arrivals});
        let others = [
            key(json!({"concurrency": 8}), none(), json!(null)),
            key(none(), json!({"tool": "adapter"}), json!(null)),
            key(none(), none(), native("strict", "closed")),
            key(none(), none(), native("variadic", "closed")),
            key(none(), none(), native("strict", "poisson:2.5")),
            key(none(), none(), native("strict", "poisson:3")),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, plain);
            assert!(others[..at].iter().all(|before| before != other));
        }
        assert_eq!(others[2].method.words(), "native, strict");
        assert_eq!(others[4].method.words(), "native, strict, poisson:2.5");
        // The config alone tells the same.
        let config = json!({"profile": "strict", "arrival": "poisson:2.5"});
        assert_eq!(key(none(), config, json!({})), others[4]);
    }

    #[test]
    fn a_missing_key_is_named() {
        let whole = json!({"concurrency": 4, "round": 1, "measured_requests": 8, "measured_wall_s": 1.5});
        for key in ["concurrency", "round", "measured_requests", "measured_wall_s"] {
            for wrong in [None, Some(Value::Null), Some(json!("4")), Some(json!(true))] {
                let mut summary = whole.clone();
                summary.as_object_mut().unwrap().remove(key);
                summary.as_object_mut().unwrap().extend(wrong.map(|value| (key.to_owned(), value)));
                assert_eq!(read(&summary, &json!({}), &json!(null)).unwrap_err(), key);
            }
        }
    }

    #[test]
    fn a_client_that_was_the_limit_says_so() {
        let bound = |certification: Value| client_bound(json!({"certification": certification}).as_object().unwrap());
        assert_eq!(bound(json!({"client_bound": false, "reasons": ["no"]})), None);
        assert_eq!(bound(json!(null)), None);
        assert_eq!(bound(json!({"client_bound": true, "reasons": ["lag", "cpu"]})).as_deref(), Some("lag; cpu"));
        assert!(bound(json!({"client_bound": true})).is_some());
        assert_eq!(client_bound(&Map::new()), None);
    }
}
