//! Backend that runs a network with candle, on a GPU or on the CPU. The CPU version is the reference for the
//! tests of turnwise's own kernels.
//!
//! candle's own BERT is not used, because it pads every sequence and returns NaN in 16 bits: its mask multiplies
//! infinity by zero. The mask in this module is finite.
//!
//! Linear layers and norms process the tokens of all sequences without padding. Attention pads the sequences to equal
//! length, so a batch should contain sequences of similar length. With the feature `flash-attn`, attention needs no
//! padding on an NVIDIA GPU in 16 bits.

mod device;
#[cfg(feature = "flash-attn")]
mod flash;
mod layer;
mod layout;
#[cfg(feature = "cuda")]
mod pinned;
mod staging;
mod weights;

use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Tensor};
use layout::{Layout, Picked, Rows};
use staging::{Indices, Numbers, Sent, Stage, Tables};
use turnwise_core::error::{Error, Result};
use weights::{Layer, Norm, Rotation, TensorFactory};

use crate::{Backend, Batch, Network, Pool, PoolRequest, Precision, Reduction, Sequence, Vectors, network};

pub use device::{Device, DeviceChoice};

/// [`Backend`] that runs a network with candle on one device (CPU or GPU).
pub struct CandleEngine {
    device: Device,
    stage: Stage,
    dtype: DType,
    shape: network::Shape,
    max_tokens: usize,
    words: Tensor,
    /// Position embeddings; `None` for networks with a rotary position embedding.
    positions: Option<Tensor>,
    /// Embeddings of segment types, turns and roles; `None` if the network does not have them.
    tables: [Option<Tensor>; 3],
    norm: Option<Norm>,
    /// Relative position bias with the shape (1, heads, maximum tokens, maximum tokens).
    relative_bias: Option<Tensor>,
    /// Slopes of the linear bias, with the shape (1, heads, 1, 1).
    slopes: Option<Tensor>,
    /// Rotary position embedding of the layers without and with a window.
    rotations: Option<[Rotation; 2]>,
    layers: Vec<Layer>,
    final_norm: Option<Norm>,
    /// Lock that is held while a batch is computed, because the device may not have enough memory for two batches.
    turn: Mutex<()>,
}

/// Locations of a batch's tables, such as token ids and positions, in the memory of the device.
struct Plan {
    inputs: Inputs,
    layout: Layout,
    picked: Vec<Picked>,
}

struct Inputs {
    ids: Indices,
    positions: Indices,
    /// For each embedding table in [`CandleEngine::tables`], the row number of every token; `None` if the network does
    /// not have that table.
    columns: [Option<Indices>; 3],
    vectors: Option<Replaced>,
}

/// Tokens whose word embeddings are replaced by vectors of the batch.
struct Replaced {
    /// For each token of the batch, 0 if its word embedding is replaced, else 1.
    kept: Numbers,
    /// Indices of the replaced tokens in the batch.
    tokens: Indices,
    vectors: Numbers,
    /// Number of tokens in the batch, and number of replaced tokens.
    counts: (usize, usize),
}

impl Replaced {
    /// Returns the tokens that the sequences of the batch replace; `None` if there are none.
    fn new(batch: &Batch, tables: &mut Tables) -> Option<Self> {
        let (mut tokens, mut elements, mut start) = (Vec::new(), Vec::new(), 0);
        for sequence in batch.sequences {
            if let Some(vectors) = &sequence.vectors {
                tokens.extend(vectors.tokens.iter().map(|token| start + token));
                elements.extend_from_slice(&vectors.elements);
            }
            start += sequence.len() as u32;
        }
        if tokens.is_empty() {
            return None;
        }
        let mut kept = vec![1.0; start as usize];
        tokens.iter().for_each(|token| kept[*token as usize] = 0.0);
        let counts = (kept.len(), tokens.len());
        Some(Replaced {
            kept: tables.numbers(kept),
            tokens: tables.indices(tokens),
            vectors: tables.numbers(elements),
            counts,
        })
    }

    /// Replaces rows of the word embeddings `words`.
    fn replace(&self, words: &Tensor, sent: &Sent) -> candle_core::Result<Tensor> {
        let ((all, replaced), width) = (self.counts, words.dim(1)?);
        let kept = sent.numbers(&self.kept, (all, 1))?.to_dtype(words.dtype())?;
        let vectors = sent.numbers(&self.vectors, (replaced, width))?.to_dtype(words.dtype())?;
        words.broadcast_mul(&kept)?.index_add(&sent.indices(&self.tokens)?, &vectors, 0)
    }
}

