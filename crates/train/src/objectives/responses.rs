//! Responses: what is said next belongs to the turns before it, and not to those before what was said elsewhere.
//!
//! The last turns as one sequence and the next turn as another, in a batch: each is drawn to its own and away from the
//! others'. What is said word for word twice in a batch is no wrong answer to either. Ours compares the two by their
//! cosine, both ways, as they will be compared in use. The siamese networks that DialogueCSE is measured against put
//! layers between that are thrown away afterwards.

use candle_core::{Device, Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared, likeness};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    ops::linear,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, network::Activation};

/// What is between the encoder and the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Nothing: the cosine, both ways.
    Cosine,
    /// SiameseBERT-S: the response goes through a layer with tanh (Yang et al. 2018), and the product is the score.
    Layer,
    /// SiameseBERT-M: both sides go through two layers each (Henderson et al. 2020), and the cosine is the score.
    Perceptron,
}

/// The objective with its settings.
pub struct NextTurn {
    /// Turns before the response, at most.
    pub context: usize,
    /// τ.
    pub temperature: f64,
    /// Tokens that a response, or its context, may have.
    pub max_tokens: usize,
    matching: Matching,
    pub(super) heads: Vec<Parameter>,
}

impl NextTurn {
    /// With what is between; its layers begin with numbers that belong to the seed.
    pub fn new(matching: Matching, width: usize, seed: u64, device: &Device) -> Result<Self> {
        let names: &[&str] = match matching {
            Matching::Cosine => &[],
            Matching::Layer => &["response"],
            Matching::Perceptron => &["context.0", "context.1", "response.0", "response.1"],
        };
        let mut heads = Vec::new();
        for (n, name) in names.iter().enumerate() {
            heads.extend(likeness::layer(
                &format!("matching.{name}"),
                [width, width],
                seed,
                n as u64,
                device,
            )?);
        }
        Ok(NextTurn { context: 3, temperature: 0.05, max_tokens: 64, matching, heads })
    }

    /// The turns before one. Where they are too long, the end of them.
    fn before(&self, data: &TrainingSet, place: Place) -> Result<Sequence> {
        let (dialogue, turn) = (data.dialogue(place.dialogue)?, place.turn as usize);
        let said = dialogue[turn.saturating_sub(self.context)..turn].iter();
        let mut ids: Vec<u32> = said.flat_map(|said| said.ids.iter().chain(&data.after)).copied().collect();
        let room = self.max_tokens.saturating_sub(data.before.len()).max(1);
        ids.drain(..ids.len().saturating_sub(room));
        Ok(Sequence::new([data.before.as_slice(), &ids].concat()))
    }
}

impl Objective for NextTurn {
    fn name(&self) -> &'static str {
        match self.matching {
            Matching::Cosine => "responses",
            Matching::Layer => "siamese-s",
            Matching::Perceptron => "siamese-m",
        }
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn whole(&self) -> bool {
        true
    }

    fn apart(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        Ok(super::all_turns(data).into_iter().filter(|place| place.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let response = |(place, _): &(Place, Random)| -> Result<Sequence> {
            Ok(data.utterance(&data.said(*place)?, self.max_tokens))
        };
        let contexts = examples.iter().map(|(place, _)| self.before(data, *place));
        let mut sequences = contexts.collect::<Result<Vec<Sequence>>>()?;
        let responses = examples.iter().map(response).collect::<Result<Vec<Sequence>>>()?;
        let masked = likeness::said_twice(&responses);
        sequences.extend(responses);
        Ok(Box::new(Pairs {
            packed: Packed::new(sequences),
            masked,
            temperature: self.temperature,
            matching: self.matching,
            heads: self.heads.iter().map(|head| head.var.as_tensor().clone()).collect(),
        }))
    }
}

/// Contexts, and behind them their responses.
struct Pairs {
    packed: Packed,
    /// What is added to each likeness.
    masked: Vec<f32>,
    temperature: f64,
    matching: Matching,
    heads: Vec<Tensor>,
}

impl Pairs {
    /// What a context and a response, a row each, become before they are compared.
    fn matched(&self, contexts: &Tensor, responses: &Tensor) -> Candle<[Tensor; 2]> {
        let layer = |n: usize, x: &Tensor, activation| {
            let of = |t: &Tensor| t.to_dtype(x.dtype());
            linear(&x.contiguous()?, &of(&self.heads[2 * n])?, &of(&self.heads[2 * n + 1])?, activation)
        };
        match self.matching {
            Matching::Cosine => Ok([likeness::unit(contexts)?, likeness::unit(responses)?]),
            Matching::Layer => {
                // By the root of the width, as attention has it: products of long vectors would be certain at once.
                let scale = (contexts.dim(1)? as f64).sqrt();
                Ok([(contexts / scale)?, layer(0, responses, None)?.tanh()?])
            }
            Matching::Perceptron => {
                let two = |n: usize, x: &Tensor| {
                    likeness::unit(&layer(n + 1, &layer(n, x, Some(Activation::Relu))?, None)?)
                };
                Ok([two(0, contexts)?, two(2, responses)?])
            }
        }
    }
}

impl Prepared for Pairs {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len() / 2
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "count": self.count() })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Pairs {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let count = self.count();
        let [contexts, responses] =
            self.matched(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?)?;
        let scores = likeness::scores(&contexts, &responses, &self.masked)?;
        let there = likeness::diagonal_of(&scores, self.temperature)?;
        if self.matching != Matching::Cosine {
            return Ok(there);
        }
        let back = likeness::diagonal_of(&scores.t()?.contiguous()?, self.temperature)?;
        (there + back)? / 2.0
    }
}
