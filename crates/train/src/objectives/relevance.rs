//! Utterance relevance classification (URC): is the response the true next turn, a random turn of the same
//! dialogue, or a random turn of another dialogue?
//!
//! The input sequence is a short context and a response. A linear layer on the first token (`[CLS]`) predicts the
//! class. This is one of two common post-training tasks for response selection. The other task is masked language
//! modeling (`mlm`).

use candle_core::{Device, Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation, check_several_dialogues,
    definition::{Definition, StepTraining},
    losses, other_dialogue, turns_of,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::{Packed, Parameter},
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::Sequence;

pub static RELEVANCE: Definition = Definition {
    name: "relevance",
    about: "responses: classifies a candidate response as the next turn, another turn of the dialogue, or a turn of another dialogue",
    benchmark: "response responses.jsonl",
    held_out: false,
    min_turns: 3,
    steps: Some(StepTraining {
        several_turns: true,
        max_tokens: 128,
        ..StepTraining::new(|given| {
            let (context, max_tokens) = (given.context(3), given.max_tokens());
            ObjectiveBuilder::new(move |setup| {
                let objective = Relevance::new(setup.model.width(), setup.seed, setup.model.device())?;
                Ok(Relevance { context, max_tokens, ..objective })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Number of classes: true next turn, other turn of the same dialogue, turn of another dialogue.
const CLASSES: usize = 3;

/// The objective `relevance`: classifies a response as the next turn, another turn of the same dialogue, or neither.
pub struct Relevance {
    /// Maximum number of context turns before the response.
    pub context: usize,
    /// Maximum number of tokens of a sequence. The response gets at most half of them. A context that is too long is
    /// truncated at its start.
    pub max_tokens: usize,
    heads: Vec<Parameter>,
}

impl Relevance {
    /// Creates the objective. The seed initializes the classification layer.
    pub fn new(width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = losses::layer("relevance", [CLASSES, width], seed, 0, device)?.to_vec();
        Ok(Relevance { context: 3, max_tokens: 128, heads })
    }

    /// Builds the input sequence: the context of a turn, and a response.
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
        let context = data.last_tokens(&dialogue[turn.saturating_sub(self.context)..turn], room);
        Sequence::new([&data.before, &context, response, &data.after].concat())
    }
}

impl Objective for Relevance {
    fn definition(&self) -> &'static Definition {
        &RELEVANCE
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        // The second class needs a third turn, other than the response and the turn before it.
        Ok(turns_of(data, 3).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        check_several_dialogues(data)?;
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for (location, random) in &mut *examples {
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
                    elsewhere = data.dialogue(other_dialogue(data, own, random))?;
                    &elsewhere[random.below(elsewhere.len())]
                }
            };
            // A drawn response such as "Yes." can be identical to the true response. It then has class 0.
            classes.push(if response.ids == dialogue[turn].ids { 0 } else { class as u32 });
            sequences.push(self.sequence(data, &dialogue, turn, response));
        }
        let loss = Classification { classes, heads: losses::tensors(&self.heads) };
        Ok(Prepared::new(&RELEVANCE, sequences, examples.len(), loss))
    }
}

/// Loss of a batch of sequences: cross-entropy of their classes.
struct Classification {
    classes: Vec<u32>,
    heads: Vec<Tensor>,
}

impl Loss for Classification {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        let first: Vec<u32> = packed.starts[..self.classes.len()].iter().map(|start| *start as u32).collect();
        let first = states.index_select(&losses::indices(&first, states)?, 0)?;
        losses::cross_entropy(&losses::apply(&self.heads, &first, None)?, &self.classes)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "classes": self.classes })
    }
}
