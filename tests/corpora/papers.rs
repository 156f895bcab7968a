//! Tests of the readers of corpora and evaluation sets that papers on dialogue representation use.

use std::collections::BTreeSet;

use turnwise_corpus::{Dialogue, formats::ReadOptions};

use crate::data;

/// Merges consecutive turns of one speaker into one text, as in the evaluation sets.
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

/// Removes turns that are actions, such as `* nick waves`.
fn spoken(mut dialogues: Vec<Dialogue>) -> Vec<Dialogue> {
    for dialogue in &mut dialogues {
        dialogue.turns.retain(|turn| turn.acts.is_empty());
    }
    dialogues
}

fn unique_ids(dialogues: &[Dialogue]) -> bool {
    dialogues.iter().map(|d| d.id.as_str()).collect::<BTreeSet<_>>().len() == dialogues.len()
}

#[test]
fn ubuntu_irc_has_the_logs_and_conversations_of_its_readme() {
    let Some(folder) = data::folder("ubuntu_irc_traindev") else {
        return;
    };
    let folder = folder.join("ubuntu_irc_traindev/data");
    // The README does not count actions (`* nick waves`). turnwise stores them, so two more conversations of the
    // training logs have four turns.
    for (split, logs, conversations, with_actions) in [("train", 153, 3010, 3012), ("dev", 10, 129, 129)] {
        let read = data::read(&folder.join(split), None, &ReadOptions::default());
        assert_eq!(read.problems, Vec::<String>::new());
        assert_eq!(read.formats.into_iter().collect::<Vec<_>>(), [("ubuntu-irc", logs)]);
        assert!(unique_ids(&read.dialogues));
        assert!(read.dialogues.iter().all(|d| d.metadata["split"] == split && d.time.is_some()));
        assert_eq!(read.dialogues.iter().filter(is_conversation).count(), with_actions);
        let speech = spoken(read.dialogues);
        assert_eq!(speech.iter().filter(is_conversation).count(), conversations);
    }
}

#[test]
fn ubuntu_irc_conversations_are_those_of_the_normalized_set() {
    let (Some(logs), Some(normalized)) =
        (data::folder("ubuntu_irc_traindev"), data::folder("normalized_dev"))
    else {
        return;
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let read = data::read(&logs.join("ubuntu_irc_traindev/data/dev"), None, &ReadOptions::default());
    let ours: Vec<_> = spoken(read.dialogues)
        .iter()
        .filter(is_conversation)
        .map(|d| (d.id.to_string(), merged(d).iter().map(|(_, text)| words(text)).collect::<Vec<_>>()))
        .collect();
    let text = std::fs::read_to_string(normalized.join("normalized_dev/ubuntu_irc.dev.jsonl")).unwrap();
    let theirs: Vec<_> = text
        .lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let turns = record["turns"].as_array().unwrap().iter();
            let texts = turns.map(|turn| words(turn["text"].as_str().unwrap())).collect::<Vec<_>>();
            (record["id"].as_str().unwrap().to_owned(), texts)
        })
        .collect();
    let differing: Vec<_> = theirs.iter().filter(|conversation| !ours.contains(conversation)).collect();
    assert_eq!((ours.len(), theirs.len()), (129, 129));
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn stripping_nicks_removes_all_addressed_participants() {
    let Some(folder) = data::folder("ubuntu_irc_traindev") else {
        return;
    };
    let options = ReadOptions { strip_nicks: true, ..ReadOptions::default() };
    let read = data::read(&folder.join("ubuntu_irc_traindev/data/dev"), None, &options);
    for dialogue in &read.dialogues {
        for turn in &dialogue.turns {
            for nick in dialogue.speakers() {
                let rest = turn.text.strip_prefix(nick).and_then(|rest| rest.strip_prefix([':', ',']));
                assert!(!rest.is_some_and(|rest| rest.starts_with(' ')), "{}: {}", dialogue.id, turn.text);
            }
        }
    }
}

