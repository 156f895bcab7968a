//! What is looked for, and how: the same in the library, on the command line, over HTTP and in files of queries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::vectors::Kind;

/// A search. Exactly one of `query`, `like` and `dialogue` says what for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchRequest {
    /// Words, or a sentence that is like what is meant.
    pub query: String,
    /// What was said before the query: it is looked for in the light of that.
    pub context: Vec<String>,
    /// How much less each turn of the context counts than the one after it.
    pub decay: f32,
    /// The id of an utterance or a dialogue of the index: others like it are found.
    pub like: Option<String>,
    /// A dialogue: others like it are found.
    pub dialogue: Option<Box<Dialogue>>,
    /// By words, by meaning, or by both; both where there are vectors, if it is not said.
    pub mode: Option<Mode>,
    /// What is found. With `like` and `dialogue` it is what they are.
    pub of: Of,
    /// How many hits.
    pub k: usize,
    /// How many are left out before the first.
    pub offset: usize,
    /// Whether all vectors are looked at, whatever it takes.
    pub exact: bool,
    /// Only what fits.
    pub filter: Option<Filter>,
    /// At most one hit for each of these.
    pub group: Option<Group>,
    /// How many turns are shown before and after each hit.
    pub window: usize,
    /// Only hits with at least this score.
    pub min_score: Option<f32>,
    /// Only hits that are nearer to the query than so many percent of random pairs are to each other.
    pub min_percentile: Option<f64>,
    /// Whether the query is an expression in Tantivy's language, for searching by words.
    pub syntax: bool,
    /// How many of each list are looked at, at least.
    pub candidates: usize,
    /// How both lists become one, if not as the index was tuned or else as suits most.
    pub fusion: Option<Fusion>,
    /// What brings the best of them into another order.
    pub rerank: Option<Rerank>,
    /// Whether each hit tells how it came to its place.
    pub explain: bool,
}

impl Default for SearchRequest {
    fn default() -> Self {
        SearchRequest {
            query: String::new(),
            context: Vec::new(),
            decay: 0.5,
            like: None,
            dialogue: None,
            mode: None,
            of: Of::default(),
            k: 10,
            offset: 0,
            exact: false,
            filter: None,
            group: None,
            window: 1,
            min_score: None,
            min_percentile: None,
            syntax: false,
            candidates: 100,
            fusion: None,
            rerank: None,
            explain: false,
        }
    }
}

/// By what is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By both, fused.
    Hybrid,
    /// By meaning: the vectors nearest to the query's.
    Dense,
    /// By the query's words.
    Bm25,
}

/// What is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Single turns.
    #[default]
    Utterances,
    /// Dialogues as a whole.
    Dialogues,
}

impl Of {
    /// The kind of vectors that stand for it.
    pub fn kind(self) -> Kind {
        match self {
            Of::Utterances => Kind::Utterances,
            Of::Dialogues => Kind::Dialogues,
        }
    }
}

/// What there is one hit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Each dialogue.
    Dialogue,
}

/// How the list by meaning and the list by words become one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fusion {
    /// In which way.
    pub method: Method,
    /// For reciprocal ranks: how little the first places stand out.
    pub k: f32,
    /// What the list by meaning weighs.
    pub dense: f32,
    /// What the list by words weighs.
    pub bm25: f32,
}

impl Default for Fusion {
    fn default() -> Self {
        Fusion { method: Method::default(), k: 60.0, dense: 1.0, bm25: 0.3 }
    }
}

impl Fusion {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        let usable = |number: &f32| number.is_finite() && *number >= 0.0;
        if [self.dense, self.bm25, self.k].iter().all(usable) && [self.dense, self.bm25] != [0.0; 2] {
            return Ok(());
        }
        Err(Error::Input {
            message: "weights of a fusion are numbers from 0 on, and not both 0".to_owned(),
            hint: Some("they are 1 for meaning and 0.3 for words if not said".to_owned()),
        })
    }
}

/// A way of fusing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The cosine and the BM25 score, brought to 0…1, weighted and summed.
    #[default]
    Weighted,
    /// Reciprocal ranks: weight / (k + rank), summed over the lists.
    Rrf,
}

/// Another order of the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rerank {
    /// By what.
    pub by: By,
    /// Of how many of the best.
    pub top: usize,
}

impl Default for Rerank {
    fn default() -> Self {
        Rerank { by: By::Exact, top: 50 }
    }
}

