//! Tuning: finds the fusion that ranks known relevant items best. This fusion is stored in the file `tuning.json` of
//! the index.

use std::{cell::RefCell, cmp::Reverse, collections::HashMap, fs, io, path::Path};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Fusion, FusionMethod, FusionOptions, Mode, SearchRequest, Searcher, Stretch,
    context::{ContextScore, ContextScorer},
    coverage::WordShare,
    find::Lists,
    fuse::{CandidateScores, FusedCandidate, fuse},
    query::{Query, QueryVectors, kind_of},
};
use turnwise_core::{DialogueId, Error, IdKey, IoContext, Result, TurnNo, files};
use turnwise_corpus::Time;
use turnwise_index::{
    engine::{Engine, Prefetch, Version, View},
    vectors::Kind,
};
use turnwise_measures::ranking::{RELEVANT, Ranking};

/// Maximum number of results that are evaluated per query.
const DEPTH: usize = 100;

/// A search request with the ids of its relevant items.
#[derive(Debug, Clone, PartialEq)]
pub struct LabeledQuery {
    /// Search request. Its mode is ignored: tuning always searches in hybrid mode.
    pub request: SearchRequest,
    /// Ids of the relevant items: utterance ids, or dialogue ids if the request searches for dialogues.
    pub relevant: Vec<String>,
}

/// Ranking quality of a fusion: means over the queries. All measures are from 0 to 1; greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Quality {
    /// Mean average precision (MAP) over the first 100 results.
    pub map: f64,
    /// Mean reciprocal rank (MRR) of the first relevant result. The reciprocal rank is 0 if none of the first 100
    /// results is relevant.
    pub mrr: f64,
    /// Normalized discounted cumulative gain of the first 10 results (nDCG@10).
    pub ndcg: f64,
}

/// A fusion that was tried, with its ranking quality.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tried {
    /// Method and parameters of the fusion.
    pub fusion: Fusion,
    /// Mean quality over all evaluated queries.
    pub quality: Quality,
}

/// Result of tuning the fusion on labeled queries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuned {
    /// Number of queries that were evaluated.
    pub queries: usize,
    /// Number of queries that were skipped because they have no relevant id, or only ids that are in `unknown`.
    pub without_relevant: usize,
    /// Relevant ids that are ignored, because they are not in the index or have the wrong type. For example, a dialogue
    /// id has the wrong type if the request searches for utterances.
    pub unknown: Vec<String>,
    /// All tried fusions, sorted by MAP, best first.
    pub tried: Vec<Tried>,
    /// Expected quality of the best fusion on new queries, by two-fold cross-validation. The best fusion on one half of
    /// the queries is evaluated on the other half, and vice versa. The result is the mean of both evaluations.
    pub expected: Quality,
    /// Quality of the current default: the tuned fusion of the index, or else the built-in default.
    #[serde(rename = "unasked")]
    pub default_quality: Quality,
}

/// Returns the fusions to try.
fn grid() -> Vec<Fusion> {
    const WEIGHTS: [f32; 11] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0];
    let base = Fusion { dense: 1.0, ..Fusion::default() };
    let mut all = vec![Fusion { method: FusionMethod::Weighted, dense: 0.0, bm25: 1.0, ..base }];
    for method in [FusionMethod::Weighted, FusionMethod::Context] {
        all.extend(WEIGHTS.map(|bm25| Fusion { method, bm25, ..base }));
    }
    all.push(Fusion::of(FusionMethod::Context));
    for k in [10.0, 60.0] {
        let rrf = |bm25: &f32| Fusion { method: FusionMethod::Rrf, k, bm25: *bm25, ..base };
        all.extend(WEIGHTS[1..].iter().map(rrf));
    }
    all
}

impl Tuned {
    /// Returns the fusion with the best MAP. Returns `None` if its MAP, or its MAP estimated for new queries, is not
    /// greater than the MAP of the current default.
    pub fn better(&self) -> Option<&Tried> {
        let best = self.tried.first()?;
        (self.expected.map > self.default_quality.map && best.quality.map > self.default_quality.map)
            .then_some(best)
    }
}

