//! Semantic relatedness: whether dialogues of one domain have the greater scores.

use rayon::prelude::*;

use super::{Columns, DRAWS, DialogueTask, Profile, Value};
use crate::{
    rank::{Scorer, must_be_numbers},
    significance::mean_and_deviation,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_measures::correlation::spearman;

/// A pair of dialogues, whether they are of one domain, and its score.
struct Pair {
    a: usize,
    b: usize,
    same: bool,
    score: f64,
}

/// The correlation; with `keep` the pairs as well, where they are drawn.
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
        Some(drawn) => drawn.iter().map(|pairs| of_pairs(pairs)).collect(),
        None => (0..task.labels.len())
            .into_par_iter()
            .map(|a| Ok(of_pairs(&with_all(task, scorer, a)?)))
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

/// As the text has it: each dialogue with any other.
fn pairs(task: &DialogueTask, scorer: &dyn Scorer, draw: u64) -> Result<Vec<Pair>> {
    let n = task.labels.len();
    let mut random = Random::new(task.seed, draw);
    let mut one = Vec::new();
    let pair = |a: usize| {
        // Any but itself.
        let b = (a + 1 + random.below(n - 1)) % n;
        scorer.scores(a, &[b as u32], &mut one)?;
        must_be_numbers("the ranker", &task.retrieval.documents[a], &one)?;
        Ok(Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(one[0]) })
    };
    (0..n).map(pair).collect()
}

/// As the code has it: one dialogue with all others.
fn with_all(task: &DialogueTask, scorer: &dyn Scorer, a: usize) -> Result<Vec<Pair>> {
    let others: Vec<u32> = (0..task.labels.len() as u32).filter(|b| *b != a as u32).collect();
    let mut scores = Vec::new();
    scorer.scores(a, &others, &mut scores)?;
    must_be_numbers("the ranker", &task.retrieval.documents[a], &scores)?;
    let pair = |(b, score): (&u32, &f32)| {
        let b = *b as usize;
        Pair { a, b, same: task.labels[a] == task.labels[b], score: f64::from(*score) }
    };
    Ok(others.iter().zip(&scores).map(pair).collect())
}

/// Where all are of one domain, or of different ones, there is nothing to correlate: 0, as in the released code.
fn of_pairs(pairs: &[Pair]) -> f64 {
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
