//! Builds tokenizers from the vocabulary files of older models without `tokenizer.json`.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde_json::{Map, Value, json};
use turnwise_core::error::{Error, Result};

use crate::folder::config;

/// Builds a WordPiece tokenizer from `vocab.txt`, with one token per line.
pub fn word_pieces(path: &Path, names: &BTreeMap<String, String>) -> Result<tokenizers::Tokenizer> {
    let text = fs::read_to_string(path).map_err(|e| unreadable(path, e))?;
    let lines = text.lines();
    let vocabulary: Map<String, Value> = (0..).zip(lines).map(|(id, l)| (l.to_owned(), json!(id))).collect();
    build(path, names, vocabulary, |vocabulary| {
        json!({
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true,
            },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            "model": {
                "type": "WordPiece", "unk_token": names.get("unk_token"),
                "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary,
            },
        })
    })
}

/// Builds a byte-level BPE tokenizer from `vocab.json` and `merges.txt`. If `space` is true, the tokenizer adds a space
/// before every text.
pub fn byte_pairs(
    path: &Path,
    names: &BTreeMap<String, String>,
    space: bool,
) -> Result<tokenizers::Tokenizer> {
    let vocabulary = config::parse::<Map<String, Value>>(path)?.unwrap_or_default();
    let merges_file = path.with_file_name("merges.txt");
    let merges = fs::read_to_string(&merges_file).map_err(|e| unreadable(&merges_file, e))?;
    let merges: Vec<&str> = merges.lines().filter(|l| !l.starts_with("#version") && !l.is_empty()).collect();
    build(path, names, vocabulary, |vocabulary| {
        json!({
            "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true },
            "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
                "end_of_word_suffix": "", "fuse_unk": false, "vocab": vocabulary, "merges": merges,
            },
        })
    })
}

/// Builds a tokenizer from a vocabulary. `parts` returns the tokenizer as JSON, but without the special tokens. A
/// special token in `names` is ignored if it is not in the vocabulary.
fn build(
    path: &Path,
    names: &BTreeMap<String, String>,
    vocabulary: Map<String, Value>,
    parts: impl FnOnce(Map<String, Value>) -> Value,
) -> Result<tokenizers::Tokenizer> {
    let mut added: Vec<(u64, &String)> =
        names.values().filter_map(|token| Some((vocabulary.get(token)?.as_u64()?, token))).collect();
    added.sort();
    added.dedup();
    let added: Vec<Value> = added
        .into_iter()
        .map(|(id, token)| {
            json!({
                "id": id, "content": token, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
        .collect();
    let mut whole = parts(vocabulary);
    whole["version"] = json!("1.0");
    whole["added_tokens"] = json!(added);
    whole["truncation"] = Value::Null;
    whole["padding"] = Value::Null;
    whole["post_processor"] = Value::Null;
    serde_json::from_value(whole)
        .map_err(|e| Error::data(format!("{}: invalid vocabulary: {e}", path.display())))
}

fn unreadable(path: &Path, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::InvalidData => Error::data(format!("{}: not valid UTF-8", path.display())),
        io::ErrorKind::NotFound => Error::data(format!("{} is missing", path.display()))
            .with_hint("download all files of the model again"),
        _ => Error::Io { action: "read", path: path.to_owned(), source: e },
    }
}
