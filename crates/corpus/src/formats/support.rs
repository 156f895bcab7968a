//! Shared code of the readers: converts lines and JSON elements to dialogues and problems.

use std::{
    borrow::Cow,
    io::BufRead,
    path::{Path, absolute},
};

use crate::formats::prelude::*;

/// Reason why a record is rejected. The caller of the parser adds file and line.
#[derive(Debug)]
pub(crate) struct RecordError {
    pub(crate) id: Option<String>,
    pub(crate) reason: Cow<'static, str>,
}

impl RecordError {
    pub(crate) fn new(reason: impl Into<Cow<'static, str>>) -> Self {
        RecordError { id: None, reason: reason.into() }
    }

    pub(crate) fn with_id(mut self, id: Option<impl Into<String>>) -> Self {
        self.id = id.map(Into::into);
        self
    }

    pub(crate) fn at(self, path: &str, line: u64) -> Problem {
        Problem::Record(Reject {
            path: path.to_owned(),
            line: Some(line),
            id: self.id,
            reason: self.reason.into(),
        })
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

/// Returns the message of a serde_json error without its line number, which is relative to the fragment.
pub(crate) fn json_reason(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let (what, column) = match text.rsplit_once(" at line ") {
        Some((what, place)) => (what.to_owned(), place.rsplit_once(' ').map(|(_, column)| column.to_owned())),
        None => (text, None),
    };
    let what = match e.classify() {
        serde_json::error::Category::Syntax if what.contains("recursion limit") => {
            "JSON is nested deeper than 128 levels".to_owned()
        }
        serde_json::error::Category::Syntax => format!("not valid JSON: {what}"),
        serde_json::error::Category::Eof => "not valid JSON: it ends early".to_owned(),
        _ => what,
    };
    match column {
        Some(column) if column != "0" => format!("{what} at column {column}"),
        _ => what,
    }
}

/// Validates a dialogue that was just read.
pub(crate) fn checked(mut dialogue: Dialogue) -> Result<Dialogue, RecordError> {
    match dialogue.check() {
        Ok(()) => Ok(dialogue),
        Err(reason) => Err(RecordError::new(reason).with_id(Some(dialogue.id.as_str()))),
    }
}

/// Makes an id from the file name and the position in the file, for records without an id.
pub(crate) fn generated_id(stem: &str, position: u64) -> Result<DialogueId> {
    DialogueId::new(format!("{stem}-{position:06}"))
}

/// Creates an empty dialogue whose source is the corpus name.
pub(crate) fn dialogue(id: DialogueId, source: &str, language: Option<&str>) -> Dialogue {
    let mut dialogue = Dialogue::new(id);
    dialogue.source = source.to_owned();
    dialogue.language = language.map(str::to_owned);
    dialogue
}

/// Returns the id of a JSON record that does not match its format, if it is valid JSON.
pub(crate) fn id_in(json: &[u8], field: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_slice(json).ok()?;
    record.get(field)?.as_str().map(str::to_owned)
}

/// Formats a dialog act: `inform(hotel-area=north)`. All parts except the intent may be empty.
pub(crate) fn act(intent: &str, domain: &str, slot: &str, value: &str) -> String {
    let target = [domain, slot].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    match (target.as_str(), value) {
        ("", "") => intent.to_owned(),
        (target, "") => format!("{intent}({target})"),
        (target, value) => format!("{intent}({target}={value})"),
    }
}

/// Converts a line error to a problem.
pub(crate) fn line_problem(path: &str, e: LineError) -> Problem {
    let reject = |line, reason| Reject { path: path.to_owned(), line: Some(line), id: None, reason };
    match e {
        LineError::TooLong { number, bytes, limit } => {
            Problem::Record(reject(number, too_long(bytes, limit)))
        }
        LineError::NotUtf8 { number, column } => {
            Problem::Record(reject(number, format!("invalid UTF-8 at byte {column} of the line")))
        }
        LineError::Broken { number, source } => Problem::File(reject(number, broken_stream(&source))),
    }
}

/// Formats the message for a record over the size limit.
pub(crate) fn too_long(bytes: u64, limit: usize) -> String {
    format!(
        "the record is {:.1} MB long, over the limit of {:.1} MB (raise it with --max-record-mb)",
        bytes as f64 / 1e6,
        limit as f64 / 1e6
    )
}

pub(crate) fn broken_stream(source: &std::io::Error) -> String {
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => "the compressed file ends early: it is truncated".to_owned(),
        _ => format!("the rest of the file cannot be read: {source}"),
    }
}

/// Converts an element error to a problem.
pub(crate) fn element_problem(path: &str, e: ElementError) -> Problem {
    let reject = |line, reason| Reject { path: path.to_owned(), line: Some(line), id: None, reason };
    match e {
        ElementError::TooLong { keys, line, bytes, limit } => {
            let mut r = reject(line, too_long(bytes, limit));
            r.id = keys.last().cloned();
            Problem::Record(r)
        }
        ElementError::Broken { line, what } => Problem::File(reject(line, what)),
        ElementError::Stream { line, source } => Problem::File(reject(line, broken_stream(&source))),
    }
}

/// Reads dialogues from a file with one record per line. Blank lines are skipped. `parse` returns `None` to skip a
/// line.
pub(crate) fn from_lines<F>(input: Input, options: &ReadOptions, mut parse: F) -> Dialogues
where
    F: FnMut(Line<'_>) -> Result<Option<Dialogue>, RecordError> + Send + 'static,
{
    let path = input.name.clone();
    let mut lines = Lines::new(input.into_stream(), options.max_record);
    Box::new(std::iter::from_fn(move || {
        loop {
            return Some(match lines.next_line()? {
                Err(e) => Err(line_problem(&path, e)),
                Ok(line) if line.text.trim().is_empty() => continue,
                Ok(line) => {
                    let number = line.number;
                    match parse(line).and_then(|d| d.map(checked).transpose()) {
                        Ok(None) => continue,
                        Ok(Some(dialogue)) => Ok(dialogue),
                        Err(fail) => Err(fail.at(&path, number)),
                    }
                }
            });
        }
    }))
}

/// Reads dialogues from one large JSON document. Each value at nesting depth `depth` is a record.
///
/// `parse` returns `None` to skip a value.
pub(crate) fn from_elements<F>(input: Input, options: &ReadOptions, depth: usize, mut parse: F) -> Dialogues
where
    F: FnMut(&Element) -> Result<Option<Dialogue>, RecordError> + Send + 'static,
{
    let path = input.name.clone();
    let mut elements = Elements::at_depth(input.into_stream(), depth, options.max_record);
    Box::new(std::iter::from_fn(move || {
        loop {
            return Some(match elements.next()? {
                Err(e) => Err(element_problem(&path, e)),
                Ok(element) => match parse(&element).and_then(|d| d.map(checked).transpose()) {
                    Ok(None) => continue,
                    Ok(Some(dialogue)) => Ok(dialogue),
                    Err(fail) => Err(fail.at(&path, element.line)),
                },
            });
        }
    }))
}

/// Reads a small companion file completely.
pub(crate) fn read_companion(path: &std::path::Path) -> Result<String> {
    let mut text = String::new();
    let mut stream = Input::open(path)?.into_stream();
    loop {
        let mut line = Vec::new();
        let n = stream.read_until(b'\n', &mut line).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        if n == 0 {
            return Ok(text);
        }
        text.push_str(&String::from_utf8_lossy(&line));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for the tests of the readers.

    use std::io::Cursor;

    use super::*;
    use crate::formats::Format;

    /// Returns all items that a reader produces for a text.
    pub(crate) fn read_all(format: &Format, name: &str, text: &str) -> Vec<Result<Dialogue, Problem>> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.to_owned(), Some(name.into()), stream).unwrap();
        format.read(input, &ReadOptions::default()).unwrap().collect()
    }

    /// Returns only the dialogues.
    pub(crate) fn read_text(format: &Format, name: &str, text: &str) -> Vec<Dialogue> {
        read_all(format, name, text).into_iter().filter_map(Result::ok).collect()
    }

    /// Returns only the problems, formatted as for users.
    pub(crate) fn problems(format: &Format, name: &str, text: &str) -> Vec<String> {
        let show = |p| match p {
            Problem::Record(r) | Problem::File(r) => r.to_string(),
        };
        read_all(format, name, text).into_iter().filter_map(Result::err).map(show).collect()
    }

    /// Returns the detected format of a text, out of all formats.
    pub(crate) fn sniffed(name: &str, text: &str) -> Option<&'static str> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.to_owned(), Some(name.into()), stream).unwrap();
        let (format, fit) = crate::formats::sniff(&input.probe())?;
        (fit > crate::formats::Fit::Companion).then(|| format.name)
    }
}

