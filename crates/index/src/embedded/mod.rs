//! The local engine: a folder with records, Tantivy indexes and vector graphs.

mod folder;
mod view;

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

pub use folder::Folder;
pub use view::Filtered;

use super::{
    dense::DenseReader,
    engine::{Capabilities, Engine, KeywordQuery, SearchModes, View, spread_is_known},
    lexical::{Lexical, detect_analyzer},
    speakers::SpeakerCache,
    vectors::{Kind, Recipe, VectorReader},
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Time, filter::Filter};
use turnwise_store::{Snapshot, Totals};
use turnwise_text::{Analyzer, dates::DateRange};

/// If more than this number of utterances are indexed in memory only, the user gets a note.
const LONG_LEXICAL_TAIL: u64 = 50_000;
/// If more than this number of dialogues are not in the vector graphs, the user gets a note.
const LONG_TAIL: usize = 10_000;
/// Maximum number of names of speakers that are kept in memory.
const MOST_SPEAKERS: usize = 10_000;

/// A local index in the state of one snapshot.
pub struct Embedded {
    root: PathBuf,
    snapshot: Snapshot,
    /// The lexical index, or the error that occurred when it was opened. The error is reported only when a request
    /// needs the index.
    lexical: Result<Lexical>,
    /// Analyzer for highlighting, without a lexical index. It is detected when it is needed.
    detected: OnceLock<Analyzer>,
    /// The vectors and graphs; `None` if there are no vectors.
    dense: Option<DenseReader>,
    /// Cached filter results, most recently used first.
    filters: Mutex<Vec<Arc<Filtered>>>,
    speakers: SpeakerCache,
}

impl Embedded {
    /// Opens the index folder `root` in the state of a snapshot.
    pub fn over(root: &Path, snapshot: Snapshot) -> Result<Self> {
        let dense = DenseReader::open(root, &snapshot)?;
        Ok(Embedded {
            root: root.to_owned(),
            lexical: Lexical::open_at(root, &snapshot),
            detected: OnceLock::new(),
            dense,
            snapshot,
            filters: Mutex::default(),
            speakers: SpeakerCache::new(MOST_SPEAKERS),
        })
    }

    /// Returns the index folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the snapshot of the records.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the vectors and graphs; `None` if there are no vectors.
    pub fn dense(&self) -> Option<&DenseReader> {
        self.dense.as_ref()
    }

    /// Returns the lexical index, or an error that says why the index is not available.
    pub fn lexical(&self) -> Result<&Lexical> {
        match &self.lexical {
            Ok(lexical) => Ok(lexical),
            // `Error` is not `Clone`: open the index again to get an owned error.
            Err(_) => Lexical::open_at(&self.root, &self.snapshot).and_then(|_| {
                let message =
                    format!("the lexical index of {} was created a moment ago", self.root.display());
                Err(Error::unavailable(message).with_hint("repeat the request"))
            }),
        }
    }

    fn vectors(&self) -> Result<&DenseReader> {
        self.dense.as_ref().ok_or_else(|| self.no_vectors_error())
    }

    /// Returns a note for the user if the lexical index does not match the snapshot, or if many utterances are indexed
    /// in memory only.
    fn lexical_note(&self) -> Option<String> {
        let (Ok(lexical), root) = (&self.lexical, self.root.display()) else { return None };
        if !lexical.is_current(&self.snapshot) {
            return Some(format!(
                "the lexical index does not match the records; `turnwise index build -i {root}` updates it"
            ));
        }
        (lexical.tail() > LONG_LEXICAL_TAIL).then(|| {
            format!(
                "{} utterances had to be indexed in memory before the lexical search; `turnwise index build \
                 -i {root}` adds them to the lexical index",
                lexical.tail()
            )
        })
    }

    /// Returns notes for the user if items have no vector, or if many dialogues are not in the vector graphs.
    fn dense_notes(&self, kind: Kind) -> Vec<String> {
        let (Some(dense), root) = (&self.dense, self.root.display()) else { return Vec::new() };
        let counted = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let without = dense.without(kind);
        let missing = (without > 0).then(|| {
            format!(
                "dense search cannot find {} yet; run `turnwise encode -i {root}` and then \
                 `turnwise index build -i {root}`",
                counted(without, kind.name().trim_end_matches('s'))
            )
        });
        let slow = (dense.tail() > LONG_TAIL).then(|| {
            format!(
                "{} are not in the vector graph and are searched one by one; \
                 `turnwise index build -i {root}` makes this faster",
                counted(dense.tail() as u64, "dialogue")
            )
        });
        missing.into_iter().chain(slow).collect()
    }
}

