//! Reads SGD, MultiWOZ and MetaLWOz, and compares the results with the counts in the READMEs of the data.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use turnwise_corpus::{
    Dialogue, Role,
    formats::{self, Fit, ReadOptions},
    input::Input,
    walk,
};

use crate::data::{self, Read};

fn read(archive: &str) -> Option<Read> {
    let read = data::read(&data::folder(archive)?, None, &ReadOptions::default());
    assert!(read.problems.is_empty(), "{:?}", &read.problems[..read.problems.len().min(5)]);
    let ids: BTreeSet<_> = read.dialogues.iter().map(|d| &d.id).collect();
    assert_eq!(ids.len(), read.dialogues.len(), "ids are not unique");
    let known = |role: &Option<Role>| matches!(role, Some(Role::User | Role::Agent));
    assert!(read.dialogues.iter().flat_map(|d| &d.turns).all(|t| known(&t.role) && !t.speaker.is_empty()));
    Some(read)
}

/// Returns the number of single-domain dialogues per domain.
fn single(read: &Read) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for dialogue in read.dialogues.iter().filter(|d| d.domains.len() == 1) {
        *counts.entry(dialogue.domains[0].as_str()).or_default() += 1;
    }
    counts
}

fn by_id<'a>(read: &'a Read, id: &str) -> &'a Dialogue {
    read.dialogues.iter().find(|d| d.id.as_str() == id).unwrap()
}

#[test]
fn sgd_dev() {
    let Some(read) = read("sgd_dev") else { return };
    assert_eq!(read.formats, BTreeMap::from([("sgd", 17)]));
    // The full set has 2,482 dialogues. Three files, whose dialogues have several services, are not in the archive.
    assert_eq!((read.dialogues.len(), read.turns()), (2098, 38768));
    // dial2vec's dev set: 836 dialogues of one service.
    let single = single(&read);
    assert_eq!((single.values().sum::<usize>(), single.len()), (836, 17));
    assert_eq!((single["Flights_3"], single["Alarm_1"]), (94, 37));
    let turns = || read.dialogues.iter().flat_map(|d| &d.turns);
    let acts: BTreeSet<_> = turns().flat_map(|t| &t.acts).collect();
    assert_eq!(acts.len(), 18);
    let intents: BTreeSet<_> = turns().filter_map(|t| t.intent.as_ref()).collect();
    assert_eq!(intents.len(), 27);
    // Every user turn has an intent, except 1,260 turns without an active intent.
    assert_eq!(turns().filter(|t| t.intent.is_some()).count(), 38768 / 2 - 1260);
    assert_eq!(turns().filter(|t| t.metadata.contains_key("service_call")).count(), 6027);
    let first = by_id(&read, "dev-1_00000");
    assert_eq!(
        (first.turns[0].intent.as_deref(), first.turns[1].role.clone()),
        (Some("ReserveRestaurant"), Some(Role::Agent))
    );
}

#[test]
fn sgd_train_slim() {
    let Some(read) = read("sgd_train_slim") else {
        return;
    };
    assert_eq!(read.formats, BTreeMap::from([("sgd", 96)]));
    // The full set and dial2vec's table have 16,142 dialogues. 31 files of the full set are not in the archive.
    assert_eq!((read.dialogues.len(), read.turns()), (12174, 223756));
    let single = single(&read);
    assert_eq!((single.values().sum::<usize>(), single.len()), (5275, 24));
    assert_eq!(read.domains().len(), 26);
    assert!(
        read.dialogues.iter().all(|d| d.metadata["split"] == "train" && d.id.as_str().starts_with("train-"))
    );
}

#[test]
fn multiwoz_21_val() {
    let Some(read) = read("multiwoz21_val") else {
        return;
    };
    assert_eq!(read.formats, BTreeMap::from([("multiwoz", 1)]));
    assert_eq!((read.dialogues.len(), read.turns()), (999, 14730));
    // dial2vec's split (1,077 single-domain dialogues in dev, 7 domains) is different and was not published.
    let single = single(&read);
    assert_eq!(single.values().sum::<usize>(), 204);
    let counts = [("attraction", 11), ("hotel", 56), ("restaurant", 50), ("taxi", 57), ("train", 30)];
    assert_eq!(single, BTreeMap::from(counts));
    assert_eq!(read.domains()["train"], 484);
    let first = by_id(&read, "PMUL1635");
    assert_eq!(first.turns[0].acts, ["Hotel-Inform"]);
    assert!(first.metadata["goal"].as_str().unwrap().contains("a star of 4 and should be in the east"));
    assert_eq!(first.metadata["split"], "val");
    let agents = read.dialogues.iter().flat_map(|d| &d.turns).filter(|t| t.role == Some(Role::Agent));
    assert_eq!(agents.count(), 7365);
    let plan = walk::plan(&[data::folder("multiwoz21_val").unwrap()], None).unwrap();
    assert_eq!(plan.companions.len(), 1, "valListFile");
}

#[test]
fn multiwoz_20_in_the_layout_of_metalwoz() {
    let Some(read) = read("multiwoz20_single") else {
        return;
    };
    assert_eq!(read.formats, BTreeMap::from([("metalwoz", 7)]));
    assert_eq!((read.dialogues.len(), read.turns()), (2698, 26586));
    let counts = [
        ("attraction", 159),
        ("hospital", 275),
        ("hotel", 683),
        ("police", 236),
        ("restaurant", 629),
        ("taxi", 367),
        ("train", 349),
    ];
    assert_eq!(single(&read), BTreeMap::from(counts));
    assert!(
        read.dialogues
            .iter()
            .all(|d| d.turns[0].role == Some(Role::Agent) && d.metadata.contains_key("goal"))
    );
    assert_eq!(by_id(&read, "SNG01856").turns[1].acts, ["Hotel-Inform"]);
    let plan = walk::plan(&[data::folder("multiwoz20_single").unwrap()], None).unwrap();
    assert_eq!(plan.companions.len(), 1, "tasks.txt");
}

/// Calls `visit` for each file in a folder and its subfolders.
fn files(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, visit) } else { visit(&path) }
    }
}

#[test]
fn other_corpora_are_not_claimed() {
    let ours = ["sgd", "multiwoz", "metalwoz", "bitod", "doc2dial"];
    let own = [
        ("sgd_dev", "sgd"),
        ("sgd_train_slim", "sgd"),
        ("multiwoz21_val", "multiwoz"),
        ("multiwoz20_single", "metalwoz"),
    ];
    let others = [
        "crosswoz_devtest",
        "dialoguecse_dev",
        "intents_banking77",
        "kvret",
        "mdc_dev",
        "normalized_dev",
        "self_dialogue_dev",
        "ubuntu_irc_traindev",
    ];
    for (archive, own) in own.into_iter().chain(others.map(|other| (other, ""))) {
        let Some(folder) = data::folder(archive) else {
            continue;
        };
        files(&folder, &mut |path| {
            let Ok(input) = Input::open(path) else { return };
            for name in ours.into_iter().filter(|name| *name != own) {
                let fit = formats::by_name(name).unwrap().sniff(&input.probe());
                assert!(fit <= Fit::Companion, "{name} claims {}", path.display());
            }
        });
    }
}
