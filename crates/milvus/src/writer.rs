//! Adds dialogues to Milvus and deletes them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    connection::Connection,
    engine::Milvus,
    generations::{Manifest, NextGeneration, Unfinished, next},
    reading::columns,
    rows::{self, WordsColumn, key_of, version_in, version_of},
    target::Target,
    vector_source::{Encoding, VectorSource},
    walk::Walk,
    writing::{NAMED, Writer, key_in},
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::Encoder;
use turnwise_index::{engine::Version, vectors::Recipe};
use turnwise_store::{IngestMark, Prepared, PutOutcome, Totals, ingest::DialogueSink};
use turnwise_text::Analyzer;

/// Maximum number of dialogues whose version is cached. The cache is cleared when it is full.
const KNOWN: usize = 1_000_000;
/// Minimum number of new rows that justifies a flush.
const MIN_ROWS_TO_FLUSH: usize = 1_000;

/// Writer for one generation of collections.
pub struct MilvusWriter {
    writer: Writer,
    /// Versions of the dialogues that were looked up; `None` for a dialogue that does not exist.
    known: HashMap<IdKey, Option<Version>>,
    /// Dialogues that are not written yet.
    pending: Vec<(Dialogue, Version)>,
    /// Size of the pending dialogues as JSON.
    pending_bytes: usize,
    /// Pending dialogues that replace another version.
    replaced: HashSet<IdKey>,
    /// Number of rows written since the last flush.
    unflushed_rows: usize,
    /// The new generation that replaces the one in use when it is complete. `None` if this writer writes to the
    /// generation in use.
    replacement: Option<NextGeneration>,
}

impl MilvusWriter {
    /// Reads the manifest of a name; `None` if the name does not exist.
    pub fn read_manifest(target: &Target) -> Result<Option<Manifest>> {
        Connection::open(target)?.manifest()
    }

    /// Opens the generation that a name refers to, or creates the first generation with this analyzer and recipe. With
    /// a recipe, rows get vectors from the encoder.
    ///
    /// Returns an error if vectors exist and the encoder is missing or different.
    pub fn open_or_create(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Self> {
        MilvusWriter::in_use(target, analyzer, recipe, |manifest| encoding(manifest, encoder))
    }

    /// Like `open_or_create`, with any vector source instead of an encoder.
    pub fn open_or_create_given(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        source: Option<Box<dyn VectorSource>>,
    ) -> Result<Self> {
        MilvusWriter::in_use(target, analyzer, recipe, |_| source)
    }

    fn in_use(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        source: impl FnOnce(&Manifest) -> Option<Box<dyn VectorSource>>,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        let manifest = match connection.manifest()? {
            Some(manifest) => {
                connection.load(&manifest)?;
                manifest
            }
            None => {
                let manifest = Manifest::new(1, analyzer, target.analyzer.clone(), recipe);
                connection.create(&manifest)?;
                connection.switch(&manifest)?;
                manifest
            }
        };
        let source = source(&manifest);
        MilvusWriter::over(connection, manifest, source, None)
    }

    /// Opens a new generation next to the one in use. Searches do not see it before [`MilvusWriter::finish`].
    pub fn new_generation(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        source: Option<Box<dyn VectorSource>>,
        unfinished: Unfinished,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        let next = next(&connection, analyzer, recipe, unfinished)?;
        MilvusWriter::over(connection, next.manifest.clone(), source, Some(next))
    }

    /// Opens existing dialogues for deletion. Returns an error if the name does not exist.
    pub fn open(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        MilvusWriter::of(connection, manifest, None, None)
    }

    /// Opens existing dialogues for adding more. Dialogues with vectors need the encoder that made the vectors.
    ///
    /// Returns an error if the name does not exist, or if a needed encoder is missing or different.
    pub fn open_with_encoder(target: &Target, encoder: Option<Arc<dyn Encoder>>) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        let source = encoding(&manifest, encoder);
        MilvusWriter::over(connection, manifest, source, None)
    }

    /// Stores a new path or name of the model in the manifest. The model itself must be the same.
    pub fn set_model(&mut self, model: &str) -> Result<()> {
        if let Some(recipe) = &mut self.writer.manifest.recipe {
            model.clone_into(&mut recipe.model);
        }
        self.writer.connection.store_manifest(&self.writer.manifest)
    }

    /// Removes a name and the collections of its generation. Does nothing if the name does not exist.
    pub fn remove(target: &Target) -> Result<()> {
        let connection = Connection::open(target)?;
        match connection.manifest()? {
            Some(manifest) => connection.remove_name(&manifest),
            None => Ok(()),
        }
    }

