//! A tokenizer that needs no download, and conversations in its words: `w0000` to `w4092`, one word is one token, as
//! the stand-in counts them and as `tests/python/make_tokenizer.py` writes it for the real tool.

use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Writes `tokenizer.json` into a folder that is made for it; the folder.
///
/// # Panics
/// When the file system does not allow it.
pub fn tokenizer(below: &Path) -> PathBuf {
    let special = ["<unk>", "<s>", "</s>"];
    let words = special.into_iter().map(str::to_owned).chain((0..4093).map(|i| format!("w{i:04}")));
    let vocab: Map<String, Value> = words.enumerate().map(|(id, word)| (word, json!(id))).collect();
    let added: Vec<Value> = special.iter().enumerate().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
    }).collect();
    let file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}});
    let folder = below.join("tokenizer");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("tokenizer.json"), file.to_string()).expect("a tokenizer");
    folder
}

/// Writes a ShareGPT file: a question of `5 + i` words and an answer of `6 + i` for each conversation.
///
/// # Panics
/// When the file system does not allow it.
pub fn conversations(below: &Path, count: usize) -> PathBuf {
    let said = |words: usize| vec!["w0007"; words].join(" ");
    let items: Vec<Value> = (0..count)
        .map(|i| json!({"id": format!("c{i}"), "conversations": [{"from": "human", "value": said(5 + i)}, {"from": "gpt", "value": said(6 + i)}]}))
        .collect();
    let file = below.join("conversations.json");
    std::fs::write(&file, json!(items).to_string()).expect("conversations");
    file
}
