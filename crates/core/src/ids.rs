//! Typed identifiers: dialogue ids, turn numbers, utterance ids, id keys and sequence numbers.

use std::{borrow::Borrow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Stable identifier of a dialogue, unique within an index.
///
/// An id is not blank, has at most 512 bytes and contains no control characters. `#` is allowed, because an utterance
/// id `DIALOGUE#TURN` is split at its last `#`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct DialogueId(#[schemars(length(min = 1, max = 512))] String);

/// Maximum length of a dialogue id, in bytes.
pub const MAX_ID_BYTES: usize = 512;

impl DialogueId {
    /// Creates an id. Returns a data error if the id is blank, is too long or contains a control character.
    pub fn new(id: impl Into<String>) -> Result<Self> {
        let id = id.into();
        let wrong = if id.trim().is_empty() {
            Some("is empty")
        } else if id.len() > MAX_ID_BYTES {
            Some("is longer than 512 bytes")
        } else if id.chars().any(char::is_control) {
            Some("contains a control character")
        } else {
            None
        };
        match wrong {
            None => Ok(DialogueId(id)),
            Some(why) => Err(Error::data(format!("the dialogue id {:?} {why}", shorten(&id)))),
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the 128-bit key of this id. The tables of an index use this key instead of the text.
    pub fn key(&self) -> IdKey {
        IdKey::of(&self.0)
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl<'de> Deserialize<'de> for DialogueId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DialogueId::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for DialogueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for DialogueId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Number of a turn within its dialogue, starting at 1.
///
/// Numbers are ascending and never change. There can be gaps, because merged turns become one turn with the number of
/// the first turn.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct TurnNo(pub u32);

impl fmt::Display for TurnNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifier of an utterance, written as `DIALOGUE#TURN`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtteranceId {
    /// Id of the dialogue.
    pub dialogue: DialogueId,
    /// Number of the turn in the dialogue.
    pub turn: TurnNo,
}

impl fmt::Display for UtteranceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.dialogue, self.turn)
    }
}

impl FromStr for UtteranceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::input(format!("`{text}` is not an utterance id"))
                .with_hint("an utterance id is DIALOGUE#TURN, for example deliveries-001#3")
        };
        let (dialogue, turn) = text.rsplit_once('#').ok_or_else(wrong)?;
        let turn = turn.parse().map_err(|_| wrong())?;
        Ok(UtteranceId { dialogue: DialogueId::new(dialogue)?, turn: TurnNo(turn) })
    }
}

/// First 128 bits of a BLAKE3 hash. An index uses it as a fixed-width key for ids, texts and records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IdKey(pub [u8; 16]);

impl IdKey {
    /// Returns the key of a text.
    pub fn of(text: &str) -> Self {
        IdKey::of_bytes(text.as_bytes())
    }

    /// Returns the key of a byte string.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        IdKey::from_hash(&blake3::hash(bytes))
    }

    /// Returns the first 128 bits of a 256-bit hash as a key.
    pub fn from_hash(hash: &blake3::Hash) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&hash.as_bytes()[..16]);
        IdKey(key)
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Sequence number of a record in ingestion order. Numbers start at 1 and are never reused in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Returns the next sequence number.
    #[must_use]
    pub fn next(self) -> Self {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utterance_ids_split_at_the_last_hash() {
        let id: UtteranceId = "slack#general#12".parse().unwrap();
        assert_eq!(id.dialogue.as_str(), "slack#general");
        assert_eq!(id.turn, TurnNo(12));
        assert_eq!(id.to_string(), "slack#general#12");
        assert!("no-turn".parse::<UtteranceId>().is_err());
        assert!("d#x".parse::<UtteranceId>().is_err());
    }

    #[test]
    fn invalid_ids_are_rejected() {
        for bad in ["", "  ", "a\nb", &"x".repeat(513)] {
            assert!(DialogueId::new(bad).is_err(), "{bad:?}");
        }
        assert!(DialogueId::new("订单-7 é#").is_ok());
    }
}
