//! The search algorithm, for one request and for batches. Fetches candidates by dense and by lexical search, and
//! converts them to hits. Fetches more candidates until there are enough hits.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    ops::Range,
    time::Instant,
};

use rayon::prelude::*;

use super::{
    Candidates, Fusion, FusionMethod, HitKind, Mode, Response, SCHEMA, SearchRequest, Searcher, Stretch,
    Timings,
    context::{ContextScore, ContextScorer},
    coverage::WordShare,
    earlier::EarlierLists,
    fuse::{CandidateScores, FusedCandidate, fuse},
    hits::HitBuilder,
    narrow::NamedDialogues,
    query::{Query, QueryVectors},
    request::MAX_HITS,
};
use turnwise_core::Result;
use turnwise_encoder::TextOptions;
use turnwise_index::{
    engine::{Candidate, Engine, Prefetch, SearchModes, View, unsupported},
    vectors::Kind,
};

/// Candidate lists of the dense search and the lexical search.
pub(super) struct Lists {
    pub(super) kind: Kind,
    pub(super) dense: Vec<Candidate>,
    pub(super) bm25: Vec<Candidate>,
    /// Lists for the turns before the query, and the turns that follow their turns. Empty without a context.
    pub(super) earlier: Option<EarlierLists>,
    pub(super) following: Vec<Candidate>,
    /// Dialogues whose titles contain words of the query.
    pub(super) titles: Vec<Candidate>,
    /// Reliability of the vectors for the query, from 0 to 1: the factor of the weight of dense search.
    pub(super) reliability: f32,
    /// In a search for whole dialogues, those with a speaker or a date that the query names.
    pub(super) named: NamedDialogues,
    /// True if both lists are complete, that is, the engine has no further candidates.
    exhausted: bool,
}

impl Searcher {
    /// Runs a search. Returns an error if the request is invalid, if the engine does not support it, or if the index
    /// lacks vectors or a lexical index that the request needs. A dense search with a query text needs an encoder.
    pub fn search(&self, request: &SearchRequest) -> Result<Response> {
        self.search_with_vectors(request, &QueryVectors::new())
    }

    pub(super) fn search_with_vectors(
        &self,
        request: &SearchRequest,
        vectors: &QueryVectors,
    ) -> Result<Response> {
        request.check()?;
        let started = Instant::now();
        let mut view = self.engine.view();
        let mode = self.mode_in(view.as_ref(), request)?;
        if mode != Mode::Bm25 {
            self.recipe()?;
        }
        self.check_supported(request)?;
        let mut timings = Timings::default();
        let mut query = timed(&mut timings.encode, || self.query(view.as_ref(), request, mode, vectors))?;
        let kind = query.kind;
        let admitted = timed(&mut timings.filter, || match request.combined_filter()? {
            Some(filter) => view.admit(&filter, kind, mode.modes()),
            None => Ok(None),
        })?;
        let view = view.as_ref();
        query.warnings.extend(self.thread_warning(request, admitted)?);
        query.warnings.extend(self.engine.notes(kind, mode.modes(), request.mode.is_none()));
        // A query text is about as long as an utterance, so it is treated as an utterance.
        let from = if request.query.is_empty() { kind } else { Kind::Utterances };
        let stretch = match mode {
            Mode::Hybrid => Stretch::of(self.engine(), from, kind)?,
            _ => Stretch::default(),
        };
        let wanted = request.offset + request.k;
        let reranked = request.rerank.map_or(0, |rerank| rerank.top);
        let mut fusion = self.fusion(request, kind);
        let mut reliability = 1.0;
        if mode == Mode::Hybrid && self.learns_dense_weight(request, &fusion) {
            reliability = self.dense_factor(&request.query);
            if reliability < 1.0 {
                fusion.dense *= reliability;
                query.warnings.push(format!(
                    "in the language of the query, the vectors of {} hardly tell related turns from unrelated ones, so dense \
                     search counts less; encode the index with a better model, or with a multilingual one such as \
                     multilingual-e5-small",
                    self.recipe()?.model
                ));
            }
        }
        let fused = if mode == Mode::Hybrid { request.candidates } else { 1 };
        let deepest = MAX_HITS.min(self.engine.capabilities().deepest);
        let mut depth = wanted.max(reranked).max(fused).min(deepest);
        // A search with `like` also finds the given item, which is dropped later. So fetch one more candidate.
        depth += usize::from(query.itself.is_some());
        let too_low = Cell::new(0);
        let (lists, mut hits) = loop {
            too_low.set(0);
            let mut lists = self.lists(view, request, &query, depth, &mut timings)?;
            lists.reliability = reliability;
            let hits = timed(&mut timings.hits, || {
                if mode == Mode::Hybrid && fusion.method == FusionMethod::Weighted {
                    view.prefetch(kind, &lists.lexical_only(), Prefetch::Vectors)?;
                    if query.uses_share() {
                        view.prefetch(kind, &lists.without_terms(), Prefetch::Records)?;
                    }
                }
                let scores = Scores { engine: self.engine(), view, query: &query, lists: &lists };
                let mut ranked = fuse(mode, &fusion, &lists, &scores, stretch)?;
                self.rerank(view, request, &query, &mut ranked)?;
                HitBuilder {
                    engine: self.engine(),
                    view,
                    request,
                    query: &query,
                    lists: &lists,
                    mode,
                    fusion,
                    stretch,
                    too_low: &too_low,
                    threads: RefCell::default(),
                    records: RefCell::default(),
                }
                .build(ranked)
            })?;
            if hits.len() >= request.k || lists.exhausted || depth >= deepest {
                break (lists, hits);
            }
            depth = depth.saturating_mul(4).min(deepest);
        };
        let analyzer = self.engine.analyzer();
        let Query { text, words, effective, absent, warnings, .. } = query;
        let terms = match words {
            Some(words) => words.terms,
            None => analyzer.query_terms(&request.query),
        };
        for hit in &mut hits {
            let [in_turn, in_title] = [hit.turn.text.as_str(), hit.title.as_deref().unwrap_or_default()]
                .map(|text| char_ranges(text, &analyzer.ranges(text, &terms)));
            (hit.matched, hit.title_matched) = (in_turn, in_title);
        }
        Ok(Response {
            schema: SCHEMA,
            query: text,
            of: if kind == Kind::Utterances { HitKind::Utterances } else { HitKind::Dialogues },
            mode,
            offset: request.offset,
            group: request.group,
            hits,
            effective,
            fusion: (mode == Mode::Hybrid).then_some(fusion),
            rerank: request.rerank,
            tuned: mode == Mode::Hybrid && request.fusion.is_none() && self.tuning.is_some(),
            candidates: Candidates {
                dense: lists.dense.len(),
                bm25: lists.bm25.len(),
                admitted,
                too_low: Some(too_low.get()).filter(|n| *n > 0),
            },
            warnings,
            terms,
            absent,
            analyzer,
            milliseconds: started.elapsed().as_secs_f64() * 1e3,
            timings,
        })
    }

