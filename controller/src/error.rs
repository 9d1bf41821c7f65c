//! The two errors that end a command before anything was measured, and the document that carries either.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::value::{Pos, ReadError, Value};

/// Version of every document the controller writes.
pub const SCHEMA_VERSION: u32 = 1;

/// What every message about a trial's configuration begins with, as in the original workload.
const PREFIX: &str = "tokenspeed_serve: ";

/// The configuration cannot be run as written; exit status 64. Names the key, the value, the rule and the remedy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}{}", place(*.at))]
pub struct ConfigError {
    /// The key, as written; `a.b` inside a mapping. `None` for a text that is no document.
    pub key: Option<String>,
    /// The value; never an environment value or a secret.
    pub value: Option<serde_json::Value>,
    /// Which rule the value breaks.
    pub message: String,
    /// What to do, in one sentence.
    pub hint: String,
    /// Where it stands.
    pub at: Option<Pos>,
}

fn place(at: Option<Pos>) -> String {
    at.map(|at| format!(" ({at})")).unwrap_or_default()
}

impl ConfigError {
    /// `<key> <rule>`, about a value that may be shown.
    pub fn of(key: &str, value: &Value, rule: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self {
            key: Some(key.to_owned()),
            value: Some(value.to_json()),
            message: format!("{PREFIX}{key} {rule}, got {}", value.shown()),
            hint: hint.into(),
            at: Some(value.at),
        }
    }

    /// `<key> <rule>`, without a value: it is absent, secret, or several together.
    pub fn about(key: &str, rule: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self {
            key: Some(key.to_owned()),
            value: None,
            message: format!("{PREFIX}{key} {rule}"),
            hint: hint.into(),
            at: None,
        }
    }

    /// A text that cannot be read at all.
    pub fn unreadable(what: &str, error: &ReadError, hint: impl Into<String>) -> Self {
        Self {
            key: None,
            value: None,
            message: format!("{PREFIX}{what}: {}", error.message),
            hint: hint.into(),
            at: Some(error.at),
        }
    }

    /// A file that cannot be had.
    pub fn no_file(what: &str, reason: impl std::fmt::Display, hint: impl Into<String>) -> Self {
        Self { key: None, value: None, message: format!("{PREFIX}{what}: {reason}"), hint: hint.into(), at: None }
    }

    /// The same error with a place.
    #[must_use]
    pub fn at(mut self, at: Pos) -> Self {
        self.at = Some(at);
        self
    }
}

/// Everything that is wrong with a configuration: at least one error, in the contract's order.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigErrors {
    /// The one that a document carries.
    pub first: ConfigError,
    /// The others.
    pub rest: Vec<ConfigError>,
}

impl ConfigErrors {
    /// From a list; `None` when it is empty.
    pub fn from_list(errors: Vec<ConfigError>) -> Option<Self> {
        let mut errors = errors.into_iter();
        errors.next().map(|first| Self { first, rest: errors.collect() })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(first: ConfigError) -> Self {
        Self { first, rest: Vec::new() }
    }
}

impl std::fmt::Display for ConfigErrors {
    /// A line per error, each followed by its remedy.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, error) in self.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{error}\n  hint: {}", error.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// This host cannot run the trial; exit status 69, nothing was measured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// The key that decides it, where there is one.
    pub key: Option<String>,
    /// The path, port, image or program that it is about.
    pub value: Option<serde_json::Value>,
    /// What is wrong, the system's own words included.
    pub message: String,
    /// What to do, in one sentence.
    pub hint: String,
}

impl HostError {
    /// An error about something nameable.
    pub fn new(
        key: Option<&str>,
        value: impl Into<serde_json::Value>,
        message: impl std::fmt::Display,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            key: key.map(str::to_owned),
            value: Some(value.into()),
            message: format!("{PREFIX}{message}"),
            hint: hint.into(),
        }
    }
}

/// What is written in place of a result when nothing could be started (design section 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDocument {
    /// Version of the documents.
    pub schema_version: u32,
    /// What is wrong.
    pub error: ErrorBody,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The configuration's: exit status 64.
    Config,
    /// The host's: exit status 69.
    Host,
}

/// The error of an [`ErrorDocument`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// Whose fault it is.
    pub kind: ErrorKind,
    /// The key it is about.
    pub key: Option<String>,
    /// Its value, where it may be shown.
    pub value: Option<serde_json::Value>,
    /// Which rule is broken, or what the system said.
    pub message: String,
    /// What to do, in one sentence.
    pub hint: String,
    /// Line in the configuration, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<usize>,
    /// Column in the configuration, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub column: Option<usize>,
}

impl From<&ConfigErrors> for ErrorDocument {
    fn from(errors: &ConfigErrors) -> Self {
        let error = &errors.first;
        Self {
            schema_version: SCHEMA_VERSION,
            error: ErrorBody {
                kind: ErrorKind::Config,
                key: error.key.clone(),
                value: error.value.clone(),
                message: error.message.clone(),
                hint: error.hint.clone(),
                line: error.at.map(|at| at.line),
                column: error.at.map(|at| at.column),
            },
        }
    }
}

impl From<&HostError> for ErrorDocument {
    fn from(error: &HostError) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            error: ErrorBody {
                kind: ErrorKind::Host,
                key: error.key.clone(),
                value: error.value.clone(),
                message: error.message.clone(),
                hint: error.hint.clone(),
                line: None,
                column: None,
            },
        }
    }
}
