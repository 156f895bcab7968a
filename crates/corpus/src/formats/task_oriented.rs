//! Shared code of the readers for task-oriented corpora: detection of JSON formats, roles, splits, dialog acts, and the
//! frames of SGD and MultiWOZ 2.2.

use std::collections::BTreeMap;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::formats::prelude::*;

/// Number of records at the beginning of a file that are checked to detect its format.
const SNIFFED_RECORDS: usize = 5;

/// Returns the role of a speaker in a task-oriented corpus, where `system` is the agent. Returns `None` for an empty
/// name.
pub(super) fn role_of(speaker: &str) -> Option<Role> {
    let speaker = speaker.trim().to_lowercase();
    match speaker.as_str() {
        "" => None,
        "user" | "usr" | "customer" | "seeker" => Some(Role::User),
        "system" | "sys" | "agent" | "assistant" | "bot" | "wizard" => Some(Role::Agent),
        other => Some(Role::Other(other.into())),
    }
}

/// Returns the split in a file or folder name, such as `train` in `train_en`. Returns `None` if the name contains no
/// split or several splits, such as `train-and-dev`.
pub(super) fn split_of(name: &str) -> Option<String> {
    const SPLITS: [&str; 7] = ["train", "dev", "val", "valid", "validation", "test", "testdev"];
    let name = name.to_lowercase();
    let mut found = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| SPLITS.contains(word));
    let split = found.next()?;
    found.next().is_none().then(|| split.to_owned())
}

/// Returns the position of a record in its array, counted from 1. Returns 0 if the key of the record is not a number.
pub(super) fn position(element: &Element) -> u64 {
    element.keys.last().and_then(|key| key.parse::<u64>().ok()).map_or(0, |n| n.saturating_add(1))
}

/// Parses an element. An error contains the value of `id_field` as the id. If `id_field` is `None`, the id is the key
/// of the element.
pub(super) fn record<T: DeserializeOwned>(
    element: &Element,
    id_field: Option<&str>,
) -> Result<T, RecordError> {
    match id_field {
        Some(field) => support::parse(&element.json, field),
        None => serde_json::from_slice(&element.json)
            .map_err(|e| RecordError::from(e).with_id(element.keys.last())),
    }
}

/// Returns whether one of the first five values at nesting depth `depth` of a JSON document passes a test. The
/// arguments of the test are the keys of the value and the value.
pub(super) fn any_element(
    probe: &Probe<'_>,
    depth: usize,
    mut test: impl FnMut(&[String], &Value) -> bool,
) -> bool {
    if !probe.text.trim_start().starts_with(['[', '{']) {
        return false;
    }
    Elements::at_depth(probe.text.as_bytes(), depth, probe.text.len())
        .map_while(Result::ok)
        .take(SNIFFED_RECORDS)
        .any(|e| serde_json::from_slice(&e.json).is_ok_and(|value| test(&e.keys, &value)))
}

/// Returns whether one of the first five lines (not counting blank lines) is a JSON object that passes a test.
pub(super) fn any_json_line(
    probe: &Probe<'_>,
    mut test: impl FnMut(&serde_json::Map<String, Value>) -> bool,
) -> bool {
    let mut lines = probe.lines().take(SNIFFED_RECORDS);
    lines.any(|line| serde_json::from_str(line).is_ok_and(|object| test(&object)))
}

/// Appends an item, unless it is empty or already in the list.
pub(super) fn push_unique(list: &mut Vec<String>, item: &str) {
    if !item.is_empty() && !list.iter().any(|known| known == item) {
        list.push(item.to_owned());
    }
}

/// Returns the names of the dialog acts in an annotation of MultiWOZ. In some versions, the annotation is an object
/// with the acts as keys. In others, it is a list of `[act, domain, slot, value]`, or a string such as "No Annotation".
pub(super) fn act_names(annotation: &Value) -> Vec<String> {
    let mut names = Vec::new();
    match annotation {
        Value::Object(acts) => acts.keys().for_each(|act| push_unique(&mut names, act)),
        Value::Array(acts) => {
            for act in acts {
                let part = |n| act.get(n).and_then(Value::as_str);
                match (part(0), part(1)) {
                    (Some(act), Some(domain)) => push_unique(&mut names, &format!("{domain}-{act}")),
                    _ => push_unique(&mut names, act.as_str().unwrap_or_default()),
                }
            }
        }
        Value::String(text) if !text.eq_ignore_ascii_case("no annotation") => push_unique(&mut names, text),
        _ => {}
    }
    names
}

