//! Search engine over collections on a Milvus server.

use std::sync::OnceLock;

use super::{
    connection::Connection,
    expression,
    generations::Manifest,
    reading::{DEEPEST, columns},
    schema::{TERMS, TITLE_TERMS},
    target::Target,
    view::{MilvusView, Spread},
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::filter::Filter;
use turnwise_index::{
    engine::{Capabilities, Engine, KeywordQuery, SearchModes, View, spread_is_known, unsupported},
    speakers::SpeakerCache,
    vectors::{Kind, Recipe},
};
use turnwise_store::Totals;
use turnwise_text::{Analyzer, dates::DateRange};

/// Maximum number of names of speakers that are kept in memory. Reading more of them takes long.
const MOST_SPEAKERS: usize = 100;

/// Search engine over one generation of dialogues in Milvus.
pub struct Milvus {
    pub(super) connection: Connection,
    pub(super) manifest: Manifest,
    analyzer: Analyzer,
    totals: Totals,
    speakers: SpeakerCache,
    /// Spreads of the cosines, see [`MilvusView::spreads`]. They are measured at the first use.
    spreads: OnceLock<[Spread; 3]>,
}

impl Milvus {
    /// Opens the generation to which the name in `target` refers, and loads it into the server's memory. Returns an
    /// error if the server cannot be reached or the name does not exist.
    pub fn open(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::open_loaded(target)?;
        Milvus::of(connection, manifest)
    }

    pub(super) fn of(connection: Connection, manifest: Manifest) -> Result<Self> {
        let analyzer = manifest.analyzer()?;
        let totals = connection.totals(&manifest)?;
        Ok(Milvus {
            connection,
            manifest,
            analyzer,
            totals,
            speakers: SpeakerCache::new(MOST_SPEAKERS),
            spreads: OnceLock::new(),
        })
    }

    pub(super) fn collection(&self, kind: Kind) -> String {
        self.manifest.rows(&self.connection.target.name, kind)
    }
}

impl Engine for Milvus {
    fn place(&self) -> String {
        self.connection.target.to_string()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            expressions: false,
            exact: false,
            terms_explained: false,
            percentiles: false,
            surveys: false,
            in_order: false,
            deepest: DEEPEST,
        }
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn generation(&self) -> u64 {
        self.manifest.generation
    }

    fn recipe(&self) -> Option<&Recipe> {
        self.manifest.recipe.as_ref()
    }

    fn rows(&self, kind: Kind) -> u64 {
        match (&self.manifest.recipe, kind) {
            (None, _) => 0,
            (Some(_), Kind::Utterances) => self.totals.turns,
            (Some(_), Kind::Dialogues) => self.totals.dialogues,
        }
    }

    fn no_vectors_error(&self) -> Error {
        let place = self.place();
        Error::input(format!("the dialogues at {place} have no vectors")).with_hint(format!(
            "`turnwise encode --engine {place} --model MODEL` creates them; or search by keywords (--mode bm25)"
        ))
    }

    fn reencode_hint(&self) -> String {
        let place = self.place();
        format!(
            "`turnwise encode --engine {place} --replace` encodes everything again with the current encoder"
        )
    }

    fn check_lexical(&self) -> Result<()> {
        Ok(())
    }

    fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    fn keyword_query(&self, text: &str) -> KeywordQuery {
        let server_side = self.manifest.words.is_some();
        KeywordQuery {
            text: server_side.then(|| text.to_owned()),
            ..KeywordQuery::of_terms(self.analyzer.query_terms(text))
        }
    }

    fn expression(&self, _: &str) -> Result<KeywordQuery> {
        Err(unsupported(&self.place(), "a query in Tantivy's language", "use plain keywords"))
    }

    /// Returns a query of all terms of `text`, even if there are more than `most`. Milvus does not report document
    /// frequencies, so the most informative terms are unknown. This is acceptable, because common terms hardly change
    /// the ranking.
    fn informative_terms(&self, text: &str, _: Kind, most: usize) -> Result<KeywordQuery> {
        let words = self.keyword_query(text);
        let note = format!(
            "the query contains all {} different words: Milvus cannot select the {most} most informative ones",
            words.terms.len()
        );
        let warnings = if words.terms.len() > most { vec![note] } else { Vec::new() };
        Ok(KeywordQuery { warnings, ..words })
    }

    fn speakers(&self, names: &[&str], most: usize) -> Result<Vec<Vec<String>>> {
        if !self.manifest.speakers {
            return Ok(vec![Vec::new(); names.len()]);
        }
        let read_all = |most| self.connection.all_speakers(&self.manifest, most);
        let look_up = || self.connection.speakers(&self.manifest, names, most);
        self.speakers.called(names, most, read_all, look_up)
    }

    fn all_speakers(&self, most: usize) -> Result<Vec<String>> {
        if !self.manifest.speakers {
            return Ok(Vec::new());
        }
        self.speakers.first(most, |most| self.connection.all_speakers(&self.manifest, most))
    }

    fn has_time(&self, days: &DateRange) -> Result<bool> {
        let Some(after) = days.last.tomorrow().ok().filter(|_| self.manifest.times) else { return Ok(true) };
        let filter: Filter = format!("time>={} and time<{after}", days.first).parse()?;
        let filter = expression::of(&filter, Kind::Utterances, &self.manifest)?;
        let rows = self.connection.first_rows(&self.collection(Kind::Utterances), &filter, &["id"], 1)?;
        Ok(!columns(&rows).texts("id").is_empty())
    }

    fn absent_terms(&self, terms: &[String]) -> Result<Vec<String>> {
        // An analyzer of Milvus splits texts into other terms.
        if self.manifest.words.is_some() {
            return Ok(Vec::new());
        }
        let view = MilvusView::of(self);
        let absent = view.absent_terms(Kind::Utterances, TERMS, terms)?;
        if self.manifest.titles {
            view.absent_terms(Kind::Dialogues, TITLE_TERMS, &absent)
        } else {
            Ok(absent)
        }
    }

    fn percentile(&self, _: Kind, _: Kind, _: f32) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Returns the median and the standard deviation over pairs from a sample of the dialogues.
    fn spread(&self, from: Kind, to: Kind) -> Result<Option<(f32, f32)>> {
        if !spread_is_known(self, from, to) {
            return Ok(None);
        }
        let spreads = match self.spreads.get() {
            Some(spreads) => spreads,
            None => {
                let spreads = MilvusView::of(self).spreads()?;
                self.spreads.get_or_init(|| spreads)
            }
        };
        Ok(spreads[if from == to { to as usize } else { Kind::ALL.len() }])
    }

    fn notes(&self, _: Kind, _: SearchModes, _: bool) -> Vec<String> {
        Vec::new()
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(MilvusView::of(self))
    }
}
