//! LoCoMo: very long conversations of two people. A conversation consists of many dated sessions, and has questions
//! with the turns that answer them.
//!
//! A file is one sample (a conversation with its questions) or a list of samples. The sessions are members of the
//! sample, or of its member `conversation`. Each session is one dialogue.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead, Cursor, Read},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

use super::chat_json::{Record, rest, take_text};
use crate::{MAX_TURNS, formats::prelude::*};
use turnwise_core::ids::UtteranceId;

pub(super) static FORMAT: Format = Format {
    name: "locomo",
    about: "LoCoMo (long conversations): a JSON object with `session_1`, `session_1_date_time`, …, or a list of such objects",
    sniff,
    read,
};

/// Maximum nesting depth of a session in a file: list, sample, `conversation`.
const DEPTH: usize = 3;

fn sniff(probe: &Probe<'_>) -> Fit {
    if !["\"dia_id\"", "\"session_"].iter().all(|key| probe.text.contains(key)) {
        return Fit::No;
    }
    let is_session = |element: &Element| {
        let named = element.keys.last().is_some_and(|key| session_number(key).is_some());
        named
            && serde_json::from_slice::<Value>(&element.json)
                .is_ok_and(|turns| turns.get(0).is_some_and(|turn| turn.get("dia_id").is_some()))
    };
    let fits = (1..=DEPTH).any(|depth| {
        let text = probe.text;
        Elements::at_depth(text.as_bytes(), depth, text.len()).map_while(Result::ok).any(|e| is_session(&e))
    });
    if fits { Fit::Yes } else { Fit::No }
}

/// Returns the number in `session_1`. Other keys that begin with `session_`, such as `session_1_summary`, have none.
fn session_number(key: &str) -> Option<u32> {
    let digits = key.strip_prefix("session_")?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let (name, stem) = (input.name.clone(), input.stem());
    let samples = elements(input, options.max_record)?;
    Ok(Box::new(samples.flat_map(move |element| -> Dialogues {
        let read = element.map_err(|e| support::element_problem(&name, e)).and_then(|(element, in_list)| {
            let position = in_list.then(|| position(&element));
            Sample::read(&element, &stem, position).map_err(|e| e.at(&name, element.line))
        });
        match read {
            Err(problem) => Box::new(std::iter::once(Err(problem))),
            Ok(sample) => sample.into_dialogues(name.clone()),
        }
    })))
}

/// Iterator over samples. The flag is true if the sample is an element of a list.
type Samples = Box<dyn Iterator<Item = Result<(Element, bool), ElementError>> + Send>;

/// Returns the samples of a file, not yet parsed.
fn elements(input: Input, limit: usize) -> Result<Samples> {
    let in_list = !input.probe().text.trim_start().starts_with('{');
    let stream: Box<dyn BufRead + Send> = match in_list {
        true => input.into_stream(),
        false => Box::new(Cursor::new(b"[").chain(input.into_stream()).chain(Cursor::new(b"]"))),
    };
    let elements = Elements::at_depth(stream, 1, limit);
    Ok(Box::new(elements.map(move |element| element.map(|element| (element, in_list)))))
}

/// Sample with its parts, most of them not yet parsed.
#[derive(Default)]
struct Sample {
    name: String,
    /// Sessions by number. Only one of them is parsed at a time.
    sessions: BTreeMap<u32, Element>,
    /// Texts with the date and time of a session, by the number of the session.
    dates: HashMap<u32, String>,
    questions: Option<Element>,
}

impl Sample {
    /// Finds the parts of a sample. The name is the `sample_id`, else the file name `stem`, followed by `position` if
    /// the sample is part of a list.
    fn read(element: &Element, stem: &str, position: Option<u64>) -> Result<Self, RecordError> {
        let mut sample = Sample::default();
        sample.collect(&element.json, element.line, true)?;
        if sample.name.is_empty() {
            sample.name = match position {
                Some(position) => support::generated_id(stem, position)?.as_str().to_owned(),
                None => stem.to_owned(),
            };
        }
        match sample.sessions.is_empty() {
            true => {
                Err(RecordError::new("the sample has no sessions (`session_1`, …)")
                    .with_id(Some(sample.name)))
            }
            false => Ok(sample),
        }
    }

