//! MetaLWOz: one JSON dialogue per line in `dialogues/*.txt`. The bot speaks first. `tasks.txt` describes the tasks.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "metalwoz",
    about: "MetaLWOz (dialogues/*.txt: one JSON dialogue per line, the bot speaks first); also MultiWOZ 2.0, if it is in the same layout",
    sniff,
    read,
};

/// Maximum size of `tasks.txt` in bytes. A larger file is ignored.
const MAX_TASKS_BYTES: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(expecting = "an object with a dialogue")]
struct Record {
    id: Option<String>,
    user_id: Option<String>,
    bot_id: Option<String>,
    domain: Option<String>,
    task_id: Option<String>,
    turns: Vec<String>,
    /// Dialog acts, one entry per turn. Only MultiWOZ 2.0 in this layout has dialog acts.
    #[serde(default)]
    annotations: Vec<Value>,
}

#[derive(Deserialize)]
struct Task {
    task_id: String,
    user_role: String,
}

fn sniff(probe: &Probe<'_>) -> Fit {
    let is_dialogue = any_json_line(probe, |line| {
        let turn = line.get("turns").and_then(|turns| turns.get(0));
        turn.is_some_and(Value::is_string)
            && line.contains_key("domain")
            && (line.contains_key("bot_id") || line.contains_key("task_id"))
    });
    if is_dialogue {
        return Fit::Yes;
    }
    let is_companion = any_json_line(probe, |line| {
        let has = |keys: &[&str]| keys.iter().all(|key| line.contains_key(*key));
        has(&["task_id", "user_role", "bot_role"]) || has(&["support_dlgs", "target_dlg"])
    });
    if is_companion { Fit::Companion } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let stem = input.stem();
    let tasks = input.path.as_deref().map(read_tasks).unwrap_or_default();
    Ok(support::from_lines(input, options, move |line| {
        let read: Record = support::parse(line.text.as_bytes(), "id")?;
        let id = support::id_or_generated(read.id, &stem, line.number)?;
        let mut dialogue = support::dialogue(id, "metalwoz", Some("en"));
        dialogue.domains.extend(read.domain.filter(|domain| !domain.is_empty()));
        if let Some(task) = read.task_id {
            dialogue.note("goal", tasks.get(&task).map(String::as_str));
            dialogue.note("task_id", task);
        }
        let bot = read.bot_id.unwrap_or_else(|| "bot".to_owned());
        let user = read.user_id.unwrap_or_else(|| "user".to_owned());
        for (n, text) in read.turns.into_iter().enumerate() {
            let (speaker, role) = if n % 2 == 0 { (&bot, Role::Agent) } else { (&user, Role::User) };
            let turn = dialogue.push(speaker, role, text);
            turn.acts = read.annotations.get(n).map(act_names).unwrap_or_default();
        }
        Ok(Some(dialogue))
    }))
}

/// Returns the instructions for the user in each task, by task id. They are read from `tasks.txt` in the folder of
/// `path` or in its parent folder. Returns an empty map if there is no such file.
fn read_tasks(path: &Path) -> HashMap<String, String> {
    let Ok(path) = std::path::absolute(path) else {
        return HashMap::new();
    };
    let mut candidates = path.ancestors().skip(1).take(2).map(|folder| folder.join("tasks.txt"));
    let is_small =
        |file: &PathBuf| std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() <= MAX_TASKS_BYTES);
    let Some(file) = candidates.find(|file| is_small(file) && *file != path) else {
        return HashMap::new();
    };
    let text = support::read_companion(&file).unwrap_or_default();
    let tasks = text.lines().filter_map(|line| serde_json::from_str::<Task>(line).ok());
    tasks.map(|task| (task.task_id, task.user_role)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const LINE: &str = r#"{"id":"k1","user_id":"u7","bot_id":"b9","domain":"LOST_KEYS","task_id":"t3","turns":["Hello, how may I help you?","I lost my keys.","Where?"]}"#;

    #[test]
    fn the_bot_speaks_first() {
        let d = &read_text(&FORMAT, "LOST_KEYS.txt", LINE)[0];
        assert_eq!((d.id.as_str(), d.source.as_str()), ("k1", "metalwoz"));
        assert_eq!(d.domains, ["LOST_KEYS"]);
        assert_eq!(d.metadata["task_id"], "t3");
        let said: Vec<_> = d.turns.iter().map(|t| (t.speaker.as_str(), t.role.clone().unwrap())).collect();
        assert_eq!(said, [("b9", Role::Agent), ("u7", Role::User), ("b9", Role::Agent)]);
    }

    #[test]
    fn annotations_are_acts_and_goals_are_read_from_the_task_list() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dialogues")).unwrap();
        let tasks = r#"{"task_id":"t3","domain":"LOST_KEYS","bot_role":"Help","bot_prompt":"p","user_role":"You lost your keys","user_prompt":"p"}"#;
        fs::write(dir.path().join("tasks.txt"), tasks).unwrap();
        let file = dir.path().join("dialogues/LOST_KEYS.txt");
        fs::write(
            &file,
            LINE.replace(r#""turns""#, r#""annotations":[{},{"Keys-Inform":[["Lost","yes"]]}],"turns""#),
        )
        .unwrap();
        let mut read = FORMAT.read(Input::open(&file).unwrap(), &ReadOptions::default()).unwrap();
        let d = read.next().unwrap().unwrap();
        assert_eq!(d.metadata["goal"], "You lost your keys");
        assert_eq!(d.turns[1].acts, ["Keys-Inform"]);
        assert_ne!(sniffed("tasks.txt", tasks), Some("metalwoz"));
        let probe = Input::open(&dir.path().join("tasks.txt")).unwrap();
        assert_eq!(sniff(&probe.probe()), Fit::Companion);
    }

    #[test]
    fn bad_lines_are_reported_and_the_rest_is_read() {
        let text = format!(
            "{{\"id\":\"a\",\"turns\":[]}}\n\n{{\"id\":\"b\",\"turns\":[7]}}\n{{oops\n{LINE}\n{{\"turns\":[\"x\"]}}\n"
        );
        assert_eq!(
            problems(&FORMAT, "K.txt", &text),
            [
                "K.txt:1 (a): the dialogue has no turns",
                "K.txt:3 (b): invalid type: integer `7`, expected a string at column 20",
                "K.txt:4: not valid JSON: key must be a string at column 2",
            ]
        );
        let ids: Vec<_> = read_text(&FORMAT, "K.txt", &text).iter().map(|d| d.id.to_string()).collect();
        assert_eq!(ids, ["k1", "K-000006"]);
    }

    #[test]
    fn it_is_distinguished_from_the_canonical_format() {
        assert_eq!(sniffed("LOST_KEYS.txt", LINE), Some("metalwoz"));
        assert_eq!(sniffed("a.jsonl", r#"{"id":"a","turns":[{"text":"x"}]}"#), Some("jsonl"));
        assert_ne!(sniffed("a.jsonl", r#"{"id":"a","turns":["x"]}"#), Some("metalwoz"));
    }
}
