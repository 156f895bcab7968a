//! Reads back vector files written by turnwise, row by row and with bounded memory.

mod arrow;
mod safetensors;

use std::path::Path;

use crate::cli::embeddings::Target;
use turnwise_core::error::{Error, Result};

/// Callback for the id and the vector of each row.
pub(crate) type Row<'a> = &'a mut dyn FnMut(&str, &[f32]) -> Result<()>;

/// Calls the callback for every row of a file, in order.
pub(crate) fn each(path: &Path, target: Target, row: Row<'_>) -> Result<()> {
    match target {
        Target::Arrow => arrow::each(path, row),
        Target::Safetensors => safetensors::each(path, row),
        Target::Npy | Target::Jsonl => {
            Err(Error::Internal(format!("{} files cannot be read back", target.name())))
        }
    }
}

/// Error for a file that turnwise did not write.
fn other(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::data(format!("{} is not a vector file written by turnwise: {what}", path.display()))
}
