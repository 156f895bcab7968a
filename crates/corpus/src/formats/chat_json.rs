//! Shared code of the readers for chats in JSON ([`super::messages`], [`super::sharegpt`]).
//!
//! A file contains one record per line, one array of records, or a single record over several lines.

use std::io::{Cursor, Read};

use serde_json::{Map, Value};

use crate::formats::prelude::*;

/// JSON object in a file of chats: a conversation, or a message of a conversation.
pub(super) type Record = Map<String, Value>;

enum Shape {
    Lines,
    Array,
    Object,
}

fn shape(probe: &Probe<'_>) -> Shape {
    if probe.text.trim_start().starts_with('[') {
        return Shape::Array;
    }
    // A line that is cut off can also end with `{`, `[` or `,`, but the first line is rarely cut off.
    match probe.text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(first) if first.starts_with('{') && first.ends_with(['{', '[', ',']) => Shape::Object,
        _ => Shape::Lines,
    }
}

/// Returns `Yes` if one of the first eight records has a list of turns. Such a list is the value of a key in `keys`,
/// and `is_turn` accepts its first item. Returns `Maybe` if the probe contains no complete record, but its first 400
/// characters contain `start`, ignoring white space. Otherwise, returns `No`.
pub(super) fn fit(probe: &Probe<'_>, keys: &[&str], is_turn: fn(&Value) -> bool, start: &str) -> Fit {
    const RECORDS: usize = 8;
    let elements = |text: &str| -> Vec<Record> {
        let elements = Elements::at_depth(text.as_bytes(), 1, text.len());
        let complete = elements.map_while(Result::ok).take(RECORDS);
        complete.filter_map(|e| serde_json::from_slice(&e.json).ok()).collect()
    };
    let records = match shape(probe) {
        Shape::Array => elements(probe.text),
        Shape::Object => elements(&format!("[{}]", probe.text)),
        Shape::Lines => {
            probe.lines().take(RECORDS).filter_map(|line| serde_json::from_str(line).ok()).collect()
        }
    };
    let has_turns = |record: &Record| {
        let list = keys.iter().find_map(|&key| record.get(key)).and_then(Value::as_array);
        list.and_then(|list| list.first()).is_some_and(is_turn)
    };
    if records.iter().any(has_turns) {
        return Fit::Yes;
    }
    let head: String = probe.text.chars().take(400).filter(|c| !c.is_whitespace()).collect();
    if records.is_empty() && head.contains(start) { Fit::Maybe } else { Fit::No }
}

/// Reads all records of a file. `add_turns` removes the turns from a record and adds them to the dialogue.
pub(super) fn read(
    input: Input,
    options: &ReadOptions,
    add_turns: fn(&mut Dialogue, &mut Record) -> Result<(), String>,
) -> Result<Dialogues> {
    let stem = input.stem();
    let parse = move |json: &[u8], position| {
        let mut record = record(json)?;
        let mut dialogue = begin(&mut record, &stem, position)?;
        add_turns(&mut dialogue, &mut record)
            .map_err(|reason| RecordError::new(reason).with_id(Some(dialogue.id.as_str())))?;
        dialogue.metadata = rest(record);
        Ok(Some(dialogue))
    };
    let input = match shape(&input.probe()) {
        Shape::Lines => {
            return Ok(support::from_lines(input, options, move |line| {
                parse(line.text.as_bytes(), line.number)
            }));
        }
        Shape::Array => input,
        Shape::Object => {
            let (name, path) = (input.name.clone(), input.path.clone());
            let array = Cursor::new(b"[").chain(input.into_stream()).chain(Cursor::new(b"]"));
            Input::from_stream(name, path, Box::new(array))?
        }
    };
    Ok(support::from_elements(input, options, 1, move |element| parse(&element.json, position(element))))
}

fn record(json: &[u8]) -> Result<Record, RecordError> {
    serde_json::from_slice(json).map_err(|e| match e.is_data() {
        true => "the record is not a JSON object".into(),
        false => e.into(),
    })
}

/// Possible names of the id field of a record, separated by spaces. If a record has several of these fields, the first
/// name in this list is used.
const ID_KEYS: &str =
    "id conversation_id conversation_hash dialogue_id chat_id thread_id session_id prompt_id custom_id";

/// Creates a dialogue without turns from the id, title, time and language of a record, and removes these fields from
/// the record. If the record has no id, the id is made from the file name and the position of the record.
fn begin(record: &mut Record, stem: &str, position: u64) -> Result<Dialogue, RecordError> {
    let id = take(record, ID_KEYS.split(' '), scalar_text);
    let mut dialogue = support::dialogue(support::id_or_generated(id, stem, position)?, stem, None);
    dialogue.title = take_text(record, &["title"]);
    dialogue.time = take_time(record);
    dialogue.language = take(record, ["language", "lang"], |tag| {
        tag.as_str().filter(|tag| is_language_tag(tag)).map(str::to_owned)
    });
    Ok(dialogue)
}

/// Removes the first field in `keys` whose value `convert` accepts. Returns the converted value.
fn take<'k, T>(
    record: &mut Record,
    keys: impl IntoIterator<Item = &'k str>,
    convert: impl Fn(&Value) -> Option<T>,
) -> Option<T> {
    keys.into_iter().find_map(|key| {
        let converted = convert(record.get(key)?)?;
        record.remove(key);
        Some(converted)
    })
}

