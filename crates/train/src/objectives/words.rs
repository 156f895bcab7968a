//! Masked language modeling on dialogues (domain-adaptive pre-training, as in BERT).
//!
//! A sequence starts at a turn and holds as many consecutive turns as fit. 15% of its tokens, at most ten, are
//! predicted: 80% of them are replaced by `[MASK]`, 10% by a random token, and 10% are unchanged. The masks are
//! drawn again in every epoch (dynamic masking).
//!
//! The prediction head has the architecture of BERT's. It starts from random weights, because sentence encoders do
//! not include the pre-trained head. The output embedding is tied to the word embeddings of the encoder.

use candle_core::{Result as Candle, Tensor};

use super::{
    Location, Objective, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{
    data::TrainingSet,
    device,
    model::{Packed, Parameter, Trainable},
    ops::{add_norm, linear},
    run::evaluations::Selection,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Sequence, network::Activation};

/// Definition of `words`.
pub static WORDS: Definition = Definition {
    name: "words",
    about: "utterances and dialogues: masked language model, as in BERT",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: false,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 1,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: false,
        one_corpus: false,
        several_turns: false,
        merge_turns: false,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 50,
        learning_rate: 2e-5,
        max_tokens: 128,
        temperature: 1.0,
        frozen: Frozen::Nothing,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| Box::new(WordsSettings { max_tokens: given.max_tokens() }),
    }),
};

/// Settings of `words`.
#[derive(Debug)]
struct WordsSettings {
    max_tokens: usize,
}

impl Settings for WordsSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective = Words::new(setup.model, setup.data.mask, setup.seed)?;
        objective.max_tokens = self.max_tokens;
        Ok(Box::new(objective))
    }
}

/// Fraction of the tokens that are predicted.
const MASK_RATE: f64 = 0.15;
/// Maximum number of predicted tokens per sequence.
const MAX_PREDICTIONS: usize = 10;

/// The objective `words`: masked language modeling.
pub struct Words {
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

impl Words {
    /// Creates the objective for a model. The seed initializes the prediction head.
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
        Ok(Words { max_tokens: 128, mask, vocabulary, table, epsilon, heads })
    }

    /// Returns the unmasked sequence that starts at a turn.
    fn sequence(&self, data: &TrainingSet, location: Location) -> Result<Vec<u32>> {
        let turns = data.dialogue(location.dialogue)?;
        let tokens =
            turns[location.turn as usize..].iter().flat_map(|turn| turn.ids.iter().chain(&data.after));
        Ok(data.before.iter().chain(tokens).take(self.max_tokens).copied().collect())
    }
}

impl Objective for Words {
    fn definition(&self) -> &'static Definition {
        &WORDS
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(super::all_turns(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let mut sequences = Vec::with_capacity(examples.len());
        let mut predicted = Predicted::default();
        let mut start = 0;
        for (location, random) in examples {
            let mut ids = self.sequence(data, *location)?;
            let special = |id: &u32| data.before.contains(id) || data.after.contains(id);
            let mut positions: Vec<usize> = (0..ids.len()).filter(|n| !special(&ids[*n])).collect();
            random.shuffle(&mut positions);
            let wanted = (positions.len() as f64 * MASK_RATE).round() as usize;
            let count = wanted.clamp(1, MAX_PREDICTIONS).min(positions.len());
            positions.truncate(count);
            positions.sort_unstable();
            for position in positions {
                predicted.rows.push((start + position) as u32);
                predicted.words.push(ids[position]);
                // Every sequence has the same total weight.
                predicted.weights.push(1.0 / count as f32);
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
        predicted.weights.iter_mut().for_each(|weight| *weight /= count);
        let heads = self.heads.iter().map(|head| head.var.as_tensor().clone()).collect();
        Ok(Box::new(Masked {
            packed: Packed::new(sequences),
            predicted,
            heads,
            table: self.table.clone(),
            epsilon: self.epsilon,
        }))
    }
}

/// Tokens to predict.
#[derive(Debug, Clone, Default)]
struct Predicted {
    /// Row of each predicted token in the batch.
    rows: Vec<u32>,
    /// Original id of each predicted token.
    words: Vec<u32>,
    /// Weight of each predicted token in the loss.
    weights: Vec<f32>,
}

/// Batch of masked sequences.
struct Masked {
    packed: Packed,
    predicted: Predicted,
    heads: Vec<Tensor>,
    table: Tensor,
    epsilon: f32,
}

impl Prepared for Masked {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len()
    }

    fn shape(&self) -> serde_json::Value {
        let Predicted { rows, words, weights } = &self.predicted;
        serde_json::json!({ "rows": rows, "words": words, "weights": weights })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let Predicted { rows, words, weights } = &self.predicted;
        let on = states.device();
        let [weight, bias, norm, output_bias] = &self.heads[..] else {
            candle_core::bail!("the prediction head must have four parameters")
        };
        let picked = states.index_select(&Tensor::from_slice(rows, rows.len(), on)?, 0)?;
        let cast = |t: &Tensor| t.to_dtype(states.dtype());
        let transformed = linear(&picked, &cast(weight)?, &cast(bias)?, Some(Activation::Gelu))?;
        // Layer normalization without a residual.
        let normed = add_norm(&transformed, &transformed.zeros_like()?, &cast(norm)?, self.epsilon, None)?;
        let logits = linear(&normed, &cast(&self.table)?, &cast(output_bias)?, None)?;
        let log_probabilities = losses::log_softmax(&logits, 1.0)?;
        let targets = Tensor::from_slice(words, (words.len(), 1), on)?;
        let right = log_probabilities.gather(&targets, 1)?.squeeze(1)?;
        (right * cast(&Tensor::from_slice(weights, weights.len(), on)?)?)?.sum_all()?.neg()
    }
}
