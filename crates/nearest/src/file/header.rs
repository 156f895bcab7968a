//! Header of a file: its first 4096 bytes.

use std::ops::Range;

use crate::{Builder, Metric, Originals};

pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes per checksum.
pub(crate) const BLOCK: usize = 64 << 10;
const MAGIC: &[u8; 8] = b"TWNEAR\r\n";
const VERSION: u32 = 1;
const TABLE: usize = 128;
const ENTRY: usize = 24;
/// Maximum number of sections in the table.
const SECTIONS: usize = 64;

/// Kind of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Codes,
    Originals,
    /// Neighbor lists of a level.
    Links(u32),
    Norms,
    Starts,
    Rows,
    Checks,
    Nibbles,
}

impl Kind {
    fn numbers(self) -> (u32, u32) {
        match self {
            Kind::Codes => (1, 0),
            Kind::Originals => (2, 0),
            Kind::Links(level) => (3, level),
            Kind::Norms => (4, 0),
            Kind::Starts => (5, 0),
            Kind::Rows => (6, 0),
            Kind::Checks => (7, 0),
            Kind::Nibbles => (8, 0),
        }
    }

    fn of(kind: u32, level: u32) -> Option<Self> {
        let all = [
            Kind::Codes,
            Kind::Originals,
            Kind::Links(level),
            Kind::Norms,
            Kind::Starts,
            Kind::Rows,
            Kind::Checks,
            Kind::Nibbles,
        ];
        all.into_iter().find(|k| k.numbers() == (kind, level))
    }

    /// Returns the name for error messages.
    pub(crate) fn name(self) -> String {
        match self {
            Kind::Codes => "codes".to_owned(),
            Kind::Originals => "vectors".to_owned(),
            Kind::Links(level) => format!("links of level {level}"),
            Kind::Norms => "lengths".to_owned(),
            Kind::Starts => "starts of rows".to_owned(),
            Kind::Rows => "rows".to_owned(),
            Kind::Checks => "checksums".to_owned(),
            Kind::Nibbles => "nibbles".to_owned(),
        }
    }
}

/// Kind and position of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: Kind,
    pub(crate) bytes: Range<usize>,
}

/// Parameters of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub(crate) dim: usize,
    pub(crate) metric: Metric,
    pub(crate) originals: Originals,
    pub(crate) builder: Builder,
    pub(crate) m: usize,
    pub(crate) ef: usize,
    pub(crate) nodes: usize,
    pub(crate) scale: f32,
    pub(crate) sections: Vec<Section>,
    /// CRC-32 of the checksums.
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
            u32::from(self.originals == Originals::F16),
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

    /// Reads and checks the header. `file` is the size of the file in bytes. An error is the reason for users.
    pub(crate) fn read(page: &[u8], file: usize) -> Result<Self, String> {
        if page.len() < HEADER_BYTES || !page.starts_with(MAGIC) {
            return Err("the file is not a frozen graph".to_owned());
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
            originals: if field(3) == 1 { Originals::F16 } else { Originals::F32 },
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
