//! Search requests. The library, the command line, the HTTP API and query files all use this format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use turnwise_core::{Error, Result, numbers::grouped};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::vectors::Kind;

/// A search request. Exactly one of `query`, `like` and `dialogue` must be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchRequest {
    /// Query text: keywords, or a sentence similar to the text you are looking for.
    pub query: String,
    /// Turns before the query, in order. The dense search adds their vectors to the query's vector.
    pub context: Vec<String>,
    /// Weight of each context turn relative to the next turn, from 0 to 1.
    pub decay: f32,
    /// Id of an utterance or dialogue in the index. Finds similar utterances or dialogues.
    pub like: Option<String>,
    /// A dialogue. Finds similar dialogues in the index.
    pub dialogue: Option<Box<Dialogue>>,
    /// Search mode. By default, hybrid if the index has vectors, otherwise bm25.
    pub mode: Option<Mode>,
    /// Type of the hits: utterances or dialogues. Ignored if `like` or `dialogue` is set: the hits are then utterances
    /// if `like` is the id of an utterance, and dialogues otherwise.
    pub of: HitKind,
    /// Maximum number of hits.
    pub k: usize,
    /// Number of hits to skip.
    pub offset: usize,
    /// Whether to compare the query with all vectors instead of using the approximate index.
    pub exact: bool,
    /// Filter for the hits. Only items that match it are returned.
    pub filter: Option<Filter>,
    /// Name of a thread: the metadata value `thread` of its dialogues. Only hits in these dialogues are returned.
    pub thread: Option<String>,
    /// Grouping of the hits. At most one hit per group is returned.
    pub group: Option<Group>,
    /// Number of turns to return before and after each hit.
    pub window: usize,
    /// Minimum score of the hits.
    pub min_score: Option<f32>,
    /// Minimum percentile of the hits, from 0 to 100. The percentile of a hit is the percentage of random pairs of
    /// texts that are less similar than the query and the hit.
    pub min_percentile: Option<f64>,
    /// Whether to parse the query as a Tantivy query expression. Requires lexical search.
    pub syntax: bool,
    /// Minimum number of candidates to fetch from each list, dense and lexical, in hybrid mode.
    pub candidates: usize,
    /// Fusion of the dense list and the lexical list. By default, the tuned fusion of the index, or else the built-in
    /// default.
    pub fusion: Option<FusionOptions>,
    /// Reranking of the best candidates.
    pub rerank: Option<Rerank>,
    /// Whether to return an explanation of the score with each hit.
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
            of: HitKind::default(),
            k: 10,
            offset: 0,
            exact: false,
            filter: None,
            thread: None,
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

/// Search mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Dense and lexical search, fused.
    Hybrid,
    /// Dense search: finds the vectors nearest to the query's vector.
    Dense,
    /// Lexical search: matches the query's words, scored by BM25.
    Bm25,
}

/// Type of the hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum HitKind {
    /// Single turns.
    #[default]
    Utterances,
    /// Whole dialogues.
    Dialogues,
}

impl HitKind {
    /// Returns the kind of index item that corresponds to this type of hit.
    pub fn kind(self) -> Kind {
        match self {
            HitKind::Utterances => Kind::Utterances,
            HitKind::Dialogues => Kind::Dialogues,
        }
    }
}

/// Grouping of the hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// One hit per dialogue.
    Dialogue,
    /// One hit per thread. A dialogue without a thread is a group of its own.
    Thread,
}

/// Fusion of the dense list and the lexical list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fusion {
    /// Fusion method.
    pub method: FusionMethod,
    /// Constant `k` of reciprocal rank fusion. A larger value reduces the influence of the first ranks.
    pub k: f32,
    /// Weight of the dense list.
    pub dense: f32,
    /// Weight of the lexical list.
    pub bm25: f32,
    /// Score to add if the query names a speaker of the dialogue, and once more if the query names the speaker of the
    /// utterance. Used by context fusion, and by weighted fusion of dialogues.
    pub speaker: f32,
    /// Score to add if the query names a date on which the utterance was said, or that it mentions, or on which a turn of the
    /// dialogue was said. Used by context fusion, and by weighted fusion of dialogues.
    pub date: f32,
}

/// Weight of the lexical list if whole dialogues are found by a query text. Chosen on questions about sessions
/// (`benchmarks/README.md`).
const TEXT_TO_DIALOGUE: f32 = 1.5;

impl Default for Fusion {
    fn default() -> Self {
        Fusion::of(FusionMethod::default())
    }
}

impl Fusion {
    /// Returns the built-in settings of a fusion method.
    pub fn of(method: FusionMethod) -> Self {
        let bm25 = if method == FusionMethod::Context { 0.5 } else { 0.3 };
        Fusion { method, k: 60.0, dense: 1.0, bm25, speaker: 0.2, date: 0.2 }
    }

