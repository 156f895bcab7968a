//! Fusion of the dense and the lexical candidate lists.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    EarlierScore, Fusion, FusionMethod, Mode, Stretch, WordShare, context::ContextScore, find::Lists,
    titles::TITLE_WEIGHT,
};
use turnwise_core::{IdKey, Result, TurnNo};
use turnwise_index::{
    engine::{Candidate, Version},
    vectors::Kind,
};

/// Rank and score of a hit in one result list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct RankedScore {
    /// Rank, starting at 1.
    pub rank: usize,
    /// Score in the list: a cosine, a BM25 score, or a fused score.
    pub score: f32,
}

/// A candidate from the dense list, the lexical list, or both. Its record is not read yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FusedCandidate {
    pub(super) dialogue: IdKey,
    pub(super) version: Version,
    pub(super) turn: Option<TurnNo>,
    pub(super) dense: Option<RankedScore>,
    pub(super) bm25: Option<RankedScore>,
    /// Rank and score of the title of a whole dialogue. `None` for an utterance.
    pub(super) title: Option<RankedScore>,
    /// Terms of the query that a whole dialogue or its title contains; see [`Candidate::terms`].
    pub(super) terms: Option<u64>,
    /// Share of the words of the query that a whole dialogue contains. `None` if it does not count.
    pub(super) share: Option<WordShare>,
    /// Whether the query names a speaker or a date of a whole dialogue.
    pub(super) named: Named,
    /// Cosine with the query. `None` if it has not been computed.
    pub(super) cosine: Option<f32>,
    /// Score that determines the rank.
    pub(super) score: f32,
    /// Scores in the conversation. `None` unless the fusion method is context.
    pub(super) context: Option<ContextScore>,
    /// Rank and score before reranking. `None` if the candidate was not reranked.
    pub(super) before: Option<RankedScore>,
}

impl FusedCandidate {
    /// Converts the fused candidate to a candidate of the engine.
    pub(super) fn engine_candidate(&self) -> Candidate {
        let FusedCandidate { dialogue, version, turn, score, .. } = *self;
        Candidate { dialogue, version, turn, score, terms: None }
    }

    fn bm25_with_title(&self) -> Option<f32> {
        bm25_with_title(self.bm25, self.title)
    }
}

/// Returns the BM25 score of a dialogue, including the weighted score of its title. `None` if neither is known.
pub(super) fn bm25_with_title(bm25: Option<RankedScore>, title: Option<RankedScore>) -> Option<f32> {
    let title = title.map(|ranked| TITLE_WEIGHT * ranked.score);
    bm25.map(|ranked| ranked.score).into_iter().chain(title).reduce(|a, b| a + b)
}

/// Computes the scores of candidates that are not in the candidate lists.
pub(super) trait CandidateScores {
    /// Returns the cosine of a candidate that is not in the dense list; `None` if the candidate has no vector.
    fn cosine(&self, candidate: &FusedCandidate) -> Result<Option<f32>>;

    /// Returns the share of the words of the query that a whole dialogue contains; `None` if it does not count.
    fn share(&self, candidate: &FusedCandidate) -> Result<Option<WordShare>>;

    /// Returns the scores of all candidates in their conversations, in the order of the candidates.
    fn in_context(&self, candidates: &[FusedCandidate]) -> Result<Vec<ContextScore>>;
}

/// Whether the query names a speaker or a date of a whole dialogue.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Named {
    pub(super) speaker: bool,
    pub(super) date: bool,
}

