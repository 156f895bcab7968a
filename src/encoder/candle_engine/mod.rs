//! A network through candle: on a GPU, and on the CPU as the reference that our own kernels are tested against.
//!
//! Candle's own BERT pads every sequence and turns to NaN in 16 bits (its mask multiplies infinity by zero), so the
//! layers are ours: linear layers and norms see the tokens end to end; only attention sees rows of equal length, for
//! which a batch should hold sequences of similar length. The mask is finite.

mod device;
mod layout;

pub use device::{Device, DeviceChoice};

use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Tensor};

use crate::{
    encoder::{
        Backend, Batch, Network, Pool, Precision, Reduction, Vectors, Wanted,
        network::{self, Activation},
    },
    error::{Error, Result},
};
use layout::{Layout, Picked};

/// A network on a device of candle's.
pub struct CandleEngine {
    device: Device,
    dtype: DType,
    shape: network::Shape,
    max_tokens: usize,
    words: Tensor,
    positions: Tensor,
    types: Option<Tensor>,
    turns: Option<Tensor>,
    roles: Option<Tensor>,
    norm: Norm,
    layers: Vec<Layer>,
    /// Held by the batch that is computed: the device's memory is meant for one.
    turn: Mutex<()>,
}

struct Linear {
    /// Transposed: one row an input.
    weight: Tensor,
    bias: Tensor,
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f32,
}

