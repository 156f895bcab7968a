//! Chat-completion records: `{"messages": [{"role", "content"}]}`, one per line or in one JSON array.
//!
//! - `content` is a string or a list of parts. The types of parts without text (images, audio) are in the metadata
//!   `parts` of the turn.
//! - Tool results have the role `tool`. Their speaker is the name of the tool, from the message or from the earlier
//!   call with the same id.
//! - If an assistant turn has only tool calls, its text lists them, such as `lookup({"order": 7})`. The names of all
//!   called tools are in the metadata `tool_calls` of the turn.
//! - Other scalars of a record or a message become metadata (see [`chat_json::rest`]).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::formats::chat_json::{self, Content, Record};
use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "messages",
    about: "chat-completion records, {\"messages\": [{\"role\", \"content\"}]}: one per line (JSONL) or in one JSON array",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    let is_message = |message: &Value| {
        let keys = ["content", "tool_calls", "function_call"];
        message.get("role").is_some_and(Value::is_string) && keys.iter().any(|key| message.get(key).is_some())
    };
    chat_json::fit(probe, &["messages"], is_message, r#"{"messages":[{"role":"#)
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    chat_json::read(input, options, add_turns)
}

fn add_turns(dialogue: &mut Dialogue, record: &mut Record) -> Result<(), String> {
    let Some(Value::Array(messages)) = record.remove("messages") else {
        return Err("the record has no list `messages`".to_owned());
    };
    let mut called = BTreeMap::new();
    for (n, message) in (1..).zip(messages) {
        let Value::Object(message) = message else {
            return Err(format!("message {n} is not an object"));
        };
        add_turn(dialogue, message, &mut called).map_err(|reason| format!("message {n} {reason}"))?;
    }
    Ok(())
}

