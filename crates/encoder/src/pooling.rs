//! Pooling: reduces token states to one vector, by a weighted sum or a maximum over rows.
//!
//! These two operations cover every kind of pooling. Mean pooling is a sum in which each of the `n` tokens has the
//! weight `1/n`. Pooling of the first token is a sum of one row. In interlocutor-level pooling, the weight of a token
//! is one divided by the number of tokens of the same speaker. A dialogue in several windows is a sum over all
//! windows. Therefore a [`Backend`](super::Backend) needs no knowledge of dialogues.

use std::ops::Range;

/// Reduction of several rows to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Weighted sum.
    Sum,
    /// Element-wise maximum; weights are ignored.
    Max,
}

/// Consecutive rows with the same weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Row positions in the sequence.
    pub rows: Range<usize>,
    /// Weight of each row.
    pub weight: f32,
}

/// Layers and pools to compute from the states of a batch.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Layers to mix (0 is the embeddings) and their weights; in ascending order, without duplicates.
    pub layers: &'a [(usize, f32)],
    /// Pools to compute. Each pool gives one vector per sequence.
    pub pools: &'a [Pool<'a>],
}

/// Pooling operation for all sequences of a batch.
#[derive(Debug, Clone)]
pub struct Pool<'a> {
    /// Reduction of the rows to one row.
    pub reduction: Reduction,
    /// For each sequence of the batch, the row ranges to pool.
    pub parts: Vec<&'a [Part]>,
}

/// Pools the states of one sequence into `out`: adds the weighted rows to `out`, or takes the element-wise maximum.
pub(super) fn pool_into(out: &mut [f32], states: &[f32], parts: &[Part], reduction: Reduction) {
    let width = out.len();
    for part in parts {
        for row in states[part.rows.start * width..part.rows.end * width].chunks_exact(width) {
            match reduction {
                Reduction::Sum => out.iter_mut().zip(row).for_each(|(o, v)| *o += part.weight * v),
                Reduction::Max => out.iter_mut().zip(row).for_each(|(o, v)| *o = o.max(*v)),
            }
        }
    }
}

/// Initial value of a pooled vector.
pub(super) fn empty(reduction: Reduction) -> f32 {
    match reduction {
        Reduction::Sum => 0.0,
        Reduction::Max => f32::NEG_INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_weigh_and_maxima_do_not() {
        let states = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0];
        let parts = [
            Part { rows: 0..1, weight: 0.5 },
            Part { rows: 1..3, weight: 2.0 },
            Part { rows: 1..1, weight: 9.0 },
        ];
        let mut out = [0.0; 2];
        pool_into(&mut out, &states, &parts, Reduction::Sum);
        assert_eq!(out, [16.5, 5.0]);
        let mut out = [empty(Reduction::Max); 2];
        pool_into(&mut out, &states, &parts, Reduction::Max);
        assert_eq!(out, [5.0, 6.0]);
    }
}