struct Layer {
    /// Query, key and value side by side; the query is scaled by `1/√d` beforehand.
    qkv: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

impl CandleEngine {
    /// Brings a network to a device.
    pub fn new(network: &Network, device: Device, precision: Precision) -> Result<Self> {
        let dtype = device.dtype(precision)?;
        let make = Maker { device: &device, dtype, epsilon: network.shape.norm_epsilon };
        let width = network.shape.hidden;
        let table = |t: &network::Table| make.tensor(&t.data, (t.rows, width));
        let optional = |t: &Option<network::Table>| t.as_ref().map(table).transpose();
        let e = &network.embeddings;
        let (words, positions) = (table(&e.words)?, table(&e.positions)?);
        let (types, turns, roles) = (optional(&e.types)?, optional(&e.turns)?, optional(&e.roles)?);
        let norm = make.norm(&e.norm)?;
        let layers =
            network.layers.iter().map(|l| make.layer(l, &network.shape)).collect::<Result<Vec<_>>>()?;
        let (shape, max_tokens) = (network.shape.clone(), network.max_tokens());
        Ok(CandleEngine {
            device,
            dtype,
            shape,
            max_tokens,
            words,
            positions,
            types,
            turns,
            roles,
            norm,
            layers,
            turn: Mutex::default(),
        })
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The states after each of the wanted layers.
    fn states(&self, batch: &Batch, wanted: &[usize]) -> Result<Vec<Tensor>> {
        self.check(batch, wanted)?;
        let attempt = || -> candle_core::Result<Vec<Tensor>> {
            let layout = Layout::new(batch, self.device.inner())?;
            let mut x = self.embed(batch)?;
            let last = wanted.last().copied().unwrap_or_default();
            let mut states = Vec::with_capacity(wanted.len());
            for n in 0..=last {
                if n > 0 {
                    x = self.layer(&self.layers[n - 1], &x, &layout)?;
                }
                if wanted.contains(&n) {
                    states.push(x.clone());
                }
            }
            Ok(states)
        };
        attempt().map_err(|e| self.device.error(&e))
    }

    fn check(&self, batch: &Batch, wanted: &[usize]) -> Result<()> {
        if let Some(layer) = wanted.iter().find(|layer| **layer > self.layers.len()) {
            return Err(Error::Internal(format!("layer {layer} of {}", self.layers.len())));
        }
        let words = self.words.dim(0).unwrap_or(0);
        for sequence in batch.sequences {
            if sequence.is_empty() || sequence.len() > self.max_tokens {
                let length = sequence.len();
                return Err(Error::Internal(format!(
                    "a sequence of {length} tokens, of at most {}",
                    self.max_tokens
                )));
            }
            if let Some(id) = sequence.ids.iter().find(|id| **id as usize >= words) {
                return Err(Error::data(format!("token id {id} of a model with {words} tokens")));
            }
        }
        Ok(())
    }

    fn embed(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        let tokens = batch.tokens();
        let device = self.device.inner();
        let pick = |table: &Tensor, indices: Vec<u32>| {
            table.index_select(&Tensor::from_vec(indices, tokens, device)?, 0)
        };
        let mut ids = Vec::with_capacity(tokens);
        let mut positions = Vec::with_capacity(tokens);
        let first = self.shape.first_position as u32;
        for s in batch.sequences {
            ids.extend_from_slice(&s.ids);
            match &s.positions {
                Some(given) => positions.extend(given.iter().map(|p| p + first)),
                None => positions.extend(self.shape.positions(&s.ids).map(|p| p as u32)),
            }
        }
        let mut x = (pick(&self.words, ids)? + pick(&self.positions, positions)?)?;
        type Column = fn(&crate::encoder::Sequence) -> &Option<Vec<u32>>;
        let columns: [(&Option<Tensor>, Column); 3] =
            [(&self.types, |s| &s.types), (&self.turns, |s| &s.turns), (&self.roles, |s| &s.roles)];
        for (table, column) in columns {
            let Some(table) = table else { continue };
            let mut indices = Vec::with_capacity(tokens);
            for s in batch.sequences {
                match column(s) {
                    Some(given) => indices.extend_from_slice(given),
                    None => indices.resize(indices.len() + s.len(), 0),
                }
            }
            x = (x + pick(table, indices)?)?;
        }
        self.norm.forward(&x)
    }

    fn layer(&self, layer: &Layer, x: &Tensor, layout: &Layout) -> candle_core::Result<Tensor> {
        let attended = self.attention(&layer.qkv.forward(x)?, layout)?;
        let x = layer.attention_norm.forward(&(x + layer.attention_output.forward(&attended)?)?)?;
        let up = layer.intermediate.forward(&x)?;
        let up = match self.shape.activation {
            Activation::Gelu => up.gelu_erf()?,
            Activation::GeluTanh => up.gelu()?,
            Activation::Relu => up.relu()?,
        };
        layer.output_norm.forward(&(&x + layer.output.forward(&up)?)?)
    }

    fn attention(&self, qkv: &Tensor, layout: &Layout) -> candle_core::Result<Tensor> {
        let (rows, length, heads) = (layout.sequences, layout.longest, self.shape.heads);
        let width = self.shape.hidden;
        let head = width / heads;
        let qkv = layout.pad(qkv)?.reshape((rows, length, 3, heads, head))?;
        // (rows, heads, length, head) each.
        let part = |n: usize| qkv.narrow(2, n, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let mut scores = q.matmul(&k.transpose(2, 3)?)?;
        if let Some(mask) = layout.mask(self.dtype)? {
            scores = scores.broadcast_add(&mask)?;
        }
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        layout.unpad(&weights.matmul(&v)?.transpose(1, 2)?.reshape((rows * length, width))?)
    }
}

impl Backend for CandleEngine {
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let _turn = self.turn();
        let states = self.states(batch, layers)?;
        for (layer, states) in layers.iter().zip(states) {
            let read = || states.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
            take(*layer, &read().map_err(|e| self.device.error(&e))?);
        }
        Ok(())
    }

    fn pool(&self, batch: &Batch, wanted: &Wanted) -> Result<Vec<Vectors>> {
        let layers: Vec<usize> = wanted.layers.iter().map(|(layer, _)| *layer).collect();
        let _turn = self.turn();
        let states = self.states(batch, &layers)?;
        let attempt = || -> candle_core::Result<Vec<Vec<f32>>> {
            let mut mixed: Option<Tensor> = None;
            for (states, (_, weight)) in states.into_iter().zip(wanted.layers) {
                let states = states.to_dtype(DType::F32)?.affine(f64::from(*weight), 0.0)?;
                mixed = Some(match mixed {
                    Some(sum) => (sum + states)?,
                    None => states,
                });
            }
            let Some(mixed) = mixed else { return Ok(Vec::new()) };
            let pooled = |pool: &Pool| {
                let picked = Picked::new(batch, pool, self.device.inner())?;
                let rows =
                    mixed.index_select(&picked.rows, 0)?.reshape((picked.groups, picked.longest, ()))?;
                let pooled = match pool.reduction {
                    Reduction::Sum => picked.weights.matmul(&rows)?.squeeze(1)?,
                    Reduction::Max => rows.max(1)?,
                };
                pooled.flatten_all()?.to_vec1()
            };
            wanted.pools.iter().map(pooled).collect()
        };
        let flats = attempt().map_err(|e| self.device.error(&e))?;
        let vectors = |flat| {
            Vectors::from_flat(self.shape.hidden, flat)
                .ok_or_else(|| Error::Internal("pooling lost rows".to_owned()))
        };
        flats.into_iter().map(vectors).collect()
    }

    fn hidden(&self) -> usize {
        self.shape.hidden
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn best_batch(&self) -> usize {
        if self.device.is_cpu() { 1024 } else { 32 * 1024 }
    }

    fn wants_threads(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("{} on {} (candle)", self.dtype.as_str(), self.device)
    }
}

impl Linear {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        x.matmul(&self.weight)?.broadcast_add(&self.bias)
    }
}

impl Norm {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        candle_nn::ops::layer_norm(&x.contiguous()?, &self.weight, &self.bias, self.epsilon)
    }
}

/// Makes tensors of numbers.
struct Maker<'a> {
    device: &'a Device,
    dtype: DType,
    epsilon: f32,
}

impl Maker<'_> {
    fn tensor(&self, data: &[f32], shape: impl Into<candle_core::Shape>) -> Result<Tensor> {
        let make = || Tensor::from_slice(data, shape, self.device.inner())?.to_dtype(self.dtype);
        make().map_err(|e| self.device.error(&e))
    }

    fn norm(&self, norm: &network::Norm) -> Result<Norm> {
        Ok(Norm {
            weight: self.tensor(&norm.weight, norm.weight.len())?,
            bias: self.tensor(&norm.bias, norm.bias.len())?,
            epsilon: self.epsilon,
        })
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

    fn layer(&self, layer: &network::Layer, shape: &network::Shape) -> Result<Layer> {
        let scale = 1.0 / ((shape.hidden / shape.heads) as f32).sqrt();
        Ok(Layer {
            qkv: self.linear(&[(&layer.query, scale), (&layer.key, 1.0), (&layer.value, 1.0)])?,
            attention_output: self.linear(&[(&layer.attention_output, 1.0)])?,
            attention_norm: self.norm(&layer.attention_norm)?,
            intermediate: self.linear(&[(&layer.intermediate, 1.0)])?,
            output: self.linear(&[(&layer.output, 1.0)])?,
            output_norm: self.norm(&layer.output_norm)?,
        })
    }
}

#[cfg(test)]
mod tests;
