//! Ubuntu Dialogue Corpus: two-person chats from #ubuntu.
//!
//! There are two layouts:
//!
//! - The raw corpus has one file per chat, `dialogs/FOLDER/NUMBER.tsv`, with one message per line: time, from, to,
//!   text.
//! - Version 2 has tables with one sample per row. Training rows are `Context,Utterance,Label`: the utterance is the
//!   next one (label 1) or a random one (label 0). Validation and test rows are
//!   `Context,Ground Truth Utterance,Distractor_0,…`.
//!
//! A row becomes the context followed by the utterance. Label and distractors become metadata. In texts, `__eou__`
//! ends an utterance and `__eot__` a turn. Every utterance becomes a separate turn.

use crate::{
    Dialogue, MAX_TURNS, Role, Time,
    formats::{
        Dialogues, Fit, Format, Problem, ReadOptions,
        path_info::PathInfo,
        support::{self, RecordError},
        tables,
    },
    input::{Input, Probe},
    lines::{LineError, Lines},
    rows::{Dialect, Row},
};
use turnwise_core::{error::Result, ids::DialogueId};

pub(super) struct UbuntuDialogue;

impl Format for UbuntuDialogue {
    fn name(&self) -> &'static str {
        "ubuntu-dialogue"
    }

    fn about(&self) -> &'static str {
        "Ubuntu Dialogue Corpus: version 2's CSV (Context,Utterance,Label) and the raw dialogs/*/*.tsv"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let lines: Vec<&str> = probe.lines().take(10).collect();
        if lines.is_empty() {
            return Fit::No;
        }
        if Table::recognized(probe.text).is_some() || lines.iter().all(|line| Message::parse(line).is_ok()) {
            return Fit::Yes;
        }
        // The lists of the chats in each split: `1234.tsv, 5`.
        let listed = |line: &&str| {
            line.split_once(".tsv,").is_some_and(|(file, folder)| digits(file) && digits(folder))
        };
        if lines.iter().all(listed) { Fit::Companion } else { Fit::No }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        let Some(table) = Table::recognized(input.probe().text) else {
            let options = options.clone();
            // A file is one chat and is read completely.
            return Ok(Box::new(std::iter::once(input).flat_map(move |input| read_chat(input, &options))));
        };
        let path_info = PathInfo::of(&input);
        let prefix = format!("ubuntu-dialogue-{}", input.stem());
        let mut rows = 0;
        Ok(tables::from_rows(input, options, Dialect::CSV, move |row| {
            rows += 1;
            table.dialogue(row, support::generated_id(&prefix, rows)?, path_info.split.as_deref()).map(Some)
        }))
    }
}

fn digits(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

const MESSAGE: &str =
    "the line is not a message; the columns must be time, from, to and text, separated by tabs";

/// A line of a raw chat.
struct Message<'a> {
    time: Time,
    from: &'a str,
    text: &'a str,
}

impl<'a> Message<'a> {
    fn parse(line: &'a str) -> Result<Self, RecordError> {
        let mut cells = line.splitn(4, '\t');
        let mut cell = || cells.next().ok_or_else(|| RecordError::new(MESSAGE));
        let (time, from, _, text) = (cell()?, cell()?.trim(), cell()?, cell()?.trim());
        let read = Some(time).filter(|time| time.contains('T')).and_then(Time::parse);
        match read {
            Some(time) if !from.is_empty() => Ok(Message { time, from, text }),
            Some(_) => Err(RecordError::new("the message has no sender")),
            None => Err(RecordError::new(format!("`{time}` is not a time like 2008-04-23T14:55:00.000Z"))),
        }
    }
}

