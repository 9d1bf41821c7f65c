//! Reading the three sources (harness spec A.2): strict UTF-8, no BOM removal, universal newlines.

use std::fmt;
use std::fs;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};

/// Why a source cannot be used; each names the file, and the line where there is one.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file.
    #[error("cannot read {path}: {source}")]
    Io {
        /// As typed.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// An invalid byte.
    #[error("{path} is not UTF-8: byte {at} (counted from 0) is invalid")]
    NotUtf8 {
        /// As typed.
        path: String,
        /// Offset of the first bad byte.
        at: usize,
    },
    /// A line that is not a JSON object with the field as a string.
    #[error("{path} line {line}: {problem}")]
    Row {
        /// As typed.
        path: String,
        /// From 1.
        line: usize,
        /// What is wrong, in words.
        problem: String,
    },
    /// Nothing that a length could be averaged over.
    #[error("{path} has no {what}; the band sizes are computed from its mean length even when no band uses it")]
    Empty {
        /// As typed.
        path: String,
        /// Rows, lines or characters.
        what: &'static str,
    },
    /// More rows than are numbered.
    #[error("{path} has more than {max} rows", max = u32::MAX)]
    TooLong {
        /// As typed.
        path: String,
    },
}

/// Texts of one source, in file order.
#[derive(Debug)]
pub struct Source {
    /// Path as typed.
    pub path: String,
    /// Lower-case hex of the file's bytes.
    pub sha256: String,
    texts: Vec<Text>,
}

#[derive(Debug)]
struct Text {
    text: Box<str>,
    chars: u32,
}

impl Source {
    fn new(path: &str, sha256: String, texts: Vec<String>) -> Result<Self, SourceError> {
        let too_long = || SourceError::TooLong { path: path.to_owned() };
        if u32::try_from(texts.len()).is_err() {
            return Err(too_long());
        }
        let texts = texts
            .into_iter()
            .map(|text| {
                Ok(Text { chars: u32::try_from(text.chars().count()).map_err(|_| too_long())?, text: text.into() })
            })
            .collect::<Result<_, SourceError>>()?;
        Ok(Self { path: path.to_owned(), sha256, texts })
    }

    /// Rows or lines kept.
    #[expect(clippy::cast_possible_truncation, reason = "checked when read")]
    pub fn len(&self) -> u32 {
        self.texts.len() as u32
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// One text.
    pub fn text(&self, at: u32) -> &str {
        &self.texts[at as usize].text
    }

    /// Code points of one text.
    pub fn chars(&self, at: u32) -> u32 {
        self.texts[at as usize].chars
    }

    /// Mean length in code points.
    #[expect(clippy::cast_precision_loss, reason = "sums of file sizes stay far below 2^52")]
    fn mean_chars(&self, what: &'static str) -> Result<f64, SourceError> {
        let total: u64 = self.texts.iter().map(|t| u64::from(t.chars)).sum();
        if total == 0 {
            let what = if self.is_empty() { what } else { "characters" };
            return Err(SourceError::Empty { path: self.path.clone(), what });
        }
        Ok(total as f64 / self.texts.len() as f64)
    }
}

/// The three sources.
#[derive(Debug)]
pub struct Sources {
    /// `question` of each row.
    pub gsm8k: Source,
    /// `prompt` of each row.
    pub humaneval: Source,
    /// Lines that are not blank.
    pub sonnet: Source,
    /// Mean code points of a HumanEval prompt.
    pub mean_prompt: f64,
    /// Mean code points of a sonnet line.
    pub mean_line: f64,
}

impl Sources {
    /// Reads all three.
    pub fn read(gsm8k: &str, humaneval: &str, sonnet: &str) -> Result<Self, SourceError> {
        let gsm8k = load(gsm8k, |path, text| rows(path, text, "question"))?;
        let humaneval = load(humaneval, |path, text| rows(path, text, "prompt"))?;
        let sonnet =
            load(sonnet, |_, text| Ok(lines(text).filter(|line| !trim(line).is_empty()).map(str::to_owned).collect()))?;
        let mean_line = sonnet.mean_chars("lines")?;
        let mean_prompt = humaneval.mean_chars("rows")?;
        Ok(Self { gsm8k, humaneval, sonnet, mean_prompt, mean_line })
    }
}

fn load(path: &str, split: impl FnOnce(&str, &str) -> Result<Vec<String>, SourceError>) -> Result<Source, SourceError> {
    let bytes = fs::read(path).map_err(|source| SourceError::Io { path: path.to_owned(), source })?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| SourceError::NotUtf8 { path: path.to_owned(), at: error.valid_up_to() })?;
    Source::new(path, hex(&Sha256::digest(&bytes)), split(path, text)?)
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lines by universal newlines: LF, CR LF and a lone CR each end one, nothing else does.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.find(['\n', '\r']) else { return Some(std::mem::take(&mut rest)) };
        let (line, tail) = rest.split_at(end);
        rest = tail.strip_prefix("\r\n").unwrap_or_else(|| &tail[1..]);
        Some(line)
    })
}

