//! A generation beside the one in use: filled unseen, gone on with after a stop, and put in the place of the other in one step.

use std::{thread, time::Duration};

use milvus::v2::request::{
    alias::DropAliasRequest,
    collection::{AlterCollectionPropertiesRequest, DropCollectionRequest},
};

use super::{
    connection::Connection,
    manifest::{Manifest, PROPERTY},
};
use turnwise_core::error::{Error, Result};
use turnwise_index::vectors::{Kind, Recipe};
use turnwise_text::Analyzer;

/// Whoever searches a name looks what it stands for every two seconds, and has time to open the new generation, with its
/// encoder, before the former one goes.
const GRACE: Duration = Duration::from_secs(5);

/// A generation that nobody sees yet.
pub(super) struct Next {
    pub(super) manifest: Manifest,
    /// The one that is in use.
    former: Option<Manifest>,
}

/// What becomes of a generation that was begun and not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// It is gone on with, if it was begun with the same recipe. Whoever does that takes out what does not belong there.
    GoOn,
    /// It is made anew.
    ThrowAway,
}

/// The generation behind the one in use.
pub(super) fn next(
    connection: &Connection,
    analyzer: Analyzer,
    recipe: Option<Recipe>,
    unfinished: Unfinished,
) -> Result<Next> {
    let former = connection.manifest()?;
    let number = former.as_ref().map_or(1, |former| former.generation + 1);
    let words = connection.target.analyzer.clone();
    let words = words.or_else(|| former.as_ref().and_then(|former| former.words.clone()));
    let manifest = Manifest::new(number, analyzer, words, recipe);
    let dialogues = manifest.rows(&connection.target.name, Kind::Dialogues);
    // It is made last: where it is, the others are.
    let begun = match connection.exists(&dialogues)? {
        true => connection.manifest_of(&dialogues),
        false => Ok(None),
    };
    match begun {
        Ok(Some(begun)) if unfinished == Unfinished::GoOn && begun.is_alike(&manifest) => {
            connection.load(&begun)?;
        }
        // Whatever it is, no name stands for it.
        Ok(_) | Err(Error::Input { .. } | Error::Unavailable { .. }) => connection.create(&manifest)?,
        Err(e) => return Err(e),
    }
    Ok(Next { manifest, former })
}

impl Next {
    /// Lets the name stand for this generation, and removes the one that it stood for.
    pub(super) fn finish(self, connection: &Connection) -> Result<()> {
        connection.switch(&self.manifest)?;
        let Some(former) = &self.former else { return Ok(()) };
        thread::sleep(GRACE);
        connection.remove(former)
    }
}

impl Connection {
    /// Writes down what a generation in use was made with, in the place of what stood there.
    pub(super) fn restate(&self, manifest: &Manifest) -> Result<()> {
        let request = AlterCollectionPropertiesRequest::builder()
            .collection_name(manifest.rows(&self.target.name, Kind::Dialogues))
            .property(PROPERTY, manifest.as_text()?)
            .build();
        self.ask("changing what a collection says of itself", async {
            self.client.alter_collection_properties(request?).await
        })
    }

    /// Takes the name away, and then what it stood for.
    pub(super) fn remove_name(&self, manifest: &Manifest) -> Result<()> {
        let request = DropAliasRequest::builder().alias(self.target.name.as_str()).build();
        self.ask("taking a name away", async { self.client.drop_alias(request?).await })?;
        self.remove(manifest)
    }

    /// Removes the collections of a generation.
    fn remove(&self, manifest: &Manifest) -> Result<()> {
        for collection in manifest.collections(&self.target.name) {
            self.drop_if_there(&collection)?;
        }
        Ok(())
    }

    pub(super) fn drop_if_there(&self, collection: &str) -> Result<()> {
        if !self.exists(collection)? {
            return Ok(());
        }
        let request = DropCollectionRequest::builder().collection_name(collection).build();
        self.ask("removing a collection", async { self.client.drop_collection(request?).await })
    }
}
