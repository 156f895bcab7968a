//! Parquet tables.
//!
//! A table with only plain columns is read like CSV, with one turn per row. A table with nested columns is read like
//! JSON lines, with one dialogue per row. The JSON format (such as `messages`) is detected.

use std::{
    fmt::Display,
    fs::File,
    io::{self, BufReader, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ::parquet::{
    basic::Repetition,
    file::{reader::FileReader, serialized_reader::SerializedFileReader},
    record::{Row, reader::RowIter},
    schema::types::Type,
};
use serde_json::Value;

use crate::formats::prelude::*;
use crate::formats::{self, csv};
use turnwise_core::error::caught;

/// Reason that is reported if the Parquet library panics on a damaged file.
const INCONSISTENT: &str = "its parts are inconsistent";

pub(super) static FORMAT: Format = Format {
    name: "parquet",
    about: "Parquet: one turn per row as in csv, or one dialogue per row with a list of turns as in jsonl, messages, sharegpt",
    // `PAR1` is the magic number at the start of a Parquet file.
    sniff: |probe| if probe.text.starts_with("PAR1") { Fit::Yes } else { Fit::No },
    read,
};

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let name = input.name;
    let path = input.path.ok_or_else(|| {
        Error::input(format!("{name}: Parquet cannot be read from a stream"))
            .with_hint("save it to a file and pass its path")
    })?;
    let file = File::open(&path).at("open", &path)?;
    let bytes = file.metadata().at("read", &path)?.len();
    let reader = caught(|| SerializedFileReader::new(file))
        .ok_or_else(|| broken(&name, &INCONSISTENT))?
        .map_err(|e| broken(&name, &e))?;
    let metadata = reader.metadata().file_metadata();
    let fields = metadata.schema().get_fields();
    let is_plain = |field: &Type| {
        let info = field.get_basic_info();
        field.is_primitive() && (!info.has_repetition() || info.repetition() != Repetition::REPEATED)
    };
    let is_flat = fields.iter().all(|field| is_plain(field));
    let columns: Vec<String> = fields.iter().map(|field| field.name().to_owned()).collect();
    let bytes_per_row = bytes / metadata.num_rows().max(1) as u64;
    let header = if is_flat { csv_line(columns.iter().map(|name| name.as_str().into())) } else { Vec::new() };
    let text = Text {
        rows: Some(reader.into_iter()),
        columns: is_flat.then(|| columns.clone()),
        line: Cursor::new(header),
        bytes_per_row,
        bytes_read: options.bytes_read.clone(),
    };
    let input = Input::from_stream(name, Some(path), Box::new(BufReader::with_capacity(1 << 16, text)))?;
    if is_flat {
        return csv::FORMAT.read(input, options);
    }
    match formats::sniff(&input.probe()) {
        Some((format, Fit::Maybe | Fit::Yes)) => format.read(input, options),
        _ => {
            let (name, columns) = (input.name, columns.join(", "));
            let message = format!(
                "{name}: the table has lists, but no format recognizes them; its columns are {columns}"
            );
            Err(Error::data(message).with_hint(
                "rename the list of turns to `messages`, `conversations` or `turns`, or convert the table to one turn \
                 per row",
            ))
        }
    }
}

fn broken(name: &str, e: &dyn Display) -> Error {
    Error::data(format!("{name}: this Parquet file cannot be read: {e}"))
}

/// Reader that converts the rows of a table to text, one row at a time.
struct Text {
    /// The rows that are not yet converted. `None` after the library has panicked.
    rows: Option<RowIter<'static>>,
    /// The columns of a table that is converted to CSV. `None` if the table is converted to JSON lines.
    columns: Option<Vec<String>>,
    line: Cursor<Vec<u8>>,
    /// Average size of a row in the file, in bytes.
    bytes_per_row: u64,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Text {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.line.position() == self.line.get_ref().len() as u64 {
            let Some(row) = self.next()? else { return Ok(0) };
            let line = match (&self.columns, row.to_json_value()) {
                (Some(columns), Value::Object(mut values)) => {
                    csv_line(columns.iter().map(|name| values.remove(name).unwrap_or_default()))
                }
                (_, value) => format!("{}\n", without_nulls(value)).into_bytes(),
            };
            self.line = Cursor::new(line);
            self.bytes_read.fetch_add(self.bytes_per_row, Ordering::Relaxed);
        }
        self.line.read(buffer)
    }
}

impl Text {
    fn next(&mut self) -> io::Result<Option<Row>> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        match caught(|| rows.next()) {
            Some(row) => row.transpose().map_err(io::Error::other),
            None => {
                // After a panic, the state of the iterator is undefined.
                self.rows = None;
                Err(io::Error::other(INCONSISTENT))
            }
        }
    }
}

