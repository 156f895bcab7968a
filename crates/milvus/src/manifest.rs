//! Manifest of a generation of collections, stored as a property of its dialogue collection.

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};
use turnwise_index::vectors::{Kind, Recipe};
use turnwise_text::Analyzer;

/// Version of the collection schemas that this build writes and reads.
pub(super) const FORMAT: u32 = 1;
/// Name of the collection property that stores the manifest.
pub(super) const PROPERTY: &str = "turnwise.manifest";

/// How a generation of collections was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub(super) format: u32,
    /// Number of the generation. Each generation has its own collections.
    pub generation: u64,
    /// Analyzer that produced the terms.
    pub(super) analyzer: String,
    /// Milvus analyzer that splits the texts, instead of turnwise's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) words: Option<String>,
    /// How the vectors were made; `None` if there are no vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
}

impl Manifest {
    /// Creates the manifest of a new generation.
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
            message: format!("{place}: the manifest is unreadable: {e}"),
            hint: Some("use another collection, or remove this one".to_owned()),
        };
        let Version { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Error::Unavailable {
                message: format!(
                    "{place} has format version {format}, and this turnwise reads version {FORMAT}"
                ),
                hint: Some(
                    "use the turnwise version that wrote it, or ingest again into another collection"
                        .to_owned(),
                ),
            });
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(super) fn as_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))
    }

    /// Returns the analyzer for queries and for highlighting.
    pub fn terms_by(&self) -> Result<Analyzer> {
        self.analyzer.parse()
    }

    /// Returns the collection name of a kind.
    pub(super) fn rows(&self, name: &str, kind: Kind) -> String {
        format!("{name}_g{}_{}", self.generation, kind.name())
    }

    /// Returns the collection name of the records.
    pub(super) fn records(&self, name: &str) -> String {
        format!("{name}_g{}_records", self.generation)
    }

    /// Returns the names of all collections.
    pub(super) fn collections(&self, name: &str) -> [String; 3] {
        [self.records(name), self.rows(name, Kind::Utterances), self.rows(name, Kind::Dialogues)]
    }

    /// Returns true if the other generation would have the same terms and vectors.
    pub(super) fn is_alike(&self, other: &Manifest) -> bool {
        let made = |manifest: &Manifest| {
            let recipe = manifest.recipe.as_ref();
            recipe.map(|r| (r.fingerprint, r.prompt.clone(), r.dialogue_mode, r.pooling))
        };
        (&self.analyzer, &self.words) == (&other.analyzer, &other.words) && made(self) == made(other)
    }
}