#[test]
fn dialoguecse_has_the_counts_of_its_readme() {
    let Some(folder) = data::folder("dialoguecse_dev") else {
        return;
    };
    let read = data::read(&folder.join("dialoguecse_dev"), None, &ReadOptions::default());
    assert_eq!(read.problems, Vec::<String>::new());
    let formats: Vec<_> = read.formats.into_iter().collect();
    assert_eq!(formats, [("dialoguecse-select", 2), ("dialoguecse-sts", 2), ("dialoguecse-train", 1)]);
    assert!(unique_ids(&read.dialogues));
    let of = |prefix: &str| {
        read.dialogues.iter().filter(|d| d.id.as_str().starts_with(prefix)).collect::<Vec<_>>()
    };
    let (jddc, ecd) = (of("jddc-dev-select-"), of("edc-dev-select-"));
    assert_eq!((jddc.len(), ecd.len()), (2094, 2373));
    assert_eq!((of("jddc-dev-sts-").len(), of("edc-dev-sts-").len()), (1000, 500));
    assert_eq!(of("edc-train-train_data-").len(), 1000);
    assert_eq!(read.dialogues.len(), 2094 + 2373 + 1000 + 500 + 1000);
    // Each query has 30 positives and 40 negatives. Only JDDC has intents; all positives of a query have the same
    // intent.
    assert!(
        jddc.iter()
            .chain(&ecd)
            .all(|d| d.metadata["positive_count"] == 30 && d.metadata["negative_count"] == 40)
    );
    assert!(ecd.iter().all(|d| d.turns[0].intent.is_none()));
    for query in &jddc {
        assert!(query.turns[0].intent.is_some());
        for positive in query.metadata["positives"].as_array().unwrap() {
            let positive = jddc[positive.as_u64().unwrap() as usize];
            assert_eq!(positive.turns[0].intent, query.turns[0].intent);
        }
    }
    // Every training row has a response and at least one context turn.
    for dialogue in of("edc-train-") {
        let response = dialogue.metadata["response"].as_u64().unwrap();
        assert!(dialogue.turns.len() >= 2 && (1..=dialogue.turns.len() as u64).contains(&response));
    }
}

#[test]
fn normalized_select_files_are_read_as_dialoguecse_select() {
    let Some(folder) = data::folder("normalized_dev") else {
        return;
    };
    // BANKING77 has 3,080 test queries. This file omits four of them, so its ids have gaps.
    for (name, queries, last) in [
        ("banking77.sr.test.tsv", 3076, 3079),
        ("mdc.sr.dev.tsv", 2000, 1999),
        ("mdc_hard.sr.dev.tsv", 2000, 1999),
    ] {
        let read = data::read(&folder.join("normalized_dev").join(name), None, &ReadOptions::default());
        assert_eq!(read.problems, Vec::<String>::new());
        assert_eq!(read.formats.into_iter().collect::<Vec<_>>(), [("dialoguecse-select", 1)]);
        assert_eq!(read.dialogues.len(), queries);
        assert!(unique_ids(&read.dialogues));
        let prefix = format!("normalized_dev-{}", name.trim_end_matches(".tsv"));
        assert_eq!(read.dialogues[0].id.as_str(), format!("{prefix}-0"));
        assert_eq!(read.dialogues[queries - 1].id.as_str(), format!("{prefix}-{last}"));
        let ids: BTreeSet<_> = read.dialogues.iter().map(|d| d.id.as_str()).collect();
        for dialogue in &read.dialogues {
            assert!(dialogue.turns[0].intent.is_some());
            let positives = dialogue.metadata["positives"].as_array().unwrap();
            assert!(positives.iter().all(|positive| ids.contains(format!("{prefix}-{positive}").as_str())));
        }
        let intents: BTreeSet<_> =
            read.dialogues.iter().filter_map(|d| d.turns[0].intent.as_deref()).collect();
        if name.starts_with("banking77") {
            assert_eq!(intents.len(), 77);
        }
    }
}
