//! File format of a graph: the layout, the header and the writer.
//!
//! ```text
//! 0     header, 4096 bytes: magic, version, parameters, table of sections, CRC-32 of the header
//! 4096  sections, each at a multiple of 64:
//!         nibbles    nodes × stride / 2 bytes (see `nibbles`); if nibbles are not accurate enough, instead:
//!         codes      nodes × stride bytes, biased by 128, padded with 128 (see `distances`)
//!         originals  nodes × dimensions numbers, f32 or f16
//!         links 0    nodes × 2m u32; a shorter list ends with u32::MAX
//!         links 1 …  nodes of the level × m u32
//!         norms      nodes u32: squared norms of the codes (only for L2)
//!         starts     nodes + 1 u32: start of each node's rows, and the end of the last
//!         rows       u32: the rows of node 0, of node 1, …
//!         checks     CRC-32 of each block of 64 KiB, from the end of the header to the start of this section
//! ```
//!
//! The stride is the number of dimensions, rounded up to a multiple of 64. All numbers are little-endian. Nodes are
//! numbered by descending level: a level with n nodes has the nodes 0 to n − 1. A search starts at node 0.

use std::{
    io::{self, Seek, Write},
    ops::Range,
};

use half::f16;

use crate::{BuildOptions, Builder, Metric, Points, VectorFormat, build::BuildOutput, nibbles::row_bytes};

#[cfg(target_endian = "big")]
compile_error!("graph files are memory-mapped and little-endian; big-endian targets are not supported");

/// Size in bytes of the header, which is at the start of the file.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Number of bytes that one checksum covers.
pub(crate) const BLOCK: usize = 64 << 10;
const MAGIC: &[u8; 8] = b"TWNEAR\r\n";
const VERSION: u32 = 1;
/// Offset of the table of sections in the header.
const TABLE: usize = 128;
const ENTRY: usize = 24;
const SECTIONS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Codes,
    Originals,
    Links(u32),
    Norms,
    Starts,
    Rows,
    Checks,
    Nibbles,
}

impl Kind {
    /// Returns all kinds of sections in the order of their numbers in the file, which start at 1. `level` is the level
    /// of the kind `Links`.
    fn all(level: u32) -> [Kind; 8] {
        use Kind::*;
        [Codes, Originals, Links(level), Norms, Starts, Rows, Checks, Nibbles]
    }

    /// Returns the number of the kind in the file, and the level of the links (0 for all other kinds).
    fn numbers(self) -> (u32, u32) {
        let level = if let Kind::Links(level) = self { level } else { 0 };
        let number = Kind::all(level).iter().position(|kind| *kind == self).unwrap_or_default();
        (number as u32 + 1, level)
    }

    fn of(kind: u32, level: u32) -> Option<Self> {
        Kind::all(level).into_iter().find(|k| k.numbers() == (kind, level))
    }

    pub(crate) fn name(self) -> String {
        let name = match self {
            Kind::Codes => "codes",
            Kind::Originals => "vectors",
            Kind::Links(level) => return format!("links of level {level}"),
            Kind::Norms => "lengths",
            Kind::Starts => "starts of rows",
            Kind::Rows => "rows",
            Kind::Checks => "checksums",
            Kind::Nibbles => "nibbles",
        };
        name.to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: Kind,
    pub(crate) bytes: Range<usize>,
}

/// Header of a graph file: parameters of the graph, and its sections.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub(crate) dim: usize,
    pub(crate) metric: Metric,
    pub(crate) format: VectorFormat,
    pub(crate) builder: Builder,
    /// Maximum number of neighbors of a node on each level above 0. On level 0, the maximum is twice this number.
    pub(crate) m: usize,
    /// Number of candidates in the beam search by which the builder found the neighbors of each node.
    pub(crate) ef: usize,
    pub(crate) nodes: usize,
    pub(crate) scale: f32,
    pub(crate) sections: Vec<Section>,
    /// CRC-32 of the `checks` section.
    pub(crate) checks: u32,
}

