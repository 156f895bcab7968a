//! Cache of the outputs of layers that are not trained.

use std::collections::HashMap;

use turnwise_encoder::Sequence;

/// Maximum size of a cache, in bytes.
pub(crate) const CACHE_BYTES: usize = 1 << 30;

/// Hash of a sequence.
pub(crate) type Key = [u8; 16];

/// Cache of hidden states or vectors of sequences. It has a maximum size; what does not fit is computed again.
pub(crate) struct Cache {
    known: HashMap<Key, Box<[f32]>>,
    /// Remaining capacity, in f32 elements.
    remaining: usize,
}

impl Cache {
    /// Creates an empty cache that holds at most `memory` bytes.
    pub(crate) fn new(memory: usize) -> Self {
        Cache { known: HashMap::new(), remaining: memory / size_of::<f32>() }
    }

    /// Returns the output for a sequence, if the cache has it.
    pub(crate) fn get(&self, key: &Key) -> Option<&[f32]> {
        self.known.get(key).map(AsRef::as_ref)
    }

    /// Adds the output for a sequence if it fits and is new.
    pub(crate) fn insert(&mut self, key: Key, output: Box<[f32]>) {
        if output.len() <= self.remaining && !self.known.contains_key(&key) {
            self.remaining -= output.len();
            self.known.insert(key, output);
        }
    }
}

/// Returns the key of a sequence: a hash of everything that determines its hidden states.
pub(crate) fn key(sequence: &Sequence) -> Key {
    let mut hasher = blake3::Hasher::new();
    let Sequence { ids, types, positions, turns, roles, vectors } = sequence;
    for column in [&Some(ids), &types.as_ref(), &positions.as_ref(), &turns.as_ref(), &roles.as_ref()] {
        match column {
            None => hasher.update(&u64::MAX.to_le_bytes()),
            Some(numbers) => {
                hasher.update(&(numbers.len() as u64).to_le_bytes());
                numbers.iter().for_each(|n| {
                    hasher.update(&n.to_le_bytes());
                });
                &mut hasher
            }
        };
    }
    if let Some(vectors) = vectors {
        for token in &vectors.tokens {
            hasher.update(&token.to_le_bytes());
        }
        for element in vectors.elements.iter() {
            hasher.update(&element.to_le_bytes());
        }
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}
