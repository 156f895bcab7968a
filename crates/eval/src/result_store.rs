//! Result files: JSON with a `schema` key that identifies the format.

use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Reads a result file. Fails if its schema differs from `schema`.
pub fn read<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<T> {
    let bytes = std::fs::read(path).at("read", path)?;
    let wrong = |why: String| Error::Data {
        message: format!("{} is not a result of `turnwise bench`: {why}", path.display()),
        hint: Some("`turnwise bench` writes such files into its results folder".to_owned()),
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(found) if found == schema => serde_json::from_value(value).map_err(|e| wrong(e.to_string())),
        Some(found) => Err(wrong(format!("its schema is {found}, not {schema}"))),
        None => Err(wrong("it has no schema".to_owned())),
    }
}

/// Writes a result file atomically and creates its folder if necessary.
pub fn write<T: Serialize>(path: &Path, result: &T) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).at("create", folder)?;
    }
    let bytes = serde_json::to_vec_pretty(result).map_err(|e| Error::Internal(e.to_string()))?;
    files::replace(path, &bytes)
}
