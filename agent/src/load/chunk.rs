//! What one event of a completion stream says. Texts are borrowed and their escapes counted, never unfolded: a token
//! costs one pass over its bytes. What that pass cannot read is read again as a free JSON value.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Which texts of a chunk count as generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pieces {
    /// Spec `variadic-harness` B.4: choice 0, `content` or else `reasoning_content`.
    Published,
    /// Every choice; `content`, `reasoning_content`, `reasoning` and, for completions, `text`.
    Every,
}

/// The facts of one chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Code points of its non-empty texts; 0: no piece.
    pub chars: u64,
    /// `choices` is there and not empty.
    pub has_choices: bool,
    /// Some choice names its finish reason.
    pub finished: bool,
    /// A `usage` object that is not empty, as sent.
    pub usage: Option<Cow<'a, str>>,
    /// An error object, as sent.
    pub error: Option<Cow<'a, str>>,
}

/// A payload that is no chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoChunk {
    /// Not JSON.
    NotJson,
    /// JSON, but not an object, or an object whose `choices` cannot be read.
    Malformed,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
}

/// Reads a payload. With a `sink`, the texts are also unfolded and appended to it.
pub fn read<'a>(payload: &'a str, pieces: Pieces, sink: Option<&mut String>) -> Result<Facts<'a>, NoChunk> {
    if !payload.trim_start().starts_with('{') {
        return Err(if serde_json::from_str::<&RawValue>(payload).is_ok() {
            NoChunk::Malformed
        } else {
            NoChunk::NotJson
        });
    }
    match serde_json::from_str::<Wire<'a>>(payload) {
        Ok(wire) => Ok(facts(&wire, pieces, sink)),
        Err(_) => lenient(payload, pieces, sink),
    }
}

fn facts<'a>(wire: &Wire<'a>, pieces: Pieces, mut sink: Option<&mut String>) -> Facts<'a> {
    let choices = wire.choices.as_deref().unwrap_or_default();
    let mut facts = Facts {
        has_choices: !choices.is_empty(),
        usage: wire.usage.map(RawValue::get).filter(|usage| full_object(usage)).map(Cow::Borrowed),
        error: wire.error.map(RawValue::get).map(Cow::Borrowed),
        ..Facts::default()
    };
    if facts.error.is_none() && wire.object.is_some_and(|object| object.get() == "\"error\"") {
        facts.error = Some(Cow::Borrowed("object \"error\""));
    }
    let counted = match pieces {
        Pieces::Published => &choices[..choices.len().min(1)],
        Pieces::Every => choices,
    };
    for choice in counted {
        facts.finished |= choice.finish_reason.is_some();
        let delta = choice.delta.as_ref();
        let texts = [
            delta.and_then(|d| d.content),
            delta.and_then(|d| d.reasoning_content),
            delta.and_then(|d| d.reasoning),
            choice.text,
        ];
        let texts = match pieces {
            Pieces::Published => &texts[..2],
            Pieces::Every => &texts[..],
        };
        for text in texts.iter().flatten() {
            let chars = code_points(text.get());
            facts.chars += chars;
            if let Some(sink) = sink.as_deref_mut().filter(|_| chars > 0) {
                sink.push_str(&unfold(text.get()));
            }
            if chars > 0 && pieces == Pieces::Published {
                break;
            }
        }
    }
    facts
}

/// Duplicate keys (the last wins), bare NaN and Infinity, and fields of unexpected types.
fn lenient<'a>(payload: &str, pieces: Pieces, sink: Option<&mut String>) -> Result<Facts<'a>, NoChunk> {
    let value: Value = serde_json::from_str(payload)
        .or_else(|_| serde_json::from_str(&without_bare_numbers(payload)))
        .map_err(|_| NoChunk::NotJson)?;
    let text = value.to_string();
    let wire: Wire<'_> = serde_json::from_str(&text).map_err(|_| NoChunk::Malformed)?;
    let facts = facts(&wire, pieces, sink);
    let owned = |part: Option<Cow<'_, str>>| part.map(|text| Cow::Owned(text.into_owned()));
    Ok(Facts { usage: owned(facts.usage), error: owned(facts.error), ..facts })
}

/// Replaces `NaN`, `Infinity` and `-Infinity` outside strings by null: some servers send them in log-probabilities.
fn without_bare_numbers(payload: &str) -> String {
    let mut out = String::with_capacity(payload.len());
    let mut rest = payload;
    while let Some(quote) = rest.find('"') {
        let (plain, string) = rest.split_at(quote);
        out.push_str(&plain.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null"));
        let end = string_end(string);
        out.push_str(&string[..end]);
        rest = &string[end..];
    }
    out.push_str(&rest.replace("-Infinity", "null").replace("Infinity", "null").replace("NaN", "null"));
    out
}

/// Length of the string literal at the front of `text`, quotes included.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether a JSON text is an object with at least one member.
fn full_object(json: &str) -> bool {
    json.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|inside| !inside.trim().is_empty())
}

/// Code points of a JSON string literal; a surrogate pair is one, a lone surrogate is one. Anything but a string: 0.
fn code_points(literal: &str) -> u64 {
    let Some(inside) = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return 0 };
    if !inside.contains('\\') {
        return inside.chars().count() as u64;
    }
    units(inside, |_| {})
}

/// The text of a JSON string literal; a lone surrogate becomes U+FFFD.
fn unfold(literal: &str) -> String {
    let inside = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or("");
    let mut text = String::with_capacity(inside.len());
    units(inside, |c| text.push(c));
    text
}

