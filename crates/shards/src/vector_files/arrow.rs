//! Arrow IPC files with the columns `id` (utf8) and `embedding` (fixed-size list of f32). The schema
//! metadata describes the encoder.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_ipc::{reader::FileReader, writer::FileWriter};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::{PendingFile, RowCallback, VectorFileWriter, foreign_file};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_encoder::Vectors;

pub(super) struct Arrow {
    path: PathBuf,
    name: PendingFile,
    schema: SchemaRef,
    number: FieldRef,
    width: i32,
    out: FileWriter<BufWriter<File>>,
}

impl Arrow {
    pub(super) fn create(path: &Path, dim: usize, about: &BTreeMap<String, String>) -> Result<Self> {
        let width =
            i32::try_from(dim).map_err(|_| Error::Internal("too many dimensions for Arrow".into()))?;
        let number: FieldRef = Arc::new(Field::new("item", DataType::Float32, false));
        let fields = vec![
            Field::new("id", DataType::Utf8, false),
            Field::new("embedding", DataType::FixedSizeList(number.clone(), width), false),
        ];
        let about: HashMap<String, String> = about.clone().into_iter().collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, about));
        let (name, file) = PendingFile::create(path)?;
        let out = FileWriter::try_new(BufWriter::with_capacity(1 << 18, file), &schema)
            .map_err(|e| failed(path, e))?;
        Ok(Arrow { path: path.to_owned(), name, schema, number, width, out })
    }
}

fn failed(path: &Path, e: ArrowError) -> Error {
    match e {
        ArrowError::IoError(_, source) => Error::Io { action: "write", path: path.to_owned(), source },
        other => Error::Internal(format!("{}: {other}", path.display())),
    }
}

impl VectorFileWriter for Arrow {
    fn write(&mut self, ids: &[String], vectors: &Vectors) -> Result<()> {
        let numbers: ArrayRef = Arc::new(Float32Array::from(vectors.flat().to_vec()));
        let ids: ArrayRef = Arc::new(StringArray::from_iter_values(ids));
        let batch = FixedSizeListArray::try_new(self.number.clone(), self.width, numbers, None)
            .and_then(|rows| RecordBatch::try_new(self.schema.clone(), vec![ids, Arc::new(rows)]))
            .map_err(|e| failed(&self.path, e))?;
        self.out.write(&batch).map_err(|e| failed(&self.path, e))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Arrow { path, name, mut out, .. } = *self;
        out.finish().map_err(|e| failed(&path, e))?;
        let buffered = out.into_inner().map_err(|e| failed(&path, e))?;
        name.keep(buffered.into_inner().map_err(|e| e.into_error()).at("write", &path)?)
    }
}

/// Calls `row` for each row of a file, in order.
pub(super) fn read_rows(path: &Path, row: RowCallback<'_>) -> Result<()> {
    let file = File::open(path).at("open", path)?;
    let batches = FileReader::try_new_buffered(file, None).map_err(|e| foreign_file(path, e))?;
    for batch in batches {
        let batch = batch.map_err(|e| foreign_file(path, e))?;
        let (ids, lists, numbers) =
            columns(&batch).ok_or_else(|| foreign_file(path, "it has different columns"))?;
        let width = lists.value_length() as usize;
        for (at, vector) in numbers.values().chunks_exact(width.max(1)).enumerate().take(ids.len()) {
            row(ids.value(at), vector)?;
        }
    }
    Ok(())
}

fn columns(batch: &RecordBatch) -> Option<(&StringArray, &FixedSizeListArray, &Float32Array)> {
    let ids = batch.column_by_name("id")?.as_any().downcast_ref::<StringArray>()?;
    let lists = batch.column_by_name("embedding")?.as_any().downcast_ref::<FixedSizeListArray>()?;
    let numbers = lists.values().as_any().downcast_ref::<Float32Array>()?;
    Some((ids, lists, numbers))
}
