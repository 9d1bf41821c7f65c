//! JSON into [`Value`]s: a walk over the brackets that keeps line and column; strings and numbers are left to
//! `serde_json`. Strict: NaN and Infinity are refused by name.

use super::value::{Document, Duplicate, Map, Node, Pos, ReadError, Value};

/// Deepest nesting, as in `serde_json`.
const MAX_DEPTH: usize = 128;

/// Reads one JSON document.
pub fn parse(text: &str) -> Result<Document, ReadError> {
    let mut reader = Reader { text, next: 0, duplicates: Vec::new(), scanned: (0, Pos { line: 1, column: 1 }) };
    let root = reader.value(0)?;
    reader.blanks();
    if reader.next < text.len() {
        return Err(reader.error("text after the end of the JSON document"));
    }
    Ok(Document { root, duplicates: reader.duplicates })
}

struct Reader<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    next: usize,
    duplicates: Vec<Duplicate>,
    /// Offset and place up to which lines have been counted.
    scanned: (usize, Pos),
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.next..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.next).copied()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.next += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    /// The place of the next character.
    fn pos(&mut self) -> Pos {
        let (from, mut at) = self.scanned;
        for c in self.text[from..self.next].chars() {
            at = if c == '\n' {
                Pos { line: at.line + 1, column: 1 }
            } else {
                Pos { line: at.line, column: at.column + 1 }
            };
        }
        self.scanned = (self.next, at);
        at
    }

    fn error(&mut self, message: impl Into<String>) -> ReadError {
        ReadError::new(self.pos(), message)
    }

    fn value(&mut self, depth: usize) -> Result<Value, ReadError> {
        self.blanks();
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let at = self.pos();
        match self.peek() {
            None => Err(self.error("the JSON document ends too early")),
            Some(b'{') => self.map(depth, at),
            Some(b'[') => self.seq(depth, at),
            Some(b'"') => Ok(Value::new(Node::Str(self.string()?), at)),
            Some(_) => self.scalar(at),
        }
    }

    fn map(&mut self, depth: usize, at: Pos) -> Result<Value, ReadError> {
        let mut map = Map::default();
        self.next += 1;
        self.blanks();
        if self.take(b'}') {
            return Ok(Value::new(Node::Map(map), at));
        }
        loop {
            self.blanks();
            let key_at = self.pos();
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a key in double quotes"));
            }
            let key = self.string()?;
            self.blanks();
            if !self.take(b':') {
                return Err(self.error("expected ':' after the key"));
            }
            let value = self.value(depth + 1)?;
            if map.insert(Value::new(Node::Str(key.clone()), key_at), value) {
                self.duplicates.push(Duplicate { key, at: key_at });
            }
            self.blanks();
            if self.take(b'}') {
                return Ok(Value::new(Node::Map(map), at));
            }
            if !self.take(b',') {
                return Err(self.error("expected ',' or '}'"));
            }
        }
    }

    fn seq(&mut self, depth: usize, at: Pos) -> Result<Value, ReadError> {
        let mut items = Vec::new();
        self.next += 1;
        self.blanks();
        if self.take(b']') {
            return Ok(Value::new(Node::Seq(items), at));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.take(b']') {
                return Ok(Value::new(Node::Seq(items), at));
            }
            if !self.take(b',') {
                return Err(self.error("expected ',' or ']'"));
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.next += usize::from(there);
        there
    }

    /// A string from its opening quote on.
    fn string(&mut self) -> Result<String, ReadError> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|b| {
            let closes = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            closes
        });
        let Some(end) = end else { return Err(self.error("this string has no closing quote")) };
        let token = &rest[..end + 2];
        match serde_json::from_str(token) {
            Ok(text) => {
                self.next += token.len();
                Ok(text)
            }
            Err(error) => Err(self.error(format!("this string is not valid: {error}"))),
        }
    }

    /// A number or a word.
    fn scalar(&mut self, at: Pos) -> Result<Value, ReadError> {
        let rest = self.rest();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
        let token = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let node = match token {
            "null" => Node::Null,
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            "NaN" | "Infinity" | "-Infinity" => {
                return Err(self.error(format!("{token} is not JSON; numbers must be finite")));
            }
            _ => match number(token) {
                Ok(node) => node,
                Err(message) if token.is_empty() => {
                    let found = rest.chars().next().unwrap_or(' ');
                    return Err(self.error(format!("expected a value, found {found:?}{message}")));
                }
                Err(message) => return Err(self.error(message)),
            },
        };
        self.next += token.len();
        Ok(Value { node, at, raw: Some(token.to_owned()) })
    }
}

