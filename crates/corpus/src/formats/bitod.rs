//! BiTOD: dialogues in six domains, in English or Chinese. Each file contains one split in one language. It is a JSON
//! object that maps dialogue ids to `{Scenario, Events}`.

use serde::Deserialize;
use serde_json::Value;

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "bitod",
    about: "BiTOD, English and Chinese (one JSON object whose keys are dialogue ids, each with Scenario and Events)",
    sniff,
    read,
};

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    #[serde(rename = "Scenario", default)]
    scenario: Value,
    #[serde(rename = "Events")]
    events: Vec<Event>,
}

/// Event of a dialogue: an utterance of the user or the agent, a query by the agent, or a query result.
#[derive(Deserialize)]
#[serde(expecting = "an object with an event")]
struct Event {
    #[serde(rename = "Agent")]
    agent: String,
    #[serde(rename = "Text")]
    text: Option<String>,
    #[serde(rename = "Actions", default)]
    actions: Value,
    #[serde(rename = "API", default)]
    api: Value,
    #[serde(default)]
    active_intent: Value,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    let fits = any_element(probe, 1, |_, value| {
        let event = value.get("Events").and_then(|events| events.get(0));
        value.get("Scenario").is_some_and(Value::is_object) && event.is_some_and(|e| e.get("Agent").is_some())
    });
    if fits { Fit::Yes } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let stem = input.stem();
    let split = split_of(&stem);
    Ok(support::from_elements(input, options, 1, move |element| {
        let read: Record = record(element, None)?;
        // The keys of the dialogues are unique only within a file.
        let key = element.keys.last().map_or("", String::as_str);
        let mut dialogue = support::dialogue(DialogueId::new(format!("{stem}-{key}"))?, "bitod", None);
        dialogue.domains = domains(&read.scenario);
        dialogue.note("original_id", key);
        dialogue.note("split", split.as_deref());
        dialogue.note("goal", read.scenario.get("UserTask").and_then(Value::as_str));
        add_events(&mut dialogue, read.events);
        dialogue.language = Some(language(&stem, &dialogue).to_owned());
        Ok(Some(dialogue))
    }))
}

/// Appends the utterances as turns. The API names in the agent's queries become metadata of the agent's next turn.
fn add_events(dialogue: &mut Dialogue, events: Vec<Event>) {
    let mut queried = Vec::new();
    for event in events {
        names(&event.api).for_each(|api| push_unique(&mut queried, api));
        let Some(text) = event.text else { continue };
        let mut turn = Turn { text, role: role_of(&event.agent), speaker: event.agent, ..Turn::default() };
        for action in event.actions.as_array().into_iter().flatten() {
            push_unique(&mut turn.acts, action.get("act").and_then(Value::as_str).unwrap_or_default());
        }
        for intent in names(&event.active_intent) {
            turn.intent.get_or_insert_with(|| intent.to_owned());
            if intent != "chat" {
                push_unique(&mut dialogue.intents, intent);
            }
        }
        if turn.role == Some(Role::Agent) {
            turn.note("api", std::mem::take(&mut queried));
        }
        dialogue.turns.push(turn);
    }
}

/// Returns the names in a JSON value, which is one name or a list of names.
fn names(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Value::as_str).filter(|name| !name.is_empty())
}

/// Returns the domains of the user's tasks. If there are none, returns the domains of the tasks that the agent can
/// perform.
fn domains(scenario: &Value) -> Vec<String> {
    let goals = scenario.get("User_Goal").and_then(Value::as_object);
    let capabilities = scenario.get("WizardCapabilities").and_then(Value::as_array);
    let mut domains = Vec::new();
    for task in goals.into_iter().flat_map(|goals| goals.keys()) {
        push_unique(&mut domains, domain(task));
    }
    if domains.is_empty() {
        for task in capabilities.into_iter().flatten().filter_map(|c| c.get("Task")?.as_str()) {
            push_unique(&mut domains, domain(task));
        }
    }
    domains
}

/// Returns the domain of a task, such as `hotels` for `hotels_en_US_booking`. Chinese task names are mapped to
/// English domain names.
fn domain(task: &str) -> &str {
    match task {
        _ if task.starts_with("餐馆") => "restaurants",
        _ if task.starts_with("宾馆") => "hotels",
        _ if task.starts_with("景点") => "attractions",
        _ if task.starts_with("天气") => "weathers",
        _ if task.starts_with("香港地铁") => "HKMTR",
        _ => task.split('_').next().unwrap_or(task),
    }
}

