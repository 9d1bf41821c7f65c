//! YAML into [`Value`]s, resolved as PyYAML's safe loader does (YAML 1.1), because that is how AORTA reads the
//! same files: `1_000`, `017` and `12:30` are integers, `yes` and `on` booleans, `1e3` and `08` strings, `<<`
//! merges, the last of two equal keys counts. Syntax comes from `saphyr-parser`; what a scalar means, only from here.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::scalar::{self, Resolved};
use super::value::{Document, Duplicate, Map, Node, Pos, ReadError, Value};

/// Deepest nesting.
const MAX_DEPTH: usize = 128;
/// Most nodes once every alias has been followed: a few hundred bytes of aliases can otherwise ask for any amount of memory.
const MAX_NODES: usize = 200_000;

/// Reads one YAML document; an empty text is null.
pub fn parse(text: &str) -> Result<Document, ReadError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    printable(text)?;
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| syntax(&e))?;
        builder.event(event, place(span))?;
    }
    Ok(Document {
        root: builder.root.unwrap_or_else(|| Value::new(Node::Null, Pos { line: 1, column: 1 })),
        duplicates: builder.duplicates,
    })
}

fn place(span: Span) -> Pos {
    Pos { line: span.start.line(), column: span.start.col() + 1 }
}

fn syntax(error: &ScanError) -> ReadError {
    ReadError::new(Pos { line: error.marker().line(), column: error.marker().col() + 1 }, error.info())
}

/// Control characters are refused wherever they stand, as by PyYAML's reader; so are the line breaks that only YAML 1.1
/// knows (U+0085, U+2028, U+2029), because the parser takes them for text.
fn printable(text: &str) -> Result<(), ReadError> {
    let fine = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    for (index, line) in text.lines().enumerate() {
        if let Some((column, c)) = line.chars().enumerate().find(|(_, c)| !fine(*c)) {
            let at = Pos { line: index + 1, column: column + 1 };
            return Err(ReadError::new(at, format!("the character U+{:04X} is not allowed here", u32::from(c))));
        }
    }
    Ok(())
}

/// A collection that is not complete.
#[derive(Debug)]
enum Frame {
    Seq { items: Vec<Value> },
    Map { pairs: Vec<(Key, Value)>, key: Option<Key> },
}

#[derive(Debug)]
struct Open {
    frame: Frame,
    anchor: usize,
    at: Pos,
}

/// A key of a mapping, before merging.
#[derive(Debug)]
enum Key {
    /// An unquoted `<<`.
    Merge(Pos),
    Own(Value),
}

#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    documents: usize,
    nodes: usize,
    duplicates: Vec<Duplicate>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, at: Pos) -> Result<(), ReadError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(ReadError::new(at, "a second document starts here; exactly one is wanted"));
                }
                Ok(())
            }
            Event::Alias(id) => {
                let value = self.anchors.get(&id).cloned();
                let value = value.ok_or_else(|| ReadError::new(at, "this alias lies inside the node it names"))?;
                self.nodes += count(&value);
                self.place(Key::Own(value), at)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let key = resolve(&text, style, tag.as_deref(), at, self.expects_key())?;
                if let (Key::Own(value), true) = (&key, anchor > 0) {
                    self.anchors.insert(anchor, value.clone());
                }
                self.nodes += 1;
                self.place(key, at)
            }
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", at)?;
                self.push(Frame::Seq { items: Vec::new() }, anchor, at)
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map", at)?;
                self.push(Frame::Map { pairs: Vec::new(), key: None }, anchor, at)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
        }
    }

    /// Whether the next node is a key of a mapping.
    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { frame: Frame::Map { key: None, .. }, .. }))
    }

    fn push(&mut self, frame: Frame, anchor: usize, at: Pos) -> Result<(), ReadError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(ReadError::new(at, format!("nested deeper than {MAX_DEPTH}")));
        }
        if self.expects_key() {
            return Err(ReadError::new(at, "a key must be a scalar"));
        }
        self.nodes += 1;
        self.open.push(Open { frame, anchor, at });
        Ok(())
    }

    fn close(&mut self, at: Pos) -> Result<(), ReadError> {
        let Some(Open { frame, anchor, at: begin }) = self.open.pop() else {
            return Err(ReadError::new(at, "unexpected end of a collection"));
        };
        let node = match frame {
            Frame::Seq { items } => Node::Seq(items),
            Frame::Map { pairs, .. } => Node::Map(self.merged(pairs)?),
        };
        let value = Value::new(node, begin);
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        self.place(Key::Own(value), begin)
    }

    /// Puts a complete node where it belongs.
    fn place(&mut self, node: Key, at: Pos) -> Result<(), ReadError> {
        if self.nodes > MAX_NODES {
            return Err(ReadError::new(at, format!("more than {MAX_NODES} nodes once aliases are followed")));
        }
        let value = match self.open.last_mut() {
            Some(Open { frame: Frame::Map { key: slot @ None, .. }, .. }) => {
                if let Key::Own(Value { node: Node::Seq(_) | Node::Map(_), .. }) = &node {
                    return Err(ReadError::new(at, "a key must be a scalar"));
                }
                *slot = Some(node);
                return Ok(());
            }
            _ => match node {
                Key::Own(value) => value,
                Key::Merge(at) => return Err(ReadError::new(at, "'<<' is only a key; quote it to have the text")),
            },
        };
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open { frame: Frame::Seq { items }, .. }) => items.push(value),
            Some(Open { frame: Frame::Map { pairs, key }, .. }) => pairs.extend(key.take().map(|key| (key, value))),
        }
        Ok(())
    }

    /// Merged keys first, own keys over them; of equal keys the last counts (`SafeConstructor.flatten_mapping`).
    fn merged(&mut self, pairs: Vec<(Key, Value)>) -> Result<Map, ReadError> {
        let mut map = Map::default();
        let mut own = Vec::new();
        for (key, value) in pairs {
            match (key, value.node) {
                (Key::Own(key), node) => own.push((key, Value { node, at: value.at, raw: value.raw })),
                (Key::Merge(_), Node::Map(other)) => extend(&mut map, other),
                (Key::Merge(at), Node::Seq(items)) => {
                    for item in items.into_iter().rev() {
                        let Node::Map(other) = item.node else { return Err(no_merge(at)) };
                        extend(&mut map, other);
                    }
                }
                (Key::Merge(at), _) => return Err(no_merge(at)),
            }
        }
        let mut seen = Map::default();
        for (key, value) in own {
            let (name, at) = (key.shown(), key.at);
            if seen.insert(key.clone(), Value::new(Node::Null, at)) {
                self.duplicates.push(Duplicate { key: key.text().unwrap_or(name), at });
            }
            map.insert(key, value);
        }
        Ok(map)
    }
}

