//! Helpers that create small dialogues and read the content of a store.

use std::{collections::BTreeMap, path::Path};

use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, Role};
use turnwise_store::{Prepared, PutOutcome, Snapshot, Store};

pub fn dialogue(id: &str, text: &str) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    dialogue.push("ann", Role::User, text);
    dialogue.push("bob", Role::Agent, format!("answer to {text}"));
    dialogue.check().unwrap();
    dialogue
}

pub fn put(store: &mut Store, dialogue: &Dialogue) -> PutOutcome {
    store.put(&Prepared::new(dialogue).unwrap()).unwrap()
}

/// Returns all dialogues of a store, by id.
pub fn content(root: &Path) -> BTreeMap<String, Dialogue> {
    content_of(&Snapshot::open(root).unwrap())
}

/// Returns all dialogues of a snapshot, by id. Checks that lookups by id and the totals agree with these dialogues.
pub fn content_of(snapshot: &Snapshot) -> BTreeMap<String, Dialogue> {
    let all: Vec<Dialogue> = snapshot.dialogues().map(Result::unwrap).collect();
    assert_eq!(snapshot.totals().dialogues as usize, all.len());
    assert_eq!(snapshot.totals().turns as usize, all.iter().map(|d| d.turns.len()).sum::<usize>());
    for dialogue in &all {
        assert_eq!(snapshot.get(&dialogue.id).unwrap().as_ref(), Some(dialogue));
    }
    all.into_iter().map(|d| (d.id.to_string(), d)).collect()
}

/// Checks that `verify` finds no damage.
pub fn assert_sound(root: &Path) {
    let report = turnwise_store::verify::verify(root, "test", &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:#?}", report.damage);
}
