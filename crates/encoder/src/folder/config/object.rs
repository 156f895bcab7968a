//! JSON files that contain an object. Error messages name the file and the key, or the line of invalid JSON.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use turnwise_core::error::{Error, IoContext, Result};

/// JSON file that contains an object, such as `config.json`.
#[derive(Debug, Clone, Default)]
pub struct Object {
    path: PathBuf,
    pub values: Map<String, Value>,
}

impl Object {
    /// Reads a file. Returns `None` if the file does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match parse::<Value>(path)? {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Object { path: path.to_owned(), values })),
            Some(_) => Err(Error::data(format!("{}: must contain one JSON object", path.display()))
                .with_hint("download the model again")),
        }
    }

    /// Returns the value of a key; `None` if the key is missing or its value is `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|v| !v.is_null())
    }

    /// Returns the value of a key as a non-negative integer; `None` if the key is missing. Fails if the value has a
    /// different type.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |v| v.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// Returns the value of a key as a positive integer; `None` if the key is missing. Fails if the value is not a
    /// positive integer.
    pub fn positive(&self, key: &str) -> Result<Option<usize>> {
        match self.count(key)? {
            Some(0) => Err(self.wrong(format!("`{key}` is 0"))),
            count => Ok(count),
        }
    }

    /// Returns the value of a key as a positive integer. Fails if the key is missing or the value is not a positive
    /// integer.
    pub fn size(&self, key: &str) -> Result<usize> {
        self.positive(key)?.ok_or_else(|| self.wrong(format!("`{key}` is missing")))
    }

    /// Returns the value of a key as a number; `None` if the key is missing. Fails if the value has a different type.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Returns the value of a key as a Boolean; `None` if the key is missing. Fails if the value has a different type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Returns the value of a key as a string; `None` if the key is missing. Fails if the value has a different type.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", Value::as_str)
    }

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

/// Reads and parses a JSON file. Returns `None` if the file does not exist.
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
