//! Reliability of the vectors of an index, measured without labels.
//!
//! A turn and the next turn of the same dialogue are usually about the same thing. If the vectors hardly tell such a pair
//! from two turns of different dialogues, the encoder does not understand the texts, for example because they are in
//! another language than its training data. Hybrid search then gives the vectors a lower weight.
//!
//! The measure is the AUC: the probability that a random pair of adjacent turns has a higher cosine than a random pair
//! of turns of different dialogues. With encoders that know the language, it is between 0.65 and 0.89
//! (`benchmarks/README.md`). It is computed for each group of scripts: an index can hold dialogues in several languages.

use std::{collections::BTreeMap, sync::OnceLock};

use super::Searcher;
use turnwise_core::{Result, script::Script, vectors::cosine};
use turnwise_corpus::{Dialogue, SpokenTurn, Turn};
use turnwise_index::{
    engine::{Candidate, Prefetch, Version},
    vectors::Kind,
};

/// Number of dialogues that are read.
const DIALOGUES: usize = 256;

/// Maximum number of pairs of adjacent turns in one dialogue.
const PAIRS: usize = 8;

/// Minimum number of pairs in a script. With fewer pairs, the vectors keep their full weight.
const MIN_PAIRS: usize = 100;

/// AUC at which the weight would be 0, and AUC from which the vectors have their full weight.
const USELESS_AUC: f64 = 0.57;
const GOOD_AUC: f64 = 0.65;

/// Minimum factor of the weight. With a factor of 0, candidates without words of the query would not be ordered.
const MIN_FACTOR: f32 = 0.1;

/// Factors of the weight of dense search. Scripts with the factor 1 are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Reliability(BTreeMap<Script, f32>);

/// The vectors of a turn and of the next turn.
type Pair = [Vec<f32>; 2];

impl Reliability {
    /// Returns the factor for a query. A query without letters has the factor 1.
    fn factor(&self, query: &str) -> f32 {
        Script::of(query).and_then(|script| self.0.get(&script)).copied().unwrap_or(1.0)
    }

    fn of_pairs(pairs: BTreeMap<Script, Vec<Pair>>) -> Self {
        let factors = pairs.into_iter().filter(|(_, pairs)| pairs.len() >= MIN_PAIRS);
        let factors = factors.map(|(script, pairs)| (script, factor_of(auc(&pairs))));
        Reliability(factors.filter(|(_, factor)| *factor < 1.0).collect())
    }
}

/// Returns the factor for an AUC, with two decimal places.
fn factor_of(auc: f64) -> f32 {
    let factor = ((auc - USELESS_AUC) / (GOOD_AUC - USELESS_AUC)) as f32;
    ((100.0 * factor).round() / 100.0).clamp(MIN_FACTOR, 1.0)
}

/// Returns the probability that a pair has a higher cosine than the first turn of a pair and the second turn of another
/// pair. Equal cosines count half.
fn auc(pairs: &[Pair]) -> f64 {
    // The pairs of one dialogue follow each other, so the other pair is far away.
    let far = pairs.len() / 2;
    let cosines = |distance: usize| -> Vec<f32> {
        let mut cosines: Vec<f32> =
            (0..pairs.len()).map(|n| cosine(&pairs[n][0], &pairs[(n + distance) % pairs.len()][1])).collect();
        cosines.sort_unstable_by(f32::total_cmp);
        cosines
    };
    let (adjacent, random) = (cosines(0), cosines(far));
    let wins = adjacent.iter().map(|cosine| {
        let lower = random.partition_point(|other| other < cosine);
        let not_higher = random.partition_point(|other| other <= cosine);
        (lower + not_higher) as f64 / 2.0
    });
    wins.sum::<f64>() / (pairs.len() * pairs.len()).max(1) as f64
}

impl Searcher {
    /// Returns the factor of the weight of dense search for a query text. If a dialogue of the sample is damaged, the
    /// factor is 1: a search that does not need this dialogue must not fail.
    pub(super) fn dense_factor(&self, query: &str) -> f32 {
        self.reliability.get_or_init(|| self.measure_reliability().unwrap_or_default()).factor(query)
    }