/// Walks the code points between the quotes of a valid JSON string literal and counts them.
fn units(inside: &str, mut each: impl FnMut(char)) -> u64 {
    let hex = |text: &str| text.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let mut count = 0;
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        count += 1;
        if c != '\\' {
            each(c);
            continue;
        }
        let Some(kind) = rest.chars().next() else { break };
        rest = &rest[kind.len_utf8()..];
        if kind != 'u' {
            each(match kind {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                other => other,
            });
            continue;
        }
        let Some(unit) = hex(rest) else { break };
        rest = &rest[4..];
        let low = rest.strip_prefix("\\u").and_then(hex).filter(|low| (0xDC00..0xE000).contains(low));
        match low.filter(|_| (0xD800..0xDC00).contains(&unit)) {
            Some(low) => {
                rest = &rest[6..];
                each(char::from_u32(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).unwrap_or('\u{FFFD}'));
            }
            None => each(char::from_u32(unit).unwrap_or('\u{FFFD}')),
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every(payload: &str) -> Facts<'_> {
        read(payload, Pieces::Every, None).unwrap()
    }

    #[test]
    fn texts_count_in_code_points() {
        for (literal, count, text) in [
            (r#""""#, 0, ""),
            (r#""ab ""#, 3, "ab "),
            ("\"é中🙂\"", 3, "é中🙂"),
            (r#""\ud83d\ude42!""#, 2, "🙂!"),
            (r#""\ud83d""#, 1, "\u{FFFD}"),
            (r#""\ude42\ud83d""#, 2, "\u{FFFD}\u{FFFD}"),
            (r#""\ud83d\u0041""#, 2, "\u{FFFD}A"),
            (r#""\"\\\/\n\t""#, 5, "\"\\/\n\t"),
            (r#""\\u0041""#, 6, "\\u0041"),
            ("null", 0, ""),
            ("[1]", 0, ""),
        ] {
            assert_eq!(code_points(literal), count, "{literal}");
            assert_eq!(unfold(literal), text, "{literal}");
        }
    }

    #[test]
    fn a_first_token_needs_text() {
        for (delta, chars) in [
            (r#"{"role":"assistant"}"#, 0),
            (r#"{"role":"assistant","content":""}"#, 0),
            (r#"{"content":null}"#, 0),
            ("null", 0),
            (r#"{"content":"ab"}"#, 2),
            (r#"{"reasoning_content":"abc","content":""}"#, 3),
            (r#"{"reasoning":"abcd"}"#, 4),
        ] {
            let payload = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#);
            let facts = every(&payload);
            assert_eq!((facts.chars, facts.has_choices, facts.finished), (chars, true, false), "{delta}");
        }
        assert_eq!(every(r#"{"choices":[{"text":"abc","finish_reason":"stop"}]}"#).chars, 3);
        assert!(every(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#).finished);
        assert!(!every(r#"{"choices":[]}"#).has_choices);
        assert!(!every(r#"{"choices":null}"#).has_choices);
    }

    #[test]
    fn published_reads_one_text_of_one_choice() {
        let payload = r#"{"choices":[{"delta":{"content":"ab","reasoning_content":"cde"}},{"delta":{"content":"x"}}]}"#;
        assert_eq!(read(payload, Pieces::Published, None).unwrap().chars, 2);
        assert_eq!(every(payload).chars, 6);
        let other = r#"{"choices":[{"text":"abc","delta":{"reasoning":"x"}}]}"#;
        assert_eq!(read(other, Pieces::Published, None).unwrap().chars, 0);
        let mut text = String::new();
        read(payload, Pieces::Every, Some(&mut text)).unwrap();
        assert_eq!(text, "abcdex");
    }

    #[test]
    fn usage_is_kept_verbatim_and_only_when_full() {
        let facts = every(r#"{"choices":[],"usage":{"completion_tokens": 5, "x":[1,2]}}"#);
        assert_eq!(facts.usage.as_deref(), Some(r#"{"completion_tokens": 5, "x":[1,2]}"#));
        for none in [r#"{"usage":null}"#, r#"{"usage":{}}"#, r#"{"usage":{ }}"#, r#"{"usage":3}"#, "{}"] {
            assert_eq!(every(none).usage, None, "{none}");
        }
    }

    #[test]
    fn errors_in_the_stream_are_seen() {
        assert_eq!(every(r#"{"error":{"message":"boom"}}"#).error.as_deref(), Some(r#"{"message":"boom"}"#));
        assert!(every(r#"{"object":"error","message":"boom","code":400}"#).error.is_some());
        assert!(every(r#"{"object":"text_completion","error":null,"choices":[]}"#).error.is_none());
    }

    #[test]
    fn unusual_json_is_read_or_named() {
        assert_eq!(every(r#"{"choices":[],"choices":[{"text":"ab"}]}"#).chars, 2);
        let nan = r#"{"choices":[{"text":"NaN","logprobs":[NaN,-Infinity,Infinity]}],"usage":{"a":1}}"#;
        let facts = every(nan);
        assert_eq!((facts.chars, facts.usage.as_deref()), (3, Some(r#"{"a":1}"#)));
        assert_eq!(every(r#"{"cho\u0069ces":[{"text":"ab"}]}"#).chars, 2);
        for (payload, expected) in [
            ("17", NoChunk::Malformed),
            ("[]", NoChunk::Malformed),
            ("null", NoChunk::Malformed),
            ("\"x\"", NoChunk::Malformed),
            (r#"{"choices":{"a":1}}"#, NoChunk::Malformed),
            (r#"{"choices": ["#, NoChunk::NotJson),
            ("", NoChunk::NotJson),
            ("hello", NoChunk::NotJson),
            (r#"{"a":1} x"#, NoChunk::NotJson),
        ] {
            assert_eq!(read(payload, Pieces::Every, None), Err(expected), "{payload}");
        }
    }
}
