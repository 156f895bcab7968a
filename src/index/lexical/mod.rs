//! BM25 over the utterances, with Tantivy.
//!
//! The index follows the log: it remembers how far it has come and takes in what was appended since. It holds terms
//! and ids only; texts stay in the records.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tantivy::{
    DocAddress, Index, IndexReader, IndexWriter, ReloadPolicy, TantivyDocument, Term,
    collector::TopDocs,
    directory::error::LockError,
    query::{BooleanQuery, Occur, Query, TermQuery},
    schema::{
        FAST, Field, INDEXED, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions,
        Value,
    },
    tokenizer::{TokenStream, Tokenizer},
};

use crate::{
    corpus::Dialogue,
    error::{Error, IoContext, Result},
    ids::{DialogueId, TurnNo, UtteranceId},
    store::{Change, Position, Snapshot, records::caught},
    text,
};

const WRITER_BYTES: usize = 64 << 20;

/// How far an index has come, kept in its commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Progress {
    analyzer: String,
    log: String,
    at: Position,
    batch: u64,
}

/// The lexical index of an index folder.
pub struct Lexical {
    folder: PathBuf,
    index: Index,
    fields: Fields,
}

#[derive(Clone, Copy)]
struct Fields {
    dialogue: Field,
    turn: Field,
    text: Field,
}

/// An utterance that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct LexicalHit {
    /// Which one.
    pub utterance: UtteranceId,
    /// Its BM25 score.
    pub score: f32,
}

impl Lexical {
    fn folder(root: &Path) -> PathBuf {
        root.join("lexical")
    }