    fn measure_reliability(&self) -> Result<Reliability> {
        let view = self.engine.view();
        let sample = view.sample(DIALOGUES)?;
        let chosen: Vec<_> = sample.iter().flat_map(adjacent_turns).collect();
        let candidate = |(version, dialogue): &(Version, Dialogue), turn: &Turn| Candidate {
            dialogue: dialogue.id.key(),
            version: *version,
            turn: Some(turn.number),
            score: 0.0,
            terms: None,
        };
        let needed: Vec<_> =
            chosen.iter().flat_map(|(of, _, two)| two.map(|turn| candidate(of, turn))).collect();
        view.prefetch(Kind::Utterances, &needed, Prefetch::Vectors)?;
        let mut pairs: BTreeMap<Script, Vec<Pair>> = BTreeMap::new();
        for ((_, dialogue), script, two) in chosen {
            let vector = |turn: &Turn| view.turn_vector(dialogue.id.key(), &SpokenTurn::of(dialogue, turn));
            if let (Some(first), Some(second)) = (vector(two[0])?, vector(two[1])?) {
                pairs.entry(script).or_default().push([first.into_owned(), second.into_owned()]);
            }
        }
        Ok(Reliability::of_pairs(pairs))
    }
}

/// Returns at most [`PAIRS`] pairs of adjacent turns of a dialogue that have different texts in the same script, with the
/// dialogue and the script.
fn adjacent_turns(
    of: &(Version, Dialogue),
) -> impl Iterator<Item = (&(Version, Dialogue), Script, [&Turn; 2])> {
    let turns: Vec<&Turn> = of.1.turns.iter().filter(|turn| !turn.text.trim().is_empty()).collect();
    let step = turns.len().saturating_sub(1).div_ceil(PAIRS).max(1);
    let pairs: Vec<[&Turn; 2]> = turns.windows(2).step_by(step).map(|two| [two[0], two[1]]).collect();
    pairs.into_iter().filter_map(move |two| {
        let [first, second] = two.map(|turn| Script::of(&turn.text));
        let script = first.filter(|_| first == second && two[0].text != two[1].text)?;
        Some((of, script, two))
    })
}

/// Reliability that is measured at the first use.
pub(super) type Measured = OnceLock<Reliability>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pairs of vectors in the plane, given by their angles.
    fn pairs(angles: &[[f32; 2]]) -> Vec<Pair> {
        let vector = |angle: f32| vec![angle.cos(), angle.sin()];
        angles.iter().map(|[a, b]| [vector(*a), vector(*b)]).collect()
    }

    #[test]
    fn adjacent_turns_that_are_alike_are_reliable() {
        let alike: Vec<[f32; 2]> = (0..200).map(|n| [n as f32 * 0.7, n as f32 * 0.7 + 0.01]).collect();
        assert!(auc(&pairs(&alike)) > 0.95);
        let chance: Vec<[f32; 2]> = (0..2_000u32).map(|n| [n as f32 * 0.7, (n * n % 1_009) as f32]).collect();
        assert!((auc(&pairs(&chance)) - 0.5).abs() < 0.05);
        assert_eq!(auc(&pairs(&[[1.0, 1.0]; 7])), 0.5);
        assert_eq!(auc(&[]), 0.0);
        let of = |script, angles: &[[f32; 2]]| (script, pairs(angles));
        let both =
            [of(Script::Latin, &alike), of(Script::Unspaced, &chance), of(Script::Other, &chance[..99])];
        let reliability = Reliability::of_pairs(both.into());
        assert_eq!(reliability.factor("退款申请"), MIN_FACTOR);
        // Latin is reliable, and there are too few pairs of another script.
        assert!(["refund", "возврат", "12"].iter().all(|query| reliability.factor(query) == 1.0));
        assert!((factor_of(0.61) - 0.5).abs() < 1e-6 && factor_of(0.7) == 1.0);
    }

    proptest! {
        #[test]
        fn the_auc_agrees_with_counting_all_pairs(angles in proptest::collection::vec([0i8..20, 0i8..20], 1..40)) {
            let angles: Vec<[f32; 2]> = angles.iter().map(|two| two.map(f32::from)).collect();
            let all = pairs(&angles);
            let (n, far) = (all.len(), all.len() / 2);
            let mut wins = 0.0;
            for a in 0..n {
                for b in 0..n {
                    let (own, other) = (cosine(&all[a][0], &all[a][1]), cosine(&all[b][0], &all[(b + far) % n][1]));
                    wins += if own > other { 1.0 } else if own == other { 0.5 } else { 0.0 };
                }
            }
            prop_assert!((auc(&all) - wins / (n * n) as f64).abs() < 1e-9);
        }
    }
}