fn read_chat(input: Input, options: &ReadOptions) -> Vec<Result<Dialogue, Problem>> {
    let path = input.name.clone();
    let mut out = Vec::new();
    // File numbers are unique only within a folder.
    let name = match input.folder_name() {
        Some(folder) => format!("ubuntu-dialogue-{folder}-{}", input.stem()),
        None => format!("ubuntu-dialogue-{}", input.stem()),
    };
    let mut dialogue = match DialogueId::new(name) {
        Ok(id) => Dialogue::new(id),
        Err(e) => return vec![Err(RecordError::from(e).at(&path, 1))],
    };
    dialogue.source = "ubuntu-dialogue".into();
    dialogue.language = Some("en".into());
    let mut lines = Lines::new(input.into_stream(), options.max_record);
    let mut first = None::<String>;
    let mut size = 0;
    while let Some(line) = lines.next_line() {
        let line = match line {
            Ok(line) => line,
            // A truncated chat is dropped.
            Err(e @ LineError::Broken { .. }) => return vec![Err(support::line_problem(&path, e))],
            Err(e) => {
                out.push(Err(support::line_problem(&path, e)));
                continue;
            }
        };
        if line.text.trim().is_empty() {
            continue;
        }
        size += line.text.len();
        if size > options.max_record || dialogue.turns.len() >= MAX_TURNS {
            let reason = format!(
                "the chat is over {:.1} MB long (raise the limit with --max-record-mb)",
                options.max_record as f64 / 1e6
            );
            return vec![Err(RecordError::new(reason)
                .with_id(Some(dialogue.id.as_str()))
                .at(&path, line.number))];
        }
        match Message::parse(line.text) {
            // The corpus has some empty messages.
            Ok(message) if message.text.is_empty() => {}
            Ok(message) => {
                // The person who starts the chat is the user; the other one is the agent.
                let is_user = first.get_or_insert_with(|| message.from.to_owned()) == message.from;
                let role = if is_user { Role::User } else { Role::Agent };
                dialogue.push(message.from, role, message.text).time = Some(message.time);
            }
            Err(fail) => out.push(Err(fail.at(&path, line.number))),
        }
    }
    dialogue.time = dialogue.turns.first().and_then(|turn| turn.time);
    out.push(support::checked(dialogue).map_err(|fail| fail.at(&path, 1)));
    out
}

/// Table layout of version 2.
#[derive(Clone, Copy)]
enum Table {
    /// Context, utterance, label.
    Train,
    /// Context, true utterance, distractors.
    Evaluation,
}

impl Table {
    fn recognized(beginning: &str) -> Option<Self> {
        let header = tables::first_row(beginning, Dialect::CSV)?;
        let header: Vec<&str> = header.iter().map(|cell| cell.trim()).collect();
        match header.as_slice() {
            ["Context", "Utterance", "Label"] => Some(Table::Train),
            ["Context", "Ground Truth Utterance", ..] => Some(Table::Evaluation),
            _ => None,
        }
    }

    fn dialogue(self, row: &Row<'_>, id: DialogueId, split: Option<&str>) -> Result<Dialogue, RecordError> {
        let fail = |reason: String| RecordError::new(reason).with_id(Some(id.as_str()));
        let cell = |at| tables::text(row, at).map_err(|fail| fail.with_id(Some(id.as_str())));
        let wanted = match self {
            Table::Train => 3,
            Table::Evaluation => 2,
        };
        if row.width() < wanted {
            return Err(fail(format!("the row has {} columns, not {wanted}", row.width())));
        }
        let mut dialogue = Dialogue::new(id.clone());
        dialogue.source = "ubuntu-dialogue".into();
        dialogue.language = Some("en".into());
        if let Some(split) = split {
            dialogue.metadata.insert("split".into(), split.into());
        }
        let context = cell(0)?;
        let turns: Vec<&str> = context.split("__eot__").collect();
        // There is an `__eot__` after the last turn too.
        let turns = match turns.split_last() {
            Some((last, rest)) if last.trim().is_empty() => rest,
            _ => &turns,
        };
        let response = cell(1)?;
        if utterances(response).next().is_none() {
            return Err(fail("the row has no utterance after the context".to_owned()));
        }
        for (turn, (speaker, role)) in turns.iter().chain([&response]).zip(speakers()) {
            for utterance in utterances(turn) {
                dialogue.push(speaker, role.clone(), utterance);
            }
        }
        match self {
            Table::Train => {
                let label = cell(2)?.trim();
                let number = match label {
                    "1" | "1.0" => 1,
                    "0" | "0.0" => 0,
                    _ => return Err(fail(format!("the label `{label}` is neither 0 nor 1"))),
                };
                dialogue.metadata.insert("label".into(), number.into());
            }
            Table::Evaluation => {
                let distractors = (2..row.width()).map(cell).collect::<Result<Vec<_>, _>>()?;
                let texts: Vec<String> = distractors
                    .into_iter()
                    .map(|text| utterances(text).collect::<Vec<_>>().join(" "))
                    .collect();
                dialogue.metadata.insert("label".into(), 1.into());
                dialogue.metadata.insert("distractors".into(), texts.into());
            }
        }
        Ok(dialogue)
    }
}

/// Splits a turn into utterances.
fn utterances(turn: &str) -> impl Iterator<Item = &str> {
    turn.split("__eou__").map(str::trim).filter(|utterance| !utterance.is_empty())
}

/// Returns the alternating speakers of a chat. The user starts.
pub(super) fn speakers() -> impl Iterator<Item = (&'static str, Role)> {
    [("user", Role::User), ("agent", Role::Agent)].into_iter().cycle()
}

#[cfg(test)]
mod tests;
