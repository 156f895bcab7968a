//! Corpora and evaluation sets in the layouts that papers on dialogue representation use.

use std::collections::BTreeSet;

use turnwise::corpus::{Dialogue, formats::ReadOptions};

use crate::data;

/// Runs of turns by one speaker, each as one text, as evaluations take them.
fn merged(dialogue: &Dialogue) -> Vec<(String, String)> {
    let mut merged: Vec<(String, String)> = Vec::new();
    for turn in &dialogue.turns {
        match merged.last_mut() {
            Some((speaker, text)) if *speaker == turn.speaker => *text = format!("{text} {}", turn.text),
            _ => merged.push((turn.speaker.clone(), turn.text.clone())),
        }
    }
    merged
}

fn is_conversation(dialogue: &&Dialogue) -> bool {
    merged(dialogue).len() >= 4 && dialogue.speakers().len() >= 2
}

/// The dialogues without the actions in them.
fn spoken(mut dialogues: Vec<Dialogue>) -> Vec<Dialogue> {
    for dialogue in &mut dialogues {
        dialogue.turns.retain(|turn| turn.acts.is_empty());
    }
    dialogues
}

fn unique_ids(dialogues: &[Dialogue]) -> bool {
    dialogues
        .iter()
        .map(|d| d.id.as_str())
        .collect::<BTreeSet<_>>()
        .len()
        == dialogues.len()
}

#[test]
fn ubuntu_irc_has_the_logs_and_conversations_of_its_readme() {
    let Some(folder) = data::folder("ubuntu_irc_traindev") else {
        return;
    };
    let folder = folder.join("ubuntu_irc_traindev/data");
    // The README counts speech only; with the actions (`* nick waves`) that turnwise keeps, two more conversations
    // of the training logs come to four turns.
    for (split, logs, conversations, with_actions) in [("train", 153, 3010, 3012), ("dev", 10, 129, 129)] {
        let read = data::read(&folder.join(split), None, &ReadOptions::default());
        assert_eq!(read.problems, Vec::<String>::new());
        assert_eq!(
            read.formats.into_iter().collect::<Vec<_>>(),
            [("ubuntu-irc", logs)]
        );
        assert!(unique_ids(&read.dialogues));
        assert!(
            read.dialogues
                .iter()
                .all(|d| d.metadata["split"] == split && d.time.is_some())
        );
        assert_eq!(
            read.dialogues.iter().filter(is_conversation).count(),
            with_actions
        );
        let speech = spoken(read.dialogues);
        assert_eq!(speech.iter().filter(is_conversation).count(), conversations);
    }
}

#[test]
fn ubuntu_irc_conversations_are_those_of_the_normalized_set() {
    let (Some(logs), Some(normalized)) = (
        data::folder("ubuntu_irc_traindev"),
        data::folder("normalized_dev"),
    ) else {
        return;
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = data::read(
        &logs.join("ubuntu_irc_traindev/data/dev"),
        None,
        &ReadOptions::default(),
    );
    let ours: Vec<_> = spoken(read.dialogues)
        .iter()
        .filter(is_conversation)
        .map(|d| {
            (
                d.id.to_string(),
                merged(d).iter().map(|(_, text)| words(text)).collect::<Vec<_>>(),
            )
        })
        .collect();
    let text = std::fs::read_to_string(normalized.join("normalized_dev/ubuntu_irc.dev.jsonl")).unwrap();
    let theirs: Vec<_> = text
        .lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let turns = record["turns"].as_array().unwrap().iter();
            let texts = turns
                .map(|turn| words(turn["text"].as_str().unwrap()))
                .collect::<Vec<_>>();
            (record["id"].as_str().unwrap().to_owned(), texts)
        })
        .collect();
    let differing: Vec<_> = theirs
        .iter()
        .filter(|conversation| !ours.contains(conversation))
        .collect();
    assert_eq!((ours.len(), theirs.len()), (129, 129));
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn stripping_nicks_leaves_no_address_of_a_participant() {
    let Some(folder) = data::folder("ubuntu_irc_traindev") else {
        return;
    };
    let options = ReadOptions {
        strip_nicks: true,
        ..ReadOptions::default()
    };
    let read = data::read(&folder.join("ubuntu_irc_traindev/data/dev"), None, &options);
    for dialogue in &read.dialogues {
        for turn in &dialogue.turns {
            for nick in dialogue.speakers() {
                let rest = turn
                    .text
                    .strip_prefix(nick)
                    .and_then(|rest| rest.strip_prefix([':', ',']));
                assert!(
                    !rest.is_some_and(|rest| rest.starts_with(' ')),
                    "{}: {}",
                    dialogue.id,
                    turn.text
                );
            }
        }
    }
}