fn extend(map: &mut Map, other: Map) {
    for (key, value) in other {
        map.insert(key, value);
    }
}

fn no_merge(at: Pos) -> ReadError {
    ReadError::new(at, "'<<' takes a mapping or a list of mappings")
}

fn count(value: &Value) -> usize {
    match &value.node {
        Node::Seq(items) => 1 + items.iter().map(count).sum::<usize>(),
        Node::Map(map) => 1 + map.iter().map(|(_, value)| 1 + count(value)).sum::<usize>(),
        Node::Null | Node::Bool(_) | Node::Int(_) | Node::BigInt(_) | Node::Float(_) | Node::Str(_) | Node::Date(_) => {
            1
        }
    }
}

const CORE: &str = "tag:yaml.org,2002:";

/// The core type that a tag names; `Ok(None)` without a tag, and for `!`, which PyYAML takes for none.
fn core_tag(tag: Option<&Tag>, at: Pos) -> Result<Option<String>, ReadError> {
    let Some(tag) = tag else { return Ok(None) };
    let full = format!("{}{}", tag.handle, tag.suffix);
    if full == "!" {
        return Ok(None);
    }
    match full.strip_prefix(CORE) {
        Some(name) => Ok(Some(name.to_owned())),
        None => Err(ReadError::new(at, format!("the tag {full:?} is not known here"))),
    }
}

fn collection_tag(tag: Option<&Tag>, wanted: &str, at: Pos) -> Result<(), ReadError> {
    match core_tag(tag, at)? {
        Some(name) if name != wanted => Err(ReadError::new(at, format!("the tag \"!!{name}\" does not fit here"))),
        _ => Ok(()),
    }
}

