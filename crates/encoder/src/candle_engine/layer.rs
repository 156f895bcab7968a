//! Transformer layers, computed with candle.

use candle_core::Tensor;

use super::{
    CandleEngine, Inputs,
    layout::{self, Layout, Rows},
    staging::Sent,
    weights::{Layer, Norm, Rotation},
};
use crate::network::{self, Activation, NormOrder};

/// Cosines and sines of the angles of every token, with the shape (tokens, 1, half of the head size).
pub(super) type Angles = (Tensor, Tensor);

impl CandleEngine {
    /// Returns the cosines and sines for every token, for layers without and with a window.
    pub(super) fn angles(&self, inputs: &Inputs, sent: &Sent) -> candle_core::Result<Option<[Angles; 2]>> {
        let Some(rotations) = &self.rotations else { return Ok(None) };
        let indices = sent.indices(&inputs.positions)?;
        let pick = |table: &Tensor| table.index_select(&indices, 0)?.unsqueeze(1);
        let [all, windowed] = rotations;
        Ok(Some([
            (pick(&all.cosines)?, pick(&all.sines)?),
            (pick(&windowed.cosines)?, pick(&windowed.sines)?),
        ]))
    }

    pub(super) fn layer(
        &self,
        layer: &Layer,
        x: &Tensor,
        (layout, angles): (&Layout, Option<&[Angles; 2]>),
        sent: &Sent,
    ) -> candle_core::Result<Tensor> {
        let before = self.shape.norm_order == NormOrder::Before;
        let normed = |norm: Option<&Norm>, x: &Tensor, here: bool| match norm {
            Some(norm) if here => norm.forward(x),
            _ => Ok(x.clone()),
        };
        let attention_norm = layer.attention_norm.as_ref();
        let mut qkv = layer.qkv.forward(&normed(attention_norm, x, before)?)?;
        let angles = angles.map(|[all, windowed]| if layer.window.is_some() { windowed } else { all });
        if angles.is_some() || layer.head_norms.is_some() {
            qkv = self.prepare_heads(&qkv, layer, angles)?;
        }
        let attended = match layout {
            Layout::Rows(rows) => self.attention(&qkv, (rows, layer.window), sent)?,
            #[cfg(feature = "flash-attn")]
            Layout::Packed(packed) => flash::attention(&qkv, self.shape.heads, packed, sent)?,
        };
        let [of_attention, of_feed] = match &layer.result_norms {
            Some([attention, feed]) => [Some(attention), Some(feed)],
            None => [None; 2],
        };
        let attended = layer.attention_output.forward(&attended)?;
        let sum = (x + normed(of_attention, &attended, true)?)?;
        let x = normed(attention_norm, &sum, !before)?;
        let input = normed(Some(&layer.output_norm), &x, before)?;
        let up = layer.intermediate.forward(&input)?;
        let mut up = match self.shape.activation {
            Activation::Gelu => up.gelu_erf()?,
            Activation::GeluTanh => up.gelu()?,
            Activation::Relu => up.relu()?,
            Activation::Silu => up.silu()?,
        };
        if let Some(gate) = &layer.gate {
            up = (up * gate.forward(&input)?)?;
        }
        let sum = (&x + normed(of_feed, &layer.output.forward(&up)?, true)?)?;
        normed(Some(&layer.output_norm), &sum, !before)
    }

    /// Normalizes and rotates the queries and keys.
    fn prepare_heads(
        &self,
        qkv: &Tensor,
        layer: &Layer,
        angles: Option<&Angles>,
    ) -> candle_core::Result<Tensor> {
        let (shape, tokens) = (&self.shape, qkv.dim(0)?);
        let (queries, keys) = (shape.heads * shape.head_size, shape.key_heads * shape.head_size);
        let prepared = |start: usize, heads: usize, norm: Option<&Norm>| {
            let width = heads * shape.head_size;
            let mut part = qkv.narrow(1, start, width)?.reshape((tokens, heads, shape.head_size))?;
            if let Some(norm) = norm {
                part = norm.forward(&part)?;
            }
            if let Some((cosines, sines)) = angles {
                part = Rotation::rotate(&part, cosines, sines)?;
            }
            part.reshape((tokens, width))
        };
        let [of_queries, of_keys] = match &layer.head_norms {
            Some([queries, keys]) => [Some(queries), Some(keys)],
            None => [None; 2],
        };
        let values = qkv.narrow(1, queries + keys, keys)?;
        let parts =
            [prepared(0, shape.heads, of_queries)?, prepared(queries, shape.key_heads, of_keys)?, values];
        Tensor::cat(&parts, 1)
    }

    fn attention(
        &self,
        qkv: &Tensor,
        (layout, window): (&Rows, Option<usize>),
        sent: &Sent,
    ) -> candle_core::Result<Tensor> {
        let (rows, length) = (layout.sequences, layout.longest);
        let network::Shape { heads, key_heads, head_size, causal, .. } = self.shape;
        let (queries, keys) = (heads * head_size, key_heads * head_size);
        let qkv = layout.select(qkv, |ragged| &ragged.padded, sent)?;
        // Query, key and value each have the shape (sequences, heads, tokens, head size).
        let part = |start: usize, count: usize| {
            let part = qkv.narrow(1, start, count * head_size)?.reshape((rows, length, count, head_size))?;
            part.transpose(1, 2)?.contiguous()
        };
        // A group of heads shares the keys and values.
        let shared = |part: Tensor| {
            let group = (rows, key_heads, heads / key_heads, length, head_size);
            part.unsqueeze(2)?.broadcast_as(group)?.reshape((rows, heads, length, head_size))
        };
        let (q, mut k, mut v) =
            (part(0, heads)?, part(queries, key_heads)?, part(queries + keys, key_heads)?);
        if key_heads < heads {
            (k, v) = (shared(k)?, shared(v)?);
        }
        let mut scores = q.matmul(&k.transpose(2, 3)?)?;
        if let Some(bias) = &self.relative_bias {
            // The bias depends only on the distance, so every sequence uses the first rows and columns.
            scores = scores.broadcast_add(&bias.narrow(2, 0, length)?.narrow(3, 0, length)?)?;
        }
        if let Some(slopes) = &self.slopes {
            let distances = layout::distances(&scores)?.abs()?.to_dtype(self.dtype)?;
            scores = scores.broadcast_sub(&distances.broadcast_mul(slopes)?)?;
        }
        if let Some(mask) = layout.mask(self.dtype, sent)? {
            scores = scores.broadcast_add(&mask)?;
        }
        let window = window.filter(|window| *window < length);
        if causal || window.is_some() {
            scores = scores.broadcast_add(&layout::attention_mask(&scores, window, causal)?)?;
        }
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        let attended = weights.matmul(&v)?.transpose(1, 2)?.reshape((rows * length, queries))?;
        layout.select(&attended, |ragged| &ragged.unpadded, sent)
    }
}