fn is_language_tag(text: &str) -> bool {
    let mut parts = text.split('-');
    let language = parts.next().unwrap_or_default();
    (2..=3).contains(&language.len())
        && language.bytes().all(|b| b.is_ascii_lowercase())
        && parts.all(|p| (2..=8).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Removes the first field in `keys` whose value is a text that is not blank. Returns the text.
pub(super) fn take_text(record: &mut Record, keys: &[&str]) -> Option<String> {
    take(record, keys.iter().copied(), |value| {
        value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned)
    })
}

/// Removes and returns the time of a record: an RFC 3339 time, or a Unix timestamp in seconds or milliseconds. A field
/// that does not contain a time stays in the record.
pub(super) fn take_time(record: &mut Record) -> Option<Time> {
    let keys = ["time", "timestamp", "created_at", "create_time", "created", "date"];
    take(record, keys, |value| match value {
        Value::String(text) => Time::parse(text),
        Value::Number(n) => {
            let n = n.as_f64()?;
            // 1e11 seconds after 1970 is the year 5138, so larger numbers are milliseconds.
            Time::from_unix(if n.abs() >= 1e11 { n / 1000.0 } else { n })
        }
        _ => None,
    })
}

/// Converts the remaining fields of a record to metadata: scalars, lists of scalars, the members of the field
/// `metadata`, and the names of tools. Other nested values are dropped.
pub(super) fn rest(mut record: Record) -> Metadata {
    let mut metadata = Metadata::new();
    let tools = names(record.remove("tools").as_ref().or(record.remove("functions").as_ref()));
    if !tools.is_empty() {
        metadata.insert("tools".to_owned(), tools.into());
    }
    for key in ["metadata", "meta"] {
        match record.remove(key) {
            Some(Value::Object(inner)) => metadata.extend(inner.into_iter().filter(|(_, v)| is_flat(v))),
            Some(other) => _ = record.insert(key.to_owned(), other),
            None => {}
        }
    }
    metadata.extend(record.into_iter().filter(|(_, v)| is_flat(v)));
    metadata
}

fn is_flat(value: &Value) -> bool {
    let scalar = |v: &Value| matches!(v, Value::Bool(_) | Value::Number(_) | Value::String(_));
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty() && list.iter().all(scalar),
        other => scalar(other),
    }
}

/// Returns the names in a list of tools, such as `[{"function": {"name": ..}}]` or `[{"name": ..}]`.
fn names(tools: Option<&Value>) -> Vec<String> {
    let list = tools.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name = |tool: &Value| tool.get("function").unwrap_or(tool).get("name")?.as_str().map(str::to_owned);
    list.iter().filter_map(name).collect()
}

/// Maps a role name in a chat file to a [`Role`]. Tool results have the role name `tool`.
pub(super) fn role(name: &str) -> Role {
    match name.trim().to_lowercase().as_str() {
        "user" | "usr" | "human" | "customer" | "client" | "prompter" | "visitor" => Role::User,
        "assistant" | "agent" | "bot" | "ai" | "model" | "gpt" | "chatgpt" | "bing" | "bard"
        | "function_call" | "tool_call" => Role::Agent,
        "system" | "developer" => Role::System,
        "tool" | "function" | "tool_response" | "tool_result" | "observation" | "ipython" => {
            Role::Other("tool".into())
        }
        other => Role::from(other),
    }
}

/// Tool call (function call) of the assistant.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: String,
    arguments: String,
}

/// Parsed `content` field of a message.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    /// Types of the parts without text, such as `image_url`.
    pub(super) other: Vec<String>,
    /// Id of the tool call that the content answers. `None` if the content is not a tool result.
    pub(super) answers: Option<String>,
}

impl Content {
    /// Parses a `content` field: a text, a number, null, an object, or a list of these. Returns `None` for other
    /// values.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let mut content = Content::default();
        content.add(value, 0).then_some(content)
    }

    fn line(&mut self, text: &str) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn add(&mut self, value: &Value, depth: usize) -> bool {
        match value {
            Value::Null => {}
            Value::String(text) => self.line(text),
            Value::Number(n) => self.line(&n.to_string()),
            Value::Array(parts) if depth < 4 => return parts.iter().all(|part| self.add(part, depth + 1)),
            Value::Object(part) => self.part(part, depth),
            _ => return false,
        }
        true
    }

    fn part(&mut self, part: &Record, depth: usize) {
        let kind = part.get("type").or(part.get("content_type")).and_then(Value::as_str).unwrap_or("text");
        match kind {
            "tool_use" => self.calls.extend(call(part)),
            "tool_result" => {
                let id = part.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                self.answers = Some(id.to_owned());
                self.add(part.get("content").unwrap_or(&Value::Null), depth + 1);
            }
            _ => {
                let text = ["text", "refusal", "parts", "value"].iter().find_map(|&key| part.get(key));
                if !text.is_some_and(|text| self.add(text, depth + 1)) {
                    self.other.push(kind.to_owned());
                }
            }
        }
    }

    /// Returns the text. If the text is blank, returns the tool calls, one per line. A call is formatted like
    /// `lookup({"order": 7})`.
    pub(super) fn text_or_calls(&self) -> String {
        if !self.text.trim().is_empty() {
            return self.text.clone();
        }
        let calls: Vec<_> = self.calls.iter().map(|c| format!("{}({})", c.name, c.arguments)).collect();
        calls.join("\n")
    }
}

/// Parses a tool call in one of the common forms: `{"function": {"name", "arguments"}}`, `{"name", "arguments"}` or
/// `{"name", "input"}`.
pub(super) fn call(value: &Record) -> Option<Call> {
    let inner = value.get("function").and_then(Value::as_object).unwrap_or(value);
    let name = inner.get("name")?.as_str()?.to_owned();
    let arguments = match inner.get("arguments").or(inner.get("input")) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    Some(Call { id, name, arguments })
}