    /// Returns the built-in fusion for a kind of hits. `is_text` is true if the query is a text, and false in a search for
    /// dialogues or utterances similar to a given one.
    pub fn built_in(kind: Kind, is_text: bool) -> Self {
        match (kind, is_text) {
            (Kind::Utterances, _) => Fusion::of(FusionMethod::Context),
            // The vector of a whole dialogue says little about a single question, so the words count more.
            (Kind::Dialogues, true) => {
                Fusion { bm25: TEXT_TO_DIALOGUE, ..Fusion::of(FusionMethod::Weighted) }
            }
            (Kind::Dialogues, false) => Fusion::of(FusionMethod::Weighted),
        }
    }

    /// Returns an error if a weight or `k` is invalid, or if both weights are 0.
    pub fn check(&self) -> Result<()> {
        let usable = |number: &f32| number.is_finite() && *number >= 0.0;
        let numbers = [self.dense, self.bm25, self.k, self.speaker, self.date];
        if numbers.iter().all(usable) && [self.dense, self.bm25] != [0.0; 2] {
            return Ok(());
        }
        Err(Error::input("fusion weights and k must be non-negative numbers, and the weights not both 0")
            .with_hint(
                "the default weights are 1 for dense, and 0.5 (context), 0.3 (weighted, rrf) or 1.5 (dialogues, found by a \
                 text) for bm25",
            ))
    }
}

/// Settings of the fusion in a request. Settings that are not given have the defaults of the method.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FusionOptions {
    /// Fusion method. By default, context for utterances and weighted for dialogues.
    pub method: Option<FusionMethod>,
    /// Constant `k` of reciprocal rank fusion. By default, 60.
    pub k: Option<f32>,
    /// Weight of the dense list. By default, 1.
    pub dense: Option<f32>,
    /// Weight of the lexical list. By default, 0.5 for context, and 0.3 for weighted and rrf. If dialogues are found by a
    /// query text with weighted fusion, 1.5.
    pub bm25: Option<f32>,
    /// Score to add if the query names a speaker of the dialogue, and once more if the query names the speaker of the
    /// utterance. Used by context fusion, and by weighted fusion of dialogues. By default, 0.2.
    pub speaker: Option<f32>,
    /// Score to add if the query names a date on which the utterance was said, or that it mentions, or on which a turn of the
    /// dialogue was said. Used by context fusion, and by weighted fusion of dialogues. By default, 0.2.
    pub date: Option<f32>,
}

impl FusionOptions {
    /// Returns the complete settings for a kind of hits. Whole dialogues have no context, so context fusion becomes
    /// weighted fusion for them. `is_text` is that of [`Fusion::built_in`].
    pub fn resolve(&self, kind: Kind, is_text: bool) -> Fusion {
        let built_in = Fusion::built_in(kind, is_text);
        let method = match self.method {
            Some(FusionMethod::Context) | None => built_in.method,
            Some(method) => method,
        };
        let default = if method == built_in.method { built_in } else { Fusion::of(method) };
        Fusion {
            method,
            k: self.k.unwrap_or(default.k),
            dense: self.dense.unwrap_or(default.dense),
            bm25: self.bm25.unwrap_or(default.bm25),
            speaker: self.speaker.unwrap_or(default.speaker),
            date: self.date.unwrap_or(default.date),
        }
    }
}

impl From<Fusion> for FusionOptions {
    fn from(fusion: Fusion) -> Self {
        let Fusion { method, k, dense, bm25, speaker, date } = fusion;
        FusionOptions {
            method: Some(method),
            k: Some(k),
            dense: Some(dense),
            bm25: Some(bm25),
            speaker: Some(speaker),
            date: Some(date),
        }
    }
}

/// Fusion method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum FusionMethod {
    /// Weighted sum of the scores of an utterance in its conversation: the cosine with the utterance and its
    /// neighbors, and the scaled BM25 score of the words in them. The speaker counts if the query names a speaker.
    Context,
    /// Weighted sum of the cosine and the scaled BM25 score, which is s / (s + 10) for a score s.
    #[default]
    Weighted,
    /// Reciprocal rank fusion: the sum of weight / (k + rank) over the lists.
    Rrf,
}

/// Reranking of the best candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rerank {
    /// Reranking method.
    pub by: RerankMethod,
    /// Number of candidates to rerank.
    pub top: usize,
    /// Weight of the score of a token method, which is added to the score of the search. `exact` and `selector` do not
    /// use it.
    pub weight: f32,
}

impl Default for Rerank {
    fn default() -> Self {
        Rerank { by: RerankMethod::Exact, top: 50, weight: 0.5 }
    }
}

/// Reranking method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum RerankMethod {
    /// Cosine of the vectors, without the BM25 score.
    #[default]
    Exact,
    /// Adds MaxSim: the mean, over the query's tokens without function words, of the highest cosine with a token of the
    /// hit or, with a lower weight, of its neighbors. For utterances.
    Maxsim,
    /// Like `maxsim`, but with the static embeddings of the tokens: the input of the network, which ignores the context
    /// of a token. About ten times as fast.
    MaxsimStatic,
    /// Adds DialogueCSE's matching-guided similarity, which scores the hit as a response to the context and the query.
    /// For utterances, and for models that were trained with DialogueCSE.
    Matching,
    /// Score of the selector or cross-encoder of the searcher, which reads the context, the query and the hit together.
    /// For utterances.
    Selector,
}

