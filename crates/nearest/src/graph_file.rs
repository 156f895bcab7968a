//! Opening, reading and verifying a graph file.

use std::{fs::File, ops::Range, path::Path};

use half::f16;
use memmap2::Mmap;
use turnwise_core::error::IoContext;

use crate::{
    Builder, Error, Metric, Result, VectorFormat,
    candidates::Lists,
    codes::{AlignedBytes, stride},
    distances::Dispatch,
    file::{BLOCK, HEADER_BYTES, Header, Kind},
    nibbles::row_bytes,
};

/// Read-only graph file, memory-mapped or in memory. All processes that map the same file share its memory.
pub struct GraphFile {
    bytes: Bytes,
    name: std::path::PathBuf,
    pub(crate) header: Header,
    /// Bytes per row of codes.
    pub(crate) stride: usize,
    pub(crate) level: Dispatch,
    // Byte ranges of the sections.
    codes: SearchCodes<Range<usize>>,
    originals: Range<usize>,
    /// Byte range of the neighbor lists of each level, starting at level 0.
    links: Vec<Range<usize>>,
    norms: Option<Range<usize>>,
    starts: Range<usize>,
    rows: Range<usize>,
    checks: Range<usize>,
}

/// Quantized vectors of all nodes, with which a search finds candidates.
pub(crate) enum SearchCodes<T> {
    Nibbles(T),
    Codes(T),
}

enum Bytes {
    Mapped(Mmap),
    Owned(AlignedBytes),
}

/// Properties of a graph file.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphInfo {
    /// Number of dimensions of a vector.
    pub dim: usize,
    /// Number of nodes, that is, of distinct vectors.
    pub nodes: usize,
    /// Number of rows. Rows with equal vectors belong to one node.
    pub rows: usize,
    /// Maximum number of neighbors of a node on each level above 0. On level 0, the maximum is twice this number.
    pub m: usize,
    /// Number of candidates in the beam search by which the builder found the neighbors of each node.
    pub ef: usize,
    /// Builder of the graph.
    pub builder: Builder,
    /// Number format of the original vectors.
    pub format: VectorFormat,
    /// Bits per dimension of the quantized vectors, 4 or 8.
    pub code_bits: u32,
    /// Size of the file in bytes.
    pub bytes: usize,
}

fn damaged(path: &Path, what: impl Into<String>) -> Error {
    Error::corrupt(path, what).with_hint("rebuild it with `turnwise index build`")
}

