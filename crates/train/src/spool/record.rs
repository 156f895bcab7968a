//! Serialization of records.

use crate::data::TurnTokens;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// A type that can be stored in a [`DiskVec`](super::DiskVec).
pub trait Record: Sized {
    fn to_bytes(&self) -> Result<Vec<u8>>;

    /// Deserializes a record. Returns an error if the bytes are not a valid record.
    fn of_bytes(bytes: &[u8]) -> Result<Self>;
}

impl Record for Dialogue {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::Internal(e.to_string()))
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::Internal(e.to_string()))
    }
}

/// Format: little-endian u32 numbers. A turn is its speaker, its role, its number of tokens and its token ids.
impl Record for Vec<TurnTokens> {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let numbers = self.iter().map(|turn| 3 + turn.ids.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(4 * numbers);
        for turn in self {
            let head = [turn.speaker, turn.role, turn.ids.len() as u32];
            head.iter().chain(&turn.ids).for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        Ok(bytes)
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number));
        let mut turns = Vec::new();
        while let Some(speaker) = numbers.next() {
            let (Some(role), Some(length)) = (numbers.next(), numbers.next()) else {
                return Err(truncated());
            };
            let ids: Vec<u32> = numbers.by_ref().take(length as usize).collect();
            if ids.len() != length as usize {
                return Err(truncated());
            }
            turns.push(TurnTokens { speaker, role, ids });
        }
        Ok(turns)
    }
}

fn truncated() -> Error {
    Error::Internal("a tokenized dialogue is truncated".to_owned())
}
