//! Generations of collections. A new generation is written while the old generation is in use. Then it replaces the old
//! generation in one step. The manifest of a generation is stored as a property of its collection of dialogues.

use std::{thread, time::Duration};

use milvus::v2::request::{
    alias::DropAliasRequest,
    collection::{AlterCollectionPropertiesRequest, DropCollectionRequest},
};

use serde::{Deserialize, Serialize};

use super::connection::Connection;
use turnwise_core::error::{Error, Result};
use turnwise_index::vectors::{Kind, Recipe};
use turnwise_text::Analyzer;

/// Version of the collection schemas that this build of turnwise writes and reads.
pub(super) const FORMAT: u32 = 1;
/// Name of the collection property that stores the manifest.
pub(super) const PROPERTY: &str = "turnwise.manifest";

/// Manifest of a generation: its number, its analyzer and the recipe of its vectors. It is stored as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the collection schemas; see [`FORMAT`].
    pub(super) format: u32,
    /// Number of the generation, starting at 1. It is part of the names of the collections.
    pub generation: u64,
    /// Name of the turnwise analyzer for terms and highlighting.
    pub(super) analyzer: String,
    /// Name of the Milvus analyzer that splits texts into terms. `None` if the turnwise analyzer splits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) words: Option<String>,
    /// True if the rows of dialogues have the titles in columns of their own. False if a version of turnwise from before
    /// titles were searched created the generation.
    #[serde(default)]
    pub(super) titles: bool,
    /// True if the generation has a collection with the names of the speakers. False if an older version of turnwise created
    /// the generation.
    #[serde(default)]
    pub(super) speakers: bool,
    /// True if the rows have the first and the last time in columns of their own, for fast filters. False if an older version
    /// of turnwise created the generation.
    #[serde(default)]
    pub(super) times: bool,
    /// Recipe of the vectors (encoder and options); `None` if there are no vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
}

impl Manifest {
    pub(super) fn new(
        generation: u64,
        analyzer: Analyzer,
        words: Option<String>,
        recipe: Option<Recipe>,
    ) -> Self {
        Manifest {
            format: FORMAT,
            generation,
            analyzer: analyzer.to_string(),
            words,
            titles: true,
            speakers: true,
            times: true,
            recipe,
        }
    }

    pub(super) fn read(place: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let unreadable = |e: serde_json::Error| {
            Error::unavailable(format!("{place}: the manifest is unreadable: {e}"))
                .with_hint("use another collection, or remove this one")
        };
        let Version { format } = serde_json::from_str(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(Error::unavailable(format!(
                "{place} has format version {format}, and this turnwise reads version {FORMAT}"
            ))
            .with_hint("use the turnwise version that wrote it, or ingest again into another collection"));
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(super) fn as_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))
    }

    pub(super) fn set_analyzer(&mut self, analyzer: Analyzer) {
        self.analyzer = analyzer.to_string();
    }

    /// Returns the turnwise analyzer for terms and highlighting. Returns an error if this build does not have it.
    pub fn analyzer(&self) -> Result<Analyzer> {
        self.analyzer.parse()
    }

    /// Returns the name of the collection that contains the rows of a kind: turns or whole dialogues. `name` is the
    /// alias of the dialogues.
    pub(super) fn rows(&self, name: &str, kind: Kind) -> String {
        format!("{name}_g{}_{}", self.generation, kind.name())
    }

    /// Returns the name of the collection that contains the records. `name` is the alias of the dialogues.
    pub(super) fn records(&self, name: &str) -> String {
        format!("{name}_g{}_records", self.generation)
    }

    /// Returns the name of the collection that contains the names of the speakers. `name` is the alias of the dialogues.
    pub(super) fn speakers(&self, name: &str) -> String {
        format!("{name}_g{}_speakers", self.generation)
    }

    /// Returns the names of the three collections with the data of each dialogue: records, utterances and dialogues.
    /// `name` is the alias of the dialogues.
    pub(super) fn collections(&self, name: &str) -> [String; 3] {
        [self.records(name), self.rows(name, Kind::Utterances), self.rows(name, Kind::Dialogues)]
    }

    /// Returns whether the generations of both manifests have the same terms and vectors for the same dialogue.
    fn is_alike(&self, other: &Manifest) -> bool {
        let recipe = |manifest: &Manifest| {
            let recipe = manifest.recipe.as_ref();
            recipe.map(|r| (r.fingerprint, r.prompt.clone(), r.dialogue_mode, r.pooling))
        };
        let words = |manifest: &Manifest| (manifest.analyzer.clone(), manifest.words.clone());
        let parts = |manifest: &Manifest| (manifest.titles, manifest.speakers, manifest.times);
        words(self) == words(other) && parts(self) == parts(other) && recipe(self) == recipe(other)
    }
}

