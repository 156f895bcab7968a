//! Arrow IPC files with the columns `id` (`Utf8`) and `embedding` (`FixedSizeList` of `Float32`). The schema metadata
//! describes the encoder. Values are never null; dictionaries and compression are not used.
//!
//! A file begins and ends with the magic bytes `ARROW1`. Between them are messages (the schema, then record batches),
//! and a footer with the schema and the positions of the record batches. The code refers to fields of the metadata
//! tables by number. These numbers follow `Schema.fbs`, `Message.fbs` and `File.fbs` of Apache Arrow.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use super::{
    PendingFile, RowCallback, VectorFileWriter, bytes_of,
    flatbuffers::{Table, Value, bytes_at, encode},
    foreign_file,
};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_encoder::Vectors;

const MAGIC: &[u8; 6] = b"ARROW1";

/// Bytes at the beginning of each message, before the length of its metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Value of `MetadataVersion::V5`, the format version that turnwise writes. Version 4 is read, too, because it differs
/// only in types that vector files do not use.
const VERSION_5: i16 = 4;

/// Value of `Endianness::Little`, the byte order of the files.
const LITTLE_ENDIAN: i16 = 0;

/// Type number of `Schema` in the union `MessageHeader`.
const SCHEMA: u8 = 1;
/// Type number of `RecordBatch` in the union `MessageHeader`.
const RECORD_BATCH: u8 = 3;

/// Type number of `FloatingPoint` in the union `Type`.
const FLOATING_POINT: u8 = 3;
/// Type number of `Utf8` in the union `Type`.
const UTF8: u8 = 5;
/// Type number of `FixedSizeList` in the union `Type`.
const FIXED_SIZE_LIST: u8 = 16;

/// Value of `Precision::SINGLE`, the precision of 32-bit floats.
const SINGLE: i16 = 1;

pub(super) struct Arrow {
    file: PendingFile,
    width: i32,
    about: BTreeMap<String, String>,
    /// Number of bytes written so far, including padding.
    end: usize,
    /// Position, metadata length and body length of each record batch, for the footer.
    blocks: Vec<[i64; 3]>,
}

impl Arrow {
    pub(super) fn create(path: &Path, dim: usize, about: &BTreeMap<String, String>) -> Result<Self> {
        let width =
            i32::try_from(dim).map_err(|_| Error::Internal("too many dimensions for Arrow".into()))?;
        let file = PendingFile::create(path)?;
        let mut arrow = Arrow { file, width, about: about.clone(), end: 0, blocks: Vec::new() };
        arrow.append(MAGIC)?;
        arrow.message(SCHEMA, schema(width, about), 0)?;
        Ok(arrow)
    }

    /// Appends bytes, then zeros up to a multiple of 8 bytes.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let padding = bytes.len().next_multiple_of(8) - bytes.len();
        self.end += bytes.len() + padding;
        self.file.write(bytes)?;
        self.file.write(&[0; 8][..padding])
    }

    /// Appends the metadata of a message and returns the length of the metadata. The caller must append the body, which
    /// has `body_length` bytes.
    fn message(&mut self, header_type: u8, header: Vec<Value>, body_length: i64) -> Result<i64> {
        let message = encode(&[
            Value::Number(VERSION_5.into()),
            Value::Number(header_type.into()),
            Value::Table(header),
            Value::Number(body_length),
        ]);
        let begin = [CONTINUATION, (message.len() as u32).to_le_bytes()].concat();
        self.append(&begin)?;
        self.append(&message)?;
        Ok((begin.len() + message.len()) as i64)
    }
}

/// Returns the fields of the metadata table `Schema`.
fn schema(width: i32, about: &BTreeMap<String, String>) -> Vec<Value> {
    // The fields of a `Field`: name, nullable, type, dictionary, children.
    let column = |name: &str, kind: u8, parameters: Vec<Value>, children: Vec<Vec<Value>>| {
        vec![
            Value::String(name.to_owned()),
            Value::Number(0),
            Value::Number(kind.into()),
            Value::Table(parameters),
            Value::Absent,
            Value::Tables(children),
        ]
    };
    let item = column("item", FLOATING_POINT, vec![Value::Number(SINGLE.into())], Vec::new());
    let list = vec![Value::Number(width.into())];
    let columns = vec![
        column("id", UTF8, Vec::new(), Vec::new()),
        column("embedding", FIXED_SIZE_LIST, list, vec![item]),
    ];
    let about =
        about.iter().map(|(key, value)| vec![Value::String(key.clone()), Value::String(value.clone())]);
    vec![Value::Number(LITTLE_ENDIAN.into()), Value::Tables(columns), Value::Tables(about.collect())]
}

