//! Unified format of ConvLab-3. Dozens of corpora are published in this format. The dialogues of a corpus are a JSON
//! array in `dialogues.json`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "convlab3",
    about: "ConvLab-3 unified format (KVRET, DailyDialog and many more): an array of dialogues with `data_split`",
    sniff,
    read,
};

#[derive(Deserialize)]
struct Record {
    dataset: String,
    data_split: String,
    dialogue_id: String,
    #[serde(default)]
    domains: Vec<String>,
    #[serde(default)]
    goal: Option<Goal>,
    turns: Vec<Utterance>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Goal {
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Utterance {
    speaker: String,
    utterance: String,
    #[serde(default)]
    dialogue_acts: Acts,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Acts {
    binary: Vec<Act>,
    categorical: Vec<Act>,
    #[serde(rename = "non-categorical")]
    open: Vec<Act>,
}

#[derive(Deserialize)]
struct Act {
    intent: String,
    #[serde(default)]
    domain: String,
    #[serde(default)]
    slot: String,
    #[serde(default)]
    value: Value,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    if is_companion(probe) {
        return Fit::Companion;
    }
    let Some((_, Value::Object(first))) = probe.first_element(1) else {
        return Fit::No;
    };
    let keys = ["dataset", "data_split", "dialogue_id"].iter().all(|key| first.contains_key(*key));
    let turn = first.get("turns").and_then(|turns| turns.get(0));
    let utterance = turn.is_none_or(|turn| turn.get("utterance").is_some());
    if keys && first.contains_key("turns") && utterance { Fit::Yes } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    Ok(support::from_elements(input, options, 1, |element| {
        let record: Record = record(element, Some("dialogue_id"))?;
        let id = record.dialogue_id.clone();
        dialogue(record).map(Some).map_err(|e| e.with_id(Some(id)))
    }))
}

/// Returns whether a file belongs to a corpus in this format but is not read. Such a file is an ontology, a database, a
/// list of ids, or a sample of the dialogues.
fn is_companion(probe: &Probe<'_>) -> bool {
    let next_to = |names: &[&str]| {
        let folder = probe.path.and_then(Path::parent);
        folder.is_some_and(|folder| names.iter().any(|name| folder.join(name).is_file()))
    };
    match probe.file_name().as_str() {
        "ontology.json" => probe.first_element(2).is_some_and(|(keys, value)| {
            keys.first().is_some_and(|key| key == "domains") && value.get("slots").is_some()
        }),
        "db.json" => next_to(&["dialogues.json", "dialogues.json.gz", "dialogues.json.zst"]),
        "dummy_data.json" => next_to(&["data/dialogues.json", "dialogues.json", "data.zip"]),
        "shuffled_dial_ids.json" => {
            next_to(&["data/dialogues.json", "dialogues.json", "data.zip", "dummy_data.json"])
        }
        _ => false,
    }
}

fn dialogue(record: Record) -> Result<Dialogue, RecordError> {
    let mut dialogue = Dialogue::new(DialogueId::new(record.dialogue_id)?);
    dialogue.source = record.dataset;
    dialogue.domains = record.domains;
    dialogue.metadata = scalars(record.rest);
    dialogue.note("split", record.data_split);
    dialogue.note("goal", record.goal.map(|goal| goal.description).unwrap_or_default());
    for utterance in record.turns {
        let role = match utterance.speaker.as_str() {
            // In this format, `system` means the agent, not a notice.
            "system" => Role::Agent,
            other => tables::known_role(other).unwrap_or(Role::Participant),
        };
        let turn = dialogue.push(utterance.speaker, role, utterance.utterance);
        let Acts { binary, categorical, open } = utterance.dialogue_acts;
        turn.acts = binary.iter().chain(&categorical).chain(&open).map(formatted).collect();
        turn.metadata = scalars(utterance.rest);
        turn.metadata.remove("utt_idx");
    }
    Ok(dialogue)
}

fn formatted(act: &Act) -> String {
    let value = match &act.value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    support::act(&act.intent, &act.domain, &act.slot, &value)
}

/// Returns the extra fields with scalar values, such as an emotion, as metadata. Other extra fields, such as states,
/// are dropped.
fn scalars(rest: Map<String, Value>) -> Metadata {
    let empty = |value: &Value| value.as_str().is_some_and(str::is_empty);
    let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    rest.into_iter().filter(|(_, value)| scalar(value) && !empty(value)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const TASKS: &str = r#"[
  {"dataset": "cars", "data_split": "train", "dialogue_id": "cars-train-0", "original_id": "t0", "domains": ["navigate"],
   "goal": {"description": "find a garage", "inform": {}, "request": {}},
   "turns": [
    {"speaker": "user", "utterance": "a garage nearby", "utt_idx": 0, "state": {"navigate": {}},
     "dialogue_acts": {"binary": [{"intent": "request", "domain": "navigate", "slot": "address"}],
       "categorical": [{"intent": "inform", "domain": "navigate", "slot": "open", "value": "yes"}],
       "non-categorical": [{"intent": "inform", "domain": "navigate", "slot": "kind", "value": "garage", "start": 2, "end": 8}]}},
    {"speaker": "system", "utterance": "two streets on", "utt_idx": 1, "db_results": {"navigate": []},
     "dialogue_acts": {"binary": [], "categorical": [], "non-categorical": []}}]},
  {"dataset": "cars", "data_split": "train", "dialogue_id": "cars-train-1", "domains": [], "turns": [{"speaker": "user"}]},
  {"dataset": "cars", "data_split": "train", "dialogue_id": "cars-train-2", "domains": [], "turns": []}
]"#;

    /// A record like those of DailyDialog. The acts have no domain and no slot, and each turn has an emotion.
    const CHITCHAT: &str = r#"[{"dataset": "dailydialog", "data_split": "test", "dialogue_id": "dailydialog-test-0", "original_id": "test-0",
  "domains": ["Work"], "turns": [
  {"speaker": "user", "utterance": "Busy?", "utt_idx": 0, "dialogue_acts": {"binary": [{"intent": "question", "domain": "", "slot": ""}], "categorical": [], "non-categorical": []}, "emotion": "no emotion"},
  {"speaker": "system", "utterance": "Always!", "utt_idx": 1, "dialogue_acts": {"binary": [{"intent": "inform", "domain": "", "slot": ""}], "categorical": [], "non-categorical": []}, "emotion": "happiness"}]}]"#;

    #[test]
    fn tasks_keep_goal_acts_and_split() {
        assert_eq!(sniffed("dialogues.json", TASKS), Some("convlab3"));
        assert_eq!(
            serde_json::to_string(&read_text(&FORMAT, "dialogues.json", TASKS)).unwrap(),
            r#"[{"id":"cars-train-0","source":"cars","domains":["navigate"],"metadata":{"goal":"find a garage","original_id":"t0","split":"train"},"turns":[{"number":1,"speaker":"user","role":"user","text":"a garage nearby","acts":["request(navigate-address)","inform(navigate-open=yes)","inform(navigate-kind=garage)"]},{"number":2,"speaker":"system","role":"agent","text":"two streets on"}]}]"#
        );
    }

    #[test]
    fn chit_chat_keeps_its_emotions() {
        assert_eq!(sniffed("dialogues.json", CHITCHAT), Some("convlab3"));
        let got = read_text(&FORMAT, "dialogues.json", CHITCHAT);
        assert_eq!(got[0].domains, ["Work"]);
        assert_eq!(got[0].turns[0].acts, ["question"]);
        assert_eq!(got[0].turns[1].metadata["emotion"], "happiness");
    }

    #[test]
    fn bad_records_are_reported() {
        assert_eq!(
            problems(&FORMAT, "dialogues.json", TASKS),
            [
                "dialogues.json:11 (cars-train-1): missing field `utterance` at column 118",
                "dialogues.json:12 (cars-train-2): the dialogue has no turns",
            ]
        );
    }

    #[test]
    fn companion_files_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let fit = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            sniff(&Input::open(&path).unwrap().probe())
        };
        assert_eq!(fit("db.json", r#"[{"poi": "x"}]"#), Fit::No);
        assert_eq!(fit("dummy_data.json", CHITCHAT), Fit::Yes);
        assert_eq!(fit("dialogues.json", CHITCHAT), Fit::Yes);
        assert_eq!(fit("dummy_data.json", CHITCHAT), Fit::Companion);
        assert_eq!(fit("db.json", r#"[{"poi": "x"}]"#), Fit::Companion);
        assert_eq!(
            fit("ontology.json", r#"{"domains": {"Work": {"description": "", "slots": {}}}}"#),
            Fit::Companion
        );
        assert_eq!(fit("ontology.json", r#"{"hotel-area": ["east"]}"#), Fit::No);
    }
}
