//! Writer that adds dialogues to Milvus and deletes them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    connection::Connection,
    engine::Milvus,
    generations::{Manifest, NextGeneration},
    reading::columns,
    rows::{self, WordsColumn, key_of, version_of},
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

/// Maximum number of dialogues in the cache of versions. A larger cache is cleared.
const KNOWN: usize = 1_000_000;
const MIN_ROWS_TO_FLUSH: usize = 1_000;

/// Writer of dialogues to one generation. A generation is one version of all collections.
pub struct MilvusWriter {
    writer: Writer,
    /// Cache of the version of each dialogue, including pending dialogues. `None` for a dialogue that does not exist.
    known: HashMap<IdKey, Option<Version>>,
    pending: Vec<(Dialogue, Version)>,
    /// Size of the pending dialogues as JSON, in bytes.
    pending_bytes: usize,
    replaced: HashSet<IdKey>,
    /// Number of rows written since the last flush.
    unflushed_rows: usize,
    /// New generation that will replace the generation in use. `None` if this writer writes to the generation in use.
    replacement: Option<NextGeneration>,
    /// True if the collections do not exist yet. They are created with the first dialogues, whose language determines the
    /// analyzer.
    uncreated: bool,
}

impl MilvusWriter {
    /// Reads the manifest of the generation to which the name in `target` refers. Returns `None` if the name does not
    /// exist.
    pub fn read_manifest(target: &Target) -> Result<Option<Manifest>> {
        Connection::open(target)?.manifest()
    }

    /// Opens the generation in use for writing. If the name in `target` does not exist, creates the first generation
    /// with this analyzer and this recipe. With `None`, the first commit detects the language of the dialogues and creates
    /// the generation.
    ///
    /// If the generation has vectors, `encoder` must be the encoder that made them.
    pub fn open_or_create(
        target: &Target,
        analyzer: Option<Analyzer>,
        recipe: Option<Recipe>,
        encoder: Option<Arc<dyn Encoder>>,
    ) -> Result<Self> {
        let source = |manifest: &Manifest| encoding(manifest, encoder);
        MilvusWriter::open_or_create_with_source(target, analyzer, recipe, source)
    }

    /// Opens or creates a generation like [`MilvusWriter::open_or_create`], but with any vector source instead of an
    /// encoder. `source` is called with the manifest of the generation and returns the vector source.
    pub fn open_or_create_with_source(
        target: &Target,
        analyzer: Option<Analyzer>,
        recipe: Option<Recipe>,
        source: impl FnOnce(&Manifest) -> Option<Box<dyn VectorSource>>,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        if let Some(manifest) = connection.manifest()? {
            connection.load(&manifest)?;
            let source = source(&manifest);
            return MilvusWriter::over(connection, manifest, source, None);
        }
        let manifest = Manifest::new(1, analyzer.unwrap_or_default(), target.analyzer.clone(), recipe);
        let source = source(&manifest);
        let mut writer = MilvusWriter::over(connection, manifest, source, None)?;
        writer.uncreated = true;
        if analyzer.is_some() {
            writer.create(None)?;
        }
        Ok(writer)
    }

    /// Opens a new generation with this analyzer that will replace the generation in use. Searches do not use it until
    /// [`MilvusWriter::finish`] is called.
    ///
    /// If an interrupted replacement has left an unfinished generation with the same analyzers and the same recipe,
    /// continues it. It may contain dialogues that do not belong to the new generation; the caller must remove these
    /// dialogues.
    pub fn new_generation(
        target: &Target,
        analyzer: Analyzer,
        recipe: Option<Recipe>,
        source: Option<Box<dyn VectorSource>>,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        let next = NextGeneration::after_current(&connection, analyzer, recipe)?;
        next.create_or_continue(&connection)?;
        MilvusWriter::over(connection, next.manifest.clone(), source, Some(next))
    }

    /// Opens a new generation like [`MilvusWriter::new_generation`], but the first commit detects the language of the
    /// dialogues, and creates the generation. Deletes an unfinished generation.
    pub fn new_generation_by_language(
        target: &Target,
        recipe: Option<Recipe>,
        source: Option<Box<dyn VectorSource>>,
    ) -> Result<Self> {
        let connection = Connection::open(target)?;
        let next = NextGeneration::after_current(&connection, Analyzer::default(), recipe)?;
        let mut writer = MilvusWriter::over(connection, next.manifest.clone(), source, Some(next))?;
        writer.uncreated = true;
        Ok(writer)
    }

