//! Reranking of the best candidates: by the exact cosine, or with the vectors of single tokens.
//!
//! The token methods ([`maxsim`](super::maxsim) and [`matching_guided`]) find nuances that the vector of a whole text
//! loses, but they know neither the neighbors of a turn nor its speaker. They are therefore added to the score of the
//! search: alone, they would rank worse than the search. A selector reads the query and a candidate together, so its
//! score replaces the score of the search.

use std::collections::{BTreeMap, HashMap};

use super::{
    RankedScore, Rerank, RerankMethod, SearchRequest, Searcher,
    conversation::word_weight,
    fuse::FusedCandidate,
    query::Query,
    tokens::{content_tokens, highest_cosines, matching_guided, mean_of, text_tokens},
};
use turnwise_core::{Error, IdKey, Result, TurnNo};
use turnwise_encoder::{TextOptions, TokenVectors, Vectors};
use turnwise_index::{
    engine::{Candidate, Prefetch, Version, View},
    vectors::Kind,
};

impl Searcher {
    /// Reranks the best candidates if the request asks for reranking. Otherwise, does nothing.
    pub(super) fn rerank(
        &self,
        view: &dyn View,
        request: &SearchRequest,
        query: &Query,
        ranked: &mut [FusedCandidate],
    ) -> Result<()> {
        let Some(rerank) = &request.rerank else { return Ok(()) };
        // Rerank at least all shown hits, so that their scores are comparable.
        let top = rerank.top.max(request.offset + request.k).min(ranked.len());
        let best = &mut ranked[..top];
        let scores = match rerank.by {
            RerankMethod::Exact => cosine_scores(view, query, best)?,
            RerankMethod::Selector => self.selector_scores(view, request, query, best)?,
            _ => self.with_token_scores(view, rerank, request, query, best)?,
        };
        for (n, (candidate, score)) in best.iter_mut().zip(scores).enumerate() {
            candidate.before = Some(RankedScore { rank: n + 1, score: candidate.score });
            candidate.score = score;
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }

    /// Returns the scores of the candidates plus the weighted scores of the token method.
    fn with_token_scores(
        &self,
        view: &dyn View,
        rerank: &Rerank,
        request: &SearchRequest,
        query: &Query,
        best: &[FusedCandidate],
    ) -> Result<Vec<f32>> {
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let encoder = self.encoder()?;
        let turns = CandidateTurns::read(view, best)?;
        let texts: Vec<&str> = turns.texts.iter().map(String::as_str).collect();
        let encode = |texts: &[&str]| match rerank.by {
            RerankMethod::MaxsimStatic => encoder.embed_tokens(texts),
            _ => encoder.encode_tokens(texts, &options),
        };
        let found = encode(&texts)?;
        let scores = match rerank.by {
            RerankMethod::Matching => {
                let context = request.context.iter().chain([&request.query]).map(String::as_str);
                let context = encode(&context.collect::<Vec<_>>())?;
                let context: Vec<&TokenVectors> = context.iter().collect();
                found.iter().map(|candidate| matching_guided(&context, candidate)).collect()
            }
            _ => {
                let text = query.meaning.as_str();
                let tokens = encode(&[text])?;
                let tokens = content_tokens(&tokens[0], text, self.engine.analyzer());
                turns.maxsim(&tokens, &found, best)
            }
        };
        Ok(best
            .iter()
            .zip(scores)
            .map(|(candidate, score)| candidate.score + rerank.weight * score)
            .collect())
    }
}

impl Searcher {
    /// Returns the scores of the selector, which reads the context, the query and a candidate together.
    fn selector_scores(
        &self,
        view: &dyn View,
        request: &SearchRequest,
        query: &Query,
        best: &[FusedCandidate],
    ) -> Result<Vec<f32>> {
        let selector = self.selector()?;
        let turns = CandidateTurns::read(view, best)?;
        let context: Vec<&str> =
            request.context.iter().map(String::as_str).chain([query.meaning.as_str()]).collect();
        let texts: Vec<&str> = turns.texts.iter().map(String::as_str).collect();
        let outputs = selector.select(&context, &texts)?.outputs;
        Ok(outputs.into_iter().map(|output| selector.activation().apply(output)).collect())
    }
}

fn cosine_scores(view: &dyn View, query: &Query, best: &[FusedCandidate]) -> Result<Vec<f32>> {
    let vector = query.vector.as_ref().ok_or_else(|| {
        Error::input("reranking by `exact` requires a dense search, but this search is lexical")
            .with_hint("remove --mode bm25, or remove --rerank")
    })?;
    let unknown: Vec<Candidate> = best
        .iter()
        .filter(|candidate| candidate.cosine.is_none())
        .map(FusedCandidate::engine_candidate)
        .collect();
    view.prefetch(query.kind, &unknown, Prefetch::Vectors)?;
    let score = |candidate: &FusedCandidate| match candidate.cosine {
        Some(cosine) => Ok(cosine),
        None => Ok(view.cosine(query.kind, &candidate.engine_candidate(), vector)?.unwrap_or(f32::MIN)),
    };
    best.iter().map(score).collect()
}

/// The texts of candidates, and their places in their dialogues.
struct CandidateTurns {
    /// Text of each candidate; empty if the dialogue has been replaced meanwhile.
    texts: Vec<String>,
    /// Position of each candidate among the turns with text of its dialogue.
    places: Vec<Option<(Version, usize)>>,
}

impl CandidateTurns {
    fn read(view: &dyn View, candidates: &[FusedCandidate]) -> Result<Self> {
        let found: Vec<Candidate> = candidates.iter().map(FusedCandidate::engine_candidate).collect();
        view.prefetch(Kind::Utterances, &found, Prefetch::Records)?;
        let mut by_dialogue: BTreeMap<IdKey, Vec<usize>> = BTreeMap::new();
        for (n, candidate) in candidates.iter().enumerate() {
            by_dialogue.entry(candidate.dialogue).or_default().push(n);
        }
        let mut texts = vec![String::new(); candidates.len()];
        let mut places = vec![None; candidates.len()];
        for (dialogue, members) in by_dialogue {
            view.read_spoken(dialogue, &mut |version, dialogue| {
                let spoken = dialogue.turns.iter().filter(|turn| !turn.text.trim().is_empty());
                let at: HashMap<TurnNo, (usize, &str)> =
                    spoken.enumerate().map(|(n, turn)| (turn.number, (n, turn.text.as_ref()))).collect();
                for n in members.iter().copied().filter(|n| candidates[*n].version == version) {
                    if let Some((place, text)) = candidates[n].turn.and_then(|turn| at.get(&turn)) {
                        texts[n] = (*text).to_owned();
                        places[n] = Some((version, *place));
                    }
                }
                Ok(())
            })?;
        }
        Ok(CandidateTurns { texts, places })
    }

