//! TensorBoard event files.
//!
//! The file is a sequence of records with checksums. A record is a protocol buffer message with at most four fields,
//! which this module encodes without a library.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use turnwise_core::{
    error::{IoContext, Result},
    files,
};

/// A value of a run at one step.
pub(super) struct Scalar {
    /// Tag with a group prefix, for example `train/loss`.
    pub(super) name: String,
    pub(super) step: u64,
    pub(super) value: f64,
}

/// Writes all scalars of a run to an event file in a folder. Replaces an earlier file. Returns the path of the file.
pub(super) fn write(folder: &Path, scalars: &[Scalar]) -> Result<PathBuf> {
    fs::create_dir_all(folder).at("create", folder)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let time = field(1, DOUBLE, &seconds.to_le_bytes());
    let mut bytes = Vec::new();
    record(&mut bytes, &[&time[..], &text(3, b"brain.Event:2")].concat());
    for Scalar { name, step, value } in scalars {
        let value = [text(1, name.as_bytes()), field(2, FLOAT, &(*value as f32).to_le_bytes())].concat();
        let summary = text(5, &text(1, &value));
        record(&mut bytes, &[&time[..], &field(2, VARINT, &varint(*step)), &summary].concat());
    }
    let path = folder.join("events.out.tfevents.turnwise");
    files::replace(&path, &bytes)?;
    Ok(path)
}

/// Appends a record: the length of the message, a checksum of the length, the message, and a checksum of the message.
fn record(bytes: &mut Vec<u8>, message: &[u8]) {
    let length = (message.len() as u64).to_le_bytes();
    bytes.extend(length);
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(message);
    bytes.extend(masked(message).to_le_bytes());
}

// Wire types of protocol buffers.
const VARINT: u8 = 0;
const DOUBLE: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;
const FLOAT: u8 = 5;

/// Encodes a field of a protocol buffer: its number with the wire type, and its bytes.
fn field(number: u8, wire_type: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | wire_type], bytes].concat()
}

/// Encodes a field that holds a text or a nested message.
fn text(number: u8, bytes: &[u8]) -> Vec<u8> {
    field(number, LENGTH_DELIMITED, &[&varint(bytes.len() as u64), bytes].concat())
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Returns the checksum of the record format: a CRC-32C that is rotated and added to a constant.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_agree_with_the_rfc() {
        // Test vectors of RFC 3720, section B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(varint(300), [0xac, 0x02]);
    }

    #[test]
    fn the_file_contains_valid_records() {
        let folder = tempfile::tempdir().unwrap();
        let scalar = |step| Scalar { name: "train/loss".to_owned(), step, value: 1.5 };
        let path = write(folder.path(), &[scalar(1), scalar(300)]).unwrap();
        let bytes = fs::read(path).unwrap();
        let (mut at, mut messages) = (0, Vec::new());
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            assert_eq!(masked(&bytes[at..at + 8]).to_le_bytes(), bytes[at + 8..at + 12]);
            let message = &bytes[at + 12..at + 12 + length];
            assert_eq!(masked(message).to_le_bytes(), bytes[at + 12 + length..at + 16 + length]);
            messages.push(message.to_vec());
            at += 16 + length;
        }
        assert_eq!(messages.len(), 3);
        assert!(messages[0].ends_with(b"brain.Event:2"));
        assert!(messages[2].windows(10).any(|w| w == b"train/loss"));
        assert!(
            messages[2].ends_with(&1.5f32.to_le_bytes())
                && messages[2][9..12] == [2 << 3 | VARINT, 0xac, 0x02]
        );
    }
}
