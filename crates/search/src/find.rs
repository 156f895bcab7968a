//! The search itself: candidates from both lists, more of them until there are hits enough.

use std::{cell::Cell, collections::HashSet, ops::Range, time::Instant};

use super::{
    Searcher,
    fuse::{FusedCandidate, fuse},
    hits::Hits,
    query::{Known, Query},
    request::{Method, Mode, Of, SearchRequest},
    response::{Candidates, Response, SCHEMA, Timings},
};
use turnwise_core::error::Result;
use turnwise_index::{
    engine::{Ahead, Candidate, SearchModes, View, unsupported},
    vectors::Kind,
};

/// Where hits are dropped after they were found (by a least score, by groups), more candidates are looked for, up to so many.
const DEEPEST: usize = 100_000;

/// Both lists to some depth.
pub(super) struct Lists {
    pub(super) dense: Vec<Candidate>,
    pub(super) bm25: Vec<Candidate>,
    /// Whether there is nothing more.
    exhausted: bool,
}

impl Searcher {
    /// Answers a request.
    pub fn search(&self, request: &SearchRequest) -> Result<Response> {
        self.search_knowing(request, &Known::new())
    }

    pub(super) fn search_knowing(&self, request: &SearchRequest, known: &Known) -> Result<Response> {
        request.check()?;
        let started = Instant::now();
        let mut view = self.engine.view();
        let mode = self.mode_in(view.as_ref(), request)?;
        if mode != Mode::Bm25 {
            self.recipe()?;
        }
        self.check_possible(request)?;
        let mut timings = Timings::default();
        let mut query = timed(&mut timings.encode, || self.query(view.as_ref(), request, mode, known))?;
        let kind = query.kind;
        let admitted = timed(&mut timings.filter, || match &request.filter {
            Some(filter) => view.admit(filter, kind, mode.modes()),
            None => Ok(None),
        })?;
        let view = view.as_ref();
        query.warnings.extend(self.engine.notes(kind, mode.modes(), request.mode.is_none()));
        let wanted = request.offset + request.k;
        let reranked = request.rerank.map_or(0, |rerank| rerank.top);
        let fusion = self.fusion(request);
        let fused = if mode == Mode::Hybrid { request.candidates } else { 1 };
        let deepest = DEEPEST.min(self.engine.capabilities().deepest);
        let mut depth = wanted.max(reranked).max(fused).min(deepest);
        // What others are like is found first and then left out.
        depth += usize::from(query.itself.is_some());
        let too_low = Cell::new(0);
        let (lists, mut hits) = loop {
            too_low.set(0);
            let lists = lists(view, request, &query, depth, &mut timings)?;
            let hits = timed(&mut timings.hits, || {
                if mode == Mode::Hybrid && fusion.method == Method::Weighted {
                    view.ahead(kind, &lists.by_words_alone(), Ahead::Vectors)?;
                }
                let cosine = |candidate: &FusedCandidate| match &query.vector {
                    Some(vector) => view.cosine(kind, &candidate.found(), vector),
                    None => Ok(None),
                };
                let mut ranked = fuse(mode, &fusion, [&lists.dense, &lists.bm25], &cosine)?;
                self.rerank(view, request, &query, &mut ranked)?;
                Hits { engine: self.engine(), view, request, query: &query, mode, fusion, too_low: &too_low }
                    .of(ranked)
            })?;
            if hits.len() >= request.k || lists.exhausted || depth >= deepest {
                break (lists, hits);
            }
            depth = depth.saturating_mul(4).min(deepest);
        };
        let analyzer = self.engine.analyzer();
        let Query { text, words, effective, warnings, .. } = query;
        let terms = match words {
            Some(words) => words.terms,
            None => analyzer.terms(&request.query),
        };
        for hit in &mut hits {
            hit.matched = characters(&hit.turn.text, &analyzer.ranges(&hit.turn.text, &terms));
        }
        Ok(Response {
            schema: SCHEMA,
            query: text,
            of: if kind == Kind::Utterances { Of::Utterances } else { Of::Dialogues },
            mode,
            offset: request.offset,
            hits,
            effective,
            fusion: (mode == Mode::Hybrid).then_some(fusion),
            tuned: mode == Mode::Hybrid && request.fusion.is_none() && self.tuning.is_some(),
            candidates: Candidates {
                dense: lists.dense.len(),
                bm25: lists.bm25.len(),
                admitted,
                too_low: Some(too_low.get()).filter(|n| *n > 0),
            },
            warnings,
            terms,
            analyzer,
            milliseconds: started.elapsed().as_secs_f64() * 1e3,
            timings,
        })
    }

    /// Refuses what the engine cannot do.
    fn check_possible(&self, request: &SearchRequest) -> Result<()> {
        let can = self.engine.capabilities();
        let refused = |what: &str, hint: &str| Err(unsupported(&self.engine.place(), what, hint));
        if request.syntax && !can.expressions {
            return refused("a query in Tantivy's language (--syntax)", "look for words alone");
        }
        if request.exact && !can.exact {
            return refused("looking at every vector (--exact)", "leave --exact out");
        }
        if request.offset + request.k > can.deepest {
            return refused(
                &format!("more than {} hits", can.deepest),
                "ask for fewer, or narrow them by a filter",
            );
        }
        if request.min_percentile.is_some() && !can.percentiles {
            return refused("a least percentile", "take a least score (--min-score)");
        }
        Ok(())
    }
}

/// Both lists to some depth.
pub(super) fn lists(
    view: &dyn View,
    request: &SearchRequest,
    query: &Query,
    depth: usize,
    timings: &mut Timings,
) -> Result<Lists> {
    let mut lists = Lists { dense: Vec::new(), bm25: Vec::new(), exhausted: true };
    if let Some(vector) = &query.vector {
        let found = timed(&mut timings.dense, || view.nearest(query.kind, vector, depth, request.exact))?;
        lists.exhausted &= found.exhausted;
        lists.dense = found.found;
    }
    if let Some(words) = query.words.as_ref().filter(|words| !words.is_empty()) {
        let found = timed(&mut timings.bm25, || view.by_words(query.kind, words, depth))?;
        lists.exhausted &= found.exhausted;
        lists.bm25 = found.found;
    }
    Ok(lists)
}

impl Lists {
    /// What only its words have found.
    fn by_words_alone(&self) -> Vec<Candidate> {
        let near: HashSet<_> = self.dense.iter().map(|found| (found.seq, found.turn)).collect();
        self.bm25.iter().filter(|found| !near.contains(&(found.seq, found.turn))).copied().collect()
    }
}

impl Mode {
    /// The modes in which it searches.
    pub(super) fn modes(self) -> SearchModes {
        SearchModes { dense: self != Mode::Bm25, lexical: self != Mode::Dense }
    }
}

/// Ranges of bytes, which come in order, as ranges of characters.
fn characters(text: &str, ranges: &[Range<usize>]) -> Vec<[usize; 2]> {
    let (mut byte, mut character) = (0, 0);
    let mut reach = |to: usize| {
        character += text[byte..to].chars().count();
        byte = to;
        character
    };
    ranges.iter().map(|range| [reach(range.start), reach(range.end)]).collect()
}

pub(super) fn timed<T>(milliseconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *milliseconds += started.elapsed().as_secs_f64() * 1e3;
    result
}
