//! Quality of vectors, measured without labels. Compares the nearest neighbors by vector with the nearest neighbors by
//! BM25.
//!
//! BM25 does not measure meaning, but it is independent of the encoder. Agreement with BM25 usually rises when an
//! encoder improves, and falls when its vectors collapse. Compare the measures only between steps of one training run,
//! not between different encoders.

use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::rank::{Bm25, Pool, Progress, Ranker};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;
use turnwise_measures::space::space;
use turnwise_nearest::highest;

/// Maximum number of neighbors that are compared per item.
const NEAR: usize = 10;

/// Label-free measures of a set of vectors, see the [module documentation](self).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabelFreeMeasures {
    /// Fraction of the nearest neighbors by BM25 that are also among the nearest neighbors by vector. At most ten
    /// neighbors of each item are compared.
    pub agreement: f64,
    /// Mean squared distance between vectors of items that are neighbors by BM25. Lower is better.
    pub alignment: f64,
    /// Natural logarithm of the mean of e^(−2 · squared distance) over all pairs of vectors. It is lower if the vectors
    /// are more evenly spread.
    pub uniformity: f64,
}

/// Texts or dialogues with their nearest neighbors by BM25.
pub struct LabelFree {
    pool: Pool,
    near: Vec<Vec<u32>>,
}

impl LabelFree {
    /// Computes the nearest neighbors of each item by BM25. Returns `None` if the pool has fewer than 40 items.
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
                Ok(highest(&scores, n, NEAR, 0.0))
            };
            (0..count).into_par_iter().map(of).collect::<Result<Vec<_>>>()?
        };
        Ok(Some(LabelFree { pool, near }))
    }

    /// Returns the items to encode.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Computes the measures from the vectors of the items. `vectors` contains one unit vector per item.
    pub fn look(&self, vectors: &Vectors) -> LabelFreeMeasures {
        let found = |n: usize| {
            let near = nearest(vectors, 0..vectors.len(), n, NEAR);
            self.near[n].iter().filter(|other| near.contains(other)).count()
        };
        let both: usize = (0..vectors.len()).into_par_iter().map(found).sum();
        let all: usize = self.near.iter().map(Vec::len).sum();
        let near =
            |a: usize, b: usize| self.near[a].contains(&(b as u32)) || self.near[b].contains(&(a as u32));
        let space = space(vectors, near);
        LabelFreeMeasures {
            agreement: both as f64 / all.max(1) as f64,
            alignment: space.map_or(0.0, |space| space.alignment),
            uniformity: space.map_or(0.0, |space| space.uniformity),
        }
    }
}

/// Returns the indices of the `count` vectors nearest to vector `n`, without `n` itself. Searches only the rows in
/// `range`. `n` and the returned indices are relative to the start of `range`. The vectors must be unit vectors.
pub(crate) fn nearest(vectors: &Vectors, range: Range<usize>, n: usize, count: usize) -> Vec<u32> {
    let row = vectors.row(range.start + n);
    let dot = |other: usize| row.iter().zip(vectors.row(other)).map(|(a, b)| a * b).sum::<f32>();
    highest(&range.map(dot).collect::<Vec<f32>>(), n, count, f32::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::Items;

    /// Returns sixty texts of six topics, and a vector for each text. The ten texts of a topic have a word in common.
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
    fn agreement_is_high_when_topics_cluster_and_low_otherwise() {
        let (pool, right) = texts(|n| on_a_circle((n % 6) as f32 / 6.0 + n as f32 * 1e-4));
        let (_, wrong) = texts(|n| on_a_circle((n / 10) as f32 / 6.0 + n as f32 * 1e-4));
        let label_free = LabelFree::new(pool, &()).unwrap().unwrap();
        let (right, wrong) = (label_free.look(&right), label_free.look(&wrong));
        // The nine other texts with the same word are the nearest neighbors by BM25 and by vector.
        assert_eq!(right.agreement, 1.0);
        assert!(wrong.agreement < 0.3, "{wrong:?}");
        assert!(right.alignment < 1e-3 && wrong.alignment > 1.0);
        assert!((right.uniformity - wrong.uniformity).abs() < 0.2);
    }

    #[test]
    fn too_few_texts_are_rejected() {
        let few = Pool::of(Items::Texts(vec!["a".to_owned(); 39]));
        assert!(LabelFree::new(few, &()).unwrap().is_none());
    }
}
