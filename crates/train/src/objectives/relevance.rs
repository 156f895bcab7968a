//! Utterance relevance classification (URC): is the response the true next turn, a random turn of the same
//! dialogue, or a random turn of another dialogue?
//!
//! The input sequence is a short context and a response, in the layout of a selector: the token `[EOU]` ends every turn of
//! the context, and the response is a segment of its own. The turns are tokens, or one sentence vector each. The pooling layer of BERT and a linear layer on the first token
//! (`[CLS]`) predict the class. This is one of two common post-training tasks for response selection. The other task is
//! masked language modeling (`mlm`); `post-training` combines both.

use candle_core::{Device, Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, Setup, TurnLocation, check_several_dialogues,
    definition::{Definition, StepTraining},
    losses, other_dialogue,
    pairs::PairBatch,
    turns_of,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::{Packed, Parameter},
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::selector::{Layout, SelectorSettings};

pub static RELEVANCE: Definition = Definition {
    name: "relevance",
    about: "responses: classifies a candidate response as the next turn, another turn of the dialogue, or a turn of another dialogue",
    benchmark: "response responses.jsonl",
    held_out: false,
    min_turns: 3,
    steps: Some(StepTraining {
        several_turns: true,
        end_of_utterance: true,
        max_tokens: 128,
        ..StepTraining::new(|given| {
            let (context, settings) = (given.context(3), given.pairs());
            ObjectiveBuilder::new(move |setup| Relevance::of_setup(setup, context, settings))
        })
    }),
    ..Definition::DEFAULT
};

/// Number of classes: true next turn, other turn of the same dialogue, turn of another dialogue.
const CLASSES: usize = 3;

/// The objective `relevance`: classifies a response as the next turn, another turn of the same dialogue, or neither.
pub struct Relevance {
    /// Maximum number of context turns before the response.
    context: usize,
    /// Builds the input sequences.
    layout: Layout,
    heads: Vec<Parameter>,
}

impl Relevance {
    /// Creates the objective for a run. The pooling layer is that of the base model, if it has one. `context` is the
    /// maximum number of turns before the response.
    pub fn of_setup(setup: &Setup<'_>, context: usize, settings: SelectorSettings) -> Result<Self> {
        let embeddings = &setup.model.start().embeddings;
        let layout = Layout::new(settings, setup.tokenizer, embeddings)?;
        let width = setup.model.width();
        Relevance::new(context, layout, width, setup.folder.pooler()?, setup.seed, setup.model.device())
    }

    /// Creates the objective. The seed initializes the classification layer, and the pooling layer if `pooler` is
    /// `None`.
    pub fn new(
        context: usize,
        layout: Layout,
        width: usize,
        pooler: Option<[Vec<f32>; 2]>,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let hidden = losses::pooler("relevance.hidden", width, pooler, seed, 1, device)?;
        let class = losses::layer("relevance", [CLASSES, width], seed, 0, device)?;
        Ok(Relevance { context, layout, heads: [hidden, class].concat() })
    }

    /// Returns the pairs of the examples, and the loss of their classes.
    pub(super) fn classified(
        &self,
        data: &TrainingSet,
        examples: &mut [(TurnLocation, Random)],
    ) -> Result<(PairBatch, Classification)> {
        check_several_dialogues(data)?;
        let (mut pairs, mut classes) = (PairBatch::default(), Vec::new());
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
            let context: &[TurnTokens] = &dialogue[turn.saturating_sub(self.context)..turn];
            let context: Vec<&[u32]> = context.iter().map(|turn| turn.ids.as_slice()).collect();
            let encoded = pairs.add_context(&self.layout, &context);
            pairs.add_response(&self.layout, &context, &encoded, &response.ids);
        }
        Ok((pairs, Classification { classes, heads: losses::tensors(&self.heads) }))
    }
}

impl Objective for Relevance {
    fn definition(&self) -> &'static Definition {
        &RELEVANCE
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn pooler(&self) -> Result<Option<[Vec<f32>; 2]>> {
        Ok(Some([self.heads[0].numbers()?, self.heads[1].numbers()?]))
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        // The second class needs a third turn, other than the response and the turn before it.
        Ok(turns_of(data, 3).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let (pairs, loss) = self.classified(data, examples)?;
        pairs.prepared(&RELEVANCE, examples.len(), loss, None)
    }
}

/// Loss of a batch of sequences: cross-entropy of their classes.
pub(super) struct Classification {
    classes: Vec<u32>,
    heads: Vec<Tensor>,
}

impl Loss for Classification {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        let first = losses::first_states(packed, states, self.classes.len())?;
        let pooled = losses::apply(&self.heads, &first, None)?.tanh()?;
        losses::cross_entropy(&losses::apply(&self.heads[2..], &pooled, None)?, &self.classes)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "classes": self.classes })
    }
}
