//! Sentence similarity task: compares the ranker's scores of sentence pairs with human scores.

use rayon::prelude::*;

use super::{Columns, Outcome, Skipped, Task, Value};
use crate::rank::{Items, Pool, Progress, Scorer, Step, ensure_finite};
use turnwise_core::error::{Error, Result};
use turnwise_measures::correlation::{kendall, pearson, spearman};

/// Correlation coefficient of two series; `None` if one of them is constant.
type Correlation = fn(&[f64], &[f64]) -> Option<f64>;

/// Sentence pairs with human scores.
#[derive(Debug, Clone)]
pub struct PairTask {
    /// Sentences of all pairs; the two sentences of a pair are adjacent.
    pub pool: Pool,
    /// Human score of each pair.
    pub gold: Vec<f64>,
    /// What was left out of the data.
    pub skipped: Vec<Skipped>,
}

impl PairTask {
    /// Creates the task from scored pairs. The background sentences only affect term weights.
    pub fn new(pairs: Vec<(f64, String, String)>, background: Vec<String>, skipped: Vec<Skipped>) -> Self {
        let gold = pairs.iter().map(|(score, ..)| *score).collect();
        let texts = pairs.into_iter().flat_map(|(_, a, b)| [a, b]).collect();
        let pool = Pool { background, ..Pool::of(Items::Texts(texts)) };
        PairTask { pool, gold, skipped }
    }
}

impl Task for PairTask {
    fn name(&self) -> &'static str {
        "dsts"
    }

    fn about(&self) -> &'static str {
        "similarity of sentences in dialogues (D-STS, DialogueCSE)"
    }

    fn size(&self) -> String {
        format!("{} pairs", self.gold.len())
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn identity(&self) -> String {
        "dsts/by-own".to_owned()
    }

    /// Divides each score by the score of the sentence with itself. This leaves a cosine unchanged and makes other
    /// scores comparable between pairs.
    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome> {
        let score = |n: usize| -> Result<f64> {
            let (a, b) = (2 * n, 2 * n + 1);
            let mut scores = Vec::new();
            let mut sum = 0.0;
            for (query, other) in [(a, b), (b, a)] {
                scorer.scores(query, &[query as u32, other as u32], &mut scores)?;
                ensure_finite("the ranker", &format!("of pair {}", n + 1), &scores)?;
                sum += if scores[0] > 0.0 { f64::from(scores[1]) / f64::from(scores[0]) } else { 0.0 };
            }
            Ok(sum / 2.0)
        };
        watch.check()?;
        let scores: Vec<f64> = (0..self.gold.len()).into_par_iter().map(score).collect::<Result<_>>()?;
        watch.done(Step::Ranking, scores.len(), scores.len());
        let measures: [(&str, Correlation); 3] =
            [("Spearman", spearman), ("Pearson", pearson), ("Kendall", kendall)];
        let value = |(name, measure): (&str, Correlation)| {
            let value = measure(&scores, &self.gold).ok_or_else(|| Error::Data {
                message: "all pairs have the same score, and a correlation cannot be computed".to_owned(),
                hint: Some("both the human scores and the ranker's scores must vary".to_owned()),
            })?;
            Ok(Value { measure: name.to_owned(), value, deviation: None, floor: Some(0.0), each: Vec::new() })
        };
        let values = measures.into_iter().map(value).collect::<Result<_>>()?;
        let rows =
            self.gold.iter().zip(&scores).map(|(gold, score)| vec![gold.to_string(), score.to_string()]);
        let columns = Columns {
            name: "pairs",
            names: ["people", "ranker"].map(str::to_owned).into(),
            rows: rows.collect(),
        };
        let columns = if keep { vec![columns] } else { Vec::new() };
        Ok(Outcome { values, columns, ..Outcome::default() })
    }
}
