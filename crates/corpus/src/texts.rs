//! Texts that are no dialogues: one a line, or one JSON object with `id` and `text` a line.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    formats::{self, Problem, ReadOptions},
    input::{Input, Probe},
    lines::Lines,
};
use turnwise_core::error::{Error, Reject, Result};

/// How texts lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Every line is a text, empty ones too.
    Lines,
    /// Every line is a JSON object with a `text` and mostly an `id`.
    Jsonl,
}

/// A text and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Its id: the record's, or the number of its line.
    pub id: String,
    /// The text.
    pub text: String,
}

/// The texts of one file.
pub type Texts = Box<dyn Iterator<Item = Result<Text, Problem>> + Send>;

/// Lines that are looked at to tell the format, so that one broken line in front does not hide it.
const LOOKED_AT: usize = 20;

impl TextFormat {
    /// Both.
    pub const ALL: [TextFormat; 2] = [TextFormat::Lines, TextFormat::Jsonl];

    /// The name for `--from`.
    pub const fn name(self) -> &'static str {
        match self {
            TextFormat::Lines => "lines",
            TextFormat::Jsonl => "texts-jsonl",
        }
    }

    /// The format of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        TextFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What a file is whose beginning is no corpus. Where it looks like JSON of another kind, that is an error.
    pub fn sniff(name: &str, probe: &Probe<'_>) -> Result<Self> {
        let lines = || probe.lines().filter(|line| !line.trim().is_empty()).take(LOOKED_AT);
        if lines().any(|line| serde_json::from_str::<Record>(line).is_ok_and(|r| r.text.is_some())) {
            return Ok(TextFormat::Jsonl);
        }
        let is_json = |line: &str| {
            line.trim_start().starts_with(['{', '['])
                && (serde_json::from_str::<Value>(line).is_ok() || line.trim().len() == 1)
        };
        if lines().next().is_some_and(is_json) {
            return Err(Error::Data {
                message: format!("{name} looks like JSON, but in no shape that turnwise recognises"),
                hint: Some(
                    "texts are lines of {\"id\": …, \"text\": …}; `--from lines` takes every line as it stands"
                        .to_owned(),
                ),
            });
        }
        Ok(TextFormat::Lines)
    }

    /// The texts of a file. `prefix` stands in front of line numbers.
    pub fn read(self, input: Input, prefix: String, options: &ReadOptions) -> Texts {
        let path = input.name.clone();
        let mut lines = Lines::new(input.into_stream(), options.max_record);
        Box::new(std::iter::from_fn(move || {
            loop {
                let line = match lines.next_line()? {
                    Err(e) => return Some(Err(formats::line_problem(&path, e))),
                    Ok(line) => line,
                };
                let number = format!("{prefix}{}", line.number);
                return Some(match self {
                    TextFormat::Lines => Ok(Text { id: number, text: line.text.to_owned() }),
                    TextFormat::Jsonl if line.text.trim().is_empty() => continue,
                    TextFormat::Jsonl => parse(line.text, number).map_err(|(id, reason)| {
                        Problem::Record(Reject { path: path.clone(), line: Some(line.number), id, reason })
                    }),
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

/// A record, or its id, as far as it is known, and what is wrong.
fn parse(line: &str, number: String) -> Result<Text, (Option<String>, String)> {
    let record: Record = serde_json::from_str(line).map_err(|e| (None, formats::json_reason(&e)))?;
    let id = match record.id {
        None | Some(Value::Null) => number,
        Some(Value::String(id)) => id,
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => return Err((None, "the id is neither a text nor a number".to_owned())),
    };
    if id.chars().any(char::is_control) {
        return Err((Some(id.escape_debug().collect()), "the id holds a control character".to_owned()));
    }
    match record.text {
        Some(Value::String(text)) => Ok(Text { id, text }),
        Some(_) => Err((Some(id), "`text` is not a text".to_owned())),
        None => Err((Some(id), "the record has no `text`".to_owned())),
    }
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
    fn every_line_is_a_text_and_bad_ones_keep_the_numbers_of_the_rest() {
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
    fn records_have_ids_or_the_numbers_of_their_lines() {
        let text = b"{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":7,\"text\":\"\",\"more\":[1]}\n{\"text\":\"z\"}\n{oops\n\
            {\"id\":\"b\"}\n{\"id\":\"b\",\"text\":3}\n{\"id\":\"b\\n\",\"text\":\"x\"}\n{\"id\":[],\"text\":\"x\"}";
        let got = read(TextFormat::Jsonl, text);
        let ok = |id: &str, text: &str| Ok((id.to_owned(), text.to_owned()));
        assert_eq!(got[..3], [ok("a", "x"), ok("7", ""), ok("4", "z")]);
        let told: Vec<String> = got[3..].iter().map(|r| r.clone().unwrap_err()).collect();
        assert_eq!(
            told,
            [
                "a.txt:5: not valid JSON: key must be a string at column 2",
                "a.txt:6 (b): the record has no `text`",
                "a.txt:7 (b): `text` is not a text",
                "a.txt:8 (b\\n): the id holds a control character",
                "a.txt:9: the id is neither a text nor a number",
            ]
        );
    }

    #[test]
    fn the_format_is_told_by_the_beginning() {
        assert_eq!(sniffed(b"{oops\n{\"id\":\"a\",\"text\":\"x\"}\n").unwrap(), TextFormat::Jsonl);
        assert_eq!(sniffed(b"{curly} is no JSON\n").unwrap(), TextFormat::Lines);
        assert_eq!(sniffed(b"[laughs] hello\n").unwrap(), TextFormat::Lines);
        assert!(sniffed(b"{\"query\":\"x\"}\n").is_err());
        assert!(sniffed(b"[\n  {\"query\":\"x\"}\n]").unwrap_err().hint().unwrap().contains("--from lines"));
    }
}