    /// Opens what is there.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = Lexical::folder(root);
        if !folder.is_dir() {
            return Err(Error::Input {
                message: format!("{} has no lexical index yet", root.display()),
                hint: Some("`turnwise index build` makes it".to_owned()),
            });
        }
        let damaged = |e: &dyn std::fmt::Display| {
            Error::corrupt(&folder, e.to_string()).with_hint("`turnwise index build` makes it anew")
        };
        let index = Index::open_in_dir(&folder).map_err(|e| damaged(&e))?;
        Lexical::wrap(&folder, index).ok_or_else(|| damaged(&"its fields are not those of this turnwise"))
    }

    /// Removes it; the next update makes it anew.
    pub fn remove(root: &Path) -> Result<()> {
        crate::store::files::remove_folder(&Lexical::folder(root))
    }

    fn wrap(folder: &Path, index: Index) -> Option<Self> {
        let schema = index.schema();
        let field = |name| schema.get_field(name).ok();
        let fields = Fields { dialogue: field("dialogue")?, turn: field("turn")?, text: field("text")? };
        index.tokenizers().register(text::ANALYZER, MixedTokenizer::default());
        Some(Lexical { folder: folder.to_owned(), index, fields })
    }

    fn create(root: &Path) -> Result<Self> {
        let folder = Lexical::folder(root);
        Lexical::remove(root)?;
        fs::create_dir_all(&folder).at("create", &folder)?;
        let mut schema = Schema::builder();
        schema.add_text_field("dialogue", STRING | STORED);
        schema.add_u64_field("turn", FAST | STORED | INDEXED);
        // BM25 needs frequencies, not positions.
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(text::ANALYZER)
            .set_index_option(IndexRecordOption::WithFreqs);
        schema.add_text_field("text", TextOptions::default().set_indexing_options(indexing));
        let index = Index::create_in_dir(&folder, schema.build()).map_err(|e| failed(&folder, &e))?;
        Lexical::wrap(&folder, index).ok_or_else(|| Error::Internal("a schema without its own fields".into()))
    }

    /// Brings the index up to a snapshot, building it if there is none, and gives how many utterances were taken in.
    /// `stop` is asked now and then; stopping leaves the index as it was.
    pub fn update(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let target = Progress {
            analyzer: text::ANALYZER.to_owned(),
            log: snapshot.log_id().to_owned(),
            at: snapshot.end(),
            batch: snapshot.batch(),
        };
        // Another analysis, another log, damage: all mean the same, that it is made anew.
        let usable = Lexical::open(root).ok().and_then(|lexical| {
            let done = lexical.progress()?;
            (done.analyzer == target.analyzer && done.log == target.log && done.at <= target.at)
                .then_some((lexical, done.at))
        });
        let (lexical, from) = match usable {
            Some((_, at)) if at == target.at => return Ok(0),
            Some((lexical, at)) => (lexical, at),
            None => (Lexical::create(root)?, Position::START),
        };
        let mut taken = 0;
        let mut writer = lexical.writer()?;
        let mut changes = snapshot.changes(from);
        while let Some(change) = changes.next_change() {
            match change? {
                Change::Deleted(id) => lexical.forget(&writer, id),
                Change::Put { dialogue, live } => {
                    if from != Position::START {
                        lexical.forget(&writer, dialogue.id.as_str());
                    }
                    if live {
                        taken += dialogue.turns.len() as u64;
                        lexical.add(&writer, &dialogue)?;
                    }
                }
            }
            if stop() {
                return Err(Error::Interrupted {
                    hint: Some("`turnwise index build` makes the lexical index".to_owned()),
                });
            }
            progress(taken);
        }
        let failed = |e: tantivy::TantivyError| failed(&lexical.folder, &e);
        let mut commit = writer.prepare_commit().map_err(failed)?;
        commit.set_payload(&serde_json::to_string(&target).map_err(|e| Error::Internal(e.to_string()))?);
        commit.commit().map_err(failed)?;
        writer.wait_merging_threads().map_err(failed)?;
        Ok(taken)
    }

    fn progress(&self) -> Option<Progress> {
        serde_json::from_str(self.index.load_metas().ok()?.payload.as_deref()?).ok()
    }

    /// Whether it holds what a snapshot holds.
    pub fn is_current(&self, snapshot: &Snapshot) -> bool {
        self.progress().is_some_and(|p| p.batch == snapshot.batch() && p.log == snapshot.log_id())
    }

    fn writer(&self) -> Result<IndexWriter> {
        let threads = rayon::current_num_threads().clamp(1, 4);
        self.index
            .writer_with_num_threads(threads, WRITER_BYTES * threads)
            .map_err(|e| failed(&self.folder, &e))
    }

    fn forget(&self, writer: &IndexWriter, dialogue: &str) {
        writer.delete_term(Term::from_field_text(self.fields.dialogue, dialogue));
    }

    fn add(&self, writer: &IndexWriter, dialogue: &Dialogue) -> Result<()> {
        for turn in &dialogue.turns {
            let mut document = TantivyDocument::default();
            document.add_text(self.fields.dialogue, dialogue.id.as_str());
            document.add_u64(self.fields.turn, u64::from(turn.number.0));
            document.add_text(self.fields.text, &turn.text);
            writer.add_document(document).map_err(|e| failed(&self.folder, &e))?;
        }
        Ok(())
    }

    /// The files whose checksum is wrong.
    pub fn damaged_files(&self) -> Result<Vec<PathBuf>> {
        let found = caught(|| self.index.validate_checksum()).unwrap_or_else(|| Ok(Default::default()));
        let mut found: Vec<PathBuf> = match found {
            Ok(names) => names.into_iter().map(|name| self.folder.join(name)).collect(),
            Err(e) => return Err(failed(&self.folder, &e)),
        };
        found.sort();
        Ok(found)
    }

    /// The `k` utterances that fit a query best: score descending, then id descending.
    pub fn search(&self, query: &str, k: usize) -> Result<Vec<LexicalHit>> {
        // Tantivy answers some kinds of damage with a panic.
        caught(|| self.search_sound(query, k)).unwrap_or_else(|| {
            let what = "the search index is damaged";
            Err(Error::corrupt(&self.folder, what).with_hint("`turnwise index build` makes it anew"))
        })
    }

    fn search_sound(&self, query: &str, k: usize) -> Result<Vec<LexicalHit>> {
        let mut terms: Vec<String> = text::analyze(query).into_iter().map(|t| t.term).collect();
        terms.sort_unstable();
        terms.dedup();
        if terms.is_empty() || k == 0 {
            return Ok(Vec::new());
        }
        let clauses = terms.into_iter().map(|term| {
            let term = Term::from_field_text(self.fields.text, &term);
            let clause: Box<dyn Query> = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
            (Occur::Should, clause)
        });
        let query = BooleanQuery::new(clauses.collect());
        let failed = |e: tantivy::TantivyError| failed(&self.folder, &e);
        let reader: IndexReader =
            self.index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into().map_err(failed)?;
        let searcher = reader.searcher();
        let found = searcher.search(&query, &TopDocs::with_limit(k).order_by_score()).map_err(failed)?;
        let mut hits = Vec::with_capacity(found.len());
        for (score, address) in found {
            hits.extend(self.hit(&searcher, address, score)?);
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| b.utterance.cmp(&a.utterance)));
        Ok(hits)
    }

    fn hit(
        &self,
        searcher: &tantivy::Searcher,
        address: DocAddress,
        score: f32,
    ) -> Result<Option<LexicalHit>> {
        let document: TantivyDocument = searcher.doc(address).map_err(|e| failed(&self.folder, &e))?;
        let dialogue = document.get_first(self.fields.dialogue).and_then(|v| v.as_str().map(str::to_owned));
        let turn = document.get_first(self.fields.turn).and_then(|v| v.as_u64());
        let (Some(dialogue), Some(turn)) = (dialogue, turn) else { return Ok(None) };
        let utterance = UtteranceId { dialogue: DialogueId::new(dialogue)?, turn: TurnNo(turn as u32) };
        Ok(Some(LexicalHit { utterance, score }))
    }
}