/// Fuses the candidate lists, and returns all candidates, best first. Candidates with equal scores are sorted later, by
/// id.
pub(super) fn fuse(
    mode: Mode,
    fusion: &Fusion,
    lists: &Lists,
    scores: &dyn CandidateScores,
    stretch: Stretch,
) -> Result<Vec<FusedCandidate>> {
    let mut found: HashMap<(Version, Option<TurnNo>), FusedCandidate> =
        HashMap::with_capacity(lists.dense.len() + lists.bm25.len());
    // With RRF, titles do not count. For utterances, they are part of the scores in the conversation.
    let rrf = mode == Mode::Hybrid && fusion.method == FusionMethod::Rrf;
    let titles = if rrf || lists.kind == Kind::Utterances { &[] } else { lists.titles.as_slice() };
    for (list, entries) in [&lists.dense, &lists.bm25, titles, &lists.following].into_iter().enumerate() {
        for (n, entry) in entries.iter().enumerate() {
            let candidate = found.entry((entry.version, entry.turn)).or_insert(FusedCandidate {
                dialogue: entry.dialogue,
                version: entry.version,
                turn: entry.turn,
                dense: None,
                bm25: None,
                title: None,
                terms: None,
                share: None,
                named: Named::default(),
                cosine: None,
                score: 0.0,
                context: None,
                before: None,
            });
            if let Some(terms) = entry.terms {
                candidate.terms = Some(candidate.terms.unwrap_or_default() | terms);
            }
            let ranked = Some(RankedScore { rank: n + 1, score: entry.score });
            match list {
                0 => (candidate.dense, candidate.cosine) = (ranked, Some(entry.score)),
                1 => candidate.bm25 = ranked,
                2 => candidate.title = ranked,
                _ => {}
            }
        }
    }
    let mut all: Vec<FusedCandidate> = found.into_values().collect();
    if lists.kind == Kind::Dialogues && mode == Mode::Hybrid && fusion.method == FusionMethod::Weighted {
        all.iter_mut().for_each(|candidate| candidate.named = lists.named.of(candidate.version));
    }
    // Candidates in one dialogue follow each other, so that the dialogue is read only once.
    all.sort_unstable_by_key(|candidate| (candidate.version, candidate.turn));
    if mode == Mode::Hybrid {
        match fusion.method {
            FusionMethod::Context => {
                let context = scores.in_context(&all)?;
                all.iter_mut()
                    .zip(context)
                    .for_each(|(candidate, context)| candidate.context = Some(context));
            }
            // If only the lexical search has found a candidate, its cosine is not known yet.
            FusionMethod::Weighted => {
                for candidate in all.iter_mut().filter(|candidate| candidate.cosine.is_none()) {
                    candidate.cosine = scores.cosine(candidate)?;
                }
                let is_found = |candidate: &&mut FusedCandidate| candidate.bm25_with_title().is_some();
                for candidate in all.iter_mut().filter(is_found) {
                    candidate.share = scores.share(candidate)?;
                }
            }
            FusionMethod::Rrf => {}
        }
    }
    for candidate in &mut all {
        candidate.score = match mode {
            Mode::Dense => candidate.dense.map_or(f32::MIN, |ranked| ranked.score),
            Mode::Bm25 => candidate.bm25_with_title().unwrap_or(f32::MIN),
            Mode::Hybrid => Parts::of(fusion, candidate, stretch).sum(),
        };
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.version, a.turn).cmp(&(b.version, b.turn))));
    Ok(all)
}

/// Contributions to a fused score. `None` for a part that does not contribute.
pub(super) struct Parts {
    pub(super) dense: Option<f32>,
    pub(super) bm25: Option<f32>,
    pub(super) speaker: Option<f32>,
    pub(super) date: Option<f32>,
    pub(super) earlier: Option<f32>,
}

