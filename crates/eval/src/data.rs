//! Reading and hashing of the data files of tasks. A file contains lines or labeled sentences. Labeled sentences are in
//! a `text,label` table, in `text ⇥ label` lines, or in a folder with the files `seq.in` and `label`.

use std::{io::BufRead, path::Path};

use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::{
    Dialogue,
    formats::{self, Fit},
    input::Input,
    rows::{Dialect, RowError, Rows},
};

/// Maximum length of a row in bytes.
const LONGEST: usize = 1 << 20;
/// Names in a header row that identify the column of the texts.
const TEXTS: [&str; 4] = ["text", "utterance", "sentence", "query"];
const LABELS: [&str; 3] = ["category", "label", "intent"];

/// Calls `f` with the number and the text of each line that is not blank. Line numbers start at 1. Adds the file and
/// the line number to errors that `f` returns.
pub(crate) fn each_line(path: &Path, f: impl FnMut(u64, &str) -> Result<(), String>) -> Result<()> {
    let file = std::fs::File::open(path).at("read", path)?;
    each_line_of(std::io::BufReader::with_capacity(1 << 16, file), path, f)
}

/// Calls `f` for each line of an open reader, as [`each_line`] does for a file. `path` is used only in error messages.
pub(crate) fn each_line_of(
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
        done.map_err(|why| Error::data(format!("{}:{number}: {why}", path.display())))?;
    }
}

/// Returns a hash of the dialogues. The hash does not depend on the names or formats of the dialogue files.
pub fn hash_of_dialogues(dialogues: &[Dialogue]) -> Result<String> {
    hash_of_records(
        dialogues
            .iter()
            .map(|dialogue| serde_json::to_vec(dialogue).map_err(|e| Error::Internal(e.to_string()))),
    )
}

/// Returns a hash of dialogues that are already serialized as JSON. It is the same hash as from [`hash_of_dialogues`].
pub fn hash_of_records(records: impl Iterator<Item = Result<Vec<u8>>>) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for bytes in records {
        let bytes = bytes?;
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Returns a hash of the content of files, in the given order. File names do not affect the hash.
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

/// A sentence, with its intent if the intent is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Text of the sentence.
    pub text: String,
    /// Intent of the speaker; `None` if unknown.
    pub intent: Option<String>,
}

/// Returns whether a path contains labeled sentences: a folder with the file `seq.in`, or a table that is not a
/// dialogue corpus.
pub fn is_labeled(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_ref().and_then(|ending| ending.to_str()) {
        _ if path.is_dir() => path.join("seq.in").is_file(),
        ending => matches!(ending, None | Some("csv" | "tsv" | "txt")) && !is_corpus(path),
    }
}

/// Returns whether a file is in a known dialogue format other than CSV.
fn is_corpus(path: &Path) -> bool {
    let Ok(input) = Input::open(path) else { return false };
    // Any table also matches the CSV format of dialogues, but here a table more likely contains labeled sentences.
    matches!(formats::sniff(&input.probe()), Some((format, Fit::Yes)) if format.name != "csv")
}

/// Reads labeled sentences and returns pairs of a text and a label. Returns an error if there are no sentences.
pub fn labeled(path: &Path) -> Result<Vec<(String, String)>> {
    let sentences = if path.is_dir() {
        let (mut texts, mut labels) = (Vec::new(), Vec::new());
        for (name, lines) in [("seq.in", &mut texts), ("label", &mut labels)] {
            each_line(&path.join(name), |_, text| {
                lines.push(text.to_owned());
                Ok(())
            })?;
        }
        if texts.len() != labels.len() {
            return Err(Error::data(format!(
                "{}: seq.in has {} lines and label has {}",
                path.display(),
                texts.len(),
                labels.len()
            )));
        }
        texts.into_iter().zip(labels).collect()
    } else {
        table(path)?
    };
    if sentences.is_empty() {
        return Err(Error::data(format!("{} contains no labeled sentences", path.display())));
    }
    Ok(sentences)
}

fn table(path: &Path) -> Result<Vec<(String, String)>> {
    let file = std::fs::File::open(path).at("read", path)?;
    let comma = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    let dialect = if comma { Dialect::CSV } else { Dialect { quotes: false, ..Dialect::TSV } };
    let mut rows = Rows::new(std::io::BufReader::new(file), dialect, LONGEST);
    let error = |line: u64, why: &str| {
        Error::data(format!("{}:{line}: {why}", path.display())).with_hint(
            "a row needs a text and a label, separated by a comma in .csv files and by a tab in others",
        )
    };
    let (mut sentences, mut columns) = (Vec::new(), (0, 1));
    let mut first = true;
    while let Some(row) = rows.next_row() {
        let row = row.map_err(|e| match e {
            RowError::TooLong { line, .. } | RowError::TooWide { line } => {
                error(line, "this row is too long for a sentence")
            }
            RowError::Unclosed { line } => error(line, "a quote that starts on this line is not closed"),
            RowError::Broken { source, .. } => Error::Io { action: "read", path: path.to_owned(), source },
        })?;
        if row.is_blank() {
            continue;
        }
        let cell = |at: usize| {
            let bytes =
                row.cell(at).ok_or_else(|| error(row.line, "this row needs both a text and a label"))?;
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| error(row.line, "invalid UTF-8"))
        };
        if std::mem::take(&mut first) {
            let names: Vec<String> =
                (0..row.width()).map(|at| cell(at).map(|c| c.to_lowercase())).collect::<Result<_>>()?;
            let place = |known: &[&str]| names.iter().position(|name| known.contains(&name.trim()));
            if let (Some(text), Some(label)) = (place(&TEXTS), place(&LABELS)) {
                columns = (text, label);
                continue;
            }
        }
        sentences.push((cell(columns.0)?, cell(columns.1)?));
    }
    Ok(sentences)
}
