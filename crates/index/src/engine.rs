//! The search engine interface: the operations that every engine provides, local or remote.
//!
//! An engine finds candidates by vector similarity or by keywords, and reads their records. The crate `search`
//! implements fusion, reranking, grouping and paging once for all engines.

use std::borrow::Cow;

use serde::Serialize;

use super::{embedded::Embedded, lexical::TermScore, vectors::Kind, vectors::Recipe};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey, Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, SpokenDialogue, SpokenTurn, Time, Turn, filter::Filter};
use turnwise_store::{Position, Totals};
use turnwise_text::{Analyzer, dates::DateRange};

/// Search engine over the dialogues of one index.
pub trait Engine: Send + Sync {
    /// Path or address of the index, for messages.
    fn place(&self) -> String;

    /// Optional features that this engine supports.
    fn capabilities(&self) -> Capabilities;

    /// Number of dialogues, and number of turns, in the index.
    fn totals(&self) -> Totals;

    /// Number that changes with every change of the index.
    fn generation(&self) -> u64;

    /// Recipe of the vectors (encoder and options); `None` if the index has no vectors.
    fn recipe(&self) -> Option<&Recipe>;

    /// Number of vectors of a kind; 0 if the index has no vectors.
    fn rows(&self, kind: Kind) -> u64;

    /// Returns the error for an index without vectors. The hint of the error says how to create vectors.
    fn no_vectors_error(&self) -> Error;

    /// Returns a hint for users: the command that encodes all dialogues again with the current encoder.
    fn reencode_hint(&self) -> String;

    /// Returns an error if lexical search is not possible. The error message states the reason.
    fn check_lexical(&self) -> Result<()>;

    /// Returns the analyzer that splits texts and queries into terms.
    fn analyzer(&self) -> Analyzer;

    /// Returns the keyword query for a plain text. Function words such as `the` are left out.
    fn keyword_query(&self, text: &str) -> KeywordQuery {
        KeywordQuery::of_terms(self.analyzer().query_terms(text))
    }

    /// Parses a query in Tantivy's query language.
    fn expression(&self, text: &str) -> Result<KeywordQuery>;

    /// Returns a query that contains at most `most` terms: the most informative terms of a text.
    fn informative_terms(&self, text: &str, kind: Kind, most: usize) -> Result<KeywordQuery>;

    /// Returns, for each of the names, the speakers that [`is_called`](super::speakers::is_called) accepts, at most
    /// `most` for each name. An index with many speakers may find only names in the usual spellings. An engine
    /// without an index of the speakers returns none.
    fn speakers(&self, names: &[&str], _most: usize) -> Result<Vec<Vec<String>>> {
        Ok(vec![Vec::new(); names.len()])
    }

    /// Returns the names of all speakers, sorted, but at most `most`. An engine without an index of the speakers returns
    /// none.
    fn all_speakers(&self, _most: usize) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Returns whether an utterance may have a time in a range of days. An engine that does not know it returns true.
    fn has_time(&self, _days: &DateRange) -> Result<bool> {
        Ok(true)
    }

    /// Returns those of the terms that no utterance and no title contains. An engine that does not know it returns none.
    fn absent_terms(&self, _terms: &[String]) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Returns the percentage, from 0 to 100, of random pairs with a cosine below `cosine`; `None` if unknown. A pair
    /// consists of an item of kind `from` and an item of kind `to`.
    fn percentile(&self, from: Kind, to: Kind, cosine: f32) -> Result<Option<f64>>;

    /// Returns the median and the standard deviation of the cosines of random pairs; `None` if unknown. A pair consists of
    /// an item of kind `from` and an item of kind `to`.
    fn spread(&self, _from: Kind, _to: Kind) -> Result<Option<(f32, f32)>> {
        Ok(None)
    }

    /// Returns notes for the user: records that a search in these modes cannot find yet, and reasons why the search is
    /// slow. `by_default` is true if the user did not choose the modes.
    fn notes(&self, kind: Kind, modes: SearchModes, by_default: bool) -> Vec<String>;

    /// Opens a view for one request.
    fn view(&self) -> Box<dyn View + '_>;

    /// Time of creation of the index; `None` if the engine does not store it.
    fn created(&self) -> Option<Time> {
        None
    }

    /// Counts the dialogues that a filter accepts, and all their turns. `None` if the engine cannot count them.
    fn count(&self, _filter: &Filter) -> Result<Option<Totals>> {
        Ok(None)
    }

