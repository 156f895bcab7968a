//! Record of a complete shard: a small checksummed file, written after the data file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::{embeddings::Target, shards::Shard};
use turnwise_core::error::{Error, Result};
use turnwise_index::{
    sealed,
    vectors::{Kind, Recipe},
};

/// Version of the file format that this build reads and writes.
pub(crate) const FORMAT: u32 = 1;

/// Record of a complete shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    /// Version of turnwise that wrote the record.
    pub(crate) turnwise: String,
    pub(crate) shard: Shard,
    /// Recipe of the vectors.
    pub(crate) recipe: Recipe,
    /// Number of utterance rows; `None` if utterances were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) utterances: Option<u64>,
    /// Number of dialogue rows; `None` if dialogues were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dialogues: Option<u64>,
    /// Hash of the keys of all rows. It does not depend on the order or on the input files.
    pub(crate) contents: String,
    pub(crate) data: Data,
    /// Arguments of the command that created the shard, without `--shard` and `--out`.
    pub(crate) command: Vec<String>,
}

/// Data file of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    pub(crate) file: String,
    pub(crate) target: Target,
    pub(crate) bytes: u64,
    pub(crate) blake3: String,
}

impl Record {
    /// Number of rows of a kind; `None` if it was not requested.
    pub(crate) fn rows(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        }
    }

    /// The kinds that were requested.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|kind| self.rows(*kind).is_some())
    }

    /// Describes why the rows of `other` cannot be mixed with the rows of this shard; `None` if they can.
    pub(crate) fn conflict(&self, other: &Record) -> Option<String> {
        let names = |record: &Record| record.kinds().map(Kind::name).collect::<Vec<_>>().join(" and ");
        if self.kinds().ne(other.kinds()) {
            return Some(format!("has {}, but the others have {}", names(other), names(self)));
        }
        let what = self.recipe.conflict(&other.recipe, self.dialogues.is_some())?;
        Some(format!("is from a different encoder; the others have {what}"))
    }

    /// Whether the shard was made with these options. Its contents may still differ.
    pub(crate) fn was_made_with(&self, kinds: &[Kind], recipe: &Recipe, target: Target) -> bool {
        self.kinds().eq(kinds.iter().copied())
            && self.recipe.conflict(recipe, self.dialogues.is_some()).is_none()
            && self.data.target == target
    }

    /// Serializes the record.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        sealed::sealed(self).map(String::into_bytes)
    }

    /// Reads a record. Checks that it belongs to the file with this name.
    pub(crate) fn read(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |path: &Path, what: String| Error::data(format!("{}: {what}", path.display()));
        let record: Record = sealed::unsealed(bytes, Path::new(name), FORMAT, damaged)?;
        // The named file is read, and removed on replacement, so it must be a data file of this shard.
        let file = &record.data.file;
        match Shard::named(file) == Some(record.shard) && !file.contains(['/', '\\']) {
            true => Ok(record),
            false => {
                Err(Error::data(format!("{name}: `{file}` is not a data file of shard {}", record.shard)))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use turnwise_encoder::{ahead::Options, testing::HashEncoder, transformer::Tokens};

    /// A test record of a shard, by the encoder with this salt.
    pub(in crate::cli::shards) fn record(shard: Shard, salt: u8) -> Record {
        let encoder = HashEncoder { salt, ..HashEncoder::default() };
        Record {
            format: FORMAT,
            turnwise: "test".to_owned(),
            shard,
            recipe: Recipe::of(&encoder, "test", "auto", &Tokens::default(), &Options::default()),
            utterances: Some(3),
            dialogues: None,
            contents: "0".to_owned(),
            data: Data {
                file: format!("{}-abc.arrow", shard.stem()),
                target: Target::Arrow,
                bytes: 5,
                blake3: "0".to_owned(),
            },
            command: ["encode", "in.jsonl"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_only_if_it_is_sound() {
        let record = record(Shard { number: 1, of: 4 }, 0);
        let bytes = record.to_bytes().unwrap();
        assert_eq!(Record::read(&bytes, "x.json").unwrap(), record);
        for at in [0, bytes.len() / 2, bytes.len() - 3] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            assert!(Record::read(&bytes, "x.json").is_err(), "{at}");
        }
        assert!(Record::read(&bytes[..bytes.len() - 10], "x.json").is_err());
    }

    #[test]
    fn a_record_cannot_name_a_file_outside_its_place() {
        for file in
            ["../shard-00001-of-00004-a.arrow", "shard-00001-of-00004/../../x", "shard-00002-of-00004-a"]
        {
            let mut record = record(Shard { number: 1, of: 4 }, 0);
            record.data.file = file.to_owned();
            let e = Record::read(&record.to_bytes().unwrap(), "x.json").unwrap_err();
            assert!(e.to_string().contains("is not a data file of shard 1/4"), "{e}");
        }
    }
}
