//! Searching in Milvus.

use milvus::v2::{FieldData, QueryResults, request::dql::QueryRequest};

use super::{
    connection::Connection, manifest::Manifest, rows::Answer, schema::missing, target::Target,
    view::MilvusView,
};
use crate::{
    error::{Error, Result},
    index::{
        engine::{Capabilities, Engine, View, Ways, Words, unsupported},
        vectors::{Kind, Recipe},
    },
    store::frame::Totals,
    text::Analyzer,
};

/// Milvus gives no more of a list.
pub(super) const DEEPEST: usize = 16_384;

/// Dialogues in a Milvus, ready to be searched.
pub struct Milvus {
    pub(super) connection: Connection,
    pub(super) manifest: Manifest,
    analyzer: Analyzer,
    totals: Totals,
}

impl Milvus {
    /// Opens what a name stands for, and brings it to where it is searched.
    pub fn open(target: &Target) -> Result<Self> {
        let (connection, manifest) = Connection::there(target)?;
        let analyzer = manifest.analyzer()?;
        let totals = connection.totals(&manifest)?;
        Ok(Milvus { connection, manifest, analyzer, totals })
    }

    pub(super) fn collection(&self, kind: Kind) -> String {
        self.manifest.rows(&self.connection.target.name, kind)
    }
}

impl Connection {
    /// Connects, and brings what a name stands for to where it is searched.
    pub(super) fn there(target: &Target) -> Result<(Self, Manifest)> {
        let connection = Connection::open(target)?;
        let Some(manifest) = connection.manifest()? else { return Err(missing(&target.to_string())) };
        connection.load(&manifest)?;
        Ok((connection, manifest))
    }

    /// How many rows a collection has.
    fn count(&self, collection: &str) -> Result<u64> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .output_fields(["count(*)"])
            .consistency_level(self.consistency())
            .build();
        let answer = self.ask("counting", async { self.client.query(request?).await })?;
        let count = match answer.results().get_output_fields().first() {
            Some(FieldData::Int64 { values, .. }) => values.first().copied().unwrap_or(0),
            _ => 0,
        };
        Ok(count.unsigned_abs())
    }

    /// How many dialogues and turns a generation has.
    pub(super) fn totals(&self, manifest: &Manifest) -> Result<Totals> {
        let count = |kind| self.count(&manifest.rows(&self.target.name, kind));
        Ok(Totals { dialogues: count(Kind::Dialogues)?, turns: count(Kind::Utterances)? })
    }

    /// The rows that fit an expression, with these of their columns.
    pub(super) fn rows(&self, collection: &str, filter: String, columns: &[&str]) -> Result<QueryResults> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .filter(filter)
            .output_fields(columns.iter().copied())
            .limit(DEEPEST as i64)
            .consistency_level(self.consistency())
            .build();
        let answer = self.ask("reading", async { self.client.query(request?).await })?;
        Ok(answer.results().clone())
    }
}

/// The columns of an answer by their names.
pub(super) fn columns(results: &QueryResults) -> Answer<'_> {
    Answer::of(results.get_output_fields())
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

    fn without_vectors(&self) -> Error {
        Error::Input {
            message: format!("the dialogues at {} have no vectors", self.place()),
            hint: Some(
                "search by words (--mode bm25), or ingest them anew with a model that is here".to_owned(),
            ),
        }
    }

    fn how_to_encode_anew(&self) -> String {
        format!(
            "ingest into another name by the encoder that is here now, or take the one that made {}",
            self.place()
        )
    }

    fn has_words(&self) -> Result<()> {
        Ok(())
    }

    fn analyzer(&self) -> Analyzer {
        self.analyzer
    }

    fn expression(&self, _: &str) -> Result<Words> {
        Err(unsupported(&self.place(), "a query in Tantivy's language", "look for words alone"))
    }

    /// Milvus does not tell how many documents have a term, and so not which tell most: all are looked for, which ranks alike
    /// as far as the others tell little.
    fn telling(&self, text: &str, _: Kind, most: usize) -> Result<Words> {
        let terms = self.analyzer.terms(text);
        let note = format!(
            "all {} different words are looked for: Milvus does not tell which {most} of them tell most",
            terms.len()
        );
        let warnings = if terms.len() > most { vec![note] } else { Vec::new() };
        Ok(Words { warnings, ..Words::of_terms(terms) })
    }

    fn percentile(&self, _: Kind, _: Kind, _: f32) -> Result<Option<f64>> {
        Ok(None)
    }

    fn notes(&self, _: Kind, _: Ways, _: bool) -> Vec<String> {
        Vec::new()
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(MilvusView::of(self))
    }
}
