//! The frames of the log: what is appended, byte by byte.
//!
//! ```text
//! 0  magic "TWf1"
//! 4  kind        1 put, 2 delete, 3 commit
//! 5  zero × 3
//! 8  length of the payload, u32
//! 12 CRC-32 of bytes 4..12, 16..24 and the payload
//! 16 sequence number, u64
//! 24 payload
//! ```
//! All numbers are little-endian. A put's payload is the id key, the text key and the content key (16 bytes each), the
//! number of turns (u32), then the dialogue as canonical JSON: a log can be read with a text viewer. A delete's payload
//! is the id key, then the id. A commit's payload is a [`Commit`] as JSON; frames count only once a commit follows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, Result},
    ids::{IdKey, Seq},
};
use turnwise_corpus::Dialogue;

/// The first bytes of every frame; what `repair` looks for behind damage.
pub const MAGIC: [u8; 4] = *b"TWf1";
/// Bytes in front of the payload.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a put's payload in front of the JSON.
pub const PUT_PREFIX_BYTES: usize = 52;

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A dialogue, new or in place of the one with the same id.
    Put = 1,
    /// A dialogue is gone.
    Delete = 2,
    /// Everything before this counts.
    Commit = 3,
}

/// A frame in memory or in a mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// What it says.
    pub kind: Kind,
    /// Its sequence number; a commit carries that of the last frame before it.
    pub seq: Seq,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of `bytes`. The error says what is wrong with it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err("it ends within a frame's header");
        };
        if header[..4] != MAGIC {
            return Err("no frame begins here");
        }
        let kind = match header[4] {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Commit,
            _ => return Err("the frame's kind is unknown"),
        };
        let length = u32_at(header, 8) as usize;
        let Some(payload) = rest.get(..length) else { return Err("it ends within a frame") };
        if checksum(header, payload) != u32_at(header, 12) {
            return Err("a frame's checksum is wrong");
        }
        if kind == Kind::Put && length < PUT_PREFIX_BYTES || kind == Kind::Delete && length < 16 {
            return Err("a frame is too short for its kind");
        }
        Ok(Frame { kind, seq: Seq(u64_at(header, 16)), payload })
    }

    /// Its whole length.
    pub fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.payload.len()) as u64
    }

    /// The id key of a put or a delete.
    pub fn id_key(&self) -> IdKey {
        key_at(self.payload, 0)
    }

    /// The text key of a put.
    pub fn text_key(&self) -> IdKey {
        key_at(self.payload, 16)
    }

    /// The content key of a put.
    pub fn content_key(&self) -> IdKey {
        key_at(self.payload, 32)
    }

    /// The number of turns of a put.
    pub fn turns(&self) -> u32 {
        self.payload.get(48..52).map_or(0, |b| u32_at(b, 0))
    }

    /// The JSON of a put.
    pub fn json(&self) -> &'a [u8] {
        self.payload.get(PUT_PREFIX_BYTES..).unwrap_or_default()
    }

    /// The id of a delete.
    pub fn deleted_id(&self) -> Option<&'a str> {
        std::str::from_utf8(self.payload.get(16..)?).ok()
    }

    /// The commit's content.
    pub fn commit(&self) -> Result<Commit, serde_json::Error> {
        serde_json::from_slice(self.payload)
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[4..12]);
    crc.update(&header[16..24]);
    crc.update(payload);
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn key_at(bytes: &[u8], at: usize) -> IdKey {
    bytes.get(at..at + 16).and_then(|b| b.try_into().ok()).map(IdKey).unwrap_or_default()
}

/// Appends a frame to a buffer.
pub fn write(buffer: &mut Vec<u8>, kind: Kind, seq: Seq, payload: &[&[u8]]) -> Result<()> {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(|_| Error::data("a dialogue is larger than 4 GiB"))?;
    let start = buffer.len();
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&[kind as u8, 0, 0, 0]);
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&[0; 4]);
    buffer.extend_from_slice(&seq.0.to_le_bytes());
    payload.iter().for_each(|part| buffer.extend_from_slice(part));
    let (header, body) = buffer[start..].split_at(HEADER_BYTES);
    let crc = checksum(header, body);
    buffer[start + 12..start + 16].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// A dialogue made ready for the log: serialised and hashed. Costly, needs no lock, done on all cores.
#[derive(Debug)]
pub struct Prepared {
    /// The key of its id.
    pub id: IdKey,
    /// The key of what is said in it.
    pub text: IdKey,
    /// The key of its whole content.
    pub content: IdKey,
    /// The number of its turns.
    pub turns: u32,
    /// The canonical JSON.
    pub json: Vec<u8>,
}

impl Prepared {
    /// Serialises and hashes a dialogue that was checked.
    pub fn new(dialogue: &Dialogue) -> Result<Self> {
        let json = serde_json::to_vec(dialogue).map_err(|e| Error::Internal(e.to_string()))?;
        Ok(Prepared {
            id: dialogue.id.key(),
            text: dialogue.text_key(),
            content: IdKey::of_bytes(&json),
            turns: dialogue.turns.len() as u32,
            json,
        })
    }

    /// The prefix of its payload.
    pub fn prefix(&self) -> [u8; PUT_PREFIX_BYTES] {
        let mut prefix = [0; PUT_PREFIX_BYTES];
        prefix[..16].copy_from_slice(&self.id.0);
        prefix[16..32].copy_from_slice(&self.text.0);
        prefix[32..48].copy_from_slice(&self.content.0);
        prefix[48..].copy_from_slice(&self.turns.to_le_bytes());
        prefix
    }
}

/// The totals of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Dialogues that are there.
    pub dialogues: u64,
    /// Their turns.
    pub turns: u64,
}

/// The end of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Commit {
    /// Batches are counted from 1.
    pub batch: u64,
    /// The totals after it.
    pub totals: Totals,
    /// Where an ingest that is under way stands, so that it can go on after a kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestMark>,
    /// Records rejected so far, by ingest (see [`IngestMark::fingerprint`]), where this batch changes that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<String, u64>,
}

/// How far an ingest has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IngestMark {
    /// Tells this ingest from others: its inputs and options.
    pub fingerprint: String,
    /// Records taken from the inputs, good and bad, up to this batch.
    pub records: u64,
    /// The length of the rejects file at that point.
    pub rejects_bytes: u64,
    /// What became of them: the ingest's own tally, kept here as JSON.
    pub tally: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_and_every_flipped_bit_is_noticed() {
        let mut buffer = Vec::new();
        write(&mut buffer, Kind::Delete, Seq(7), &[&[9; 16], b"id"]).unwrap();
        let frame = Frame::read(&buffer).unwrap();
        assert_eq!((frame.kind, frame.seq, frame.payload.len()), (Kind::Delete, Seq(7), 18));
        for bit in 0..buffer.len() * 8 {
            let mut bad = buffer.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::read(&bad).is_err(), "bit {bit}");
        }
        for end in 0..buffer.len() {
            assert!(Frame::read(&buffer[..end]).is_err(), "cut at {end}");
        }
    }
}
