//! One Tantivy index, of utterances or of dialogues. Both indexes have the same fields, except for the titles.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde::{Deserialize, Serialize};
use tantivy::{
    Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, Term,
    directory::{Directory, INDEX_WRITER_LOCK, error::LockError},
    indexer::NoMergePolicy,
    schema::{FAST, Field, INDEXED, IndexRecordOption, STRING, Schema, TextFieldIndexing, TextOptions},
};

use super::{
    adapters::{AnalyzerTokenizer, Overlay},
    top::Columns,
};
use crate::vectors::Kind;
use turnwise_core::{
    error::{Error, IoContext, Result, caught},
    ids::Seq,
};
use turnwise_store::Position;
use turnwise_text::Analyzer;

const WRITER_BYTES: usize = 64 << 20;

/// Error message for damage that makes Tantivy panic.
pub(super) const DAMAGED: &str = "the lexical index is damaged";

/// Analyzer of a Tantivy index, and the log position that the index has reached. Stored with each commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) analyzer: String,
    /// Number of texts that were read to detect the analyzer; `None` if the user chose the analyzer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) detected_from: Option<usize>,
    pub(super) log: String,
    pub(super) at: Position,
    pub(super) batch: u64,
}

/// One Tantivy index: of utterances or of dialogues.
pub(super) struct Side {
    pub(super) folder: PathBuf,
    pub(super) index: Index,
    pub(super) fields: Fields,
    /// True if writes stay in memory.
    in_memory: bool,
    state: OnceLock<SearchState>,
}

/// Values of a new document's fields; see [`Fields`].
pub(super) struct NewDocument<'a> {
    pub(super) dialogue: &'a str,
    pub(super) turn: u32,
    pub(super) seq: Seq,
    pub(super) last: u32,
    pub(super) text: &'a str,
    pub(super) title: Option<&'a str>,
    pub(super) facts: &'a [String],
}

#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// Id of the dialogue, as one term.
    pub(super) dialogue: Field,
    /// Turn number; 0 for a whole dialogue.
    pub(super) turn: Field,
    pub(super) seq: Field,
    /// For a whole dialogue, the number of its last turn; 0 for a turn.
    pub(super) last: Field,
    /// Facts of the dialogue or turn, which filters test; see `Facts`.
    pub(super) facts: Field,
    /// Text of the turn, or of all turns of the dialogue.
    pub(super) text: Field,
    /// Title of the dialogue. `None` in an index of utterances, and in one from before titles were searched.
    pub(super) title: Option<Field>,
}

/// Searcher and columns of a Tantivy index, opened once and shared by all searches.
pub(super) struct SearchState {
    pub(super) searcher: Searcher,
    /// Columns of each segment, in the order of the searcher's segments.
    pub(super) columns: Vec<Columns>,
    progress: Option<Progress>,
}

impl Side {
    pub(super) fn create(folder: &Path, kind: Kind, analyzer: Analyzer) -> Result<Self> {
        fs::create_dir_all(folder).at("create", folder)?;
        let (schema, fields) = schema(analyzer, kind == Kind::Dialogues);
        let index = Index::create_in_dir(folder, schema).map_err(|e| failed(folder, &e))?;
        Ok(Side::wrap(folder, index, fields, analyzer))
    }

    /// Opens a Tantivy index; `None` if another version of turnwise created it with other fields.
    pub(super) fn open(folder: &Path, analyzer: Analyzer) -> Result<Option<Self>> {
        let index = Index::open_in_dir(folder).map_err(|e| damaged(folder, &e))?;
        let (schema, fields) = schema(analyzer, has_titles(&index));
        Ok((index.schema() == schema).then(|| Side::wrap(folder, index, fields, analyzer)))
    }

    /// Opens a Tantivy index with an in-memory layer for writes. The files on disk do not change.
    pub(super) fn with_memory_layer(folder: &Path, analyzer: Analyzer) -> Result<Self> {
        let overlay = Overlay::with_memory_layer(folder).map_err(|e| damaged(folder, &e))?;
        let index = Index::open(overlay).map_err(|e| damaged(folder, &e))?;
        let (_, fields) = schema(analyzer, has_titles(&index));
        Ok(Side { in_memory: true, ..Side::wrap(folder, index, fields, analyzer) })
    }

