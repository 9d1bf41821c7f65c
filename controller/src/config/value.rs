//! A document as a tree of values that remember where they stood and how they were spelled.
//!
//! The same tree comes out of YAML ([`yaml`](super::yaml)) and JSON ([`json`](super::json)); the spelling is kept
//! because two spellings of one number are not the same promise (`.inf` and `"inf"`, `8` and `08`).

use std::fmt;

/// Where a node begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pos {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A text that is no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({at})")]
pub struct ReadError {
    /// Where.
    pub at: Pos,
    /// What.
    pub message: String,
}

impl ReadError {
    /// An error at a place.
    pub fn new(at: Pos, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// A document, and what is odd about it.
#[derive(Debug, Clone)]
pub struct Document {
    /// Its top.
    pub root: Value,
    /// Keys that stand twice in one mapping; the last one counts, as with PyYAML and Python's `json`.
    pub duplicates: Vec<Duplicate>,
}

/// A key that stands twice in one mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// As it is written.
    pub key: String,
    /// Where the one that counts stands.
    pub at: Pos,
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// What it holds.
    pub node: Node,
    /// Where it begins.
    pub at: Pos,
    /// Its spelling, where that is not the value itself: unquoted scalars that are no strings.
    pub raw: Option<String>,
}

/// What a node holds: the types that `PyYAML`'s safe loader builds.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// `null`, `~`, nothing.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// An integer beyond 128 bits, in decimal.
    BigInt(String),
    /// A floating-point number; infinite and NaN ones come from YAML only.
    Float(f64),
    /// Text.
    Str(String),
    /// A date or a point in time, as it is written.
    Date(String),
    /// A list.
    Seq(Vec<Value>),
    /// A mapping.
    Map(Map),
}

impl Value {
    /// A value without a spelling of its own.
    pub const fn new(node: Node, at: Pos) -> Self {
        Self { node, at, raw: None }
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Node::Str(text) = &self.node { Some(text) } else { None }
    }

    /// The mapping, if it is one.
    pub const fn as_map(&self) -> Option<&Map> {
        if let Node::Map(map) = &self.node { Some(map) } else { None }
    }

    /// The list, if it is one.
    pub fn as_seq(&self) -> Option<&[Self]> {
        if let Node::Seq(items) = &self.node { Some(items) } else { None }
    }

    /// Whether it is null.
    pub const fn is_null(&self) -> bool {
        matches!(self.node, Node::Null)
    }

    /// The type, with its article, for messages.
    pub const fn kind(&self) -> &'static str {
        match &self.node {
            Node::Null => "null",
            Node::Bool(_) => "a boolean",
            Node::Int(_) | Node::BigInt(_) => "an integer",
            Node::Float(_) => "a floating-point number",
            Node::Str(_) => "a string",
            Node::Date(_) => "a date",
            Node::Seq(_) => "a list",
            Node::Map(_) => "a mapping",
        }
    }

    /// A scalar as Python's `str()` prints it (`True`, `None`, `1.0`), which is what the original made of it;
    /// `None` for lists and mappings.
    pub fn text(&self) -> Option<String> {
        match &self.node {
            Node::Null => Some("None".into()),
            Node::Bool(true) => Some("True".into()),
            Node::Bool(false) => Some("False".into()),
            Node::Int(number) => Some(number.to_string()),
            Node::BigInt(text) | Node::Str(text) | Node::Date(text) => Some(text.clone()),
            Node::Float(number) => Some(python_float(*number)),
            Node::Seq(_) | Node::Map(_) => None,
        }
    }

    /// As it stands in the document, for messages: short, and quoted where it is text.
    pub fn shown(&self) -> String {
        let text = match (&self.raw, &self.node) {
            (Some(raw), _) => raw.clone(),
            (None, Node::Str(text)) => format!("{text:?}"),
            (None, Node::Null) => "null".into(),
            (None, _) => self.to_json().to_string(),
        };
        cut(&text)
    }

    /// As JSON. What JSON cannot hold (infinities, very large integers, dates) becomes its spelling.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        let spelled = || Json::String(self.raw.clone().or_else(|| self.text()).unwrap_or_default());
        match &self.node {
            Node::Null => Json::Null,
            Node::Bool(value) => Json::Bool(*value),
            Node::Int(number) => i64::try_from(*number)
                .map(Json::from)
                .or_else(|_| u64::try_from(*number).map(Json::from))
                .unwrap_or_else(|_| spelled()),
            Node::Float(number) => serde_json::Number::from_f64(*number).map_or_else(spelled, Json::Number),
            Node::Str(text) => Json::String(text.clone()),
            Node::BigInt(_) | Node::Date(_) => spelled(),
            Node::Seq(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Node::Map(map) => {
                Json::Object(map.iter().map(|(key, value)| (key.text().unwrap_or_default(), value.to_json())).collect())
            }
        }
    }
}

/// Longest value that a message repeats, in characters.
const SHOWN_MAX: usize = 120;

/// Cuts a text for a message.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A mapping in the order of first appearance; keys are scalars and, as in Python, `1`, `1.0` and `true` are one key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    entries: Vec<(Value, Value)>,
}

impl Map {
    /// The value under a text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// How many keys.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets a key; a key that is there keeps its place and gets the new value. Tells whether it was there.
    pub fn insert(&mut self, key: Value, value: Value) -> bool {
        if let Some(entry) = self.entries.iter_mut().find(|(k, _)| same_key(&k.node, &key.node)) {
            entry.1 = value;
            return true;
        }
        self.entries.push((key, value));
        false
    }
}

impl IntoIterator for Map {
    type Item = (Value, Value);
    type IntoIter = std::vec::IntoIter<(Value, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// Whether Python's dictionaries take two scalars for one key.
#[expect(clippy::float_cmp, reason = "exact equality is what makes two keys one")]
fn same_key(a: &Node, b: &Node) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a key that is a number beyond 2^53 is not worth more")]
    fn number(node: &Node) -> Option<f64> {
        match node {
            Node::Bool(value) => Some(f64::from(u8::from(*value))),
            Node::Int(value) => Some(*value as f64),
            Node::Float(value) => Some(*value),
            Node::Null | Node::BigInt(_) | Node::Str(_) | Node::Date(_) | Node::Seq(_) | Node::Map(_) => None,
        }
    }
    match (a, b) {
        (Node::Int(a), Node::Int(b)) => a == b,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

/// A float as Python's `repr` prints it: the shortest text that reads back, with an exponent from 1e16 up and
/// below 1e-4, and with a point or an exponent always.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return proto::text::print_decimal(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (value, text) in [
            (4.0, "4.0"),
            (0.5, "0.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (-0.0, "-0.0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(python_float(value), text);
        }
    }

    #[test]
    fn keys_are_those_of_a_dictionary() {
        let key = |node| Value::new(node, Pos::default());
        let mut map = Map::default();
        assert!(!map.insert(key(Node::Int(1)), key(Node::Null)));
        assert!(map.insert(key(Node::Bool(true)), key(Node::Int(2))));
        assert!(map.insert(key(Node::Float(1.0)), key(Node::Int(3))));
        assert!(!map.insert(key(Node::Str("1".into())), key(Node::Int(4))));
        assert_eq!(map.len(), 2);
        assert_eq!(map.get("1").map(|v| v.node.clone()), Some(Node::Int(4)));
    }
}
