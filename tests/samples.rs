//! Checks that the sample corpus has the properties that its README states.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use turnwise_corpus::{Dialogue, Role};

fn all() -> Vec<Dialogue> {
    turnwise::samples::SUPPORT
        .iter()
        .flat_map(|(_, text)| text.lines())
        .map(|line| {
            let mut dialogue: Dialogue = serde_json::from_str(line).unwrap();
            // The line is in canonical form: reading and writing it changes nothing.
            dialogue.check().unwrap();
            assert_eq!(serde_json::to_string(&dialogue).unwrap(), line);
            dialogue
        })
        .collect()
}

#[test]
fn the_sample_corpus_matches_its_description() {
    let all = all();
    let of =
        |language: &str| all.iter().filter(|d| d.language.as_deref() == Some(language)).collect::<Vec<_>>();
    let (english, chinese) = (of("en"), of("zh"));
    assert_eq!((all.len(), english.len(), chinese.len()), (280, 240, 40));
    let mut domains = BTreeMap::new();
    for d in &english {
        assert_eq!(d.domains.len(), 1);
        *domains.entry(d.domains[0].as_str()).or_insert(0) += 1;
    }
    assert_eq!(domains.len(), 12);
    assert!(domains.values().all(|n| *n == 20), "{domains:?}");
    for d in &all {
        let id = &d.id;
        assert!((6..=16).contains(&d.turns.len()), "{id}");
        assert!(d.title.is_some() && d.time.is_some(), "{id}");
        assert!(
            d.turns.iter().all(|t| t.intent.is_some() && !t.speaker.is_empty() && !t.text.is_empty()),
            "{id}"
        );
        let roles: BTreeSet<_> = d.turns.iter().filter_map(|t| t.role.as_ref()).collect();
        assert_eq!(roles, BTreeSet::from([&Role::User, &Role::Agent]), "{id}");
        assert_eq!(d.speakers().len(), 2, "{id}");
        assert!(domains.contains_key(d.domains[0].as_str()), "{id}");
        for key in ["channel", "outcome"] {
            assert!(d.metadata.get(key).is_some_and(serde_json::Value::is_string), "{id} {key}");
        }
    }
}

/// No utterance of more than 25 characters occurs twice, and at most four dialogues begin with the same three words.
#[test]
fn the_dialogues_do_not_repeat_each_other() {
    let all = all();
    let mut texts = BTreeMap::new();
    let mut openings = BTreeMap::new();
    for d in &all {
        for turn in d.turns.iter().filter(|t| t.text.chars().count() > 25) {
            *texts.entry(turn.text.to_lowercase()).or_insert(0) += 1;
        }
        let opening: Vec<&str> = d.turns[0].text.split_whitespace().take(3).collect();
        *openings.entry(opening.join(" ").to_lowercase()).or_insert(0) += 1;
    }
    let repeated: Vec<_> = texts.iter().filter(|(_, n)| **n > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    let common: Vec<_> = openings.iter().filter(|(_, n)| **n > 4).collect();
    assert!(common.is_empty(), "{common:?}");
}

/// All email addresses use domains that are reserved for examples.
#[test]
fn all_addresses_are_reserved_for_examples() {
    let at = regex::Regex::new(r"[\w.+-]+@([\w.-]+\.\w+)").unwrap();
    for d in all() {
        for turn in &d.turns {
            for found in at.captures_iter(&turn.text) {
                let host = found[1].to_lowercase();
                assert!(host.starts_with("example."), "{}: {host}", d.id);
            }
        }
    }
}
