//! Writing the file of a frozen graph.

use std::io::{self, Seek, Write};

use half::f16;

use crate::{
    BuildOptions, Metric, Originals, Points,
    build::BuildOutput,
    file::{BLOCK, HEADER_BYTES, Header, Kind, Section},
    nibbles::row_bytes,
};

/// Content of a file.
pub(crate) struct Parts<'a> {
    pub(crate) points: &'a Points<'a>,
    pub(crate) options: &'a BuildOptions,
    pub(crate) made: &'a BuildOutput,
}

/// Writes a file. The header is written last, at the start of the file, because it contains a checksum of the
/// checksums.
pub(crate) fn write(parts: &Parts, out: &mut (impl Write + Seek)) -> io::Result<()> {
    out.write_all(&[0; HEADER_BYTES])?;
    let mut summed = Summed { out: &mut *out, sums: Sums::default() };
    sections(parts, &mut summed)?;
    let checks = summed.sums.finish();
    out.write_all(&checks)?;
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
    out.rewind()?;
    out.write_all(&header.bytes())
}

/// Computes the positions of the sections.
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
    let BuildOutput { order, codes, nibbles, graph } = parts.made;
    let mut section = Padded { out, length: 0 };
    for row in &graph.points {
        section.put(nibbles.as_ref().map_or_else(|| codes.row(*row), |nibbles| nibbles.row(*row)))?;
    }
    section.end()?;
    let points: Vec<u32> = graph.points.iter().map(|row| order[*row as usize]).collect();
    let (mut vector, mut row) = (Vec::new(), Vec::new());
    for point in &points {
        parts.points.prepare(*point, &mut vector);
        match parts.options.originals {
            Originals::F32 => to_bytes(&vector, f32::to_le_bytes, &mut row),
            Originals::F16 => to_bytes(&vector, |v| f16::from_f32(v).to_le_bytes(), &mut row),
        }
        section.put(&row)?;
    }
    section.end()?;
    for links in &graph.levels {
        section.put_all(&links.flat)?;
    }
    if parts.points.metric == Metric::L2 {
        let norms: Vec<u32> = graph.points.iter().map(|row| codes.norms[*row as usize]).collect();
        section.put_all(&norms)?;
    }
    let (starts, rows) = parts.points.rows(&points);
    section.put_all(&starts)?;
    section.put_all(&rows)
}

/// Converts numbers to bytes. The compiler turns the loop into a copy.
fn to_bytes<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N], out: &mut Vec<u8>) {
    out.resize(numbers.len() * N, 0);
    for (place, number) in out.chunks_exact_mut(N).zip(numbers) {
        place.copy_from_slice(&bytes(*number));
    }
}

/// Writer of sections, which pads each section to a multiple of 64 bytes.
struct Padded<'a> {
    out: &'a mut dyn Write,
    length: usize,
}

impl Padded<'_> {
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

/// Writer that computes the checksums of what it writes.
struct Summed<'a, W> {
    out: &'a mut W,
    sums: Sums,
}

impl<W: Write> Write for Summed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sums.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Computes the checksums of blocks.
#[derive(Default)]
struct Sums {
    block: crc32fast::Hasher,
    length: usize,
    done: Vec<u8>,
}

impl Sums {
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
