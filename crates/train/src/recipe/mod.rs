//! What a run is made of, as its file has it.

mod check;
mod known;
mod names;
mod settings;

use std::{collections::BTreeMap, path::PathBuf};

pub use known::{about as known_about, names as known_names};
pub use names::{Aggregation, DevTask, ObjectiveName, Profile};

use serde::{Deserialize, Serialize};

use super::{
    data::Preparing,
    optimizer,
    run::evaluations::Selection,
    schedule::{Schedule, Shape},
    trainer::Plan,
};
use turnwise_core::error::Result;

/// A run. What is not given is the objective's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What is trained for.
    pub objective: ObjectiveName,
    /// The model that training begins with: a folder, or a name. A file need not name it, nor the dialogues, where
    /// both are typed.
    #[serde(default)]
    pub model: String,
    /// An index, or files and folders of dialogues.
    #[serde(default)]
    pub corpus: Vec<PathBuf>,
    /// What is trained for beside it, and what its loss counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BTreeMap<ObjectiveName, f64>>,
    /// Steps. Of these five, 0 is what is not given, and none of them can be it.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub steps: u64,
    /// Examples a step.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub batch: usize,
    /// Parts that a step is computed in: less memory, the same step.
    #[serde(default = "one")]
    pub parts: usize,
    /// The learning rate.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub learning_rate: f64,
    /// How it goes after the warm-up.
    #[serde(default)]
    pub schedule: Shape,
    /// Steps in which it grows.
    #[serde(default)]
    pub warm_up: u64,
    /// What weights lose in a step, times the learning rate.
    #[serde(default = "decay")]
    pub weight_decay: f64,
    /// Gradients that are longer are made as long; 0: never.
    #[serde(default = "clip")]
    pub clip: f64,
    /// How much is dropped.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Layers that stay as they are, from below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_layers: Option<usize>,
    /// Tokens an utterance or a dialogue may have.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub max_tokens: usize,
    /// τ.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub temperature: f64,
    /// Wrong ones beside the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<usize>,
    /// DialogueCSE: so many of the wrong ones are near the right one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_negatives: Option<usize>,
    /// DialogueCSE: turns around a response. Responses: turns before one. Surroundings: turns before and after an utterance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// DialogueCSE: how they become one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// A layer behind what the steps leave, as that of surroundings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer: bool,
    /// That layer: what counts what utterances tell of what is said around them, from 0 to 1; the rest, what they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// dial2vec: turns that are further apart do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// dial2vec: by the text or by the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Participants' nicks at the start of utterances are taken off (IRC).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_nicks: bool,
    /// Consecutive turns of one speaker become one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_turns: Option<bool>,
    /// Dialogues with fewer turns are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_turns: Option<usize>,
    /// So many dialogues, drawn by the seed; all if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogues: Option<usize>,
    /// Of everything that looks like chance.
    #[serde(default)]
    pub seed: u64,
    /// Steps between checkpoints.
    #[serde(default = "every")]
    pub checkpoint_every: u64,
    /// Steps between evaluations; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate_every: Option<u64>,
    /// Tasks with labels that the model is measured by while it learns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<DevTask>,
    /// So many dialogues, at most a tenth, are not trained on: by them is told without labels what is gained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<usize>,
    /// By what the step is chosen whose model is kept.
    #[serde(default)]
    pub select: Selection,
    /// Evaluations without a gain after which it ends; 0: never.
    #[serde(default = "patience")]
    pub patience: usize,
}

fn one() -> usize {
    1
}

fn decay() -> f64 {
    0.01
}

fn clip() -> f64 {
    1.0
}

fn dropout() -> f64 {
    0.1
}

fn every() -> u64 {
    20
}

fn patience() -> usize {
    3
}

