//! Reranking of the best candidates: by the exact cosine, or by the vectors of single tokens.
//!
//! The token scores ([`maxsim`] and [`matching_guided`]) use contextual token vectors
//! ([`Encoder::encode_tokens`](turnwise_encoder::Encoder::encode_tokens)). They are based on cosines, so scores of
//! different texts are comparable. The score is 0 if a text has no tokens, or if the vectors have different
//! dimensions.

use super::{RankedScore, RerankMethod, SearchRequest, Searcher, fuse::FusedCandidate, query::Query};
use turnwise_core::{Error, Result, vectors::cosine};
use turnwise_encoder::{TextOptions, TokenVectors, Vectors};
use turnwise_index::{
    engine::{Candidate, Prefetch, View},
    vectors::Kind,
};
use turnwise_nearest::products;

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
            by => self.token_scores(view, by, request, best)?,
        };
        for (n, (candidate, score)) in best.iter_mut().zip(scores).enumerate() {
            candidate.before = Some(RankedScore { rank: n + 1, score: candidate.score });
            candidate.score = score;
        }
        best.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(())
    }

    fn token_scores(
        &self,
        view: &dyn View,
        by: RerankMethod,
        request: &SearchRequest,
        best: &[FusedCandidate],
    ) -> Result<Vec<f32>> {
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let context = request.context.iter().chain([&request.query]).map(String::as_str);
        let context = self.encoder()?.encode_tokens(&context.collect::<Vec<_>>(), &options)?;
        let found: Vec<Candidate> = best.iter().map(FusedCandidate::engine_candidate).collect();
        view.prefetch(Kind::Utterances, &found, Prefetch::Records)?;
        let texts = best.iter().map(|candidate| text_of(view, candidate)).collect::<Result<Vec<_>>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = self.encoder()?.encode_tokens(&texts, &options)?;
        let context: Vec<&TokenVectors> = context.iter().collect();
        let score = |candidate: &TokenVectors| match (by, context.last()) {
            (RerankMethod::Maxsim, Some(query)) => maxsim(query, candidate),
            _ => matching_guided(&context, candidate),
        };
        Ok(found.iter().map(score).collect())
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

fn text_of(view: &dyn View, candidate: &FusedCandidate) -> Result<String> {
    let dialogue = view.record(candidate.dialogue)?.map(|(_, dialogue)| dialogue);
    let turn = dialogue.and_then(|d| d.turns.into_iter().find(|t| Some(t.number) == candidate.turn));
    Ok(turn.map(|turn| turn.text).unwrap_or_default())
}

/// MaxSim: for each query token, the highest cosine with a document token, averaged over the query tokens.
pub fn maxsim(query: &TokenVectors, document: &TokenVectors) -> f32 {
    let (query, document) = (unit(&query.vectors), unit(&document.vectors));
    if query.is_empty() || document.is_empty() || query.dim() != document.dim() {
        return 0.0;
    }
    let mut cosines = Vec::new();
    products(query.flat(), document.flat(), query.dim(), &mut cosines);
    let highest = |of_one: &[f32]| of_one.iter().copied().fold(-1.0f32, f32::max);
    let sum: f64 = cosines.chunks_exact(document.len()).map(|of_one| f64::from(highest(of_one))).sum();
    (sum / query.len() as f64) as f32
}

/// DialogueCSE's matching-guided similarity of a response and its context turns.
///
/// The rows of `U` are the token vectors of a turn, and the rows of `R` are those of the response. `d` is their
/// dimension. The turn-aware response is `R̂ = U·Rᵀ/√d · R`. It has one row per token of the turn.
///
/// The score is the cosine of two vectors. The first is the mean of the rows of `R`. The second is the mean of the rows
/// of `R̂`, averaged over all turns. Turns without tokens are ignored.
///
/// The formula has no softmax, so the mean of `U` can be computed first: `mean(R̂) = (mean(U)·Rᵀ/√d)·R`. This avoids
/// the token-by-token matrix `U·Rᵀ`.
pub fn matching_guided(context: &[&TokenVectors], response: &TokenVectors) -> f32 {
    let response = &response.vectors;
    let dim = response.dim();
    let turns: Vec<Vec<f64>> = context
        .iter()
        .filter(|turn| !turn.vectors.is_empty() && turn.vectors.dim() == dim)
        .map(|turn| mean(&turn.vectors))
        .collect();
    if turns.is_empty() || response.is_empty() {
        return 0.0;
    }
    // For the same reason, the mean over turns can be computed first. A cosine ignores the scale, so 1/√d is omitted.
    let turn = (0..dim).map(|n| turns.iter().map(|turn| turn[n]).sum::<f64>() / turns.len() as f64);
    let turn: Vec<f64> = turn.collect();
    let mut guided = vec![0.0; dim];
    for row in response.rows() {
        let match_of = row.iter().zip(&turn).map(|(r, u)| f64::from(*r) * u).sum::<f64>();
        guided.iter_mut().zip(row).for_each(|(s, r)| *s += match_of * f64::from(*r));
    }
    // The values grow with the third power of the token norms. Scale them before the conversion to f32, which could
    // overflow.
    let largest = guided.iter().fold(0.0f64, |max, v| max.max(v.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let guided: Vec<f32> = guided.iter().map(|v| (v / largest) as f32).collect();
    let plain: Vec<f32> = mean(response).iter().map(|v| *v as f32).collect();
    cosine(&plain, &guided)
}

fn unit(vectors: &Vectors) -> Vectors {
    let mut vectors = vectors.clone();
    vectors.normalize();
    vectors
}

fn mean(vectors: &Vectors) -> Vec<f64> {
    let mut mean = vec![0.0; vectors.dim()];
    for row in vectors.rows() {
        mean.iter_mut().zip(row).for_each(|(m, v)| *m += f64::from(*v));
    }
    mean.iter_mut().for_each(|m| *m /= vectors.len() as f64);
    mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(rows: &[Vec<f32>]) -> TokenVectors {
        let mut vectors = Vectors::new(4);
        rows.iter().for_each(|row| vectors.push(row));
        TokenVectors { vectors, ..TokenVectors::default() }
    }

    fn naive_maxsim(query: &[Vec<f32>], document: &[Vec<f32>]) -> f32 {
        let best = |q: &Vec<f32>| document.iter().map(|d| cosine(q, d)).fold(f32::NEG_INFINITY, f32::max);
        query.iter().map(best).sum::<f32>() / query.len() as f32
    }

    /// Computes the formula of the DialogueCSE paper with the token-by-token matrix. Returns `None` if a mean is nearly
    /// 0, because the cosine is then only rounding error.
    fn naive_matching(context: &[Vec<Vec<f32>>], response: &[Vec<f32>]) -> Option<f32> {
        let d = 4;
        let mean = |rows: &[Vec<f64>]| -> Vec<f64> {
            (0..d).map(|n| rows.iter().map(|row| row[n]).sum::<f64>() / rows.len() as f64).collect()
        };
        let wide = |rows: &[Vec<f32>]| -> Vec<Vec<f64>> {
            rows.iter().map(|row| row.iter().map(|v| f64::from(*v)).collect()).collect()
        };
        let response = wide(response);
        let of_turns: Vec<Vec<f64>> = context
            .iter()
            .map(|turn| {
                let guided = wide(turn).into_iter().map(|u| {
                    let m: Vec<f64> = response
                        .iter()
                        .map(|r| u.iter().zip(r).map(|(u, r)| u * r).sum::<f64>() / (d as f64).sqrt())
                        .collect();
                    (0..d).map(|n| m.iter().zip(&response).map(|(m, r)| m * r[n]).sum()).collect()
                });
                mean(&guided.collect::<Vec<Vec<f64>>>())
            })
            .collect();
        let (a, b) = (mean(&response), mean(&of_turns));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let lengths = (dot(&a, &a) * dot(&b, &b)).sqrt();
        (lengths > 1e-9).then(|| (dot(&a, &b) / lengths) as f32)
    }

    fn matrix() -> impl Strategy<Value = Vec<Vec<f32>>> {
        proptest::collection::vec(
            proptest::collection::vec((-24i8..24).prop_map(|n| f32::from(n) / 8.0), 4),
            1..7,
        )
    }

    proptest! {
        #[test]
        fn maxsim_agrees_with_the_naive_version(query in matrix(), document in matrix()) {
            let found = maxsim(&tokens(&query), &tokens(&document));
            prop_assert!((found - naive_maxsim(&query, &document)).abs() < 1e-5);
        }

        #[test]
        fn matching_guided_agrees_with_the_naive_version(context in proptest::collection::vec(matrix(), 1..5), response in matrix()) {
            let turns: Vec<TokenVectors> = context.iter().map(|turn| tokens(turn)).collect();
            let found = matching_guided(&turns.iter().collect::<Vec<_>>(), &tokens(&response));
            // The naive version returns `None` if the result is only rounding error.
            if let Some(expected) = naive_matching(&context, &response) {
                prop_assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
            }
        }
    }

    #[test]
    fn maxsim_grows_with_similarity_and_ignores_token_order() {
        let (a, b) = (vec![1.0, 0.0, 0.0, 0.0], vec![0.0, 3.0, 0.0, 0.0]);
        let both = tokens(&[a.clone(), b.clone()]);
        assert!((maxsim(&both, &tokens(&[b.clone(), a.clone()])) - 1.0).abs() < 1e-6);
        assert!((maxsim(&both, &tokens(std::slice::from_ref(&a))) - 0.5).abs() < 1e-6);
        assert!(maxsim(&tokens(std::slice::from_ref(&a)), &tokens(&[vec![-1.0, 0.0, 0.0, 0.0]])) < -0.99);
        // Large token vectors do not overflow.
        let large = tokens(&[vec![3e12; 4], vec![1e12, -1e12, 2e12, 0.0]]);
        assert!((matching_guided(&[&large], &large)).is_finite());
    }

    #[test]
    fn empty_texts_score_zero() {
        let some = tokens(&[vec![1.0, 2.0, 3.0, 4.0]]);
        let (none, zeros) = (tokens(&[]), tokens(&[vec![0.0; 4]]));
        let nobody = TokenVectors::default();
        let narrow = TokenVectors { vectors: Vectors::zeros(2, 3), ..TokenVectors::default() };
        for other in [&none, &zeros, &nobody, &narrow] {
            for (a, b) in [(&some, other), (other, &some), (other, other)] {
                assert_eq!((maxsim(a, b), matching_guided(&[a], b)), (0.0, 0.0));
            }
        }
        assert_eq!(matching_guided(&[], &some), 0.0);
        // A turn without tokens has no effect.
        assert_eq!(matching_guided(&[&some, &none], &some), matching_guided(&[&some], &some));
    }
}
