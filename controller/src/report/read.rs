//! Reads a leg file in one pass: records become columns as they stream by, whatever the order of the keys.
//!
//! Three kinds of trouble are kept apart (harness spec C.1): a file that is no JSON is unreadable and skipped
//! with a line; JSON that is no leg (no object, no `records`, no `summary`) is skipped in silence; a leg that
//! lacks a key it must have refuses the whole report, by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess};
use serde_json::{Map, Value};

#[cfg(test)]
use super::axes::Axis;
use super::axes::Timing;
use super::leg::{Leg, Point, Records, Scrape, Summary};
use super::lenient::{Lenient, Shape};

/// What a file turned out to be.
#[derive(Debug)]
pub enum Reading {
    /// A leg.
    Leg(Box<Leg>),
    /// JSON, but no leg.
    Other,
}

/// A file without a usable leg in it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Cannot be read or parsed: skipped with a line.
    #[error("{0}")]
    Unreadable(String),
    /// A leg without something that it must have: nothing is reported.
    #[error("{0}")]
    Refused(String),
}

/// Reads one file; `path` is how it is named in messages.
pub fn leg(path: &str) -> Result<Reading, ReadError> {
    let file = File::open(path).map_err(|error| ReadError::Unreadable(error.to_string()))?;
    from_reader(path, BufReader::with_capacity(1 << 18, file))
}

fn from_reader(path: &str, source: impl Read) -> Result<Reading, ReadError> {
    let mut parts = Parts::default();
    let mut json = serde_json::Deserializer::from_reader(source);
    let end = Lenient(Whole(&mut parts)).deserialize(&mut json).and_then(|()| json.end());
    end.map_err(|error| ReadError::Unreadable(error.to_string()))?;
    let (Some(summary), true) = (&parts.summary, parts.saw_records) else { return Ok(Reading::Other) };
    let Value::Object(summary) = summary else {
        return Err(ReadError::Refused("summary: not an object".to_owned()));
    };
    if let Some(problem) = parts.problem {
        return Err(ReadError::Refused(problem));
    }
    let config = match parts.config {
        Some(Value::Object(config)) => config,
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => Map::new(),
    };
    let summary = Summary::read(summary, &config, parts.client.as_ref().and_then(Value::as_object))
        .map_err(|key| ReadError::Refused(format!("summary.{key}: missing, or not a number")))?;
    let (before, after) = (scrape(parts.before.as_ref()), scrape(parts.after.as_ref()));
    Ok(Reading::Leg(Box::new(Leg { path: path.to_owned(), summary, config, before, after, records: parts.records })))
}

/// Counters of a scrape that succeeded.
fn scrape(value: Option<&Value>) -> Scrape {
    let scrape = value?.as_object()?;
    if scrape.get("available") != Some(&Value::Bool(true)) {
        return None;
    }
    let counters = scrape.get("counters").and_then(Value::as_object);
    Some(counters.map_or_else(BTreeMap::new, |counters| {
        counters.iter().filter_map(|(key, value)| Some((key.clone(), value.as_f64()?))).collect()
    }))
}

#[derive(Default)]
struct Parts {
    summary: Option<Value>,
    config: Option<Value>,
    before: Option<Value>,
    after: Option<Value>,
    client: Option<Value>,
    saw_records: bool,
    records: Records,
    problem: Option<String>,
    /// Where the first successful warm-up request stands: dispatch, index.
    first: Option<(f64, f64)>,
    index: usize,
    raw: Raw,
}

