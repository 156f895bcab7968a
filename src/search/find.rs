//! The search itself: candidates from both lists, more of them until there are hits enough.

use std::{cell::Cell, ops::Range, time::Instant};

use super::{
    Searcher,
    filtered::Filtered,
    fuse::{Candidate, Entry, fuse},
    hits::Hits,
    query::{Known, Query},
    request::{Mode, Of, SearchRequest},
    response::{Candidates, Response, SCHEMA, Timings},
};
use crate::{
    error::Result,
    index::{dense::Look, vectors::Kind},
};

/// Where hits are dropped after they were found (by a least score, by groups), more candidates are looked for, up to so many.
const DEEPEST: usize = 100_000;

/// Both lists to some depth.
pub(super) struct Lists {
    pub(super) dense: Vec<Entry>,
    pub(super) bm25: Vec<Entry>,
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
        let mode = self.mode(request)?;
        if mode != Mode::Bm25 {
            self.dense()?;
        }
        let mut timings = Timings::default();
        let mut query = timed(&mut timings.encode, || self.query(request, mode, known))?;
        let filtered = timed(&mut timings.filter, || match &request.filter {
            Some(filter) => self.filtered(filter, query.kind, mode).map(Some),
            None => Ok(None),
        })?;
        let filtered = filtered.as_deref();
        query.warnings.extend(self.warnings(request, mode, query.kind));
        let wanted = request.offset + request.k;
        let reranked = request.rerank.map_or(0, |rerank| rerank.top);
        let fusion = self.fusion(request);
        let fused = if mode == Mode::Hybrid { request.candidates } else { 1 };
        let mut depth = wanted.max(reranked).max(fused).min(DEEPEST);
        // What others are like is found first and then left out.
        depth += usize::from(query.itself.is_some());
        let too_low = Cell::new(0);
        let (lists, mut hits) = loop {
            too_low.set(0);
            let lists = self.lists(request, &query, filtered, depth, &mut timings)?;
            let hits = timed(&mut timings.hits, || {
                let cosine = |candidate: &Candidate| match &query.vector {
                    Some(vector) => self.cosine(query.kind, candidate, vector),
                    None => Ok(None),
                };
                let mut ranked = fuse(mode, &fusion, [&lists.dense, &lists.bm25], &cosine)?;
                self.rerank(request, &query, &mut ranked)?;
                Hits { searcher: self, request, query: &query, mode, fusion, too_low: &too_low }.of(ranked)
            })?;
            if hits.len() >= request.k || lists.exhausted || depth >= DEEPEST {
                break (lists, hits);
            }
            depth = depth.saturating_mul(4).min(DEEPEST);
        };
        let Query { text, kind, words, effective, warnings, .. } = query;
        let terms = match &words {
            Some(words) => words.terms().to_vec(),
            None => self.analyzer().terms(&request.query),
        };
        for hit in &mut hits {
            hit.matched = characters(&hit.turn.text, &self.analyzer().ranges(&hit.turn.text, &terms));
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
                admitted: filtered.map(|filtered| filtered.admitted().count()),
                too_low: Some(too_low.get()).filter(|n| *n > 0),
            },
            warnings,
            terms,
            analyzer: self.analyzer(),
            milliseconds: started.elapsed().as_secs_f64() * 1e3,
            timings,
        })
    }

    pub(crate) fn analyzer(&self) -> crate::text::Analyzer {
        self.lexical.as_ref().map(|lexical| lexical.analyzer()).unwrap_or_default()
    }

    pub(super) fn lists(
        &self,
        request: &SearchRequest,
        query: &Query,
        filtered: Option<&Filtered>,
        depth: usize,
        timings: &mut Timings,
    ) -> Result<Lists> {
        let mut lists = Lists { dense: Vec::new(), bm25: Vec::new(), exhausted: true };
        if let Some(vector) = &query.vector {
            let among = filtered.and_then(Filtered::among);
            let look = Look { k: depth, exact: request.exact, among, ..Look::default() };
            let found = timed(&mut timings.dense, || {
                self.dense()?.search(&self.snapshot, query.kind, vector, &look)
            })?;
            lists.exhausted &= found.len() < depth;
            lists.dense = found
                .into_iter()
                .map(|hit| Entry { dialogue: hit.dialogue, seq: hit.seq, turn: hit.turn, score: hit.score })
                .collect();
        }
        if let Some(words) = query.words.as_ref().filter(|words| !words.is_empty()) {
            let (found, exhausted) =
                timed(&mut timings.bm25, || self.by_words(words, query.kind, filtered, depth))?;
            lists.exhausted &= exhausted;
            lists.bm25 = found;
        }
        Ok(lists)
    }

    /// The list by words, without what is not there any more, and whether there is nothing more.
    fn by_words(
        &self,
        words: &crate::index::lexical::LexicalQuery,
        kind: Kind,
        filtered: Option<&Filtered>,
        depth: usize,
    ) -> Result<(Vec<Entry>, bool)> {
        let lexical = self.lexical()?;
        let mut k = depth;
        loop {
            let found = lexical.find(kind, words, k, filtered.and_then(Filtered::selected))?;
            let exhausted = found.len() < k;
            let live = found.into_iter().filter_map(|hit| {
                let key = hit.dialogue.key();
                let there = self.snapshot.seq_of(key) == Some(hit.seq);
                let admitted = filtered.is_none_or(|filtered| filtered.admitted().holds(hit.seq, hit.turn));
                let entry = Entry { dialogue: key, seq: hit.seq, turn: hit.turn, score: hit.score };
                (there && admitted).then_some(entry)
            });
            let live: Vec<Entry> = live.take(depth).collect();
            if exhausted || live.len() >= depth {
                return Ok((live, exhausted));
            }
            k = k.saturating_mul(4);
        }
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