    /// Returns the MaxSim score of each candidate. If the candidates were scored in their conversation, a query token can
    /// also match a token of a neighbor, with the weight that words of the neighbor have. Only neighbors that are
    /// candidates themselves are encoded and considered.
    fn maxsim(&self, query: &Vectors, found: &[TokenVectors], candidates: &[FusedCandidate]) -> Vec<f32> {
        let cosines: Vec<Vec<f32>> =
            found.iter().map(|tokens| highest_cosines(query, &text_tokens(tokens))).collect();
        let known: HashMap<(Version, usize), &Vec<f32>> = self
            .places
            .iter()
            .zip(&cosines)
            .filter_map(|(place, cosines)| Some(((*place)?, cosines)))
            .collect();
        let score = |n: usize| {
            let mut best = cosines[n].clone();
            if let (Some((version, place)), true) = (self.places[n], candidates[n].context.is_some()) {
                for (distance, weight) in word_weight() {
                    let neighbor = place.checked_add_signed(distance).filter(|_| distance != 0);
                    let Some(cosines) = neighbor.and_then(|at| known.get(&(version, at))) else { continue };
                    best.iter_mut()
                        .zip(*cosines)
                        .for_each(|(best, cosine)| *best = best.max(weight * cosine));
                }
            }
            mean_of(&best)
        };
        (0..cosines.len()).map(score).collect()
    }
}
