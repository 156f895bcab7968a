//! Tuned search defaults of an index. `search tune --save` stores them in `tuning.json`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Searcher, Tuned,
    request::{Fusion, SearchRequest},
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_corpus::Time;

const NAME: &str = "tuning.json";
const SCHEMA: &str = "turnwise/tuning/1";

/// Tuned search defaults of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    schema: String,
    /// Fusion for requests that do not set a fusion.
    pub fusion: Fusion,
    /// Number of queries used for tuning.
    pub queries: usize,
    /// Expected mean average precision, from 0 to 1.
    pub expected_map: f64,
    /// Time of the tuning.
    pub at: Time,
}

impl Tuning {
    /// Returns the best tried fusion, if it is expected to be better than the current default.
    pub fn of(tuned: &Tuned) -> Option<Self> {
        let best = tuned.better()?;
        Some(Tuning {
            schema: SCHEMA.to_owned(),
            fusion: best.fusion,
            queries: tuned.queries,
            expected_map: tuned.expected.map,
            at: Time(jiff::Timestamp::now()),
        })
    }

    /// Reads the tuned defaults of an index. Returns `None` if there are none.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        let path = path_in(root);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        let damaged = |what: String| {
            let hint = format!(
                "`turnwise search -i {} tune --reset` removes it, and `search tune FILE --save` creates it again",
                root.display()
            );
            Error::corrupt(&path, what).with_hint(hint)
        };
        let tuning: Tuning =
            serde_json::from_slice(&text).map_err(|e| damaged(format!("it is unreadable: {e}")))?;
        if tuning.schema != SCHEMA {
            return Err(damaged(format!("unknown schema `{}`", tuning.schema)));
        }
        tuning.fusion.check().map_err(|e| damaged(e.to_string()))?;
        Ok(Some(tuning))
    }

    /// Saves the defaults to an index, atomically.
    pub fn save(&self, root: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        text.push(b'\n');
        files::replace(&path_in(root), &text)
    }

    /// Removes the tuned defaults of an index. Returns true if there were any.
    pub fn forget(root: &Path) -> Result<bool> {
        let path = path_in(root);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.at("remove", &path).map(|()| true),
        }
    }
}

fn path_in(root: &Path) -> PathBuf {
    root.join(NAME)
}

impl Searcher {
    /// Returns the fusion for a request: its own, else the tuned one of the index, else the built-in default.
    pub fn fusion(&self, request: &SearchRequest) -> Fusion {
        request.fusion.or(self.tuning.as_ref().map(|tuning| tuning.fusion)).unwrap_or_default()
    }

    /// Returns the tuned defaults of the index.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }
}