    /// Creates the collections if they do not exist yet. With `None`, the manifest determines the analyzer. Searches use
    /// the collections at once, unless they are the new generation of an existing name.
    fn create(&mut self, analyzer: Option<Analyzer>) -> Result<()> {
        if !self.uncreated {
            return Ok(());
        }
        let Writer { connection, manifest, words, .. } = &mut self.writer;
        // The creation deletes collections with the same names, so they must not be in use.
        let known = self.replacement.as_ref().and_then(|next| next.previous.as_ref());
        if connection.manifest()?.map(|now| now.generation) != known.map(|known| known.generation) {
            let message = format!("another process has created or replaced {}", connection.target);
            return Err(Error::unavailable(message).with_hint("run the command again"));
        }
        if let Some(analyzer) = analyzer {
            manifest.set_analyzer(analyzer);
            *words = WordsColumn::of(manifest)?;
        }
        connection.create(manifest)?;
        match &mut self.replacement {
            Some(next) => next.manifest.clone_from(manifest),
            None => connection.switch(manifest)?,
        }
        self.uncreated = false;
        Ok(())
    }

    /// Opens the generation in use for deleting dialogues. Returns an error if the name in `target` does not exist.
    pub fn open(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        MilvusWriter::of(connection, manifest, None, None)
    }

    /// Opens the generation in use for writing. Returns an error if the name in `target` does not exist. If the
    /// generation has vectors, `encoder` must be the encoder that made them.
    pub fn open_with_encoder(target: &Target, encoder: Option<Arc<dyn Encoder>>) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        let source = encoding(&manifest, encoder);
        MilvusWriter::over(connection, manifest, source, None)
    }

    /// Replaces the name or path of the model in the manifest with `model`. The model itself must stay the same.
    pub fn set_model(&mut self, model: &str) -> Result<()> {
        if let Some(recipe) = &mut self.writer.manifest.recipe {
            model.clone_into(&mut recipe.model);
        }
        self.writer.connection.store_manifest(&self.writer.manifest)
    }

    /// Removes the name in `target` and the collections of the generation in use. Does nothing if the name does not
    /// exist.
    pub fn remove(target: &Target) -> Result<()> {
        let connection = Connection::open(target)?;
        connection.manifest()?.map_or(Ok(()), |manifest| connection.remove_name(&manifest))
    }

    /// Creates a writer that can add dialogues. If the generation has vectors, returns an error if `source` is `None`
    /// or uses a different encoder than the generation.
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
            writer: Writer {
                words: WordsColumn::of(&manifest)?,
                connection,
                manifest,
                source,
                speakers: HashSet::new(),
                cut: 0,
            },
            known: HashMap::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            replaced: HashSet::new(),
            unflushed_rows: 0,
            replacement,
            uncreated: false,
        })
    }

    /// Returns the manifest of the generation that this writer writes.
    pub fn manifest(&self) -> &Manifest {
        &self.writer.manifest
    }

    /// Returns a warning if lexical search covers only the beginning of some texts, because they are too long for a
    /// column. Otherwise, returns `None`.
    pub fn truncation_warning(&self) -> Option<String> {
        let texts = match self.writer.cut {
            0 => return None,
            1 => "1 text is".to_owned(),
            n => format!("{} texts are", grouped(n)),
        };
        Some(format!(
            "{texts} longer than a column of Milvus: lexical search covers only the first 65,535 bytes of terms"
        ))
    }

    /// Returns the number of dialogues and the number of turns in the generation that this writer writes.
    pub fn totals(&self) -> Result<Totals> {
        if self.uncreated {
            return Ok(Totals::default());
        }
        self.writer.connection.totals(&self.writer.manifest)
    }

    /// Opens an iterator over the dialogues of the generation that this writer writes. The generation need not be in
    /// use yet.
    pub fn walk(&self) -> Result<Walk> {
        Walk::of(Connection::open(&self.writer.connection.target)?, self.writer.manifest.clone())
    }

    /// Opens the generation that this writer writes, and returns an engine that searches it. The generation need not be
    /// in use yet.
    pub fn open_engine(&self) -> Result<Milvus> {
        Milvus::of(Connection::open(&self.writer.connection.target)?, self.writer.manifest.clone())
    }

    /// Flushes the buffers of the server if at least 1,000 rows were written since the last flush. Until a flush,
    /// searches are slower.
    pub fn flush(&mut self) -> Result<()> {
        if self.unflushed_rows >= MIN_ROWS_TO_FLUSH {
            self.writer.flush()?;
            self.unflushed_rows = 0;
        }
        Ok(())
    }

    /// Creates the generation if no dialogue was written. If the generation is a new one, switches the name to it and removes
    /// the old generation.
    pub fn finish(&mut self) -> Result<()> {
        self.create(None)?;
        self.replacement.take().map_or(Ok(()), |next| next.finish(&self.writer.connection))
    }

    /// Deletes the dialogues with these ids. Returns the number of dialogues that existed and were deleted.
    pub fn delete(&mut self, ids: &[DialogueId]) -> Result<u64> {
        let existing = self.existing(ids)?;
        self.writer.delete(&existing)?;
        self.known.extend(existing.iter().map(|key| (*key, None)));
        Ok(existing.len() as u64)
    }

    /// Returns how many dialogues with these ids exist.
    pub fn count_existing(&mut self, ids: &[DialogueId]) -> Result<u64> {
        Ok(self.existing(ids)?.len() as u64)
    }

    fn existing(&mut self, ids: &[DialogueId]) -> Result<Vec<IdKey>> {
        let keys: Vec<IdKey> = ids.iter().map(DialogueId::key).collect();
        self.prefetch(&keys)?;
        Ok(keys.into_iter().filter(|key| self.known.get(key).copied().flatten().is_some()).collect())
    }

    /// Deletes the dialogues that match a filter. Returns the number of deleted dialogues.
    pub fn delete_matching(&mut self, filter: &Filter) -> Result<u64> {
        self.for_each_match(filter, &mut |writer, ids| writer.delete(ids))
    }

    /// Returns the number of dialogues that match a filter.
    pub fn count_matching(&mut self, filter: &Filter) -> Result<u64> {
        self.for_each_match(filter, &mut |_, ids| Ok(ids.len() as u64))
    }

    /// Calls `count` with the ids of the dialogues that match a filter, one group of ids at a time. Returns the sum of
    /// the numbers that `count` returns.
    fn for_each_match(
        &mut self,
        filter: &Filter,
        count: &mut dyn FnMut(&mut Self, &[DialogueId]) -> Result<u64>,
    ) -> Result<u64> {
        let (mut sum, mut after) = (0, None);
        loop {
            let (connection, manifest) = (&self.writer.connection, &self.writer.manifest);
            let (found, next) = connection.list_dialogues(manifest, after, Some(filter), NAMED)?;
            let ids: Vec<DialogueId> = found.into_iter().map(|(_, dialogue)| dialogue.id).collect();
            sum += count(self, &ids)?;
            if next.is_none() {
                return Ok(sum);
            }
            after = next;
        }
    }
}

