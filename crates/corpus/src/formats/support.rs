//! Shared code of the readers: converts lines and JSON elements to dialogues and problems.

use std::{
    io::Read,
    path::{Path, absolute},
};

use serde::de::DeserializeOwned;

use crate::formats::prelude::*;

/// Reason for rejecting a record, with the id of the record if known. [`RecordError::at`] adds file and line.
#[derive(Debug)]
pub(crate) struct RecordError {
    id: Option<String>,
    reason: String,
}

impl RecordError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        RecordError { id: None, reason: reason.into() }
    }

    pub(crate) fn with_id(mut self, id: Option<impl Into<String>>) -> Self {
        self.id = id.map(Into::into);
        self
    }

    pub(crate) fn at(self, path: &str, line: u64) -> Problem {
        let RecordError { id, reason } = self;
        Problem::Record(Reject { path: path.to_owned(), line: Some(line), id, reason })
    }
}

impl From<String> for RecordError {
    fn from(reason: String) -> Self {
        RecordError::new(reason)
    }
}

impl From<&str> for RecordError {
    fn from(reason: &str) -> Self {
        RecordError::new(reason)
    }
}

impl From<Error> for RecordError {
    fn from(e: Error) -> Self {
        RecordError::new(e.to_string())
    }
}

impl From<serde_json::Error> for RecordError {
    fn from(e: serde_json::Error) -> Self {
        RecordError::new(json_reason(&e))
    }
}

/// Formats a JSON error with the column, but without the line. The line number in the error counts from the start of
/// the record, not of the file.
pub(crate) fn json_reason(e: &serde_json::Error) -> String {
    use serde_json::error::Category::{Eof, Syntax};
    let text = e.to_string();
    let (what, column) = match text.rsplit_once(" at line ") {
        Some((what, position)) => (what, position.rsplit_once(' ').map_or("0", |(_, column)| column)),
        None => (text.as_str(), "0"),
    };
    let what = match e.classify() {
        Syntax if what.contains("recursion limit") => "JSON is nested deeper than 128 levels".to_owned(),
        Syntax => format!("not valid JSON: {what}"),
        Eof => "not valid JSON: it ends early".to_owned(),
        _ => what.to_owned(),
    };
    if column == "0" { what } else { format!("{what} at column {column}") }
}

/// Parses a JSON record. An error contains the id from the field `id_field` of the record, if this id could be read.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8], id_field: &str) -> Result<T, RecordError> {
    serde_json::from_slice(json).map_err(|e| RecordError::from(e).with_id(id_in(json, id_field)))
}

/// Returns the string in a field of a JSON object. Returns `None` if the JSON is invalid or has no such string.
pub(crate) fn id_in(json: &[u8], field: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_slice(json).ok()?;
    record.get(field)?.as_str().map(str::to_owned)
}

/// Validates a dialogue and numbers its turns.
pub(crate) fn checked(mut dialogue: Dialogue) -> Result<Dialogue, RecordError> {
    match dialogue.check() {
        Ok(()) => Ok(dialogue),
        Err(reason) => Err(RecordError::new(reason).with_id(Some(dialogue.id.as_str()))),
    }
}

/// Validates the dialogue of a record, and adds file and line to an error. Returns `None` if `record` is `Ok(None)`,
/// that is, if the record was skipped.
pub(crate) fn finished(
    record: Result<Option<Dialogue>, RecordError>,
    path: &str,
    line: u64,
) -> Option<Result<Dialogue, Problem>> {
    let dialogue = record.and_then(|dialogue| dialogue.map(checked).transpose());
    dialogue.map_err(|e| e.at(path, line)).transpose()
}

/// Returns the id of a record. If the id is empty or missing, returns a generated id (see [`generated_id`]).
pub(crate) fn id_or_generated(id: Option<String>, stem: &str, number: u64) -> Result<DialogueId> {
    match id.filter(|id| !id.is_empty()) {
        Some(id) => DialogueId::new(id),
        None => generated_id(stem, number),
    }
}

/// Generates the id of a record without an id, from the file name `stem` and `number`. Depending on the format,
/// `number` is the line of the record, or the position of the record in the file or in an array.
pub(crate) fn generated_id(stem: &str, number: u64) -> Result<DialogueId> {
    DialogueId::new(format!("{stem}-{number:06}"))
}

/// Creates a dialogue without turns. `source` is the name of the corpus or of the file.
pub(crate) fn dialogue(id: DialogueId, source: &str, language: Option<&str>) -> Dialogue {
    let mut dialogue = Dialogue::new(id);
    dialogue.source = source.to_owned();
    dialogue.language = language.map(str::to_owned);
    dialogue
}