impl Searcher {
    /// Evaluates a grid of fusions and the current default on labeled queries. Returns an error if fewer than two
    /// queries have a relevant item in the index, or if a hybrid search fails.
    pub fn tune(&self, labeled: &[LabeledQuery]) -> Result<Tuned> {
        let (mut judged, mut unknown) = (Vec::new(), Vec::new());
        for one in labeled {
            let (relevant, others): (Vec<String>, Vec<String>) =
                one.relevant.iter().cloned().partition(|id| self.can_find(id, &one.request));
            unknown.extend(others);
            if !relevant.is_empty() {
                judged.push(LabeledQuery { relevant, request: one.request.clone() });
            }
        }
        if judged.len() < 2 {
            let hint = unknown.first().map_or_else(
                || "use at least a few dozen queries".to_owned(),
                |id| {
                    format!(
                        "`{id}` is not in {}, or has the wrong type: use ids of utterances (billing-001#3), or ids of \
                         dialogues (billing-001) with \"of\": \"dialogues\"",
                        self.engine.place()
                    )
                },
            );
            let message = "fewer than two queries have a relevant result in the index";
            return Err(Error::data(message).with_hint(hint));
        }
        let kind = kind_of(&judged[0].request, self.engine.view().as_ref())?;
        let default = self.fusion(&SearchRequest { fusion: None, ..judged[0].request.clone() }, kind);
        let mut fusions = grid();
        // Whole dialogues have no context.
        fusions.retain(|fusion| kind == Kind::Utterances || fusion.method != FusionMethod::Context);
        if !fusions.iter().any(|fusion| ranks_alike(fusion, &default)) {
            fusions.push(default);
        }
        let each: Vec<Vec<Quality>> =
            judged.par_iter().map(|labeled| self.qualities(labeled, &fusions)).collect::<Result<_>>()?;
        let mean = |fusion: usize, wanted: &dyn Fn(usize) -> bool| {
            let of: Vec<Quality> = (0..each.len()).filter(|n| wanted(*n)).map(|n| each[n][fusion]).collect();
            Quality::mean(&of)
        };
        let best = |wanted: &dyn Fn(usize) -> bool| {
            let map = |fusion: &usize| mean(*fusion, wanted).map;
            // If several fusions are equally good, take the first of them, which is the simplest.
            (0..fusions.len()).max_by(|a, b| map(a).total_cmp(&map(b)).then(b.cmp(a))).unwrap_or(0)
        };
        let (even, odd) = (|n: usize| n.is_multiple_of(2), |n: usize| !n.is_multiple_of(2));
        let halves = [mean(best(&even), &odd), mean(best(&odd), &even)];
        let all = |_: usize| true;
        let tried = |n: usize| Tried { fusion: fusions[n], quality: mean(n, &all) };
        let mut tried: Vec<Tried> = (0..fusions.len()).map(tried).collect();
        let default_quality =
            tried.iter().find(|t| ranks_alike(&t.fusion, &default)).map(|t| t.quality).unwrap_or_default();
        tried.sort_by_key(|tried| Reverse((tried.quality.map * 1e9) as i64));
        Ok(Tuned {
            queries: judged.len(),
            without_relevant: labeled.len() - judged.len(),
            unknown,
            tried,
            expected: Quality::mean(&halves),
            default_quality,
        })
    }

    /// Returns whether an id exists and has the type (utterance or dialogue) that the request searches for.
    fn can_find(&self, id: &str, request: &SearchRequest) -> bool {
        let view = self.engine.view();
        let kind = kind_of(request, view.as_ref()).ok();
        view.find(id)
            .is_ok_and(|(_, turn)| kind.is_none_or(|kind| (kind == Kind::Utterances) == turn.is_some()))
    }

    /// Returns the ranking quality of each fusion for one labeled query, in the order of `fusions`.
    fn qualities(&self, labeled: &LabeledQuery, fusions: &[Fusion]) -> Result<Vec<Quality>> {
        let request = |method| SearchRequest {
            mode: Some(Mode::Hybrid),
            fusion: Some(FusionOptions { method: Some(method), ..FusionOptions::default() }),
            ..labeled.request.clone()
        };
        // For utterances, only context fusion recognizes speakers, dates and titles in the query, and compares the turns
        // before it. Its candidate lists can therefore be different.
        let request = [FusionMethod::Context, FusionMethod::Weighted].map(request);
        request[0].check()?;
        let mut view = self.engine.view();
        let kind = kind_of(&request[0], view.as_ref())?;
        if let Some(filter) = request[0].combined_filter()? {
            view.admit(&filter, kind, Mode::Hybrid.modes())?;
        }
        let view = view.as_ref();
        let with_context = self.judge(view, &request[0], &labeled.relevant)?;
        let Query { speakers, dates, earlier, .. } = &with_context.query;
        let same = speakers.is_empty()
            && dates.is_empty()
            && earlier.is_none()
            && (kind == Kind::Dialogues || with_context.lists.titles.is_empty());
        let without = if same { None } else { Some(self.judge(view, &request[1], &labeled.relevant)?) };
        let judge = |fusion: &Fusion| match (&without, fusion.method) {
            (Some(without), FusionMethod::Weighted | FusionMethod::Rrf) => without.quality(fusion),
            _ => with_context.quality(fusion),
        };
        fusions.iter().map(judge).collect()
    }

