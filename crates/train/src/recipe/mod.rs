//! Recipes: the settings of a training run, as stored in its TOML file.

mod check;
mod known;
mod names;
mod settings;

use std::{collections::BTreeMap, path::PathBuf};

pub use known::{about as known_about, names as known_names};
pub use names::{Aggregation, DevTask, ObjectiveName, Profile};

use serde::{Deserialize, Serialize};

use super::{
    data::Preprocessing,
    optimizer,
    run::evaluations::Selection,
    schedule::{Schedule, Shape},
    trainer::Plan,
};
use turnwise_core::error::Result;

/// Settings of a training run. Missing settings get the defaults of the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Training objective.
    pub objective: ObjectiveName,
    /// Base model: a folder or a name. A recipe file can omit the model and the corpus; the command line then sets
    /// them.
    #[serde(default)]
    pub model: String,
    /// Training dialogues: indexes, files and folders.
    #[serde(default)]
    pub corpus: Vec<PathBuf>,
    /// Auxiliary objectives with the weights of their losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BTreeMap<ObjectiveName, f64>>,
    /// Number of training steps. For `steps`, `batch`, `learning_rate`, `max_tokens` and `temperature`, 0 means
    /// "not set".
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub steps: u64,
    /// Batch size: number of examples per step.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub batch: usize,
    /// Number of micro-batches per step. More micro-batches need less memory; the gradients are the same.
    #[serde(default = "one")]
    pub parts: usize,
    /// Peak learning rate.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub learning_rate: f64,
    /// Learning rate schedule after the warm-up.
    #[serde(default)]
    pub schedule: Shape,
    /// Number of warm-up steps.
    #[serde(default)]
    pub warm_up: u64,
    /// Weight decay.
    #[serde(default = "decay")]
    pub weight_decay: f64,
    /// Maximum gradient norm; 0 disables clipping.
    #[serde(default = "clip")]
    pub clip: f64,
    /// Dropout probability.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Number of frozen layers, counted from the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_layers: Option<usize>,
    /// Maximum number of tokens of an input sequence (an utterance or a dialogue).
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub max_tokens: usize,
    /// Temperature τ of the softmax.
    #[serde(default, deserialize_with = "settings::not_zero", skip_serializing_if = "settings::is_zero")]
    pub temperature: f64,
    /// Number of negatives per positive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<usize>,
    /// DialogueCSE: number of hard negatives among the negatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hard_negatives: Option<usize>,
    /// Number of context turns. DialogueCSE: around a response. Responses: before a response. Surroundings: on each
    /// side of an utterance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// DialogueCSE: aggregation of the context turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Aggregation>,
    /// Appends a `surroundings` layer to the trained encoder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layer: bool,
    /// Weight of the context in the `surroundings` layer, from 0 to 1. The rest is the weight of the original
    /// vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// dial2vec: window size in turns; turns that are further apart do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// dial2vec: follow the paper or its released code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Removes the nickname of the addressee at the start of utterances (IRC).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strip_nicks: bool,
    /// Merges consecutive turns of one speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_turns: Option<bool>,
    /// Minimum number of turns; shorter dialogues are skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_turns: Option<usize>,
    /// Number of dialogues to use, drawn by the seed [default: all].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogues: Option<usize>,
    /// Random seed.
    #[serde(default)]
    pub seed: u64,
    /// Number of steps between checkpoints.
    #[serde(default = "every")]
    pub checkpoint_every: u64,
    /// Number of steps between evaluations; 0 disables them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate_every: Option<u64>,
    /// Labeled tasks that evaluate the model during training.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<DevTask>,
    /// Number of held-out dialogues for the label-free evaluation, at most a tenth of all dialogues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<usize>,
    /// Criterion that selects the step whose model is kept.
    #[serde(default)]
    pub select: Selection,
    /// Early stopping: number of evaluations without an improvement; 0 disables it.
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
    /// Creates a recipe with the defaults of the objective.
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
            // The label-free criterion measures topics. `places` learns dialogue acts, which it cannot measure.
            select: match objective {
                ObjectiveName::Places => Selection::Last,
                _ => Selection::default(),
            },
            patience: patience(),
        }
    }

    /// Sets all missing settings to the defaults of the objective's paper, and validates the recipe.
    ///
    /// `layers` and `max_tokens` are the number of layers and the maximum sequence length of the base model.
    pub fn complete(&mut self, layers: usize, max_tokens: usize) -> Result<()> {
        self.fill(layers, max_tokens);
        self.check()
    }

    /// Like [`Recipe::complete`], without validation.
    pub fn fill(&mut self, layers: usize, max_tokens: usize) {
        use ObjectiveName as O;
        if self.layer || self.objective == O::Surroundings {
            self.strength.get_or_insert(0.5);
        }
        // The label-free evaluation compares the two halves of held-out dialogues. It is not needed with labeled
        // dev tasks, and it cannot measure objectives that predict tokens or classes.
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
            // `keep` is only an auxiliary objective, and `surroundings` has no steps.
            O::Keep | O::Surroundings => (32, 2e-5, 64, 1.0),
        };
        let (steps, warm_up) = match self.objective {
            // Each corpus has its own teacher and gets the same number of steps.
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
        let number = |given: usize, default: usize| if given == 0 { default } else { given };
        let real = |given: f64, default: f64| if given == 0.0 { default } else { given };
        if self.steps == 0 {
            (self.steps, self.warm_up) = (steps, self.warm_up.max(warm_up));
        }
        self.evaluate_every.get_or_insert(self.steps.div_ceil(5));
        self.batch = number(self.batch, batch);
        self.learning_rate = real(self.learning_rate, rate);
        self.max_tokens = number(self.max_tokens, tokens).min(max_tokens);
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

    /// Auxiliary objectives with a positive weight.
    pub fn beside(&self) -> impl Iterator<Item = (ObjectiveName, f64)> + '_ {
        self.beside
            .iter()
            .flatten()
            .map(|(name, weight)| (*name, *weight))
            .filter(|(_, weight)| *weight > 0.0)
    }

    /// Returns true if a sequence can hold several turns, which need a separator.
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

    /// Preprocessing of the dialogues.
    pub fn preparing(&self) -> Preprocessing {
        Preprocessing { merged: self.merge_turns.unwrap_or(false), turns: self.min_turns.unwrap_or(1) }
    }

    /// Settings of the training loop.
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
    fn missing_settings_are_those_of_the_papers() {
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
    fn invalid_settings_are_rejected() {
        let error = |change: fn(&mut Recipe)| {
            let mut r = recipe(ObjectiveName::Simcse);
            change(&mut r);
            r.complete(6, 256).unwrap_err().to_string()
        };
        assert!(error(|r| r.window = Some(3)).contains("simcse has no window"));
        assert!(error(|r| r.learning_rate = -1.0).contains("learning_rate"));
        assert!(error(|r| r.dropout = f64::NAN).contains("dropout"));
        assert!(error(|r| r.batch = 1).contains("batch"));
        assert!("simsce".parse::<ObjectiveName>().is_err());
    }
}
