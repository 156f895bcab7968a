//! Frozen lower layers. They run on the inference engine without gradients, and their outputs are cached for each
//! sequence.

use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::cache::{Cache, key};
use crate::model::Packed;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{
    Batch, Network, Precision, Sequence,
    cpu::{CpuEngine, SimdChoice},
};

/// Maximum number of tokens that the frozen layers process together. A longer sequence is processed alone.
const BATCH_TOKENS: usize = 256;

/// The embeddings and the lower layers of a network, which are not trained.
pub(super) struct Frozen {
    engine: CpuEngine,
    layer: usize,
    width: usize,
    cache: Mutex<Cache>,
}

impl Frozen {
    /// Freezes the embeddings and the lowest `layer` layers of a network. The cache holds at most `memory` bytes.
    pub(super) fn new(network: &Network, layer: usize, memory: usize) -> Result<Self> {
        let mut bottom = network.clone();
        bottom.layers.truncate(layer);
        let engine = CpuEngine::new(&bottom, Precision::F32, SimdChoice::Auto)?;
        let cache = Mutex::new(Cache::new(memory));
        Ok(Frozen { engine, layer, width: network.shape.hidden, cache })
    }

    /// Writes the hidden states of a batch to `states`, one row per token.
    pub(super) fn states(&self, packed: &Packed, states: &mut [f32]) -> Result<()> {
        let keys: Vec<[u8; 16]> = packed.sequences.iter().map(key).collect();
        let mut missing: Vec<(usize, &mut [f32])> = Vec::new();
        {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rest = states;
            for (n, length) in packed.lengths.iter().enumerate() {
                let (rows, more) = rest.split_at_mut(length * self.width);
                rest = more;
                match cache.get(&keys[n]) {
                    Some(known) => rows.copy_from_slice(known),
                    None => missing.push((n, rows)),
                }
            }
        }
        let groups = by_tokens(missing, |(n, _)| packed.lengths[*n]);
        let computed = groups
            .into_par_iter()
            .map(|group| self.compute(packed, group))
            .collect::<Result<Vec<Vec<(usize, Box<[f32]>)>>>>()?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for (n, states) in computed.into_iter().flatten() {
            cache.insert(keys[n], states);
        }
        Ok(())
    }

    fn compute(&self, packed: &Packed, group: Vec<(usize, &mut [f32])>) -> Result<Vec<(usize, Box<[f32]>)>> {
        let sequences: Vec<&Sequence> = group.iter().map(|(n, _)| &packed.sequences[*n]).collect();
        let mut made = Vec::new();
        let mut group = Some(group);
        self.engine.run(&Batch::new(&sequences), &[self.layer], &mut |_, states| {
            let mut states = states;
            for (n, rows) in group.take().into_iter().flatten() {
                let (own, more) = states.split_at(rows.len());
                rows.copy_from_slice(own);
                made.push((n, own.into()));
                states = more;
            }
        })?;
        match made.is_empty() {
            true => Err(Error::Internal("the frozen layers returned no states".to_owned())),
            false => Ok(made),
        }
    }
}

/// Groups items into batches of at most [`BATCH_TOKENS`] tokens. A longer item is a batch of its own.
fn by_tokens<T>(items: Vec<T>, tokens: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for item in items {
        let size = tokens(&item);
        match groups.last_mut() {
            Some(group) if size <= room => {
                room -= size;
                group.push(item);
            }
            _ => {
                room = BATCH_TOKENS.saturating_sub(size);
                groups.push(vec![item]);
            }
        }
    }
    groups
}
