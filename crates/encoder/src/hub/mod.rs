//! Finds models in the Hugging Face cache, among the imported models, or in any other folder.
//!
//! [`resolve()`] finds the folder of a model without network access. Only the module `pull` (feature `pull`)
//! downloads models and writes to the cache. The cache has the layout of the Hugging Face libraries, so
//! turnwise and Python share downloaded models.

pub mod cache;
pub mod files;
pub mod import;
pub mod known;
pub mod list;
#[cfg(feature = "pull")]
pub mod pull;
pub mod resolve;

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::Path,
};

use sha2::{Digest, Sha256};
use turnwise_core::error::{Error, IoContext, Result};

pub use cache::{Checked, Places, Record, Source};
pub use known::{KNOWN, Known, Spec};
pub use resolve::{Origin, Resolved, resolve};

/// Returns the SHA-256 of a file as 64 hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String> {
    let file = File::open(path).at("open", path)?;
    let mut hasher = Sha256::new();
    io::copy(&mut BufReader::with_capacity(1 << 18, file), &mut hasher).at("read", path)?;
    Ok(hex(&hasher.finalize()))
}

/// Formats bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Hint for errors about a folder or repository that lacks files of a supported model.
const SUPPORTED: &str = "turnwise supports transformers and static embeddings in the Hugging Face layout";

/// Hint for models whose weights are only in ONNX format.
pub(crate) const ONNX: &str = "turnwise reads safetensors; use the model from which it was exported, which its description \
                               usually names";

/// Creates the error for a model in which a file is missing.
fn incomplete(model: &str, file: &str) -> Error {
    Error::data(format!("{model} is incomplete: {file} is missing")).with_hint(SUPPORTED)
}

/// Returns the names of the files and folders in a folder, but skips names that are not UTF-8. Returns no names if the
/// folder cannot be read.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
