//! Small JSON files with a format version and a checksum. They are always replaced as a whole.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Text between the content and the checksum. The checksum covers all bytes before this text.
const SEAL: &str = "\"crc32\": \"";

pub(super) fn write<T: Serialize>(path: &Path, content: &T) -> Result<()> {
    files::replace(path, sealed(content)?.as_bytes())
}

/// Returns the text of a sealed file: JSON with `content` and its checksum.
pub fn sealed<T: Serialize>(content: &T) -> Result<String> {
    let content = serde_json::to_string_pretty(content).map_err(|e| Error::Internal(e.to_string()))?;
    let mut text = format!("{{\n\"content\": {content},\n");
    let crc = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("{SEAL}{crc:08x}\"\n}}\n"));
    Ok(text)
}

/// Reads a JSON file written by [`write`], and checks its checksum and its format version. `damaged` creates the
/// error for a missing or damaged file.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    format: u32,
    damaged: fn(&Path, String) -> Error,
) -> Result<T> {
    match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(damaged(path, "this file is missing".to_owned()))
        }
        text => unsealed(&text.at("read", path)?, path, format, damaged),
    }
}

/// Parses the text of a sealed file, and checks its checksum and its format version. `path` is used in errors only.
/// `damaged` creates the error for a damaged file.
pub fn unsealed<T: DeserializeOwned>(
    text: &[u8],
    path: &Path,
    format: u32,
    damaged: fn(&Path, String) -> Error,
) -> Result<T> {
    #[derive(Deserialize)]
    struct Sealed<T> {
        content: T,
    }
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let seal = memchr::memmem::rfind(text, SEAL.as_bytes()).map(|at| text.split_at(at));
    let is_sealed = |(covered, seal): (&[u8], &[u8])| {
        seal == format!("{SEAL}{:08x}\"\n}}\n", crc32fast::hash(covered)).as_bytes()
    };
    if !seal.is_some_and(is_sealed) {
        return Err(damaged(path, "its checksum is wrong".to_owned()));
    }
    let unreadable = |e: serde_json::Error| damaged(path, format!("it is unreadable: {e}"));
    // Check the version first: another version may have other fields.
    let version: Sealed<Version> = serde_json::from_slice(text).map_err(unreadable)?;
    let found = version.content.format;
    if found != format {
        return Err(Error::FormatVersion { path: path.to_owned(), found, supported: format });
    }
    let sealed: Sealed<T> = serde_json::from_slice(text).map_err(unreadable)?;
    Ok(sealed.content)
}
