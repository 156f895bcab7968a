//! What a generation of collections is: kept with the collection of its dialogues.

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};
use turnwise_index::vectors::{Kind, Recipe};
use turnwise_text::Analyzer;

/// The shape of collections that this build writes and reads.
pub(super) const FORMAT: u32 = 1;
/// The property of a collection in which it lies.
pub(super) const PROPERTY: &str = "turnwise.manifest";

/// What a generation of collections was made with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub(super) format: u32,
    /// The generation's number; another one has collections of its own.
    pub generation: u64,
    /// What made the terms.
    pub(super) analyzer: String,
    /// Which analyzer of Milvus made terms of the texts, in place of that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) words: Option<String>,
    /// What made the vectors; without one there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
}

impl Manifest {
    /// That of a new generation.
    pub(super) fn new(
        generation: u64,
        analyzer: Analyzer,
        words: Option<String>,
        recipe: Option<Recipe>,
    ) -> Self {
        Manifest { format: FORMAT, generation, analyzer: analyzer.to_string(), words, recipe }
    }

    pub(super) fn read(place: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let unreadable = |e: serde_json::Error| Error::Unavailable {
            message: format!("{place}: what it says of itself is unreadable: {e}"),
            hint: Some("take another collection, or remove this one".to_owned()),
        };
        let Version { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Error::Unavailable {
                message: format!(
                    "{place} has format version {format}, and this turnwise reads version {FORMAT}"
                ),
                hint: Some(
                    "take the turnwise that wrote it, or ingest anew into another collection".to_owned(),
                ),
            });
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(super) fn as_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))
    }

    /// What makes terms here: of what is looked for, and of what is marked in a hit.
    pub fn terms_by(&self) -> Result<Analyzer> {
        self.analyzer.parse()
    }

    /// The name of the collection of a kind.
    pub(super) fn rows(&self, name: &str, kind: Kind) -> String {
        format!("{name}_g{}_{}", self.generation, kind.name())
    }

    /// The name of the collection of records.
    pub(super) fn records(&self, name: &str) -> String {
        format!("{name}_g{}_records", self.generation)
    }

    /// The names of all its collections.
    pub(super) fn collections(&self, name: &str) -> [String; 3] {
        [self.records(name), self.rows(name, Kind::Utterances), self.rows(name, Kind::Dialogues)]
    }

    /// Whether what the other has could stand here, too.
    pub(super) fn is_alike(&self, other: &Manifest) -> bool {
        let made = |manifest: &Manifest| {
            let recipe = manifest.recipe.as_ref();
            recipe.map(|r| (r.fingerprint, r.prompt.clone(), r.dialogue_mode, r.pooling))
        };
        (&self.analyzer, &self.words) == (&other.analyzer, &other.words) && made(self) == made(other)
    }
}