impl Header {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut page = vec![0u8; HEADER_BYTES];
        page[..8].copy_from_slice(MAGIC);
        let metric = Metric::ALL.iter().position(|m| *m == self.metric).unwrap_or(0);
        let numbers = [
            VERSION,
            self.dim as u32,
            metric as u32,
            u32::from(self.format == VectorFormat::F16),
            Builder::ALL.iter().position(|b| *b == self.builder).unwrap_or(0) as u32,
            self.m as u32,
            self.ef as u32,
            self.nodes as u32,
            self.scale.to_bits(),
            self.checks,
            self.sections.len() as u32,
        ];
        for (number, place) in numbers.iter().zip(page[8..].chunks_exact_mut(4)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        for (section, place) in self.sections.iter().zip(page[TABLE..].chunks_exact_mut(ENTRY)) {
            let (kind, level) = section.kind.numbers();
            place[..4].copy_from_slice(&kind.to_le_bytes());
            place[4..8].copy_from_slice(&level.to_le_bytes());
            place[8..16].copy_from_slice(&(section.bytes.start as u64).to_le_bytes());
            place[16..].copy_from_slice(&(section.bytes.len() as u64).to_le_bytes());
        }
        let crc = crc32fast::hash(&page[..HEADER_BYTES - 4]);
        page[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Parses and checks a header. `file` is the size of the file in bytes. The error is a message for users.
    pub(crate) fn read(page: &[u8], file: usize) -> Result<Self, String> {
        if page.len() < HEADER_BYTES || !page.starts_with(MAGIC) {
            return Err("the file is not a graph file".to_owned());
        }
        let number = |at: usize| page[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let long = |at: usize| page[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let version = number(8);
        if version != VERSION {
            return Err(format!("the format version is {version}; this turnwise reads version {VERSION}"));
        }
        if crc32fast::hash(&page[..HEADER_BYTES - 4]) != number(HEADER_BYTES - 4) {
            return Err("its header is damaged".to_owned());
        }
        let field = |n: usize| number(8 + 4 * n) as usize;
        let unknown = || "its header has values that this turnwise does not know".to_owned();
        let mut sections = Vec::new();
        for n in 0..field(10).min(SECTIONS) {
            let at = TABLE + n * ENTRY;
            let kind = Kind::of(number(at), number(at + 4)).ok_or_else(unknown)?;
            let (start, length) = (long(at + 8), long(at + 16));
            let end = start.checked_add(length).filter(|end| *end <= file as u64);
            let Some(end) = end else {
                return Err(format!("the file ends inside its {}: it has only {file} bytes", kind.name()));
            };
            sections.push(Section { kind, bytes: start as usize..end as usize });
        }
        Ok(Header {
            dim: field(1),
            metric: *Metric::ALL.get(field(2)).ok_or_else(unknown)?,
            format: if field(3) == 1 { VectorFormat::F16 } else { VectorFormat::F32 },
            builder: *Builder::ALL.get(field(4)).ok_or_else(unknown)?,
            m: field(5),
            ef: field(6),
            nodes: field(7),
            scale: f32::from_bits(number(8 + 4 * 8)),
            checks: number(8 + 4 * 9),
            sections,
        })
    }
}

pub(crate) struct Content<'a> {
    pub(crate) points: &'a Points<'a>,
    pub(crate) options: &'a BuildOptions,
    pub(crate) made: &'a BuildOutput,
}

/// Writes a graph file. The header is written last, because it contains a checksum of the checksums.
pub(crate) fn write(content: &Content, out: &mut (impl Write + Seek)) -> io::Result<()> {
    out.write_all(&[0; HEADER_BYTES])?;
    let mut checked = ChecksumWriter { out: &mut *out, sums: Checksums::default() };
    sections(content, &mut checked)?;
    let checks = checked.sums.finish();
    out.write_all(&checks)?;
    let list = list(content, checks.len());
    let header = Header {
        dim: content.points.dim,
        metric: content.points.metric,
        format: content.options.format,
        builder: content.options.builder,
        m: content.options.m,
        ef: content.options.ef,
        nodes: content.made.graph.len(),
        scale: content.made.codes.quantizer.scale,
        sections: list,
        checks: crc32fast::hash(&checks),
    };
    out.rewind()?;
    out.write_all(&header.bytes())
}

/// Returns the sections in file order. `checks` is the size in bytes of the last section, which holds the checksums.
fn list(content: &Content, checks: usize) -> Vec<Section> {
    let Content { points, options, made } = content;
    let nodes = made.graph.len();
    let mut lengths = vec![match made.nibbles {
        Some(_) => (Kind::Nibbles, nodes * row_bytes(points.dim)),
        None => (Kind::Codes, nodes * made.codes.stride),
    }];
    lengths.push((Kind::Originals, nodes * points.dim * options.format.bytes()));
    for (level, links) in made.graph.levels.iter().enumerate() {
        lengths.push((Kind::Links(level as u32), links.flat.len() * 4));
    }
    if points.metric == Metric::L2 {
        lengths.push((Kind::Norms, nodes * 4));
    }
    lengths.push((Kind::Starts, (nodes + 1) * 4));
    lengths.push((Kind::Rows, points.row_count() * 4));
    lengths.push((Kind::Checks, checks));
    let mut at = HEADER_BYTES;
    let place = |(kind, length): (Kind, usize)| {
        let start = at;
        at = (at + length).next_multiple_of(64);
        Section { kind, bytes: start..start + length }
    };
    lengths.into_iter().map(place).collect()
}

/// Writes all sections except the checksums, in the order of [`list`].
fn sections(content: &Content, out: &mut dyn Write) -> io::Result<()> {
    let BuildOutput { order, codes, nibbles, graph } = content.made;
    let mut section = SectionWriter { out, length: 0 };
    for row in &graph.points {
        section.put(nibbles.as_ref().map_or_else(|| codes.row(*row), |nibbles| nibbles.row(*row)))?;
    }
    section.end()?;
    let points: Vec<u32> = graph.points.iter().map(|row| order[*row as usize]).collect();
    let (mut vector, mut row) = (Vec::new(), Vec::new());
    for point in &points {
        content.points.prepare(*point, &mut vector);
        match content.options.format {
            VectorFormat::F32 => to_bytes(&vector, f32::to_le_bytes, &mut row),
            VectorFormat::F16 => to_bytes(&vector, |v| f16::from_f32(v).to_le_bytes(), &mut row),
        }
        section.put(&row)?;
    }
    section.end()?;
    for links in &graph.levels {
        section.put_all(&links.flat)?;
    }
    if content.points.metric == Metric::L2 {
        let norms: Vec<u32> = graph.points.iter().map(|row| codes.norms[*row as usize]).collect();
        section.put_all(&norms)?;
    }
    let (starts, rows) = content.points.rows(&points);
    section.put_all(&starts)?;
    section.put_all(&rows)
}

/// Replaces `out` with the bytes of the numbers. The compiler turns this loop over the numbers into one memory copy.
fn to_bytes<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N], out: &mut Vec<u8>) {
    out.resize(numbers.len() * N, 0);
    for (place, number) in out.chunks_exact_mut(N).zip(numbers) {
        place.copy_from_slice(&bytes(*number));
    }
}

/// Writes sections, and pads each section with zeros to a multiple of 64 bytes.
struct SectionWriter<'a> {
    out: &'a mut dyn Write,
    length: usize,
}

impl SectionWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len();
        self.out.write_all(bytes)
    }

    fn put_all(&mut self, numbers: &[u32]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for some in numbers.chunks(1 << 16) {
            to_bytes(some, u32::to_le_bytes, &mut bytes);
            self.put(&bytes)?;
        }
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let padding = self.length.next_multiple_of(64) - self.length;
        self.put(&[0; 64][..padding])
    }
}

/// Writer that also computes the checksums of the written bytes.
struct ChecksumWriter<'a, W> {
    out: &'a mut W,
    sums: Checksums,
}

impl<W: Write> Write for ChecksumWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sums.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Computes a CRC-32 for each block of [`BLOCK`] bytes. The last block may be shorter.
#[derive(Default)]
struct Checksums {
    block: crc32fast::Hasher,
    length: usize,
    done: Vec<u8>,
}

impl Checksums {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.length));
            self.block.update(now);
            self.length += now.len();
            if self.length == BLOCK {
                self.close();
            }
            bytes = later;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.length > 0 {
            self.close();
        }
        self.done
    }

    fn close(&mut self) {
        let sum = std::mem::take(&mut self.block).finalize();
        self.done.extend(sum.to_le_bytes());
        self.length = 0;
    }
}