impl Recipe {
    /// A run with the objective's settings.
    pub fn new(objective: ObjectiveName, model: String, corpus: Vec<PathBuf>) -> Self {
        Recipe {
            objective,
            model,
            corpus,
            beside: None,
            steps: 0,
            batch: 0,
            parts: one(),
            learning_rate: 0.0,
            schedule: Shape::default(),
            warm_up: 0,
            weight_decay: decay(),
            clip: clip(),
            dropout: dropout(),
            frozen_layers: None,
            max_tokens: 0,
            temperature: 0.0,
            negatives: None,
            hard_negatives: None,
            context: None,
            aggregation: None,
            layer: false,
            strength: None,
            window: None,
            profile: None,
            strip_nicks: false,
            merge_turns: None,
            min_turns: None,
            dialogues: None,
            seed: 0,
            checkpoint_every: every(),
            evaluate_every: None,
            dev: Vec::new(),
            aside: None,
            // Who says what where is not told by words: their agreement is none to choose by.
            select: match objective {
                ObjectiveName::Places => Selection::Last,
                _ => Selection::default(),
            },
            patience: patience(),
        }
    }

    /// Puts in what the objective's paper has where nothing was given, for a model of so many layers that takes so many
    /// tokens.
    pub fn complete(&mut self, layers: usize, most_tokens: usize) -> Result<()> {
        self.fill(layers, most_tokens);
        self.check()
    }

    /// The same, unchecked.
    pub fn fill(&mut self, layers: usize, most_tokens: usize) {
        use ObjectiveName as O;
        if self.layer || self.objective == O::Surroundings {
            self.strength.get_or_insert(0.5);
        }
        // Where labels tell, all are trained on; and what utterances do is nothing that halves of dialogues tell.
        let by_halves = self.dev.is_empty()
            && self.evaluate_every != Some(0)
            && !matches!(self.objective, O::Places | O::Words | O::Relevance);
        self.aside.get_or_insert(if by_halves { 400 } else { 0 });
        if self.objective == O::Surroundings {
            self.context.get_or_insert(1);
            self.min_turns.get_or_insert(2);
            return;
        }
        let (batch, rate, tokens, temperature) = match self.objective {
            O::Dialoguecse => (20, 5e-5, 50, 0.1),
            O::Joint => (20, 3e-5, 50, 0.1),
            O::Dial2vec => (5, 1e-5, 512, 0.2),
            O::Simcse => (64, 3e-5, 32, 0.05),
            O::Neighbours => (32, 2e-5, 160, 0.1),
            O::Responses => (64, 2e-5, 64, 0.05),
            O::Places => (64, 1e-4, 64, 0.2),
            O::SiameseS | O::SiameseM => (64, 2e-5, 64, 1.0),
            O::Words => (50, 2e-5, 128, 1.0),
            O::Relevance => (32, 2e-5, 128, 1.0),
            // The one has no steps of its own, the other none at all.
            O::Keep | O::Surroundings => (32, 2e-5, 64, 1.0),
        };
        let (steps, warm_up) = match self.objective {
            // Each corpus has a teacher of its own, and gets as many steps as one alone.
            O::Neighbours => (150 * self.corpus.len().max(1) as u64, 10),
            O::Joint => (100 * self.corpus.len().max(1) as u64, 10),
            O::Responses => (300, 30),
            O::Places => (200, 20),
            _ => (300, 0),
        };
        if self.objective == O::Joint {
            self.beside.get_or_insert_with(|| {
                BTreeMap::from([(O::Dial2vec, 0.1), (O::Neighbours, 1.0), (O::Keep, 1.0)])
            });
            self.hard_negatives.get_or_insert(2);
        }
        if self.objective == O::Neighbours {
            self.beside.get_or_insert_with(|| BTreeMap::from([(O::Keep, 40.0)]));
        }
        let number = |given: usize, usual: usize| if given == 0 { usual } else { given };
        let real = |given: f64, usual: f64| if given == 0.0 { usual } else { given };
        if self.steps == 0 {
            (self.steps, self.warm_up) = (steps, self.warm_up.max(warm_up));
        }
        self.evaluate_every.get_or_insert(self.steps.div_ceil(5));
        self.batch = number(self.batch, batch);
        self.learning_rate = real(self.learning_rate, rate);
        self.max_tokens = number(self.max_tokens, tokens).min(most_tokens);
        self.temperature = real(self.temperature, temperature);
        self.frozen_layers.get_or_insert(match self.objective {
            O::Simcse | O::Words => 0,
            _ => layers / 2,
        });
        self.min_turns.get_or_insert(match self.objective {
            O::Simcse | O::Neighbours | O::Words | O::Keep => 1,
            O::Relevance => 3,
            _ => 2,
        });
        self.merge_turns.get_or_insert(matches!(self.objective, O::Dialoguecse | O::Joint));
        match self.objective {
            O::Dialoguecse | O::Joint => {
                self.negatives.get_or_insert(9);
                self.context.get_or_insert(3);
                self.aggregation.get_or_insert_default();
            }
            O::Dial2vec => {
                self.negatives.get_or_insert(9);
                self.window.get_or_insert(10);
                self.profile.get_or_insert_default();
            }
            O::Responses | O::SiameseM | O::Relevance => {
                self.context.get_or_insert(3);
            }
            O::SiameseS => {
                self.context.get_or_insert(1);
            }
            O::Simcse | O::Neighbours | O::Places | O::Words | O::Keep | O::Surroundings => {}
        }
    }

