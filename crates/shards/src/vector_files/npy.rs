//! NumPy `.npy` files: one array with the rows in input order. The ids are in a separate text file, one per
//! line.

use std::{
    fs::File,
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use super::{PendingFile, VectorFileWriter, bytes_of, ids_path};
use turnwise_core::error::{IoContext, Result};
use turnwise_encoder::Vectors;

/// Header size. NumPy requires a multiple of 64; this leaves space for any number of rows.
const HEADER_BYTES: usize = 128;

pub(super) struct Npy {
    path: PathBuf,
    dim: usize,
    rows: u64,
    vectors: (PendingFile, BufWriter<File>),
    ids: (PendingFile, BufWriter<File>),
}

impl Npy {
    pub(super) fn create(path: &Path, dim: usize) -> Result<Self> {
        let (name, file) = PendingFile::create(path)?;
        let mut vectors = (name, BufWriter::with_capacity(1 << 18, file));
        vectors.1.write_all(&header(0, dim)).at("write", path)?;
        let (name, file) = PendingFile::create(&ids_path(path))?;
        Ok(Npy { path: path.to_owned(), dim, rows: 0, vectors, ids: (name, BufWriter::new(file)) })
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
        self.vectors.1.write_all(&bytes_of(vectors)).at("write", &self.path)?;
        ids.iter().try_for_each(|id| writeln!(self.ids.1, "{id}")).at("write", ids_path(&self.path))?;
        self.rows += ids.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Npy { path, dim, rows, vectors: (name, mut out), ids: (ids_name, ids) } = *self;
        out.seek(SeekFrom::Start(0)).and_then(|_| out.write_all(&header(rows, dim))).at("write", &path)?;
        let file = out.into_inner().map_err(|e| e.into_error()).at("write", &path)?;
        let ids = ids.into_inner().map_err(|e| e.into_error()).at("write", ids_path(&path))?;
        // Rename the array last, so that its ids exist when it appears.
        ids_name.keep(ids)?;
        name.keep(file)
    }
}