/// Formats a dialog act, for example `inform(hotel-area=north)`. All parts except the intent may be empty.
pub(crate) fn act(intent: &str, domain: &str, slot: &str, value: &str) -> String {
    let target = [domain, slot].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    match (target.as_str(), value) {
        ("", "") => intent.to_owned(),
        (target, "") => format!("{intent}({target})"),
        (target, value) => format!("{intent}({target}={value})"),
    }
}

pub(crate) fn line_problem(path: &str, e: LineError) -> Problem {
    match e {
        LineError::TooLong { number, bytes, limit } => {
            RecordError::new(too_long(bytes, limit)).at(path, number)
        }
        LineError::NotUtf8 { number, column } => {
            RecordError::new(format!("invalid UTF-8 at byte {column} of the line")).at(path, number)
        }
        LineError::Broken { number, source } => file_problem(path, Some(number), broken_stream(&source)),
    }
}

/// Creates a problem for a file that cannot be read to its end.
pub(crate) fn file_problem(path: &str, line: Option<u64>, reason: impl Into<String>) -> Problem {
    Problem::File(Reject { path: path.to_owned(), line, id: None, reason: reason.into() })
}

/// Formats the reason for rejecting a record over the size limit.
pub(crate) fn too_long(bytes: u64, limit: usize) -> String {
    let (size, limit) = (bytes as f64 / 1e6, limit as f64 / 1e6);
    format!(
        "the record is {size:.1} MB long, over the limit of {limit:.1} MB (raise it with --max-record-mb)"
    )
}

/// Formats the reason why a file cannot be read to its end.
pub(crate) fn broken_stream(source: &std::io::Error) -> String {
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => "the compressed file ends early: it is truncated".to_owned(),
        _ => format!("the rest of the file cannot be read: {source}"),
    }
}

pub(crate) fn element_problem(path: &str, e: ElementError) -> Problem {
    match e {
        ElementError::TooLong { keys, line, bytes, limit } => {
            RecordError::new(too_long(bytes, limit)).with_id(keys.last()).at(path, line)
        }
        ElementError::Broken { line, what } => file_problem(path, Some(line), what),
        ElementError::Stream { line, source } => file_problem(path, Some(line), broken_stream(&source)),
    }
}

/// Reads dialogues from a file with one record per line. Skips blank lines and lines for which `parse` returns `None`.
pub(crate) fn from_lines<F>(input: Input, options: &ReadOptions, mut parse: F) -> Dialogues
where
    F: FnMut(Line<'_>) -> Result<Option<Dialogue>, RecordError> + Send + 'static,
{
    let path = input.name.clone();
    let mut lines = Lines::new(input.into_stream(), options.max_record);
    let items = std::iter::from_fn(move || {
        Some(match lines.next_line()? {
            Err(e) => Some(Err(line_problem(&path, e))),
            Ok(line) if line.text.trim().is_empty() => None,
            Ok(line) => finished(parse(line), &path, line.number),
        })
    });
    Box::new(items.flatten())
}

/// Reads dialogues from one large JSON document. Each value at nesting depth `depth` is a record. Values for which
/// `parse` returns `None` are skipped.
pub(crate) fn from_elements<F>(input: Input, options: &ReadOptions, depth: usize, mut parse: F) -> Dialogues
where
    F: FnMut(&Element) -> Result<Option<Dialogue>, RecordError> + Send + 'static,
{
    let path = input.name.clone();
    let elements = Elements::at_depth(input.into_stream(), depth, options.max_record);
    Box::new(elements.filter_map(move |element| match element {
        Err(e) => Some(Err(element_problem(&path, e))),
        Ok(element) => finished(parse(&element), &path, element.line),
    }))
}

/// Splits a line at tabs into `N` columns. If the line has a different number of columns, the error message contains
/// the column names `names`.
pub(crate) fn columns<'a, const N: usize>(line: &'a str, names: &str) -> Result<[&'a str; N], RecordError> {
    let cells: Vec<&str> = line.split('\t').collect();
    let count = cells.len();
    cells.try_into().map_err(|_| format!("the line has {count} columns, not {N} ({names})").into())
}

