//! Masked words: some tokens are hidden, and the encoder finds them. What BERT was trained for, gone on with on dialogues.
//!
//! Consecutive turns, from one on, as many as fit. Of their tokens 15%, and ten at most, are asked about: eight of ten are
//! hidden, one is replaced by another, one stays. Drawn anew each time. The layers that tell a token from a state are
//! those of BERT; they begin anew (a sentence encoder has lost them), but for the table of words, which is the encoder's.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, Prepared, likeness};
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

/// The part of the tokens that is asked about, and how many at most.
const PART: f64 = 0.15;
const MOST: usize = 10;

/// The objective with its settings.
pub struct Words {
    /// Tokens that a sequence may have.
    pub max_tokens: usize,
    /// The token that hides others.
    mask: u32,
    vocabulary: usize,
    /// The table of words: the encoder's own, trained or not.
    table: Tensor,
    epsilon: f32,
    heads: Vec<Parameter>,
}

impl Words {
    /// For a model; what is its own begins with numbers that belong to the seed.
    pub fn new(model: &Trainable, mask: Option<u32>, seed: u64) -> Result<Self> {
        let mask = mask.ok_or_else(|| {
            Error::input("the tokenizer has no token that hides others ([MASK])")
                .with_hint("begin with a model that has one, such as those of the BERT family")
        })?;
        let (width, words) = (model.width(), &model.start().embeddings.words);
        let (vocabulary, on) = (words.rows, model.device());
        let trained = model.parameters().iter().find(|p| p.name.starts_with("embeddings.words"));
        let table = match trained {
            Some(parameter) => parameter.var.as_tensor().clone(),
            None => Tensor::from_slice(&words.data, (vocabulary, width), on).map_err(device::error)?,
        };
        let mut heads = likeness::layer("words.transform", [width, width], seed, 0, on)?.to_vec();
        let norm = [vec![1.0; width], vec![0.0; width]].concat();
        heads.push(Parameter::new("words.norm", norm, &[2, width], false, on)?);
        heads.push(Parameter::new("words.bias", vec![0.0; vocabulary], &[vocabulary], false, on)?);
        let epsilon = model.start().shape.norm_epsilon;
        Ok(Words { max_tokens: 128, mask, vocabulary, table, epsilon, heads })
    }

    /// What is said from a turn on.
    fn said(&self, data: &TrainingSet, place: Place) -> Result<Vec<u32>> {
        let turns = data.dialogue(place.dialogue)?;
        let said = turns[place.turn as usize..].iter().flat_map(|said| said.ids.iter().chain(&data.after));
        Ok(data.before.iter().chain(said).take(self.max_tokens).copied().collect())
    }
}

impl Objective for Words {
    fn name(&self) -> &'static str {
        "words"
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        Ok(super::all_turns(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let mut sequences = Vec::with_capacity(examples.len());
        let mut asked = Asked::default();
        let mut start = 0;
        for (place, random) in examples {
            let mut ids = self.said(data, *place)?;
            let special = |id: &u32| data.before.contains(id) || data.after.contains(id);
            let mut open: Vec<usize> = (0..ids.len()).filter(|n| !special(&ids[*n])).collect();
            random.shuffle(&mut open);
            let count = ((open.len() as f64 * PART).round() as usize).clamp(1, MOST).min(open.len());
            open.truncate(count);
            open.sort_unstable();
            for place in open {
                asked.rows.push((start + place) as u32);
                asked.words.push(ids[place]);
                // Each sequence counts the same, however many of its tokens are asked about.
                asked.weights.push(1.0 / count as f32);
                ids[place] = match random.below(10) {
                    0 => ids[place],
                    1 => random.below(self.vocabulary) as u32,
                    _ => self.mask,
                };
            }
            start += ids.len();
            sequences.push(Sequence::new(ids));
        }
        let count = sequences.len() as f32;
        asked.weights.iter_mut().for_each(|weight| *weight /= count);
        let heads = self.heads.iter().map(|head| head.var.as_tensor().clone()).collect();
        Ok(Box::new(Hidden {
            packed: Packed::new(sequences),
            asked,
            heads,
            table: self.table.clone(),
            epsilon: self.epsilon,
        }))
    }
}

/// Tokens that are asked about.
#[derive(Debug, Clone, Default)]
struct Asked {
    /// Their rows among the tokens of the batch.
    rows: Vec<u32>,
    /// What they are.
    words: Vec<u32>,
    /// What each counts.
    weights: Vec<f32>,
}

struct Hidden {
    packed: Packed,
    asked: Asked,
    heads: Vec<Tensor>,
    table: Tensor,
    epsilon: f32,
}

impl Prepared for Hidden {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len()
    }

    fn shape(&self) -> serde_json::Value {
        let Asked { rows, words, weights } = &self.asked;
        serde_json::json!({ "rows": rows, "words": words, "weights": weights })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let Asked { rows, words, weights } = &self.asked;
        let on = states.device();
        let [weight, bias, norm, of_words] = &self.heads[..] else {
            candle_core::bail!("what tells words has four parts")
        };
        let picked = states.index_select(&Tensor::from_slice(rows, rows.len(), on)?, 0)?;
        let of = |t: &Tensor| t.to_dtype(states.dtype());
        let turned = linear(&picked, &of(weight)?, &of(bias)?, Some(Activation::Gelu))?;
        // The same norm as a layer's end, with nothing added.
        let normed = add_norm(&turned, &turned.zeros_like()?, &of(norm)?, self.epsilon, None)?;
        let scores = linear(&normed, &of(&self.table)?, &of(of_words)?, None)?;
        let shares = likeness::log_shares(&scores, 1.0)?;
        let right = shares.gather(&Tensor::from_slice(words, (words.len(), 1), on)?, 1)?.squeeze(1)?;
        (right * of(&Tensor::from_slice(weights, weights.len(), on)?)?)?.sum_all()?.neg()
    }
}
