//! The tokenizer that prompts are made with: where its file is, and what is asked of it. No network: a tokenizer is a
//! folder, a file, or an id whose model lies in the Hugging Face cache. Without the cargo feature `tokenizer` no file
//! can be read, and everything that needs one says so.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file that holds a whole tokenizer.
const FILE: &str = "tokenizer.json";

/// A tokenizer that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTokenizer {
    /// Its file is not where it has to be.
    #[error("tokenizer {name:?}: {} is not there; {hint}", looked.display())]
    Missing {
        /// As asked for.
        name: String,
        /// Where its file was looked for.
        looked: PathBuf,
        /// What to do.
        hint: &'static str,
    },
    /// Neither a path nor an id.
    #[error("tokenizer {0:?} is neither a path nor an id like Qwen/Qwen3-0.6B")]
    Name(String),
    /// The file is no tokenizer, or cannot do what is asked.
    #[error("tokenizer {}: {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Left out of this build.
    #[error("this build reads no tokenizer; build the agent with its cargo feature `tokenizer`, or give --dataset")]
    NotBuilt,
}

/// Whether this build can read one.
pub const BUILT: bool = cfg!(feature = "tokenizer");

/// Whether a name means a place in the file system rather than an id.
pub fn is_path(name: &str) -> bool {
    name.starts_with(['/', '.', '~']) || Path::new(name).exists()
}

/// The file of a tokenizer; `variable` reads the environment.
///
/// As the Hugging Face libraries look offline: `HF_HUB_CACHE`, else `HF_HOME/hub`, else
/// `$XDG_CACHE_HOME/huggingface/hub` or `~/.cache/huggingface/hub`; there the revision that `refs/main` names.
pub fn locate(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoTokenizer> {
    let missing = |looked: PathBuf, hint| NoTokenizer::Missing { name: name.to_owned(), looked, hint };
    let path = Path::new(name);
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    if is_path(name) {
        let file = path.join(FILE);
        let hint = "give a folder with tokenizer.json, or the file itself";
        return if file.is_file() { Ok(file) } else { Err(missing(file, hint)) };
    }
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |part: &&str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) && *part != ".."
    };
    if parts.len() > 2 || !parts.iter().all(plain) {
        return Err(NoTokenizer::Name(name.to_owned()));
    }
    let hint = "nothing is downloaded: fill the cache (HF_HOME) first, or name a folder with tokenizer.json";
    let model = hub(&variable).join(format!("models--{}", parts.join("--")));
    let reference = model.join("refs/main");
    let revision = std::fs::read_to_string(&reference).map_err(|_| missing(reference, hint))?;
    let file = model.join("snapshots").join(revision.trim()).join(FILE);
    if file.is_file() { Ok(file) } else { Err(missing(file, hint)) }
}

fn hub(variable: &impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || {
        let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        cache.unwrap_or_else(|| PathBuf::from("/root/.cache")).join("huggingface")
    };
    set("HF_HUB_CACHE").unwrap_or_else(|| set("HF_HOME").unwrap_or_else(home).join("hub"))
}

#[cfg(feature = "tokenizer")]
pub use built::Tokens;
#[cfg(not(feature = "tokenizer"))]
pub use left_out::Tokens;

#[cfg(feature = "tokenizer")]
mod built {
    use super::{NoTokenizer, Path, PathBuf};
    use tokenizers::{PostProcessor as _, Tokenizer};

    /// A tokenizer in memory.
    #[derive(Debug)]
    pub struct Tokens {
        path: PathBuf,
        tokenizer: Tokenizer,
        plain: Vec<u32>,
    }

    impl Tokens {
        /// Reads a tokenizer's file.
        pub fn open(path: &Path) -> Result<Self, NoTokenizer> {
            let unusable = |why: String| NoTokenizer::Unusable { path: path.to_path_buf(), why };
            let mut tokenizer = Tokenizer::from_file(path).map_err(|error| unusable(error.to_string()))?;
            // A file may bring limits of its own, for another purpose than counting.
            tokenizer.with_truncation(None).map_err(|error| unusable(error.to_string()))?;
            tokenizer.with_padding(None);
            let special: Vec<u32> =
                tokenizer.get_added_tokens_decoder().into_iter().filter(|(_, t)| t.special).map(|(id, _)| id).collect();
            let size = u32::try_from(tokenizer.get_vocab_size(false)).unwrap_or(u32::MAX);
            let plain: Vec<u32> =
                (0..size).filter(|id| !special.contains(id) && tokenizer.id_to_token(*id).is_some()).collect();
            if plain.is_empty() {
                return Err(unusable("its vocabulary holds nothing but special tokens".to_owned()));
            }
            Ok(Self { path: path.to_path_buf(), tokenizer, plain })
        }

