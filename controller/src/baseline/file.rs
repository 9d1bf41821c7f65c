//! The baseline file. What a bless does not derive is carried over verbatim, to the byte.

use std::fmt;
use std::path::Path;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::policy::Policy;
use crate::whole_file::WholeFile;

/// A baseline file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file.
    #[error("{path}: {source}")]
    Io {
        /// Its path.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Its syntax.
    #[error("{path}: {source}")]
    Syntax {
        /// Its path.
        path: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// A value in it.
    #[error("{path}: entry {entry:?}, cell {cell:?}, {key}: {problem}")]
    Value {
        /// Its path.
        path: String,
        /// The entry.
        entry: String,
        /// The cell.
        cell: String,
        /// The key.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

/// An object whose values stay as they are spelled.
#[derive(Debug, Default)]
struct Verbatim(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Verbatim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Verbatim;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Verbatim, A::Error> {
                let mut entries: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if entries.iter().any(|(known, _)| *known == key) {
                        return Err(serde::de::Error::custom(format!("{key:?} stands there twice")));
                    }
                    entries.push((key, value));
                }
                Ok(Verbatim(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bound {
    /// Which way.
    pub policy: Policy,
    /// The bound.
    pub value: f64,
}

/// Bounds of one cell, parsed.
#[derive(Debug, Clone, Default)]
pub struct CellBounds {
    /// By metric, in file order.
    pub metrics: Vec<(String, Bound)>,
    /// `step_time_ms.max`, which only a person writes.
    pub step_time_max: Option<f64>,
    /// Values that must be equal.
    pub correctness: Map<String, Value>,
}

impl CellBounds {
    /// Whether anything is gated.
    pub fn armed(&self) -> bool {
        !self.metrics.is_empty() || self.step_time_max.is_some() || !self.correctness.is_empty()
    }
}

/// One entry, parsed.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// By cell.
    pub cells: Vec<(String, CellBounds)>,
    /// The bench tool whose figures these bounds are, where the entry says so.
    pub bench_tool: Option<String>,
}

/// The file.
#[derive(Debug, Default)]
pub struct BaselineFile {
    head: Vec<(String, Box<RawValue>)>,
    entries: Vec<(String, Box<RawValue>)>,
}

impl BaselineFile {
    /// Reads a file; a missing one is empty.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|source| FileError::Syntax { path: name, source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(FileError::Io { path: name, source }),
        }
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let mut head = serde_json::from_str::<Verbatim>(text)?.0;
        let entries = match head.iter().position(|(key, _)| key == "entries") {
            Some(at) => serde_json::from_str::<Verbatim>(head.remove(at).1.get())?.0,
            None => Vec::new(),
        };
        Ok(Self { head, entries })
    }

    /// Names of the entries.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// The raw text of an entry.
    pub fn raw(&self, entry: &str) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == entry).map(|(_, raw)| raw.get())
    }

    /// An entry as a value, to be changed and put back; empty when there is none.
    pub fn value(&self, entry: &str) -> Map<String, Value> {
        self.raw(entry).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default()
    }

    /// Puts a changed entry in its place, or at the end.
    pub fn put(&mut self, entry: &str, value: &Map<String, Value>) -> Result<(), serde_json::Error> {
        let text = serde_json::to_string_pretty(value)?.replace('\n', "\n    ");
        let raw = RawValue::from_string(text)?;
        match self.entries.iter_mut().find(|(name, _)| name == entry) {
            Some((_, old)) => *old = raw,
            None => self.entries.push((entry.to_owned(), raw)),
        }
        Ok(())
    }

    /// The text of the file.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        let mut out = String::from("{\n");
        if !self.head.iter().any(|(key, _)| key == "schema_version") {
            out.push_str("  \"schema_version\": 1,\n");
        }
        for (key, raw) in &self.head {
            out.push_str("  ");
            out.push_str(&serde_json::to_string(key)?);
            out.push_str(": ");
            out.push_str(raw.get());
            out.push_str(",\n");
        }
        out.push_str("  \"entries\": {");
        for (at, (name, raw)) in self.entries.iter().enumerate() {
            out.push_str(if at == 0 { "\n    " } else { ",\n    " });
            out.push_str(&serde_json::to_string(name)?);
            out.push_str(": ");
            out.push_str(raw.get());
        }
        out.push_str(if self.entries.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
        Ok(out)
    }

    /// Replaces the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        use std::io::Write as _;
        let name = || path.display().to_string();
        let text = self.text().map_err(|source| FileError::Syntax { path: name(), source })?;
        WholeFile::create(path)
            .and_then(|file| {
                file.handle().write_all(text.as_bytes())?;
                file.commit()
            })
            .map_err(|source| FileError::Io { path: name(), source })
    }

    /// An entry's bounds. Every word in them is checked.
    pub fn entry(&self, path: &str, name: &str) -> Result<Entry, FileError> {
        let value = self.value(name);
        let mut entry = Entry {
            bench_tool: value
                .get("blessed")
                .and_then(|blessed| blessed.get("fingerprint")?.get("bench_tool")?.as_str())
                .map(str::to_owned),
            cells: Vec::new(),
        };
        let Some(cells) = value.get("cells") else { return Ok(entry) };
        let wrong = |cell: &str, key: &str, problem: &str| FileError::Value {
            path: path.to_owned(),
            entry: name.to_owned(),
            cell: cell.to_owned(),
            key: key.to_owned(),
            problem: problem.to_owned(),
        };
        let cells = cells.as_object().ok_or_else(|| wrong("", "cells", "must be an object of cells"))?;
        for (cell, value) in cells {
            let number = |value: Option<&Value>| value.and_then(Value::as_f64).filter(|value| value.is_finite());
            let mut bounds = CellBounds::default();
            for (metric, bound) in value.get("metrics").and_then(Value::as_object).into_iter().flatten() {
                let policy = match bound.get("policy").and_then(Value::as_str) {
                    Some("max") => Policy::Max,
                    Some("min") => Policy::Min,
                    Some("equal") => Policy::Equal,
                    Some(other) => {
                        let problem = format!("policy {other:?} is not one of max, min, equal");
                        return Err(wrong(cell, &format!("metrics.{metric}"), &problem));
                    }
                    None => return Err(wrong(cell, &format!("metrics.{metric}"), "needs a policy: max, min or equal")),
                };
                let value = number(bound.get("value"))
                    .ok_or_else(|| wrong(cell, &format!("metrics.{metric}"), "needs a value that is a number"))?;
                bounds.metrics.push((metric.clone(), Bound { policy, value }));
            }
            if let Some(step) = value.get("step_time_ms") {
                let max =
                    number(step.get("max")).ok_or_else(|| wrong(cell, "step_time_ms", "needs a number as max"))?;
                bounds.step_time_max = Some(max);
            }
            bounds.correctness = value.get("correctness").and_then(Value::as_object).cloned().unwrap_or_default();
            entry.cells.push((cell.clone(), bounds));
        }
        Ok(entry)
    }
}