/// Maximum value of `k` plus `offset`. Also the maximum number of candidates that a search fetches from each list.
pub(crate) const MAX_HITS: usize = 100_000;

impl SearchRequest {
    /// Returns the filter for the hits: `filter` and the condition for `thread`.
    pub fn combined_filter(&self) -> Result<Option<Filter>> {
        let thread = self.thread.as_deref().map(Filter::of_thread).transpose()?;
        match (&self.filter, thread) {
            (Some(filter), Some(thread)) => filter.and(&thread).map(Some),
            (filter, thread) => Ok(thread.or_else(|| filter.clone())),
        }
    }

    /// Returns an error if the request is invalid.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &str, hint: &str| Err(Error::input(message).with_hint(hint));
        let given = [!self.query.trim().is_empty(), self.like.is_some(), self.dialogue.is_some()];
        let count = given.iter().filter(|given| **given).count();
        if count == 0 {
            let hint = "enter a sentence similar to what you are looking for, or its keywords";
            return wrong("the query is empty", hint);
        }
        if count > 1 {
            let hint = "give only a query, an id or a dialogue";
            return wrong("more than one of query, like and dialogue is given", hint);
        }
        if self.query.trim().is_empty() && !self.context.is_empty() {
            return wrong(
                "a context needs a query",
                "leave out the context, or search with a query instead of an id or a dialogue",
            );
        }
        if self.syntax && self.mode.is_some_and(|mode| mode != Mode::Bm25) {
            return wrong("--syntax requires a lexical search", "remove it, or search with --mode bm25");
        }
        if self.syntax && !(self.context.is_empty() && given[0]) {
            return wrong("--syntax supports only a single query", "remove the context");
        }
        let lexical = self.mode == Some(Mode::Bm25) || self.syntax;
        if self.exact && lexical {
            return wrong("--exact requires a dense search", "remove it, or search with --mode dense");
        }
        if self.k.saturating_add(self.offset) > MAX_HITS {
            let most = grouped(MAX_HITS as u64);
            let message = format!("the number of hits plus the offset must be at most {most}");
            return wrong(&message, "`corpus export --filter` exports all dialogues that match a filter");
        }
        if let Some(options) = &self.fusion {
            options.resolve(self.of.kind(), true).check()?;
        }
        if !(0.0..=1.0).contains(&self.decay) {
            return wrong("the context decay must be a number from 0 to 1", "the default is 0.5");
        }
        if self.min_percentile.is_some_and(|percent| !(0.0..=100.0).contains(&percent)) {
            let hint = "99 keeps the hits that are more similar than 99% of random pairs";
            return wrong("a percentile must be a number from 0 to 100", hint);
        }
        if self.min_percentile.is_some() && lexical {
            return wrong("percentiles require a dense search", "use --min-score with --mode bm25");
        }
        if let Some(rerank) = &self.rerank {
            if !(rerank.weight.is_finite() && rerank.weight >= 0.0) {
                return wrong(
                    "the weight of the reranking must be a non-negative number",
                    "the default is 0.5",
                );
            }
            if lexical {
                let hint = "remove --mode bm25 and --syntax, or remove --rerank";
                return wrong("reranking requires a dense search", hint);
            }
            if rerank.by != RerankMethod::Exact && (!given[0] || self.of == HitKind::Dialogues) {
                let by = if rerank.by == RerankMethod::Selector { "a selector" } else { "tokens" };
                return wrong(
                    &format!("reranking by {by} is possible only with a query and for utterances"),
                    "use --rerank exact for dialogues and for similarity search",
                );
            }
        }
        self.combined_filter()?;
        if self.min_score.is_some_and(|score| !score.is_finite()) {
            return wrong("the minimum score is not a finite number", "remove it");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_from_json_and_invalid_ones_are_rejected() {
        let request: SearchRequest =
            serde_json::from_str(r#"{"query":"x","mode":"dense","filter":"role=user","fusion":{"k":10}}"#)
                .unwrap();
        assert_eq!(
            (request.mode, request.k, request.fusion),
            (Some(Mode::Dense), 10, Some(FusionOptions { k: Some(10.0), ..FusionOptions::default() }))
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
            (r#"{"query":"a","syntax":true,"mode":"dense"}"#, "--syntax requires"),
            (r#"{"query":"a","fusion":{"dense":0,"bm25":0}}"#, "not both 0"),
            (r#"{"query":"a","decay":2}"#, "from 0 to 1"),
            (r#"{"query":"a","min_percentile":101}"#, "from 0 to 100"),
            (r#"{"query":"a","k":1000000}"#, "at most"),
            (r#"{"query":"a","thread":" "}"#, "the name of the thread is empty"),
            (r#"{"query":"a","k":50001,"offset":50000}"#, "at most"),
            (r#"{"query":"a","exact":true,"mode":"bm25"}"#, "--exact requires"),
            (r#"{"query":"a","exact":true,"syntax":true}"#, "--exact requires"),
            (r#"{"query":"a","min_percentile":9,"syntax":true}"#, "percentiles require"),
        ] {
            assert!(wrong(json).contains(says), "{json}: {}", wrong(json));
        }
    }
}
