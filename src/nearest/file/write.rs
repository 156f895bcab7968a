//! Writing a file, front to back.

use std::io::{self, Write};

use half::f16;

use crate::{
    BuildOptions, Metric, Originals, Points,
    build::Made,
    file::{BLOCK, HEADER_BYTES, Header, Kind, Section},
    nibbles::row_bytes,
};

/// What a file is made of.
pub(crate) struct Parts<'a> {
    pub(crate) points: &'a Points<'a>,
    pub(crate) options: &'a BuildOptions,
    pub(crate) made: &'a Made,
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
        nodes: parts.made.graph.len(),
        scale: parts.made.codes.quantizer.scale,
        sections: list,
        checks: crc32fast::hash(&checks),
    };
    out.write_all(&header.bytes())?;
    sections(parts, out)?;
    out.write_all(&checks)
}

/// Where the sections will lie.
fn list(parts: &Parts, checks: usize) -> Vec<Section> {
    let nodes = parts.made.graph.len();
    let number = match parts.options.originals {
        Originals::F32 => 4,
        Originals::F16 => 2,
    };
    let mut lengths = vec![match parts.made.nibbles {
        Some(_) => (Kind::Nibbles, nodes * row_bytes(parts.points.dim)),
        None => (Kind::Codes, nodes * parts.made.codes.stride),
    }];
    lengths.push((Kind::Originals, nodes * parts.points.dim * number));
    for (level, links) in parts.made.graph.levels.iter().enumerate() {
        lengths.push((Kind::Links(level as u32), links.flat.len() * 4));
    }
    if parts.points.metric == Metric::L2 {
        lengths.push((Kind::Norms, nodes * 4));
    }
    lengths.push((Kind::Starts, (nodes + 1) * 4));
    lengths.push((Kind::Rows, parts.points.row_count() * 4));
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
    let Made { order, codes, nibbles, graph } = parts.made;
    let mut section = Padded { out, length: 0 };
    for row in &graph.points {
        section.put(nibbles.as_ref().map_or_else(|| codes.row(*row), |nibbles| nibbles.row(*row)))?;
    }
    section.end()?;
    let points: Vec<u32> = graph.points.iter().map(|row| order[*row as usize]).collect();
    let (mut vector, mut row) = (Vec::new(), Vec::new());
    for point in &points {
        parts.points.prepare(*point, &mut vector);
        row.clear();
        match parts.options.originals {
            Originals::F32 => row.extend(vector.iter().flat_map(|v| v.to_le_bytes())),
            Originals::F16 => row.extend(vector.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes())),
        }
        section.put(&row)?;
    }
    section.end()?;
    for links in &graph.levels {
        section.put_all(links.flat.iter().copied())?;
    }
    if parts.points.metric == Metric::L2 {
        section.put_all(graph.points.iter().map(|row| codes.norms[*row as usize]))?;
    }
    let (starts, rows) = parts.points.rows(&points);
    section.put_all(starts.into_iter())?;
    section.put_all(rows.into_iter())
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