    /// What is trained for beside the objective, with what it counts.
    pub fn beside(&self) -> impl Iterator<Item = (ObjectiveName, f64)> + '_ {
        self.beside
            .iter()
            .flatten()
            .map(|(name, weight)| (*name, *weight))
            .filter(|(_, weight)| *weight > 0.0)
    }

    /// Whether sequences hold several turns, which something has to divide.
    pub fn divides_turns(&self) -> bool {
        use ObjectiveName as O;
        let several = |name| {
            !matches!(
                name,
                O::Dialoguecse | O::Simcse | O::SiameseS | O::Places | O::Words | O::Keep | O::Surroundings
            )
        };
        several(self.objective) || self.beside().any(|(name, _)| several(name))
    }

    /// How dialogues are prepared.
    pub fn preparing(&self) -> Preparing {
        Preparing { merged: self.merge_turns.unwrap_or(false), turns: self.min_turns.unwrap_or(1) }
    }

    /// How the run goes.
    pub fn plan(&self) -> Plan {
        Plan {
            batch: self.batch,
            parts: self.parts,
            rate: self.learning_rate,
            schedule: Schedule { shape: self.schedule, warm_up: self.warm_up, steps: self.steps },
            optimizer: optimizer::Settings {
                decay: self.weight_decay as f32,
                ..optimizer::Settings::default()
            },
            clip: (self.clip > 0.0).then_some(self.clip),
            dropout: self.dropout as f32,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(objective: ObjectiveName) -> Recipe {
        Recipe::new(objective, "m".to_owned(), vec!["c".into()])
    }

    #[test]
    fn what_is_not_given_is_the_papers() {
        let mut r = recipe(ObjectiveName::Dialoguecse);
        r.complete(12, 512).unwrap();
        assert_eq!((r.batch, r.learning_rate, r.max_tokens, r.temperature), (20, 5e-5, 50, 0.1));
        assert_eq!((r.frozen_layers, r.negatives, r.context), (Some(6), Some(9), Some(3)));
        let mut r = recipe(ObjectiveName::Dial2vec);
        r.complete(6, 256).unwrap();
        assert_eq!((r.batch, r.learning_rate, r.max_tokens, r.temperature), (5, 1e-5, 256, 0.2));
        assert_eq!((r.frozen_layers, r.negatives, r.window), (Some(3), Some(9), Some(10)));
        r.batch = 7;
        r.complete(6, 256).unwrap();
        assert_eq!(r.batch, 7);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: fn(&mut Recipe)| {
            let mut r = recipe(ObjectiveName::Simcse);
            change(&mut r);
            r.complete(6, 256).unwrap_err().to_string()
        };
        assert!(refused(|r| r.window = Some(3)).contains("simcse has no window"));
        assert!(refused(|r| r.learning_rate = -1.0).contains("learning_rate"));
        assert!(refused(|r| r.dropout = f64::NAN).contains("dropout"));
        assert!(refused(|r| r.batch = 1).contains("batch"));
        assert!("simsce".parse::<ObjectiveName>().is_err());
    }
}
