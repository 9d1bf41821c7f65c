//! Prompts by token count, made by a short-lived process of its own before anything is sent: `agent load
//! --make-prompts OUT`. The measuring client starts it, reads what it wrote, and never holds a tokenizer (design
//! section 7). What is drawn is what the engine's own bench tool draws, by the same rules, from another generator.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::load::draws::Draws;
use crate::load::prompts::{self, BadPrompts, Prompt};
use crate::load::tokenizer::{self, NoTokenizer, Tokens};

/// Tries to make a random prompt of exactly the wanted length, as the engine's bench tool has them.
const TRIES: usize = 10;
/// Tokens that question and answer of a conversation must have at least, likewise.
const SHORTEST: usize = 4;

/// Prompts that have to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Making {
    /// Folder, file or id of the tokenizer.
    pub tokenizer: String,
    /// From what.
    #[serde(flatten)]
    pub of: Material,
    /// Seed of the draw.
    pub seed: i64,
}

/// What prompts are made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Material {
    /// Neighbouring tokens from a random place of the vocabulary.
    RandomInputLen(usize),
    /// Conversations of a ShareGPT file.
    Sharegpt(PathBuf),
}

/// Prompts that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BadMaking {
    /// No tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] NoTokenizer),
    /// Nothing would be left of a prompt.
    #[error("--random-input-len {asked}: the tokenizer adds {added} tokens of its own; ask for at least {}", added + 1)]
    TooShort {
        /// As asked.
        asked: usize,
        /// By the tokenizer.
        added: usize,
    },
    /// Not to be read.
    #[error("--sharegpt {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not a ShareGPT file.
    #[error("--sharegpt {path:?} is no array of conversations: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Too few.
    #[error(
        "--sharegpt {path:?} holds {have} conversations whose first two turns have {SHORTEST} tokens or more, and \
         {wanted} requests are asked for; lower the number of prompts"
    )]
    TooFew {
        /// The file.
        path: PathBuf,
        /// Usable ones.
        have: usize,
        /// As asked.
        wanted: usize,
    },
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(default, alias = "conversation")]
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

impl Making {
    /// Makes prompts in this process: the warm-up ones first, as a leg reads them. The measured ones do not depend on
    /// the number of warm-up requests.
    pub fn make(&self, warmup: usize, measured: usize) -> Result<Vec<Prompt>, BadMaking> {
        let tokens = Tokens::open(&tokenizer::locate(&self.tokenizer, |name| std::env::var_os(name))?)?;
        let mut draws = Draws::new(self.seed.cast_unsigned());
        let mut made = match &self.of {
            Material::RandomInputLen(len) => random(&tokens, &mut draws, *len, measured + warmup)?,
            Material::Sharegpt(path) => sharegpt(&tokens, &mut draws, path, measured, warmup)?,
        };
        made.rotate_left(measured);
        Ok(made)
    }

