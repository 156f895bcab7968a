//! How an index is searched unasked, where `search tune --save` has found something better than what suits most.

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

/// What an index keeps of having been tuned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    schema: String,
    /// How its lists become one unless a request says otherwise.
    pub fusion: Fusion,
    /// By how many queries it was chosen.
    pub queries: usize,
    /// What mean average precision is to be expected of it, from 0 to 1.
    pub expected_map: f64,
    /// When.
    pub at: Time,
}

impl Tuning {
    /// The best of those that were tried, if it is expected to be better than what is done unasked.
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

    /// What an index keeps, if it keeps any.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        let path = place(root);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        let damaged = |what: String| {
            let hint = format!(
                "`turnwise search -i {} tune --forget` removes it, and `search tune FILE --save` makes it anew",
                root.display()
            );
            Error::corrupt(&path, what).with_hint(hint)
        };
        let tuning: Tuning =
            serde_json::from_slice(&text).map_err(|e| damaged(format!("it is unreadable: {e}")))?;
        if tuning.schema != SCHEMA {
            return Err(damaged(format!("it is of another form: `{}`", tuning.schema)));
        }
        tuning.fusion.check().map_err(|e| damaged(e.to_string()))?;
        Ok(Some(tuning))
    }

    /// Keeps it with an index, in one step.
    pub fn save(&self, root: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        text.push(b'\n');
        files::replace(&place(root), &text)
    }

    /// Removes what an index keeps; whether there was any.
    pub fn forget(root: &Path) -> Result<bool> {
        let path = place(root);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.at("remove", &path).map(|()| true),
        }
    }
}

fn place(root: &Path) -> PathBuf {
    root.join(NAME)
}

impl Searcher {
    /// How the lists of a request become one: as it says, or as the index was tuned, or as suits most.
    pub fn fusion(&self, request: &SearchRequest) -> Fusion {
        request.fusion.or(self.tuning.as_ref().map(|tuning| tuning.fusion)).unwrap_or_default()
    }

    /// What the index keeps of having been tuned.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }
}
