//! Masked language modeling on dialogues (domain-adaptive pre-training, as in BERT).
//!
//! A sequence starts at a turn and holds as many consecutive turns as fit. 15% of its tokens, at most ten, are
//! predicted. Of the predicted tokens, 80% are replaced by `[MASK]`, 10% by a random token, and 10% are unchanged. The
//! masks are drawn again in every epoch (dynamic masking).
//!
//! The prediction head has the same architecture as in BERT. If the base model has a pre-trained head, training
//! continues it. Most sentence encoders have none; their head starts from random weights. The output embedding is tied
//! to the word embeddings of the encoder.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, Setup, TurnLocation,
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
use turnwise_encoder::{
    Sequence,
    folder::MlmHead,
    network::{Activation, Norm},
};

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
            ObjectiveBuilder::new(move |setup| Ok(Mlm { max_tokens, ..Mlm::of_setup(setup)? }))
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
    activation: Activation,
    epsilon: f32,
    heads: Vec<Parameter>,
}

impl Mlm {
    /// Creates the objective for a run.
    pub fn of_setup(setup: &Setup<'_>) -> Result<Self> {
        Mlm::new(setup.model, setup.data.mask, setup.folder.mlm_head()?, setup.seed)
    }

    /// Creates the objective. Without a pre-trained prediction head, the seed initializes a new one. Returns an error if
    /// `mask` is `None`.
    pub fn new(model: &Trainable, mask: Option<u32>, head: Option<MlmHead>, seed: u64) -> Result<Self> {
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
        let shape = &model.start().shape;
        let head = head.unwrap_or_else(|| MlmHead {
            weight: losses::random_weights([width, width], seed, 0),
            bias: vec![0.0; width],
            norm: Norm { weight: vec![1.0; width], bias: vec![0.0; width] },
            output_bias: Vec::new(),
        });
        let norm = [head.norm.weight, head.norm.bias].concat();
        let mut output_bias = head.output_bias;
        // Tokens that were added to the vocabulary, such as [EOU], are not in the pre-trained head.
        output_bias.resize(vocabulary, 0.0);
        let heads = vec![
            Parameter::new("words.transform.weight", head.weight, &[width, width], true, on)?,
            Parameter::new("words.transform.bias", head.bias, &[width], false, on)?,
            Parameter::new("words.norm", norm, &[2, width], false, on)?,
            Parameter::new("words.bias", output_bias, &[vocabulary], false, on)?,
        ];
        let (activation, epsilon) = (shape.activation, shape.norm_epsilon);
        Ok(Mlm { max_tokens: 128, mask, vocabulary, table, activation, epsilon, heads })
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
        let mut masks = Masks::new(self, data.specials(), MAX_PREDICTIONS);
        let mut sequences = Vec::with_capacity(examples.len());
        for (location, random) in &mut *examples {
            let mut ids = data.sequence_from(*location, self.max_tokens)?.ids;
            masks.mask(&mut ids, random);
            sequences.push(Sequence::new(ids));
        }
        Ok(Prepared::new(&MLM, sequences, examples.len(), masks.loss()))
    }
}

/// Masks the sequences of a batch, one after the other.
pub(super) struct Masks<'a> {
    objective: &'a Mlm,
    /// Tokens that are never predicted.
    specials: Vec<u32>,
    /// Maximum number of predicted tokens per sequence.
    most: usize,
    loss: Masked,
    sequences: usize,
    /// Number of tokens in the sequences so far.
    start: usize,
}

impl<'a> Masks<'a> {
    pub(super) fn new(objective: &'a Mlm, specials: Vec<u32>, most: usize) -> Self {
        let loss = Masked {
            rows: Vec::new(),
            targets: Vec::new(),
            weights: Vec::new(),
            heads: losses::tensors(&objective.heads),
            table: objective.table.clone(),
            activation: objective.activation,
            epsilon: objective.epsilon,
        };
        Masks { objective, specials, most, loss, sequences: 0, start: 0 }
    }

    /// Masks the next sequence of the batch.
    pub(super) fn mask(&mut self, ids: &mut [u32], random: &mut Random) {
        let Mlm { vocabulary, mask, .. } = *self.objective;
        let mut positions: Vec<usize> =
            (0..ids.len()).filter(|n| !self.specials.contains(&ids[*n])).collect();
        random.shuffle(&mut positions);
        let wanted = (positions.len() as f64 * MASK_RATE).round() as usize;
        let count = wanted.clamp(1, self.most).min(positions.len());
        positions.truncate(count);
        positions.sort_unstable();
        for position in positions {
            self.loss.rows.push((self.start + position) as u32);
            self.loss.targets.push(ids[position]);
            // Every sequence has the same total weight.
            self.loss.weights.push(1.0 / count as f32);
            ids[position] = match random.below(10) {
                0 => ids[position],
                1 => random.below(vocabulary) as u32,
                _ => mask,
            };
        }
        self.start += ids.len();
        self.sequences += 1;
    }

    /// Returns the loss of the batch.
    pub(super) fn loss(mut self) -> Masked {
        let count = self.sequences as f32;
        self.loss.weights.iter_mut().for_each(|weight| *weight /= count);
        self.loss
    }
}

/// Loss of a batch of masked sequences: weighted cross-entropy of the predicted tokens.
pub(super) struct Masked {
    /// Row of each predicted token in the batch.
    rows: Vec<u32>,
    /// Original id of each predicted token.
    targets: Vec<u32>,
    /// Weight of each predicted token in the loss.
    weights: Vec<f32>,
    heads: Vec<Tensor>,
    table: Tensor,
    activation: Activation,
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
        let transformed = losses::apply(&self.heads, &picked, Some(self.activation))?;
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