/// The fields of a record that matter, reused from record to record.
#[derive(Default)]
struct Raw {
    ok: bool,
    phase: Phase,
    band: Option<u32>,
    ttft: Option<f64>,
    latency: Option<f64>,
    chunks: Option<f64>,
    first_chunk_chars: Option<f64>,
    total_chars: Option<f64>,
    itls: Vec<f64>,
    bad_itls: bool,
    prompt_tokens: Option<f64>,
    completion_tokens: Option<f64>,
    accepted: Option<f64>,
    dispatch: Option<f64>,
    index: Option<f64>,
    error: String,
    outcome: String,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Phase {
    #[default]
    Missing,
    Measured,
    Warmup,
    Another,
}

/// A count, where 0 means as little as none at all.
fn count(field: Option<f64>) -> Option<f64> {
    field.filter(|value| *value > 0.0)
}

impl Raw {
    fn reset(&mut self) {
        let mut old = std::mem::take(self);
        old.itls.clear();
        old.error.clear();
        old.outcome.clear();
        *self = Self { itls: old.itls, error: old.error, outcome: old.outcome, ..Self::default() };
    }

    /// What kind of failure: the class that our client names, else the head of the error text.
    fn failure(&self) -> &str {
        let head = self.error.split(':').next().unwrap_or_default();
        [self.outcome.as_str(), head].into_iter().find(|kind| !kind.is_empty()).unwrap_or("unnamed")
    }

    /// The first key that a successful record must have and this one has not.
    fn lacking(&self) -> Option<&'static str> {
        if self.phase == Phase::Missing {
            return Some("phase");
        }
        if self.band.is_none() {
            return Some("band");
        }
        if self.ttft.is_none() {
            return Some("ttft");
        }
        if self.latency.is_none() {
            return Some("latency");
        }
        if self.bad_itls {
            return Some("itls");
        }
        (count(self.total_chars).is_some() && self.first_chunk_chars.is_none()).then_some("first_chunk_chars")
    }
}

impl Parts {
    /// Files the record that `raw` holds.
    fn file(&mut self) {
        let (raw, at) = (&self.raw, self.index);
        self.index += 1;
        if !raw.ok {
            if raw.phase == Phase::Measured {
                *self.records.failures.entry(raw.failure().to_owned()).or_default() += 1;
            }
            return;
        }
        let (Some(ttft), Some(latency), None) = (raw.ttft, raw.latency, raw.lacking()) else {
            let key = raw.lacking().unwrap_or("ttft");
            self.problem.get_or_insert_with(|| format!("records[{at}].{key}: missing, or of a wrong type"));
            return;
        };
        let timing = Timing {
            ttft,
            latency,
            itls: &raw.itls,
            tokens: count(raw.completion_tokens),
            chunks: raw.chunks.unwrap_or(0.0),
            first_chunk_chars: raw.first_chunk_chars.unwrap_or(0.0),
            total_chars: count(raw.total_chars),
        };
        let records = &mut self.records;
        let dispatch = raw.dispatch.unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "a plot needs no more")]
        records.points.push(Point {
            at_s: dispatch as f32,
            ttft_ms: (ttft * 1000.0) as f32,
            e2el_ms: (latency * 1000.0) as f32,
            warmup: raw.phase != Phase::Measured,
        });
        if raw.phase == Phase::Measured {
            records.ok_measured += 1;
            records.measured.add(timing);
            records.prompts.extend(raw.band.zip(count(raw.prompt_tokens)));
            if let Some(accepted) = raw.accepted {
                *records.accepted.get_or_insert(0.0) += accepted;
            }
            return;
        }
        records.rest.add(timing);
        let place = (dispatch, raw.index.unwrap_or(0.0));
        if raw.phase == Phase::Warmup && self.first.is_none_or(|first| place < first) {
            self.first = Some(place);
            records.cold_ttft_ms = Some(ttft * 1000.0);
        }
    }
}

/// The file: an object, or something that is no leg.
struct Whole<'a>(&'a mut Parts);

impl<'de> Shape<'de> for Whole<'_> {
    type Out = ();

    fn otherwise(self) {}

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "summary" => self.0.summary = Some(map.next_value()?),
                "config" => self.0.config = Some(map.next_value()?),
                "metrics_before" => self.0.before = Some(map.next_value()?),
                "client" => self.0.client = Some(map.next_value()?),
                "metrics_after" => self.0.after = Some(map.next_value()?),
                "records" => {
                    // A repeated key keeps its last value.
                    (self.0.records, self.0.problem, self.0.first, self.0.index) = Default::default();
                    self.0.saw_records = true;
                    map.next_value_seed(Lenient(List(self.0)))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// `records`.
struct List<'a>(&'a mut Parts);

