//! Utterance relevance classification (URC): is the response the true next turn, a random turn of the same
//! dialogue, or a random turn of another dialogue?
//!
//! The input sequence is a short context and a response. A linear layer on the first token (`[CLS]`) predicts the
//! class. This is one of the two post-training tasks for response selection; the other one is masked language
//! modeling (`words`).

use candle_core::{Device, Result as Candle, Tensor};

use super::{
    Location, Objective, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::{Packed, Parameter},
    ops::linear,
    run::evaluations::Selection,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Sequence;

/// Definition of `relevance`.
pub static RELEVANCE: Definition = Definition {
    name: "relevance",
    about: "utterances: classifies a candidate response as the next turn, another turn of the dialogue, or a turn of another dialogue",
    benchmark: "response responses.jsonl",
    sample: Sample::Utterances,
    held_out: false,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 3,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: false,
        one_corpus: false,
        several_turns: true,
        merge_turns: false,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 32,
        learning_rate: 2e-5,
        max_tokens: 128,
        temperature: 1.0,
        frozen: Frozen::Half,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| {
            Box::new(RelevanceSettings { context: given.context(3), max_tokens: given.max_tokens() })
        },
    }),
};

/// Settings of `relevance`.
#[derive(Debug)]
struct RelevanceSettings {
    context: usize,
    max_tokens: usize,
}

impl Settings for RelevanceSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective = Relevance::new(setup.model.width(), setup.seed, setup.model.device())?;
        (objective.context, objective.max_tokens) = (self.context, self.max_tokens);
        Ok(Box::new(objective))
    }
}

/// Number of classes: true next turn, other turn of the same dialogue, turn of another dialogue.
const CLASSES: usize = 3;

/// The objective `relevance`: classifies a response as the next turn, a turn of the same dialogue, or neither.
pub struct Relevance {
    /// Maximum number of context turns before the response.
    pub context: usize,
    /// Maximum number of tokens of a sequence; the start of the context is truncated.
    pub max_tokens: usize,
    heads: Vec<Parameter>,
}

impl Relevance {
    /// Creates the objective. The seed initializes the classification layer.
    pub fn new(width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = losses::layer("relevance", [CLASSES, width], seed, 0, device)?.to_vec();
        Ok(Relevance { context: 3, max_tokens: 128, heads })
    }

    /// Builds the input sequence: the context of a turn, then a response.
    fn sequence(
        &self,
        data: &TrainingSet,
        dialogue: &[TurnTokens],
        turn: usize,
        response: &TurnTokens,
    ) -> Sequence {
        // The response takes at most half of the sequence.
        let response = &response.ids[..response.ids.len().min(self.max_tokens / 2)];
        let room = self.max_tokens.saturating_sub(data.before.len() + response.len() + data.after.len());
        let context = dialogue[turn.saturating_sub(self.context)..turn].iter();
        let mut ids: Vec<u32> =
            context.flat_map(|turn| turn.ids.iter().chain(&data.after)).copied().collect();
        ids.drain(..ids.len().saturating_sub(room));
        Sequence::new([&data.before, &ids, response, &data.after].concat())
    }
}

impl Objective for Relevance {
    fn definition(&self) -> &'static Definition {
        &RELEVANCE
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        // Class 1 needs a further turn of the same dialogue.
        Ok(super::turns_of(data, 3).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        if data.len() < 2 {
            return Err(Error::data(
                "negative responses need at least two dialogues, but the data has only one",
            ));
        }
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for (location, random) in examples {
            let (own, turn) = (location.dialogue, location.turn as usize);
            let dialogue = data.dialogue(own)?;
            let class = random.below(CLASSES);
            let elsewhere;
            let response = match class {
                0 => &dialogue[turn],
                1 => {
                    let other = random.below(dialogue.len() - 1);
                    &dialogue[other + usize::from(other >= turn)]
                }
                _ => {
                    let other = random.below(data.len() - 1) as u32;
                    elsewhere = data.dialogue(other + u32::from(other >= own))?;
                    &elsewhere[random.below(elsewhere.len())]
                }
            };
            // A drawn response such as "Yes." can be identical to the true one. It then has class 0.
            classes.push(if response.ids == dialogue[turn].ids { 0 } else { class as u32 });
            sequences.push(self.sequence(data, &dialogue, turn, response));
        }
        let heads = self.heads.iter().map(|head| head.var.as_tensor().clone()).collect();
        Ok(Box::new(Classified { packed: Packed::new(sequences), classes, heads }))
    }
}

/// Batch of sequences with their classes.
struct Classified {
    packed: Packed,
    classes: Vec<u32>,
    heads: Vec<Tensor>,
}

impl Prepared for Classified {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.classes.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "classes": self.classes })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let (count, on) = (self.count(), states.device());
        let first: Vec<u32> = self.packed.starts[..count].iter().map(|start| *start as u32).collect();
        let first = states.index_select(&Tensor::from_slice(&first, count, on)?, 0)?;
        let [weight, bias] = [0, 1].map(|n: usize| self.heads[n].to_dtype(states.dtype()));
        let log_probabilities = losses::log_softmax(&linear(&first, &weight?, &bias?, None)?, 1.0)?;
        let classes = Tensor::from_slice(&self.classes, (count, 1), on)?;
        log_probabilities.gather(&classes, 1)?.mean_all()?.neg()
    }
}
