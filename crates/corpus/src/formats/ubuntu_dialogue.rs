//! Ubuntu Dialogue Corpus: chats of two people from the IRC channel #ubuntu.
//!
//! There are two layouts:
//!
//! - The raw corpus has one file per chat, `dialogs/FOLDER/NUMBER.tsv`, with one message per line: time, from, to,
//!   text.
//! - Version 2 has tables with one sample per row. A training row is `Context,Utterance,Label`. The utterance follows
//!   the context in the corpus (label 1) or is random (label 0). A validation or test row is
//!   `Context,Ground Truth Utterance,Distractor_0,…`.
//!
//! A row becomes a dialogue that consists of the context and the utterance. The label and the distractors (wrong
//! responses) become metadata. `__eou__` ends an utterance, and `__eot__` ends a turn of several utterances. Every
//! utterance becomes a turn.

use crate::formats::chat_text::{self, Draft, LineReader, Out};
use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "ubuntu-dialogue",
    about: "Ubuntu Dialogue Corpus: version 2's CSV (Context,Utterance,Label) and the raw dialogs/*/*.tsv",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    let lines: Vec<&str> = probe.lines().take(10).collect();
    if lines.is_empty() {
        return Fit::No;
    }
    if Table::recognized(probe.text).is_some() || lines.iter().all(|line| Message::parse(line).is_ok()) {
        return Fit::Yes;
    }
    // A list of the chats in a split has lines such as `1234.tsv, 5`.
    let listed =
        |line: &&str| line.split_once(".tsv,").is_some_and(|(file, folder)| digits(file) && digits(folder));
    if lines.iter().all(listed) { Fit::Companion } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let Some(table) = Table::recognized(input.probe().text) else {
        return Ok(read_chat(input, options));
    };
    let path_info = PathInfo::of(&input);
    let prefix = format!("ubuntu-dialogue-{}", input.stem());
    let mut rows = 0;
    Ok(tables::from_rows(input, options, Dialect::CSV, move |row| {
        rows += 1;
        let id = support::generated_id(&prefix, rows)?;
        let mut dialogue = support::dialogue(id, "ubuntu-dialogue", Some("en"));
        dialogue.note("split", path_info.split.as_deref());
        table.add_turns(&mut dialogue, row).map_err(|e| e.with_id(Some(dialogue.id.as_str())))?;
        Ok(dialogue)
    }))
}

fn digits(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A line of a raw chat.
struct Message<'a> {
    time: Time,
    from: &'a str,
    text: &'a str,
}

impl<'a> Message<'a> {
    fn parse(line: &'a str) -> Result<Self, RecordError> {
        let mut cells = line.splitn(4, '\t');
        let mut cell = || {
            let reason =
                "the line is not a message; the columns must be time, from, to and text, separated by tabs";
            cells.next().ok_or(reason)
        };
        let (time, from, _, text) = (cell()?, cell()?.trim(), cell()?, cell()?.trim());
        let read = Some(time).filter(|time| time.contains('T')).and_then(Time::parse);
        match read {
            Some(time) if !from.is_empty() => Ok(Message { time, from, text }),
            Some(_) => Err("the message has no sender".into()),
            None => Err(format!("`{time}` is not a time like 2008-04-23T14:55:00.000Z").into()),
        }
    }
}

/// Reads a raw chat, which becomes one dialogue. Invalid lines are reported.
fn read_chat(input: Input, options: &ReadOptions) -> Dialogues {
    // File numbers are unique only within a folder.
    let name = match input.folder_name() {
        Some(folder) => format!("ubuntu-dialogue-{folder}-{}", input.stem()),
        None => format!("ubuntu-dialogue-{}", input.stem()),
    };
    match DialogueId::new(name) {
        Ok(id) => {
            let dialogue = support::dialogue(id, "ubuntu-dialogue", Some("en"));
            let draft = Some(Draft::new(dialogue, 1, options.max_record));
            chat_text::read(input, options, Chat { draft, first: None })
        }
        Err(e) => Box::new(std::iter::once(Err(RecordError::from(e).at(&input.name, 1)))),
    }
}

struct Chat {
    draft: Option<Draft>,
    /// Name of the person who starts the chat.
    first: Option<String>,
}

