//! Manifest of a complete shard: a small file with a checksum, which is written after the data file. It contains a hash
//! of the keys of all rows, which shows whether the input of the shard has changed.

use std::{collections::HashSet, path::Path};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_index::{
    sealed,
    vectors::{Kind, Recipe, dialogue_key, utterance_key},
};

use crate::{shard::Shard, vector_files::VectorFileFormat};

/// Version of the file format that this build reads and writes.
pub(crate) const FORMAT: u32 = 1;

/// Manifest of a complete shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardManifest {
    /// Version of the file format.
    pub format: u32,
    /// Version of turnwise that wrote the manifest.
    pub turnwise: String,
    /// Number of this shard, and number of shards of the corpus.
    pub shard: Shard,
    /// Recipe of the vectors: the encoder, and the options that affect the vectors.
    pub recipe: Recipe,
    /// Number of utterance rows; `None` if utterances were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utterances: Option<u64>,
    /// Number of dialogue rows; `None` if dialogues were not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialogues: Option<u64>,
    /// Hash of the keys of all rows. The order of the rows and the choice of input files do not affect it.
    pub contents: String,
    /// The data file, which contains the rows.
    pub data: DataFile,
    /// Arguments of the command that created the shard, without `--shard` and `--out`.
    pub command: Vec<String>,
}

/// Data file of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// File name.
    pub file: String,
    /// File format.
    pub target: VectorFileFormat,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 hash of the content, in hexadecimal.
    pub blake3: String,
}

impl ShardManifest {
    /// Returns the number of rows of a kind, or `None` if this kind was not requested.
    pub(crate) fn rows(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        }
    }

    /// Returns the kinds of vectors in the shard: utterance vectors, dialogue vectors or both.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::ALL.into_iter().filter(|kind| self.rows(*kind).is_some())
    }

    /// Returns a description of why the rows of `other` cannot be mixed with the rows of this shard. Returns `None` if
    /// they can be mixed.
    pub(crate) fn conflict(&self, other: &ShardManifest) -> Option<String> {
        let names =
            |manifest: &ShardManifest| manifest.kinds().map(Kind::name).collect::<Vec<_>>().join(" and ");
        if self.kinds().ne(other.kinds()) {
            return Some(format!("has {}, but the others have {}", names(other), names(self)));
        }
        let what = self.recipe.conflict(&other.recipe, self.dialogues.is_some())?;
        Some(format!("is from a different encoder; the others have {what}"))
    }

    /// Returns whether the shard was encoded with these options. Does not compare the rows.
    pub(crate) fn was_made_with(&self, kinds: &[Kind], recipe: &Recipe, target: VectorFileFormat) -> bool {
        self.kinds().eq(kinds.iter().copied())
            && self.recipe.conflict(recipe, self.dialogues.is_some()).is_none()
            && self.data.target == target
    }

    /// Serializes the manifest, with a checksum.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        sealed::sealed(self).map(String::into_bytes)
    }

    /// Parses a manifest. Verifies the checksum, and that the name of the data file belongs to the shard of the
    /// manifest. `name` is the file name of the manifest, for error messages.
    pub(crate) fn read(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |path: &Path, what: String| Error::data(format!("{}: {what}", path.display()));
        let manifest: ShardManifest = sealed::unsealed(bytes, Path::new(name), FORMAT, damaged)?;
        // The data file will be read, and removed when the shard is replaced, so it must belong to this shard.
        let file = &manifest.data.file;
        match Shard::named(file) == Some(manifest.shard) && !file.contains(['/', '\\']) {
            true => Ok(manifest),
            false => {
                Err(Error::data(format!("{name}: `{file}` is not a data file of shard {}", manifest.shard)))
            }
        }
    }
}

/// Returns the id of a row in a data file, such as `utterances/5f3a…`.
pub(crate) fn row_id(kind: Kind, key: &IdKey) -> String {
    format!("{}/{key:?}", kind.name())
}

/// Parses the id of a row. Returns `None` if the id is malformed.
pub(crate) fn parse_row_id(id: &str) -> Option<(Kind, IdKey)> {
    let (kind, digits) = id.split_once('/')?;
    let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let key = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    Some((kind, IdKey(key)))
}