/// Formats the cells of a row as a line of CSV.
fn csv_line(values: impl Iterator<Item = Value>) -> Vec<u8> {
    let cell = |value: Value| match value {
        Value::Null => String::new(),
        Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
        other => other.to_string(),
    };
    let mut line = values.map(cell).collect::<Vec<_>>().join(",").into_bytes();
    line.push(b'\n');
    line
}

/// Removes null fields from objects at any depth. Missing values of a table are null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ::parquet::{
        data_type::{ByteArray, ByteArrayType, Int32Type},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };

    use super::*;
    use crate::{Dialogue, formats::Problem};

    /// Writes a table of text columns. Each column has its texts, definition levels and repetition levels.
    fn write(path: &Path, schema: &str, columns: &[(&[&str], &[i16], &[i16])]) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for (texts, defined, repeated) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            let texts: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(*text)).collect();
            let levels = |levels: &[i16]| (!levels.is_empty()).then(|| levels.to_vec());
            let (defined, repeated) = (levels(defined), levels(repeated));
            column
                .typed::<ByteArrayType>()
                .write_batch(&texts, defined.as_deref(), repeated.as_deref())
                .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    fn read(path: &Path) -> Result<Vec<Result<Dialogue, Problem>>> {
        let input = Input::open(path)?;
        assert_eq!(formats::sniff(&input.probe()).unwrap().0.name, "parquet");
        Ok(FORMAT.read(input, &ReadOptions::default())?.collect())
    }

    const FLAT: &str = "message m { required binary session (UTF8); optional binary speaker (UTF8); required binary text (UTF8); }";

    #[test]
    fn a_table_of_turns_is_read_like_csv() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats.parquet");
        write(
            &path,
            FLAT,
            &[
                (&["a", "a", "b"], &[], &[]),
                (&["user", "agent"], &[1, 1, 0], &[]),
                (&["my \"card\", gone", "two\nlines", "hello"], &[], &[]),
            ],
        );
        let got: Vec<Dialogue> = read(&path).unwrap().into_iter().map(Result::unwrap).collect();
        let texts = |d: &Dialogue| d.turns.iter().map(|t| t.text.clone()).collect::<Vec<_>>();
        assert_eq!(
            (got[0].id.as_str(), texts(&got[0])),
            ("a", vec!["my \"card\", gone".into(), "two\nlines".into()])
        );
        assert_eq!((got[1].id.as_str(), got[1].turns[0].speaker.as_str()), ("b", ""));
        assert_eq!(got[0].turns[1].speaker, "agent");
    }

    #[test]
    fn a_table_with_lists_is_read_like_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats.parquet");
        let schema =
            "message m { required binary id (UTF8); required group messages (LIST) { repeated group list {
            required group element { required binary role (UTF8); required binary content (UTF8); } } } }";
        write(
            &path,
            schema,
            &[
                (&["a", "b"], &[], &[]),
                (&["user", "assistant", "user"], &[1, 1, 1], &[0, 1, 0]),
                (&["hi", "hello", "bye"], &[1, 1, 1], &[0, 1, 0]),
            ],
        );
        let got: Vec<Dialogue> = read(&path).unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!((got[0].id.as_str(), got[0].turns.len(), got[1].turns[0].text.as_str()), ("a", 2, "bye"));
    }

    #[test]
    fn damage_is_an_error_and_not_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats.parquet");
        write(
            &path,
            FLAT,
            &[
                (&["a", "a", "b"], &[], &[]),
                (&["user"], &[1, 0, 0], &[]),
                (&["one", "two", "three"], &[], &[]),
            ],
        );
        let good = std::fs::read(&path).unwrap();
        for at in 4..good.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= bits;
                std::fs::write(&path, &bad).unwrap();
                drop(read(&path));
            }
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(read(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn unreadable_tables_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats.parquet");
        write(&path, FLAT, &[(&["a"], &[], &[]), (&["user"], &[1], &[]), (&["x"], &[], &[])]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("this Parquet file cannot be read"));
        let schema = "message m { required binary id (UTF8); repeated int32 numbers; }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer =
            SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("a")], None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[1, 2], Some(&[1, 1]), Some(&[0, 1])).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let e = read(&path).unwrap_err();
        assert!(e.to_string().contains("its columns are id, numbers"), "{e}");
    }
}
