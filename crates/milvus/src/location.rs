//! Location of dialogues in Milvus: opens them, deletes them, and detects changes.

use std::{
    path::Path,
    slice,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    connection::Connection,
    engine::Milvus,
    schema::missing,
    target::Target,
    vector_source::{Encoding, VectorSource},
    writer::MilvusWriter,
};
use turnwise_core::error::{Error, Result};
use turnwise_index::{
    engine::Engine,
    location::{
        ChangeToken, Contents, Deletion, EngineWriter, Location, Selection, WriteMode, WriterOptions,
    },
    vectors::Kind,
};
use turnwise_store::ingest::DialogueSink;

/// [`Location`] of dialogues in Milvus.
pub struct MilvusLocation {
    target: Target,
    /// Connection for reading change tokens. `None` before the first token is read and after an error.
    polling: Mutex<Option<Connection>>,
}

impl MilvusLocation {
    /// Creates the location of a target. Does not connect to the server yet.
    pub fn new(target: Target) -> Self {
        MilvusLocation { target, polling: Mutex::default() }
    }
}

/// Returns a change token, which is computed from the manifest and the numbers of dialogues and turns. Returns an error
/// if the collections are not loaded, for example after a restart of the server. The caller then opens the engine
/// again, which loads them.
fn state(connection: &Connection) -> Result<ChangeToken> {
    let Some(manifest) = connection.manifest()? else { return Err(missing(&connection.target)) };
    let name = &connection.target.name;
    let rows = Kind::ALL.map(|kind| manifest.rows(name, kind));
    for collection in rows.iter().chain([&manifest.records(name)]) {
        // This query finds no rows, because no row has an empty key. It fails if the collection is not loaded.
        connection.rows(collection, "key == \"\"", &["key"])?;
    }
    if manifest.speakers {
        connection.first_rows(&manifest.speakers(name), "id == \"\"", &["id"], 1)?;
    }
    let totals = connection.totals(&manifest)?;
    Ok(ChangeToken::new(format!("{manifest:?} {totals:?}")))
}

impl Location for MilvusLocation {
    fn kind(&self) -> &'static str {
        "milvus"
    }

    fn place(&self) -> String {
        self.target.to_string()
    }

    fn name(&self) -> String {
        self.target.name.clone()
    }

    fn places(&self) -> Vec<String> {
        vec![self.place(), self.target.server()]
    }

    fn compactable(&self) -> Result<&Path> {
        Err(Error::input("--purge works only with an index on this machine")
            .with_hint("remove --purge: Milvus frees the space of deleted dialogues automatically"))
    }

    fn poll_interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn change_token(&self) -> Result<ChangeToken> {
        let mut polling = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match polling.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target)?,
        };
        let state = state(&connection)?;
        *polling = Some(connection);
        Ok(state)
    }

    fn contents(&self) -> Result<Option<Contents>> {
        let manifest = MilvusWriter::read_manifest(&self.target)?;
        Ok(manifest.map(|manifest| Contents { recipe: manifest.recipe }))
    }

    fn open(&self) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Milvus::open(&self.target)?))
    }

    fn open_writer(&self, options: WriterOptions<'_>) -> Result<Box<dyn EngineWriter>> {
        let (target, encoder) = (&self.target, options.encoder);
        let writer = match options.mode {
            WriteMode::Append => MilvusWriter::open_with_encoder(target, encoder),
            WriteMode::CreateOrAppend(recipe) => MilvusWriter::open_or_create(target, None, recipe, encoder),
            WriteMode::Replace(recipe) => {
                let source = encoder.zip(recipe.as_ref()).map(|(encoder, recipe)| {
                    Box::new(Encoding::new(encoder, recipe)) as Box<dyn VectorSource>
                });
                MilvusWriter::new_generation_by_language(target, recipe, source)
            }
        };
        Ok(Box::new(writer?))
    }

    fn delete(&self, selection: &Selection, dry_run: bool, _: &str) -> Result<Deletion> {
        let mut writer = MilvusWriter::open(&self.target)?;
        let count = match (selection, dry_run) {
            (Selection::Ids(ids, None), false) => writer.delete(ids)?,
            (Selection::Ids(ids, None), true) => writer.count_existing(ids)?,
            (Selection::Ids(ids, Some(filter)), _) => {
                let mut count = 0;
                for id in ids {
                    count += match (writer.get(id)?.filter(|dialogue| filter.matches(dialogue)), dry_run) {
                        (None, _) => 0,
                        (Some(_), true) => 1,
                        (Some(_), false) => writer.delete(slice::from_ref(id))?,
                    };
                }
                count
            }
            (Selection::Matching(filter), false) => writer.delete_matching(filter)?,
            (Selection::Matching(filter), true) => writer.count_matching(filter)?,
        };
        Ok(Deletion::Counted(count))
    }

    fn remove(&self) -> Result<()> {
        MilvusWriter::remove(&self.target)
    }
}

impl EngineWriter for MilvusWriter {
    fn engine(&self) -> &'static str {
        "Milvus"
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.truncation_warning().into_iter().collect()
    }

    fn totals(&self) -> Result<turnwise_store::Totals> {
        MilvusWriter::totals(self)
    }

    fn flush(&mut self) -> Result<()> {
        MilvusWriter::flush(self)
    }

    fn close(mut self: Box<Self>, complete: bool) -> Result<()> {
        if complete { self.finish() } else { Ok(()) }
    }
}