/// Returns the keys of a dialogue's rows of one kind: one key per utterance, or one key for the whole dialogue.
pub(crate) fn keys(kind: Kind, dialogue: &Dialogue) -> Vec<IdKey> {
    match kind {
        Kind::Utterances => dialogue.turns.iter().map(|turn| utterance_key(&turn.text)).collect(),
        Kind::Dialogues => vec![dialogue_key(dialogue)],
    }
}

/// Sets of the keys of all vectors in a shard, one set for each kind.
#[derive(Default)]
pub(crate) struct Contents {
    kinds: [HashSet<IdKey>; 2],
}

impl Contents {
    /// Adds a key. Returns whether it is new.
    pub(crate) fn add(&mut self, kind: Kind, key: IdKey) -> bool {
        self.kinds[kind as usize].insert(key)
    }

    /// Returns the number of distinct keys of a kind.
    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].len() as u64
    }

    /// Returns a hash of all keys. The order in which keys were added does not affect the hash.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for kind in Kind::ALL {
            let mut keys: Vec<&IdKey> = self.kinds[kind as usize].iter().collect();
            keys.sort_unstable();
            hasher.update(kind.name().as_bytes()).update(&(keys.len() as u64).to_le_bytes());
            for key in keys {
                hasher.update(&key.0);
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use turnwise_encoder::{ahead::Options, testing::HashEncoder, transformer::Tokens};

    /// Creates a manifest for tests. `salt` is the salt of its `HashEncoder`. Manifests with distinct salts have
    /// distinct recipes.
    pub(crate) fn manifest(shard: Shard, salt: u8) -> ShardManifest {
        let encoder = HashEncoder { salt, ..HashEncoder::default() };
        ShardManifest {
            format: FORMAT,
            turnwise: "test".to_owned(),
            shard,
            recipe: Recipe::of(&encoder, "test", "auto", &Tokens::default(), &Options::default()),
            utterances: Some(3),
            dialogues: None,
            contents: "0".to_owned(),
            data: DataFile {
                file: format!("{}-abc.arrow", shard.stem()),
                target: VectorFileFormat::Arrow,
                bytes: 5,
                blake3: "0".to_owned(),
            },
            command: ["encode", "in.jsonl"].map(str::to_owned).to_vec(),
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_only_if_it_is_sound() {
        let manifest = manifest(Shard { number: 1, of: 4 }, 0);
        let bytes = manifest.to_bytes().unwrap();
        assert_eq!(ShardManifest::read(&bytes, "x.json").unwrap(), manifest);
        for at in [0, bytes.len() / 2, bytes.len() - 3] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            assert!(ShardManifest::read(&bytes, "x.json").is_err(), "{at}");
        }
        assert!(ShardManifest::read(&bytes[..bytes.len() - 10], "x.json").is_err());
    }

    #[test]
    fn a_manifest_cannot_name_a_file_outside_its_folder() {
        for file in
            ["../shard-00001-of-00004-a.arrow", "shard-00001-of-00004/../../x", "shard-00002-of-00004-a"]
        {
            let mut manifest = manifest(Shard { number: 1, of: 4 }, 0);
            manifest.data.file = file.to_owned();
            let e = ShardManifest::read(&manifest.to_bytes().unwrap(), "x.json").unwrap_err();
            assert!(e.to_string().contains("is not a data file of shard 1/4"), "{e}");
        }
    }

    #[test]
    fn a_row_is_named_by_kind_and_key() {
        let key = IdKey::of("hello");
        for kind in Kind::ALL {
            assert_eq!(parse_row_id(&row_id(kind, &key)), Some((kind, key)));
        }
        for wrong in
            ["", "utterances", "utterances/12", "words/00000000000000000000000000000000", "dialogue#1"]
        {
            assert_eq!(parse_row_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order() {
        let of = |keys: &[(Kind, &str)]| {
            let mut contents = Contents::default();
            for (kind, text) in keys {
                contents.add(*kind, IdKey::of(text));
            }
            contents.digest()
        };
        let [u, d] = Kind::ALL;
        assert_eq!(of(&[(u, "a"), (u, "b"), (d, "a")]), of(&[(d, "a"), (u, "b"), (u, "a"), (u, "b")]));
        assert_ne!(of(&[(u, "a"), (u, "b")]), of(&[(u, "a"), (d, "b")]));
        assert_ne!(of(&[(u, "a")]), of(&[]));
    }
}
