//! Compares stored vectors with a map, and tests the vectors after kills, damage and changes of the index.

mod compact;
mod damage;
mod follow;
mod model;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::vectors::*;
use turnwise_core::{error::Result, ids::DialogueId};
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{ahead::Options, testing::HashEncoder, transformer::Tokens};
use turnwise_store::{Prepared, Snapshot, Store};

pub const BOTH: EncodeTargets = EncodeTargets { utterances: true, dialogues: true, chunk: 7 };

pub fn dialogue(id: &str, text: &str) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    dialogue.push("ann", Role::User, text);
    dialogue.push("bob", Role::Agent, "one moment please");
    dialogue.push("bob", Role::Agent, format!("this is the answer to {text}"));
    dialogue.check().unwrap();
    dialogue
}

pub fn put(root: &Path, dialogues: &[Dialogue]) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    for dialogue in dialogues {
        store.put(&Prepared::new(dialogue).unwrap()).unwrap();
    }
    store.commit(None).unwrap();
    store.close().unwrap();
}

pub fn delete(root: &Path, id: &str) {
    let mut store = Store::open(root, "test").unwrap();
    assert!(store.delete(&DialogueId::new(id).unwrap()).unwrap());
    store.commit(None).unwrap();
    store.close().unwrap();
}

pub fn recipe(encoder: &HashEncoder) -> Recipe {
    Recipe::of(encoder, "hashed", "auto", &Tokens::default(), &Options::default())
}

pub fn pass(root: &Path, encoder: &HashEncoder, wanted: EncodeTargets, mode: Mode) -> Result<EncodeProgress> {
    let snapshot = Snapshot::open(root).unwrap();
    let mut writer = VectorWriter::open(root, &recipe(encoder), mode, "test")?;
    let filled = fill(&snapshot, &mut writer, encoder, &wanted, &Options::default(), &|| false, &mut |_| {})?;
    writer.finish()?;
    Ok(filled)
}

pub fn encode(root: &Path, encoder: &HashEncoder) -> EncodeProgress {
    let filled = pass(root, encoder, BOTH, Mode::Continue).unwrap();
    assert!(filled.complete);
    filled
}

/// Asserts that every utterance and dialogue has the vector that the encoder returns, and that no file is damaged.
pub fn assert_complete(root: &Path, encoder: &HashEncoder) {
    let reader = VectorReader::open(root).unwrap().unwrap();
    let coverage = Coverage::new(&reader);
    for dialogue in Snapshot::open(root).unwrap().dialogues().map(Result::unwrap) {
        coverage.add(&dialogue);
        for turn in &dialogue.turns {
            let row = reader.get(Kind::Utterances, &utterance_key(&turn.text)).unwrap().unwrap();
            assert_eq!(row, encoder.vector(&turn.text));
        }
        let row = reader.get(Kind::Dialogues, &dialogue_key(&dialogue)).unwrap().unwrap();
        assert_eq!(row, encoder.dialogue_vector(&dialogue));
    }
    for kind in Kind::ALL {
        assert_eq!(coverage.of(kind).unwrap().without, 0);
    }
    assert_eq!(check(root).unwrap().unwrap().damage, []);
}

/// Returns the paths of all vector files, including `current.json`, in ascending order.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.join("vectors/current.json")];
    for set in crate::vectors::sets::all(root) {
        found.extend(fs::read_dir(set).unwrap().map(|e| e.unwrap().path()));
    }
    found.sort();
    found
}

#[test]
fn a_key_covers_what_the_encoder_sees_and_nothing_else() {
    let dialogue = |id: &str, speaker: &str, role: Role, text: &str| {
        let mut d = Dialogue::new(DialogueId::new(id).unwrap());
        d.push(speaker, role, text);
        d
    };
    let one = dialogue_key(&dialogue("a", "Ann", Role::User, "hi"));
    assert_eq!(one, dialogue_key(&dialogue("b", "Ann", Role::User, "hi")));
    assert_ne!(one, dialogue_key(&dialogue("a", "Bob", Role::User, "hi")));
    assert_ne!(one, dialogue_key(&dialogue("a", "Ann", Role::Agent, "hi")));
    assert_ne!(one, dialogue_key(&dialogue("a", "Ann", Role::User, "ho")));
    assert_ne!(
        dialogue_key(&dialogue("a", "Ann", Role::User, "ab")),
        dialogue_key(&dialogue("a", "Anna", Role::User, "b"))
    );
    assert_ne!(utterance_key("hi"), utterance_key("hi "));
}
