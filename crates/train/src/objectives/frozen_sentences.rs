//! Sentence vectors of a network that is not trained.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use candle_core::{Device, Tensor};

use crate::{
    device,
    model::cache::{Cache, Key, key},
};
use turnwise_core::error::Result;
use turnwise_encoder::{
    DeviceChoice, Network, Precision,
    selector::{Engine, SentenceSettings, Utterance},
};

/// Computes sentence vectors with a fixed network, without gradients, and caches them.
pub struct FrozenSentences {
    engine: Engine,
    settings: SentenceSettings,
    cache: Mutex<Cache>,
}

impl FrozenSentences {
    /// Loads the network. The cache holds at most `memory` bytes.
    pub fn new(network: &Network, settings: SentenceSettings, memory: usize) -> Result<Self> {
        let engine = Engine::new(network, DeviceChoice::Cpu, Some(Precision::F32))?;
        Ok(FrozenSentences { engine, settings, cache: Mutex::new(Cache::new(memory)) })
    }

    /// Returns the vectors of turns, one row each.
    pub(super) fn vectors(&self, turns: &[Utterance]) -> Result<Tensor> {
        let keys: Vec<Key> = turns.iter().map(|turn| key(&turn.sequence)).collect();
        let mut known: HashMap<Key, Box<[f32]>> = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            keys.iter().filter_map(|key| Some((*key, cache.get(key)?.into()))).collect()
        };
        let mut new = HashSet::new();
        let is_missing = |n: &usize| !known.contains_key(&keys[*n]) && new.insert(keys[*n]);
        let missing: Vec<usize> = (0..turns.len()).filter(is_missing).collect();
        let texts: Vec<Utterance> = missing.iter().map(|n| turns[*n].clone()).collect();
        let vectors = self.engine.sentence_vectors(&self.settings, &texts)?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        for (n, vector) in missing.into_iter().zip(vectors.rows()) {
            cache.insert(keys[n], vector.into());
            known.insert(keys[n], vector.into());
        }
        let all: Vec<f32> = keys.iter().flat_map(|key| known[key].iter().copied()).collect();
        let width = all.len() / turns.len().max(1);
        Tensor::from_vec(all, (turns.len(), width), &Device::Cpu).map_err(device::error)
    }
}