    /// Returns the local index, for operations that read all records, vectors or graphs. An engine without local data
    /// returns an error that names `operation` as unsupported.
    fn local(&self, operation: &str) -> Result<&Embedded> {
        Err(unsupported(&self.place(), operation, "it needs an index on this machine"))
    }
}

/// View of an engine for one request. All reads see the same state, as far as the engine can guarantee this. The view
/// may cache data.
pub trait View {
    /// Restricts all later searches to the items that a filter accepts. Returns the number of accepted items; `None`
    /// if unknown. `kind` and `modes` are those of the later searches.
    fn admit(&mut self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Option<u64>>;

    /// Returns the `k` nearest neighbors of a vector, best first. Equal scores are ordered by descending id. If `exact`
    /// is true, compares `vector` with all stored vectors instead of searching a graph.
    fn nearest(&self, kind: Kind, vector: &[f32], k: usize, exact: bool) -> Result<HitList>;

    /// Returns the `k` best keyword matches, best first.
    fn keyword_search(&self, kind: Kind, words: &KeywordQuery, k: usize) -> Result<HitList>;

    /// Returns the `k` dialogues whose titles match best, best first. The score is that of BM25, but the length of a title
    /// has no influence. A filter counts only if it was admitted for dialogues. Returns none for an expression, and if
    /// the index has no titles.
    fn title_search(&self, words: &KeywordQuery, k: usize) -> Result<HitList>;

    /// Reads a dialogue by its id or by the id of one of its utterances. The turn is `None` for the id of a dialogue.
    /// Returns an error if nothing has this id.
    fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)>;

    /// Reads a dialogue by the key of its id, with its current version; `None` if it does not exist.
    fn record(&self, dialogue: IdKey) -> Result<Option<(Version, Dialogue)>>;

    /// Reads a random sample of at most `most` dialogues, always the same, with their versions.
    fn sample(&self, most: usize) -> Result<Vec<(Version, Dialogue)>>;

    /// Reads the stored vector of a turn, or of the whole dialogue if `turn` is `None`. Returns `None` if no vector is
    /// stored.
    fn vector<'a>(&'a self, dialogue: &Dialogue, turn: Option<&Turn>) -> Result<Option<Cow<'a, [f32]>>>;

    /// Calls `read` with the version, the title and the turns of a dialogue. Does nothing if the dialogue does not exist.
    fn read_spoken(
        &self,
        dialogue: IdKey,
        read: &mut dyn FnMut(Version, &SpokenDialogue<'_>) -> Result<()>,
    ) -> Result<()> {
        match self.record(dialogue)? {
            Some((version, dialogue)) => read(version, &SpokenDialogue::of(&dialogue)),
            None => Ok(()),
        }
    }

    /// Reads the stored vector of a turn of a dialogue; `None` if no vector is stored.
    fn turn_vector<'a>(&'a self, dialogue: IdKey, turn: &SpokenTurn<'_>) -> Result<Option<Cow<'a, [f32]>>> {
        let Some((_, dialogue)) = self.record(dialogue)? else { return Ok(None) };
        match dialogue.turns.iter().find(|known| known.number == turn.number) {
            Some(turn) => self.vector(&dialogue, Some(turn)),
            None => Ok(None),
        }
    }

    /// Cosine of a candidate's stored vector and `vector`; `None` if the candidate has no vector.
    fn cosine(&self, kind: Kind, found: &Candidate, vector: &[f32]) -> Result<Option<f32>>;

    /// Returns the turn of a dialogue with the best keyword score; `None` if no turn matches the query.
    fn best_turn(&self, words: &KeywordQuery, dialogue: &DialogueId) -> Result<Option<TurnNo>>;

    /// Returns each term's share of the keyword score of a turn or a dialogue; empty if the engine does not support
    /// this.
    fn explain(
        &self,
        kind: Kind,
        words: &KeywordQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> Result<Vec<TermScore>>;

    /// Lists at most `most` dialogues that match a filter, and returns the bookmark to continue from. The bookmark is
    /// `None` at the end. The list may be empty although more dialogues follow.
    fn list_dialogues(
        &self,
        from: Bookmark,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Dialogue>, Option<Bookmark>)>;

    /// Returns the bookmark for the position after a dialogue; `None` if the dialogue does not exist.
    fn bookmark_after(&self, id: &DialogueId) -> Result<Option<Bookmark>>;

    /// Announces the data that the request will read next. A remote engine can then fetch it in one round trip.
    fn prefetch(&self, _kind: Kind, _of: &[Candidate], _what: Prefetch) -> Result<()> {
        Ok(())
    }
}

/// Minimum number of vectors from which the spread of the cosines is estimated.
const MIN_SPREAD_ROWS: u64 = 100;

/// Returns whether an engine has enough vectors of both kinds for [`Engine::spread`].
pub fn spread_is_known(engine: &dyn Engine, from: Kind, to: Kind) -> bool {
    engine.rows(from).min(engine.rows(to)) >= MIN_SPREAD_ROWS
}

/// Position in a listing of all dialogues. Each engine has its own order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bookmark {
    /// The start of the listing.
    Beginning,
    /// Log position of the next record, for listings in insertion order.
    At(Position),
    /// Key of the last returned dialogue, for listings in key order.
    After(IdKey),
}