    /// Adds the members of a JSON object. `line` is the line where the object starts. The member `conversation` is
    /// searched if `outer` is true.
    fn collect(&mut self, json: &[u8], line: u64, outer: bool) -> Result<(), RecordError> {
        if !json.starts_with(b"{") {
            return Err("the sample is not a JSON object".into());
        }
        for member in Elements::at_depth(json, 1, json.len()) {
            let mut member = member.map_err(|e| match e {
                ElementError::Broken { what, .. } => RecordError::new(format!("not valid JSON: {what}")),
                _ => RecordError::new("the sample cannot be read"),
            })?;
            member.line += line - 1;
            let key = member.keys.pop().unwrap_or_default();
            let text = || serde_json::from_slice::<Value>(&member.json).ok();
            let date_of = key.strip_suffix("_date_time").and_then(session_number);
            match (key.as_str(), session_number(&key), date_of) {
                ("conversation", ..) if outer => self.collect(&member.json, member.line, false)?,
                ("sample_id", ..) => match text() {
                    Some(Value::String(id)) => self.name = id,
                    Some(Value::Number(id)) => self.name = id.to_string(),
                    _ => {}
                },
                ("qa", ..) => self.questions = Some(member),
                (_, Some(number), _) => _ = self.sessions.insert(number, member),
                (_, _, Some(number)) => {
                    if let Some(Value::String(date)) = text() {
                        self.dates.insert(number, date);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn into_dialogues(self, path: String) -> Dialogues {
        let Sample { name, sessions, mut dates, .. } = self;
        Box::new(sessions.into_iter().filter_map(move |(number, session)| {
            let date = dates.remove(&number);
            let id = format!("{name}-D{number}");
            let mut line = session.line;
            let read = dialogue(&id, number, &session, &mut line).map(|mut dialogue| {
                dialogue.note("thread", name.as_str());
                dialogue.time = date.as_deref().and_then(time);
                if dialogue.time.is_none() {
                    dialogue.note("date_time", date);
                }
                Some(dialogue)
            });
            support::finished(read.map_err(|e| e.with_id(Some(id))), &path, line)
        }))
    }
}

/// Parses a time such as `1:56 pm on 8 May, 2023`.
fn time(text: &str) -> Option<Time> {
    let time = jiff::civil::DateTime::strptime("%I:%M %p on %d %B, %Y", text.trim()).ok()?;
    Time::from_civil(time)
}

/// Reads a session. After an error, `line` is the line of the invalid turn.
fn dialogue(id: &str, number: u32, session: &Element, line: &mut u64) -> Result<Dialogue, RecordError> {
    if !session.json.starts_with(b"[") {
        return Err(format!("`session_{number}` is not a list of turns").into());
    }
    let mut dialogue = support::dialogue(DialogueId::new(id)?, "locomo", None);
    dialogue.note("session", number);
    // One turn more than the maximum is enough for the check of the dialogue to reject it.
    for turn in Elements::at_depth(session.json.as_slice(), 1, session.json.len()).take(MAX_TURNS + 1) {
        let element = turn.map_err(|_| RecordError::new(format!("`session_{number}` is not valid JSON")))?;
        *line = session.line + element.line - 1;
        let turn = self::turn(&element.json, number).map_err(|why| {
            RecordError::new(format!("turn {} of `session_{number}` {why}", position(&element)))
        })?;
        dialogue.turns.push(turn);
    }
    *line = session.line;
    Ok(dialogue)
}

/// Parses a turn. The error continues a sentence that begins with the name of the turn.
fn turn(json: &[u8], session: u32) -> Result<Turn, String> {
    let mut record: Record = serde_json::from_slice(json).map_err(|e| match e.is_data() {
        true => "is not an object".to_owned(),
        false => format!("is {}", support::json_reason(&e)),
    })?;
    let number = match record.remove("dia_id") {
        // The turn gets the number after that of the turn before it.
        None | Some(Value::Null) => TurnNo(0),
        Some(id) => {
            turn_number(&id, session).ok_or_else(|| format!("has the `dia_id` {id}, not D{session}:N"))?
        }
    };
    let caption = take_text(&mut record, &["blip_caption"]);
    let text = match (record.remove("text"), caption) {
        (Some(Value::String(text)), None) => text,
        (Some(Value::String(text)), Some(caption)) => {
            format!("{text} [shares {caption}]").trim_start().to_owned()
        }
        (None | Some(Value::Null), Some(caption)) => format!("[shares {caption}]"),
        (None | Some(Value::Null), None) => return Err("has no `text`".to_owned()),
        (Some(_), _) => return Err("has a `text` that is not a string".to_owned()),
    };
    let speaker = take_text(&mut record, &["speaker"]).unwrap_or_default();
    Ok(Turn {
        number,
        speaker,
        role: Some(Role::Participant),
        text,
        metadata: rest(record),
        ..Turn::default()
    })
}

fn turn_number(id: &Value, session: u32) -> Option<TurnNo> {
    let (of, turn) = session_and_turn(id.as_str()?)?;
    (of == session && turn > 0).then_some(TurnNo(turn))
}

/// Parses an id of a turn: `D1:3` is turn 3 of session 1. A few ids are written as `D:1:3`.
fn session_and_turn(id: &str) -> Option<(u32, u32)> {
    let id = id.trim().strip_prefix('D')?;
    let (session, turn) = id.strip_prefix(':').unwrap_or(id).split_once(':')?;
    Some((session.parse().ok()?, turn.parse().ok()?))
}

/// Question about a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocomoQuestion {
    /// Name of the conversation. It is the value `thread` in the metadata of its dialogues.
    pub sample: String,
    /// Position of the question in the list of the sample, counted from 1.
    pub number: usize,
    /// Text of the question.
    pub text: String,
    /// Ids of the turns that answer the question. A text that is not the id of a turn is included unchanged.
    pub evidence: Vec<String>,
    /// Category, from 1 to 5.
    pub category: Option<u64>,
}

/// Question as in the file.
#[derive(Deserialize)]
#[serde(expecting = "an object with a question")]
struct Qa {
    question: String,
    #[serde(default)]
    evidence: Vec<String>,
    category: Option<u64>,
}

/// Reads the questions of a LoCoMo file. Questions about a sample without valid sessions are included.
pub fn locomo_questions(path: &Path) -> Result<Vec<LocomoQuestion>> {
    let input = Input::open(path)?;
    let (name, stem) = (input.name.clone(), input.stem());
    let failed = |problem: Problem| match problem {
        Problem::Record(reject) | Problem::File(reject) => Error::data(reject.to_string()),
    };
    let mut all = Vec::new();
    for element in elements(input, ReadOptions::default().max_record)? {
        let (element, in_list) = element.map_err(|e| failed(support::element_problem(&name, e)))?;
        let position = in_list.then(|| position(&element));
        // The reader of the dialogues reports an invalid sample.
        let Ok(sample) = Sample::read(&element, &stem, position) else { continue };
        let Some(list) = sample.questions else { continue };
        let read: Vec<Qa> = serde_json::from_slice(&list.json).map_err(|e| {
            let e = RecordError::new(format!("`qa`: {}", support::json_reason(&e)));
            failed(e.with_id(Some(&sample.name)).at(&name, list.line))
        })?;
        all.extend(read.into_iter().enumerate().map(|(n, qa)| LocomoQuestion {
            sample: sample.name.clone(),
            number: n + 1,
            text: qa.question,
            evidence: qa.evidence.iter().flat_map(|text| evidence(&sample.name, text)).collect(),
            category: qa.category,
        }));
    }
    Ok(all)
}

/// Returns the utterance ids in a text such as `D1:3; D2:5`.
fn evidence(sample: &str, text: &str) -> Vec<String> {
    let parts =
        text.split(|c: char| c.is_whitespace() || matches!(c, ';' | ',')).filter(|part| !part.is_empty());
    let id = |part: &str| {
        let (session, turn) = session_and_turn(part)?;
        let dialogue = DialogueId::new(format!("{sample}-D{session}")).ok()?;
        Some(UtteranceId { dialogue, turn: TurnNo(turn) }.to_string())
    };
    parts.map(|part| id(part).unwrap_or_else(|| part.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const SAMPLE: &str = r#"{
  "speaker_a": "Ines", "speaker_b": "Tom",
  "session_1_date_time": "1:56 pm on 8 May, 2023",
  "session_1": [
    {"speaker": "Ines", "dia_id": "D1:1", "text": "I adopted a dog!"},
    {"speaker": "Tom", "dia_id": "D1:2", "text": "Show me.", "query": "dog", "img_url": ["http://x/1"], "re-download": true},
    {"speaker": "Ines", "dia_id": "D1:4", "text": "Here he is.", "blip_caption": "a photo of a dog"}],
  "session_10_date_time": "12:05 am on 31 December, 2023",
  "session_10": [{"speaker": "Tom", "dia_id": "D10:1", "text": "Happy new year"}],
  "session_2_date_time": "soon",
  "session_2": [{"speaker": "Tom", "text": "", "blip_caption": "a cake"}, {"speaker": "Tom", "text": "Eat!"}],
  "session_3": [{"speaker": "Tom", "dia_id": "D3:1", "text": "Without a date"}],
  "session_4_date_time": "1:00 pm on 8 May, 2023",
  "session_1_summary": "They talk.", "events_session_1": {"date": "x"},
  "qa": [{"question": "What did Ines adopt?", "answer": "a dog", "evidence": ["D1:1; D1:4", "D:10:1", "D"], "category": 4},
         {"question": "Who left?", "adversarial_answer": "nobody", "evidence": [], "category": 5}]
}"#;

    fn ids(dialogues: &[Dialogue]) -> Vec<&str> {
        dialogues.iter().map(|d| d.id.as_str()).collect()
    }

    #[test]
    fn each_session_is_a_dialogue_with_its_time_and_numbers() {
        assert_eq!(sniffed("26.json", SAMPLE), Some("locomo"));
        let all = read_text(&FORMAT, "26.json", SAMPLE);
        assert_eq!(ids(&all), ["26-D1", "26-D2", "26-D3", "26-D10"]);
        assert_eq!(
            serde_json::to_string(&all[0]).unwrap(),
            r#"{"id":"26-D1","source":"locomo","time":"2023-05-08T13:56:00Z","metadata":{"session":1,"thread":"26"},"turns":[{"number":1,"speaker":"Ines","role":"participant","text":"I adopted a dog!"},{"number":2,"speaker":"Tom","role":"participant","text":"Show me.","metadata":{"img_url":["http://x/1"],"query":"dog","re-download":true}},{"number":4,"speaker":"Ines","role":"participant","text":"Here he is. [shares a photo of a dog]"}]}"#
        );
        assert_eq!(all[3].time.unwrap().to_string(), "2023-12-31T00:05:00Z");
    }

    #[test]
    fn missing_dates_and_numbers_have_defaults() {
        let all = read_text(&FORMAT, "26.json", SAMPLE);
        assert_eq!((all[1].time, &all[1].metadata["date_time"]), (None, &Value::from("soon")));
        assert_eq!((all[2].time, all[2].metadata.get("date_time")), (None, None));
        let turns: Vec<_> = all[1].turns.iter().map(|t| (t.number.0, t.text.as_str())).collect();
        assert_eq!(turns, [(1, "[shares a cake]"), (2, "Eat!")]);
    }

    #[test]
    fn a_list_of_samples_has_the_sessions_in_conversation() {
        let nested = |id: &str| format!(r#"{{"qa": [], "conversation": {SAMPLE}, "sample_id": {id}}}"#);
        let text = format!("[{}, {}, {SAMPLE}]", nested("\"conv-26\""), nested("null"));
        assert_eq!(sniffed("locomo10.json", &text), Some("locomo"));
        let all = read_text(&FORMAT, "locomo10.json", &text);
        assert_eq!(ids(&all)[..2], ["conv-26-D1", "conv-26-D2"]);
        assert_eq!(ids(&all)[4], "locomo10-000002-D1");
        assert_eq!(ids(&all)[8], "locomo10-000003-D1");
        assert_eq!(all[8].metadata["thread"], "locomo10-000003");
        assert_eq!(sniffed("one.json", &nested("7")), Some("locomo"));
        assert_eq!(ids(&read_text(&FORMAT, "one.json", &nested("7")))[0], "7-D1");
    }

    #[test]
    fn bad_sessions_are_reported_and_the_rest_is_read() {
        let text = r#"[{"sample_id": "a", "session_1": [{"dia_id": "D1:1", "text": "x"},
 {"dia_id": "D1:2"}],
 "session_2": [{"dia_id": "D2:2", "text": "x"}, {"dia_id": "D2:1", "text": "y"}],
 "session_3": [{"dia_id": "D4:1", "text": "x"}],
 "session_4": [{"dia_id": "D4:99999999999", "text": "x"}],
 "session_5": [7], "session_6": {}, "session_7": [],
 "session_8": [{"dia_id": "D8:1", "text": ["x"]}],
 "session_9": [{"dia_id": "D9:1", "text": "fine"}]},
 {"sample_id": "b", "qa": []}, 5,
 {"sample_id": "c", "session_1": [{"dia_id": "D1:1", "text""#;
        assert_eq!(
            problems(&FORMAT, "l.json", text),
            [
                "l.json:2 (a-D1): turn 2 of `session_1` has no `text`",
                "l.json:3 (a-D2): turn number 1 follows 2; turn numbers must be ascending",
                "l.json:4 (a-D3): turn 1 of `session_3` has the `dia_id` \"D4:1\", not D3:N",
                "l.json:5 (a-D4): turn 1 of `session_4` has the `dia_id` \"D4:99999999999\", not D4:N",
                "l.json:6 (a-D5): turn 1 of `session_5` is not an object",
                "l.json:6 (a-D6): `session_6` is not a list of turns",
                "l.json:6 (a-D7): the dialogue has no turns",
                "l.json:7 (a-D8): turn 1 of `session_8` has a `text` that is not a string",
                "l.json:9 (b): the sample has no sessions (`session_1`, …)",
                "l.json:9: the sample is not a JSON object",
                "l.json:10: the file ends in the middle of a JSON value",
            ]
        );
        assert_eq!(ids(&read_text(&FORMAT, "l.json", text)), ["a-D9"]);
    }

    #[test]
    fn other_json_is_not_detected() {
        let chat = r#"{"messages": [{"role": "user", "content": "\"dia_id\" and \"session_1\" are keys"}]}"#;
        assert_eq!(sniffed("a.json", chat), Some("messages"));
        assert_eq!(
            sniffed("a.json", r#"{"session_1": [{"id": "dia_id"}], "session_x": {"dia_id": 1}}"#),
            None
        );
    }

    #[test]
    fn questions_name_the_turns_that_answer_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("26.json");
        std::fs::write(&path, SAMPLE).unwrap();
        let all = locomo_questions(&path).unwrap();
        assert_eq!((all[0].sample.as_str(), all[0].number, all[0].category), ("26", 1, Some(4)));
        assert_eq!(all[0].evidence, ["26-D1#1", "26-D1#4", "26-D10#1", "D"]);
        assert_eq!((all[1].number, all[1].category), (2, Some(5)));
        std::fs::write(&path, SAMPLE.replace("\"What did Ines adopt?\"", "7")).unwrap();
        let e = locomo_questions(&path).unwrap_err().to_string();
        assert!(e.contains("26.json:15 (26): `qa`: invalid type: integer `7`"), "{e}");
    }
}