impl Engine for Embedded {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            expressions: true,
            exact: true,
            terms_explained: true,
            percentiles: true,
            surveys: true,
            in_order: true,
            deepest: usize::MAX,
        }
    }

    fn totals(&self) -> Totals {
        self.snapshot.totals()
    }

    fn generation(&self) -> u64 {
        self.snapshot.generation()
    }

    fn recipe(&self) -> Option<&Recipe> {
        self.dense.as_ref().map(|dense| dense.vectors().recipe())
    }

    fn rows(&self, kind: Kind) -> u64 {
        self.dense.as_ref().map_or(0, |dense| dense.vectors().rows(kind) as u64)
    }

    fn no_vectors_error(&self) -> Error {
        VectorReader::missing_error(&self.root)
    }

    fn reencode_hint(&self) -> String {
        format!(
            "`turnwise encode -i {} --replace` encodes them again with the current encoder",
            self.root.display()
        )
    }

    fn check_lexical(&self) -> Result<()> {
        self.lexical().map(drop)
    }

    fn analyzer(&self) -> Analyzer {
        let detected = || *self.detected.get_or_init(|| detect_analyzer(&self.snapshot).unwrap_or_default());
        self.lexical.as_ref().map_or_else(|_| detected(), Lexical::analyzer)
    }

    fn expression(&self, text: &str) -> Result<KeywordQuery> {
        let query = self.lexical()?.syntax(text);
        Ok(KeywordQuery {
            text: None,
            terms: query.terms().to_vec(),
            expression: Some(text.to_owned()),
            warnings: query.warnings().to_vec(),
        })
    }

    fn informative_terms(&self, text: &str, kind: Kind, most: usize) -> Result<KeywordQuery> {
        Ok(KeywordQuery::of_terms(self.lexical()?.informative_terms(text, kind, most)?.terms().to_vec()))
    }

    fn speakers(&self, names: &[&str], most: usize) -> Result<Vec<Vec<String>>> {
        let lexical = self.lexical()?;
        let look_up = || names.iter().map(|name| lexical.speakers(name, most)).collect();
        self.speakers.called(names, most, |most| lexical.all_speakers(most), look_up)
    }

    fn all_speakers(&self, most: usize) -> Result<Vec<String>> {
        let lexical = self.lexical()?;
        self.speakers.first(most, |most| lexical.all_speakers(most))
    }

    fn absent_terms(&self, terms: &[String]) -> Result<Vec<String>> {
        self.lexical()?.absent_terms(terms)
    }

    fn has_time(&self, days: &DateRange) -> Result<bool> {
        match days.last.tomorrow() {
            Ok(after) => self.lexical()?.has_time(&days.first.to_string(), &after.to_string()),
            Err(_) => Ok(true),
        }
    }

    fn percentile(&self, from: Kind, to: Kind, cosine: f32) -> Result<Option<f64>> {
        match &self.dense {
            Some(dense) => Ok(dense.background(from, to)?.percentile(cosine)),
            None => Ok(None),
        }
    }

    fn spread(&self, from: Kind, to: Kind) -> Result<Option<(f32, f32)>> {
        match &self.dense {
            Some(dense) if spread_is_known(self, from, to) => Ok(dense.background(from, to)?.spread()),
            _ => Ok(None),
        }
    }

    fn notes(&self, kind: Kind, modes: SearchModes, by_default: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if by_default
            && !modes.lexical
            && let Err(e) = &self.lexical
        {
            notes.push(format!(
                "lexical search is off: {e}; `turnwise index build -i {}` creates the lexical index",
                self.root.display()
            ));
        }
        if modes.lexical {
            notes.extend(self.lexical_note());
        }
        if modes.dense {
            notes.extend(self.dense_notes(kind));
        }
        notes
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(view::EmbeddedView { engine: self, filtered: None, last_read: RefCell::default() })
    }

    fn created(&self) -> Option<Time> {
        Some(self.snapshot.created())
    }

    fn count(&self, filter: &Filter) -> Result<Option<Totals>> {
        let mut totals = Totals::default();
        for dialogue in self.snapshot.dialogues() {
            let dialogue = dialogue?;
            if filter.matches(&dialogue) {
                totals.dialogues += 1;
                totals.turns += dialogue.turns.len() as u64;
            }
        }
        Ok(Some(totals))
    }

    fn local(&self, _: &str) -> Result<&Embedded> {
        Ok(self)
    }
}