/// Formats a number with a comma between groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn encoding(manifest: &Manifest, encoder: Option<Arc<dyn Encoder>>) -> Option<Box<dyn VectorSource>> {
    let (recipe, encoder) = (manifest.recipe.as_ref()?, encoder?);
    Some(Box::new(Encoding::new(encoder, recipe)))
}

fn other_encoder(target: &Target, manifest: &Manifest, source: Option<&dyn VectorSource>) -> Error {
    let stored =
        manifest.recipe.as_ref().map(|r| format!("{} ({})", r.name, r.fingerprint)).unwrap_or_default();
    let given = source.map_or("no encoder is given".to_owned(), |source| {
        format!("the given encoder is {} ({})", source.name(), source.fingerprint())
    });
    Error::input(format!("the vectors at {target} were made by {stored}, but {given}")).with_hint(format!(
        "use the model that made them (--model); or `turnwise encode --engine {target} --model MODEL --replace` \
         encodes everything again, while the old vectors stay in use"
    ))
}

impl DialogueSink for MilvusWriter {
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        if let Some((dialogue, _)) = self.pending.iter().rev().find(|(dialogue, _)| dialogue.id == *id) {
            return Ok(Some(dialogue.clone()));
        }
        let key = id.key();
        if self.known.get(&key) == Some(&None) {
            return Ok(None);
        }
        if self.uncreated {
            return Ok(None);
        }
        let mut read = self.writer.connection.dialogues(&self.writer.manifest, &[key])?;
        Ok(read.remove(&key).map(|(_, dialogue)| dialogue))
    }

    fn prefetch(&mut self, ids: &[IdKey]) -> Result<()> {
        let unknown: Vec<IdKey> = ids.iter().filter(|key| !self.known.contains_key(key)).copied().collect();
        for some in unknown.chunks(NAMED) {
            if self.uncreated {
                self.known.extend(some.iter().map(|key| (*key, None)));
                continue;
            }
            let filter = format!("{} and piece == 0", key_in(some));
            let found = self.writer.connection.rows(&self.writer.records(), &filter, &["key", "version"])?;
            let found = columns(&found);
            let versions = found.texts("key").iter().zip(found.numbers("version"));
            self.known.extend(some.iter().map(|key| (*key, None)));
            self.known.extend(
                versions.filter_map(|(key, version)| Some((key_of(key)?, Some(Version(*version as u64))))),
            );
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
        // Check the limits of Milvus before anything is written, so that the error names the record that exceeds them.
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
        if self.uncreated {
            let turns = self.pending.iter().flat_map(|(dialogue, _)| &dialogue.turns);
            let analyzer = Analyzer::detect(turns.map(|turn| &turn.text));
            self.create(Some(analyzer))?;
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

    /// Returns `None`, because Milvus stores no position of an interrupted ingest. A repeated ingest recognizes
    /// existing dialogues by their version and skips them.
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