impl<'de> Shape<'de> for List<'_> {
    type Out = ();

    fn otherwise(self) {
        self.0.problem.get_or_insert_with(|| "records: not an array".to_owned());
    }

    fn list<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            self.0.raw.reset();
            let Parts { raw, records, .. } = &mut *self.0;
            match seq.next_element_seed(Lenient(Record { raw, bands: &mut records.bands }))? {
                None => return Ok(()),
                Some(true) => self.0.file(),
                Some(false) => {
                    let at = self.0.index;
                    self.0.index += 1;
                    self.0.problem.get_or_insert_with(|| format!("records[{at}]: not an object"));
                }
            }
        }
    }
}

/// One record into `raw`; `false` when it is no object.
struct Record<'a> {
    raw: &'a mut Raw,
    bands: &'a mut Vec<String>,
}

impl<'de> Shape<'de> for Record<'_> {
    type Out = bool;

    fn otherwise(self) -> bool {
        false
    }

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let raw = self.raw;
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Ok => raw.ok = map.next_value_seed(Lenient(Truth))?,
                Key::Phase => {
                    let phase = map.next_value_seed(Lenient(Text(|text: &str| match text {
                        "measured" => Phase::Measured,
                        "warmup" => Phase::Warmup,
                        _ => Phase::Another,
                    })))?;
                    raw.phase = phase.unwrap_or_default();
                }
                Key::Band => raw.band = map.next_value_seed(Lenient(Text(|text: &str| position(self.bands, text))))?,
                Key::Ttft => raw.ttft = map.next_value_seed(Lenient(Number))?,
                Key::Latency => raw.latency = map.next_value_seed(Lenient(Number))?,
                Key::Chunks => raw.chunks = map.next_value_seed(Lenient(Number))?,
                Key::FirstChunkChars => raw.first_chunk_chars = map.next_value_seed(Lenient(Number))?,
                Key::TotalChars => raw.total_chars = map.next_value_seed(Lenient(Number))?,
                Key::Itls => {
                    raw.itls.clear();
                    raw.bad_itls = !map.next_value_seed(Lenient(Gaps(&mut raw.itls)))?;
                }
                Key::Usage => map.next_value_seed(Lenient(Usage(raw)))?,
                Key::Accepted => raw.accepted = map.next_value_seed(Lenient(Number))?,
                Key::Dispatch => raw.dispatch = map.next_value_seed(Lenient(Number))?,
                Key::Index => raw.index = map.next_value_seed(Lenient(Number))?,
                Key::Error => {
                    raw.error.clear();
                    map.next_value_seed(Lenient(Text(|text: &str| raw.error.push_str(text))))?;
                }
                Key::Outcome => {
                    raw.outcome.clear();
                    map.next_value_seed(Lenient(Text(|text: &str| raw.outcome.push_str(text))))?;
                }
                Key::Another => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(true)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a handful of bands")]
fn position(bands: &mut Vec<String>, band: &str) -> u32 {
    bands.iter().position(|known| known == band).unwrap_or_else(|| {
        bands.push(band.to_owned());
        bands.len() - 1
    }) as u32
}

#[derive(Clone, Copy, serde::Deserialize)]
enum Key {
    #[serde(rename = "ok")]
    Ok,
    #[serde(rename = "phase")]
    Phase,
    #[serde(rename = "band")]
    Band,
    #[serde(rename = "ttft")]
    Ttft,
    #[serde(rename = "latency")]
    Latency,
    #[serde(rename = "n_chunks")]
    Chunks,
    #[serde(rename = "first_chunk_chars")]
    FirstChunkChars,
    #[serde(rename = "total_chars")]
    TotalChars,
    #[serde(rename = "itls")]
    Itls,
    #[serde(rename = "usage")]
    Usage,
    #[serde(rename = "accepted_draft_tokens")]
    Accepted,
    #[serde(rename = "t_dispatch")]
    Dispatch,
    #[serde(rename = "i")]
    Index,
    #[serde(rename = "err")]
    Error,
    #[serde(rename = "outcome")]
    Outcome,
    #[serde(other)]
    Another,
}