impl VectorFileWriter for Arrow {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        let rows = ids.len();
        let numbers = bytes_of(vectors);
        let text = ids.concat();
        if numbers.len() != rows * self.width as usize * 4 || i32::try_from(text.len()).is_err() {
            return Err(Error::Internal(format!("{}: invalid batch of vectors", self.file.path.display())));
        }
        let mut offsets = vec![0; 4];
        let mut end = 0;
        for id in ids {
            end += id.len() as u32;
            offsets.extend(end.to_le_bytes());
        }
        // Buffers of `id`: validity, offsets and data. Buffers of `embedding`: validity. Buffers of `item`: validity
        // and data. The validity buffers are empty, because there are no null values.
        let mut body_length = 0;
        let buffers = [&[], &offsets[..], text.as_bytes(), &[], &[], &numbers].map(|buffer: &[u8]| {
            let start = body_length;
            body_length += buffer.len().next_multiple_of(8) as i64;
            [start, buffer.len() as i64]
        });
        // Each `FieldNode` has a number of values and a number of nulls.
        let nodes = [rows, rows, numbers.len() / 4].map(|values| [values as i64, 0]);
        let header = vec![Value::Number(rows as i64), Value::structs(&nodes), Value::structs(&buffers)];
        let start = self.end as i64;
        let metadata_length = self.message(RECORD_BATCH, header, body_length)?;
        self.blocks.push([start, metadata_length, body_length]);
        [&offsets, text.as_bytes(), &numbers].into_iter().try_for_each(|buffer| self.append(buffer))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let no_dictionaries = Value::structs::<3>(&[]);
        let footer = encode(&[
            Value::Number(VERSION_5.into()),
            Value::Table(schema(self.width, &self.about)),
            no_dictionaries,
            Value::structs(&self.blocks),
        ]);
        // A message without metadata marks the end of the messages.
        self.append(&[CONTINUATION, [0; 4]].concat())?;
        self.append(&footer)?;
        self.file.write(&[&(footer.len() as u32).to_le_bytes(), &MAGIC[..]].concat())?;
        self.file.keep()
    }
}

/// Reason why a file cannot be read, for the error message.
type Refused = &'static str;

const DAMAGED: Refused = "it is damaged";

