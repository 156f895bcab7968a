//! Pre-trained heads of a checkpoint: the pooling layer of BERT, and the head of the masked language model.

use turnwise_core::error::Result;

use crate::{
    folder::{ModelFolder, config::Architecture},
    network::Norm,
};

/// Head of a masked language model: a square layer with the activation function of the network, layer normalization, and
/// a bias per token. The output weights are the word embeddings.
#[derive(Debug, Clone, PartialEq)]
pub struct MlmHead {
    /// Weights of the square layer, row by row.
    pub weight: Vec<f32>,
    /// Bias of the square layer.
    pub bias: Vec<f32>,
    /// Layer normalization after the square layer.
    pub norm: Norm,
    /// Bias of each token of the vocabulary.
    pub output_bias: Vec<f32>,
}

impl ModelFolder {
    /// Returns the weight and the bias of the pooling layer on the first token; `None` if the checkpoint has none.
    pub fn pooler(&self) -> Result<Option<[Vec<f32>; 2]>> {
        let width = self.config().shape.hidden;
        let [weight, bias] = ["weight", "bias"].map(|kind| format!("{}pooler.dense.{kind}", self.prefix()));
        if self.weights().get(&weight).is_none() || self.weights().get(&bias).is_none() {
            return Ok(None);
        }
        let weight = self.weights().expect(&weight, &[width, width])?.numbers()?;
        Ok(Some([weight, self.weights().expect(&bias, &[width])?.numbers()?]))
    }

    /// Returns the head of the masked language model; `None` if the checkpoint has none.
    pub fn mlm_head(&self) -> Result<Option<MlmHead>> {
        let (layer, norm, output) = match self.config().architecture {
            Architecture::Bert => (
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
            ),
            Architecture::DistilBert => ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            _ => ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        };
        let has = |name: &str| self.weights().get(name).is_some();
        // Old checkpoints call the parameters of the layer normalization `gamma` and `beta`.
        let [scale, shift] = match has(&format!("{norm}.weight")) {
            true => ["weight", "bias"],
            false => ["gamma", "beta"],
        };
        let names = [
            format!("{layer}.weight"),
            format!("{layer}.bias"),
            format!("{norm}.{scale}"),
            format!("{norm}.{shift}"),
            output.to_owned(),
        ];
        if !names.iter().all(|name| has(name)) {
            return Ok(None);
        }
        let (width, words) = (self.config().shape.hidden, self.config().words);
        let read = |n: usize, dims: &[usize]| self.weights().expect(&names[n], dims)?.numbers();
        Ok(Some(MlmHead {
            weight: read(0, &[width, width])?,
            bias: read(1, &[width])?,
            norm: Norm { weight: read(2, &[width])?, bias: read(3, &[width])? },
            output_bias: read(4, &[words])?,
        }))
    }
}
