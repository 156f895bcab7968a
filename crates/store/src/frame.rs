//! Binary format of the log's frames.
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
//! All numbers are little-endian. Payloads by kind:
//!
//! * Put: id key, text key and content key (16 bytes each), number of turns (u32), the dialogue as canonical JSON. The
//!   JSON keeps the log readable in a text viewer.
//! * Delete: the id key, then the id.
//! * Commit: a [`Commit`] as JSON. Frames take effect only when a commit follows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use turnwise_core::{Error, IdKey, Result, Seq};
use turnwise_corpus::Dialogue;

/// The first bytes of every frame. `repair` searches for them after a damaged frame.
pub const MAGIC: [u8; 4] = *b"TWf1";
/// Size of the header before the payload, in bytes.
pub const HEADER_BYTES: usize = 24;
/// Size in bytes of the keys and the turn count, which precede the JSON in the payload of a put frame.
pub const PUT_PREFIX_BYTES: usize = 52;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Adds a dialogue, or replaces the dialogue with the same id.
    Put = 1,
    Delete = 2,
    /// Commits all frames since the previous commit.
    Commit = 3,
}

/// A frame of the log, in memory or in a mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    pub kind: Kind,
    /// Sequence number of the put or delete. For a commit, the last assigned sequence number.
    pub seq: Seq,
    /// The bytes after the header. Their format depends on `kind`.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses the frame at the start of `bytes`. If there is no valid frame, the error describes the damage.
    pub fn read(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let frame = Frame::read_unverified(bytes)?;
        if checksum(&bytes[..HEADER_BYTES], frame.payload) != u32_at(bytes, 12) {
            return Err("a frame's checksum is wrong");
        }
        Ok(frame)
    }

    /// Parses a frame like [`Frame::read`], but does not verify its checksum.
    pub(crate) fn read_unverified(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err("the data ends inside a frame's header");
        };
        if header[..4] != MAGIC {
            return Err("there is no frame at this position");
        }
        let kind = match header[4] {
            1 => Kind::Put,
            2 => Kind::Delete,
            3 => Kind::Commit,
            _ => return Err("unknown frame kind"),
        };
        let length = u32_at(header, 8) as usize;
        let Some(payload) = rest.get(..length) else { return Err("the data ends inside a frame") };
        if kind == Kind::Put && length < PUT_PREFIX_BYTES || kind == Kind::Delete && length < 16 {
            return Err("a frame is too short for its kind");
        }
        Ok(Frame { kind, seq: Seq(u64_at(header, 16)), payload })
    }

    /// Returns the length of the frame in bytes, including the header.
    pub fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.payload.len()) as u64
    }

    /// For a put or delete frame, returns the key of the dialogue id. For a commit frame, the result is meaningless.
    pub fn id_key(&self) -> IdKey {
        key_at(self.payload, 0)
    }

    pub fn text_key(&self) -> IdKey {
        key_at(self.payload, 16)
    }

    pub fn content_key(&self) -> IdKey {
        key_at(self.payload, 32)
    }

    /// For a put frame, returns the number of turns of the dialogue; 0 if the payload is too short.
    pub fn turns(&self) -> u32 {
        self.payload.get(48..52).map_or(0, |b| u32_at(b, 0))
    }

    /// For a put frame, returns the dialogue as JSON; empty if the payload is too short.
    pub fn json(&self) -> &'a [u8] {
        self.payload.get(PUT_PREFIX_BYTES..).unwrap_or_default()
    }

    /// For a delete frame, returns the id of the deleted dialogue, or `None` if the id is not valid UTF-8.
    pub fn deleted_id(&self) -> Option<&'a str> {
        std::str::from_utf8(self.payload.get(16..)?).ok()
    }

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

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

pub(crate) fn key_at(bytes: &[u8], at: usize) -> IdKey {
    bytes.get(at..at + 16).and_then(|b| b.try_into().ok()).map(IdKey).unwrap_or_default()
}

/// Appends a frame to a buffer. The payload is the concatenation of the parts in `payload`. Returns a data error if the
/// payload is larger than 4 GiB.
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

pub fn write_commit(buffer: &mut Vec<u8>, seq: Seq, commit: &Commit) -> Result<()> {
    let payload = serde_json::to_vec(commit).map_err(|e| Error::Internal(e.to_string()))?;
    write(buffer, Kind::Commit, seq, &[&payload])
}

/// A dialogue that has been serialized and hashed, so that it can be written to the log. Preparing a dialogue is
/// expensive but needs no lock, so dialogues can be prepared in parallel.
#[derive(Debug)]
pub struct Prepared {
    /// Hash of the dialogue id.
    pub id: IdKey,
    /// Hash of the texts and roles of all turns. Used to find duplicates.
    pub text: IdKey,
    /// Hash of `json`.
    pub content: IdKey,
    /// Number of turns.
    pub turns: u32,
    /// The dialogue as canonical JSON.
    pub json: Vec<u8>,
}

impl Prepared {
    /// Serializes and hashes a validated dialogue.
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

    /// Returns the part of a put frame's payload that precedes the JSON: the keys and the number of turns.
    pub fn prefix(&self) -> [u8; PUT_PREFIX_BYTES] {
        let mut prefix = [0; PUT_PREFIX_BYTES];
        prefix[..16].copy_from_slice(&self.id.0);
        prefix[16..32].copy_from_slice(&self.text.0);
        prefix[32..48].copy_from_slice(&self.content.0);
        prefix[48..].copy_from_slice(&self.turns.to_le_bytes());
        prefix
    }
}

/// Numbers of dialogues and turns in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Number of dialogues.
    pub dialogues: u64,
    /// Number of turns in these dialogues.
    pub turns: u64,
}

impl Totals {
    /// Adds a dialogue with `turns` turns to the counts.
    pub(crate) fn add(&mut self, turns: u32) {
        self.dialogues += 1;
        self.turns += u64::from(turns);
    }

    /// Subtracts a deleted or replaced dialogue with `turns` turns.
    pub(crate) fn subtract(&mut self, turns: u32) {
        self.dialogues -= 1;
        self.turns -= u64::from(turns);
    }
}

/// Payload of a commit frame, which ends a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Commit {
    /// Batch number, starting at 1.
    pub batch: u64,
    /// Numbers of dialogues and turns in the index after the batch.
    pub totals: Totals,
    /// Progress of a running ingest, for resuming after a crash. `None` if no ingest is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestMark>,
    /// Number of records rejected so far, by the fingerprint of the ingest ([`IngestMark::fingerprint`]). Contains only
    /// the counts that changed in this batch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<String, u64>,
}

/// Progress of an ingest, stored in each commit of the ingest. An interrupted ingest resumes from the last commit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IngestMark {
    /// Hash of the inputs and options, which identifies the ingest.
    pub fingerprint: String,
    /// Number of records read from the inputs up to this batch, including rejected records.
    pub records: u64,
    /// Length in bytes of the file of rejected records after this batch.
    pub rejects_bytes: u64,
    /// Number of records by outcome (an `ingest::Tally`), as JSON.
    pub tally: serde_json::Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_every_flipped_bit_is_detected() {
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
