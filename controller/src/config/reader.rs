//! Reads keys by the coercion rules of contract E.1. Every error is collected, so that one run shows them all; a key
//! in error reads as its default, and cross-field rules ask [`Reader::sound`] before they judge.

use std::path::{Path, PathBuf};

use super::keys::{self, Default, Key, Kind};
use super::value::{Map, Node, Value};
use super::words;
use crate::error::ConfigError;

pub(super) struct Reader<'a> {
    map: &'a Map,
    pub(super) errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(map: &'a Map) -> Self {
        Self { map, errors: Vec::new() }
    }

    /// The value under a key, null included.
    pub(super) fn raw(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// Whether none of these keys is in error.
    pub(super) fn sound(&self, names: &[&str]) -> bool {
        self.errors.iter().all(|e| e.key.as_deref().is_none_or(|key| !names.contains(&key)))
    }

    pub(super) fn fail(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Refuses the value of a key.
    pub(super) fn refuse(&mut self, key: &str, rule: impl std::fmt::Display, hint: impl Into<String>) {
        let error = match self.map.get(key) {
            Some(value) => ConfigError::of(key, value, rule, hint),
            None => ConfigError::about(key, rule, hint),
        };
        self.errors.push(error);
    }

    /// The row of a key; the table has one for every key that is read.
    fn row(key: &str) -> &'static Key {
        keys::find(key).unwrap_or(&keys::KEYS[0])
    }

    /// A whole number that has a default; null is an error unless `null_is_default`.
    pub(super) fn int(&mut self, key: &str) -> u64 {
        let default = match Self::row(key).default {
            Default::Int(value) => value,
            Default::Number(_) | Default::Flag(_) | Default::Text(_) | Default::Unset(_) | Default::Derived(_) => 0,
        };
        match self.raw(key) {
            None => default,
            Some(value) => self.integer(key, value).unwrap_or(default),
        }
    }

    /// A whole number that may be absent; null is absent.
    pub(super) fn opt_int(&mut self, key: &str) -> Option<u64> {
        let value = self.raw(key).filter(|value| !value.is_null())?;
        self.integer(key, value)
    }

    /// A whole number whose default is derived: absent is `None`, null is an error as with every other number.
    pub(super) fn derived_int(&mut self, key: &str) -> Option<u64> {
        let value = self.raw(key)?;
        self.integer(key, value)
    }

    fn integer(&mut self, key: &str, value: &Value) -> Option<u64> {
        let Kind::Int { min, max } = Self::row(key).kind else { return None };
        let bounds = if max == u64::MAX { format!(">= {min}") } else { format!("between {min} and {max}") };
        let hint = match (key, Self::row(key).default) {
            ("max_concurrency", _) => "write a whole number >= 1, or omit it for unbounded".to_owned(),
            (_, Default::Int(default)) => format!("write a whole number {bounds}, or omit it for {default}"),
            _ => format!("write a whole number {bounds}, or omit it"),
        };
        match whole(value) {
            Err(rule) => self.fail(ConfigError::of(key, value, rule, hint)),
            Ok(number) => match u64::try_from(number) {
                Ok(number) if (min..=max).contains(&number) => return Some(number),
                _ if key == "max_concurrency" => {
                    let rule = format!("must be {bounds} (omit it for unbounded)");
                    self.fail(ConfigError::of(key, value, rule, hint));
                }
                _ => self.fail(ConfigError::of(key, value, format!("must be {bounds}"), hint)),
            },
        }
        None
    }

    /// A boolean; only `true` and `false` of the format are.
    pub(super) fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.raw(key) {
            None => default,
            Some(Value { node: Node::Bool(value), .. }) => *value,
            Some(value) => {
                let hint = format!("write true or false without quotes, or omit it for {default}");
                self.fail(ConfigError::of(key, value, "must be a bool", hint));
                default
            }
        }
    }

    /// A boolean with the table's default.
    pub(super) fn plain_flag(&mut self, key: &str) -> bool {
        let default = matches!(Self::row(key).default, Default::Flag(true));
        self.flag(key, default)
    }

    /// Any scalar as text; absent, null and empty are `None`.
    pub(super) fn opt_text(&mut self, key: &str) -> Option<String> {
        let value = self.raw(key).filter(|value| !value.is_null())?;
        let text = self.scalar_text(key, value)?;
        (!text.is_empty()).then_some(text)
    }

    /// Any scalar as text, with the table's default.
    pub(super) fn text(&mut self, key: &str) -> String {
        let default = match Self::row(key).default {
            Default::Text(text) => text,
            Default::Int(_) | Default::Number(_) | Default::Flag(_) | Default::Unset(_) | Default::Derived(_) => "",
        };
        self.opt_text(key).unwrap_or_else(|| default.to_owned())
    }

    /// The text of a scalar without NUL.
    pub(super) fn scalar_text(&mut self, key: &str, value: &Value) -> Option<String> {
        let Some(text) = value.text() else {
            self.fail(ConfigError::of(key, value, format!("must be a text, not {}", value.kind()), "write one value"));
            return None;
        };
        if text.contains('\0') {
            self.fail(ConfigError::of(key, value, "contains a NUL byte", "remove it; no argument can hold one"));
            return None;
        }
        Some(text)
    }

    /// One of the words of the table; trimmed. `parse` turns it into its type.
    pub(super) fn choice<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(key);
        if !self.sound(&[key]) {
            return None;
        }
        match parse(text.trim()) {
            Ok(value) => Some(value),
            Err(rule) => {
                let Kind::Choice(words) = Self::row(key).kind else { return None };
                self.refuse(key, rule, format!("write {}", words.join(" or ")));
                None
            }
        }
    }

    /// A finite number in (0, max] of the table; null is an error.
    pub(super) fn number(&mut self, key: &str, value: &Value) -> Option<f64> {
        let Kind::Number { max } = Self::row(key).kind else { return None };
        let hint = format!("write a number greater than 0 and at most {max}");
        match finite(value) {
            Err(rule) => self.fail(ConfigError::of(key, value, rule, hint)),
            Ok(number) if number > 0.0 && number <= max => return Some(number),
            Ok(_) => self.fail(ConfigError::of(key, value, format!("must be in (0, {max}]"), hint)),
        }
        None
    }

    /// A list of arguments, or a command line.
    pub(super) fn words(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.raw(key) else { return Vec::new() };
        let list = match &value.node {
            Node::Null => return Vec::new(),
            Node::Seq(items) => items.iter().map(Value::text).collect::<Option<Vec<_>>>().ok_or_else(|| {
                ConfigError::of(key, value, "must hold strings only", "write each argument as one text")
            }),
            Node::Str(line) => words::split(line).map_err(|reason| {
                let rule = format!("is not a parseable command line ({reason})");
                ConfigError::of(key, value, rule, "close the quote, or write a list with an item per argument")
            }),
            Node::Bool(_) | Node::Int(_) | Node::BigInt(_) | Node::Float(_) | Node::Date(_) | Node::Map(_) => {
                let rule = format!("must be a string or list, not {}", value.kind());
                Err(ConfigError::of(key, value, rule, "write a list with an item per argument"))
            }
        };
        let nul = |list: &Vec<String>| list.iter().position(|item| item.contains('\0'));
        match list {
            Ok(list) => match nul(&list) {
                None => return list,
                Some(index) => self.fail(
                    ConfigError::about(
                        &format!("{key}[{index}]"),
                        "contains a NUL byte",
                        "remove it; no argument can hold one",
                    )
                    .at(value.at),
                ),
            },
            Err(error) => self.fail(error),
        }
        Vec::new()
    }

    /// A path with `~` expanded and links followed as far as it exists.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        let text = self.opt_text(key)?;
        match resolve(&text) {
            Ok(path) => Some(path),
            Err(reason) => {
                self.refuse(key, format!("cannot be resolved ({reason})"), "name a path that can be reached");
                None
            }
        }
    }
}