    /// Fetches the candidates of a request for the evaluation of several fusions.
    fn judge<'a>(
        &'a self,
        view: &'a dyn View,
        request: &SearchRequest,
        relevant: &'a [String],
    ) -> Result<Judge<'a>> {
        let query = self.query(view, request, Mode::Hybrid, &QueryVectors::new())?;
        let candidates = request.candidates.max(DEPTH);
        let lists = self.lists(view, request, &query, candidates, &mut Default::default())?;
        for of in [&lists.dense, &lists.bm25] {
            view.prefetch(query.kind, of, Prefetch::Records)?;
            view.prefetch(query.kind, of, Prefetch::Vectors)?;
        }
        let from = if request.query.is_empty() { query.kind } else { Kind::Utterances };
        let stretch = Stretch::of(self.engine(), from, query.kind)?;
        Ok(Judge { engine: self.engine(), view, query, lists, stretch, relevant, cache: RefCell::default() })
    }
}

/// Returns whether two fusions are equal. Ignores `k` unless the method is RRF, which is the only one that uses it.
fn ranks_alike(a: &Fusion, b: &Fusion) -> bool {
    (a.method, a.dense, a.bm25) == (b.method, b.dense, b.bm25)
        && (a.method != FusionMethod::Rrf || a.k == b.k)
}

/// Evaluator of fusions for one request. All fusions use the same candidate lists.
struct Judge<'a> {
    engine: &'a dyn Engine,
    view: &'a dyn View,
    query: Query,
    lists: Lists,
    stretch: Stretch,
    relevant: &'a [String],
    cache: RefCell<Cache>,
}

/// Cache of the scores and ids of candidates, so that they are computed or read only once for all fusions.
#[derive(Default)]
struct Cache {
    cosines: HashMap<(Version, Option<TurnNo>), Option<f32>>,
    in_context: HashMap<(Version, Option<TurnNo>), ContextScore>,
    ids: HashMap<IdKey, Option<DialogueId>>,
}

impl CandidateScores for Judge<'_> {
    fn cosine(&self, candidate: &FusedCandidate) -> Result<Option<f32>> {
        let at = (candidate.version, candidate.turn);
        if let Some(known) = self.cache.borrow().cosines.get(&at) {
            return Ok(*known);
        }
        let cosine = self.query.cosine(self.view, candidate)?;
        self.cache.borrow_mut().cosines.insert(at, cosine);
        Ok(cosine)
    }

    fn share(&self, candidate: &FusedCandidate) -> Result<Option<WordShare>> {
        self.query.share(self.view, self.engine.analyzer(), candidate, self.lists.reliability)
    }

    /// All fusions have the same candidates, so the first call computes the scores of all later calls.
    fn in_context(&self, candidates: &[FusedCandidate]) -> Result<Vec<ContextScore>> {
        let item = |candidate: &FusedCandidate| (candidate.version, candidate.turn);
        if self.cache.borrow().in_context.is_empty() {
            let scores =
                ContextScorer::new(self.engine, self.view, &self.query, &self.lists).scores(candidates)?;
            self.cache.borrow_mut().in_context = candidates.iter().map(item).zip(scores).collect();
        }
        let known = &self.cache.borrow().in_context;
        Ok(candidates
            .iter()
            .map(|candidate| known.get(&item(candidate)).copied().unwrap_or_default())
            .collect())
    }
}

impl Judge<'_> {
    fn quality(&self, fusion: &Fusion) -> Result<Quality> {
        let ranked = fuse(Mode::Hybrid, fusion, &self.lists, self, self.stretch)?;
        let mut named = Vec::with_capacity(ranked.len());
        for candidate in ranked {
            if self.query.itself == Some((candidate.dialogue, candidate.turn)) {
                continue;
            }
            if let Some(id) = self.id(candidate.dialogue)? {
                named.push((candidate.score, id, candidate.turn));
            }
        }
        named.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (&b.1, b.2).cmp(&(&a.1, a.2))));
        let hits = named.iter().take(DEPTH).map(|(_, id, turn)| {
            let name = match turn {
                Some(turn) => format!("{id}#{turn}"),
                None => id.to_string(),
            };
            self.relevant.contains(&name)
        });
        Ok(Quality::of(hits, self.relevant.len()))
    }

    fn id(&self, key: IdKey) -> Result<Option<DialogueId>> {
        if let Some(known) = self.cache.borrow().ids.get(&key) {
            return Ok(known.clone());
        }
        let id = self.view.record(key)?.map(|(_, dialogue)| dialogue.id);
        self.cache.borrow_mut().ids.insert(key, id.clone());
        Ok(id)
    }
}

