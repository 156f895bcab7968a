//! Labeled sentences: `text,label` tables, `text ⇥ label` lines, or a folder with the files `seq.in` and `label`.

use std::path::Path;

use super::each_line;
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::{
    formats::{self, Fit},
    input::Input,
    rows::{Dialect, RowError, Rows},
};

/// Longest row in bytes.
const LONGEST: usize = 1 << 20;
/// Recognized column names in a header row.
const TEXTS: [&str; 4] = ["text", "utterance", "sentence", "query"];
const LABELS: [&str; 3] = ["category", "label", "intent"];

/// Sentence with its intent, if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Text of the sentence.
    pub text: String,
    /// Intent of the speaker.
    pub intent: Option<String>,
}

/// Whether a path contains labeled sentences rather than dialogues: a table, by its extension, or a folder with
/// `seq.in`.
pub fn is_labelled(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    match ending.as_ref().and_then(|ending| ending.to_str()) {
        _ if path.is_dir() => path.join("seq.in").is_file(),
        ending => matches!(ending, None | Some("csv" | "tsv" | "txt")) && !is_corpus(path),
    }
}

/// Whether a table is a dialogue corpus in a recognizable format, and its first two columns are not text and label.
fn is_corpus(path: &Path) -> bool {
    let Ok(input) = Input::open(path) else { return false };
    // Any table also matches the CSV corpus format, but here it is more likely labeled sentences.
    matches!(formats::sniff(&input.probe()), Some((format, Fit::Yes)) if format.name() != "csv")
}

/// Reads sentences with their labels.
pub fn labelled(path: &Path) -> Result<Vec<(String, String)>> {
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
    let error = |line: u64, why: &str| Error::Data {
        message: format!("{}:{line}: {why}", path.display()),
        hint: Some(
            "a row needs a text and a label, separated by a comma in .csv files and by a tab in others"
                .to_owned(),
        ),
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
