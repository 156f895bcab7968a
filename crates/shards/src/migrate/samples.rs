//! Compares searches in the original with the same searches in the copy. Computes the share of hits in common. Also
//! lists sampled turns that a search with their own vector does not find.

use std::collections::HashSet;

use serde::Serialize;

use turnwise_core::{
    error::Result,
    ids::{IdKey, TurnNo},
};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_index::{
    engine::{Engine, HitList},
    vectors::Kind,
};
use turnwise_store::Snapshot;

/// Number of hits compared per search.
const HITS: usize = 10;
/// A search with a turn's own vector counts as successful if its best hit has at least this score. The value is less
/// than 1, because graphs store vectors with reduced precision.
const SELF_SCORE: f32 = 0.999;

/// Result of comparing searches in the original and in the copy.
#[derive(Debug, Default, Serialize)]
pub struct Sampled {
    /// Number of sampled turns for which searches were compared.
    pub searches: usize,
    /// Share of dense hits that the original and the copy have in common, from 0 to 1; `None` without vectors. Hits
    /// with equal scores count as the same.
    #[serde(rename = "by_meaning")]
    pub dense: Option<f64>,
    /// Share of lexical hits that the original and the copy have in common, from 0 to 1. The hits may differ, because
    /// engines compute term statistics differently.
    #[serde(rename = "by_words")]
    pub lexical: Option<f64>,
    /// Ids of the sampled turns that a search with their own vector did not find.
    pub lost: Vec<String>,
}

/// Searches for sampled turns of an index in the engines `from` and `to`, and compares the hits.
pub(crate) fn compare(
    snapshot: &Snapshot,
    samples: usize,
    from: &dyn Engine,
    to: &dyn Engine,
) -> Result<Sampled> {
    let mut sampled = Sampled::default();
    let (mut dense, mut lexical) = (Vec::new(), Vec::new());
    for dialogue in sample(snapshot, samples)? {
        // The longest turn is the most specific, so ties are unlikely.
        let Some(turn) = dialogue.turns.iter().max_by_key(|turn| turn.text.len()) else { continue };
        sampled.searches += 1;
        if let Some(alike) = dense_overlap(&dialogue, turn, from, to, &mut sampled.lost)? {
            dense.push(alike);
        }
        if from.check_lexical().is_ok() && to.check_lexical().is_ok() {
            let found = |engine: &dyn Engine| {
                engine.view().keyword_search(Kind::Utterances, &engine.keyword_query(&turn.text), HITS)
            };
            lexical.push(overlap(&found(from)?, &found(to)?));
        }
    }
    let mean = |parts: &[f64]| (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64);
    (sampled.dense, sampled.lexical) = (mean(&dense), mean(&lexical));
    Ok(sampled)
}

/// Returns at most `samples` dialogues, evenly spread over the whole index. The sample is the same in each call.
fn sample(snapshot: &Snapshot, samples: usize) -> Result<Vec<Dialogue>> {
    let total = snapshot.totals().dialogues;
    let step = (total / samples.max(1) as u64).max(1) as usize;
    snapshot.dialogues().step_by(step).take(samples).collect()
}

/// Searches with the vector of a turn in both engines. Returns the share of the hits of `from` that `to` found, or
/// `None` if there is nothing to compare, for example if the turn has no vector. Adds the turn to `lost` if no hit of
/// `to` has nearly the same vector.
fn dense_overlap(
    dialogue: &Dialogue,
    turn: &Turn,
    from: &dyn Engine,
    to: &dyn Engine,
    lost: &mut Vec<String>,
) -> Result<Option<f64>> {
    if from.recipe().is_none() || to.recipe().is_none() {
        return Ok(None);
    }
    let (here, there) = (from.view(), to.view());
    let Some(vector) = here.vector(dialogue, Some(turn))? else { return Ok(None) };
    if vector.iter().all(|v| *v == 0.0) {
        return Ok(None);
    }
    let expected = here.nearest(Kind::Utterances, &vector, HITS, false)?;
    let found = there.nearest(Kind::Utterances, &vector, HITS, false)?;
    if found.found.first().is_none_or(|best| best.score < SELF_SCORE) {
        lost.push(format!("{}#{}", dialogue.id, turn.number));
    }
    let Some(last) = expected.found.last() else { return Ok(None) };
    let as_near = found.found.iter().filter(|hit| hit.score >= last.score - 1e-4).count();
    Ok(Some(as_near.min(expected.found.len()) as f64 / expected.found.len() as f64))
}

/// Returns the share of the expected hits that were found; 1 if no hits were expected.
fn overlap(expected: &HitList, found: &HitList) -> f64 {
    let positions = |list: &HitList| -> HashSet<(IdKey, Option<TurnNo>)> {
        list.found.iter().map(|hit| (hit.dialogue, hit.turn)).collect()
    };
    let (expected, found) = (positions(expected), positions(found));
    match expected.len() {
        0 => 1.0,
        n => expected.intersection(&found).count() as f64 / n as f64,
    }
}
