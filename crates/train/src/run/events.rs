//! TensorBoard event files.
//!
//! A record has a length, a checksum, a message and a second checksum. The messages are protocol buffers with at most
//! four fields, which this module encodes without a library.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use turnwise_core::{
    error::{IoContext, Result},
    files,
};

/// A value of a run at one step, for TensorBoard.
#[derive(Debug, Clone, PartialEq)]
pub struct Scalar {
    /// Tag with a group prefix, for example `train/loss`.
    pub name: String,
    /// Number of steps taken.
    pub step: u64,
    /// Value of the scalar at this step.
    pub value: f64,
}

/// Writes all scalars of a run to an event file in a folder, replacing an earlier one. Returns the path of the file.
pub fn write(folder: &Path, scalars: &[Scalar]) -> Result<PathBuf> {
    fs::create_dir_all(folder).at("create", folder)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let mut bytes = Vec::new();
    record(&mut bytes, &[double(1, seconds), text(3, b"brain.Event:2")].concat());
    for Scalar { name, step, value } in scalars {
        let value = [text(1, name.as_bytes()), float(2, *value as f32)].concat();
        let summary = text(1, &value);
        record(&mut bytes, &[double(1, seconds), number(2, *step), text(5, &summary)].concat());
    }
    let path = folder.join("events.out.tfevents.turnwise");
    files::replace(&path, &bytes)?;
    Ok(path)
}

fn record(bytes: &mut Vec<u8>, message: &[u8]) {
    let length = (message.len() as u64).to_le_bytes();
    bytes.extend(length);
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(message);
    bytes.extend(masked(message).to_le_bytes());
}

fn key(field: u8, kind: u8) -> u8 {
    field << 3 | kind
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

fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![key(field, 0)], varint(value)].concat()
}

fn double(field: u8, value: f64) -> Vec<u8> {
    [&[key(field, 1)][..], &value.to_le_bytes()].concat()
}

fn float(field: u8, value: f32) -> Vec<u8> {
    [&[key(field, 5)][..], &value.to_le_bytes()].concat()
}

fn text(field: u8, bytes: &[u8]) -> Vec<u8> {
    [&[key(field, 2)][..], &varint(bytes.len() as u64), bytes].concat()
}

/// Checksum of the record format: masked CRC-32C (rotated, plus a constant).
fn masked(bytes: &[u8]) -> u32 {
    let crc = crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
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
        // RFC 3720, B.4.
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
            messages[2].ends_with(&1.5f32.to_le_bytes()) && messages[2][9..12] == [key(2, 0), 0xac, 0x02]
        );
    }
}
