//! Reading back files of vectors that were written here, row by row, so that their size does not matter.

mod arrow;
mod safetensors;

use std::path::Path;

use crate::cli::embeddings::Target;
use turnwise_core::error::{Error, Result};

/// Is given the id and the vector of each row.
pub(crate) type Row<'a> = &'a mut dyn FnMut(&str, &[f32]) -> Result<()>;

/// Gives every row of a file, in order.
pub(crate) fn each(path: &Path, target: Target, row: Row<'_>) -> Result<()> {
    match target {
        Target::Arrow => arrow::each(path, row),
        Target::Safetensors => safetensors::each(path, row),
        Target::Npy | Target::Jsonl => {
            Err(Error::Internal(format!("{} is written, and never read back", target.name())))
        }
    }
}

/// The error about a file that is not as it is written here.
fn other(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::data(format!("{} is not a file of vectors as turnwise writes them: {what}", path.display()))
}