/// Data of candidates that [`View::prefetch`] announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// The records of the dialogues that the candidates belong to.
    Records,
    /// The vectors of the candidates.
    Vectors,
    /// The vectors of all turns in the dialogues of the candidates.
    Turns,
    /// The vectors of the candidates and of the turns around them. Blank turns do not count.
    Around {
        /// Number of turns before a candidate.
        before: usize,
        /// Number of turns after a candidate.
        after: usize,
    },
}

/// Search modes of a request. With both modes, the results are fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchModes {
    /// True to search by vector similarity.
    pub dense: bool,
    /// True to search by keywords (BM25).
    pub lexical: bool,
}

/// Optional features of an engine. A request for a feature that the engine does not support is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// True if the engine supports queries in Tantivy's query language.
    pub expressions: bool,
    /// True if the engine supports exact search over all vectors.
    pub exact: bool,
    /// True if the engine can report the contribution of each term to the score of a hit.
    pub terms_explained: bool,
    /// True if the engine knows the similarity percentiles of random pairs.
    pub percentiles: bool,
    /// True if the engine supports operations over all dialogues: topics, duplicates, statistics, facet counts.
    pub surveys: bool,
    /// True if the engine can list dialogues in insertion order.
    pub in_order: bool,
    /// Maximum length of a result list.
    pub deepest: usize,
}

/// Version number of a dialogue. Replacing the dialogue changes the number. Versions are ordered only to make sorting
/// deterministic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl From<Seq> for Version {
    fn from(seq: Seq) -> Self {
        Version(seq.0)
    }
}

/// An entry of a result list, before its record is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Key of the dialogue's id.
    pub dialogue: IdKey,
    /// Version of the dialogue that the search found.
    pub version: Version,
    /// The turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
    /// Cosine in a dense search, BM25 score in a lexical search.
    pub score: f32,
    /// In a lexical search for whole dialogues, the terms of the query that the dialogue contains, or its title in a search
    /// for titles: one bit for each of the first 64 terms. `None` if the engine does not know them.
    pub terms: Option<u64>,
}

/// Result list of one search mode.
#[derive(Debug, Default)]
pub struct HitList {
    /// Candidates, best first.
    pub found: Vec<Candidate>,
    /// True if the index has no matches beyond this list.
    pub exhausted: bool,
}

/// Keyword query: terms, a plain text, or an expression in Tantivy's query language.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeywordQuery {
    /// Search terms, as the analyzer returns them, sorted.
    pub terms: Vec<String>,
    /// The original text, for an engine that splits it into terms itself.
    pub text: Option<String>,
    /// The original query in Tantivy's query language; `None` for a plain text.
    pub expression: Option<String>,
    /// Warnings about parts of the query that could not be parsed and were ignored.
    pub warnings: Vec<String>,
}

impl KeywordQuery {
    /// Creates a query of analyzed terms.
    pub fn of_terms(terms: Vec<String>) -> Self {
        KeywordQuery { terms, ..KeywordQuery::default() }
    }

    /// Returns true if the query has no terms, no text and no expression.
    pub fn is_empty(&self) -> bool {
        self.expression.is_none() && self.terms.is_empty() && self.text.is_none()
    }
}

/// Returns the error for a feature that an engine does not support.
pub fn unsupported(place: &str, what: &str, hint: &str) -> Error {
    Error::Unsupported { message: format!("{place}: {what} is not supported"), hint: Some(hint.to_owned()) }
}
