//! BM25 search over utterances and over dialogues, with Tantivy.
//!
//! The two indexes contain only terms and ids; texts stay in the records. Each index stores the log position that it
//! has reached, and an update adds newer records.

mod adapters;
mod facets;
mod few;
mod query;
mod select;
mod side;
mod sum;
mod tail;
#[cfg(test)]
mod tests;
mod top;
mod update;
mod values;

use std::path::{Path, PathBuf};

use tantivy::Term;

pub use facets::Counts;
pub use query::{LexicalQuery, TermScore};
pub use select::Selected;
pub use update::detect_analyzer;

use crate::vectors::Kind;
use side::{DAMAGED, Fields, Progress, Side};
use top::Found;
use turnwise_core::{
    error::{Class, Error, Result},
    files,
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// The lexical index of an index folder.
pub struct Lexical {
    analyzer: Analyzer,
    /// The Tantivy indexes of utterances and of dialogues, in the order of [`Kind::ALL`].
    sides: [Side; 2],
    /// Number of utterances that are indexed in memory only.
    tail: u64,
}

/// An utterance or a dialogue found by a search.
#[derive(Debug, Clone, PartialEq)]
pub struct LexicalHit {
    /// BM25 score.
    pub score: f32,
    /// Id of the dialogue.
    pub dialogue: DialogueId,
    /// The turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
    /// Sequence number of the dialogue when it was indexed.
    pub seq: Seq,
    /// Terms of the query that a whole dialogue contains, one bit for each of the first 64 terms. `None` for a turn, and if
    /// the query is an expression.
    pub terms: Option<u64>,
}

fn folder(root: &Path) -> PathBuf {
    root.join("lexical")
}

/// Returns the temporary folders of a rebuild: for the new index, and for the old index while the two are exchanged.
fn temporary_folders(root: &Path) -> [PathBuf; 2] {
    ["lexical.new", "lexical.old"].map(|name| root.join(name))
}

/// Returns the progress of the index of utterances; `None` if no build was ever finished.
fn progress(root: &Path) -> Result<Option<Progress>> {
    let folder = folder(root).join(Kind::Utterances.name());
    if folder.is_dir() { Side::progress_in(&folder) } else { Ok(None) }
}

impl Lexical {
    /// Opens the lexical index on disk. Returns an error if the index does not exist, is damaged, or cannot be read by
    /// this version of turnwise.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = folder(root);
        let Some(name) = Lexical::analyzer_name(root)? else {
            // Old versions of turnwise had a single index, with Tantivy's files directly in this folder.
            let old = folder.join("meta.json").exists();
            return Err(if old { other_version(root) } else { missing(root) });
        };
        let analyzer = name.parse().map_err(|e| unknown_analyzer(root, &name, &e))?;
        let open =
            |kind: Kind| Side::open(&folder.join(kind.name()), analyzer)?.ok_or_else(|| other_version(root));
        Lexical::of_sides(analyzer, open)
    }

    /// Combines the two Tantivy indexes. `open` opens or creates the index of a kind.
    fn of_sides(analyzer: Analyzer, open: impl Fn(Kind) -> Result<Side>) -> Result<Self> {
        let [utterances, dialogues] = Kind::ALL.map(open);
        Ok(Lexical { analyzer, sides: [utterances?, dialogues?], tail: 0 })
    }

    /// Removes the lexical index of an index folder. The next update builds it again.
    pub fn remove(root: &Path) -> Result<()> {
        files::remove_folder(&folder(root))
    }

    /// Returns the name of the analyzer of the lexical index; `None` if no build was ever finished.
    pub fn analyzer_name(root: &Path) -> Result<Option<String>> {
        Ok(progress(root)?.map(|progress| progress.analyzer))
    }

    /// Returns the name of the analyzer with its language and whether the language was detected, for users: for example
    /// `mixed-1+stem-en (English, detected)`. `None` if no build was ever finished.
    pub fn analyzer_description(root: &Path) -> Result<Option<String>> {
        let Some(Progress { analyzer: name, detected_from, .. }) = progress(root)? else { return Ok(None) };
        let language = name.parse().ok().and_then(|analyzer: Analyzer| analyzer.language());
        Ok(Some(match (language, detected_from) {
            (Some(language), Some(_)) => format!("{name} ({language}, detected)"),
            (Some(language), None) => format!("{name} ({language})"),
            (None, Some(_)) => format!("{name} (no main language detected)"),
            (None, None) => name,
        }))
    }

    /// Returns the analyzer from the first of the two Tantivy indexes that can be read; `None` if neither can be read.
    pub fn recover_analyzer(root: &Path) -> Option<Analyzer> {
        Kind::ALL.into_iter().find_map(|kind| {
            let progress = Side::progress_in(&folder(root).join(kind.name())).ok()??;
            progress.analyzer.parse().ok()
        })
    }

    /// Returns the analyzer for documents and queries.
    pub fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    /// Returns true if the lexical index is up to date with a snapshot.
    pub fn is_current(&self, snapshot: &Snapshot) -> bool {
        self.both(|progress| progress.batch == snapshot.batch() && progress.log == snapshot.log_id())
    }

    /// Returns true if the lexical index belongs to the log of a snapshot, even if the index is not up to date.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        self.both(|progress| progress.log == snapshot.log_id())
    }

    /// Returns true if both Tantivy indexes have stored their progress, and the progress of both satisfies `condition`.
    fn both(&self, condition: impl Fn(&Progress) -> bool) -> bool {
        self.sides.iter().all(|side| side.progress().is_some_and(|progress| condition(&progress)))
    }

    /// Returns the paths of the lexical index files that have a wrong checksum.
    pub fn damaged_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for side in &self.sides {
            found.extend(side.damaged_files()?);
        }
        found.sort();
        Ok(found)
    }

    /// Returns the `k` best matches, sorted by descending score. Equal scores are sorted by descending id. Searches
    /// only the selected documents, or all documents if `selected` is `None`. Returns an error if the index is damaged.
    pub fn find(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        k: usize,
        selected: Option<&Selected>,
    ) -> Result<Vec<LexicalHit>> {
        let hit = |best: Found| {
            Ok(LexicalHit {
                score: best.score,
                dialogue: DialogueId::new(best.dialogue)?,
                turn: (kind == Kind::Utterances).then_some(best.turn),
                seq: best.seq,
                terms: best.terms,
            })
        };
        self.best(kind, query, k, selected)?.into_iter().map(hit).collect()
    }

    /// Returns the `k` dialogues whose titles match best; none if the index has no titles. The score is that of BM25, but
    /// the length of a title has no influence. Only plain words can be searched in titles, not expressions. Otherwise like
    /// [`Lexical::find`].
    pub fn find_titles(
        &self,
        query: &LexicalQuery,
        k: usize,
        selected: Option<&Selected>,
    ) -> Result<Vec<LexicalHit>> {
        let side = self.side(Kind::Dialogues);
        match side.fields.title.and_then(|title| query.in_titles(title)) {
            Some(query) => self.find(Kind::Dialogues, &query, k, selected),
            None => Ok(Vec::new()),
        }
    }

    /// Returns whether titles cannot be searched although a dialogue has one. This is an index from before titles were
    /// searched. A rebuild adds them.
    pub fn lacks_titles(&self) -> Result<bool> {
        let side = self.side(Kind::Dialogues);
        Ok(side.fields.title.is_none() && self.has_fact(Kind::Dialogues, "title")?)
    }

    fn side(&self, kind: Kind) -> &Side {
        &self.sides[kind as usize]
    }

    /// Returns the fields of utterances. Those of dialogues are the same, and have the title in addition.
    fn fields(&self) -> Fields {
        self.sides[0].fields
    }

    /// Returns the turn of a dialogue with the best score; `None` if no turn contains a term of the query.
    pub fn best_turn(&self, query: &LexicalQuery, dialogue: &DialogueId) -> Result<Option<TurnNo>> {
        let Fields { dialogue: field, text, .. } = self.fields();
        let query = query.within(Term::from_field_text(field, dialogue.as_str()), text);
        Ok(self.best(Kind::Utterances, &query, 1, None)?.first().map(|best| best.turn))
    }

    fn best(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        k: usize,
        selected: Option<&Selected>,
    ) -> Result<Vec<Found>> {
        if query.is_empty() {
            return Ok(Vec::new());
        }
        let side = self.side(kind);
        // In an intact index, Tantivy never panics on plain terms. It might panic on an expression.
        let what = match query.sum {
            Some(_) => DAMAGED,
            None => "the lexical index is damaged, or Tantivy cannot compute this query",
        };
        side.guarded(what, || {
            let (expression, sum) = (query.query.as_ref(), query.sum.as_ref());
            let marks_terms = kind == Kind::Dialogues;
            top::best(side.state()?, expression, sum, k, selected, marks_terms).map_err(|e| side.failed(&e))
        })
    }
}

fn missing(root: &Path) -> Error {
    Error::input(format!("{} has no lexical index yet", root.display()))
        .with_hint("`turnwise index build` creates it")
}

fn other_version(root: &Path) -> Error {
    let root = root.display();
    Error::unavailable(format!("the lexical index of {root} was created by another version of turnwise"))
        .with_hint("`turnwise index build` rebuilds it")
}

fn unknown_analyzer(root: &Path, name: &str, e: &Error) -> Error {
    let why = match e.class() {
        Class::Unavailable => format!(": {e}"),
        _ => ", which this version of turnwise does not support".to_owned(),
    };
    let root = root.display();
    Error::unavailable(format!("the lexical index of {root} was built with the analyzer `{name}`{why}"))
        .with_hint("`turnwise index build --analyzer mixed-1` rebuilds it with an available analyzer")
}