    /// Has them made by another process of this program.
    pub fn make_elsewhere(&self, warmup: usize, measured: usize) -> Result<Vec<Prompt>, BadPrompts> {
        let failed = |source| BadPrompts::Maker { source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["load", "--make-prompts", "-", "--tokenizer", &self.tokenizer]);
        match &self.of {
            Material::RandomInputLen(len) => command.arg("--random-input-len").arg(len.to_string()),
            Material::Sharegpt(path) => command.arg("--sharegpt").arg(path),
        };
        command.args(["--seed", &self.seed.to_string(), "--warmup", &warmup.to_string()]);
        command.args(["--num-prompts", &measured.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut bytes = Vec::new();
        let read = child.stdout.take().map_or(Ok(0), |mut out| out.read_to_end(&mut bytes));
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            return Err(BadPrompts::NotMade { status });
        }
        read.map_err(failed)?;
        prompts::parse(&bytes, Path::new("-"), warmup, measured)
    }
}

fn prompt(kind: &str, index: usize, text: String, prompt_len: usize, output_len: Option<usize>) -> Prompt {
    Prompt {
        id: format!("{kind}-{index:05}"),
        band: "?".to_owned(),
        text,
        output_len: output_len.map(|len| len as u64),
        prompt_len: Some(prompt_len as u64),
    }
}

fn random(tokens: &Tokens, draws: &mut Draws, len: usize, count: usize) -> Result<Vec<Prompt>, BadMaking> {
    let added = tokens.added_to_prompt();
    let Some(target) = len.checked_sub(added).filter(|target| *target > 0) else {
        return Err(BadMaking::TooShort { asked: len, added });
    };
    let plain = tokens.plain();
    let (mut made, mut odd) = (Vec::with_capacity(count), 0);
    for index in 0..count {
        let offset = draws.below(plain.len()) + index;
        let ids = (0..target).map(|at| plain[(offset + at) % plain.len()]).collect();
        let (text, length) = settle(tokens, draws, ids, target)?;
        odd += usize::from(length != target);
        made.push(prompt("random", index, text, length + added, None));
    }
    if odd > 0 {
        eprintln!(
            "agent load: {odd} of {count} prompts have not exactly {len} tokens: they do not survive re-encoding"
        );
    }
    Ok(made)
}

/// A text that has `target` tokens when it is encoded again, or nearly so after all tries; and how many it has.
fn settle(
    tokens: &Tokens,
    draws: &mut Draws,
    mut ids: Vec<u32>,
    target: usize,
) -> Result<(String, usize), NoTokenizer> {
    let mut tries = TRIES;
    loop {
        let text = tokens.decode(&ids)?;
        ids = tokens.encode(&text)?;
        if ids.len() == target || tries == 0 {
            return Ok((text, ids.len()));
        }
        tries -= 1;
        ids.truncate(target);
        let plain = tokens.plain();
        ids.extend((ids.len()..target).map(|_| plain[draws.below(plain.len())]));
    }
}

fn sharegpt(
    tokens: &Tokens,
    draws: &mut Draws,
    path: &Path,
    measured: usize,
    warmup: usize,
) -> Result<Vec<Prompt>, BadMaking> {
    let path = path.to_path_buf();
    let bytes = std::fs::read(&path).map_err(|source| BadMaking::Read { path: path.clone(), source })?;
    let all: Vec<Conversation> =
        serde_json::from_slice(&bytes).map_err(|source| BadMaking::Parse { path: path.clone(), source })?;
    drop(bytes);
    let pairs = all.into_iter().filter_map(|conversation| {
        let mut turns = conversation.conversations.into_iter();
        Some((turns.next()?.value, turns.next()?.value))
    });
    let mut pairs: Vec<(String, String)> = pairs.collect();
    draws.shuffle(&mut pairs);
    let (mut made, added) = (Vec::new(), tokens.added_to_prompt());
    for (question, answer) in pairs {
        if made.len() == measured + warmup {
            break;
        }
        let (asked, answered) = (tokens.encode(&question)?.len() + added, tokens.encode(&answer)?.len() + added);
        if asked >= SHORTEST && answered >= SHORTEST {
            made.push(prompt("sharegpt", made.len(), question, asked, Some(answered)));
        }
    }
    let have = made.len();
    if have < measured || have == 0 {
        return Err(BadMaking::TooFew { path, have, wanted: measured });
    }
    // A file that has just enough warms up on its first conversations.
    for index in have..measured + warmup {
        made.push(made[(index - have) % have].clone());
    }
    Ok(made)
}

#[cfg(test)]
#[cfg(feature = "tokenizer")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// One word, one token: w0000 to w0099, and two special ones; `<s>` is added to every prompt if asked for.
    fn words(dir: &Path, begins: bool) -> String {
        let mut vocab = serde_json::Map::new();
        for (id, word) in
            ["<unk>", "<s>"].into_iter().map(str::to_owned).chain((0..100).map(|i| format!("w{i:04}"))).enumerate()
        {
            vocab.insert(word, json!(id));
        }
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
        };
        let post = begins.then(|| {
            json!({"type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})
        });
        let file = json!({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "added_tokens": [special(0, "<unk>"), special(1, "<s>")], "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": post, "decoder": null,
            "model": {"type": "WordLevel", "vocab": Value::Object(vocab), "unk_token": "<unk>"}});
        let path = dir.join("tokenizer.json");
        std::fs::write(&path, file.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn making(tokenizer: String, of: Material) -> Making {
        Making { tokenizer, of, seed: 5 }
    }

    #[test]
    fn random_prompts_have_their_length_and_no_special_token() {
        let dir = tempfile::tempdir().unwrap();
        for begins in [false, true] {
            let making = making(words(dir.path(), begins), Material::RandomInputLen(12));
            let made = making.make(3, 40).unwrap();
            assert_eq!(made.len(), 43);
            for prompt in &made {
                // With a special token at the front the server counts twelve as well.
                assert_eq!(prompt.text.split(' ').count(), if begins { 11 } else { 12 });
                assert_eq!((prompt.prompt_len, prompt.output_len), (Some(12), None));
                assert!(!prompt.text.contains('<'), "{}", prompt.text);
            }
            assert_eq!(made[3..], making.make(9, 40).unwrap()[9..], "whatever the warm-up");
            let other = Making { seed: 6, ..making };
            assert_ne!(made, other.make(3, 40).unwrap());
        }
        let short = making(words(dir.path(), true), Material::RandomInputLen(1));
        assert!(matches!(short.make(0, 1), Err(BadMaking::TooShort { asked: 1, added: 1 })));
    }

    #[test]
    fn conversations_bring_their_own_lengths() {
        let dir = tempfile::tempdir().unwrap();
        let tokenizer = words(dir.path(), false);
        let said = |words: usize| vec!["w0001"; words].join(" ");
        let talk = |a: usize, b: usize| {
            json!({"id": "x", "conversations": [{"from": "human", "value": said(a)},
            {"from": "gpt", "value": said(b)}, {"from": "human", "value": "more"}]})
        };
        let items = [
            talk(5, 6),
            talk(3, 9),
            talk(9, 3),
            talk(7, 4),
            json!({"conversations": []}),
            json!({"conversation": [{"value": said(8)}, {"value": said(8)}]}),
        ];
        let path = dir.path().join("talks.json");
        std::fs::write(&path, json!(items).to_string()).unwrap();
        let making = making(tokenizer, Material::Sharegpt(path));
        let made = making.make(2, 3).unwrap();
        assert_eq!(made[..2], made[2..4], "warm-up starts over where the file has just enough");
        let mut lengths: Vec<_> = made[2..].iter().map(|p| (p.prompt_len.unwrap(), p.output_len.unwrap())).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [(5, 6), (7, 4), (8, 8)]);
        assert!(matches!(making.make(0, 4), Err(BadMaking::TooFew { have: 3, wanted: 4, .. })));
    }
}
