//! The utterances nearest to a vector, by looking at all of them: exact, and the measure of anything faster.

use std::collections::HashMap;

use super::{Kind, VectorReader, utterance_key};
use crate::{
    encoder::vectors::cosine,
    error::Result,
    ids::{IdKey, UtteranceId},
    store::Snapshot,
};

/// The `k` utterances of a snapshot whose vectors have the greatest cosine with `query`, the best first. A text that
/// is said more than once counts once, with the dialogue in which it comes first.
pub fn nearest(
    reader: &VectorReader,
    snapshot: &Snapshot,
    query: &[f32],
    k: usize,
) -> Result<Vec<(f32, UtteranceId)>> {
    let mut first: HashMap<IdKey, UtteranceId> = HashMap::new();
    for dialogue in snapshot.dialogues() {
        let dialogue = dialogue?;
        for turn in &dialogue.turns {
            first
                .entry(utterance_key(&turn.text))
                .or_insert_with(|| UtteranceId { dialogue: dialogue.id.clone(), turn: turn.number });
        }
    }
    let mut hits = Vec::with_capacity(first.len());
    for (key, id) in first {
        if let Some(vector) = reader.get(Kind::Utterances, &key)? {
            hits.push((cosine(query, vector), id));
        }
    }
    // Equal scores in one order, whatever the order of the map.
    hits.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    hits.truncate(k);
    Ok(hits)
}
