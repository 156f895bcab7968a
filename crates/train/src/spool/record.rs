//! What is held, as bytes.

use crate::data::Said;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// Something that can be written and read back.
pub trait Record: Sized {
    /// As bytes.
    fn to_bytes(&self) -> Result<Vec<u8>>;

    /// Of bytes that it was once.
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

/// Numbers of 32 bits: of each turn its speaker, its part, how many tokens it has, and these.
impl Record for Vec<Said> {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let numbers = self.iter().map(|said| 3 + said.ids.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(4 * numbers);
        for said in self {
            let head = [said.speaker, said.part, said.ids.len() as u32];
            head.iter().chain(&said.ids).for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        Ok(bytes)
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number));
        let mut turns = Vec::new();
        while let Some(speaker) = numbers.next() {
            let (Some(part), Some(length)) = (numbers.next(), numbers.next()) else { return Err(cut()) };
            let ids: Vec<u32> = numbers.by_ref().take(length as usize).collect();
            if ids.len() != length as usize {
                return Err(cut());
            }
            turns.push(Said { speaker, part, ids });
        }
        Ok(turns)
    }
}

fn cut() -> Error {
    Error::Internal("a dialogue as tokens that ends within a turn".to_owned())
}
