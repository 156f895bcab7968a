//! The small JSON files of a model folder, read with the file, line and key in every complaint.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use turnwise_core::error::{Error, IoContext, Result};

/// A file that holds one JSON object.
#[derive(Debug, Clone, Default)]
pub struct Object {
    path: PathBuf,
    values: Map<String, Value>,
}

impl Object {
    /// Reads a file; `None` if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match parse::<Value>(path)? {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Object { path: path.to_owned(), values })),
            Some(_) => Err(Error::data(format!("{}: must hold one JSON object", path.display()))
                .with_hint("the file belongs to something else; fetch the model again")),
        }
    }

    /// Where it was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All keys and values.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The value of a key; `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|v| !v.is_null())
    }

    /// A whole number that is not negative.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |v| v.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// A whole number that must be there and not be 0.
    pub fn size(&self, key: &str) -> Result<usize> {
        match self.count(key)? {
            Some(n) if n > 0 => Ok(n),
            Some(_) => Err(self.wrong(format!("`{key}` is 0"))),
            None => Err(self.wrong(format!("`{key}` is missing"))),
        }
    }

    /// Any number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// True or false.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", Value::as_str)
    }

    /// A complaint about this file.
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
        convert(value).map(Some).ok_or_else(|| self.wrong(format!("`{key}` must be {kind}, and is {value}")))
    }
}

/// Reads and parses a JSON file; `None` if there is none.
pub fn parse<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.at("read", path)?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::data(format!("{}:{}: not the JSON it should be: {e}", path.display(), e.line()))
            .with_hint("the file is damaged or cut; fetch the model again")
    })
}