impl CandleEngine {
    /// Transfers a network to a device. Fails if the device does not support the precision or has too little memory.
    pub fn new(network: &Network, device: Device, precision: Precision) -> Result<Self> {
        let dtype = device.dtype(precision)?;
        let factory = TensorFactory {
            device: &device,
            dtype,
            epsilon: network.shape.norm_epsilon,
            norm_kind: network.shape.norm_kind,
        };
        let width = network.shape.hidden;
        let table = |t: &network::Table| factory.tensor(&t.data, (t.rows, width));
        let optional = |t: &Option<network::Table>| t.as_ref().map(table).transpose();
        let e = &network.embeddings;
        let (words, positions) = (table(&e.words)?, optional(&e.positions)?);
        let tables = [optional(&e.types)?, optional(&e.turns)?, optional(&e.roles)?];
        let norm = e.norm.as_ref().map(|norm| factory.norm(norm)).transpose()?;
        let (shape, max_tokens) = (network.shape.clone(), network.max_tokens());
        let relative_bias = network.relative_bias.as_ref();
        let relative_bias = relative_bias.map(|bias| factory.relative_bias(bias, max_tokens)).transpose()?;
        let layers =
            network.layers.iter().map(|l| factory.layer(l, &network.shape)).collect::<Result<Vec<_>>>()?;
        let slopes = match shape.linear_bias {
            Some(_) => {
                Some(factory.tensor(&network::LinearBias::slopes(shape.heads), (1, shape.heads, 1, 1))?)
            }
            None => None,
        };
        let rotations = match shape.rotary {
            Some(rotary) => {
                Some([factory.rotation(&shape, rotary, false)?, factory.rotation(&shape, rotary, true)?])
            }
            None => None,
        };
        let final_norm = network.final_norm.as_ref().map(|norm| factory.norm(norm)).transpose()?;
        let stage = Stage::new(device.inner()).map_err(|e| device.error(&e))?;
        Ok(CandleEngine {
            device,
            stage,
            dtype,
            shape,
            max_tokens,
            words,
            positions,
            tables,
            norm,
            relative_bias,
            slopes,
            rotations,
            layers,
            final_norm,
            turn: Mutex::default(),
        })
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the tables that the device needs for a batch, such as token ids and positions. Returns the tables, and
    /// the plan that locates each table.
    fn plan(&self, batch: &Batch, pools: &[Pool]) -> (Plan, Tables) {
        let mut tables = Tables::default();
        let plan = Plan {
            inputs: self.inputs(batch, &mut tables),
            layout: self.layout(batch, &mut tables),
            picked: pools.iter().map(|pool| Picked::new(batch, pool, &mut tables)).collect(),
        };
        (plan, tables)
    }

    fn layout(&self, batch: &Batch, tables: &mut Tables) -> Layout {
        #[cfg(feature = "flash-attn")]
        if self.relative_bias.is_none()
            && self.slopes.is_none()
            && !self.shape.causal
            && self.shape.key_heads == self.shape.heads
            && self.layers.iter().all(|layer| layer.window.is_none())
            && flash::supports(self.device.inner(), self.dtype, self.shape.head_size)
        {
            return Layout::Packed(layout::Packed::new(batch, tables));
        }
        Layout::Rows(Rows::new(batch, tables))
    }

    fn inputs(&self, batch: &Batch, tables: &mut Tables) -> Inputs {
        let first = self.shape.first_position as u32;
        let ids = tables.indices(batch.sequences.iter().flat_map(|s| s.ids.iter().copied()));
        let positions = batch.sequences.iter().flat_map(|s| -> Vec<u32> {
            match &s.positions {
                Some(positions) => positions.iter().map(|p| p + first).collect(),
                None => self.shape.positions(&s.ids).map(|p| p as u32).collect(),
            }
        });
        let positions = tables.indices(positions);
        type Column = fn(&Sequence) -> &Option<Vec<u32>>;
        let columns: [(usize, Column); 3] = [(0, |s| &s.types), (1, |s| &s.turns), (2, |s| &s.roles)];
        let columns = columns.map(|(n, column)| {
            self.tables[n].as_ref()?;
            let mut indices = Vec::with_capacity(batch.tokens());
            for s in batch.sequences {
                match column(s) {
                    Some(column) => indices.extend_from_slice(column),
                    None => indices.resize(indices.len() + s.len(), 0),
                }
            }
            Some(tables.indices(indices))
        });
        Inputs { ids, positions, columns, vectors: Replaced::new(batch, tables) }
    }

    /// Returns the hidden states after each layer in `wanted`. The layers must be in ascending order.
    fn states(&self, plan: &Plan, sent: &Sent, wanted: &[usize]) -> candle_core::Result<Vec<Tensor>> {
        let mut x = self.embed(&plan.inputs, sent)?;
        let last = wanted.last().copied().unwrap_or_default();
        let mut states = Vec::with_capacity(wanted.len());
        let angles = self.angles(&plan.inputs, sent)?;
        for n in 0..=last {
            if n > 0 {
                x = self.layer(&self.layers[n - 1], &x, (&plan.layout, angles.as_ref()), sent)?;
            }
            if wanted.contains(&n) {
                states.push(match &self.final_norm {
                    Some(norm) if n == self.layers.len() => norm.forward(&x)?,
                    _ => x.clone(),
                });
            }
        }
        Ok(states)
    }

    fn check(&self, batch: &Batch, wanted: &[usize]) -> Result<()> {
        if let Some(layer) = wanted.iter().find(|layer| **layer > self.layers.len()) {
            return Err(Error::Internal(format!(
                "layer {layer} does not exist; the last one is {}",
                self.layers.len()
            )));
        }
        let words = self.words.dim(0).unwrap_or(0);
        for sequence in batch.sequences {
            if sequence.is_empty() || sequence.len() > self.max_tokens {
                let length = sequence.len();
                return Err(Error::Internal(format!(
                    "a sequence has {length} tokens; at least 1 and at most {} are supported",
                    self.max_tokens
                )));
            }
            if let Some(id) = sequence.ids.iter().find(|id| **id as usize >= words) {
                return Err(Error::data(format!(
                    "token id {id} is out of range: the model has {words} tokens"
                )));
            }
        }
        Ok(())
    }

    fn embed(&self, inputs: &Inputs, sent: &Sent) -> candle_core::Result<Tensor> {
        let pick = |table: &Tensor, indices: &Indices| table.index_select(&sent.indices(indices)?, 0);
        let words = pick(&self.words, &inputs.ids)?;
        let words = match &inputs.vectors {
            Some(replaced) => replaced.replace(&words, sent)?,
            None => words,
        };
        let mut x = match &self.positions {
            Some(table) => (words + pick(table, &inputs.positions)?)?,
            None => words,
        };
        for (table, indices) in self.tables.iter().zip(&inputs.columns) {
            if let (Some(table), Some(indices)) = (table, indices) {
                x = (x + pick(table, indices)?)?;
            }
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

impl Backend for CandleEngine {
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.check(batch, layers)?;
        let (plan, tables) = self.plan(batch, &[]);
        let attempt = || -> candle_core::Result<()> {
            let sent = self.stage.send(tables)?;
            let _turn = self.turn();
            for (layer, states) in layers.iter().zip(self.states(&plan, &sent, layers)?) {
                take(*layer, &states.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
            }
            Ok(())
        };
        attempt().map_err(|e| self.device.error(&e))
    }

    fn pool(&self, batch: &Batch, wanted: &PoolRequest) -> Result<Vec<Vectors>> {
        let layers: Vec<usize> = wanted.layers.iter().map(|(layer, _)| *layer).collect();
        self.check(batch, &layers)?;
        let (plan, tables) = self.plan(batch, wanted.pools);
        let attempt = || -> candle_core::Result<Vec<Vec<f32>>> {
            // Send before locking, so that the transfer can run while another batch is computed.
            let sent = self.stage.send(tables)?;
            let _turn = self.turn();
            let states = self.states(&plan, &sent, &layers)?;
            let mut mixed: Option<Tensor> = None;
            for (states, (_, weight)) in states.into_iter().zip(wanted.layers) {
                let states = states.to_dtype(DType::F32)?.affine(f64::from(*weight), 0.0)?;
                mixed = Some(match mixed {
                    Some(sum) => (sum + states)?,
                    None => states,
                });
            }
            let Some(mixed) = mixed else { return Ok(Vec::new()) };
            let pooled = |(pool, picked): (&Pool, &Picked)| {
                let rows = mixed.index_select(&picked.rows(&sent)?, 0)?;
                let rows = rows.reshape((picked.groups, picked.longest, ()))?;
                let pooled = match pool.reduction {
                    Reduction::Sum => picked.weights(&sent)?.matmul(&rows)?.squeeze(1)?,
                    Reduction::Max => rows.max(1)?,
                };
                pooled.flatten_all()?.to_vec1()
            };
            wanted.pools.iter().zip(&plan.picked).map(pooled).collect()
        };
        let flats = attempt().map_err(|e| self.device.error(&e))?;
        let vectors = |flat| {
            Vectors::from_flat(self.shape.hidden, flat)
                .ok_or_else(|| Error::Internal("pooling returned the wrong number of values".to_owned()))
        };
        flats.into_iter().map(vectors).collect()
    }

    fn hidden(&self) -> usize {
        self.shape.hidden
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

#[cfg(test)]
mod tests;
