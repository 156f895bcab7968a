//! Masked language modeling on dialogues (domain-adaptive pre-training, as in BERT).
//!
//! A sequence starts at a turn and holds as many consecutive turns as fit. 15% of its tokens, at most ten, are
//! predicted. Of the predicted tokens, 80% are replaced by `[MASK]`, 10% by a random token, and 10% are unchanged. The
//! masks are drawn again in every epoch (dynamic masking).
//!
//! The prediction head has the same architecture as in BERT. It starts from random weights, because sentence encoders
//! do not include the pre-trained head. The output embedding is tied to the word embeddings of the encoder.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, StepTraining},
    losses, turns_of,
};
use crate::{
    data::TrainingSet,
    device,
    model::{Packed, Parameter, Trainable},
    ops::{add_norm, linear},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Sequence, network::Activation};

pub static MLM: Definition = Definition {
    name: "mlm",
    former_name: Some("words"),
    about: "utterances and dialogues: masked language model, as in BERT",
    held_out: false,
    min_turns: 1,
    steps: Some(StepTraining {
        batch: 50,
        max_tokens: 128,
        freezes_half: false,
        ..StepTraining::new(|given| {
            let max_tokens = given.max_tokens();
            ObjectiveBuilder::new(move |setup| {
                let objective = Mlm::new(setup.model, setup.data.mask, setup.seed)?;
                Ok(Mlm { max_tokens, ..objective })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Fraction of the tokens that are predicted.
const MASK_RATE: f64 = 0.15;
/// Maximum number of predicted tokens per sequence.
const MAX_PREDICTIONS: usize = 10;

/// The objective `mlm`: masked language modeling.
pub struct Mlm {
    /// Maximum number of tokens of a sequence.
    pub max_tokens: usize,
    /// Id of the mask token.
    mask: u32,
    vocabulary: usize,
    /// Word embeddings of the encoder. They are trained only if the encoder trains its embeddings.
    table: Tensor,
    epsilon: f32,
    heads: Vec<Parameter>,
}

impl Mlm {
    /// Creates the objective. The seed initializes the prediction head. Returns an error if `mask` is `None`.
    pub fn new(model: &Trainable, mask: Option<u32>, seed: u64) -> Result<Self> {
        let mask = mask.ok_or_else(|| {
            Error::input("the tokenizer has no mask token ([MASK])")
                .with_hint("start from a model with a mask token, for example a BERT model")
        })?;
        let (width, words) = (model.width(), &model.start().embeddings.words);
        let (vocabulary, on) = (words.rows, model.device());
        let trained = model.parameters().iter().find(|p| p.name.starts_with("embeddings.words"));
        let table = match trained {
            Some(parameter) => parameter.var.as_tensor().clone(),
            None => Tensor::from_slice(&words.data, (vocabulary, width), on).map_err(device::error)?,
        };
        let mut heads = losses::layer("words.transform", [width, width], seed, 0, on)?.to_vec();
        let norm = [vec![1.0; width], vec![0.0; width]].concat();
        heads.push(Parameter::new("words.norm", norm, &[2, width], false, on)?);
        heads.push(Parameter::new("words.bias", vec![0.0; vocabulary], &[vocabulary], false, on)?);
        let epsilon = model.start().shape.norm_epsilon;
        Ok(Mlm { max_tokens: 128, mask, vocabulary, table, epsilon, heads })
    }
}

impl Objective for Mlm {
    fn definition(&self) -> &'static Definition {
        &MLM
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 1))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let mut sequences = Vec::with_capacity(examples.len());
        let mut loss = Masked {
            rows: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
            heads: losses::tensors(&self.heads),
            table: self.table.clone(),
            epsilon: self.epsilon,
        };
        let mut start = 0;
        for (location, random) in &mut *examples {
            let mut ids = data.sequence_from(*location, self.max_tokens)?.ids;
            let special = |id: &u32| data.before.contains(id) || data.after.contains(id);
            let mut positions: Vec<usize> = (0..ids.len()).filter(|n| !special(&ids[*n])).collect();
            random.shuffle(&mut positions);
            let wanted = (positions.len() as f64 * MASK_RATE).round() as usize;
            let count = wanted.clamp(1, MAX_PREDICTIONS).min(positions.len());
            positions.truncate(count);
            positions.sort_unstable();
            for position in positions {
                loss.rows.push((start + position) as u32);
                loss.targets.push(ids[position]);
                // Every sequence has the same total weight.
                loss.weights.push(1.0 / count as f32);
                ids[position] = match random.below(10) {
                    0 => ids[position],
                    1 => random.below(self.vocabulary) as u32,
                    _ => self.mask,
                };
            }
            start += ids.len();
            sequences.push(Sequence::new(ids));
        }
        let count = sequences.len() as f32;
        loss.weights.iter_mut().for_each(|weight| *weight /= count);
        Ok(Prepared::new(&MLM, sequences, examples.len(), loss))
    }
}

/// Loss of a batch of masked sequences: weighted cross-entropy of the predicted tokens.
struct Masked {
    /// Row of each predicted token in the batch.
    rows: Vec<u32>,
    /// Original id of each predicted token.
    targets: Vec<u32>,
    /// Weight of each predicted token in the loss.
    weights: Vec<f32>,
    heads: Vec<Tensor>,
    table: Tensor,
    epsilon: f32,
}

impl Loss for Masked {
    fn compute(&self, _: &Packed, states: &Tensor) -> Candle<Tensor> {
        let Masked { rows, targets, weights, .. } = self;
        let [_, _, norm, output_bias] = &self.heads[..] else {
            candle_core::bail!("the prediction head must have four parameters")
        };
        let picked = states.index_select(&losses::indices(rows, states)?, 0)?;
        let cast = |t: &Tensor| t.to_dtype(states.dtype());
        let transformed = losses::apply(&self.heads, &picked, Some(Activation::Gelu))?;
        // Layer normalization without a residual connection.
        let normed = add_norm(&transformed, &transformed.zeros_like()?, &cast(norm)?, self.epsilon, None)?;
        let logits = linear(&normed, &cast(&self.table)?, &cast(output_bias)?, None)?;
        let log_likelihoods = losses::log_likelihoods(&logits, targets)?.squeeze(1)?;
        let weights = cast(&Tensor::from_slice(weights, weights.len(), states.device())?)?;
        (log_likelihoods * weights)?.sum_all()?.neg()
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "rows": self.rows, "words": self.targets, "weights": self.weights })
    }
}
