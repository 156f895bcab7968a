//! What says that a shard is there: a small sealed file, written after everything else of it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    cli::{embeddings::Target, shards::Shard},
    error::{Error, Result},
    index::{
        sealed,
        vectors::{Kind, Recipe},
    },
};

/// The version of the files' format that this build writes and reads.
pub(crate) const FORMAT: u32 = 1;

/// A shard that is complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    /// The turnwise that wrote it.
    pub(crate) turnwise: String,
    pub(crate) shard: Shard,
    /// What made the vectors.
    pub(crate) recipe: Recipe,
    /// Rows of utterances; `None` if none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) utterances: Option<u64>,
    /// Rows of dialogues, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dialogues: Option<u64>,
    /// A hash of the keys of all rows: what was encoded, whatever the order and the files it came from.
    pub(crate) contents: String,
    pub(crate) data: Data,
    /// The words of the command that made it, without the shard and the place.
    pub(crate) command: Vec<String>,
}

/// The file of a shard's rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    pub(crate) file: String,
    pub(crate) target: Target,
    pub(crate) bytes: u64,
    pub(crate) blake3: String,
}

impl Record {
    /// Rows of a kind; `None` if none were asked for.
    pub(crate) fn rows(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        }
    }

    /// The kinds that were asked for.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|kind| self.rows(*kind).is_some())
    }

    /// Why the rows of this one may not stand beside those of another; for people.
    pub(crate) fn conflict(&self, other: &Record) -> Option<String> {
        let names = |record: &Record| record.kinds().map(Kind::name).collect::<Vec<_>>().join(" and ");
        if self.kinds().ne(other.kinds()) {
            return Some(format!("has {}, and the others {}", names(other), names(self)));
        }
        let what = self.recipe.conflict(&other.recipe, self.dialogues.is_some())?;
        Some(format!("is of another encoder; the others hold {what}"))
    }

    /// Whether it was made as is asked for; its contents may still be others.
    pub(crate) fn is_made_by(&self, kinds: &[Kind], recipe: &Recipe, target: Target) -> bool {
        self.kinds().eq(kinds.iter().copied())
            && self.recipe.conflict(recipe, self.dialogues.is_some()).is_none()
            && self.data.target == target
    }

    /// The bytes of the record's file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        sealed::sealed(self).map(String::into_bytes)
    }

    pub(crate) fn read(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |path: &Path, what: String| Error::data(format!("{}: {what}", path.display()));
        sealed::unsealed(bytes, Path::new(name), FORMAT, damaged)
    }
}
