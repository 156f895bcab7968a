//! Reads rows of an Arrow IPC file. At most one batch is in memory.

use std::{fs::File, path::Path};

use arrow_array::{Array, FixedSizeListArray, Float32Array, RecordBatch, StringArray};
use arrow_ipc::reader::FileReader;

use super::{Row, other};
use turnwise_core::error::{IoContext, Result};

pub(super) fn each(path: &Path, row: Row<'_>) -> Result<()> {
    let file = File::open(path).at("open", path)?;
    let batches = FileReader::try_new_buffered(file, None).map_err(|e| other(path, e))?;
    for batch in batches {
        let batch = batch.map_err(|e| other(path, e))?;
        let (ids, lists, numbers) = columns(&batch).ok_or_else(|| other(path, "it has different columns"))?;
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