/// A number, if it is one.
struct Number;

impl Shape<'_> for Number {
    type Out = Option<f64>;

    fn otherwise(self) -> Option<f64> {
        None
    }

    fn number(self, value: f64) -> Option<f64> {
        Some(value)
    }
}

/// A boolean; anything else is not true.
struct Truth;

impl Shape<'_> for Truth {
    type Out = bool;

    fn otherwise(self) -> bool {
        false
    }

    fn boolean(self, value: bool) -> bool {
        value
    }
}

/// A text, given to a function.
struct Text<F>(F);

impl<T, F: FnOnce(&str) -> T> Shape<'_> for Text<F> {
    type Out = Option<T>;

    fn otherwise(self) -> Option<T> {
        None
    }

    fn text(self, text: &str) -> Option<T> {
        Some((self.0)(text))
    }
}

/// `itls`; `false` when it holds anything but numbers. Null is no gaps.
struct Gaps<'a>(&'a mut Vec<f64>);

impl<'de> Shape<'de> for Gaps<'_> {
    type Out = bool;

    fn otherwise(self) -> bool {
        false
    }

    fn null(self) -> bool {
        true
    }

    fn list<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut good = true;
        while let Some(gap) = seq.next_element_seed(Lenient(Number))? {
            match gap {
                Some(gap) => self.0.push(gap),
                None => good = false,
            }
        }
        Ok(good)
    }
}

/// `usage`; anything but an object says nothing.
struct Usage<'a>(&'a mut Raw);

