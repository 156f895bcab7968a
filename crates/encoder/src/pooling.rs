//! From token states to one vector: weighted sums, or maxima, over rows.
//!
//! Every kind of pooling that the models and the papers know is one of the two. The mean of a text weighs its tokens
//! by `1/n`; the first token is a sum of one row; interlocutor-level pooling weighs each token by one over its
//! speaker's tokens; a dialogue in several windows sums over them all. So a [`Backend`](super::Backend) needs to
//! know nothing of dialogues.

use std::ops::Range;

/// How rows become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// The weighted sum.
    Sum,
    /// The maximum of each number; weights play no part.
    Max,
}

/// Consecutive rows with one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Places in the sequence.
    pub rows: Range<usize>,
    /// What each of them counts.
    pub weight: f32,
}

/// What is taken of the states of a batch.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Layers (0 is the embeddings) and what each counts in the mix that is pooled; growing, none twice.
    pub layers: &'a [(usize, f32)],
    /// Each gives one vector a sequence.
    pub pools: &'a [Pool<'a>],
}

/// One way in which every sequence of a batch becomes a vector.
#[derive(Debug, Clone)]
pub struct Pool<'a> {
    /// How rows become one.
    pub reduction: Reduction,
    /// For each sequence of the batch, the parts that are pooled.
    pub parts: Vec<&'a [Part]>,
}

/// Adds the pooled states of one sequence to `out` (for maxima: raises `out` to them).
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

/// What a vector is before anything was pooled into it.
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