        /// Every token that is not special.
        pub fn plain(&self) -> &[u32] {
            &self.plain
        }

        /// Special tokens that the server will add to a prompt.
        pub fn added_to_prompt(&self) -> usize {
            self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false))
        }

        /// The tokens of a text, without special ones.
        pub fn encode(&self, text: &str) -> Result<Vec<u32>, NoTokenizer> {
            let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| self.unusable(&*error))?;
            Ok(encoding.get_ids().to_vec())
        }

        /// The text of tokens.
        pub fn decode(&self, ids: &[u32]) -> Result<String, NoTokenizer> {
            self.tokenizer.decode(ids, false).map_err(|error| self.unusable(&*error))
        }

        fn unusable(&self, error: &dyn std::error::Error) -> NoTokenizer {
            NoTokenizer::Unusable { path: self.path.clone(), why: error.to_string() }
        }
    }
}

#[cfg(not(feature = "tokenizer"))]
mod left_out {
    use super::{NoTokenizer, Path};

    /// No tokenizer: there is no value of this type.
    #[derive(Debug)]
    pub enum Tokens {}

    impl Tokens {
        /// Says that it is left out.
        pub const fn open(_: &Path) -> Result<Self, NoTokenizer> {
            Err(NoTokenizer::NotBuilt)
        }

        /// Every token that is not special.
        pub const fn plain(&self) -> &[u32] {
            match *self {}
        }

        /// Special tokens that the server will add to a prompt.
        pub const fn added_to_prompt(&self) -> usize {
            match *self {}
        }

        /// The tokens of a text, without special ones.
        pub const fn encode(&self, _: &str) -> Result<Vec<u32>, NoTokenizer> {
            match *self {}
        }

        /// The text of tokens.
        pub const fn decode(&self, _: &[u32]) -> Result<String, NoTokenizer> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_tokenizer_is_a_file_a_folder_or_in_the_cache() {
        let home = tempfile::tempdir().unwrap();
        let none = |_: &str| None;
        let folder = home.path().join("model");
        fs::create_dir(&folder).unwrap();
        let name = folder.to_str().unwrap();
        let error = locate(name, none).unwrap_err().to_string();
        assert!(error.contains("model/tokenizer.json is not there"), "{error}");
        fs::write(folder.join(FILE), "{}").unwrap();
        assert_eq!(locate(name, none).unwrap(), folder.join(FILE));
        assert_eq!(locate(&format!("{name}/{FILE}"), none).unwrap(), folder.join(FILE));

        let hf = |name: &str| (name == "HF_HOME").then(|| home.path().as_os_str().to_owned());
        let model = home.path().join("hub/models--Org--Some-Model_1.5");
        let error = locate("Org/Some-Model_1.5", hf).unwrap_err().to_string();
        assert!(error.contains("hub/models--Org--Some-Model_1.5/refs/main is not there"), "{error}");
        fs::create_dir_all(model.join("refs")).unwrap();
        fs::write(model.join("refs/main"), "abc\n").unwrap();
        let error = locate("Org/Some-Model_1.5", hf).unwrap_err().to_string();
        assert!(error.contains("snapshots/abc/tokenizer.json is not there"), "{error}");
        fs::create_dir_all(model.join("snapshots/abc")).unwrap();
        fs::write(model.join("snapshots/abc").join(FILE), "{}").unwrap();
        assert_eq!(locate("Org/Some-Model_1.5", hf).unwrap(), model.join("snapshots/abc").join(FILE));
        let hub = |name: &str| (name == "HF_HUB_CACHE").then(|| home.path().join("hub").into_os_string());
        assert!(locate("Org/Some-Model_1.5", hub).is_ok());
        for bad in ["a/b/c", "a/../b", "a b", ""] {
            assert!(matches!(locate(bad, hf), Err(NoTokenizer::Name(_))), "{bad}");
        }
    }
}
