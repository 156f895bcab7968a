//! Getting models: by name from the cache, from the folder of imports, or from any folder.
//!
//! [`resolve()`] says where a model lies and never touches the network. What does is behind the feature `pull`, in
//! the module of that name: it fills the cache, and nothing else does. The cache has the layout of the Hugging Face libraries, so
//! that a model which Python has fetched is found here, and the other way round.

pub mod cache;
pub mod files;
pub mod import;
pub mod known;
pub mod list;
pub mod places;
#[cfg(feature = "pull")]
pub mod pull;
pub mod record;
pub mod resolve;
pub mod spec;

pub use known::{KNOWN, Known};
pub use places::Places;
pub use record::{Checked, Record};
pub use resolve::{Origin, Resolved, resolve};
pub use spec::Spec;

use std::{fs::File, io::Read, path::Path};

use sha2::{Digest, Sha256};

use turnwise_core::error::{IoContext, Result};

/// The SHA-256 of a file, as 64 hexadecimal digits.
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

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
