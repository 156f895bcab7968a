//! Heads, which reduce the hidden states of a sequence to one score.

use serde::{Deserialize, Serialize};
use turnwise_core::error::{Error, Result};

use super::settings::HeadKind;
use crate::{
    folder::{Architecture, Config, DenseActivation, weights::Weights},
    network::Norm,
};

/// Name of the scales in the weight files.
const SCALES: &str = "matching.scales";

/// Layer or layers that compute the score from the hidden states of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Square layer before the scoring layer, with its activation function; `None` for a single layer.
    pub hidden: Option<(Vec<f32>, Vec<f32>, HeadActivation)>,
    /// Layer norm after the square layer, and its epsilon; `None` for all architectures except ModernBERT.
    pub norm: Option<(Norm, f32)>,
    /// Weights of the scoring layer.
    pub weight: Vec<f32>,
    /// Bias of the scoring layer.
    pub bias: f32,
    /// Scales of the similarities of the context and the response, which are encoded separately; `None` if the score does
    /// not depend on them.
    pub scales: Option<Scales>,
    /// Input of the first layer.
    pub pooling: HeadPooling,
}

/// Input of the first layer of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadPooling {
    /// Hidden state of the first token.
    #[default]
    First,
    /// Mean of the hidden states of all tokens. Some models of ModernBERT have it.
    Mean,
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
    /// GELU, as in ModernBERT.
    #[serde(rename = "gelu")]
    Gelu,
}

impl HeadActivation {
    /// Returns the activation function that the classification head of an architecture has.
    pub fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::DistilBert => HeadActivation::Relu,
            Architecture::ModernBert => HeadActivation::Gelu,
            _ => HeadActivation::Tanh,
        }
    }

    fn apply(self, x: f32) -> f32 {
        match self {
            HeadActivation::Tanh => x.tanh(),
            HeadActivation::Relu => x.max(0.0),
            HeadActivation::Gelu => DenseActivation::Gelu.apply(x),
        }
    }
}

impl Head {
    /// Returns the score of a response from the pooled state. Heads with scales add the scaled similarities of the context
    /// and the response to it.
    pub fn score(&self, state: &[f32]) -> f32 {
        let dot = |weights: &[f32], x: &[f32]| weights.iter().zip(x).map(|(w, x)| w * x).sum::<f32>();
        match &self.hidden {
            None => dot(&self.weight, state) + self.bias,
            Some((weight, bias, activation)) => {
                let rows = weight.chunks_exact(state.len()).zip(bias);
                let mut hidden: Vec<f32> =
                    rows.map(|(row, bias)| activation.apply(dot(row, state) + bias)).collect();
                if let Some((norm, epsilon)) = &self.norm {
                    normalize(&mut hidden, norm, *epsilon);
                }
                dot(&self.weight, &hidden) + self.bias
            }
        }
    }

    /// Reads the head of a model for sequence classification with one label. `prefix` is the prefix of the names of the
    /// network's tensors.
    pub(super) fn read(weights: &Weights, config: &Config, prefix: &str, kind: HeadKind) -> Result<Self> {
        let (architecture, width) = (config.architecture, config.shape.hidden);
        let names = HeadNames::of(architecture, prefix);
        let read = |name: String, dims: &[usize]| weights.expect(&name, dims)?.numbers();
        // Only ModernBERT can have no bias.
        let bias = |name: &str| {
            let name = format!("{name}.bias");
            match architecture == Architecture::ModernBert && weights.get(&name).is_none() {
                true => Ok(vec![0.0; width]),
                false => read(name, &[width]),
            }
        };
        let hidden = match kind {
            HeadKind::Cls | HeadKind::Matching => None,
            HeadKind::Pooler => Some((
                read(format!("{}.weight", names.hidden), &[width, width])?,
                bias(&names.hidden)?,
                HeadActivation::of(architecture),
            )),
        };
        let norm = match names.norm {
            Some(name) if hidden.is_some() => {
                let norm = Norm { weight: read(format!("{name}.weight"), &[width])?, bias: bias(name)? };
                Some((norm, config.shape.norm_epsilon))
            }
            _ => None,
        };
        let weight = read(format!("{}.weight", names.score), &[1, width])?;
        let bias = read(format!("{}.bias", names.score), &[1])?;
        let bias = bias.first().copied().ok_or_else(|| Error::Internal("the bias is missing".to_owned()))?;
        let scales = match kind {
            HeadKind::Matching => Scales::of(&read(SCALES.to_owned(), &[3])?),
            _ => None,
        };
        let pooling = match config.variant.classifier_pools_all {
            true => HeadPooling::Mean,
            false => HeadPooling::First,
        };
        Ok(Head { hidden, norm, weight, bias, scales, pooling })
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

/// Applies a layer norm.
fn normalize(x: &mut [f32], norm: &Norm, epsilon: f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n;
    let factor = 1.0 / (variance + epsilon).sqrt();
    for ((x, weight), bias) in x.iter_mut().zip(&norm.weight).zip(&norm.bias) {
        *x = (*x - mean) * factor * weight + bias;
    }
}

/// Names of the layers of a head in the weight files.
struct HeadNames {
    hidden: String,
    norm: Option<&'static str>,
    score: &'static str,
}

impl HeadNames {
    fn of(architecture: Architecture, prefix: &str) -> Self {
        let (hidden, score) = match architecture {
            Architecture::Bert
            | Architecture::NomicBert
            | Architecture::Gte
            | Architecture::New
            | Architecture::JinaBert => (format!("{prefix}pooler.dense"), "classifier"),
            Architecture::ModernBert => ("head.dense".to_owned(), "classifier"),
            Architecture::DistilBert => ("pre_classifier".to_owned(), "classifier"),
            _ => ("classifier.dense".to_owned(), "classifier.out_proj"),
        };
        let norm = (architecture == Architecture::ModernBert).then_some("head.norm");
        HeadNames { hidden, norm, score }
    }
}
