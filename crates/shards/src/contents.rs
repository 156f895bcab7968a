//! Keys of the rows in a shard. They show whether the input of a shard has changed.

use std::collections::HashSet;

use turnwise_core::ids::IdKey;
use turnwise_corpus::Dialogue;
use turnwise_index::vectors::{Kind, dialogue_key, utterance_key};

/// Id of a row in a data file, such as `utterances/5f3a…`.
pub(crate) fn row_id(kind: Kind, key: &IdKey) -> String {
    format!("{}/{key:?}", kind.name())
}

/// Parses such an id.
pub(super) fn parse_row_id(id: &str) -> Option<(Kind, IdKey)> {
    let (kind, digits) = id.split_once('/')?;
    let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
    let digits = digits.as_bytes();
    let mut key = [0; 16];
    if digits.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some((kind, IdKey(key)))
}

/// Keys of the rows of one kind that a dialogue has.
pub(crate) fn keys(kind: Kind, dialogue: &Dialogue) -> Vec<IdKey> {
    match kind {
        Kind::Utterances => dialogue.turns.iter().map(|turn| utterance_key(&turn.text)).collect(),
        Kind::Dialogues => vec![dialogue_key(dialogue)],
    }
}

/// Set of the keys in a shard.
#[derive(Default)]
pub(crate) struct Contents {
    kinds: [HashSet<IdKey>; 2],
}

impl Contents {
    /// Adds a key. Returns whether it is new.
    pub(crate) fn add(&mut self, kind: Kind, key: IdKey) -> bool {
        self.kinds[kind as usize].insert(key)
    }

    /// Number of keys of a kind.
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].len() as u64
    }

    /// Order-independent hash of all keys.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for kind in Kind::ALL {
            let mut keys: Vec<&IdKey> = self.kinds[kind as usize].iter().collect();
            keys.sort_unstable();
            hasher.update(kind.name().as_bytes()).update(&(keys.len() as u64).to_le_bytes());
            for key in keys {
                hasher.update(&key.0);
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_kind_and_key() {
        let key = IdKey::of("hello");
        for kind in Kind::ALL {
            assert_eq!(parse_row_id(&row_id(kind, &key)), Some((kind, key)));
        }
        for wrong in
            ["", "utterances", "utterances/12", "words/00000000000000000000000000000000", "dialogue#1"]
        {
            assert_eq!(parse_row_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order() {
        let of = |keys: &[(Kind, &str)]| {
            let mut contents = Contents::default();
            for (kind, text) in keys {
                contents.add(*kind, IdKey::of(text));
            }
            contents.digest()
        };
        let [u, d] = Kind::ALL;
        assert_eq!(of(&[(u, "a"), (u, "b"), (d, "a")]), of(&[(d, "a"), (u, "b"), (u, "a"), (u, "b")]));
        assert_ne!(of(&[(u, "a"), (u, "b")]), of(&[(u, "a"), (d, "b")]));
        assert_ne!(of(&[(u, "a")]), of(&[]));
    }
}