impl Parts {
    pub(super) fn of(fusion: &Fusion, candidate: &FusedCandidate, stretch: Stretch) -> Self {
        let rank = |ranked: RankedScore| 1.0 / (fusion.k + ranked.rank as f32);
        let context = candidate.context.unwrap_or_default();
        let stretched = |cosine: Option<f32>| cosine.map(|cosine| stretch.apply(cosine));
        let (dense, bm25) = match fusion.method {
            FusionMethod::Context => {
                let bm25 = scaled(context.bm25, context.half_score) * context.coverage.factor;
                let bm25 = Some(bm25).filter(|part| *part > 0.0);
                (stretched(context.cosine), bm25)
            }
            FusionMethod::Rrf => (candidate.dense.map(rank), candidate.bm25.map(rank)),
            FusionMethod::Weighted => {
                let factor = candidate.share.map_or(1.0, |share| share.factor);
                let bm25 = candidate.bm25_with_title().map(|score| factor * scaled(score, BM25_HALF_SCORE));
                (stretched(candidate.cosine), bm25)
            }
        };
        let named = [context.speaker, context.participant, candidate.named.speaker];
        let named = named.into_iter().filter(|named| *named).count();
        let earlier = |score: EarlierScore| {
            let words = scaled(score.bm25, EARLIER_HALF_SCORE);
            score.weight * (fusion.dense * stretch.apply(score.cosine) + fusion.bm25 * words)
        };
        Parts {
            dense: dense.map(|part| fusion.dense * part),
            bm25: bm25.map(|part| fusion.bm25 * part),
            speaker: (named > 0).then_some(named as f32 * fusion.speaker),
            date: (context.date.is_some() || candidate.named.date).then_some(fusion.date),
            earlier: context.earlier.map(earlier),
        }
    }

    pub(super) fn sum(&self) -> f32 {
        [self.dense, self.bm25, self.speaker, self.date, self.earlier].into_iter().flatten().sum()
    }
}

impl Fusion {
    /// Returns the fused score that weighted fusion computes from a cosine and a BM25 score. Pass 0 as the BM25 score
    /// if no words match.
    pub fn weighted(&self, cosine: f32, bm25: f32) -> f32 {
        self.dense * cosine + self.bm25 * scaled(bm25, BM25_HALF_SCORE)
    }
}

fn scaled(bm25: f32, half_score: f32) -> f32 {
    bm25 / (bm25 + half_score)
}

/// BM25 score that is mapped to 0.5 when the unbounded BM25 scores are scaled to the range from 0 to 1.
pub const BM25_HALF_SCORE: f32 = 10.0;

/// The same for the BM25 score of an utterance with its neighbors, which is higher.
pub(super) const CONTEXT_HALF_SCORE: f32 = 20.0;

/// The same for each word of a query of one or two words without a context.
pub(super) const HALF_SCORE_PER_WORD: f32 = 8.0;

