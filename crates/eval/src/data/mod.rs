//! Readers of the tasks' data files.

mod beir;
mod labelled;
mod response;
mod select;
mod sts;

use std::{io::BufRead, path::Path};

pub use beir::ad_hoc;
pub use labelled::{Sentence, is_labelled, labelled};
pub use response::response_selection;
pub use select::{semantic_retrieval, semantic_retrieval_of, sentences};
pub use sts::sentence_pairs;

use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::Dialogue;

/// Calls `f` for each line that is not blank, with its line number from 1. Errors of `f` are reported with the line.
pub(super) fn each_line(path: &Path, f: impl FnMut(u64, &str) -> Result<(), String>) -> Result<()> {
    let file = std::fs::File::open(path).at("read", path)?;
    each_line_of(std::io::BufReader::with_capacity(1 << 16, file), path, f)
}

/// Same as [`each_line`] for an open reader; `path` is only used in messages.
fn each_line_of(
    mut reader: impl BufRead,
    path: &Path,
    mut f: impl FnMut(u64, &str) -> Result<(), String>,
) -> Result<()> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).at("read", path)? == 0 {
            return Ok(());
        }
        number += 1;
        let text = std::str::from_utf8(&line).map_err(|_| "invalid UTF-8".to_owned());
        let done = text.and_then(|text| {
            let text = text.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
            if text.trim().is_empty() { Ok(()) } else { f(number, text) }
        });
        done.map_err(|why| Error::Data {
            message: format!("{}:{number}: {why}", path.display()),
            hint: None,
        })?;
    }
}

/// Hash of dialogues, independent of the files that they come from.
pub fn hash_of_dialogues(dialogues: &[Dialogue]) -> Result<String> {
    hash_of_records(
        dialogues
            .iter()
            .map(|dialogue| serde_json::to_vec(dialogue).map_err(|e| Error::Internal(e.to_string()))),
    )
}

/// Same as [`hash_of_dialogues`] for serialized dialogues.
pub fn hash_of_records(records: impl Iterator<Item = Result<Vec<u8>>>) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for bytes in records {
        let bytes = bytes?;
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Hash of the files' content, without their names.
pub fn hash(paths: &[impl AsRef<Path>]) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let file = std::fs::File::open(path).at("read", path)?;
        let mut of_file = blake3::Hasher::new();
        of_file.update_reader(file).at("read", path)?;
        hasher.update(of_file.finalize().as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}
