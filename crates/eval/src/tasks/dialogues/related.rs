//! Semantic relatedness: correlation between scores and shared domains.

use rayon::prelude::*;

use super::{Columns, DRAWS, DialogueTask, Profile, Value};
use crate::{
    rank::{Scorer, ensure_finite},
    significance::mean_and_deviation,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_measures::correlation::spearman;

/// Pair of dialogues with its score; `same` is true if both have the same domain.
struct Pair {
    a: usize,
    b: usize,
    same: bool,
    score: f64,
}

/// Computes the correlation. With `keep`, also returns the pairs if they were drawn at random.
pub(super) fn relatedness(
    task: &DialogueTask,
    scorer: &dyn Scorer,
    keep: bool,
) -> Result<(Value, Option<Columns>)> {
    let drawn = match task.profile {
        Profile::Paper => {
            Some((0..DRAWS as u64).map(|draw| pairs(task, scorer, draw)).collect::<Result<Vec<_>>>()?)
        }
        Profile::Code => None,
    };
    let each: Vec<f64> = match &drawn {
        Some(drawn) => drawn.iter().map(|pairs| correlation(pairs)).collect(),
        None => (0..task.labels.len())
            .into_par_iter()
            .map(|a| Ok(correlation(&with_all(task, scorer, a)?)))
            .collect::<Result<Vec<f64>>>()?,
    };
    let (value, deviation) = mean_and_deviation(&each);
    let value = Value {
        measure: "Spearman".to_owned(),
        value,
        deviation: drawn.is_some().then_some(deviation),
        floor: Some(0.0),
        each,
    };
    Ok((value, drawn.filter(|_| keep).map(|drawn| columns(task, &drawn))))
}

/// Protocol of the paper: each dialogue with one random other dialogue.
fn pairs(task: &DialogueTask, scorer: &dyn Scorer, draw: u64) -> Result<Vec<Pair>> {
    let n = task.labels.len();
    let mut random = Random::new(task.seed, draw);
    let mut one = Vec::new();
    let pair = |a: usize| {
        // Any dialogue except itself.
        let b = (a + 1 + random.below(n - 1)) % n;
        scorer.scores(a, &[b as u32], &mut one)?;
        ensure_finite("the ranker", &task.retrieval.documents[a], &one)?;
        Ok(Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(one[0]) })
    };
    (0..n).map(pair).collect()
}

/// Protocol of the released code: one dialogue with all others.
fn with_all(task: &DialogueTask, scorer: &dyn Scorer, a: usize) -> Result<Vec<Pair>> {
    let others: Vec<u32> = (0..task.labels.len() as u32).filter(|b| *b != a as u32).collect();
    let mut scores = Vec::new();
    scorer.scores(a, &others, &mut scores)?;
    ensure_finite("the ranker", &task.retrieval.documents[a], &scores)?;
    let pair = |(b, score): (&u32, &f32)| {
        let b = *b as usize;
        Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(*score) }
    };
    Ok(others.iter().zip(&scores).map(pair).collect())
}

/// Spearman correlation of scores and shared domains. It is 0 if no pair or every pair shares its domain, as in the
/// released code.
fn correlation(pairs: &[Pair]) -> f64 {
    let scores: Vec<f64> = pairs.iter().map(|pair| pair.score).collect();
    let same: Vec<f64> = pairs.iter().map(|pair| f64::from(u8::from(pair.same))).collect();
    spearman(&scores, &same).unwrap_or(0.0)
}

fn columns(task: &DialogueTask, drawn: &[Vec<Pair>]) -> Columns {
    let id = |n: usize| task.retrieval.documents[n].clone();
    let row = |(draw, pair): (usize, &Pair)| {
        vec![
            (draw + 1).to_string(),
            id(pair.a),
            id(pair.b),
            u8::from(pair.same).to_string(),
            pair.score.to_string(),
        ]
    };
    Columns {
        name: "related",
        names: ["draw", "dialogue", "other", "same", "score"].map(str::to_owned).into(),
        rows: drawn
            .iter()
            .enumerate()
            .flat_map(|(n, pairs)| pairs.iter().map(move |pair| (n, pair)))
            .map(row)
            .collect(),
    }
}
