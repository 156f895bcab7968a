//! Vector sets and their manifests: finds the set in use, creates new sets and switches between sets.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{sealed, vectors::Kind};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_encoder::{
    DialogueMode, DialoguePooling, Encoder, Fingerprint, ahead::Options, transformer::Tokens,
};
use turnwise_store::{Position, Snapshot};

const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";
const CURRENT: &str = "current.json";

#[derive(Serialize, Deserialize)]
struct Current {
    format: u32,
    set: String,
}

pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("vectors")
}

/// Returns true if an index has vectors, even if they are damaged. If `current.json` is missing, sets without rows do
/// not count.
pub fn exists(root: &Path) -> bool {
    let counts = |set: &PathBuf| {
        set.join(NAME).exists() && Manifest::read(set).map_or(true, |manifest| manifest.rows() > 0)
    };
    folder(root).join(CURRENT).exists() || all(root).iter().any(counts)
}

/// Returns the error for a damaged file, with a hint about repairing vectors.
pub(super) fn damaged(path: impl Into<PathBuf>, what: impl Into<String>) -> Error {
    Error::corrupt(path, what).with_hint(
        "`turnwise repair` keeps the undamaged vectors; `turnwise encode` then encodes the rest again",
    )
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    sealed::read(path, FORMAT, |path, what| damaged(path, what))
}

/// Returns the folder of the set in use; `None` if there are no vectors.
pub(super) fn current(root: &Path) -> Result<Option<PathBuf>> {
    if !exists(root) {
        return Ok(None);
    }
    let path = folder(root).join(CURRENT);
    let current: Current = read(&path)?;
    if current.set.is_empty() || current.set.contains(['/', '\\', '.']) {
        return Err(damaged(path, format!("`{}` is not a valid set name", current.set)));
    }
    Ok(Some(folder(root).join(current.set)))
}

pub(super) fn switch(root: &Path, set: &Path) -> Result<()> {
    let name = set.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    sealed::write(&folder(root).join(CURRENT), &Current { format: FORMAT, set: name })
}

/// Returns all sets, in use or not, sorted by name.
pub(super) fn all(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder(root)) else { return Vec::new() };
    let mut sets: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    sets.sort();
    sets
}

/// Creates an empty set, and returns its folder.
pub(super) fn create(root: &Path, manifest: &Manifest) -> Result<PathBuf> {
    let parent = folder(root);
    fs::create_dir_all(&parent).at("create", &parent)?;
    let prefix = manifest.recipe.fingerprint.to_string()[..16].to_owned();
    for n in 1.. {
        let set = parent.join(format!("{prefix}-{n}"));
        match fs::create_dir(&set) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            other => other.at("create", &set)?,
        }
        manifest.write(&set)?;
        files::sync_folder(&parent)?;
        return Ok(set);
    }
    Err(Error::Internal("no free name for a set of vectors".into()))
}

/// Returns an unfinished replacement: a set with this recipe that is not in use and was not created by compaction.
/// Returns `None` if there is no such set.
pub(super) fn unfinished(root: &Path, recipe: &Recipe) -> Result<Option<PathBuf>> {
    let current = current(root).ok().flatten();
    let fits = |set: &&PathBuf| {
        Some(*set) != current.as_ref() && Manifest::read(set).is_ok_and(|m| m.recipe == *recipe && !m.copy)
    };
    Ok(all(root).iter().find(fits).cloned())
}

/// Removes all sets except `keep`. Readers can continue to use a removed set. A set that cannot be removed, for
/// example because it is open, is removed after the next replacement.
pub(super) fn remove_others(root: &Path, keep: &Path) {
    for set in all(root).iter().filter(|set| *set != keep) {
        remove(set);
    }
}

/// Removes a set, as far as possible. Errors are ignored.
pub(super) fn remove(set: &Path) {
    // Remove the manifest first: after a crash, the remaining files are not taken for a usable set.
    let _ = fs::remove_file(set.join(NAME));
    let _ = files::sync_folder(set);
    let _ = fs::remove_dir_all(set);
}

/// Recipe of vectors: the encoder and its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// The model of the encoder: a model name, or the path of a model folder.
    pub model: String,
    /// Display name of the encoder.
    pub name: String,
    /// Fingerprint that identifies the encoder.
    pub fingerprint: Fingerprint,
    /// Number of dimensions of a vector.
    pub dim: usize,
    /// Numeric precision that the user requested, such as `auto`. Vectors of different precisions are nearly equal,
    /// so one set may contain vectors of several precisions.
    pub precision: String,
    /// Name of the model's prompt that is added before every text. `None` selects the default prompt, if the model has
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Token options that differ from those in the encoder's files. They are also part of the fingerprint.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tokens: Tokens,
    /// Form in which a dialogue is passed to the encoder: as one sequence or as utterances.
    pub dialogue_mode: DialogueMode,
    /// Pooling of the tokens or utterances of a dialogue into one vector.
    pub pooling: DialoguePooling,
}

