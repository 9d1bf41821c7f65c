//! The prompt file: the corpus of the mixed-load harness (spec `variadic-harness` B.2), with two optional keys of our
//! own per entry, `output_len` and `prompt_len`, for prompts made by token count.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Identity in the corpus.
    pub id: String,
    /// Band, `?` when the corpus names none.
    pub band: String,
    /// The text.
    pub text: String,
    /// Tokens to ask for, where the prompt brings its own.
    pub output_len: Option<u64>,
    /// Tokens of the text, where its maker counted them.
    pub prompt_len: Option<u64>,
}

/// One entry of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    #[serde(default)]
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    band: Option<String>,
    conversations: Vec<Turn>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_len: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt_len: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Turn {
    from: String,
    value: String,
}

/// A prompt file that cannot serve a leg.
#[derive(Debug, thiserror::Error)]
pub enum BadPrompts {
    /// Not to be read.
    #[error("--dataset {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a corpus.
    #[error("--dataset {path:?} is not a corpus (an array of objects with `conversations`): {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// An entry without a human turn.
    #[error("--dataset {path:?}: entry {index} has no turn from \"human\"")]
    NoHuman {
        /// The file.
        path: PathBuf,
        /// From 0.
        index: usize,
    },
    /// The process that makes prompts could not be run.
    #[error("the process that makes the prompts: {source}")]
    Maker {
        /// Why.
        source: std::io::Error,
    },
    /// It made none.
    #[error("no prompts were made, {status}; the lines above say why")]
    NotMade {
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// Too few.
    #[error(
        "--dataset {path:?} holds {have} prompts, and {warmup} warm-up + {measured} measured requests need {}; \
         build a larger corpus or lower --num-prompts", warmup + measured
    )]
    TooFew {
        /// The file.
        path: PathBuf,
        /// Entries.
        have: usize,
        /// Warm-up requests.
        warmup: usize,
        /// Measured requests.
        measured: usize,
    },
}

impl Entry {
    /// An entry for a prompt.
    pub fn new(prompt: Prompt) -> Self {
        Self {
            id: prompt.id,
            band: (prompt.band != "?").then_some(prompt.band),
            conversations: vec![Turn { from: "human".to_owned(), value: prompt.text }],
            output_len: prompt.output_len,
            prompt_len: prompt.prompt_len,
        }
    }
}

/// Reads the first `warmup + measured` prompts of a corpus.
pub fn read(path: &Path, warmup: usize, measured: usize) -> Result<Vec<Prompt>, BadPrompts> {
    let bytes = std::fs::read(path).map_err(|source| BadPrompts::Read { path: path.to_path_buf(), source })?;
    parse(&bytes, path, warmup, measured)
}

/// The same from bytes in memory; `path` names them in errors.
pub fn parse(bytes: &[u8], path: &Path, warmup: usize, measured: usize) -> Result<Vec<Prompt>, BadPrompts> {
    let path = path.to_path_buf();
    let entries: Vec<Entry> =
        serde_json::from_slice(bytes).map_err(|source| BadPrompts::Parse { path: path.clone(), source })?;
    let have = entries.len();
    if have < warmup.saturating_add(measured) {
        return Err(BadPrompts::TooFew { path, have, warmup, measured });
    }
    let mut prompts = Vec::with_capacity(warmup + measured);
    for (index, entry) in entries.into_iter().take(warmup + measured).enumerate() {
        let text = entry.conversations.into_iter().find(|turn| turn.from == "human").map(|turn| turn.value);
        let Some(text) = text else { return Err(BadPrompts::NoHuman { path, index }) };
        prompts.push(Prompt {
            id: entry.id,
            band: entry.band.unwrap_or_else(|| "?".to_owned()),
            text,
            output_len: entry.output_len,
            prompt_len: entry.prompt_len,
        });
    }
    Ok(prompts)
}