/// What a scalar means.
fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>, at: Pos, is_key: bool) -> Result<Key, ReadError> {
    let plain = matches!(style, ScalarStyle::Plain);
    let string = || Value::new(Node::Str(text.to_owned()), at);
    let spelled = |node| Key::Own(Value { node, at, raw: Some(text.to_owned()) });
    let bad = |message: String| ReadError::new(at, message);
    let value = match core_tag(tag, at)?.as_deref() {
        None if !plain => Key::Own(string()),
        None => match scalar::resolve(text).map_err(bad)? {
            Resolved::Merge => Key::Merge(at),
            Resolved::Equals if is_key => Key::Own(string()),
            Resolved::Equals => return Err(bad("'=' alone is no value; quote it to have the text".into())),
            Resolved::Node(Node::Str(_)) => Key::Own(string()),
            Resolved::Node(node) => spelled(node),
        },
        Some("str") => Key::Own(string()),
        Some("null") => spelled(Node::Null),
        Some(name @ ("bool" | "int" | "float")) => spelled(scalar::tagged(name, text).map_err(bad)?),
        Some(name) => return Err(bad(format!("the tag \"!!{name}\" does not fit here"))),
    };
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value with its type, in the form of the fixture.
    fn shown(value: &Value) -> serde_json::Value {
        use serde_json::json;
        match &value.node {
            Node::Null => json!({ "null": null }),
            Node::Bool(value) => json!({ "bool": value }),
            Node::Int(number) => json!({ "int": number.to_string() }),
            Node::BigInt(text) => json!({ "int": text }),
            Node::Float(number) => json!({ "float": super::super::value::python_float(*number) }),
            Node::Str(text) => json!({ "str": text }),
            Node::Date(_) => json!({ "date": null }),
            Node::Seq(items) => json!({ "list": items.iter().map(shown).collect::<Vec<_>>() }),
            Node::Map(map) => json!({ "map": map.iter().map(|(k, v)| [shown(k), shown(v)]).collect::<Vec<_>>() }),
        }
    }

    /// Texts that PyYAML and this reader judge differently, and why that is right or harmless.
    const DIFFERENCES: &[(&str, &str)] = &[
        ("[-]\n", "refused here: a dash alone inside brackets is more likely a mistake"),
        ("[|x]\n", "block indicators are ordinary characters inside brackets in YAML 1.2"),
        ("[>x]\n", "the same"),
        ("[?x]\n", "a key indicator needs a blank in YAML 1.2"),
        ("[?]\n", "the same"),
        ("- :\n", "an empty key is refused by the reader of keys anyway"),
        ("[:]\n", "the same"),
        ("[:x]\n", "a value indicator needs a blank in YAML 1.2"),
        ("\ta: 1\n", "a tab before the first key changes no meaning"),
        ("a: 1\t# c\n", "a tab before a comment changes no meaning"),
    ];

    /// Made by `tests/fixtures/yaml/make_vectors.py` with PyYAML itself.
    #[test]
    fn agrees_with_pyyaml() {
        let fixture = include_str!("../../../tests/fixtures/yaml/vectors.json");
        let vectors: Vec<serde_json::Value> = serde_json::from_str(fixture).unwrap();
        assert!(vectors.len() > 600, "{}", vectors.len());
        let mut wrong = Vec::new();
        for vector in &vectors {
            let text = vector["text"].as_str().unwrap();
            let ours = parse(text).map_or(serde_json::Value::Null, |document| shown(&document.root));
            if ours != vector["value"] && DIFFERENCES.iter().all(|(other, _)| *other != text) {
                wrong.push(format!("{text:?}\n  PyYAML {}\n  ours   {ours}", vector["value"]));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), vectors.len(), wrong.join("\n"));
    }

    #[test]
    fn spellings_and_places_are_kept() {
        let root = parse("a: 1_000\nb:\n  - .inf\n  - '08'\n").unwrap().root;
        let map = root.as_map().unwrap();
        let a = map.get("a").unwrap();
        assert_eq!((a.at, a.raw.as_deref()), (Pos { line: 1, column: 4 }, Some("1_000")));
        let items = map.get("b").unwrap().as_seq().unwrap();
        assert_eq!((items[0].at, items[0].shown().as_str()), (Pos { line: 3, column: 5 }, ".inf"));
        assert_eq!((items[1].raw.as_deref(), items[1].shown().as_str()), (None, "\"08\""));
    }

    #[test]
    fn hostile_documents_are_refused_in_bounded_time() {
        let bomb = |level: usize| {
            let last = level - 1;
            format!("a{level}: &a{level} [{}]\n", vec![format!("*a{last}"); 10].join(", "))
        };
        let laughs: String = std::iter::once("a0: &a0 [x, x]\n".to_owned()).chain((1..12).map(bomb)).collect();
        assert!(parse(&laughs).unwrap_err().message.contains("nodes"));
        for bracket in ["[", "{a: "] {
            // The parser has a limit of its own for brackets.
            let message = parse(&bracket.repeat(100_000)).unwrap_err().message;
            assert!(message.contains("deeper") || message.contains("recursion"), "{message}");
        }
        assert!(parse(&"- ".repeat(5_000)).unwrap_err().message.contains("deeper"));
        assert!(parse("a: &a {b: *a}").unwrap_err().message.contains("inside"));
        let long = "9".repeat(5_000);
        assert!(parse(&long).unwrap_err().message.contains("4300"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[-?:,\\[\\]{}#&*!|>'\"%@`<=~0-9a-f_. \t\n\\\\]{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn never_panics_on_any_text(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn quoted_texts_come_back(text in "\\PC{0,30}") {
            let json = serde_json::to_string(&text).unwrap();
            if let Ok(document) = parse(&format!("a: {json}")) {
                let root = document.root;
                let map = root.as_map().unwrap();
                proptest::prop_assert_eq!(map.get("a").unwrap().as_str(), Some(text.as_str()));
            }
        }
    }
}