/// Returns the language code in the file name, such as `zh` in `zh_train`. If there is none, returns `zh` if a text
/// contains a Chinese character, and `en` otherwise.
fn language(stem: &str, dialogue: &Dialogue) -> &'static str {
    let mut words = stem.split(|c: char| !c.is_ascii_alphanumeric());
    match words.find(|word| matches!(*word, "en" | "zh")) {
        Some("zh") => "zh",
        Some(_) => "en",
        None => {
            let mut letters = dialogue.turns.iter().flat_map(|turn| turn.text.chars());
            if letters.any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)) { "zh" } else { "en" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const ENGLISH: &str = r#"{"12":{"Scenario":{"UserTask":"Find an inn.","User_Goal":{"hotels_en_US_search":{},"hotels_en_US_booking":{},
        "HKMTR_en":{}},"WizardCapabilities":[{"Task":"hotels_en_US_search"}]},"Events":[
        {"Agent":"User","Actions":[{"act":"inform","slot":"stars","relation":"at_least","value":["3"]},{"act":"inform"}],
         "active_intent":"hotels_en_US_search","state":{},"Text":"An inn, three stars."},
        {"Agent":"Wizard","Actions":"query","Constraints":[{"stars":3}],"API":"hotels_en_US_search"},
        {"Agent":"KnowledgeBase","Item":{"name":"Anchor"},"TotalItems":4,"Topic":"hotels_en_US_search"},
        {"Agent":"Wizard","Actions":[{"act":"offer"}],"Text":"The Anchor?"},
        {"Agent":"User","Actions":[],"active_intent":"chat","Text":"Fine."}]}}"#;

    #[test]
    fn utterances_are_turns_and_queries_are_metadata() {
        let d = &read_text(&FORMAT, "data/train_en.json", ENGLISH)[0];
        assert_eq!(d.id.as_str(), "train_en-12");
        assert_eq!((d.language.as_deref(), d.source.as_str()), (Some("en"), "bitod"));
        assert_eq!(d.domains, ["HKMTR", "hotels"]);
        assert_eq!(d.intents, ["hotels_en_US_search"]);
        assert_eq!((&d.metadata["split"], &d.metadata["goal"]), (&"train".into(), &"Find an inn.".into()));
        let said: Vec<_> = d.turns.iter().map(|t| (t.text.as_str(), t.role.clone().unwrap())).collect();
        assert_eq!(
            said,
            [("An inn, three stars.", Role::User), ("The Anchor?", Role::Agent), ("Fine.", Role::User)]
        );
        assert_eq!(d.turns[0].acts, ["inform"]);
        assert_eq!(d.turns[0].intent.as_deref(), Some("hotels_en_US_search"));
        assert_eq!(d.turns[1].metadata["api"], serde_json::json!(["hotels_en_US_search"]));
    }

    #[test]
    fn chinese_tasks_have_the_same_domains() {
        let text = r#"{"1":{"Scenario":{"User_Goal":{"餐馆查询":{},"香港地铁":{}}},"Events":[{"Agent":"User","Text":"你好"}]}}"#;
        let d = &read_text(&FORMAT, "a.json", text)[0];
        assert_eq!(
            (d.language.as_deref(), &d.domains[..]),
            (Some("zh"), &["restaurants".into(), "HKMTR".into()][..])
        );
        assert_eq!(sniffed("a.json", text), Some("bitod"));
    }

    #[test]
    fn bad_dialogues_are_reported_and_the_rest_is_read() {
        let text = r#"{"1":{"Scenario":{}},"2":{"Scenario":{},"Events":[{"Agent":"Wizard","Actions":"query"}]},
            "3":{"Events":[{"Agent":"User","Text":"fine"}]},"4":{"#;
        assert_eq!(read_text(&FORMAT, "en_test.json", text).len(), 1);
        assert_eq!(
            problems(&FORMAT, "en_test.json", text),
            [
                "en_test.json:1 (1): missing field `Events` at column 15",
                "en_test.json:1 (en_test-2): the dialogue has no turns",
                "en_test.json:2: the file ends in the middle of a JSON value",
            ]
        );
    }

    #[test]
    fn it_is_detected_by_its_keys() {
        assert_eq!(sniffed("train_en.json", ENGLISH), Some("bitod"));
        // STAR has the same keys, but one dialogue per file.
        assert_ne!(
            sniffed("1.json", r#"{"Scenario":{"Domains":[]},"Events":[{"Agent":"User"}]}"#),
            Some("bitod")
        );
    }
}
