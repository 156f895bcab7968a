//! Heads, which reduce the hidden state of the first token to one score.

use serde::{Deserialize, Serialize};
use turnwise_core::error::{Error, Result};

use super::settings::HeadKind;
use crate::folder::{Architecture, weights::Weights};

/// Name of the scales in the weight files.
const SCALES: &str = "matching.scales";

/// Layer or layers that compute the score from the hidden state of the first token.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Square layer before the scoring layer, with its activation function; `None` for a single layer.
    pub hidden: Option<(Vec<f32>, Vec<f32>, HeadActivation)>,
    /// Weights of the scoring layer.
    pub weight: Vec<f32>,
    /// Bias of the scoring layer.
    pub bias: f32,
    /// Scales of the similarities of the context and the response, which are encoded separately; `None` if the score does
    /// not depend on them.
    pub scales: Option<Scales>,
}

/// Scales of the similarities that the head `matching` adds to the score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Scale of the similarity of the turns of the context, each encoded separately, and the response.
    pub turns: f32,
    /// Scale of the similarity of the whole context, encoded as one text, and the response.
    pub context: f32,
    /// Scale of the similarity of the tokens of this text and the tokens of the response.
    pub tokens: f32,
}

impl Scales {
    /// Creates the scales from their values in a weight file or a parameter: `turns`, `context`, `tokens`. Returns `None`
    /// if the number of values is wrong.
    pub fn of(values: &[f32]) -> Option<Self> {
        match *values {
            [turns, context, tokens] => Some(Scales { turns, context, tokens }),
            _ => None,
        }
    }

    /// Returns the values, in the order of [`Scales::of`].
    pub fn values(self) -> [f32; 3] {
        [self.turns, self.context, self.tokens]
    }
}

/// Activation function of the layer before the scoring layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeadActivation {
    /// Hyperbolic tangent, as in BERT and RoBERTa.
    #[serde(rename = "tanh")]
    Tanh,
    /// `max(x, 0)`, as in DistilBERT.
    #[serde(rename = "relu")]
    Relu,
}

impl HeadActivation {
    /// Returns the activation function that the classification head of an architecture has.
    pub fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::DistilBert => HeadActivation::Relu,
            _ => HeadActivation::Tanh,
        }
    }

    fn apply(self, x: f32) -> f32 {
        match self {
            HeadActivation::Tanh => x.tanh(),
            HeadActivation::Relu => x.max(0.0),
        }
    }
}

impl Head {
    /// Returns the score of a response from the state of the first token. Heads with scales add the scaled
    /// similarities of the context and the response to it.
    pub fn score(&self, state: &[f32]) -> f32 {
        let dot = |weights: &[f32], x: &[f32]| weights.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
        match &self.hidden {
            None => dot(&self.weight, state) + self.bias,
            Some((weight, bias, activation)) => {
                let rows = weight.chunks_exact(state.len()).zip(bias);
                let hidden: Vec<f32> =
                    rows.map(|(row, bias)| activation.apply(dot(row, state) + bias)).collect();
                dot(&self.weight, &hidden) + self.bias
            }
        }
    }

    /// Reads the head of a model for sequence classification with one label. `prefix` is the prefix of the names of the
    /// network's tensors.
    pub(super) fn read(
        weights: &Weights,
        architecture: Architecture,
        prefix: &str,
        width: usize,
        kind: HeadKind,
    ) -> Result<Self> {
        let names = HeadNames::of(architecture, prefix);
        let read = |name: String, dims: &[usize]| weights.expect(&name, dims)?.numbers();
        let hidden = match kind {
            HeadKind::Cls | HeadKind::Matching => None,
            HeadKind::Pooler => Some((
                read(format!("{}.weight", names.hidden), &[width, width])?,
                read(format!("{}.bias", names.hidden), &[width])?,
                HeadActivation::of(architecture),
            )),
        };
        let weight = read(format!("{}.weight", names.score), &[1, width])?;
        let bias = read(format!("{}.bias", names.score), &[1])?;
        let bias = bias.first().copied().ok_or_else(|| Error::Internal("the bias is missing".to_owned()))?;
        let scales = match kind {
            HeadKind::Matching => Scales::of(&read(SCALES.to_owned(), &[3])?),
            _ => None,
        };
        Ok(Head { hidden, weight, bias, scales })
    }

    /// Returns the tensors of the head with their names and shapes.
    pub(super) fn tensors(
        &self,
        architecture: Architecture,
        prefix: &str,
    ) -> Vec<(String, Vec<usize>, Vec<f32>)> {
        let names = HeadNames::of(architecture, prefix);
        let width = self.weight.len();
        let mut all = Vec::new();
        if let Some((weight, bias, _)) = &self.hidden {
            all.push((format!("{}.weight", names.hidden), vec![width, width], weight.clone()));
            all.push((format!("{}.bias", names.hidden), vec![width], bias.clone()));
        }
        all.push((format!("{}.weight", names.score), vec![1, width], self.weight.clone()));
        all.push((format!("{}.bias", names.score), vec![1], vec![self.bias]));
        all.extend(self.scales.map(|scales| (SCALES.to_owned(), vec![3], scales.values().to_vec())));
        all
    }
}

/// Names of the layers of a head in the weight files.
struct HeadNames {
    hidden: String,
    score: &'static str,
}

impl HeadNames {
    fn of(architecture: Architecture, prefix: &str) -> Self {
        let (hidden, score) = match architecture {
            Architecture::Bert => (format!("{prefix}pooler.dense"), "classifier"),
            Architecture::DistilBert => ("pre_classifier".to_owned(), "classifier"),
            _ => ("classifier.dense".to_owned(), "classifier.out_proj"),
        };
        HeadNames { hidden, score }
    }
}