/// What re-ranking goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The cosine of the vectors themselves.
    #[default]
    Exact,
    /// For each token of the query the nearest one of the hit, in the mean; of utterances.
    Maxsim,
    /// DialogueCSE's matching-guided embedding: the hit as a response to the context and the query; of utterances.
    Matching,
}

/// More than this many hits, or left out before them, nobody reads.
const MOST: usize = 100_000;

impl SearchRequest {
    /// Refuses what makes no sense, whoever asks.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &str, hint: &str| {
            Err(Error::Input { message: message.to_owned(), hint: Some(hint.to_owned()) })
        };
        let asked = [!self.query.trim().is_empty(), self.like.is_some(), self.dialogue.is_some()];
        match asked.iter().filter(|asked| **asked).count() {
            0 => {
                return wrong(
                    "the query is empty",
                    "type a sentence that is like what you look for, or its words",
                );
            }
            1 => {}
            _ => {
                return wrong(
                    "there is more than one thing to look for",
                    "take a query, an id or a dialogue",
                );
            }
        }
        if self.syntax && self.mode.is_some_and(|mode| mode != Mode::Bm25) {
            return wrong("--syntax is for words alone", "leave it out, or search with --mode bm25");
        }
        if self.syntax && !(self.context.is_empty() && asked[0]) {
            return wrong("--syntax is for one query", "leave the context out");
        }
        if self.exact && self.mode == Some(Mode::Bm25) {
            return wrong("--exact is for vectors", "leave it out, or search with --mode dense");
        }
        if self.k > MOST || self.offset > MOST {
            return wrong(
                &format!("at most {MOST} hits, behind at most {MOST} others, are possible"),
                "`corpus export --filter` gives everything that fits a filter",
            );
        }
        if let Some(fusion) = &self.fusion {
            fusion.check()?;
        }
        if !(0.0..=1.0).contains(&self.decay) {
            return wrong("the decay of a context is a number from 0 to 1", "it is 0.5 if not said");
        }
        if self.min_percentile.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
            return wrong(
                "a percentile is a number from 0 to 100",
                "99 keeps what is nearer than 99% of random pairs",
            );
        }
        if self.min_percentile.is_some() && self.mode == Some(Mode::Bm25) {
            return wrong("percentiles are for meaning", "take --min-score with --mode bm25");
        }
        if let Some(rerank) = &self.rerank {
            if self.mode == Some(Mode::Bm25) || self.syntax {
                return wrong(
                    "ranking again goes by meaning",
                    "leave out --mode bm25 and --syntax, or --rerank",
                );
            }
            if rerank.by != By::Exact && (!asked[0] || self.of == Of::Dialogues) {
                return wrong(
                    "ranking by single tokens is for a query and for utterances",
                    "take --rerank exact for dialogues and for what is similar",
                );
            }
        }
        if self.min_score.is_some_and(|score| !score.is_finite()) {
            return wrong("the least score is no number", "leave it out");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_from_json_and_what_is_wrong_is_said() {
        let request: SearchRequest =
            serde_json::from_str(r#"{"query":"x","mode":"dense","filter":"role=user","fusion":{"k":10}}"#)
                .unwrap();
        assert_eq!(
            (request.mode, request.k, request.fusion),
            (Some(Mode::Dense), 10, Some(Fusion { k: 10.0, ..Fusion::default() }))
        );
        assert_eq!(request.filter.as_ref().unwrap().as_str(), "role=user");
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<SearchRequest>(&json).unwrap(), request);
        let wrong = |json: &str| match serde_json::from_str::<SearchRequest>(json) {
            Ok(request) => request.check().unwrap_err().to_string(),
            Err(e) => e.to_string(),
        };
        for (json, says) in [
            (r#"{}"#, "the query is empty"),
            (r#"{"query":" "}"#, "the query is empty"),
            (r#"{"query":"a","like":"b"}"#, "more than one"),
            (r#"{"query":"a","filter":"domian=x"}"#, "did you mean `domain`"),
            (r#"{"query":"a","quarry":"b"}"#, "unknown field `quarry`"),
            (r#"{"query":"a","syntax":true,"mode":"dense"}"#, "words alone"),
            (r#"{"query":"a","fusion":{"dense":0,"bm25":0}}"#, "not both 0"),
            (r#"{"query":"a","decay":2}"#, "from 0 to 1"),
            (r#"{"query":"a","min_percentile":101}"#, "from 0 to 100"),
            (r#"{"query":"a","k":1000000}"#, "at most"),
            (r#"{"query":"a","exact":true,"mode":"bm25"}"#, "for vectors"),
        ] {
            assert!(wrong(json).contains(says), "{json}: {}", wrong(json));
        }
    }
}
