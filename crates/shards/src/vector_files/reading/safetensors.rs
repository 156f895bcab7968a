//! Reads rows of a safetensors file. Vectors and ids are separate tensors and are read in parallel streams.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use serde::Deserialize;

use super::{Row, other};
use turnwise_core::error::{IoContext, Result};

/// Upper limit for the header size; headers written by turnwise are shorter.
const MAX_HEADER_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
struct Header {
    embeddings: Tensor,
    ids: Tensor,
}

#[derive(Deserialize)]
struct Tensor {
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

pub(super) fn each(path: &Path, row: Row<'_>) -> Result<()> {
    let mut length = [0; 8];
    let mut rows = BufReader::with_capacity(1 << 18, File::open(path).at("open", path)?);
    rows.read_exact(&mut length).at("read", path)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(other(path, "its header is too long"));
    }
    let mut header = vec![0; length as usize];
    rows.read_exact(&mut header).at("read", path)?;
    let header: Header = serde_json::from_slice(&header).map_err(|e| other(path, e))?;
    let [count, dim] = header.embeddings.shape[..] else {
        return Err(other(path, "it has different tensors"));
    };
    let [ids_from, ids_to] = header.ids.data_offsets;
    let mut ids = File::open(path).at("open", path)?;
    ids.seek(SeekFrom::Start(8 + length + ids_from)).at("read", path)?;
    let mut ids = BufReader::new(ids.take(ids_to.saturating_sub(ids_from)));
    let mut bytes = vec![0; dim as usize * 4];
    let (mut id, mut vector) = (String::new(), Vec::with_capacity(dim as usize));
    for _ in 0..count {
        rows.read_exact(&mut bytes).at("read", path)?;
        vector.clear();
        vector.extend(bytes.chunks_exact(4).map(|b| b.try_into().map_or(f32::NAN, f32::from_le_bytes)));
        id.clear();
        ids.read_line(&mut id).at("read", path)?;
        row(id.trim_end_matches('\n'), &vector)?;
    }
    Ok(())
}
