//! Ranker with vectors from a NumPy file. The file contains one row per document. If the task has separate queries, one
//! row per query follows.

use std::path::{Path, PathBuf};

use half::f16;

use super::{Pool, Progress, Ranker, Scorer, dense::Prepared};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_encoder::Vectors;

/// Ranker with vectors from a NumPy file. Its scores are cosine similarities.
pub struct Precomputed {
    path: PathBuf,
    vectors: Vectors,
    hash: String,
}

impl Precomputed {
    /// Reads a NumPy file that contains a two-dimensional array of floats with 16, 32 or 64 bits.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).at("read", path)?;
        let vectors = read(&bytes).map_err(|why| {
            Error::data(format!("{}: {why}", path.display()))
                .with_hint("`numpy.save` and `turnwise embed -o FILE.npy` write such files")
        })?;
        let hash = blake3::hash(&bytes).to_hex()[..32].to_owned();
        Ok(Precomputed { path: path.to_owned(), vectors, hash })
    }

    /// Returns the L2-normalized vectors, and the hash of the file.
    pub fn into_unit(mut self) -> (Vectors, String) {
        self.vectors.normalize();
        (self.vectors, self.hash)
    }
}

impl Ranker for Precomputed {
    fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    fn identity(&self) -> String {
        format!("vectors/{}", self.hash)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let (documents, queries) = (pool.documents.len(), pool.queries.as_ref().map_or(0, super::Items::len));
        if self.vectors.len() != documents + queries {
            let more = if queries > 0 { format!(" followed by {queries} queries") } else { String::new() };
            return Err(Error::data(format!(
                "{} has {} rows, but the task has {documents} documents{more}",
                self.path.display(),
                self.vectors.len()
            ))
            .with_hint("the file needs one row for each of them, in the order of the data"));
        }
        let mut vectors = self.vectors.clone();
        vectors.normalize();
        let (of_documents, of_queries) = vectors.flat().split_at(documents * vectors.dim());
        let part = |flat: &[f32]| Vectors::from_flat(vectors.dim(), flat.to_vec()).unwrap_or_default();
        Ok(Box::new(Prepared::given(part(of_documents), (queries > 0).then(|| part(of_queries)))))
    }
}

/// Parses the content of a NumPy file.
fn read(bytes: &[u8]) -> Result<Vectors, String> {
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or("not a NumPy file")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("the header is truncated")?;
    // The field for the header length has two bytes in version 1 of the format, and four bytes in later versions.
    let (length, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        _ => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
    }
    .ok_or("the header is truncated")?;
    let (header, data) = rest.split_at_checked(length).ok_or("the header is truncated")?;
    let header = String::from_utf8_lossy(header);
    let after =
        |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start_matches([':', ' ', '\'', '"']));
    let kind = after("descr'").ok_or("the header has no `descr`")?;
    if after("fortran_order'").is_some_and(|rest| rest.starts_with("True")) {
        return Err("the array is in Fortran order; convert it with numpy.ascontiguousarray".to_owned());
    }
    let shape = after("shape'").and_then(|rest| rest.trim_start_matches('(').split(')').next());
    let shape: Vec<usize> =
        shape.unwrap_or_default().split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let [rows, dim] = shape[..] else {
        return Err(format!("the array must have 2 dimensions, but has {}", shape.len()));
    };
    let width = match kind.get(..3) {
        Some("<f2") => 2,
        Some("<f4") => 4,
        Some("<f8") => 8,
        _ => {
            let kind = kind.split(['\'', '"']).next().unwrap_or_default();
            return Err(format!("unsupported data type `{kind}`; use f2, f4 or f8 in little-endian order"));
        }
    };
    if rows.checked_mul(dim).and_then(|n| n.checked_mul(width)) != Some(data.len()) {
        return Err(format!("{rows} rows of {dim} numbers do not match the {} bytes of data", data.len()));
    }
    let number = |b: &[u8]| match *b {
        [a, b] => f16::from_le_bytes([a, b]).to_f32(),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => b.try_into().map_or(f32::NAN, |b| f64::from_le_bytes(b) as f32),
    };
    let flat: Vec<f32> = data.chunks_exact(width).map(number).collect();
    if let Some(at) = flat.iter().position(|v| !v.is_finite()) {
        return Err(format!("row {} contains a number that is not finite", at / dim.max(1)));
    }
    Vectors::from_flat(dim, flat).ok_or_else(|| "the array has no columns".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00".as_slice(), &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn numbers_of_all_widths_are_read() {
        let numbers = [1.0f64, -2.0, 0.5, 4.0];
        let f4: Vec<u8> = numbers.iter().flat_map(|n| (*n as f32).to_le_bytes()).collect();
        let f8: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let f2: Vec<u8> = numbers.iter().flat_map(|n| f16::from_f64(*n).to_le_bytes()).collect();
        for (descr, data) in [("<f4", f4), ("<f8", f8), ("<f2", f2)] {
            let vectors = read(&npy(descr, "False", "(2, 2)", &data)).unwrap();
            assert_eq!((vectors.dim(), vectors.flat()), (2, &[1.0, -2.0, 0.5, 4.0][..]), "{descr}");
        }
    }

    #[test]
    fn invalid_files_are_errors() {
        let error = |bytes: &[u8]| read(bytes).unwrap_err();
        assert_eq!(error(b"PK"), "not a NumPy file");
        assert_eq!(error(b"\x93NUMPY\x01\x00\xff"), "the header is truncated");
        assert_eq!(
            error(&npy("<i8", "False", "(1, 1)", &[0; 8])),
            "unsupported data type `<i8`; use f2, f4 or f8 in little-endian order"
        );
        assert_eq!(
            error(&npy("<f4", "False", "(4,)", &[0; 16])),
            "the array must have 2 dimensions, but has 1"
        );
        assert_eq!(
            error(&npy("<f4", "False", "(2, 2)", &[0; 12])),
            "2 rows of 2 numbers do not match the 12 bytes of data"
        );
        assert!(error(&npy("<f4", "True", "(1, 1)", &[0; 4])).contains("Fortran"));
        assert_eq!(
            error(&npy("<f4", "False", "(2, 1)", &[0, 0, 0, 0, 0, 0, 0xc0, 0x7f])),
            "row 1 contains a number that is not finite"
        );
        for end in 0..npy("<f4", "False", "(1, 1)", &[0; 4]).len() {
            assert!(read(&npy("<f4", "False", "(1, 1)", &[0; 4])[..end]).is_err());
        }
    }
}