    /// Fetches up to `depth` candidates by dense search, and up to `depth` candidates by lexical search. If the query names a
    /// speaker or a date, or has a context, fetches more candidates for them. Adds the time of each search to `timings`.
    pub(super) fn lists(
        &self,
        view: &dyn View,
        request: &SearchRequest,
        query: &Query,
        depth: usize,
        timings: &mut Timings,
    ) -> Result<Lists> {
        let mut lists = Lists::new(query.kind);
        if let Some(vector) = &query.vector {
            let found = timed(&mut timings.dense, || view.nearest(query.kind, vector, depth, request.exact))?;
            lists.exhausted &= found.exhausted;
            lists.dense = found.found;
        }
        if let Some(words) = query.words.as_ref().filter(|words| !words.is_empty()) {
            let found = timed(&mut timings.bm25, || view.keyword_search(query.kind, words, depth))?;
            lists.exhausted &= found.exhausted;
            lists.bm25 = found.found;
        }
        timed(&mut timings.bm25, || lists.add_titles(view, query, depth))?;
        // Complete lists need no further candidates. But only the restricted searches tell which dialogues belong to a
        // speaker or a date.
        if !lists.exhausted || query.kind == Kind::Dialogues {
            timed(&mut timings.filter, || self.add_named(request, query, depth, &mut lists))?;
        }
        if let Some(earlier) = &query.earlier {
            let found = timed(&mut timings.dense, || earlier.find(view, depth, request.exact))?;
            lists.following =
                timed(&mut timings.hits, || found.next_turns(view, request.combined_filter()?.as_ref()))?;
            lists.earlier = Some(found);
        }
        Ok(lists)
    }

    /// Returns whether the weight of dense search depends on the reliability of the vectors: not if a weight was chosen by
    /// the user or by tuning. RRF uses only ranks.
    fn learns_dense_weight(&self, request: &SearchRequest, fusion: &Fusion) -> bool {
        let chosen = match &request.fusion {
            Some(options) => options.dense.is_some(),
            None => self.tuning.is_some(),
        };
        !chosen && !request.query.is_empty() && fusion.method != FusionMethod::Rrf
    }

