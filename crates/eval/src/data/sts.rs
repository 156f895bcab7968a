//! DialogueCSE's `sts.txt`: `score ⇥ sentence ⇥ sentence`.

use std::path::Path;

use super::each_line;
use crate::{build::UNSCORED, tasks::PairTask};
use turnwise_core::error::{Error, Result};

/// Parses the score of a pair. Several scores are separated by commas and reduced to their median, as DialogueCSE
/// does for several annotators.
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

/// Reads sentence pairs with human scores.
pub fn sentence_pairs(path: &Path, background: Vec<String>) -> Result<PairTask> {
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
    Ok(PairTask::new(pairs, background, Vec::new()))
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
