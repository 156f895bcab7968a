//! The engine on this machine: a folder with records, Tantivy's indexes and graphs over the vectors.

mod filtered;
mod view;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

pub use filtered::Filtered;

use super::{
    dense::DenseReader,
    engine::{Capabilities, Engine, SearchModes, View, Words},
    lexical::Lexical,
    vectors::{Kind, Recipe, VectorReader},
};
use turnwise_core::error::{Error, Result};
use turnwise_store::{Snapshot, frame::Totals};
use turnwise_text::Analyzer;

/// So many utterances are taken into memory without it being worth a word.
const LONG_LEXICAL_TAIL: u64 = 50_000;
/// So many dialogues are looked at one by one without it being worth a word.
const LONG_TAIL: usize = 10_000;

/// An index folder as of one moment.
pub struct Embedded {
    root: PathBuf,
    snapshot: Snapshot,
    /// Why there is none is told where one is needed.
    lexical: Result<Lexical>,
    dense: Option<DenseReader>,
    /// What was worked out for filters, the last first.
    filters: Mutex<Vec<Arc<Filtered>>>,
}

impl Embedded {
    /// Opens what a snapshot of an index sees.
    pub fn over(root: &Path, snapshot: Snapshot) -> Result<Self> {
        let dense = DenseReader::open(root, &snapshot)?;
        Ok(Embedded {
            root: root.to_owned(),
            lexical: Lexical::open_at(root, &snapshot),
            dense,
            snapshot,
            filters: Mutex::default(),
        })
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The records that are seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The vectors, if there are any.
    pub fn dense(&self) -> Option<&DenseReader> {
        self.dense.as_ref()
    }

    /// The index by words, or why there is none.
    pub fn lexical(&self) -> Result<&Lexical> {
        match &self.lexical {
            Ok(lexical) => Ok(lexical),
            // Opened once more, for an error of one's own.
            Err(_) => Lexical::open_at(&self.root, &self.snapshot).and_then(|_| {
                Err(Error::Unavailable {
                    message: format!("the lexical index of {} came just now", self.root.display()),
                    hint: Some("ask again".to_owned()),
                })
            }),
        }
    }

    fn vectors(&self) -> Result<&DenseReader> {
        self.dense.as_ref().ok_or_else(|| self.without_vectors())
    }

    /// What searching by words misses, or has to do again each time.
    fn notes_on_words(&self) -> Option<String> {
        let (Ok(lexical), root) = (&self.lexical, self.root.display()) else { return None };
        if !lexical.is_current(&self.snapshot) {
            return Some(format!(
                "the search index is behind the records; `turnwise index build -i {root}` brings it up to date"
            ));
        }
        (lexical.tail() > LONG_LEXICAL_TAIL).then(|| {
            format!(
                "{} utterances had to be taken into memory before they could be searched by words; `turnwise index build \
                 -i {root}` takes them in once for all",
                lexical.tail()
            )
        })
    }

    /// The same of searching by meaning.
    fn notes_on_meaning(&self, kind: Kind) -> Vec<String> {
        let (Some(dense), root) = (&self.dense, self.root.display()) else { return Vec::new() };
        let counted = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let without = dense.without(kind);
        let missing = (without > 0).then(|| {
            format!(
                "{} cannot be found by meaning yet; `turnwise encode -i {root}` and then `turnwise index build -i {root}` \
                 change that",
                counted(without, kind.name().trim_end_matches('s'))
            )
        });
        let slow = (dense.tail() > LONG_TAIL).then(|| {
            format!(
                "{} have to be looked at one by one; `turnwise index build -i {root}` makes that faster",
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

    fn without_vectors(&self) -> Error {
        VectorReader::none_yet(&self.root)
    }

    fn how_to_encode_anew(&self) -> String {
        format!(
            "`turnwise encode -i {} --replace` makes them anew with what is there now",
            self.root.display()
        )
    }

    fn has_words(&self) -> Result<()> {
        self.lexical().map(drop)
    }

    fn analyzer(&self) -> Analyzer {
        self.lexical.as_ref().map(Lexical::analyzer).unwrap_or_default()
    }

    fn expression(&self, text: &str) -> Result<Words> {
        let query = self.lexical()?.syntax(text);
        Ok(Words {
            text: None,
            terms: query.terms().to_vec(),
            expression: Some(text.to_owned()),
            warnings: query.warnings().to_vec(),
        })
    }

    fn telling(&self, text: &str, kind: Kind, most: usize) -> Result<Words> {
        Ok(Words::of_terms(self.lexical()?.telling(text, kind, most)?.terms().to_vec()))
    }

    fn percentile(&self, from: Kind, to: Kind, cosine: f32) -> Result<Option<f64>> {
        match &self.dense {
            Some(dense) => Ok(dense.background(from, to)?.percentile(cosine)),
            None => Ok(None),
        }
    }

    fn notes(&self, kind: Kind, modes: SearchModes, unasked: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if unasked
            && !modes.lexical
            && let Err(e) = &self.lexical
        {
            notes.push(format!(
                "nothing is looked for by its words: {e}; `turnwise index build -i {}` changes that",
                self.root.display()
            ));
        }
        if modes.lexical {
            notes.extend(self.notes_on_words());
        }
        if modes.dense {
            notes.extend(self.notes_on_meaning(kind));
        }
        notes
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(view::EmbeddedView { engine: self, filtered: None })
    }

    fn embedded(&self) -> Option<&Embedded> {
        Some(self)
    }
}
