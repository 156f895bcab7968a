//! CrossWOZ: Chinese task-oriented dialogues in five domains. A file is a JSON object that maps ids to dialogues.

use serde::Deserialize;
use serde_json::Value;

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "crosswoz",
    about: "CrossWOZ (Chinese): a JSON object of dialogues by id, each with `messages`, `goal` and `sys-usr`",
    sniff,
    read,
};

#[derive(Deserialize)]
struct Record {
    messages: Vec<Message>,
    /// Each goal is a list: number, domain, slot, value, and whether the goal was reached.
    #[serde(default)]
    goal: Vec<Vec<Value>>,
    #[serde(rename = "task description", default)]
    task: Vec<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "sys-usr")]
    /// Numbers of the two crowd workers. One of them plays the system, the other plays the user.
    workers: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    content: String,
    role: String,
    /// Each act is a list: intent, domain, slot and value. A part that is `none` or an empty text is missing.
    #[serde(default)]
    dialog_act: Vec<Vec<Value>>,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    let fits = any_element(probe, 1, |_, value| {
        ["messages", "goal", "sys-usr"].iter().all(|key| value.get(key).is_some())
    });
    if fits { Fit::Yes } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let split = input.stem();
    Ok(support::from_elements(input, options, 1, move |element| {
        let id = element.keys.last().cloned().unwrap_or_default();
        dialogue(&id, element, &split).map(Some).map_err(|e| e.with_id(Some(id)))
    }))
}

fn dialogue(id: &str, element: &Element, split: &str) -> Result<Dialogue, RecordError> {
    let record: Record = serde_json::from_slice(&element.json)?;
    let mut dialogue = support::dialogue(DialogueId::new(id)?, "crosswoz", Some("zh"));
    for domain in record.goal.iter().filter_map(|part| part.get(1)?.as_str()) {
        push_unique(&mut dialogue.domains, domain);
    }
    dialogue.note("split", split);
    dialogue.note("type", record.kind);
    dialogue.note("sys-usr", record.workers);
    dialogue.note("goal", record.task.concat());
    for message in record.messages {
        let role = match message.role.as_str() {
            "usr" => Role::User,
            "sys" => Role::Agent,
            other => {
                return Err(format!("the role must be `usr` or `sys`, not `{other}`").into());
            }
        };
        let turn = dialogue.push(message.role, role, message.content);
        turn.acts = message.dialog_act.iter().map(|act| self::act(act)).collect();
    }
    Ok(dialogue)
}

/// Formats a dialog act. `parts` are the intent, domain, slot and value.
fn act(parts: &[Value]) -> String {
    let part = |at| match parts.get(at).and_then(Value::as_str) {
        Some("none") | None => "",
        Some(text) => text,
    };
    support::act(part(0), part(1), part(2), part(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const FILE: &str = r#"{
  "17": {
    "sys-usr": [4, 9],
    "goal": [[1, "餐馆", "名称", "", false], [1, "餐馆", "评分", "4分", false], [2, "地铁", "车型", "", false]],
    "messages": [
      {"content": "你好，找家餐馆。", "role": "usr", "dialog_act": [["General", "greet", "none", "none"], ["Inform", "餐馆", "评分", "4分"]], "user_state": [[1, "餐馆", "名称", "", true]]},
      {"content": "好的。", "role": "sys", "dialog_act": [["NoOffer", "餐馆", "none", "none"], ["Request", "餐馆", "名称", ""]], "sys_state": {}}
    ],
    "final_goal": [],
    "task description": ["你要用餐。", "你要坐地铁。"],
    "type": "多领域"
  },
  "18": {"sys-usr": [4, 9], "goal": [], "messages": []},
  "19": {"sys-usr": [4, 9], "goal": []},
  "20": {"messages": [{"content": "x", "role": "bot"}]}
}"#;

    #[test]
    fn a_dialogue_keeps_its_goal_and_acts() {
        assert_eq!(sniffed("val.json", FILE), Some("crosswoz"));
        assert_eq!(
            serde_json::to_string(&read_text(&FORMAT, "val.json", FILE)).unwrap(),
            r#"[{"id":"17","source":"crosswoz","language":"zh","domains":["餐馆","地铁"],"metadata":{"goal":"你要用餐。你要坐地铁。","split":"val","sys-usr":[4,9],"type":"多领域"},"turns":[{"number":1,"speaker":"usr","role":"user","text":"你好，找家餐馆。","acts":["General(greet)","Inform(餐馆-评分=4分)"]},{"number":2,"speaker":"sys","role":"agent","text":"好的。","acts":["NoOffer(餐馆)","Request(餐馆-名称)"]}]}]"#
        );
    }

    #[test]
    fn bad_records_are_reported() {
        assert_eq!(
            problems(&FORMAT, "val.json", FILE),
            [
                "val.json:13 (18): the dialogue has no turns",
                "val.json:14 (19): missing field `messages` at column 31",
                "val.json:15 (20): the role must be `usr` or `sys`, not `bot`",
            ]
        );
    }
}