    fn wrap(folder: &Path, index: Index, fields: Fields, analyzer: Analyzer) -> Self {
        index.tokenizers().register(&analyzer.to_string(), AnalyzerTokenizer(analyzer));
        Side { folder: folder.to_owned(), index, fields, in_memory: false, state: OnceLock::new() }
    }

    /// Reads the progress of the Tantivy index in a folder, even if another version of turnwise created the index with
    /// other fields. Returns `None` before the first commit.
    pub(super) fn progress_in(folder: &Path) -> Result<Option<Progress>> {
        let index = Index::open_in_dir(folder).map_err(|e| damaged(folder, &e))?;
        let metas = index.load_metas().map_err(|e| damaged(folder, &e))?;
        Ok(metas.payload.and_then(|payload| serde_json::from_str(&payload).ok()))
    }

    /// Returns the progress of the open search state, or of the last commit if no state is open. Returns `None`
    /// before the first commit, or if the progress cannot be read.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.state.get().map_or_else(|| self.committed(), |state| state.progress.clone())
    }

    fn committed(&self) -> Option<Progress> {
        serde_json::from_str(self.index.load_metas().ok()?.payload.as_deref()?).ok()
    }

    pub(super) fn refuse_if_written(folder: &Path) -> Result<()> {
        let Ok(index) = Index::open_in_dir(folder) else { return Ok(()) };
        match index.directory().acquire_lock(&INDEX_WRITER_LOCK) {
            Err(LockError::LockBusy) => Err(busy(folder)),
            _ => Ok(()),
        }
    }

    pub(super) fn writer(&self) -> Result<IndexWriter> {
        // In memory there are few documents, and they must not be merged with segments on disk.
        let threads = if self.in_memory { 1 } else { rayon::current_num_threads().clamp(1, 4) };
        let writer = self.index.writer_with_num_threads(threads, WRITER_BYTES * threads);
        let writer = writer.map_err(|e| self.failed(&e))?;
        if self.in_memory {
            writer.set_merge_policy(Box::new(NoMergePolicy));
        }
        Ok(writer)
    }

    pub(super) fn delete_dialogue(&self, writer: &IndexWriter, dialogue: &str) {
        writer.delete_term(Term::from_field_text(self.fields.dialogue, dialogue));
    }

    pub(super) fn add(&self, writer: &IndexWriter, new: &NewDocument<'_>) -> Result<()> {
        let mut document = TantivyDocument::default();
        document.add_text(self.fields.dialogue, new.dialogue);
        document.add_u64(self.fields.turn, u64::from(new.turn));
        document.add_u64(self.fields.seq, new.seq.0);
        document.add_u64(self.fields.last, u64::from(new.last));
        document.add_text(self.fields.text, new.text);
        if let (Some(field), Some(title)) = (self.fields.title, new.title) {
            document.add_text(field, title);
        }
        new.facts.iter().for_each(|fact| document.add_text(self.fields.facts, fact));
        writer.add_document(document).map(drop).map_err(|e| self.failed(&e))
    }

    /// Commits the documents together with the progress, and waits until all merges are finished.
    pub(super) fn commit(&self, mut writer: IndexWriter, progress: &Progress) -> Result<()> {
        let payload = serde_json::to_string(progress).map_err(|e| Error::Internal(e.to_string()))?;
        let commit = move || {
            let mut commit = writer.prepare_commit()?;
            commit.set_payload(&payload);
            commit.commit()?;
            writer.wait_merging_threads()
        };
        commit().map_err(|e| self.failed(&e))
    }

    /// Returns the search state. The first call opens it; later calls reuse it.
    pub(super) fn state(&self) -> Result<&SearchState> {
        if let Some(state) = self.state.get() {
            return Ok(state);
        }
        let failed = |e: tantivy::TantivyError| self.failed(&e);
        let (reader, progress) = loop {
            let progress = self.committed();
            let reader = self.index.reader_builder().reload_policy(ReloadPolicy::Manual);
            let reader: IndexReader = reader.try_into().map_err(failed)?;
            // Read again if another process committed in between.
            if self.committed() == progress {
                break (reader, progress);
            }
        };
        let searcher = reader.searcher();
        let columns = searcher.segment_readers().iter().map(Columns::open).collect::<Result<_, _>>();
        let state = SearchState { columns: columns.map_err(failed)?, searcher, progress };
        Ok(self.state.get_or_init(|| state))
    }

    /// Runs code that calls Tantivy, which panics on some kinds of damage. A panic becomes an error with the message
    /// `what`.
    pub(super) fn guarded<T>(&self, what: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
        caught(call).unwrap_or_else(|| Err(damaged(&self.folder, &what)))
    }

    pub(super) fn failed(&self, e: &tantivy::TantivyError) -> Error {
        failed(&self.folder, e)
    }

    pub(super) fn damaged_files(&self) -> Result<Vec<PathBuf>> {
        let found = caught(|| self.index.validate_checksum()).unwrap_or_else(|| Ok(Default::default()));
        let names = found.map_err(|e| self.failed(&e))?;
        Ok(names.into_iter().map(|name| self.folder.join(name)).collect())
    }
}

