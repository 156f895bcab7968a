//! Weights of a network as tensors on a device.

use candle_core::{DType, Tensor};
use turnwise_core::error::Result;

use crate::{
    candle_engine::Device,
    network::{self, NormKind},
};

pub(super) struct Linear {
    /// Transposed weight matrix, with one row per input dimension.
    weight: Tensor,
    bias: Tensor,
}

pub(super) struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
    kind: NormKind,
}

pub(super) struct Layer {
    /// Query, key and value, concatenated. The query is already multiplied by `1/√d`, where `d` is the head size. If the
    /// queries are normalized, the weights of their norm are multiplied instead.
    pub(super) qkv: Linear,
    pub(super) head_norms: Option<[Norm; 2]>,
    pub(super) attention_output: Linear,
    pub(super) attention_norm: Option<Norm>,
    pub(super) intermediate: Linear,
    pub(super) gate: Option<Linear>,
    pub(super) output: Linear,
    pub(super) output_norm: Norm,
    pub(super) result_norms: Option<[Norm; 2]>,
    /// If this is set, a token attends only to the tokens whose distance is at most this number.
    pub(super) window: Option<usize>,
}

/// Rotary position embedding: cosines and sines of the angles, with one row per position. A row has an element for half
/// of the elements of a head.
pub(super) struct Rotation {
    pub(super) cosines: Tensor,
    pub(super) sines: Tensor,
}

impl Rotation {
    /// Rotates the heads of queries or keys, with the shape (tokens, heads, head size). `cosines` and `sines` have the
    /// shape (tokens, 1, half of the head size).
    pub(super) fn rotate(heads: &Tensor, cosines: &Tensor, sines: &Tensor) -> candle_core::Result<Tensor> {
        let half = heads.dim(2)? / 2;
        let (x, y) = (heads.narrow(2, 0, half)?, heads.narrow(2, half, half)?);
        let first = (x.broadcast_mul(cosines)? - y.broadcast_mul(sines)?)?;
        let second = (x.broadcast_mul(sines)? + y.broadcast_mul(cosines)?)?;
        Tensor::cat(&[first, second], 2)
    }
}

impl Linear {
    pub(super) fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        x.matmul(&self.weight)?.broadcast_add(&self.bias)
    }
}

impl Norm {
    pub(super) fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        match self.kind {
            NormKind::Layer => {
                candle_nn::ops::layer_norm(&x.contiguous()?, &self.weight, &self.bias, self.epsilon)
            }
            NormKind::Rms => candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight, self.epsilon),
        }
    }
}

/// Creates tensors on a device.
pub(super) struct TensorFactory<'a> {
    pub(super) device: &'a Device,
    pub(super) dtype: DType,
    pub(super) epsilon: f32,
    pub(super) norm_kind: NormKind,
}

impl TensorFactory<'_> {
    pub(super) fn tensor(&self, data: &[f32], shape: impl Into<candle_core::Shape>) -> Result<Tensor> {
        let make = || Tensor::from_slice(data, shape, self.device.inner())?.to_dtype(self.dtype);
        make().map_err(|e| self.device.error(&e))
    }

    pub(super) fn norm(&self, norm: &network::Norm) -> Result<Norm> {
        Ok(Norm {
            weight: self.tensor(&norm.weight, norm.weight.len())?,
            bias: self.tensor(&norm.bias, norm.bias.len())?,
            epsilon: self.epsilon,
            kind: self.norm_kind,
        })
    }

    fn two_norms(&self, [first, second]: &[network::Norm; 2]) -> Result<[Norm; 2]> {
        Ok([self.norm(first)?, self.norm(second)?])
    }

    pub(super) fn relative_bias(&self, bias: &network::RelativeBias, tokens: usize) -> Result<Tensor> {
        let mut all = Vec::with_capacity(bias.heads * tokens * tokens);
        for head in 0..bias.heads {
            let by_distance: Vec<f32> = bias.by_distance(head, tokens).collect();
            (0..tokens).for_each(|query| all.extend_from_slice(&by_distance[tokens - 1 - query..][..tokens]));
        }
        self.tensor(&all, (1, bias.heads, tokens, tokens))
    }

    /// Creates the tables of a rotary position embedding, for layers with or without a window.
    pub(super) fn rotation(
        &self,
        shape: &network::Shape,
        rotary: network::Rotary,
        windowed: bool,
    ) -> Result<Rotation> {
        let (size, positions) = (shape.head_size, rotary.max_tokens);
        let angles: Vec<f64> =
            (0..positions).flat_map(|position| rotary.angles(windowed, size, position)).collect();
        let table = |of: fn(f64) -> f64| {
            let numbers: Vec<f32> = angles.iter().map(|angle| of(*angle) as f32).collect();
            self.tensor(&numbers, (positions, size / 2))
        };
        Ok(Rotation { cosines: table(f64::cos)?, sines: table(f64::sin)? })
    }

    fn linear(&self, parts: &[(&network::Linear, f32)]) -> Result<Linear> {
        let scaled = |numbers: fn(&network::Linear) -> &Vec<f32>| -> Vec<f32> {
            parts.iter().flat_map(|(l, scale)| numbers(l).iter().map(move |v| v * scale)).collect()
        };
        let (weight, bias) = (scaled(|l| &l.weight), scaled(|l| &l.bias));
        let inputs = parts.first().map_or(0, |(l, _)| l.inputs);
        let outputs = bias.len();
        let weight = self.tensor(&weight, (outputs, inputs))?;
        let transposed = weight.t().and_then(|t| t.contiguous()).map_err(|e| self.device.error(&e))?;
        Ok(Linear { weight: transposed, bias: self.tensor(&bias, outputs)? })
    }

    pub(super) fn layer(&self, layer: &network::Layer, shape: &network::Shape) -> Result<Layer> {
        let scale = 1.0 / (shape.head_size as f32).sqrt();
        let head_norms = layer.head_norms.as_ref().map(|[queries, keys]| {
            let mut queries = queries.clone();
            queries.weight.iter_mut().chain(&mut queries.bias).for_each(|x| *x *= scale);
            self.two_norms(&[queries, keys.clone()])
        });
        let of_query = if head_norms.is_some() { 1.0 } else { scale };
        Ok(Layer {
            qkv: self.linear(&[(&layer.query, of_query), (&layer.key, 1.0), (&layer.value, 1.0)])?,
            head_norms: head_norms.transpose()?,
            attention_output: self.linear(&[(&layer.attention_output, 1.0)])?,
            attention_norm: layer.attention_norm.as_ref().map(|norm| self.norm(norm)).transpose()?,
            intermediate: self.linear(&[(&layer.intermediate, 1.0)])?,
            gate: layer.gate.as_ref().map(|gate| self.linear(&[(gate, 1.0)])).transpose()?,
            output: self.linear(&[(&layer.output, 1.0)])?,
            output_norm: self.norm(&layer.output_norm)?,
            result_norms: layer.result_norms.as_ref().map(|norms| self.two_norms(norms)).transpose()?,
            window: layer.window,
        })
    }
}
