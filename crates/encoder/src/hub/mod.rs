//! Models by name: in the Hugging Face cache, in the folder of imported models, or in any folder.
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

use std::{fs::File, io::Read, path::Path};

use sha2::{Digest, Sha256};
use turnwise_core::error::{IoContext, Result};

pub use cache::{Checked, Places, Record, Source};
pub use known::{KNOWN, Known, Spec};
pub use resolve::{Origin, Resolved, resolve};

/// Returns the SHA-256 of a file as 64 hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).at("open", path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).at("read", path)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// Formats bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
