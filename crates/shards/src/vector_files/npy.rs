//! NumPy `.npy` files. The file contains one array with the rows in input order. A separate text file contains the ids,
//! one per line.

use std::path::Path;

use super::{PendingFile, VectorFileWriter, bytes_of, ids_path};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;

/// Header size in bytes. NumPy requires a multiple of 64, and 128 bytes are enough for any number of rows.
const HEADER_BYTES: usize = 128;

pub(super) struct Npy {
    dim: usize,
    rows: u64,
    vectors: PendingFile,
    ids: PendingFile,
}

impl Npy {
    pub(super) fn create(path: &Path, dim: usize) -> Result<Self> {
        let mut vectors = PendingFile::create(path)?;
        vectors.write(&header(0, dim))?;
        Ok(Npy { dim, rows: 0, vectors, ids: PendingFile::create(&ids_path(path))? })
    }
}

fn header(rows: u64, dim: usize) -> Vec<u8> {
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((HEADER_BYTES as u16 - 10).to_le_bytes());
    header.extend(format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}").bytes());
    header.resize(HEADER_BYTES - 1, b' ');
    header.push(b'\n');
    header
}

impl VectorFileWriter for Npy {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        self.vectors.write(&bytes_of(vectors))?;
        self.rows += ids.len() as u64;
        ids.iter().try_for_each(|id| self.ids.write(format!("{id}\n").as_bytes()))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.vectors.write_at_start(&header(self.rows, self.dim))?;
        // Rename the array file last, so that the file with its ids already exists when the array appears.
        self.ids.keep()?;
        self.vectors.keep()
    }
}
