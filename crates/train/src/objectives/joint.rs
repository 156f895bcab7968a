//! Joint: DialogueCSE with hard negatives, combined with dial2vec, neighbours and keep.

use super::{
    ObjectiveName,
    definition::{Definition, Frozen, Role, Sample, StepTraining, Steps, Training},
    dialoguecse::DialogueCseSettings,
};
use crate::run::evaluations::Selection;

/// Definition of `joint`.
pub static JOINT: Definition = Definition {
    name: "joint",
    about: "dialogues and utterances: dialoguecse with neighbours, dial2vec and keep",
    benchmark: "dialogues labelled.jsonl",
    sample: Sample::Dialogues,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Main,
    min_turns: 2,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: false,
        one_corpus: false,
        several_turns: true,
        merge_turns: true,
        steps: Steps::PerCorpus(100),
        warm_up: 10,
        batch: 20,
        learning_rate: 3e-5,
        max_tokens: 50,
        temperature: 0.1,
        frozen: Frozen::Half,
        auxiliary: &[
            (ObjectiveName::Dial2vec, 0.1),
            (ObjectiveName::Neighbours, 1.0),
            (ObjectiveName::Keep, 1.0),
        ],
        as_auxiliary: None,
        settings: |given| Box::new(DialogueCseSettings::read(given, 2)),
    }),
};
