//! Sentence similarity: compares a ranker's scores of sentence pairs with human scores. The data is a file in the
//! format of DialogueCSE's `sts.txt`: `score ⇥ sentence ⇥ sentence`.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Columns, LoadOptions, Loaded, Outcome, Skipped, Task, TaskSettings, Value, semantic_retrieval::sentences,
};
use crate::{
    build::UNSCORED,
    data::each_line,
    rank::{Items, Pool, Progress, Scorer, Step, ensure_finite},
};
use turnwise_core::error::{Error, Result};
use turnwise_measures::correlation::{kendall, pearson, spearman};

/// Settings of sentence similarity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct Similarity {
    /// Tab-separated file with the columns score, first sentence, second sentence
    #[cfg_attr(feature = "clap", arg(value_name = "FILE"))]
    pub data: PathBuf,
    /// More sentences for the term weights (IDF): a file in the format of select.txt (see `bench sr`)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<PathBuf>,
}

impl TaskSettings for Similarity {
    fn command(&self, folder: &Path) -> String {
        let file = |path: &PathBuf| folder.join(path).display().to_string();
        let background = self.background.as_ref().map(|path| format!(" --background {}", file(path)));
        format!("turnwise bench dsts {}{}", file(&self.data), background.unwrap_or_default())
    }

    fn files(&self) -> Vec<&Path> {
        std::iter::once(self.data.as_path()).chain(self.background.as_deref()).collect()
    }

    fn load(&self, folder: &Path, _: &LoadOptions<'_>) -> Result<Loaded> {
        let (file, background) =
            (folder.join(&self.data), self.background.as_ref().map(|path| folder.join(path)));
        let more = background.as_deref().map(sentences).transpose()?.unwrap_or_default();
        Loaded::from_files(sentence_pairs(&file, more)?, std::iter::once(file).chain(background).collect())
    }
}

/// Function that computes a correlation coefficient of two series. It returns `None` if one of the series is constant.
type Correlation = fn(&[f64], &[f64]) -> Option<f64>;

/// Sentence pairs with human scores.
#[derive(Debug, Clone)]
struct PairTask {
    /// Sentences of all pairs. The two sentences of a pair are adjacent.
    pool: Pool,
    /// Human score of each pair.
    gold: Vec<f64>,
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
        &[]
    }

    fn identity(&self) -> String {
        "dsts/by-own".to_owned()
    }

    /// Computes the correlation of the ranker's scores with the human scores. Scores each pair twice, so that each
    /// sentence is the query once. Divides each score by the score of the query with itself, and averages the two
    /// quotients. The division does not change a cosine. It makes other scores comparable between pairs.
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
            let value = measure(&scores, &self.gold).ok_or_else(|| {
                Error::data("all pairs have the same score, and a correlation cannot be computed")
                    .with_hint("both the human scores and the ranker's scores must vary")
            })?;
            Ok(Value { floor: Some(0.0), ..Value::new(name, value) })
        };
        let values = measures.into_iter().map(value).collect::<Result<_>>()?;
        let rows =
            self.gold.iter().zip(&scores).map(|(gold, score)| vec![gold.to_string(), score.to_string()]);
        let columns = Columns {
            name: "pairs",
            names: ["people", "ranker"].map(str::to_owned).into(),
            rows: rows.collect(),
        };
        Ok(Outcome { values, columns: keep.then_some(columns).into_iter().collect(), ..Outcome::default() })
    }
}

/// Parses the score of a pair. If several scores are given, separated by commas, returns their median.
fn median(cell: &str) -> Result<f64, String> {
    if cell.trim() == UNSCORED {
        return Err(format!(
            "this pair has no score yet: replace `{UNSCORED}` with a number, or with several numbers separated by commas"
        ));
    }
    let score = |text: &str| text.trim().parse::<f64>().ok().filter(|score| score.is_finite());
    let scores: Option<Vec<f64>> = cell.split(',').map(score).collect();
    let mut scores = scores.ok_or_else(|| format!("the score `{cell}` is not a finite number"))?;
    scores.sort_unstable_by(f64::total_cmp);
    let middle = scores.len() / 2;
    Ok(if scores.len() % 2 == 1 { scores[middle] } else { f64::midpoint(scores[middle - 1], scores[middle]) })
}

/// Reads sentence pairs with human scores. `background` contains more sentences, which affect only the term weights.
fn sentence_pairs(path: &Path, background: Vec<String>) -> Result<PairTask> {
    let mut pairs = Vec::new();
    each_line(path, |_, text| {
        let fields: Vec<&str> = text.split('\t').collect();
        let [score, a, b] = fields[..] else {
            return Err(format!(
                "a line of sts.txt has 3 columns (score, sentence, sentence), this one has {}",
                fields.len()
            ));
        };
        pairs.push((median(score)?, a.to_owned(), b.to_owned()));
        Ok(())
    })?;
    if pairs.len() < 2 {
        return Err(Error::data(format!("{} contains fewer than two pairs", path.display())));
    }
    let gold = pairs.iter().map(|(score, ..)| *score).collect();
    let texts = pairs.into_iter().flat_map(|(_, a, b)| [a, b]).collect();
    Ok(PairTask { pool: Pool { background, ..Pool::of(Items::Texts(texts)) }, gold })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn several_scores_are_reduced_to_their_median() {
        let scores = ["4", " 2.5 ", "1,5,4", "3, 4", "5,1,1,2"].map(|cell| median(cell).unwrap());
        assert_eq!(scores, [4.0, 2.5, 4.0, 3.5, 1.5]);
        assert!(median("?").unwrap_err().starts_with("this pair has no score yet"));
        for wrong in ["", "4,", "nan", "x", "1;2"] {
            assert_eq!(median(wrong).unwrap_err(), format!("the score `{wrong}` is not a finite number"));
        }
    }
}
