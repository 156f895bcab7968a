//! Fine-grained post-training: a masked language model and utterance relevance classification on the same sequences.
//!
//! A sequence is a short context and a response, as in `relevance`. 15% of its tokens are predicted, as in `mlm`, with
//! masks that are drawn again in every epoch. The loss is the sum of both losses. The result is an encoder, from which a
//! selector is trained.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Mlm, Objective, ObjectiveBuilder, Prepared, Relevance, TurnLocation,
    definition::{Definition, Role, StepTraining},
    mlm::{Masked, Masks},
    relevance::Classification,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    run::evaluations::Selection,
};
use turnwise_core::{error::Result, random::Random};

pub static POST_TRAINING: Definition = Definition {
    name: "post-training",
    about: "utterances and responses: masked language model and relevance of responses on the same sequences, before `selector`",
    benchmark: "response responses.jsonl",
    held_out: false,
    role: Role::Main,
    select: Selection::Last,
    min_turns: 3,
    steps: Some(StepTraining {
        several_turns: true,
        end_of_utterance: true,
        all_positions: true,
        steps: 1_000,
        batch: 32,
        learning_rate: 5e-5,
        max_tokens: 128,
        freezes_half: false,
        ..StepTraining::new(|given| {
            let (context, settings) = (given.context(3), given.pairs());
            ObjectiveBuilder::new(move |setup| {
                let relevance = Relevance::of_setup(setup, context, settings)?;
                Ok(PostTraining::new(relevance, Mlm::of_setup(setup)?))
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Maximum number of predicted tokens per sequence.
const MAX_PREDICTIONS: usize = 20;

/// The objective `post-training`.
pub struct PostTraining {
    relevance: Relevance,
    mlm: Mlm,
    heads: Vec<Parameter>,
}

impl PostTraining {
    /// Combines the two objectives.
    pub fn new(relevance: Relevance, mlm: Mlm) -> Self {
        let heads = [relevance.heads(), mlm.heads()].concat();
        PostTraining { relevance, mlm, heads }
    }
}

impl Objective for PostTraining {
    fn definition(&self) -> &'static Definition {
        &POST_TRAINING
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn pooler(&self) -> Result<Option<[Vec<f32>; 2]>> {
        self.relevance.pooler()
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        self.relevance.examples(data)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let (mut pairs, relevance) = self.relevance.classified(data, examples)?;
        let mut masks = Masks::new(&self.mlm, data.specials(), MAX_PREDICTIONS);
        for (sequence, (_, random)) in pairs.sequences.iter_mut().zip(&mut *examples) {
            masks.mask(&mut sequence.ids, random);
        }
        let loss = Both { relevance, masked: masks.loss() };
        pairs.prepared(&POST_TRAINING, examples.len(), loss, None)
    }
}

/// Sum of the two losses.
struct Both {
    relevance: Classification,
    masked: Masked,
}

impl Loss for Both {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        self.relevance.compute(packed, states)? + self.masked.compute(packed, states)?
    }

    fn shape(&self, count: usize) -> serde_json::Value {
        serde_json::json!({ "relevance": self.relevance.shape(count), "masked": self.masked.shape(count) })
    }
}
