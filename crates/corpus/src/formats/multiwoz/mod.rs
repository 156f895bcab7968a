//! MultiWOZ 2.0, 2.1 (also in the single-split files of ConvLab-2) and 2.2.
//!
//! Versions 2.0 and 2.1 are an object of `id: {goal, log}`. Version 2.2 is an array of dialogues with services and
//! frames, in the layout of SGD. The dialog acts are in the log or in a companion file (see [`beside`]).

mod companions;

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::{
    Dialogue,
    dialogue::{Role, Turn},
    formats::{
        Dialogues, Fit, Format, ReadOptions,
        support::{self, RecordError},
        task_oriented::{
            FramedTurn, act_names, add_framed_turns, any_element, is_schema, position, push_unique, record,
            split_of,
        },
    },
    input::{Input, Probe},
};
use companions::{Acts, Splits};
use turnwise_core::{error::Result, ids::DialogueId};

pub(super) struct MultiWoz;

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    goal: Option<Map<String, Value>>,
    log: Option<Vec<LogTurn>>,
    dialogue_id: Option<String>,
    services: Option<Vec<String>>,
    turns: Option<Vec<FramedTurn>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a turn")]
struct LogTurn {
    text: String,
    /// The belief state. Only system turns have one.
    metadata: Option<BTreeMap<String, IgnoredAny>>,
    dialog_act: Option<Value>,
}

impl Format for MultiWoz {
    fn name(&self) -> &'static str {
        "multiwoz"
    }

    fn about(&self) -> &'static str {
        "MultiWOZ 2.0 and 2.1 (data.json, ConvLab-2's val.json), MultiWOZ 2.2 (dialogues_*.json)"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        if any_element(probe, 1, |_, value| is_log(value) || is_framed(value)) {
            Fit::Yes
        } else if companions::is_companion(probe) || is_schema(probe) {
            Fit::Companion
        } else {
            Fit::No
        }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        let stem = input.stem();
        let split = split_of(&stem).or_else(|| input.folder_name().and_then(|folder| split_of(&folder)));
        let splits = Splits::of(input.path.as_deref(), split);
        let has_acts = any_element(&input.probe(), 1, |_, value| {
            value.get("log").and_then(|log| log.get(0)).is_some_and(|turn| turn.get("dialog_act").is_some())
        });
        let (acts, problems) = match &input.path {
            Some(path) if !has_acts => Acts::read_near(path, options),
            _ => (Acts::default(), Vec::new()),
        };
        let framed = input.probe().text.trim_start().starts_with('[');
        let dialogues = support::from_elements(input, options, 1, move |element| {
            let key = element.keys.last().map_or("", String::as_str);
            let read: Record = record(element, framed.then_some("dialogue_id"))?;
            let id = match read.dialogue_id.as_deref() {
                Some(id) if !id.is_empty() => DialogueId::new(id)?,
                _ if !framed => DialogueId::new(key)?,
                _ => support::generated_id(&stem, position(element))?,
            };
            let mut dialogue = Dialogue::new(id);
            dialogue.source = "multiwoz".to_owned();
            dialogue.language = Some("en".to_owned());
            match (read.log, read.turns) {
                (Some(log), _) => add_log(&mut dialogue, log),
                (None, Some(turns)) => add_framed_turns(&mut dialogue, turns),
                (None, None) => {
                    let why = "the dialogue has neither `log` (MultiWOZ 2.0, 2.1) nor `turns` (2.2)";
                    return Err(RecordError::new(why).with_id(Some(dialogue.id.as_str())));
                }
            }
            dialogue.domains = read.services.unwrap_or_default();
            if let Some(goal) = &read.goal {
                add_goal(&mut dialogue, goal);
            }
            if dialogue.domains.is_empty() {
                dialogue.domains = domains_of_intents(&dialogue.intents);
            }
            if let Some(split) = splits.of_dialogue(dialogue.id.as_str()) {
                dialogue.metadata.insert("split".to_owned(), split.into());
            }
            acts.add_to(&mut dialogue);
            Ok(Some(dialogue))
        });
        Ok(Box::new(problems.into_iter().map(Err).chain(dialogues)))
    }
}

fn is_log(value: &Value) -> bool {
    let turn = value.get("log").and_then(|log| log.get(0));
    value.get("goal").is_some_and(Value::is_object) && turn.is_some_and(|turn| turn.get("text").is_some())
}

/// Returns whether a value is a dialogue of MultiWOZ 2.2. SGD has a similar layout (see `sgd`).
fn is_framed(value: &Value) -> bool {
    let Some(turn) = value.get("turns").and_then(|turns| turns.get(0)) else {
        return false;
    };
    let id = value.get("dialogue_id").and_then(Value::as_str);
    value.get("services").is_some_and(Value::is_array)
        && ["speaker", "utterance", "frames"].iter().all(|key| turn.get(key).is_some())
        && id.is_some_and(|id| id.ends_with(".json") || turn.get("turn_id").is_some())
}

fn add_log(dialogue: &mut Dialogue, log: Vec<LogTurn>) {
    let filled = |turn: &LogTurn| turn.metadata.as_ref().is_some_and(|state| !state.is_empty());
    let has_states = log.iter().any(filled);
    for (n, said) in log.into_iter().enumerate() {
        // Turns alternate, and the user starts. If the log has belief states, they mark the system turns. This works
        // even if a turn is missing.
        let user = if has_states && said.metadata.is_some() { !filled(&said) } else { n % 2 == 0 };
        let (speaker, role) = if user { ("USER", Role::User) } else { ("SYSTEM", Role::Agent) };
        dialogue.turns.push(Turn {
            speaker: speaker.to_owned(),
            role: Some(role),
            acts: said.dialog_act.as_ref().map(act_names).unwrap_or_default(),
            text: said.text,
            ..Turn::default()
        });
    }
}

/// Adds the domains with a user goal, and the user instructions as the goal.
fn add_goal(dialogue: &mut Dialogue, goal: &Map<String, Value>) {
    for (domain, wanted) in goal {
        let wants = wanted.as_object().is_some_and(|wanted| !wanted.is_empty());
        if wants && domain != "topic" && domain != "message" {
            push_unique(&mut dialogue.domains, domain);
        }
    }
    let message = match goal.get("message") {
        Some(Value::String(text)) => without_tags(text),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(Value::as_str).map(without_tags).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    };
    if !message.is_empty() {
        dialogue.metadata.insert("goal".to_owned(), message.into());
    }
}

/// Removes tags. The instructions mark values with `<span class='emphasis'>`.
fn without_tags(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        plain.push_str(before);
        rest = match tag.split_once('>') {
            Some((_, after)) => after,
            None => {
                plain.push('<');
                plain.push_str(tag);
                ""
            }
        };
    }
    plain.push_str(rest);
    plain.trim().to_owned()
}

/// Returns the domains of intents such as `find_police`. Some dialogues of version 2.2 have no services.
fn domains_of_intents(intents: &[String]) -> Vec<String> {
    let mut domains = Vec::new();
    for intent in intents {
        push_unique(&mut domains, intent.rsplit('_').next().unwrap_or_default());
    }
    domains
}

#[cfg(test)]
mod tests;