/// A whole number by the rules of contract E.1, before any range.
fn whole(value: &Value) -> Result<i128, String> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^64 by the check before it")]
    match &value.node {
        Node::Int(number) => Ok(*number),
        Node::Bool(_) => Err("must be an integer, not a boolean".into()),
        Node::Float(number) if !number.is_finite() => Err("must be a finite whole number".into()),
        Node::Float(number) if number.fract() != 0.0 => Err("must be a whole number".into()),
        Node::Float(number) if number.abs() < 1e19 => Ok(*number as i128),
        Node::Float(_) | Node::BigInt(_) => Err("is too large".into()),
        Node::Str(text) => proto::text::strict_uint(text, 0..=u64::MAX)
            .map(i128::from)
            .map_err(|reason| format!("must be an integer written in plain digits ({})", rule_of(&reason))),
        Node::Null | Node::Date(_) | Node::Seq(_) | Node::Map(_) => {
            Err(format!("must be an integer, not {}", value.kind()))
        }
    }
}

/// The rule without the value, which the message repeats anyway.
fn rule_of(reason: &proto::text::BadUint) -> &'static str {
    use proto::text::BadUint;
    match reason {
        BadUint::NotDigits(_) => "no sign, blank, underscore or point",
        BadUint::ZeroPadded(_) => "not zero-padded",
        BadUint::OutOfRange { .. } => "at most 18446744073709551615",
    }
}

/// A finite number; a text counts when it is a plain decimal (contract A.4).
pub(super) fn finite(value: &Value) -> Result<f64, String> {
    #[expect(clippy::cast_precision_loss, reason = "bounds and temperatures are small; rounding is Python's own")]
    match &value.node {
        Node::Int(number) => Ok(*number as f64),
        Node::Float(number) if number.is_finite() => Ok(*number),
        Node::Float(_) => Err("must be finite".into()),
        Node::BigInt(_) => Err("is too large".into()),
        Node::Bool(_) => Err("must be a number, not a boolean".into()),
        Node::Str(text) => proto::text::plain_decimal(text)
            .filter(|number| number.is_finite())
            .ok_or_else(|| "must be a number (YAML reads 1e3 as text; write 1000.0 or 1.0e+3)".into()),
        Node::Null | Node::Date(_) | Node::Seq(_) | Node::Map(_) => {
            Err(format!("must be a number, not {}", value.kind()))
        }
    }
}

/// Expands `~` and follows links as Python's `Path.expanduser().resolve()` does: what exists is resolved, the rest is kept.
fn resolve(text: &str) -> std::io::Result<PathBuf> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = std::env::home_dir().ok_or_else(|| std::io::Error::other("no home directory"))?;
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    };
    let mut path = std::path::absolute(path)?;
    let mut rest: Vec<std::ffi::OsString> = Vec::new();
    loop {
        match path.canonicalize() {
            Ok(mut found) => {
                for part in rest.iter().rev() {
                    if part == ".." {
                        found.pop();
                    } else {
                        found.push(part);
                    }
                }
                return utf8(found);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let part = path.components().next_back().map(|c| c.as_os_str().to_owned());
                match (part, path.parent().map(Path::to_path_buf)) {
                    (Some(part), Some(parent)) => {
                        rest.push(part);
                        path = parent;
                    }
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Paths go into arguments and documents, so they must be text.
fn utf8(path: PathBuf) -> std::io::Result<PathBuf> {
    if path.to_str().is_some() { Ok(path) } else { Err(std::io::Error::other("the resolved path is not UTF-8")) }
}
