//! How well vectors lie, told without labels: whether what is near by its vectors is near by its words, too.
//!
//! Words are no judge of meaning, but they are another witness than the encoder: one that gets better at meaning agrees
//! with them more, one that collapses, or that learns something beside the point, less. Compared with itself, step by
//! step, and with nothing else.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::rank::{Bm25, Pool, Progress, Ranker};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;
use turnwise_measures::space::space;
use turnwise_train::neighbors;

/// How many neighbours are looked at.
const NEAR: usize = 10;

/// What some vectors come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// The part of the ten nearest by words that are among the ten nearest by vectors.
    pub agreement: f64,
    /// The mean squared distance of two that are near by words.
    pub alignment: f64,
    /// The logarithm of the mean of e^(−2 · squared distance) over all pairs.
    pub uniformity: f64,
}

/// Texts or dialogues, and who is near whom by their words (BM25).
pub struct LabelFree {
    pool: Pool,
    near: Vec<Vec<u32>>,
}

impl LabelFree {
    /// Looks at the words once. `None` where too few are there to be neighbours.
    pub fn new(pool: Pool, watch: &dyn Progress) -> Result<Option<Self>> {
        let count = pool.documents.len();
        if count < 4 * NEAR {
            return Ok(None);
        }
        let all: Vec<u32> = (0..count as u32).collect();
        let bm25 = Bm25::default();
        let near = {
            let scorer = bm25.prepare(&pool, watch)?;
            let of = |n: usize| {
                let mut scores = Vec::new();
                scorer.scores(n, &all, &mut scores)?;
                Ok(neighbors::best(&scores, n, NEAR, 0.0))
            };
            (0..count).into_par_iter().map(of).collect::<Result<Vec<_>>>()?
        };
        Ok(Some(LabelFree { pool, near }))
    }

    /// What there is to encode.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What vectors of length 1, a row each, come to.
    pub fn look(&self, vectors: &Vectors) -> Looked {
        let found = |n: usize| {
            let dot = |other: &[f32]| vectors.row(n).iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
            let scores: Vec<f32> = vectors.rows().map(dot).collect();
            let near = neighbors::best(&scores, n, NEAR, f32::NEG_INFINITY);
            self.near[n].iter().filter(|other| near.contains(other)).count()
        };
        let both: usize = (0..vectors.len()).into_par_iter().map(found).sum();
        let all: usize = self.near.iter().map(Vec::len).sum();
        let near =
            |a: usize, b: usize| self.near[a].contains(&(b as u32)) || self.near[b].contains(&(a as u32));
        let space = space(vectors, near);
        Looked {
            agreement: both as f64 / all.max(1) as f64,
            alignment: space.map_or(0.0, |space| space.alignment),
            uniformity: space.map_or(0.0, |space| space.uniformity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Items;

    /// Sixty texts of six topics, ten of each with the same word; and vectors, by which topics lie.
    fn texts(vector: impl Fn(usize) -> [f32; 2]) -> (Pool, Vectors) {
        let texts = (0..60).map(|n| format!("topic{} word{n}", n % 6)).collect();
        let mut vectors = Vectors::new(2);
        (0..60).for_each(|n| vectors.push(&vector(n)));
        vectors.normalize();
        (Pool::of(Items::Texts(texts)), vectors)
    }

    fn on_a_circle(part: f32) -> [f32; 2] {
        let angle = part * std::f32::consts::TAU;
        [angle.cos(), angle.sin()]
    }

    #[test]
    fn topics_that_lie_together_agree_and_others_do_not() {
        let (pool, right) = texts(|n| on_a_circle((n % 6) as f32 / 6.0 + n as f32 * 1e-4));
        let (_, wrong) = texts(|n| on_a_circle((n / 10) as f32 / 6.0 + n as f32 * 1e-4));
        let unlabelled = LabelFree::new(pool, &()).unwrap().unwrap();
        let (right, wrong) = (unlabelled.look(&right), unlabelled.look(&wrong));
        // Nine others have the word; all of them lie nearest.
        assert_eq!(right.agreement, 1.0);
        assert!(wrong.agreement < 0.3, "{wrong:?}");
        assert!(right.alignment < 1e-3 && wrong.alignment > 1.0);
        assert!((right.uniformity - wrong.uniformity).abs() < 0.2);
    }

    #[test]
    fn a_few_have_no_neighbours() {
        let few = Pool::of(Items::Texts(vec!["a".to_owned(); 39]));
        assert!(LabelFree::new(few, &()).unwrap().is_none());
    }
}