/// Names of corpus splits.
const SPLITS: [&str; 7] = ["train", "training", "dev", "valid", "validation", "val", "test"];

/// Corpus, split and name of a file, inferred from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathInfo {
    /// Name of the nearest folder that is not a split.
    pub(super) corpus: Option<String>,
    /// Name of the split, if the file or one of its folders has such a name.
    pub(super) split: Option<String>,
    stem: String,
}

impl PathInfo {
    /// Reads the path of a file. It is made absolute, so that ids do not depend on the current folder.
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

    /// Returns a prefix for ids, unique for each file: corpus, split and file name, each once.
    pub(super) fn prefix(&self) -> String {
        let stem = Some(&self.stem).filter(|stem| self.split.as_ref() != Some(stem));
        let parts: Vec<&str> = [self.corpus.as_ref(), self.split.as_ref(), stem]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        parts.join("-")
    }

    /// Returns the corpus name: the folder name, or the file name if there is no folder.
    pub(super) fn source(&self) -> String {
        self.corpus.as_ref().unwrap_or(&self.stem).clone()
    }
}

fn is_split(name: &str) -> bool {
    SPLITS.contains(&name.to_ascii_lowercase().as_str())
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
        assert_eq!(place("/x/douban/train.txt").source(), "douban");
        assert_eq!(place("/train.txt").source(), "train");
    }
}