/// A JSON number: an integer of any size, or a finite float.
fn number(token: &str) -> Result<Node, String> {
    if token.is_empty() {
        return Err(String::new());
    }
    let digits = token.strip_prefix('-').unwrap_or(token);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if plain && (digits == "0" || !digits.starts_with('0')) {
        return Ok(token.parse().map_or_else(|_| Node::BigInt(token.to_owned()), Node::Int));
    }
    match serde_json::from_str::<f64>(token) {
        Ok(value) => Ok(Node::Float(value)),
        Err(error) if error.to_string().contains("out of range") => {
            Err(format!("{} is too large a number", cut(token)))
        }
        Err(_) => Err(format!("{} is not a JSON value", cut(token))),
    }
}

/// Tokens are ASCII.
fn cut(token: &str) -> String {
    if token.len() > 60 { format!("{}...", &token[..60]) } else { token.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_place_and_spelling() {
        let text = "{\n  \"a\": [1, 2.50, \"x\\u0041\\ud83d\\ude00\"],\n  \"ä\": {\"b\": null}, \"c\": true}";
        let root = parse(text).unwrap().root;
        let map = root.as_map().unwrap();
        let items = map.get("a").unwrap().as_seq().unwrap();
        assert_eq!(items[0].node, Node::Int(1));
        assert_eq!((items[1].at, items[1].raw.as_deref()), (Pos { line: 2, column: 12 }, Some("2.50")));
        assert_eq!(items[2].node, Node::Str("xA😀".into()));
        let inner = map.get("ä").unwrap().as_map().unwrap().get("b").unwrap();
        assert_eq!((inner.at, &inner.node), (Pos { line: 3, column: 14 }, &Node::Null));
        assert_eq!(root.to_json(), serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn refusals_name_the_place() {
        for (text, line, column, phrase) in [
            ("", 1, 1, "too early"),
            ("{\"a\": NaN}", 1, 7, "NaN is not JSON"),
            ("[\n -Infinity]", 2, 2, "-Infinity is not JSON"),
            ("[1e999]", 1, 2, "too large"),
            ("[01]", 1, 2, "not a JSON value"),
            ("[+1]", 1, 2, "not a JSON value"),
            ("{\"a\": }", 1, 7, "expected a value"),
            ("{\"a\" 1}", 1, 6, "expected ':'"),
            ("{a: 1}", 1, 2, "double quotes"),
            ("[1,]", 1, 4, "expected a value"),
            ("[1 2]", 1, 4, "expected ',' or ']'"),
            ("{} {}", 1, 4, "after the end"),
            ("[\"a", 1, 2, "closing quote"),
            ("[\"\\x\"]", 1, 2, "not valid"),
            ("[\"\\ud800\"]", 1, 2, "not valid"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.at, Pos { line, column }, "{text}: {error}");
            assert!(error.message.contains(phrase), "{text}: {error}");
        }
        assert!(parse(&"[".repeat(100_000)).unwrap_err().message.contains("deeper"));
    }

    #[test]
    fn big_integers_and_duplicates_survive() {
        let document = parse(&format!("{{\"a\": 1, \"n\": 1{}, \"a\": 2}}", "0".repeat(400))).unwrap();
        let map = document.root.as_map().unwrap();
        assert!(matches!(&map.get("n").unwrap().node, Node::BigInt(text) if text.len() == 401));
        assert_eq!(map.get("a").unwrap().node, Node::Int(2));
        assert_eq!(document.duplicates.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_accepts_what_serde_json_accepts(text in "[\\[\\]{}\",:0-9eE.+\\-a-u\\\\ \n]{0,40}") {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            proptest::prop_assert_eq!(parse(&text).is_ok(), theirs.is_ok());
        }
    }
}
