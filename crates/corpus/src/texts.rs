//! Reader for files of single texts, not dialogues. Each line is one text: plain text, or a JSON object with `text` and
//! an optional `id`.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    formats::{Problem, ReadOptions, RecordError, line_problem},
    input::{Input, Probe},
    lines::Lines,
};
use turnwise_core::error::{Error, Result};

/// Format of a file with one text per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Every line is a text, even if it is empty.
    Lines,
    /// Every line is a JSON object with a `text` and an optional `id`. Blank lines are skipped.
    Jsonl,
}

/// A text and its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The id of the text. If the record has no id, a prefix followed by the line number.
    pub id: String,
    /// The text.
    pub text: String,
}

/// Iterator over the texts of one file.
pub type Texts = Box<dyn Iterator<Item = Result<Text, Problem>> + Send>;

/// Number of lines at the beginning of a file that are checked to detect its format. Blank lines are not counted.
const PROBE_LINES: usize = 20;

impl TextFormat {
    /// All text formats.
    pub const ALL: [TextFormat; 2] = [TextFormat::Lines, TextFormat::Jsonl];

    /// Returns the name of the format for `--from`.
    pub const fn name(self) -> &'static str {
        match self {
            TextFormat::Lines => "lines",
            TextFormat::Jsonl => "texts-jsonl",
        }
    }

    /// Returns the format with the given name, or `None` if no format has this name.
    pub fn by_name(name: &str) -> Option<Self> {
        TextFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Detects the format of a file that is not a dialogue corpus. Returns an error if the first line looks like JSON
    /// but none of the checked lines has a `text`. `name` is the file name for the error.
    pub fn sniff(name: &str, probe: &Probe<'_>) -> Result<Self> {
        let lines = || probe.lines().filter(|line| !line.trim().is_empty()).take(PROBE_LINES);
        if lines().any(|line| serde_json::from_str::<Record>(line).is_ok_and(|r| r.text.is_some())) {
            return Ok(TextFormat::Jsonl);
        }
        let is_json = |line: &str| {
            line.trim_start().starts_with(['{', '['])
                && (serde_json::from_str::<Value>(line).is_ok() || line.trim().len() == 1)
        };
        if lines().next().is_some_and(is_json) {
            let message = format!("{name} looks like JSON, but not in a form that turnwise recognizes");
            return Err(Error::data(message).with_hint(
                "write one {\"id\": …, \"text\": …} per line, or use `--from lines` to read every line as a text",
            ));
        }
        Ok(TextFormat::Lines)
    }

    /// Reads the texts of a file. If a text has no id, its id is `prefix` followed by the line number.
    pub fn read(self, input: Input, prefix: String, options: &ReadOptions) -> Texts {
        let path = input.name.clone();
        let mut lines = Lines::new(input.into_stream(), options.max_record);
        Box::new(std::iter::from_fn(move || {
            loop {
                let line = match lines.next_line()? {
                    Err(e) => return Some(Err(line_problem(&path, e))),
                    Ok(line) => line,
                };
                let number = format!("{prefix}{}", line.number);
                return Some(match self {
                    TextFormat::Lines => Ok(Text { id: number, text: line.text.to_owned() }),
                    TextFormat::Jsonl if line.text.trim().is_empty() => continue,
                    TextFormat::Jsonl => parse(line.text, number).map_err(|e| e.at(&path, line.number)),
                });
            }
        }))
    }
}

#[derive(Deserialize)]
struct Record {
    id: Option<Value>,
    text: Option<Value>,
}

/// Parses a record from a line of JSON. If the record has no id, its id is `number`.
fn parse(line: &str, number: String) -> Result<Text, RecordError> {
    let record: Record = serde_json::from_str(line)?;
    let id = match record.id {
        None | Some(Value::Null) => number,
        Some(Value::String(id)) => id,
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => return Err("the id is neither a string nor a number".into()),
    };
    let (id, reason) = match record.text {
        _ if id.chars().any(char::is_control) => {
            (id.escape_debug().collect(), "the id contains a control character")
        }
        Some(Value::String(text)) => return Ok(Text { id, text }),
        Some(_) => (id, "`text` is not a string"),
        None => (id, "the record has no `text`"),
    };
    Err(RecordError::new(reason).with_id(Some(id)))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn input(bytes: &'static [u8]) -> Input {
        Input::from_stream("a.txt".to_owned(), None, Box::new(Cursor::new(bytes))).unwrap()
    }

    fn read(format: TextFormat, bytes: &'static [u8]) -> Vec<Result<(String, String), String>> {
        let texts = format.read(input(bytes), String::new(), &ReadOptions::default());
        texts
            .map(|item| match item {
                Ok(t) => Ok((t.id, t.text)),
                Err(Problem::Record(reject) | Problem::File(reject)) => Err(reject.to_string()),
            })
            .collect()
    }

    fn sniffed(bytes: &'static [u8]) -> Result<TextFormat> {
        TextFormat::sniff("a.txt", &input(bytes).probe())
    }

    #[test]
    fn every_line_is_a_text_and_rejected_lines_are_counted() {
        let ok = |id: &str, text: &str| Ok((id.to_owned(), text.to_owned()));
        let got = read(TextFormat::Lines, b"one\r\n\n\xffx\n{\"four\"\n  five ");
        assert_eq!(
            got,
            [
                ok("1", "one"),
                ok("2", ""),
                Err("a.txt:3: invalid UTF-8 at byte 1 of the line".to_owned()),
                ok("4", "{\"four\""),
                ok("5", "  five "),
            ]
        );
    }

    #[test]
    fn records_without_id_get_their_line_number() {
        let text = b"{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":7,\"text\":\"\",\"more\":[1]}\n{\"text\":\"z\"}\n{oops\n\
            {\"id\":\"b\"}\n{\"id\":\"b\",\"text\":3}\n{\"id\":\"b\\n\",\"text\":\"x\"}\n{\"id\":[],\"text\":\"x\"}";
        let got = read(TextFormat::Jsonl, text);
        let ok = |id: &str, text: &str| Ok((id.to_owned(), text.to_owned()));
        assert_eq!(got[..3], [ok("a", "x"), ok("7", ""), ok("4", "z")]);
        let reasons: Vec<String> = got[3..].iter().map(|r| r.clone().unwrap_err()).collect();
        assert_eq!(
            reasons,
            [
                "a.txt:5: not valid JSON: key must be a string at column 2",
                "a.txt:6 (b): the record has no `text`",
                "a.txt:7 (b): `text` is not a string",
                "a.txt:8 (b\\n): the id contains a control character",
                "a.txt:9: the id is neither a string nor a number",
            ]
        );
    }

    #[test]
    fn the_format_is_detected_from_the_beginning() {
        assert_eq!(sniffed(b"{oops\n{\"id\":\"a\",\"text\":\"x\"}\n").unwrap(), TextFormat::Jsonl);
        assert_eq!(sniffed(b"{curly} is no JSON\n").unwrap(), TextFormat::Lines);
        assert_eq!(sniffed(b"[laughs] hello\n").unwrap(), TextFormat::Lines);
        assert!(sniffed(b"{\"query\":\"x\"}\n").is_err());
        assert!(sniffed(b"[\n  {\"query\":\"x\"}\n]").unwrap_err().hint().unwrap().contains("--from lines"));
    }
}