/// Returns whether a file is the schema file of SGD or MultiWOZ 2.2.
pub(super) fn is_schema(probe: &Probe<'_>) -> bool {
    any_element(probe, 1, |_, value| {
        value.get("service_name").is_some() && value.get("intents").is_some_and(Value::is_array)
    })
}

/// Returns whether a JSON value is a dialogue of MultiWOZ 2.2, or of SGD if `is_multiwoz` is false. The two corpora
/// have the same layout, but the turns of MultiWOZ have ids, and most dialogue ids of MultiWOZ end in `.json`.
pub(super) fn is_framed(value: &Value, is_multiwoz: bool) -> bool {
    let turn = value.get("turns").and_then(|turns| turns.get(0));
    let id = value.get("dialogue_id").and_then(Value::as_str);
    let (Some(turn), Some(id)) = (turn, id) else {
        return false;
    };
    value.get("services").is_some_and(Value::is_array)
        && ["speaker", "utterance", "frames"].iter().all(|key| turn.get(key).is_some())
        && is_multiwoz == (id.ends_with(".json") || turn.get("turn_id").is_some())
}

/// A turn of SGD or MultiWOZ 2.2. Its annotations are grouped by service into frames.
#[derive(Deserialize)]
#[serde(expecting = "an object with a turn")]
pub(super) struct FramedTurn {
    speaker: String,
    utterance: String,
    #[serde(default)]
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a frame")]
struct Frame {
    #[serde(default)]
    service: String,
    #[serde(default)]
    actions: Vec<Action>,
    state: Option<State>,
    service_call: Option<ServiceCall>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with an action")]
struct Action {
    act: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a state")]
struct State {
    #[serde(default)]
    active_intent: String,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a service call")]
struct ServiceCall {
    method: String,
}

/// Appends turns with their acts, intents and service calls to a dialogue of SGD or MultiWOZ 2.2.
pub(super) fn add_framed_turns(dialogue: &mut Dialogue, turns: Vec<FramedTurn>) {
    // The active intent of each service. In addition to a new intent, a turn can repeat the intents of earlier turns.
    let mut active: BTreeMap<String, String> = BTreeMap::new();
    for framed in turns {
        let (role, speaker) = (role_of(&framed.speaker), framed.speaker);
        let mut turn = Turn { role, speaker, text: framed.utterance, ..Turn::default() };
        let mut repeated = None;
        let mut services = Vec::new();
        for frame in framed.frames {
            frame.actions.iter().for_each(|action| push_unique(&mut turn.acts, &action.act));
            if let Some(call) = frame.service_call {
                turn.note("service_call", call.method);
            }
            let intent = frame.state.map(|s| s.active_intent).filter(|i| !i.is_empty() && i != "NONE");
            if let Some(intent) = intent {
                push_unique(&mut dialogue.intents, &intent);
                push_unique(&mut services, &frame.service);
                let before = active.insert(frame.service, intent.clone());
                if before.as_ref() == Some(&intent) {
                    repeated.get_or_insert(intent);
                } else {
                    turn.intent.get_or_insert(intent);
                }
            }
        }
        turn.intent = turn.intent.or(repeated);
        if services.len() > 1 {
            turn.note("services", services);
        }
        dialogue.turns.push(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_a_whole_word_in_the_name() {
        assert_eq!(split_of("train_en").as_deref(), Some("train"));
        assert_eq!(split_of("doc2dial_dial_validation").as_deref(), Some("validation"));
        assert_eq!(split_of("trains"), None);
        assert_eq!(split_of("train-and-dev"), None);
    }

    #[test]
    fn acts_are_read_in_every_notation() {
        let names = |json| act_names(&serde_json::from_str(json).unwrap());
        assert_eq!(
            names(r#"{"Hotel-Inform":[["Area","east"]],"general-bye":[]}"#),
            ["Hotel-Inform", "general-bye"]
        );
        assert_eq!(
            names(r#"[["Inform","Hotel","Area","east"],["Inform","Hotel","Stars","4"]]"#),
            ["Hotel-Inform"]
        );
        assert_eq!(names(r#""No Annotation""#), Vec::<String>::new());
        assert_eq!(names(r#""greet""#), ["greet"]);
        assert_eq!(names("null"), Vec::<String>::new());
    }
}