    /// Returns an error if the engine does not support the request.
    fn check_supported(&self, request: &SearchRequest) -> Result<()> {
        let can = self.engine.capabilities();
        let refused = |what: &str, hint: &str| Err(unsupported(&self.engine.place(), what, hint));
        if request.syntax && !can.expressions {
            return refused("a Tantivy query expression (--syntax)", "search with plain keywords");
        }
        if request.exact && !can.exact {
            return refused("an exhaustive vector search (--exact)", "remove --exact");
        }
        if request.offset + request.k > can.deepest {
            let what = format!("more than {} hits", can.deepest);
            return refused(&what, "request fewer hits, or use a filter");
        }
        if request.min_percentile.is_some() && !can.percentiles {
            return refused("a minimum percentile", "use a minimum score (--min-score)");
        }
        Ok(())
    }
}

/// Computes scores of the candidates of one search.
struct Scores<'a> {
    engine: &'a dyn Engine,
    view: &'a dyn View,
    query: &'a Query,
    lists: &'a Lists,
}

impl CandidateScores for Scores<'_> {
    fn cosine(&self, candidate: &FusedCandidate) -> Result<Option<f32>> {
        self.query.cosine(self.view, candidate)
    }

    fn share(&self, candidate: &FusedCandidate) -> Result<Option<WordShare>> {
        self.query.share(self.view, self.engine.analyzer(), candidate, self.lists.reliability)
    }

    fn in_context(&self, candidates: &[FusedCandidate]) -> Result<Vec<ContextScore>> {
        ContextScorer::new(self.engine, self.view, self.query, self.lists).scores(candidates)
    }
}

impl Lists {
    pub(super) fn new(kind: Kind) -> Self {
        Lists {
            kind,
            dense: Vec::new(),
            bm25: Vec::new(),
            earlier: None,
            following: Vec::new(),
            titles: Vec::new(),
            reliability: 1.0,
            named: NamedDialogues::default(),
            exhausted: true,
        }
    }

    /// Returns the candidates of the lexical search whose terms are not known.
    fn without_terms(&self) -> Vec<Candidate> {
        self.bm25.iter().chain(&self.titles).filter(|candidate| candidate.terms.is_none()).copied().collect()
    }

    /// Returns the candidates that only the lexical search found.
    fn lexical_only(&self) -> Vec<Candidate> {
        let item = |candidate: &Candidate| (candidate.version, candidate.turn);
        let dense: HashSet<_> = self.dense.iter().map(item).collect();
        self.bm25
            .iter()
            .chain(&self.titles)
            .filter(|candidate| !dense.contains(&item(candidate)))
            .copied()
            .collect()
    }
}

impl Mode {
    /// Returns the kinds of search that the mode uses.
    pub(super) fn modes(self) -> SearchModes {
        SearchModes { dense: self != Mode::Bm25, lexical: self != Mode::Dense }
    }
}

/// Converts byte ranges in ascending order to character ranges.
fn char_ranges(text: &str, ranges: &[Range<usize>]) -> Vec<[usize; 2]> {
    let (mut byte, mut character) = (0, 0);
    let mut advance = |to: usize| {
        character += text[byte..to].chars().count();
        byte = to;
        character
    };
    ranges.iter().map(|range| [advance(range.start), advance(range.end)]).collect()
}

pub(super) fn timed<T>(milliseconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *milliseconds += started.elapsed().as_secs_f64() * 1e3;
    result
}

impl Searcher {
    /// Runs several searches. Returns the responses in the order of the requests. The responses are the same as if each
    /// request was passed to [`Searcher::search`].
    pub fn search_all(&self, requests: &[SearchRequest]) -> Vec<Result<Response>> {
        // If encoding fails, each search encodes its own query, so each request gets its own error.
        let vectors = self.encode_together(requests).unwrap_or_default();
        requests.par_iter().map(|request| self.search_with_vectors(request, &vectors)).collect()
    }

    fn encode_together(&self, requests: &[SearchRequest]) -> Result<QueryVectors> {
        let has_plain_query = |request: &&SearchRequest| {
            request.context.is_empty() && request.check().is_ok() && !request.query.is_empty()
        };
        let mut texts: Vec<String> = Vec::new();
        for request in requests.iter().filter(has_plain_query) {
            let mode = self.mode(request)?;
            if mode != Mode::Bm25 {
                texts.push(self.named_speakers(request, mode)?.dense_text(&request.query, request.of.kind()));
            }
        }
        texts.sort_unstable();
        texts.dedup();
        if texts.is_empty() {
            return Ok(QueryVectors::new());
        }
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let encoder = self.encoder()?;
        // Long queries are encoded separately, because the warning about truncation belongs to one query.
        let limit = encoder.max_tokens().map_or(usize::MAX, |tokens| tokens.saturating_sub(8));
        texts.retain(|text| text.len() <= limit);
        let encoded = encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>(), &options)?;
        let vectors = encoded.vectors.rows().map(<[f32]>::to_vec);
        Ok(texts.into_iter().zip(vectors).collect())
    }
}
