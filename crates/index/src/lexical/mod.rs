//! BM25 search over utterances and over dialogues, with Tantivy.
//!
//! Both indexes are updated from the log. Each index stores the log position that it has reached, and an update adds
//! newer records. They contain only terms and ids. Texts stay in the records.

mod adapters;
mod facets;
mod query;
mod select;
mod side;
mod sum;
mod tail;
#[cfg(test)]
mod tests;
mod top;
mod update;

use std::path::{Path, PathBuf};

use tantivy::Term;

pub use facets::Counts;
pub use query::{LexicalQuery, TermScore};
pub use select::Selected;

use crate::vectors::Kind;
use side::Side;
use top::Found;
use turnwise_core::{
    error::{Class, Error, Result, caught},
    files,
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_store::Snapshot;
use turnwise_text::Analyzer;

/// The lexical index of an index folder.
pub struct Lexical {
    analyzer: Analyzer,
    utterances: Side,
    dialogues: Side,
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
}

/// Folder names of the two indexes.
const UTTERANCES: &str = "utterances";
const DIALOGUES: &str = "dialogues";

fn folder(root: &Path) -> PathBuf {
    root.join("lexical")
}

/// Temporary folders for a rebuild: the new index, and the old one during the exchange.
fn temporary_folders(root: &Path) -> [PathBuf; 2] {
    ["lexical.new", "lexical.old"].map(|name| root.join(name))
}

impl Lexical {
    /// Opens the index on disk. Returns an error if there is none, if it is damaged, or if this version of turnwise
    /// cannot read it.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = folder(root);
        let Some(name) = Lexical::analyzer_name(root)? else {
            // Old versions had one index only, with Tantivy's files in this folder.
            let old = folder.join("meta.json").exists();
            return Err(if old { other_version(root) } else { missing(root) });
        };
        let analyzer = name.parse().map_err(|e| unknown_analyzer(root, &name, &e))?;
        let side = |name: &str| Side::open(&folder.join(name), analyzer);
        match (side(UTTERANCES)?, side(DIALOGUES)?) {
            (Some(utterances), Some(dialogues)) => Ok(Lexical { analyzer, utterances, dialogues, tail: 0 }),
            _ => Err(other_version(root)),
        }
    }

    /// Removes the index. The next update builds it again.
    pub fn remove(root: &Path) -> Result<()> {
        files::remove_folder(&folder(root))
    }

    /// Returns the name of the analyzer that built the index; `None` if no build was ever finished.
    pub fn analyzer_name(root: &Path) -> Result<Option<String>> {
        let folder = folder(root).join(UTTERANCES);
        if !folder.is_dir() {
            return Ok(None);
        }
        Ok(Side::progress_in(&folder)?.map(|progress| progress.analyzer))
    }

    /// Returns the analyzer that either of the two indexes stores. Used if one of them is damaged.
    pub fn recover_analyzer(root: &Path) -> Option<Analyzer> {
        [UTTERANCES, DIALOGUES].into_iter().find_map(|side| {
            let progress = Side::progress_in(&folder(root).join(side)).ok()??;
            progress.analyzer.parse().ok()
        })
    }

    /// Returns the analyzer for documents and queries.
    pub fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    /// Returns true if the index is up to date with a snapshot.
    pub fn is_current(&self, snapshot: &Snapshot) -> bool {
        [&self.utterances, &self.dialogues].into_iter().all(|side| {
            side.progress().is_some_and(|p| p.batch == snapshot.batch() && p.log == snapshot.log_id())
        })
    }

    /// Returns the files with a wrong checksum.
    pub fn damaged_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = self.utterances.damaged_files()?;
        found.extend(self.dialogues.damaged_files()?);
        found.sort();
        Ok(found)
    }

    /// Returns the `k` best matches among the selected documents: scores descending, then ids descending. With
    /// `None`, all documents are selected. Returns an error if the index is damaged.
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
                turn: (kind == Kind::Utterances).then_some(TurnNo(best.turn)),
                seq: best.seq,
            })
        };
        self.best(self.side(kind), query, k, selected)?.into_iter().map(hit).collect()
    }

    fn side(&self, kind: Kind) -> &Side {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }

    /// Returns the turn of a dialogue with the best score; `None` if no turn contains a term of the query.
    pub fn best_turn(&self, query: &LexicalQuery, dialogue: &DialogueId) -> Result<Option<TurnNo>> {
        let dialogue = Term::from_field_text(self.utterances.fields.dialogue, dialogue.as_str());
        let query = query.within(dialogue, self.utterances.fields.text);
        Ok(self.best(&self.utterances, &query, 1, None)?.first().map(|best| TurnNo(best.turn)))
    }

    fn best(
        &self,
        side: &Side,
        query: &LexicalQuery,
        k: usize,
        selected: Option<&Selected>,
    ) -> Result<Vec<Found>> {
        if query.is_empty() {
            return Ok(Vec::new());
        }
        // Tantivy panics on some kinds of damage.
        let found = caught(|| {
            top::best(side.state()?, query.query.as_ref(), query.sum.as_deref(), k, selected)
                .map_err(|e| side::failed(&side.folder, &e))
        });
        // Plain terms never cause a panic in an intact index. An expression might.
        let what = match query.sum {
            Some(_) => "the lexical index is damaged",
            None => "the lexical index is damaged, or Tantivy cannot compute this query",
        };
        found.unwrap_or_else(|| Err(side::damaged(&side.folder, &what)))
    }
}

fn missing(root: &Path) -> Error {
    Error::Input {
        message: format!("{} has no lexical index yet", root.display()),
        hint: Some("`turnwise index build` creates it".to_owned()),
    }
}

fn other_version(root: &Path) -> Error {
    Error::Unavailable {
        message: format!(
            "the lexical index of {} was created by another version of turnwise",
            root.display()
        ),
        hint: Some("`turnwise index build` rebuilds it".to_owned()),
    }
}

fn unknown_analyzer(root: &Path, name: &str, e: &Error) -> Error {
    let why = match e.class() {
        Class::Unavailable => format!(": {e}"),
        _ => ", which this version of turnwise does not support".to_owned(),
    };
    Error::Unavailable {
        message: format!("the lexical index of {} was built with the analyzer `{name}`{why}", root.display()),
        hint: Some(
            "`turnwise index build --analyzer mixed-1` rebuilds it with an available analyzer".to_owned(),
        ),
    }
}
