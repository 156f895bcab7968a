//! Reranking of the best candidates: by the exact cosine, or by the vectors of single tokens.

use super::{
    Searcher,
    fuse::{FusedCandidate, Place},
    late::{matching_guided, maxsim},
    query::Query,
    request::{By, SearchRequest},
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{TextOptions, TokenVectors};
use turnwise_index::{
    engine::{Candidate, Prefetch, View},
    vectors::Kind,
};

impl Searcher {
    /// Reranks the best candidates, if the request asks for it.
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
            By::Exact => cosine_scores(view, query, best)?,
            By::Maxsim | By::Matching => self.token_scores(view, rerank.by, request, best)?,
        };
        for (n, (candidate, score)) in best.iter_mut().zip(scores).enumerate() {
            candidate.before = Some(Place { rank: n + 1, score: candidate.score });
            candidate.score = score;
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }

    fn token_scores(
        &self,
        view: &dyn View,
        by: By,
        request: &SearchRequest,
        best: &[FusedCandidate],
    ) -> Result<Vec<f32>> {
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let said: Vec<&str> =
            request.context.iter().map(String::as_str).chain([request.query.as_str()]).collect();
        let said = self.encoder()?.encode_tokens(&said, &options)?;
        let found: Vec<Candidate> = best.iter().map(FusedCandidate::engine_candidate).collect();
        view.prefetch(Kind::Utterances, &found, Prefetch::Records)?;
        let texts = best.iter().map(|candidate| text_of(view, candidate)).collect::<Result<Vec<_>>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = self.encoder()?.encode_tokens(&texts, &options)?;
        let context: Vec<&TokenVectors> = said.iter().collect();
        let score = |candidate: &TokenVectors| match (by, said.last()) {
            (By::Maxsim, Some(query)) => maxsim(query, candidate),
            _ => matching_guided(&context, candidate),
        };
        Ok(found.iter().map(score).collect())
    }
}

fn cosine_scores(view: &dyn View, query: &Query, best: &[FusedCandidate]) -> Result<Vec<f32>> {
    let Some(vector) = &query.vector else { return Err(needs_dense("exact")) };
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

fn text_of(view: &dyn View, candidate: &FusedCandidate) -> Result<String> {
    let dialogue = view.record(candidate.dialogue)?.map(|(_, dialogue)| dialogue);
    let turn = dialogue.and_then(|d| d.turns.into_iter().find(|t| Some(t.number) == candidate.turn));
    Ok(turn.map(|turn| turn.text).unwrap_or_default())
}

fn needs_dense(by: &str) -> Error {
    Error::Input {
        message: format!("reranking by `{by}` requires a dense search, but this search is lexical"),
        hint: Some("remove --mode bm25, or remove --rerank".to_owned()),
    }
}