    /// Creates a writer. If the generation has vectors, returns an error if the vector source is missing or has a
    /// different encoder.
    fn over(
        connection: Connection,
        manifest: Manifest,
        source: Option<Box<dyn VectorSource>>,
        replacement: Option<NextGeneration>,
    ) -> Result<Self> {
        let fits = match (&manifest.recipe, &source) {
            (Some(recipe), Some(source)) => recipe.fingerprint == source.fingerprint(),
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !fits {
            return Err(other_encoder(&connection.target, &manifest, source.as_deref()));
        }
        let source = source.filter(|_| manifest.recipe.is_some());
        MilvusWriter::of(connection, manifest, source, replacement)
    }

    fn of(
        connection: Connection,
        manifest: Manifest,
        source: Option<Box<dyn VectorSource>>,
        replacement: Option<NextGeneration>,
    ) -> Result<Self> {
        Ok(MilvusWriter {
            writer: Writer { words: WordsColumn::of(&manifest)?, connection, manifest, source, cut: 0 },
            known: HashMap::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            replaced: HashSet::new(),
            unflushed_rows: 0,
            replacement,
        })
    }

    /// Manifest of the generation that is written to.
    pub fn manifest(&self) -> &Manifest {
        &self.writer.manifest
    }

    /// Number of rows whose text was truncated to the column limit. Keyword search does not find the rest of
    /// the text.
    pub fn truncated_texts(&self) -> u64 {
        self.writer.cut
    }

    /// Warning about texts that are stored in full, but only partly searchable by keywords. `None` if there are none.
    pub fn truncation_warning(&self) -> Option<String> {
        let texts = match self.truncated_texts() {
            0 => return None,
            1 => "1 text is".to_owned(),
            n => format!("{} texts are", grouped(n)),
        };
        Some(format!(
            "{texts} longer than a column of Milvus: keyword search covers only the first 65,535 bytes of terms"
        ))
    }

    /// Number of dialogues and turns.
    pub fn totals(&self) -> Result<Totals> {
        self.writer.connection.totals(&self.writer.manifest)
    }

    /// Opens an iterator over the written dialogues, even before the generation is in use.
    pub fn walk(&self) -> Result<Walk> {
        Walk::of(Connection::open(&self.writer.connection.target)?, self.writer.manifest.clone())
    }

    /// Opens the written generation for searching, even before it is in use.
    pub fn open_engine(&self) -> Result<Milvus> {
        Milvus::of(Connection::open(&self.writer.connection.target)?, self.writer.manifest.clone())
    }

    /// Flushes the server's buffers if at least 1,000 rows were written since the last flush. Until a flush, searches
    /// are slower.
    pub fn flush(&mut self) -> Result<()> {
        match std::mem::take(&mut self.unflushed_rows) {
            few if few < MIN_ROWS_TO_FLUSH => Ok(()),
            _ => self.writer.flush(),
        }
    }

    /// Switches the name to the new generation and removes the old one. Does nothing if this writer writes to
    /// the generation in use.
    pub fn finish(&mut self) -> Result<()> {
        match self.replacement.take() {
            Some(next) => next.finish(&self.writer.connection),
            None => Ok(()),
        }
    }

    /// Deletes dialogues by id. Returns how many existed.
    pub fn delete(&mut self, ids: &[DialogueId]) -> Result<u64> {
        let there = self.existing(ids)?;
        self.writer.delete(&there)?;
        there.iter().for_each(|key| {
            self.known.insert(*key, None);
        });
        Ok(there.len() as u64)
    }

    /// Returns how many of these ids exist.
    pub fn count_existing(&mut self, ids: &[DialogueId]) -> Result<u64> {
        Ok(self.existing(ids)?.len() as u64)
    }

    fn existing(&mut self, ids: &[DialogueId]) -> Result<Vec<IdKey>> {
        let keys: Vec<IdKey> = ids.iter().map(DialogueId::key).collect();
        self.prefetch(&keys)?;
        Ok(keys.into_iter().filter(|key| self.known.get(key).copied().flatten().is_some()).collect())
    }

    /// Deletes the dialogues that match a filter. Returns their number.
    pub fn delete_matching(&mut self, filter: &Filter) -> Result<u64> {
        self.for_each_match(filter, &mut |writer, ids| writer.delete(ids))
    }

    /// Number of dialogues that match a filter.
    pub fn count_matching(&mut self, filter: &Filter) -> Result<u64> {
        self.for_each_match(filter, &mut |_, ids| Ok(ids.len() as u64))
    }

    fn for_each_match(
        &mut self,
        filter: &Filter,
        take: &mut dyn FnMut(&mut Self, &[DialogueId]) -> Result<u64>,
    ) -> Result<u64> {
        let (mut taken, mut behind) = (0, None);
        loop {
            let (connection, manifest) = (&self.writer.connection, &self.writer.manifest);
            let (found, next) = connection.list_dialogues(manifest, behind, Some(filter), NAMED)?;
            let ids: Vec<DialogueId> = found.into_iter().map(|dialogue| dialogue.id).collect();
            taken += take(self, &ids)?;
            if next.is_none() {
                return Ok(taken);
            }
            behind = next;
        }
    }
}

/// Returns a number with a comma between groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = (0..digits.len().div_ceil(3))
        .rev()
        .map(|group| {
            let end = digits.len() - 3 * group;
            &digits[end.saturating_sub(3)..end]
        })
        .collect();
    groups.join(",")
}

