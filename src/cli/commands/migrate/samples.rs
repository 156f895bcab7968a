//! The same searches at both places. What was moved must be found by its own vector; how alike the lists are is told.

use std::collections::HashSet;

use serde::Serialize;

use turnwise_core::{
    error::Result,
    ids::{IdKey, TurnNo},
};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_index::{
    engine::{Engine, List},
    vectors::Kind,
};
use turnwise_store::Snapshot;

/// So many hits are compared.
const HITS: usize = 10;
/// What is found by its own vector is as near as this, whatever the numbers lost on the way through a graph.
const ITSELF: f32 = 0.999;

/// How the searches went.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sampled {
    /// How many turns were looked for.
    pub(super) searches: usize,
    /// What part of the hits by meaning both places have, or others that are as near.
    pub(super) by_meaning: Option<f64>,
    /// The same of hits by words. Where a server counts words by corpus, other hits are as good.
    pub(super) by_words: Option<f64>,
    /// What was not found by its own vector.
    pub(super) lost: Vec<String>,
}

/// Looks for some turns of an index in two engines.
pub(super) fn compare(
    snapshot: &Snapshot,
    samples: usize,
    from: &dyn Engine,
    to: &dyn Engine,
) -> Result<Sampled> {
    let mut sampled = Sampled::default();
    let (mut meaning, mut words) = (Vec::new(), Vec::new());
    for dialogue in chosen(snapshot, samples)? {
        // The longest one says most, so that few others are equally good.
        let Some(turn) = dialogue.turns.iter().max_by_key(|turn| turn.text.len()) else { continue };
        sampled.searches += 1;
        if let Some(alike) = by_meaning(&dialogue, turn, from, to, &mut sampled.lost)? {
            meaning.push(alike);
        }
        if from.has_words().is_ok() && to.has_words().is_ok() {
            let found = |engine: &dyn Engine| {
                engine.view().by_words(Kind::Utterances, &engine.words(&turn.text), HITS)
            };
            words.push(in_common(&found(from)?, &found(to)?));
        }
    }
    let mean = |parts: &[f64]| match parts.is_empty() {
        true => None,
        false => Some(parts.iter().sum::<f64>() / parts.len() as f64),
    };
    (sampled.by_meaning, sampled.by_words) = (mean(&meaning), mean(&words));
    Ok(sampled)
}

/// Dialogues from everywhere in an index, always the same.
fn chosen(snapshot: &Snapshot, samples: usize) -> Result<Vec<Dialogue>> {
    let total = snapshot.totals().dialogues;
    let step = (total / samples.max(1) as u64).max(1) as usize;
    snapshot.dialogues().step_by(step).take(samples).collect()
}

fn by_meaning(
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
    if found.found.first().is_none_or(|best| best.score < ITSELF) {
        lost.push(format!("{}#{}", dialogue.id, turn.number));
    }
    let Some(last) = expected.found.last() else { return Ok(None) };
    let as_near = found.found.iter().filter(|hit| hit.score >= last.score - 1e-4).count();
    Ok(Some(as_near.min(expected.found.len()) as f64 / expected.found.len() as f64))
}

/// What part of one list is in the other.
fn in_common(expected: &List, found: &List) -> f64 {
    let places = |list: &List| -> HashSet<(IdKey, Option<TurnNo>)> {
        list.found.iter().map(|hit| (hit.dialogue, hit.turn)).collect()
    };
    let (expected, found) = (places(expected), places(found));
    match expected.len() {
        0 => 1.0,
        n => expected.intersection(&found).count() as f64 / n as f64,
    }
}
