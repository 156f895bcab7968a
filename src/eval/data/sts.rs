//! DialogueCSE's `sts.txt`: `score ⇥ sentence ⇥ sentence`.

use std::path::Path;

use super::each_line;
use crate::{
    error::{Error, Result},
    eval::tasks::PairTask,
};

/// Pairs of sentences with the scores that people gave them.
pub fn sentence_pairs(path: &Path, background: Vec<String>) -> Result<PairTask> {
    let mut pairs = Vec::new();
    each_line(path, |_, text| {
        let fields: Vec<&str> = text.split('\t').collect();
        let [score, a, b] = fields[..] else {
            return Err(format!(
                "a line of sts.txt has 3 columns (score, sentence, sentence), this has {}",
                fields.len()
            ));
        };
        let score = score.trim().parse::<f64>().ok().filter(|score| score.is_finite());
        let score = score.ok_or_else(|| format!("the score `{}` is no finite number", fields[0]))?;
        pairs.push((score, a.to_owned(), b.to_owned()));
        Ok(())
    })?;
    if pairs.len() < 2 {
        return Err(Error::data(format!("{} has fewer than two pairs", path.display())));
    }
    Ok(PairTask::new(pairs, background, Vec::new()))
}