fn encoding(manifest: &Manifest, encoder: Option<Arc<dyn Encoder>>) -> Option<Box<dyn VectorSource>> {
    let (recipe, encoder) = (manifest.recipe.as_ref()?, encoder?);
    Some(Box::new(Encoding::new(encoder, recipe)))
}

fn other_encoder(target: &Target, manifest: &Manifest, source: Option<&dyn VectorSource>) -> Error {
    let there =
        manifest.recipe.as_ref().map(|r| format!("{} ({})", r.name, r.fingerprint)).unwrap_or_default();
    let here = source.map_or("no encoder is given".to_owned(), |g| {
        format!("the given encoder is {} ({})", g.name(), g.fingerprint())
    });
    Error::Input {
        message: format!("the vectors at {target} were made by {there}, but {here}"),
        hint: Some(format!(
            "use the model that made them (--model); or `turnwise encode --engine {target} --model MODEL --replace` \
             encodes everything again, while the old vectors stay in use"
        )),
    }
}

impl DialogueSink for MilvusWriter {
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        let waiting = self.pending.iter().rev().find(|(dialogue, _)| dialogue.id == *id);
        let key = id.key();
        match (waiting, self.known.get(&key)) {
            (Some((dialogue, _)), _) => Ok(Some(dialogue.clone())),
            (None, Some(None)) => Ok(None),
            (None, _) => {
                let mut read = self.writer.connection.dialogues(&self.writer.manifest, &[key])?;
                Ok(read.remove(&key).map(|(_, dialogue)| dialogue))
            }
        }
    }

    fn prefetch(&mut self, ids: &[IdKey]) -> Result<()> {
        let unknown: Vec<IdKey> = ids.iter().filter(|key| !self.known.contains_key(key)).copied().collect();
        for some in unknown.chunks(NAMED) {
            let filter = format!("{} and piece == 0", key_in(some));
            let found = self.writer.connection.rows(&self.writer.records(), &filter, &["key", "version"])?;
            let found = columns(&found);
            some.iter().for_each(|key| {
                self.known.insert(*key, None);
            });
            for (key, version) in found.texts("key").iter().zip(found.numbers("version")) {
                if let Some(key) = key_of(key) {
                    self.known.insert(key, Some(version_in(*version)));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, prepared: &Prepared) -> Result<PutOutcome> {
        self.prefetch(&[prepared.id])?;
        let version = version_of(prepared.content);
        let known = self.known.get(&prepared.id).copied().flatten();
        if known == Some(version) {
            return Ok(PutOutcome::Unchanged);
        }
        let dialogue: Dialogue =
            serde_json::from_slice(&prepared.json).map_err(|e| Error::Internal(e.to_string()))?;
        // Check the limits of Milvus before writing anything, and report the record that exceeds them.
        rows::check(&dialogue)?;
        self.pending_bytes += prepared.json.len();
        self.pending.push((dialogue, version));
        self.known.insert(prepared.id, Some(version));
        match known {
            Some(_) => {
                self.replaced.insert(prepared.id);
                Ok(PutOutcome::Replaced)
            }
            None => Ok(PutOutcome::Added),
        }
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    fn commit(&mut self, _: Option<IngestMark>) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let dialogues = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.writer.write(&dialogues, &self.replaced)?;
        self.replaced.clear();
        self.unflushed_rows += dialogues.iter().map(|(dialogue, _)| dialogue.turns.len() + 1).sum::<usize>();
        if self.known.len() > KNOWN {
            self.known.clear();
        }
        Ok(())
    }

    /// No ingest position is stored: dialogues that already exist are recognized by their version and skipped.
    fn unfinished(&self) -> Option<IngestMark> {
        None
    }

    fn set_rejected(&mut self, _: &str, _: u64) {}

    fn for_each_text_key(&self, _: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        Err(Error::Unsupported {
            message: "removing duplicates (--dedupe) is not supported with Milvus".to_owned(),
            hint: Some("remove them before with `turnwise corpus convert --dedupe`".to_owned()),
        })
    }
}