impl GraphFile {
    /// Opens and memory-maps a graph file. Returns an error if the file cannot be read, or if its header or the size of
    /// a section is wrong. Does not check the content of the sections; use [`GraphFile::verify`] to check it.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: graph files are written under a temporary name and are never changed after that.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        GraphFile::new(Bytes::Mapped(map), path)
    }

    /// Copies the bytes of a graph file and opens the copy, with the same checks as [`GraphFile::open`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut owned = AlignedBytes::filled(bytes.len(), 0);
        owned.bytes_mut().copy_from_slice(bytes);
        GraphFile::new(Bytes::Owned(owned), Path::new("a graph in memory"))
    }

    fn new(bytes: Bytes, name: &Path) -> Result<Self> {
        let corrupt = |what: String| damaged(name, what);
        let all = bytes.all();
        let header = Header::read(&all[..all.len().min(HEADER_BYTES)], all.len()).map_err(corrupt)?;
        let find = |kind: Kind| header.sections.iter().find(|s| s.kind == kind).map(|s| s.bytes.clone());
        // Returns the byte range of a section. `length` is its expected size in bytes, if that is known.
        let need = |kind: Kind, length: Option<usize>| {
            let bytes = find(kind).unwrap_or_default();
            let fits = length.is_none_or(|length| length == bytes.len());
            let aligned = bytes.start.is_multiple_of(64) && bytes.len().is_multiple_of(2);
            let what = || corrupt(format!("the size of its {} does not match the header", kind.name()));
            (fits && aligned).then_some(bytes).ok_or_else(what)
        };
        let (nodes, stride) = (header.nodes, stride(header.dim));
        let levels = header.sections.iter().filter(|s| matches!(s.kind, Kind::Links(_))).count();
        let links =
            |level: usize| need(Kind::Links(level as u32), (level == 0).then_some(nodes * header.m * 8));
        let graph = GraphFile {
            codes: match find(Kind::Nibbles) {
                Some(_) => SearchCodes::Nibbles(need(Kind::Nibbles, Some(nodes * row_bytes(header.dim)))?),
                None => SearchCodes::Codes(need(Kind::Codes, Some(nodes * stride))?),
            },
            originals: need(Kind::Originals, Some(nodes * header.dim * header.format.bytes()))?,
            links: (0..levels.max(1)).map(links).collect::<Result<_>>()?,
            norms: (header.metric == Metric::L2).then(|| need(Kind::Norms, Some(nodes * 4))).transpose()?,
            starts: need(Kind::Starts, Some((nodes + 1) * 4))?,
            rows: need(Kind::Rows, None)?,
            checks: need(Kind::Checks, None)?,
            level: Dispatch::best(),
            name: name.to_owned(),
            stride,
            header,
            bytes,
        };
        let blocks = (graph.checks.start - HEADER_BYTES).div_ceil(BLOCK);
        if graph.checks.len() != blocks * 4 {
            return Err(graph.corrupt("the number of its checksums does not match the size of the file"));
        }
        Ok(graph)
    }

    pub(crate) fn corrupt(&self, what: impl Into<String>) -> Error {
        damaged(&self.name, what)
    }

    /// Verifies all checksums. The error message names the first damaged block and its section, or says that the list
    /// of checksums is damaged.
    pub fn verify(&self) -> Result<()> {
        let checks = &self.bytes.all()[self.checks.clone()];
        if crc32fast::hash(checks) != self.header.checks {
            return Err(self.corrupt("its checksums are damaged"));
        }
        let content = &self.bytes.all()[HEADER_BYTES..self.checks.start];
        for (n, (block, sum)) in content.chunks(BLOCK).zip(checks.chunks_exact(4)).enumerate() {
            if crc32fast::hash(block).to_le_bytes() != sum {
                let (start, end) = (HEADER_BYTES + n * BLOCK, HEADER_BYTES + n * BLOCK + block.len());
                let section = self.header.sections.iter().rev().find(|s| s.bytes.start <= start);
                let section = section.map_or_else(String::new, |s| format!(", in its {}", s.kind.name()));
                let what = format!("block {n} is damaged (bytes {start} to {end}){section}");
                return Err(self.corrupt(what));
            }
        }
        Ok(())
    }

    /// Returns the properties of the graph.
    pub fn info(&self) -> GraphInfo {
        GraphInfo {
            dim: self.header.dim,
            nodes: self.header.nodes,
            rows: self.rows.len() / 4,
            m: self.header.m,
            ef: self.header.ef,
            builder: self.header.builder,
            format: self.header.format,
            code_bits: if matches!(self.codes, SearchCodes::Nibbles(_)) { 4 } else { 8 },
            bytes: self.bytes.all().len(),
        }
    }

    /// Returns the number of nodes, that is, of distinct vectors.
    pub fn nodes(&self) -> usize {
        self.header.nodes
    }

    /// Returns the rows of a node, as given to [`Points::push`](crate::Points::push). Returns an empty slice if the
    /// node does not exist.
    pub fn rows(&self, node: u32) -> &[u32] {
        let starts = self.numbers(&self.starts);
        let at = |n: usize| starts.get(n).map(|s| *s as usize);
        let (Some(from), Some(to)) = (at(node as usize), at(node as usize + 1)) else { return &[] };
        self.numbers(&self.rows).get(from..to).unwrap_or(&[])
    }

    /// Returns the original vector of a node, normalized if the metric is the cosine. Panics if the node does not
    /// exist.
    pub fn vector(&self, node: u32) -> Vec<f32> {
        let dim = self.header.dim;
        match self.originals() {
            Vectors::F32(flat) => flat[node as usize * dim..][..dim].to_vec(),
            Vectors::F16(flat) => flat[node as usize * dim..][..dim].iter().map(|v| v.to_f32()).collect(),
        }
    }

    pub(crate) fn search_codes(&self) -> SearchCodes<&[u8]> {
        let bytes = |section: &Range<usize>| &self.bytes.all()[section.clone()];
        match &self.codes {
            SearchCodes::Nibbles(nibbles) => SearchCodes::Nibbles(bytes(nibbles)),
            SearchCodes::Codes(codes) => SearchCodes::Codes(bytes(codes)),
        }
    }

    pub(crate) fn originals(&self) -> Vectors<'_> {
        let bytes = &self.bytes.all()[self.originals.clone()];
        // SAFETY: every bit pattern is a valid number, and a section starts at a multiple of 64.
        unsafe {
            match self.header.format {
                VectorFormat::F32 => Vectors::F32(cast(bytes)),
                VectorFormat::F16 => Vectors::F16(cast(bytes)),
            }
        }
    }

    pub(crate) fn levels(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn lists(&self, level: usize) -> Lists<'_> {
        let width = if level == 0 { 2 * self.header.m } else { self.header.m };
        Lists { flat: self.numbers(&self.links[level]), width }
    }

    pub(crate) fn norms(&self) -> &[u32] {
        self.norms.as_ref().map_or(&[], |norms| self.numbers(norms))
    }

    fn numbers(&self, section: &Range<usize>) -> &[u32] {
        // SAFETY: every bit pattern is a valid number, and a section starts at a multiple of 64.
        unsafe { cast(&self.bytes.all()[section.clone()]) }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Vectors<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(owned) => owned.bytes(),
        }
    }
}

/// Reinterprets bytes as numbers. Ignores an incomplete number at the end.
///
/// # Safety
///
/// Every bit pattern must be a valid `T`, and the bytes must be aligned for `T`.
unsafe fn cast<T>(bytes: &[u8]) -> &[T] {
    debug_assert!(bytes.as_ptr().cast::<T>().is_aligned());
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}