/// Delay between switching the alias and removing the old generation. Processes that still search the old generation
/// check the alias every two seconds, and then open the new generation.
const GRACE: Duration = Duration::from_secs(5);

/// A new generation that searches do not use yet.
pub(super) struct NextGeneration {
    pub(super) manifest: Manifest,
    /// Manifest of the generation in use, which the new generation will replace. `None` if no generation is in use.
    pub(super) previous: Option<Manifest>,
}

impl NextGeneration {
    /// Returns the generation that follows the generation in use, without creating it.
    pub(super) fn after_current(
        connection: &Connection,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
    ) -> Result<Self> {
        let previous = connection.manifest()?;
        let number = previous.as_ref().map_or(1, |previous| previous.generation + 1);
        let words = connection.target.analyzer.as_ref();
        let words = words.or(previous.as_ref().and_then(|previous| previous.words.as_ref())).cloned();
        Ok(NextGeneration { manifest: Manifest::new(number, analyzer, words, recipe), previous })
    }

    /// Creates the generation. If an interrupted replacement has left an unfinished generation with the same analyzers and
    /// the same recipe, continues it. It may contain dialogues that do not belong to the new generation; the caller must
    /// remove these dialogues.
    pub(super) fn create_or_continue(&self, connection: &Connection) -> Result<()> {
        let manifest = &self.manifest;
        let dialogues = manifest.rows(&connection.target.name, Kind::Dialogues);
        // The collection of dialogues is created last, so if it exists, the other collections exist, too.
        let begun = match connection.exists(&dialogues)? {
            true => connection.manifest_of(&dialogues),
            false => Ok(None),
        };
        match begun {
            Ok(Some(begun)) if begun.is_alike(manifest) => connection.load(&begun),
            // Otherwise, create the generation. This deletes an unfinished generation, which was never in use.
            Ok(_) | Err(Error::Input { .. } | Error::Unavailable { .. }) => connection.create(manifest),
            Err(e) => Err(e),
        }
    }

    /// Switches the alias to this generation, and removes the previous generation after a delay.
    pub(super) fn finish(self, connection: &Connection) -> Result<()> {
        connection.switch(&self.manifest)?;
        let Some(previous) = &self.previous else { return Ok(()) };
        thread::sleep(GRACE);
        connection.remove(previous)
    }
}

impl Connection {
    pub(super) fn store_manifest(&self, manifest: &Manifest) -> Result<()> {
        let request = AlterCollectionPropertiesRequest::builder()
            .collection_name(manifest.rows(&self.target.name, Kind::Dialogues))
            .property(PROPERTY, manifest.as_text()?)
            .build();
        self.call("changing the properties of a collection", async {
            self.client.alter_collection_properties(request?).await
        })
    }

    /// Removes the alias, and then the collections of the generation with this manifest.
    pub(super) fn remove_name(&self, manifest: &Manifest) -> Result<()> {
        let request = DropAliasRequest::builder().alias(self.target.name.as_str()).build();
        self.call("removing an alias", async { self.client.drop_alias(request?).await })?;
        self.remove(manifest)
    }

    fn remove(&self, manifest: &Manifest) -> Result<()> {
        let name = &self.target.name;
        let speakers = manifest.speakers.then(|| manifest.speakers(name));
        manifest.collections(name).iter().chain(&speakers).try_for_each(|each| self.drop_if_there(each))
    }

    pub(super) fn drop_if_there(&self, collection: &str) -> Result<()> {
        if !self.exists(collection)? {
            return Ok(());
        }
        let request = DropCollectionRequest::builder().collection_name(collection).build();
        self.call("removing a collection", async { self.client.drop_collection(request?).await })
    }
}