/// Reads a whole small file, such as a list of tasks. Invalid UTF-8 is replaced with U+FFFD.
pub(crate) fn read_companion(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    Input::open(path)?.into_stream().read_to_end(&mut bytes).at("read", path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for the tests of the readers.

    use std::io::Cursor;

    use super::*;
    use crate::formats::Format;

    /// Reads a text as a file with the given name. Returns all dialogues and problems.
    pub(crate) fn read_all(format: &Format, name: &str, text: &str) -> Vec<Result<Dialogue, Problem>> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.to_owned(), Some(name.into()), stream).unwrap();
        format.read(input, &ReadOptions::default()).unwrap().collect()
    }

    /// Reads a text as a file with the given name. Returns only the dialogues.
    pub(crate) fn read_text(format: &Format, name: &str, text: &str) -> Vec<Dialogue> {
        read_all(format, name, text).into_iter().filter_map(Result::ok).collect()
    }

    /// Reads a text as a file with the given name. Returns only the problems, formatted as error messages.
    pub(crate) fn problems(format: &Format, name: &str, text: &str) -> Vec<String> {
        let show = |p| match p {
            Problem::Record(r) | Problem::File(r) => r.to_string(),
        };
        read_all(format, name, text).into_iter().filter_map(Result::err).map(show).collect()
    }

    /// Returns the name of the detected format. Returns `None` if no format matches, or if the text has no dialogues.
    pub(crate) fn sniffed(name: &str, text: &str) -> Option<&'static str> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.to_owned(), Some(name.into()), stream).unwrap();
        let (format, fit) = crate::formats::sniff(&input.probe())?;
        (fit > crate::formats::Fit::Companion).then_some(format.name)
    }
}

/// Corpus, split and name of a file, inferred from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathInfo {
    /// Name of the nearest parent folder whose name is not a split name (such as `train`).
    pub(super) corpus: Option<String>,
    /// Name of the split. `None` if neither the file nor a folder below the corpus folder is named after a split.
    pub(super) split: Option<String>,
    stem: String,
}

impl PathInfo {
    /// Parses the path of a file. A relative path is made absolute, so that ids do not depend on the current folder.
    pub(super) fn of(input: &Input) -> Self {
        let stem = input.stem().trim_end_matches(".txt").trim_end_matches(".tsv").to_owned();
        let path = input.path.as_deref().and_then(|path| absolute(path).ok()).unwrap_or_default();
        let folders = path.ancestors().skip(1).filter_map(|f: &Path| f.file_name()?.to_str());
        let mut split = Some(stem.clone()).filter(|stem| is_split(stem));
        let mut corpus = None;
        for folder in folders {
            if !is_split(folder) {
                corpus = Some(folder.to_owned());
                break;
            }
            split.get_or_insert_with(|| folder.to_owned());
        }
        PathInfo { corpus, split, stem }
    }

    /// Returns a prefix for ids: corpus, split and file name, joined by `-`. The file name is omitted if it is equal to
    /// the split.
    pub(super) fn prefix(&self) -> String {
        let stem = Some(&self.stem).filter(|stem| self.split.as_ref() != Some(stem));
        let parts = [self.corpus.as_ref(), self.split.as_ref(), stem].into_iter().flatten();
        parts.map(String::as_str).collect::<Vec<_>>().join("-")
    }

    /// Creates a dialogue without turns. Its source is the corpus name, or the file name if the corpus is unknown. The
    /// split becomes metadata.
    pub(super) fn dialogue(&self, id: DialogueId) -> Dialogue {
        let mut dialogue = support::dialogue(id, self.corpus.as_ref().unwrap_or(&self.stem), None);
        dialogue.note("split", self.split.as_deref());
        dialogue
    }
}

fn is_split(name: &str) -> bool {
    ["train", "training", "dev", "valid", "validation", "val", "test"]
        .contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn prefixes_have_corpus_split_and_file_once() {
        let place = |path: &str| {
            let stream = Box::new(Cursor::new(Vec::new()));
            PathInfo::of(&Input::from_stream(path.into(), Some(path.into()), stream).unwrap())
        };
        assert_eq!(place("/x/edc/dev/select.txt").prefix(), "edc-dev-select");
        assert_eq!(place("/x/edc/train/train_data.txt.sample").prefix(), "edc-train-train_data");
        assert_eq!(place("/x/douban/train.txt").prefix(), "douban-train");
        assert_eq!(place("/x/mwoz/train.tsv.1").prefix(), "mwoz-train");
        assert_eq!(place("/x/sets/mdc.sr.dev.tsv").prefix(), "sets-mdc.sr.dev");
        let source = |path: &str| place(path).dialogue(DialogueId::new("d").unwrap()).source;
        assert_eq!(source("/x/douban/train.txt"), "douban");
        assert_eq!(source("/train.txt"), "train");
    }
}