/// Calls `row` for each row of a file, in order.
pub(super) fn read_rows(path: &Path, row: RowCallback<'_>) -> Result<()> {
    let refused = |why: Refused| foreign_file(path, why);
    let mut file = File::open(path).at("open", path)?;
    let length = file.metadata().at("read", path)?.len() as i64;
    // Check that the range is within the file before allocating a buffer, because a damaged file can contain huge
    // lengths.
    let mut read = |start: i64, count: i64| {
        if start < 0 || count < 0 || start.checked_add(count).is_none_or(|end| end > length) {
            return Err(refused(DAMAGED));
        }
        let mut bytes = vec![0; count as usize];
        file.seek(SeekFrom::Start(start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .at("read", path)?;
        Ok(bytes)
    };
    // The file ends with the length of the footer and the magic bytes.
    let end = read(length - 10, 10)?;
    if read(0, 6)? != MAGIC || !end.ends_with(MAGIC) {
        return Err(refused("it is not a complete Arrow file"));
    }
    let footer_length = i64::from(i32::from_le_bytes(bytes_at(&end, 0).unwrap_or_default()));
    let footer = read(length - 10 - footer_length, footer_length)?;
    let (width, blocks) = parse_footer(&footer).map_err(refused)?;
    let mut vector = Vec::new();
    for [start, metadata_length, body_length] in blocks {
        // The length of the metadata is a 32-bit number followed by padding.
        let metadata_length = i64::from(metadata_length as i32);
        let metadata = read(start, metadata_length)?;
        let body = read(start + metadata_length, body_length)?;
        let Batch { offsets, text, numbers } = Batch::parse(&metadata, &body, width).map_err(refused)?;
        for (offsets, numbers) in offsets.windows(2).zip(numbers.chunks_exact(width)) {
            let [from, to] = [offsets[0], offsets[1]].map(|offset| u32::from_le_bytes(offset) as usize);
            let id = text.get(from..to).and_then(|id| std::str::from_utf8(id).ok());
            vector.clear();
            vector.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
            row(id.ok_or_else(|| refused(DAMAGED))?, &vector)?;
        }
    }
    Ok(())
}

/// Checks the schema in the footer. Returns the number of dimensions, and the position, metadata length and body length
/// of each record batch.
fn parse_footer(bytes: &[u8]) -> Result<(usize, Vec<[i64; 3]>), Refused> {
    const OTHER_COLUMNS: Refused = "it has different columns";
    let footer = Table::root(bytes).ok_or(DAMAGED)?;
    let schema = footer.table(1).ok_or(DAMAGED)?;
    let is_supported = (VERSION_5 - 1..=VERSION_5).contains(&i16::from_le_bytes(footer.number(0)));
    if !is_supported || schema.number(0) != LITTLE_ENDIAN.to_le_bytes() {
        return Err("its version or byte order is not supported");
    }
    let [id, embedding] = schema.tables(1).ok_or(DAMAGED)?[..] else { return Err(OTHER_COLUMNS) };
    let [item] = embedding.tables(5).ok_or(OTHER_COLUMNS)?[..] else { return Err(OTHER_COLUMNS) };
    if [id, embedding, item].iter().any(|field| field.has(4)) {
        return Err("it has dictionaries");
    }
    let kinds = [id, embedding, item].map(|field| u8::from_le_bytes(field.number(2)));
    let precision = item.table(3).map_or(0, |parameters| i16::from_le_bytes(parameters.number(0)));
    let width = embedding.table(3).map_or(0, |parameters| i32::from_le_bytes(parameters.number(0)));
    let is_ours = [id.string(0), embedding.string(0)] == [Some("id"), Some("embedding")]
        && kinds == [UTF8, FIXED_SIZE_LIST, FLOATING_POINT]
        && precision == SINGLE
        && width > 0;
    if !is_ours {
        return Err(OTHER_COLUMNS);
    }
    Ok((width as usize, footer.structs(3).ok_or(DAMAGED)?))
}

/// Columns of a record batch.
struct Batch<'a> {
    /// Positions in `text` where the ids begin, and where the last id ends.
    offsets: &'a [[u8; 4]],
    text: &'a [u8],
    numbers: &'a [[u8; 4]],
}

impl<'a> Batch<'a> {
    fn parse(metadata: &[u8], body: &'a [u8], width: usize) -> Result<Self, Refused> {
        let message = metadata.strip_prefix(&CONTINUATION).and_then(|rest| Table::root(rest.get(4..)?));
        let message = message.filter(|message| message.number(1) == [RECORD_BATCH]).ok_or(DAMAGED)?;
        let header = message.table(2).ok_or(DAMAGED)?;
        if header.has(3) {
            return Err("its record batches are compressed");
        }
        let nodes = header.structs::<2>(1).ok_or(DAMAGED)?;
        if nodes.iter().any(|[_, nulls]| *nulls != 0) {
            return Err("it has null values");
        }
        let rows = usize::try_from(i64::from_le_bytes(header.number(0))).map_err(|_| DAMAGED)?;
        let buffers = header.structs(2).ok_or(DAMAGED)?;
        Batch::slice(body, rows, width, &buffers).ok_or(DAMAGED)
    }

    /// Finds the buffers of the columns in the body of a record batch. Returns `None` if they are too short for the
    /// rows.
    fn slice(body: &'a [u8], rows: usize, width: usize, buffers: &[[i64; 2]]) -> Option<Self> {
        let &[_, offsets, text, _, _, numbers] = buffers else { return None };
        let slice = |[start, length]: [i64; 2]| {
            body.get(usize::try_from(start).ok()?..)?.get(..usize::try_from(length).ok()?)
        };
        // A record batch without rows may have an empty buffer of offsets.
        let offset_count = if rows == 0 { 0 } else { rows.checked_add(1)? };
        Some(Batch {
            offsets: slice(offsets)?.as_chunks().0.get(..offset_count)?,
            text: slice(text)?,
            numbers: slice(numbers)?.as_chunks().0.get(..rows.checked_mul(width)?)?,
        })
    }
}
