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

/// Control characters are refused wherever they stand, as by PyYAML's reader.
fn printable(text: &str) -> Result<(), ReadError> {
    let fine = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
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

/// The core type that a tag names; `Ok(None)` without a tag, and for `!`, which only switches resolving off.
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
        None if tag.is_some() || !plain => Key::Own(string()),
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