/// Adds the turn of a message. `called` maps the ids of earlier tool calls to tool names. The error message continues a
/// sentence that starts with `message N`.
fn add_turn(
    dialogue: &mut Dialogue,
    mut message: Record,
    called: &mut BTreeMap<String, String>,
) -> Result<(), &'static str> {
    let Some(role_name) = chat_json::take_text(&mut message, &["role"]) else {
        return Err("has no `role`");
    };
    let mut content = Content::of(&message.remove("content").unwrap_or(Value::Null))
        .ok_or("has a `content` that is neither a string nor a list of parts")?;
    if content.text.is_empty() {
        content.text = chat_json::take_text(&mut message, &["refusal"]).unwrap_or_default();
    }
    for key in ["tool_calls", "function_call"] {
        let calls = match message.remove(key) {
            Some(Value::Array(calls)) => calls,
            Some(one @ Value::Object(_)) => vec![one],
            _ => continue,
        };
        content.calls.extend(calls.iter().filter_map(Value::as_object).filter_map(chat_json::call));
    }
    for call in &content.calls {
        if let Some(id) = &call.id {
            called.insert(id.clone(), call.name.clone());
        }
    }
    let mut role = chat_json::role(&role_name);
    let answers = message.get("tool_call_id").and_then(Value::as_str).or(content.answers.as_deref());
    let tool = answers.and_then(|id| called.get(id)).cloned();
    if content.answers.is_some() {
        role = Role::Other("tool".into());
    }
    let name = chat_json::take_text(&mut message, &["name"]).or(tool);
    let turn = dialogue.push(name.unwrap_or(role_name), role, content.text_or_calls());
    turn.time = chat_json::take_time(&mut message);
    turn.metadata = chat_json::rest(message);
    let calls: Vec<String> = content.calls.into_iter().map(|call| call.name).collect();
    turn.note("tool_calls", calls);
    turn.note("parts", content.other);
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
    fn lines_an_array_and_a_pretty_printed_object_are_equivalent() {
        let one = r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","name":"Ana","content":"Is it open?"},{"role":"assistant","content":[{"type":"text","text":"Until"},{"type":"text","text":"six."},{"type":"image_url","image_url":{"url":"x"}}]}],"metadata":{"shop":"north","deep":{"a":1}},"score":0.5}"#;
        let printed = serde_json::to_string_pretty(&serde_json::from_str::<Value>(one).unwrap()).unwrap();
        for text in [format!("{one}\n\n{one}\n"), format!("[{one},\n{one}]"), printed] {
            assert_eq!(sniffed("chats.json", &text), Some("messages"));
            let got = read_text(&FORMAT, "chats.json", &text);
            assert_eq!(got[0].id.as_str(), "chats-000001");
            assert_eq!(
                turns(&got[0]),
                ["system/system: Be brief.", "Ana/user: Is it open?", "assistant/agent: Until\nsix."]
            );
            assert_eq!(got[0].turns[2].metadata["parts"], serde_json::json!(["image_url"]));
            let metadata = serde_json::to_string(&got[0].metadata).unwrap();
            assert_eq!(metadata, r#"{"score":0.5,"shop":"north"}"#);
            assert!(problems(&FORMAT, "chats.json", &text).is_empty());
        }
    }

    #[test]
    fn tool_calls_are_turns_with_tool_names() {
        let text = r#"{"conversation_id":77,"created":1772442840,"tools":[{"type":"function","function":{"name":"lookup"}}],"messages":[
{"role":"user","content":"where is order 7"},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"lookup","arguments":"{\"order\":7}"}}]},
{"role":"tool","tool_call_id":"c1","content":"in transit"},
{"role":"assistant","content":[{"type":"text","text":"One moment."},{"type":"tool_use","id":"c2","name":"eta","input":{"order":7}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"Friday"}]}]},
{"role":"assistant","refusal":"I cannot say.","timestamp":"2026-03-02T09:14:05Z"}]}"#;
        let got = &read_text(&FORMAT, "t.jsonl", &text.replace('\n', ""))[0];
        assert_eq!(got.id.as_str(), "77");
        assert_eq!(got.time.unwrap().to_string(), "2026-03-02T09:14:00Z");
        assert_eq!(got.metadata["tools"], serde_json::json!(["lookup"]));
        assert_eq!(
            turns(got),
            [
                "user/user: where is order 7",
                "assistant/agent: lookup({\"order\":7})",
                "lookup/tool: in transit",
                "assistant/agent: One moment.",
                "lookup/tool: Friday",
                "assistant/agent: I cannot say.",
            ]
        );
        assert_eq!(got.turns[3].metadata["tool_calls"], serde_json::json!(["eta"]));
        assert_eq!(got.turns[5].time.unwrap().to_string(), "2026-03-02T09:14:05Z");
    }

    #[test]
    fn bad_records_are_reported_and_the_rest_is_read() {
        let text = r#"{"id":"a","messages":[{"content":"x"}]}
{"id":"b","messages":"x"}
{"id":"c","messages":[]}
{"id":"d","messages":[{"role":"user","content":true}]}
[1]
{"id":"e","messages":[{"role":"user","content":"x"}]
{"id":"f","messages":[{"role":"user","content":"x"}]}
{"id":"g","messages":[7]}
"#;
        assert_eq!(
            problems(&FORMAT, "a.jsonl", text),
            [
                "a.jsonl:1 (a): message 1 has no `role`",
                "a.jsonl:2 (b): the record has no list `messages`",
                "a.jsonl:3 (c): the dialogue has no turns",
                "a.jsonl:4 (d): message 1 has a `content` that is neither a string nor a list of parts",
                "a.jsonl:5: the record is not a JSON object",
                "a.jsonl:6: not valid JSON: it ends early at column 52",
                "a.jsonl:8 (g): message 1 is not an object",
            ]
        );
        assert_eq!(read_text(&FORMAT, "a.jsonl", text).len(), 1);
    }

    #[test]
    fn a_first_record_longer_than_the_probe_is_detected() {
        let long = format!(r#"{{"messages": [{{"role": "user", "content": "{}"}}]}}"#, "x".repeat(400_000));
        assert_eq!(sniffed("a.jsonl", &long), Some("messages"));
        assert_eq!(read_text(&FORMAT, "a.jsonl", &long).len(), 1);
    }

    #[test]
    fn other_json_is_not_detected() {
        assert_eq!(sniffed("a.jsonl", r#"{"messages":[{"text":"x"}]}"#), None);
        assert_eq!(sniffed("a.json", r#"{"7":{"messages":[{"role":"usr","content":"x"}]}}"#), None);
        assert_eq!(sniffed("a.json", "[]"), None);
    }
}
