//! The one kind of error that ends a trial before anything was started: exit 64 (contract A).

use std::fmt;

/// When a rule is judged (contract A.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before the output directory.
    BeforeOutDir,
    /// After the output directory and the way to `tokenspeed`.
    Counts,
}

/// A setting that cannot be run as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError {
    /// The setting: a `TS_*` name, or what the contract calls it.
    pub name: String,
    /// What is wrong, value included.
    pub problem: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// When it is judged.
    pub stage: Stage,
}

impl UsageError {
    /// An error without a hint.
    pub fn new(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { name: name.into(), problem: problem.into(), hint: None, stage: Stage::BeforeOutDir }
    }

    /// The same, judged with the counts.
    #[must_use]
    pub fn late(mut self) -> Self {
        self.stage = Stage::Counts;
        self
    }

    /// The same with a remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "usage {} {}", self.name, self.problem)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}

impl std::error::Error for UsageError {}
