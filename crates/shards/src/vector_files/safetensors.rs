//! safetensors files with two tensors: `embeddings` (f32, rows × dimensions) and `ids` (u8, UTF-8 text with a line feed
//! between ids). The file metadata describes the encoder.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use serde::Deserialize;
use serde_json::json;

use super::{PendingFile, RowCallback, VectorFileWriter, bytes_of, foreign_file};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_encoder::Vectors;

pub(super) struct Safetensors {
    dim: usize,
    rows: u64,
    about: BTreeMap<String, String>,
    header_bytes: usize,
    file: PendingFile,
    /// Temporary file for the ids. `finish` appends the ids to the vectors.
    ids: PendingFile,
    ids_bytes: u64,
}

impl Safetensors {
    pub(super) fn create(path: &Path, dim: usize, about: &BTreeMap<String, String>) -> Result<Self> {
        let mut file = PendingFile::create(path)?;
        // Reserve space for a header with the longest possible numbers. The format allows padding the header with
        // spaces.
        let longest = header(u64::MAX, dim, u64::MAX, u64::MAX, about)?.len();
        let header_bytes = (8 + longest).next_multiple_of(64);
        file.write(&vec![b' '; header_bytes])?;
        let mut ids = path.as_os_str().to_owned();
        ids.push(".ids");
        let ids = PendingFile::create(Path::new(&ids))?;
        Ok(Safetensors { dim, rows: 0, about: about.clone(), header_bytes, file, ids, ids_bytes: 0 })
    }
}

fn header(
    rows: u64,
    dim: usize,
    vectors_end: u64,
    ids_bytes: u64,
    about: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let header = json!({
        "__metadata__": about,
        "embeddings": {"dtype": "F32", "shape": [rows, dim], "data_offsets": [0, vectors_end]},
        "ids": {
            "dtype": "U8",
            "shape": [ids_bytes],
            "data_offsets": [vectors_end, vectors_end.saturating_add(ids_bytes)],
        },
    });
    serde_json::to_vec(&header).map_err(|e| Error::Internal(e.to_string()))
}

impl VectorFileWriter for Safetensors {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        self.file.write(&bytes_of(vectors))?;
        for id in ids {
            let line = if self.rows == 0 { id.clone() } else { format!("\n{id}") };
            self.ids.write(line.as_bytes())?;
            self.ids_bytes += line.len() as u64;
            self.rows += 1;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Safetensors { dim, rows, about, header_bytes, mut file, mut ids, ids_bytes } = *self;
        ids.out.seek(SeekFrom::Start(0)).at("read", &ids.path)?;
        io::copy(ids.out.get_mut(), &mut file.out).at("write", &file.path)?;
        let mut head = ((header_bytes - 8) as u64).to_le_bytes().to_vec();
        head.extend(header(rows, dim, rows * dim as u64 * 4, ids_bytes, &about)?);
        head.resize(header_bytes, b' ');
        file.write_at_start(&head)?;
        file.keep()
    }
}

/// Maximum header size in bytes when reading a file. Headers written by turnwise are shorter.
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

/// Calls `row` for each row of a file, in order.
pub(super) fn read_rows(path: &Path, row: RowCallback<'_>) -> Result<()> {
    let mut length = [0; 8];
    let mut rows = BufReader::with_capacity(1 << 18, File::open(path).at("open", path)?);
    rows.read_exact(&mut length).at("read", path)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER_BYTES {
        return Err(foreign_file(path, "its header is too long"));
    }
    let mut header = vec![0; length as usize];
    rows.read_exact(&mut header).at("read", path)?;
    let header: Header = serde_json::from_slice(&header).map_err(|e| foreign_file(path, e))?;
    let [count, dim] = header.embeddings.shape[..] else {
        return Err(foreign_file(path, "it has different tensors"));
    };
    let [ids_from, ids_to] = header.ids.data_offsets;
    // The file consists of the header, the vectors and the ids, without gaps.
    let vectors_end = dim.checked_mul(4).and_then(|row| row.checked_mul(count));
    let ids_bytes = ids_to.checked_sub(ids_from);
    let end = ids_to.checked_add(8 + length);
    let size = rows.get_ref().metadata().at("read", path)?.len();
    if vectors_end != Some(ids_from) || ids_bytes.is_none() || end != Some(size) {
        return Err(foreign_file(path, "its header does not match its size"));
    }
    let mut ids = File::open(path).at("open", path)?;
    ids.seek(SeekFrom::Start(8 + length + ids_from)).at("read", path)?;
    let mut ids = BufReader::new(ids.take(ids_to.saturating_sub(ids_from)));
    let mut bytes = vec![0; if count > 0 { dim as usize * 4 } else { 0 }];
    let (mut id, mut vector) = (String::new(), Vec::new());
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
