//! BM25 over the utterances and over the dialogues, with Tantivy.
//!
//! Both indexes follow the log: they remember how far they have come and take in what was appended since. They hold
//! terms and ids only; texts stay in the records.

mod best;
mod compact;
mod explain;
mod expression;
mod facets;
mod names;
mod overlay;
mod query;
mod select;
mod side;
mod sum;
mod tail;
#[cfg(test)]
mod tests;
mod tokenizer;
mod top;
mod update;

use std::path::{Path, PathBuf};

use tantivy::Term;

pub use explain::TermScore;
pub use facets::Counts;
pub use query::LexicalQuery;
pub use select::Selected;

use crate::vectors::Kind;
use side::Side;
use top::Found;
use turnwise_core::{
    error::{Class, Error, Result},
    files,
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_store::{Snapshot, records::caught};
use turnwise_text::Analyzer;

/// The lexical index of an index folder.
pub struct Lexical {
    analyzer: Analyzer,
    utterances: Side,
    dialogues: Side,
    /// So many utterances of it are in memory only.
    tail: u64,
}

/// An utterance or a dialogue that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct LexicalHit {
    /// Its BM25 score.
    pub score: f32,
    /// Its dialogue.
    pub dialogue: DialogueId,
    /// Its turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
    /// The dialogue's number in the log when the index took it in.
    pub seq: Seq,
}

/// The names of the two indexes.
const UTTERANCES: &str = "utterances";
const DIALOGUES: &str = "dialogues";

fn folder(root: &Path) -> PathBuf {
    root.join("lexical")
}

/// Where a new one is made, and where the old one steps aside, if it has to.
fn beside(root: &Path) -> [PathBuf; 2] {
    ["lexical.new", "lexical.old"].map(|name| root.join(name))
}

impl Lexical {
    /// Opens what is there.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = folder(root);
        let Some(name) = Lexical::analyzer_name(root)? else {
            // Before there was one over dialogues, Tantivy's files lay in the folder itself.
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

    /// Removes it; the next update makes it anew.
    pub fn remove(root: &Path) -> Result<()> {
        files::remove_folder(&folder(root))
    }

    /// The name of the analyzer that made the index; `None` if no index was ever finished.
    pub fn analyzer_name(root: &Path) -> Result<Option<String>> {
        let folder = folder(root).join(UTTERANCES);
        if !folder.is_dir() {
            return Ok(None);
        }
        Ok(Side::progress_in(&folder)?.map(|progress| progress.analyzer))
    }

    /// The analyzer, as far as either side of an index that may be damaged still names it.
    pub fn surviving_analyzer(root: &Path) -> Option<Analyzer> {
        [UTTERANCES, DIALOGUES].into_iter().find_map(|side| {
            let progress = Side::progress_in(&folder(root).join(side)).ok()??;
            progress.analyzer.parse().ok()
        })
    }

    /// What made its terms, and makes those of every query.
    pub fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    /// Whether it holds what a snapshot holds.
    pub fn is_current(&self, snapshot: &Snapshot) -> bool {
        [&self.utterances, &self.dialogues].into_iter().all(|side| {
            side.progress().is_some_and(|p| p.batch == snapshot.batch() && p.log == snapshot.log_id())
        })
    }

    /// The files whose checksum is wrong.
    pub fn damaged_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = self.utterances.damaged_files()?;
        found.extend(self.dialogues.damaged_files()?);
        found.sort();
        Ok(found)
    }

    /// The `k` that fit best, of those that are selected: score descending, then id descending.
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

    /// The utterance of a dialogue that fits best; `None` if none has any of the terms.
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
        // Tantivy answers some kinds of damage with a panic.
        let found = caught(|| {
            top::best(side.seen()?, query.query.as_ref(), query.sum.as_deref(), k, selected)
                .map_err(|e| side::failed(&side.folder, &e))
        });
        // Words alone cannot bring it to that; an expression might.
        let what = match query.sum {
            Some(_) => "the search index is damaged",
            None => "the search index is damaged, or Tantivy cannot compute this query",
        };
        found.unwrap_or_else(|| Err(side::damaged(&side.folder, &what)))
    }
}

fn missing(root: &Path) -> Error {
    Error::Input {
        message: format!("{} has no lexical index yet", root.display()),
        hint: Some("`turnwise index build` makes it".to_owned()),
    }
}

fn other_version(root: &Path) -> Error {
    Error::Unavailable {
        message: format!("the lexical index of {} is that of another version of turnwise", root.display()),
        hint: Some("`turnwise index build` makes it anew".to_owned()),
    }
}

fn unknown_analyzer(root: &Path, name: &str, e: &Error) -> Error {
    let why = match e.class() {
        Class::Unavailable => format!(": {e}"),
        _ => ", which this turnwise does not know".to_owned(),
    };
    Error::Unavailable {
        message: format!("the lexical index of {} was made by the analyzer `{name}`{why}", root.display()),
        hint: Some(
            "`turnwise index build --analyzer mixed-1` makes it anew with one that is here".to_owned(),
        ),
    }
}