impl Quality {
    /// Computes the quality of the ranking for one query. `hits` contains true for each relevant result and false for
    /// each other result, in rank order. `relevant` is the total number of relevant items.
    fn of(hits: impl Iterator<Item = bool>, relevant: usize) -> Self {
        let ranking = Ranking {
            // A ranking has at most `DEPTH` results, so further relevant items must not reduce the quality.
            given: vec![RELEVANT; relevant.min(DEPTH)],
            level: RELEVANT,
            ..Ranking::of_flags(hits)
        };
        Quality {
            map: ranking.average_precision(DEPTH),
            mrr: ranking.reciprocal_rank(),
            ndcg: ranking.ndcg(10),
        }
    }

    fn mean(all: &[Quality]) -> Self {
        let n = all.len().max(1) as f64;
        let sum = |of: &dyn Fn(&Quality) -> f64| all.iter().map(of).sum::<f64>() / n;
        Quality { map: sum(&|q| q.map), mrr: sum(&|q| q.mrr), ndcg: sum(&|q| q.ndcg) }
    }
}

const NAME: &str = "tuning.json";
const SCHEMA: &str = "turnwise/tuning/1";

/// Tuned search defaults of an index, stored in the file `tuning.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    schema: String,
    /// Fusion for requests that do not set a fusion.
    pub fusion: Fusion,
    /// Number of queries on which the fusion was tuned.
    pub queries: usize,
    /// Expected mean average precision, from 0 to 1 (see [`Tuned::expected`]).
    pub expected_map: f64,
    /// Time at which the fusion was tuned.
    pub at: Time,
}

impl Tuning {
    /// Creates tuned defaults from a tuning result. Returns `None` if no fusion is better than the current default (see
    /// [`Tuned::better`]).
    pub fn of(tuned: &Tuned) -> Option<Self> {
        let best = tuned.better()?;
        Some(Tuning {
            schema: SCHEMA.to_owned(),
            fusion: best.fusion,
            queries: tuned.queries,
            expected_map: tuned.expected.map,
            at: Time(jiff::Timestamp::now()),
        })
    }

    /// Reads the tuned defaults from an index folder. Returns `None` if the folder has no tuned defaults. Returns an
    /// error if the file is damaged.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        let path = root.join(NAME);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        let damaged = |what: String| {
            let hint = format!(
                "`turnwise search -i {} tune --reset` removes it, and `search tune FILE --save` creates it again",
                root.display()
            );
            Error::corrupt(&path, what).with_hint(hint)
        };
        let tuning: Tuning =
            serde_json::from_slice(&text).map_err(|e| damaged(format!("it is unreadable: {e}")))?;
        if tuning.schema != SCHEMA {
            return Err(damaged(format!("unknown schema `{}`", tuning.schema)));
        }
        tuning.fusion.check().map_err(|e| damaged(e.to_string()))?;
        Ok(Some(tuning))
    }

    /// Saves the tuned defaults in an index folder, atomically.
    pub fn save(&self, root: &Path) -> Result<()> {
        files::replace_json(&root.join(NAME), self)
    }

    /// Removes the tuned defaults from an index folder. Returns false if the folder has no tuned defaults.
    pub fn forget(root: &Path) -> Result<bool> {
        let path = root.join(NAME);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.at("remove", &path).map(|()| true),
        }
    }
}

impl Searcher {
    /// Returns the fusion of the request for a kind of hits. If the request sets none, returns the tuned fusion of the
    /// index, or else the built-in default.
    pub fn fusion(&self, request: &SearchRequest, kind: Kind) -> Fusion {
        let is_text = request.like.is_none() && request.dialogue.is_none();
        match (&request.fusion, &self.tuning) {
            (Some(options), _) => options.resolve(kind, is_text),
            (None, Some(tuning))
                if kind == Kind::Utterances || tuning.fusion.method != FusionMethod::Context =>
            {
                tuning.fusion
            }
            (None, _) => Fusion::built_in(kind, is_text),
        }
    }

    /// Returns the tuned defaults of the index; `None` if the index was not tuned.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_measures_follow_their_definitions() {
        // Relevant: the second and the fourth result, and one item that was not found.
        let q = Quality::of([false, true, false, true].into_iter(), 3);
        assert!((q.map - (0.5 + 0.5) / 3.0).abs() < 1e-12 && q.mrr == 0.5);
        let log = |n: f64| 1.0 / n.log2();
        assert!((q.ndcg - (log(3.0) + log(5.0)) / (log(2.0) + log(3.0) + log(4.0))).abs() < 1e-12);
        assert_eq!(Quality::of([].into_iter(), 2), Quality::default());
        let all = Quality::of([true, true].into_iter(), 2);
        assert_eq!((all.map, all.mrr, all.ndcg), (1.0, 1.0, 1.0));
    }
}