fn is_default(tokens: &Tokens) -> bool {
    *tokens == Tokens::default()
}

impl Recipe {
    /// Creates the recipe of an encoder with these options.
    pub fn of(
        encoder: &dyn Encoder,
        model: &str,
        precision: &str,
        tokens: &Tokens,
        options: &Options,
    ) -> Self {
        Recipe {
            model: model.to_owned(),
            name: encoder.name().to_owned(),
            fingerprint: encoder.fingerprint(),
            dim: encoder.dim(),
            precision: precision.to_owned(),
            prompt: options.texts.prompt.clone(),
            tokens: tokens.clone(),
            dialogue_mode: options.dialogues.mode,
            pooling: options.dialogues.pooling,
        }
    }

    /// Returns a description of the difference if vectors of the two recipes cannot be in one set; otherwise `None`.
    /// The options for dialogues are compared only if `dialogues_too` is true.
    pub fn conflict(&self, other: &Recipe, dialogues_too: bool) -> Option<String> {
        let prompt = |r: &Recipe| r.prompt.clone().unwrap_or_else(|| "the default".to_owned());
        if self.fingerprint != other.fingerprint || self.dim != other.dim {
            let words = |r: &Recipe| match r.tokens.to_string() {
                tokens if tokens.is_empty() => format!("{} ({})", r.name, r.fingerprint),
                tokens => format!("{} with {tokens} ({})", r.name, r.fingerprint),
            };
            Some(format!("vectors of {}, not of {}", words(self), words(other)))
        } else if self.prompt != other.prompt {
            Some(format!("vectors with the prompt {}, not {}", prompt(self), prompt(other)))
        } else if dialogues_too && (self.dialogue_mode, self.pooling) != (other.dialogue_mode, other.pooling)
        {
            let words = |r: &Recipe| format!("{:?}, {:?}", r.dialogue_mode, r.pooling).to_lowercase();
            Some(format!("dialogue vectors with {}, not {}", words(self), words(other)))
        } else {
            None
        }
    }
}

/// Log position before which all records have vectors of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Id of the log. Positions are valid in this log only.
    pub log: String,
    /// Position in the log, after the last encoded record.
    pub at: Position,
}

impl Reached {
    /// Returns the log position from which records of the snapshot may lack vectors: the position of `this`, or the
    /// start of the log if `this` is missing, belongs to a different log, or is after the snapshot.
    pub fn position_in(this: Option<&Reached>, snapshot: &Snapshot) -> Position {
        match this {
            Some(reached) if reached.log == snapshot.log_id() && reached.at <= snapshot.end() => reached.at,
            _ => Position::START,
        }
    }

    pub(super) fn of(snapshot: &Snapshot, at: Position) -> Self {
        Reached { log: snapshot.log_id().to_owned(), at }
    }
}

/// Number of committed rows of a kind, and the log position before which all items have vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Number of committed rows. Later rows in the files are left over from an unfinished write.
    pub rows: u64,
    /// Log position before which all items have vectors; `None` if encoding of this kind was never requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

/// Content of `manifest.json` of a vector set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub format: u32,
    /// Version of turnwise that wrote the file.
    pub turnwise: String,
    /// Recipe of the vectors.
    pub recipe: Recipe,
    /// Row count and log position of the utterance vectors.
    pub utterances: Extent,
    /// Row count and log position of the dialogue vectors.
    pub dialogues: Extent,
    /// True if compaction created the set as a copy of the set in use. After a crash, an unused copy may remain. A new
    /// replacement set must not continue such a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

impl Manifest {
    pub(super) fn new(recipe: Recipe) -> Self {
        Manifest {
            format: FORMAT,
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            recipe,
            utterances: Extent::default(),
            dialogues: Extent::default(),
            copy: false,
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.utterances.rows + self.dialogues.rows
    }

    /// Returns the row count and the log position of a kind.
    pub fn extent(&self, kind: Kind) -> &Extent {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }

    pub(super) fn extent_mut(&mut self, kind: Kind) -> &mut Extent {
        match kind {
            Kind::Utterances => &mut self.utterances,
            Kind::Dialogues => &mut self.dialogues,
        }
    }

    pub(super) fn read(set: &Path) -> Result<Self> {
        let manifest: Manifest = read(&set.join(NAME))?;
        if manifest.recipe.dim == 0 {
            return Err(damaged(set.join(NAME), "the number of dimensions is 0"));
        }
        Ok(manifest)
    }

    pub(super) fn write(&self, set: &Path) -> Result<()> {
        sealed::write(&set.join(NAME), self)
    }
}