/// Name of the field for titles.
const TITLE: &str = "title";

fn has_titles(index: &Index) -> bool {
    index.schema().get_field(TITLE).is_ok()
}

fn schema(analyzer: Analyzer, with_titles: bool) -> (Schema, Fields) {
    let mut schema = Schema::builder();
    // No field is stored: ids are in the columns, and texts are in the records.
    let dialogue = schema.add_text_field("dialogue", STRING | FAST);
    let turn = schema.add_u64_field("turn", FAST | INDEXED);
    let seq = schema.add_u64_field("seq", FAST);
    let last = schema.add_u64_field("last", FAST);
    let facts = schema.add_text_field("facts", TextOptions::default().set_fast("raw"));
    // BM25 needs only frequencies; positions are for phrases in the query language.
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(&analyzer.to_string())
        .set_index_option(IndexRecordOption::WithFreqsAndPositions);
    let text = TextOptions::default().set_indexing_options(indexing);
    let title = text.clone();
    let text = schema.add_text_field("text", text);
    // The last field, so that the other fields are the same in both indexes.
    let title = with_titles.then(|| schema.add_text_field(TITLE, title));
    (schema.build(), Fields { dialogue, turn, seq, last, facts, text, title })
}

fn busy(folder: &Path) -> Error {
    Error::Busy {
        path: folder.to_owned(),
        holder: "another process that is building its lexical index".to_owned(),
    }
}

fn damaged(folder: &Path, e: &dyn std::fmt::Display) -> Error {
    /// Maximum number of characters of an error message. Tantivy's errors may contain whole files.
    const LONGEST: usize = 200;
    let mut what = e.to_string();
    if let Some((end, _)) = what.char_indices().nth(LONGEST) {
        what.truncate(end);
        what.push('…');
    }
    Error::corrupt(folder, what).with_hint("`turnwise index build` rebuilds it")
}

fn failed(folder: &Path, e: &tantivy::TantivyError) -> Error {
    use ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match e {
        // Even reading takes a lock for a moment, which needs write permission for the folder.
        tantivy::TantivyError::LockFailure(LockError::IoError(source), _) => Error::Io {
            action: "lock the lexical index in",
            path: folder.to_owned(),
            source: std::io::Error::from(source.kind()),
        },
        tantivy::TantivyError::LockFailure(LockError::LockBusy, _) => busy(folder),
        // Invalid content means damage, not a failure of the disk.
        tantivy::TantivyError::IoError(source)
            if matches!(source.kind(), InvalidData | InvalidInput | UnexpectedEof | Other) =>
        {
            damaged(folder, e)
        }
        tantivy::TantivyError::IoError(source) => Error::Io {
            action: "use the lexical index in",
            path: folder.to_owned(),
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        other => damaged(folder, other),
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;

    #[test]
    fn invalid_content_is_damage_and_missing_permission_is_not() {
        let of = |kind: ErrorKind| {
            let e = tantivy::TantivyError::IoError(Arc::new(io::Error::new(kind, "x".repeat(1000))));
            failed(Path::new("lexical"), &e)
        };
        for kind in [ErrorKind::InvalidData, ErrorKind::UnexpectedEof, ErrorKind::Other] {
            let e = of(kind);
            assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().len() < 300, "{e}");
        }
        assert!(matches!(of(ErrorKind::PermissionDenied), Error::Io { .. }));
        assert!(matches!(of(ErrorKind::StorageFull), Error::Io { .. }));
    }
}
