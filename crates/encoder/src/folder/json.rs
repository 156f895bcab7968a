//! JSON files of a model folder. Error messages contain the file, the line and the key.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use turnwise_core::error::{Error, IoContext, Result};

/// A file with one JSON object.
#[derive(Debug, Clone, Default)]
pub struct Object {
    path: PathBuf,
    values: Map<String, Value>,
}

impl Object {
    /// Reads a file; `None` if it does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match parse::<Value>(path)? {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Object { path: path.to_owned(), values })),
            Some(_) => Err(Error::data(format!("{}: must contain one JSON object", path.display()))
                .with_hint("download the model again")),
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All keys and values.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns the value of a key; `null` counts as missing.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|v| !v.is_null())
    }

    /// Returns a non-negative integer.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |v| v.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// Returns a positive integer; fails if the key is missing.
    pub fn size(&self, key: &str) -> Result<usize> {
        match self.count(key)? {
            Some(n) if n > 0 => Ok(n),
            Some(_) => Err(self.wrong(format!("`{key}` is 0"))),
            None => Err(self.wrong(format!("`{key}` is missing"))),
        }
    }

    /// Returns a number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Returns a Boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Returns a string.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", Value::as_str)
    }

    /// Creates an error about this file.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::data(format!("{}: {what}", self.path.display()))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        kind: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| self.wrong(format!("`{key}` must be {kind}, but is {value}")))
    }
}

/// Reads and parses a JSON file; `None` if it does not exist.
pub fn parse<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.at("read", path)?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::data(format!("{}:{}: invalid JSON: {e}", path.display(), e.line()))
            .with_hint("the file is damaged or truncated; download the model again")
    })
}
