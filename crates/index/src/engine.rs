//! What a search asks of whatever holds the dialogues: an index on this machine, or one past it.
//!
//! An engine finds candidates by meaning and by words, and gives what is known of them. What is made of them (fusion,
//! ranking again, groups, pages, hits) is made above it, once for all engines, so that they rank alike.

use std::borrow::Cow;

use serde::Serialize;

use super::{embedded::Embedded, lexical::TermScore, vectors::Kind, vectors::Recipe};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey, Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, Turn, filter::Filter};
use turnwise_store::{Position, frame::Totals};
use turnwise_text::Analyzer;

/// Where the dialogues of an index are looked for. Any number of threads may ask.
pub trait Engine: Send + Sync {
    /// Where it is, for people.
    fn place(&self) -> String;

    /// What it can do of what not all can.
    fn capabilities(&self) -> Capabilities;

    /// How many dialogues and turns it holds.
    fn totals(&self) -> Totals;

    /// Another number whenever something of it changed.
    fn generation(&self) -> u64;

    /// How its vectors were made; `None` if it has none.
    fn recipe(&self) -> Option<&Recipe>;

    /// Of which there are vectors, how many of a kind.
    fn rows(&self, kind: Kind) -> u64;

    /// That there are no vectors, with how to get some.
    fn without_vectors(&self) -> Error;

    /// What gives all dialogues vectors by another encoder, in words.
    fn how_to_encode_anew(&self) -> String;

    /// Whether it can be searched by words, or why not.
    fn has_words(&self) -> Result<()>;

    /// What makes terms of texts and of queries.
    fn analyzer(&self) -> Analyzer;

    /// What is looked for by the words of a text.
    fn words(&self, text: &str) -> Words {
        Words::of_terms(self.analyzer().terms(text))
    }

    /// An expression in the language of queries.
    fn expression(&self, text: &str) -> Result<Words>;

    /// The terms of a text that tell most, at most so many.
    fn telling(&self, text: &str, kind: Kind, most: usize) -> Result<Words>;

    /// How many percent of random pairs are less near to each other than this cosine says; `None` if it does not know.
    fn percentile(&self, from: Kind, to: Kind, cosine: f32) -> Result<Option<f64>>;

    /// What a search in these modes cannot find yet, and what takes it long, in words. `unasked` says that nobody asked for
    /// these modes.
    fn notes(&self, kind: Kind, modes: SearchModes, unasked: bool) -> Vec<String>;

    /// One look at it, by one request.
    fn view(&self) -> Box<dyn View + '_>;

    /// The index on this machine, if it is one.
    fn embedded(&self) -> Option<&Embedded> {
        None
    }
}

/// One request's look at an engine. What it reads is of one moment as far as the engine can tell, and what was read once may
/// be kept until the request is answered.
pub trait View {
    /// Lets lists hold only what a filter admits, from now on. Gives how many that are, where the engine knows.
    fn admit(&mut self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Option<u64>>;

    /// The nearest to a vector, best first; of equally near ones those with the greater ids first.
    fn nearest(&self, kind: Kind, vector: &[f32], k: usize, exact: bool) -> Result<List>;

    /// Those that have most of the words, best first.
    fn by_words(&self, kind: Kind, words: &Words, k: usize) -> Result<List>;

    /// What an id of a dialogue or an utterance names.
    fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)>;

    /// A dialogue as it is now, with its number.
    fn record(&self, dialogue: IdKey) -> Result<Option<(Seq, Dialogue)>>;

    /// The stored vector of a turn, or of the dialogue as a whole.
    fn vector<'a>(&'a self, dialogue: &Dialogue, turn: Option<&Turn>) -> Result<Option<Cow<'a, [f32]>>>;

    /// The cosine of what was found and a vector; `None` if it has none.
    fn cosine(&self, kind: Kind, found: &Candidate, vector: &[f32]) -> Result<Option<f32>>;

    /// The turn of a dialogue that has most of the words, if one has any.
    fn best_turn(&self, words: &Words, dialogue: &DialogueId) -> Result<Option<TurnNo>>;

    /// What each of the words gave to what was found, as far as the engine tells.
    fn explain(
        &self,
        kind: Kind,
        words: &Words,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> Result<Vec<TermScore>>;

    /// Up to so many of the next dialogues that fit, perhaps none although there are more, and where to go on; `None` at the end.
    fn listed(
        &self,
        from: Bookmark,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Dialogue>, Option<Bookmark>)>;

    /// Where a list goes on behind a dialogue; `None` if it is not there.
    fn behind(&self, id: &DialogueId) -> Result<Option<Bookmark>>;

    /// Says what will be asked for, so that an engine that is far away can fetch it all at once.
    fn ahead(&self, _kind: Kind, _of: &[Candidate], _what: Ahead) -> Result<()> {
        Ok(())
    }
}

/// How far a list of all dialogues has come. Each engine has an order of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bookmark {
    /// Nothing was listed yet.
    Beginning,
    /// In the order in which they came: what comes next lies there.
    At(Position),
    /// In the order of their keys: what comes next has a greater one.
    Behind(IdKey),
}

/// What will be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The dialogues.
    Records,
    /// The vectors of what was found.
    Vectors,
    /// The vectors of all turns of the dialogues.
    Turns,
}

/// By what is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchModes {
    /// Nearest vectors.
    pub dense: bool,
    /// Matching terms.
    pub lexical: bool,
}

/// What an engine can do of what not all can. What it cannot is an error, never another answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Queries in Tantivy's language.
    pub expressions: bool,
    /// Looking at all vectors.
    pub exact: bool,
    /// What each term gave a hit.
    pub terms_explained: bool,
    /// How near random pairs are to each other.
    pub percentiles: bool,
    /// Whatever goes over all dialogues: topics, duplicates, statistics, counts by values.
    pub surveys: bool,
    /// Listing dialogues in the order in which they came.
    pub in_order: bool,
    /// How many of a list it gives at most.
    pub deepest: usize,
}

/// What a list found, before its record is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The key of its dialogue's id.
    pub dialogue: IdKey,
    /// The dialogue's number: another one when it was replaced.
    pub seq: Seq,
    /// Its turn; `None` for a whole dialogue.
    pub turn: Option<TurnNo>,
    /// In the list's own measure.
    pub score: f32,
}

/// What was found in one way.
#[derive(Debug, Default)]
pub struct List {
    /// Best first.
    pub found: Vec<Candidate>,
    /// Whether there is nothing more.
    pub exhausted: bool,
}

/// What is looked for by words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Words {
    /// The terms, sorted.
    pub terms: Vec<String>,
    /// The text itself, for an engine that makes terms of it by its own rules.
    pub text: Option<String>,
    /// The expression they come from, where there is one.
    pub expression: Option<String>,
    /// What of it was not understood, and so left out.
    pub warnings: Vec<String>,
}

impl Words {
    /// Nothing but terms.
    pub fn of_terms(terms: Vec<String>) -> Self {
        Words { terms, ..Words::default() }
    }

    /// Whether they can find nothing.
    pub fn is_empty(&self) -> bool {
        self.expression.is_none() && self.terms.is_empty() && self.text.is_none()
    }
}

/// That an engine cannot do something.
pub fn unsupported(place: &str, what: &str, hint: &str) -> Error {
    Error::Unsupported {
        message: format!("{place}: {what} is not possible there"),
        hint: Some(hint.to_owned()),
    }
}
