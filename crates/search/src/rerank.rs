//! Another order of the best: by the cosine of the vectors themselves, or by the vectors of single tokens.

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
    engine::{Ahead, Candidate, View},
    vectors::Kind,
};

impl Searcher {
    /// Brings the best into another order.
    pub(super) fn rerank(
        &self,
        view: &dyn View,
        request: &SearchRequest,
        query: &Query,
        ranked: &mut [FusedCandidate],
    ) -> Result<()> {
        let Some(rerank) = &request.rerank else { return Ok(()) };
        // What is shown is in one order and one measure.
        let top = rerank.top.max(request.offset + request.k).min(ranked.len());
        let best = &mut ranked[..top];
        let scores = match rerank.by {
            By::Exact => by_cosine(view, query, best)?,
            By::Maxsim | By::Matching => self.by_tokens(view, rerank.by, request, best)?,
        };
        for (n, (candidate, score)) in best.iter_mut().zip(scores).enumerate() {
            candidate.before = Some(Place { rank: n + 1, score: candidate.score });
            candidate.score = score;
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }

    fn by_tokens(
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
        let found: Vec<Candidate> = best.iter().map(FusedCandidate::found).collect();
        view.ahead(Kind::Utterances, &found, Ahead::Records)?;
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

fn by_cosine(view: &dyn View, query: &Query, best: &[FusedCandidate]) -> Result<Vec<f32>> {
    let Some(vector) = &query.vector else { return Err(needs_meaning("exact")) };
    let unknown: Vec<Candidate> =
        best.iter().filter(|candidate| candidate.cosine.is_none()).map(FusedCandidate::found).collect();
    view.ahead(query.kind, &unknown, Ahead::Vectors)?;
    let score = |candidate: &FusedCandidate| match candidate.cosine {
        Some(cosine) => Ok(cosine),
        None => Ok(view.cosine(query.kind, &candidate.found(), vector)?.unwrap_or(f32::MIN)),
    };
    best.iter().map(score).collect()
}

fn text_of(view: &dyn View, candidate: &FusedCandidate) -> Result<String> {
    let dialogue = view.record(candidate.dialogue)?.map(|(_, dialogue)| dialogue);
    let turn = dialogue.and_then(|d| d.turns.into_iter().find(|t| Some(t.number) == candidate.turn));
    Ok(turn.map(|turn| turn.text).unwrap_or_default())
}

fn needs_meaning(by: &str) -> Error {
    Error::Input {
        message: format!("ranking again by `{by}` goes by meaning, and the search goes by words alone"),
        hint: Some("leave out --mode bm25, or --rerank".to_owned()),
    }
}