impl LineReader for Chat {
    fn line(&mut self, line: Line<'_>, out: &mut Out) {
        if line.text.trim().is_empty() {
            return;
        }
        match Message::parse(line.text) {
            // The corpus contains some empty messages.
            Ok(message) if message.text.is_empty() => {}
            Ok(message) => {
                // The person who starts the chat is the user, and the other person is the agent.
                let is_user = self.first.get_or_insert_with(|| message.from.to_owned()) == message.from;
                let role = if is_user { Role::User } else { Role::Agent };
                let draft = self.draft.as_mut();
                if let Some(turn) = draft.and_then(|draft| draft.turn(message.from, role, message.text)) {
                    turn.time = Some(message.time);
                }
            }
            Err(e) => out.push_back((line.number, Err(e))),
        }
    }

    fn end(&mut self, out: &mut Out) {
        if let Some(mut draft) = self.draft.take() {
            draft.dialogue.time = draft.dialogue.turns.first().and_then(|turn| turn.time);
            out.push_back(draft.finish());
        }
    }
}

/// Layout of a table in version 2 of the corpus.
#[derive(Clone, Copy)]
enum Table {
    /// The columns are context, utterance and label.
    Train,
    /// The columns are context, true utterance and distractors (wrong utterances).
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

    /// Adds the turns and the metadata of a row to its dialogue.
    fn add_turns(self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<(), RecordError> {
        let cell = |at| tables::text(row, at);
        let (width, wanted) = match self {
            Table::Train => (row.width(), 3),
            Table::Evaluation => (row.width(), 2),
        };
        if width < wanted {
            return Err(format!("the row has {width} columns, not {wanted}").into());
        }
        let turns: Vec<&str> = cell(0)?.split("__eot__").collect();
        // The last turn also ends with `__eot__`, so the last part is blank.
        let turns = match turns.split_last() {
            Some((last, rest)) if last.trim().is_empty() => rest,
            _ => &turns,
        };
        let response = cell(1)?;
        if utterances(response).next().is_none() {
            return Err("the row has no utterance after the context".into());
        }
        for (turn, (speaker, role)) in turns.iter().chain([&response]).zip(speakers()) {
            for utterance in utterances(turn) {
                dialogue.push(speaker, role.clone(), utterance);
            }
        }
        let label = match self {
            Table::Train => match cell(2)?.trim() {
                "1" | "1.0" => 1,
                "0" | "0.0" => 0,
                label => return Err(format!("the label `{label}` is neither 0 nor 1").into()),
            },
            Table::Evaluation => {
                let distractors = (2..width).map(cell).collect::<Result<Vec<_>, _>>()?;
                let texts =
                    distractors.into_iter().map(|text| utterances(text).collect::<Vec<_>>().join(" "));
                dialogue.note("distractors", texts.collect::<Vec<String>>());
                1
            }
        };
        dialogue.note("label", label);
        Ok(())
    }
}

/// Splits a turn into utterances. Empty utterances are omitted.
fn utterances(turn: &str) -> impl Iterator<Item = &str> {
    turn.split("__eou__").map(str::trim).filter(|utterance| !utterance.is_empty())
}

/// Returns an endless iterator over the names and roles of two alternating speakers. The user starts.
pub(super) fn speakers() -> impl Iterator<Item = (&'static str, Role)> {
    [("user", Role::User), ("agent", Role::Agent)].into_iter().cycle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const TRAIN: &str = "Context,Utterance,Label\n\
    \"my sound is gone , \"\"again\"\" __eou__ help __eou__ __eot__ which card ? __eou__ __eot__ \",an old one __eou__ ok __eou__,1.0\n\
    hello __eou__ __eot__ hi __eou__ __eot__ ,,0.0\n\
    hello __eou__ __eot__ ,go away __eou__,0\n\
    hello __eou__ __eot__ ,go away __eou__,maybe\n\
    hello __eou__ __eot__\n";

    fn texts(dialogue: &Dialogue) -> Vec<(&str, &str)> {
        dialogue.turns.iter().map(|turn| (turn.speaker.as_str(), turn.text.as_str())).collect()
    }

    #[test]
    fn a_training_row_is_a_context_with_utterance_and_label() {
        let got = read_text(&FORMAT, "train.csv", TRAIN);
        assert_eq!(
            texts(&got[0]),
            [
                ("user", "my sound is gone , \"again\""),
                ("user", "help"),
                ("agent", "which card ?"),
                ("user", "an old one"),
                ("user", "ok")
            ]
        );
        assert_eq!(
            (got[0].id.as_str(), &got[0].metadata["label"]),
            ("ubuntu-dialogue-train-000001", &1.into())
        );
        // The number in an id counts all rows, including rejected rows. Ids therefore do not change if a row is fixed.
        assert_eq!(
            (got[1].id.as_str(), &got[1].metadata["label"]),
            ("ubuntu-dialogue-train-000003", &0.into())
        );
        assert_eq!(got[1].metadata["split"], "train");
        assert_eq!(texts(&got[1]), [("user", "hello"), ("agent", "go away")]);
    }

    #[test]
    fn bad_rows_are_reported() {
        assert_eq!(
            problems(&FORMAT, "train.csv", TRAIN),
            [
                "train.csv:3 (ubuntu-dialogue-train-000002): the row has no utterance after the context",
                "train.csv:5 (ubuntu-dialogue-train-000004): the label `maybe` is neither 0 nor 1",
                "train.csv:6 (ubuntu-dialogue-train-000005): the row has 1 columns, not 3",
            ]
        );
    }

    #[test]
    fn an_evaluation_row_keeps_its_distractors() {
        let text = "Context,Ground Truth Utterance,Distractor_0,Distractor_1\n\
        hello __eou__ __eot__ ,hi __eou__ there __eou__,no __eou__ way __eou__,never __eou__\n";
        let got = read_text(&FORMAT, "/c/valid.csv", text);
        assert_eq!(texts(&got[0]), [("user", "hello"), ("agent", "hi"), ("agent", "there")]);
        assert_eq!(got[0].metadata["distractors"], serde_json::json!(["no way", "never"]));
        assert_eq!(got[0].metadata["split"], "valid");
        assert_eq!(sniffed("valid.csv", text), Some("ubuntu-dialogue"));
    }

    const CHAT: &str = "2009-03-01T10:00:00.000Z\tamy\t\tmy \"disk\" is full\n\
    2009-03-01T10:01:00.000Z\tbob\tamy\twhich one?\n\
    2009-03-01T10:02:00.000Z\tamy\tbob\t\n\
    2009-03-01T10:02:00.000Z\tamy\tbob\tthe old\tone\n";

    #[test]
    fn a_raw_chat_is_one_dialogue() {
        let got = read_text(&FORMAT, "dialogs/4/17.tsv", CHAT);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].id.as_str(), "ubuntu-dialogue-4-17");
        assert_eq!(
            texts(&got[0]),
            [("amy", "my \"disk\" is full"), ("bob", "which one?"), ("amy", "the old\tone")]
        );
        assert_eq!(got[0].turns[1].role, Some(Role::Agent));
        assert_eq!(got[0].time.unwrap().to_string(), "2009-03-01T10:00:00Z");
    }

    #[test]
    fn bad_lines_of_a_chat_are_reported() {
        let text = "2009-03-01T10:00:00.000Z\tamy\t\thello\nso\tit\nlately\tamy\t\thello\n2009-03-01T10:00:00Z\t\t\thi\n";
        assert_eq!(
            problems(&FORMAT, "3/1.tsv", text),
            [
                "3/1.tsv:2: the line is not a message; the columns must be time, from, to and text, separated by tabs",
                "3/1.tsv:3: `lately` is not a time like 2008-04-23T14:55:00.000Z",
                "3/1.tsv:4: the message has no sender",
            ]
        );
        assert_eq!(
            problems(&FORMAT, "3/1.tsv", "\n"),
            ["3/1.tsv:1 (ubuntu-dialogue-3-1): the dialogue has no turns"]
        );
    }

    #[test]
    fn both_layouts_are_detected_by_their_columns() {
        assert_eq!(sniffed("train.csv", TRAIN), Some("ubuntu-dialogue"));
        assert_eq!(sniffed("1.tsv", CHAT), Some("ubuntu-dialogue"));
        assert_ne!(sniffed("a.tsv", "time\tfrom\tto\ttext\n2009\tamy\t\thi\n"), Some("ubuntu-dialogue"));
        assert_eq!(sniffed("trainfiles.csv", "100.tsv, 3\n7.tsv, 12\n"), None);
    }
}