/// The same for the words in the turns before the query. Several turns have more words.
pub const EARLIER_HALF_SCORE: f32 = 60.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same cosine for each candidate, and no context.
    struct Constant(Option<f32>);

    impl CandidateScores for Constant {
        fn cosine(&self, _: &FusedCandidate) -> Result<Option<f32>> {
            Ok(self.0)
        }

        fn share(&self, _: &FusedCandidate) -> Result<Option<WordShare>> {
            Ok(None)
        }

        fn in_context(&self, _: &[FusedCandidate]) -> Result<Vec<ContextScore>> {
            unreachable!()
        }
    }

    fn list(scores: &[(u64, f32)]) -> Vec<Candidate> {
        let entry = |(seq, score): &(u64, f32)| Candidate {
            dialogue: IdKey::default(),
            version: Version(*seq),
            turn: None,
            score: *score,
            terms: None,
        };
        scores.iter().map(entry).collect()
    }

    fn lists(dense: &[Candidate], bm25: &[Candidate]) -> Lists {
        let mut lists = Lists::new(Kind::Dialogues);
        (lists.dense, lists.bm25) = (dense.to_vec(), bm25.to_vec());
        lists
    }

    #[test]
    fn reciprocal_rank_fusion_follows_the_formula() {
        let (dense, bm25) = (list(&[(1, 0.9), (2, 0.8)]), list(&[(2, 7.0), (3, 5.0)]));
        let rrf = Fusion { method: FusionMethod::Rrf, bm25: 1.0, ..Fusion::default() };
        let fused =
            fuse(Mode::Hybrid, &rrf, &lists(&dense, &bm25), &Constant(None), Stretch::default()).unwrap();
        assert_eq!(fused.iter().map(|c| c.version.0).collect::<Vec<_>>(), [2, 1, 3]);
        assert_eq!(fused[0].score, 1.0 / 62.0 + 1.0 / 61.0);
        assert_eq!((fused[1].score, fused[2].score), (1.0 / 61.0, 1.0 / 62.0));
        let weights = Fusion { dense: 3.0, k: 1.0, ..rrf };
        let fused =
            fuse(Mode::Hybrid, &weights, &lists(&dense, &bm25), &Constant(None), Stretch::default()).unwrap();
        assert_eq!(fused[1].score, 3.0 / 2.0);
    }

    #[test]
    fn weighted_fusion_sums_the_cosine_and_the_scaled_bm25_score() {
        let (dense, bm25) = (list(&[(1, 0.9), (2, 0.8), (4, 0.7)]), list(&[(2, 10.0), (3, 5.0)]));
        let fusion = Fusion { method: FusionMethod::Weighted, dense: 0.5, bm25: 2.0, ..Fusion::default() };
        let fused =
            fuse(Mode::Hybrid, &fusion, &lists(&dense, &bm25), &Constant(Some(0.3)), Stretch::default())
                .unwrap();
        let of = |seq| fused.iter().find(|c| c.version.0 == seq).unwrap().score;
        assert!((of(2) - (0.4 + 1.0)).abs() < 1e-6 && (of(1) - 0.45).abs() < 1e-6);
        // The cosine is also computed for a candidate that only the lexical search has found.
        assert!((of(3) - (0.15 + 2.0 / 3.0)).abs() < 1e-6 && (of(4) - 0.35).abs() < 1e-6);
    }

    #[test]
    fn cosines_are_stretched_by_all_methods_that_use_them() {
        let candidate = FusedCandidate {
            dialogue: IdKey::default(),
            version: Version(1),
            turn: None,
            dense: Some(RankedScore { rank: 1, score: 0.9 }),
            bm25: None,
            title: None,
            terms: None,
            share: None,
            named: Named::default(),
            cosine: Some(0.9),
            score: 0.0,
            context: Some(ContextScore {
                cosine: Some(0.9),
                earlier: Some(EarlierScore { weight: 2.0, cosine: 0.9, bm25: 0.0 }),
                ..ContextScore::default()
            }),
            before: None,
        };
        let stretch = Stretch { center: 0.8, factor: 4.0 };
        let parts = |method| Parts::of(&Fusion::of(method), &candidate, stretch);
        let near = |part: Option<f32>, expected: f32| (part.unwrap() - expected).abs() < 1e-5;
        let context = parts(FusionMethod::Context);
        assert!(near(context.dense, 1.2) && near(context.earlier, 2.4));
        assert!(near(parts(FusionMethod::Weighted).dense, 1.2));
        assert!(near(parts(FusionMethod::Rrf).dense, 1.0 / 61.0));
    }

    proptest! {
        #[test]
        fn one_list_alone_keeps_its_order(scores in proptest::collection::vec(-5.0f32..5.0, 1..40), rrf: bool) {
            let mut scores = scores;
            scores.sort_by(|a, b| b.total_cmp(a));
            scores.dedup();
            let entries: Vec<(u64, f32)> = scores.iter().enumerate().map(|(n, s)| (n as u64, *s)).collect();
            let method = if rrf { FusionMethod::Rrf } else { FusionMethod::Weighted };
            let fusion = Fusion { method, ..Fusion::default() };
            for mode in [Mode::Hybrid, Mode::Dense] {
                let fused = fuse(mode, &fusion, &lists(&list(&entries), &[]), &Constant(None), Stretch::default()).unwrap();
                let order: Vec<u64> = fused.iter().map(|c| c.version.0).collect();
                prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
            }
        }
    }
}
