//! Writing a file, front to back.

use std::io::{self, Write};

use half::f16;

use crate::{
    BuildOptions, Metric, Originals, Points,
    build::Codes,
    file::{BLOCK, HEADER_BYTES, Header, Kind, Section},
    graph::Graph,
    nibbles::{Nibbles, row_bytes},
};

/// What a file is made of.
pub(crate) struct Parts<'a> {
    pub(crate) points: &'a Points,
    pub(crate) codes: &'a Codes,
    /// Instead of codes, if they are fine enough.
    pub(crate) nibbles: Option<&'a Nibbles>,
    pub(crate) graph: &'a Graph,
    pub(crate) options: &'a BuildOptions,
}

/// Writes a file. The header needs the checksums, and the checksums all the rest: everything is written twice, the first
/// time into nothing but the sums.
pub(crate) fn write(parts: &Parts, out: &mut dyn Write) -> io::Result<()> {
    let mut sums = Sums::default();
    sections(parts, &mut sums)?;
    let checks = sums.finish();
    let list = list(parts, checks.len());
    let header = Header {
        dim: parts.points.dim,
        metric: parts.points.metric,
        originals: parts.options.originals,
        builder: parts.options.builder,
        m: parts.options.m,
        ef: parts.options.ef,
        nodes: parts.graph.len(),
        scale: parts.codes.quantizer.scale,
        sections: list,
        checks: crc32fast::hash(&checks),
    };
    out.write_all(&header.bytes())?;
    sections(parts, out)?;
    out.write_all(&checks)
}

/// Where the sections will lie.
fn list(parts: &Parts, checks: usize) -> Vec<Section> {
    let nodes = parts.graph.len();
    let number = match parts.options.originals {
        Originals::F32 => 4,
        Originals::F16 => 2,
    };
    let mut lengths = vec![match parts.nibbles {
        Some(_) => (Kind::Nibbles, nodes * row_bytes(parts.points.dim)),
        None => (Kind::Codes, nodes * parts.codes.stride),
    }];
    lengths.push((Kind::Originals, nodes * parts.points.dim * number));
    for (level, links) in parts.graph.levels.iter().enumerate() {
        lengths.push((Kind::Links(level as u32), links.flat.len() * 4));
    }
    if parts.points.metric == Metric::L2 {
        lengths.push((Kind::Norms, nodes * 4));
    }
    lengths.push((Kind::Starts, (nodes + 1) * 4));
    lengths.push((Kind::Rows, parts.points.rows.iter().map(Vec::len).sum::<usize>() * 4));
    lengths.push((Kind::Checks, checks));
    let mut at = HEADER_BYTES;
    let place = |(kind, length): (Kind, usize)| {
        let start = at;
        at = (at + length).next_multiple_of(64);
        Section { kind, bytes: start..start + length }
    };
    lengths.into_iter().map(place).collect()
}

fn sections(parts: &Parts, out: &mut dyn Write) -> io::Result<()> {
    let order = || parts.graph.points.iter().copied();
    let mut section = Padded { out, length: 0 };
    for point in order() {
        section.put(parts.nibbles.map_or_else(|| parts.codes.row(point), |nibbles| nibbles.row(point)))?;
    }
    section.end()?;
    let mut row = Vec::new();
    for point in order() {
        let vector = parts.points.vector(point as usize).iter();
        row.clear();
        match parts.options.originals {
            Originals::F32 => row.extend(vector.flat_map(|v| v.to_le_bytes())),
            Originals::F16 => row.extend(vector.flat_map(|v| f16::from_f32(*v).to_le_bytes())),
        }
        section.put(&row)?;
    }
    section.end()?;
    for links in &parts.graph.levels {
        section.put_all(links.flat.iter().copied())?;
    }
    if parts.points.metric == Metric::L2 {
        section.put_all(order().map(|point| parts.codes.norms[point as usize]))?;
    }
    let rows = || order().map(|point| &parts.points.rows[point as usize]);
    let ends = rows().scan(0, |end, rows| {
        *end += rows.len() as u32;
        Some(*end)
    });
    section.put_all(std::iter::once(0).chain(ends))?;
    section.put_all(rows().flatten().copied())
}

/// Sections one after the other, each ended at a multiple of 64.
struct Padded<'a> {
    out: &'a mut dyn Write,
    length: usize,
}

impl Padded<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len();
        self.out.write_all(bytes)
    }

    fn put_all(&mut self, numbers: impl Iterator<Item = u32>) -> io::Result<()> {
        for number in numbers {
            self.put(&number.to_le_bytes())?;
        }
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let short = self.length.next_multiple_of(64) - self.length;
        self.put(&[0; 64][..short])
    }
}

/// Checksums of blocks.
#[derive(Default)]
struct Sums {
    block: crc32fast::Hasher,
    length: usize,
    done: Vec<u8>,
}

impl Sums {
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

impl Write for Sums {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.length);
        self.block.update(&bytes[..taken]);
        self.length += taken;
        if self.length == BLOCK {
            self.close();
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
