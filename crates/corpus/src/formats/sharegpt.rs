//! ShareGPT and similar formats: `{"id", "conversations": [{"from", "value"}]}`, one per line or in one JSON array.
//!
//! Published data sets have variants. The list can be called `conversation` or `items`. A member of the list can be
//! `{"role", "content"}`. It can also be a question with its answer, `{"human", "assistant"}`. Such a member becomes
//! two turns. A text field `system` in the record becomes the first turn.

use serde_json::Value;

use crate::formats::chat_json::{self, Content, Record};
use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "sharegpt",
    about: "ShareGPT and similar, {\"conversations\": [{\"from\", \"value\"}]}: one per line (JSONL) or in one JSON array",
    sniff,
    read,
};

const LISTS: [&str; 3] = ["conversations", "conversation", "items"];
const SPEAKERS: [&str; 3] = ["from", "role", "speaker"];
const TEXTS: [&str; 4] = ["value", "content", "text", "markdown"];
/// Keys of the question in a member that consists of a question and its answer.
const QUESTIONS: [&str; 2] = ["human", "user"];
const ANSWERS: [&str; 3] = ["assistant", "gpt", "bot"];

fn sniff(probe: &Probe<'_>) -> Fit {
    let is_turn = |turn: &Value| {
        let has = |keys: &[&str]| keys.iter().any(|key| turn.get(key).is_some());
        (has(&SPEAKERS[..2]) && has(&TEXTS)) || (has(&QUESTIONS) && has(&ANSWERS))
    };
    chat_json::fit(probe, &LISTS, is_turn, r#""conversations":[{"from":"#)
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    chat_json::read(input, options, add_turns)
}

fn add_turns(dialogue: &mut Dialogue, record: &mut Record) -> Result<(), String> {
    let list = LISTS.iter().find_map(|&key| match record.get_mut(key) {
        Some(Value::Array(list)) => Some((key, std::mem::take(list))),
        _ => None,
    });
    let Some((key, turns)) = list else {
        return Err("the record has no list `conversations` (or `conversation`, `items`)".to_owned());
    };
    record.remove(key);
    if let Some(text) = chat_json::take_text(record, &["system", "system_prompt"]) {
        dialogue.push("system", Role::System, text);
    }
    for (n, turn) in (1..).zip(turns) {
        let Value::Object(turn) = turn else {
            return Err(format!("turn {n} of `{key}` is not an object"));
        };
        add_member(dialogue, turn).map_err(|reason| format!("turn {n} of `{key}` {reason}"))?;
    }
    Ok(())
}

/// Adds the turns of a list member: one turn, or two turns for a question and its answer. The error message continues a
/// sentence that starts with `turn N`.
fn add_member(dialogue: &mut Dialogue, mut turn: Record) -> Result<(), &'static str> {
    let Some(speaker) = chat_json::take_text(&mut turn, &SPEAKERS) else {
        let before = dialogue.turns.len();
        for key in QUESTIONS.iter().chain(&ANSWERS) {
            if let Some(text) = chat_json::take_text(&mut turn, &[key]) {
                dialogue.push(*key, chat_json::role(key), text);
            }
        }
        if dialogue.turns.len() == before {
            return Err("has no `from`");
        }
        return Ok(());
    };
    let value = TEXTS.iter().find_map(|&key| turn.remove(key)).ok_or("has no `value`")?;
    let content = Content::of(&value).ok_or("has a `value` that is neither a string nor a list of parts")?;
    let name = chat_json::take_text(&mut turn, &["name"]);
    let role = chat_json::role(&speaker);
    let added = dialogue.push(name.unwrap_or(speaker), role, content.text_or_calls());
    added.time = chat_json::take_time(&mut turn);
    added.metadata = chat_json::rest(turn);
    added.note("parts", content.other);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    fn turns(d: &Dialogue) -> Vec<String> {
        d.turns.iter().map(|t| format!("{}/{}: {}", t.speaker, t.role.clone().unwrap(), t.text)).collect()
    }

    #[test]
    fn all_variants_give_the_same_dialogue() {
        let original = r#"{"id":"k_0","conversations":[{"from":"human","value":"Why is it wet?"},{"from":"gpt","value":"It rained."}]}"#;
        let items = original.replace("conversations", "items");
        let pairs = r#"{"conversation_id":"k_0","conversation":[{"human":"Why is it wet?","assistant":"It rained."}]}"#;
        let logged = r#"{"conversation_hash":"k_0","conversation":[{"role":"user","content":"Why is it wet?"},{"role":"assistant","content":"It rained."}]}"#;
        for one in [original, &items, pairs, logged] {
            // In published data sets, the first record is sometimes empty.
            let array = format!("[{{\"id\":\"e\",\"conversations\":[]}},\n{one}\n]");
            for text in [format!("{one}\n"), array] {
                assert_eq!(sniffed("s.json", &text), Some("sharegpt"), "{text}");
                let got = read_text(&FORMAT, "s.json", &text);
                assert_eq!(got.len(), 1);
                assert_eq!((got[0].id.as_str(), got[0].source.as_str()), ("k_0", "s"));
                let said: Vec<_> =
                    turns(&got[0]).iter().map(|t| t.split_once('/').unwrap().1.to_owned()).collect();
                assert_eq!(said, ["user: Why is it wet?", "agent: It rained."]);
            }
        }
    }

    #[test]
    fn the_rest_of_a_record_is_kept() {
        let text = r#"{"id":"a","system":"Be kind.","language":"English","model":"m1","conversations":[{"from":"human","value":"hi","weight":0},{"from":"function_call","value":"f()"},{"from":"observation","value":"7"},{"from":"narrator","value":"Silence."}]}"#;
        let got = &read_text(&FORMAT, "s.jsonl", text)[0];
        assert_eq!(
            turns(got),
            [
                "system/system: Be kind.",
                "human/user: hi",
                "function_call/agent: f()",
                "observation/tool: 7",
                "narrator/narrator: Silence.",
            ]
        );
        assert_eq!(got.language, None);
        assert_eq!(serde_json::to_string(&got.metadata).unwrap(), r#"{"language":"English","model":"m1"}"#);
        assert_eq!(got.turns[1].metadata["weight"], 0);
        let chinese = text.replace("English", "zh-CN");
        assert_eq!(read_text(&FORMAT, "s.jsonl", &chinese)[0].language.as_deref(), Some("zh-CN"));
    }

    #[test]
    fn bad_records_are_reported_and_the_rest_is_read() {
        let text = r#"[{"id":"a","conversations":[{"value":"x"}]},
{"id":"b"},
{"id":"c","conversations":[{"from":"human"}]},
{"id":"d","items":["x"]},
{"id":"e","conversations":[{"from":"human","value":false}]},
{"id":"f","conversations":[{"from":"human","value":" "}]},
{"id":"g","conversations":[{"from":"human","value":"x"}]}
"#;
        assert_eq!(
            problems(&FORMAT, "a.json", text),
            [
                "a.json:1 (a): turn 1 of `conversations` has no `from`",
                "a.json:2 (b): the record has no list `conversations` (or `conversation`, `items`)",
                "a.json:3 (c): turn 1 of `conversations` has no `value`",
                "a.json:4 (d): turn 1 of `items` is not an object",
                "a.json:5 (e): turn 1 of `conversations` has a `value` that is neither a string nor a list of parts",
                "a.json:6 (f): every turn's text is empty",
                "a.json:8: the file ends in the middle of a JSON value",
            ]
        );
        assert_eq!(read_text(&FORMAT, "a.json", text).len(), 1);
    }

    #[test]
    fn other_json_is_not_detected() {
        assert_eq!(sniffed("a.jsonl", r#"{"items":[{"price":1}]}"#), None);
        assert_eq!(sniffed("a.jsonl", r#"{"conversation":"x"}"#), None);
    }
}