fn failed(folder: &Path, e: &tantivy::TantivyError) -> Error {
    match e {
        // Even reading takes a lock for a moment, which whoever may not write to the folder cannot have.
        tantivy::TantivyError::LockFailure(LockError::IoError(source), _) => Error::Io {
            action: "lock the lexical index in",
            path: folder.to_owned(),
            source: std::io::Error::from(source.kind()),
        },
        tantivy::TantivyError::LockFailure(LockError::LockBusy, _) => Error::Busy {
            path: folder.to_owned(),
            holder: "another process that builds its lexical index".to_owned(),
        },
        tantivy::TantivyError::IoError(source) => Error::Io {
            action: "use the lexical index in",
            path: folder.to_owned(),
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        other => Error::corrupt(folder, other.to_string()).with_hint("`turnwise index build` makes it anew"),
    }
}

/// [`text::analyze`] for Tantivy.
#[derive(Clone, Default)]
struct MixedTokenizer {
    tokens: Vec<text::Token>,
    token: tantivy::tokenizer::Token,
}

struct MixedStream<'a> {
    tokenizer: &'a mut MixedTokenizer,
    next: usize,
}

impl Tokenizer for MixedTokenizer {
    type TokenStream<'a> = MixedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> MixedStream<'a> {
        self.tokens = text::analyze(text);
        MixedStream { tokenizer: self, next: 0 }
    }
}

impl TokenStream for MixedStream<'_> {
    fn advance(&mut self) -> bool {
        let position = self.next;
        self.next += 1;
        let MixedTokenizer { tokens, token } = &mut *self.tokenizer;
        let Some(found) = tokens.get_mut(position) else { return false };
        token.position = position;
        token.offset_from = found.range.start;
        token.offset_to = found.range.end;
        token.text = std::mem::take(&mut found.term);
        true
    }

    fn token(&self) -> &tantivy::tokenizer::Token {
        &self.tokenizer.token
    }

    fn token_mut(&mut self) -> &mut tantivy::tokenizer::Token {
        &mut self.tokenizer.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        corpus::Role,
        store::{Prepared, Store},
    };

    fn put(store: &mut Store, id: &str, text: &str) {
        let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
        dialogue.push("a", Role::User, text);
        dialogue.check().unwrap();
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
    }

    fn update(root: &Path) -> u64 {
        Lexical::update(root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap()
    }

    fn found(root: &Path, query: &str) -> Vec<String> {
        let hits = Lexical::open(root).unwrap().search(query, 10).unwrap();
        hits.into_iter().map(|h| h.utterance.to_string()).collect()
    }

    #[test]
    fn the_index_follows_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut store = Store::open_or_create(root, "test").unwrap();
        put(&mut store, "a", "my parcel is late");
        put(&mut store, "b", "我要退款");
        store.commit(None).unwrap();
        assert_eq!(update(root), 2);
        assert_eq!(found(root, "PARCEL late?"), ["a#1"]);
        assert_eq!(found(root, "退款"), ["b#1"]);
        assert_eq!(found(root, "!?"), Vec::<String>::new());

        put(&mut store, "a", "my refund is late");
        put(&mut store, "c", "parcel");
        store.delete(&DialogueId::new("b").unwrap()).unwrap();
        store.commit(None).unwrap();
        assert_eq!(update(root), 2);
        assert_eq!(update(root), 0);
        assert_eq!(found(root, "parcel"), ["c#1"]);
        assert_eq!(found(root, "refund"), ["a#1"]);
        assert_eq!(found(root, "退款"), Vec::<String>::new());
    }

    #[test]
    fn every_damaged_file_is_told_and_no_search_panics() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut store = Store::open_or_create(root, "test").unwrap();
        for n in 0..300 {
            put(&mut store, &format!("d{n}"), &format!("parcel number {n} and word{}", n % 7));
        }
        store.commit(None).unwrap();
        update(root);
        assert!(Lexical::open(root).unwrap().damaged_files().unwrap().is_empty());
        let files: Vec<PathBuf> =
            fs::read_dir(root.join("lexical")).unwrap().map(|e| e.unwrap().path()).collect();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            // Segment files carry checksums; tantivy's own lists are guarded by their syntax.
            if name.starts_with('.') || name.ends_with(".json") || name.ends_with(".lock") {
                continue;
            }
            let good = fs::read(&file).unwrap();
            let mut bad = good.clone();
            for byte in bad.iter_mut().skip(good.len() / 4).take(good.len() / 2) {
                *byte ^= 0x5a;
            }
            fs::write(&file, &bad).unwrap();
            let told = Lexical::open(root).and_then(|lexical| {
                let _ = lexical.search("parcel word3 number", 10);
                lexical.damaged_files()
            });
            assert!(told.is_err() || told.unwrap().iter().any(|f| f.ends_with(&name)), "{name}");
            fs::write(&file, &good).unwrap();
        }
    }

    #[test]
    fn a_lost_or_damaged_index_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut store = Store::open_or_create(root, "test").unwrap();
        put(&mut store, "a", "hello");
        store.commit(None).unwrap();
        update(root);
        fs::write(root.join("lexical/meta.json"), "{").unwrap();
        assert!(Lexical::open(root).is_err());
        assert_eq!(update(root), 1);
        assert_eq!(found(root, "hello"), ["a#1"]);
    }
}
