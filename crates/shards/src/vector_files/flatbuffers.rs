//! Minimal writer and reader for FlatBuffers, the encoding of the metadata in Arrow files. All numbers are
//! little-endian.
//!
//! A table begins with the distance to its vtable. The vtable lists the position of each field within the table, or 0
//! for an absent field. A reference to a string, a vector or a table is the distance from the reference to the object.

use std::ops::Range;

/// Value of a field in a table.
pub(super) enum Value {
    /// Absent field. Readers use the default value of the field.
    Absent,
    /// Integer of any width, or Boolean.
    Number(i64),
    String(String),
    Table(Vec<Value>),
    /// Vector of tables, each with its fields.
    Tables(Vec<Vec<Value>>),
    /// Vector of structs of 64-bit numbers.
    Structs {
        count: usize,
        numbers: Vec<i64>,
    },
}

impl Value {
    /// Creates a vector of structs with `N` numbers each.
    pub(super) fn structs<const N: usize>(structs: &[[i64; N]]) -> Self {
        Value::Structs { count: structs.len(), numbers: structs.concat() }
    }
}

/// Encodes a flatbuffer. `root` contains the fields of its root table. The length of the result is a multiple of 8
/// bytes.
pub(super) fn encode(root: &[Value]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    write_table(&mut bytes, 0, root);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Appends a table. At position `reference`, writes the offset that points to the table. Every field takes 8 bytes, so
/// numbers of any width are aligned.
fn write_table(bytes: &mut Vec<u8>, reference: usize, fields: &[Value]) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let vtable = bytes.len();
    let field_offset = |index: usize| 8 + 8 * index;
    bytes.extend((4 + 2 * fields.len() as u16).to_le_bytes());
    bytes.extend((field_offset(fields.len()) as u16).to_le_bytes());
    for (index, field) in fields.iter().enumerate() {
        let offset = if matches!(field, Value::Absent) { 0 } else { field_offset(index) };
        bytes.extend((offset as u16).to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let table = bytes.len();
    refer_to_end(bytes, reference);
    bytes.extend(((table - vtable) as u64).to_le_bytes());
    for field in fields {
        bytes.extend(if let Value::Number(number) = field { number.to_le_bytes() } else { [0; 8] });
    }
    for (index, field) in fields.iter().enumerate() {
        write_object(bytes, table + field_offset(index), field);
    }
}

/// Appends a string, table or vector. At position `reference`, writes a reference to the appended object. Does nothing
/// for other values.
fn write_object(bytes: &mut Vec<u8>, reference: usize, value: &Value) {
    // A vector or string begins with its length. The elements after the length begin at a multiple of 8.
    let begin_vector = |bytes: &mut Vec<u8>, length: usize| {
        bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
        refer_to_end(bytes, reference);
        bytes.extend((length as u32).to_le_bytes());
    };
    match value {
        Value::Absent | Value::Number(_) => {}
        Value::String(text) => {
            begin_vector(bytes, text.len());
            bytes.extend(text.bytes());
            bytes.push(0);
        }
        Value::Table(fields) => write_table(bytes, reference, fields),
        Value::Tables(tables) => {
            begin_vector(bytes, tables.len());
            let first = bytes.len();
            bytes.resize(first + 4 * tables.len(), 0);
            for (index, fields) in tables.iter().enumerate() {
                write_table(bytes, first + 4 * index, fields);
            }
        }
        Value::Structs { count, numbers } => {
            begin_vector(bytes, *count);
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }
}

/// Writes a reference at position `reference`. It refers to the end of the buffer, where the caller will append the
/// object.
fn refer_to_end(bytes: &mut [u8], reference: usize) {
    let distance = (bytes.len() - reference) as u32;
    bytes[reference..reference + 4].copy_from_slice(&distance.to_le_bytes());
}

/// Table in a flatbuffer. Every access is checked, so reading a damaged buffer results in `None` or wrong values, but
/// never in a panic.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Table<'a> {
    /// Returns the root table of a flatbuffer, or `None` if the buffer is too short.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Some(Table { bytes, start: follow(bytes, 0)? })
    }

    /// Returns the position of a field in the buffer, or `None` if the field is absent.
    fn field(self, index: usize) -> Option<usize> {
        let distance = i64::from(i32::from_le_bytes(bytes_at(self.bytes, self.start)?));
        let vtable = usize::try_from(self.start as i64 - distance).ok()?;
        let entry = 4 + 2 * index;
        let vtable_size = u16::from_le_bytes(bytes_at(self.bytes, vtable)?);
        if entry + 2 > usize::from(vtable_size) {
            return None;
        }
        match u16::from_le_bytes(bytes_at(self.bytes, vtable + entry)?) {
            0 => None,
            offset => Some(self.start + usize::from(offset)),
        }
    }

    /// Returns whether the table has the field with this index.
    pub(super) fn has(self, index: usize) -> bool {
        self.field(index).is_some()
    }

    /// Returns the little-endian bytes of a number field; zeros if the field is absent.
    pub(super) fn number<const N: usize>(self, index: usize) -> [u8; N] {
        self.field(index).and_then(|at| bytes_at(self.bytes, at)).unwrap_or([0; N])
    }

    /// Returns the table that a field refers to, or `None` if the field is absent or damaged.
    pub(super) fn table(self, index: usize) -> Option<Self> {
        Some(Table { start: follow(self.bytes, self.field(index)?)?, ..self })
    }

    /// Returns the text of a string field, or `None` if the field is absent or damaged.
    pub(super) fn string(self, index: usize) -> Option<&'a str> {
        std::str::from_utf8(&self.bytes[self.vector(index, 1)?]).ok()
    }

    /// Returns the tables in a vector field, or `None` if the field is absent or damaged.
    pub(super) fn tables(self, index: usize) -> Option<Vec<Self>> {
        let references = self.vector(index, 4)?.step_by(4);
        references.map(|at| Some(Table { start: follow(self.bytes, at)?, ..self })).collect()
    }

    /// Returns the structs in a vector field, or `None` if the field is absent or damaged. Each struct has `N` 64-bit
    /// numbers.
    pub(super) fn structs<const N: usize>(self, index: usize) -> Option<Vec<[i64; N]>> {
        let (numbers, _) = self.bytes[self.vector(index, 8 * N)?].as_chunks();
        let numbers: Vec<i64> = numbers.iter().map(|number| i64::from_le_bytes(*number)).collect();
        Some(numbers.as_chunks().0.to_vec())
    }

    /// Returns the byte range of the elements of a vector field. Each element has `size` bytes. Returns `None` if the
    /// field is absent or the range ends outside the buffer.
    fn vector(self, index: usize, size: usize) -> Option<Range<usize>> {
        let start = follow(self.bytes, self.field(index)?)?;
        let length = u32::from_le_bytes(bytes_at(self.bytes, start)?) as usize;
        let end = length.checked_mul(size)?.checked_add(start + 4)?;
        (end <= self.bytes.len()).then_some(start + 4..end)
    }
}

/// Reads the reference at position `reference`. Returns the position of the object to which it refers.
fn follow(bytes: &[u8], reference: usize) -> Option<usize> {
    reference.checked_add(u32::from_le_bytes(bytes_at(bytes, reference)?) as usize)
}

/// Returns the `N` bytes at position `at`, or `None` if the buffer is too short.
pub(super) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