impl<'de> Shape<'de> for Usage<'_> {
    type Out = ();

    fn otherwise(self) {}

    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        #[derive(serde::Deserialize)]
        enum Key {
            #[serde(rename = "prompt_tokens")]
            Prompt,
            #[serde(rename = "completion_tokens")]
            Completion,
            #[serde(other)]
            Another,
        }
        while let Some(key) = map.next_key()? {
            match key {
                Key::Prompt => self.0.prompt_tokens = map.next_value_seed(Lenient(Number))?,
                Key::Completion => self.0.completion_tokens = map.next_value_seed(Lenient(Number))?,
                Key::Another => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(file: &Value) -> Result<Reading, ReadError> {
        from_reader("x", file.to_string().as_bytes())
    }

    fn file(record: &Value) -> Value {
        let summary = json!({"concurrency": 1, "round": 1, "measured_requests": 1, "measured_wall_s": 1.0});
        json!({"records": [record], "summary": summary})
    }

    fn good() -> Value {
        json!({
            "ok": true, "phase": "measured", "band": "S", "ttft": 0.1, "latency": 1, "n_chunks": 2, "itls": [0.9],
            "first_chunk_chars": 2, "total_chars": 4, "usage": {"prompt_tokens": 9, "completion_tokens": 2}
        })
    }

    fn with(key: &str, value: Option<Value>) -> Value {
        let mut record = good();
        record.as_object_mut().unwrap().remove(key);
        record.as_object_mut().unwrap().extend(value.map(|value| (key.to_owned(), value)));
        record
    }

    #[test]
    fn an_ok_record_without_what_it_must_have_refuses_the_file_by_name() {
        for key in ["phase", "band", "ttft", "latency"] {
            for value in [None, Some(Value::Null), Some(json!([1])), Some(json!({"a": 1})), Some(json!(true))] {
                let error = read(&file(&with(key, value))).unwrap_err().to_string();
                assert!(error.starts_with(&format!("records[0].{key}: ")), "{error}");
                let mut failed = with(key, None);
                failed["ok"] = json!(false);
                assert!(read(&file(&failed)).is_ok(), "a failed record may lack it");
            }
        }
        for (record, fragment) in [
            (with("first_chunk_chars", None), "records[0].first_chunk_chars"),
            (with("itls", Some(json!([0.1, "x"]))), "records[0].itls"),
            (with("itls", Some(json!(3))), "records[0].itls"),
            (json!(7), "records[0]: not an object"),
            (json!(["ok"]), "records[0]: not an object"),
        ] {
            let error = read(&file(&record)).unwrap_err();
            assert!(matches!(&error, ReadError::Refused(words) if words.contains(fragment)), "{error}");
        }
    }

    #[test]
    fn what_may_be_absent() {
        for key in ["itls", "n_chunks", "usage", "t_dispatch", "i"] {
            for value in [None, Some(Value::Null)] {
                assert!(matches!(read(&file(&with(key, value))), Ok(Reading::Leg(_))), "{key}");
            }
        }
        for total in [None, Some(Value::Null), Some(json!(0))] {
            let mut record = with("total_chars", total);
            record["first_chunk_chars"] = Value::Null;
            assert!(matches!(read(&file(&record)), Ok(Reading::Leg(_))));
        }
    }

    #[test]
    fn legs_and_other_files() {
        for other in [json!([1]), json!("x"), json!(3), json!({"records": []}), json!({"summary": {}}), json!(null)] {
            assert!(matches!(read(&other), Ok(Reading::Other)), "{other}");
        }
        let corpus = json!([{"id": "S-0000", "band": "S", "conversations": []}]);
        assert!(matches!(read(&corpus), Ok(Reading::Other)));
        for (text, fragment) in [("", "EOF"), ("{\"records\": [", "EOF"), ("{} x", "trailing")] {
            let error = from_reader("x", text.as_bytes()).unwrap_err();
            assert!(matches!(&error, ReadError::Unreadable(words) if words.contains(fragment)), "{error}");
        }
        let mut odd = file(&good());
        odd["records"] = json!({"a": 1});
        assert!(matches!(read(&odd), Err(ReadError::Refused(words)) if words == "records: not an array"));
        odd = file(&good());
        odd["summary"] = json!([]);
        assert!(matches!(read(&odd), Err(ReadError::Refused(words)) if words == "summary: not an object"));
        odd = file(&good());
        odd["summary"]["round"] = json!("one");
        assert!(matches!(read(&odd), Err(ReadError::Refused(words)) if words.starts_with("summary.round")));
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let record = r#"{"itls": [0.5, 0.25], "latency": 1.0, "usage": {"completion_tokens": 3}, "ttft": 0.25,
                         "band": "L", "ok": true, "phase": "warmup", "i": 1, "unknown": {"deep": [1, {}]}}"#;
        let text = format!(
            r#"{{"records": [{record}], "other": [[]], "summary": {{"round": 2, "concurrency": 8,
                "measured_requests": 4, "measured_wall_s": 2}}}}"#
        );
        let Ok(Reading::Leg(leg)) = from_reader("x", text.as_bytes()) else { panic!("a leg") };
        assert_eq!((leg.records.rest.counted(), leg.records.measured.counted()), (1, 0));
        assert_eq!(leg.records.rest.axis(Axis::Itl), [500.0, 250.0]);
        assert_eq!(leg.records.cold_ttft_ms, Some(250.0));
        assert_eq!((leg.summary.round, leg.summary.key.concurrency), (2, 8));
    }

    #[test]
    fn the_cold_start_is_the_first_by_dispatch_never_the_cheapest() {
        let warm = |i: u32, dispatch: f64, ttft: f64, ok: bool| json!({"ok": ok, "phase": "warmup", "band": "S", "ttft": ttft, "latency": 9, "t_dispatch": dispatch, "i": i});
        let mut leg = file(&good());
        leg["records"] = json!([
            warm(3, 0.002, 0.085, true),
            warm(2, 0.001, 0.08, true),
            warm(1, 0.001, 2.75, true),
            warm(0, 0.0, 9.0, false)
        ]);
        let Ok(Reading::Leg(leg)) = read(&leg) else { panic!("a leg") };
        assert_eq!(leg.records.cold_ttft_ms, Some(2750.0));
    }
}