/// White space as the published builder's language has it: Unicode's, and the four separators 0x1C to 0x1F.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Text without white space at both ends.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

fn rows(path: &str, text: &str, field: &'static str) -> Result<Vec<String>, SourceError> {
    let mut kept = Vec::new();
    for (at, line) in lines(text).enumerate() {
        let line = trim(line);
        if line.is_empty() {
            continue;
        }
        let wrong = |problem: String| SourceError::Row { path: path.to_owned(), line: at + 1, problem };
        match field_of(line, field) {
            Ok(Some(FieldValue::Text(value))) => kept.push(value),
            Ok(Some(FieldValue::Other)) => return Err(wrong(format!("{field:?} is not a string"))),
            Ok(None) => return Err(wrong(format!("{field:?} is missing"))),
            Err(error) if error.to_string().contains("surrogate") || error.to_string().contains("hex escape") => {
                return Err(wrong(format!(
                    "{field:?} holds a lone surrogate escape, which has no UTF-8 form; repair the source ({error})"
                )));
            }
            Err(error) => return Err(wrong(format!("not a JSON object: {error}"))),
        }
    }
    Ok(kept)
}

enum FieldValue {
    Text(String),
    Other,
}

impl<'de> serde::Deserialize<'de> for FieldValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = FieldValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_str<E>(self, text: &str) -> Result<FieldValue, E> {
                Ok(FieldValue::Text(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<FieldValue, E> {
                Ok(FieldValue::Text(text))
            }
            fn visit_bool<E>(self, _: bool) -> Result<FieldValue, E> {
                Ok(FieldValue::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<FieldValue, E> {
                Ok(FieldValue::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<FieldValue, E> {
                Ok(FieldValue::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<FieldValue, E> {
                Ok(FieldValue::Other)
            }
            fn visit_unit<E>(self) -> Result<FieldValue, E> {
                Ok(FieldValue::Other)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<FieldValue, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FieldValue::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(FieldValue::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// One field of a JSON object; a repeated key keeps its last value.
fn field_of(line: &str, field: &'static str) -> Result<Option<FieldValue>, serde_json::Error> {
    struct Row(&'static str);
    impl<'de> Visitor<'de> for Row {
        type Value = Option<FieldValue>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an object with {:?}", self.0)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if key == self.0 {
                    found = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    let mut json = serde_json::Deserializer::from_str(line);
    let found = (&mut json).deserialize_map(Row(field))?;
    json.end()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_newlines() {
        let split = |text| lines(text).collect::<Vec<_>>();
        assert_eq!(split("a\nb\r\nc\rd"), ["a", "b", "c", "d"]);
        assert_eq!(split("a\n\r\n\r\r\nb\n"), ["a", "", "", "", "b"]);
        assert_eq!(split("a\u{2028}b\u{85}c\u{c}d"), ["a\u{2028}b\u{85}c\u{c}d"]);
        assert!(split("").is_empty());
    }

    #[test]
    fn jsonl_rows() {
        let read = |text: &str| rows("f", text, "prompt").map_err(|e| e.to_string());
        assert_eq!(
            read("{\"prompt\": \"a\"}\n\n \u{3000}\u{1f}\n\u{a0}{\"x\":[1,{}],\"prompt\":\"b\"}").unwrap(),
            ["a", "b"]
        );
        assert_eq!(read(r#"{"prompt": 3, "prompt": "x", "pro\u006dpt": "last"}"#).unwrap(), ["last"]);
        assert_eq!(read(r#"{"prompt": "\u00e9\ud83d\ude00", "other": "\ud83d"}"#).unwrap(), ["é😀"]);
        for (text, fragment) in [
            ("{\"prompt\":\"a\"}\n{\"q\":1}", "line 2: \"prompt\" is missing"),
            ("{\"prompt\":null}", "not a string"),
            ("{\"prompt\":\"x\",\"prompt\":7}", "not a string"),
            ("[\"prompt\"]", "not a JSON object"),
            ("{\"prompt\":\"a\"} x", "not a JSON object"),
            ("\u{feff}{\"prompt\":\"a\"}", "not a JSON object"),
            (r#"{"prompt":"\ud83d"}"#, "lone surrogate"),
            (r#"{"prompt":"\ude00"}"#, "lone surrogate"),
            (r#"{"prompt":"\ud83d\u0041"}"#, "lone surrogate"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(fragment), "{text}: {error}");
        }
    }
}
