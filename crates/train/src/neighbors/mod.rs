//! Nearest neighbors of vectors and texts.

mod graph;
#[cfg(test)]
mod tests;
pub mod words;

use rayon::prelude::*;

use crate::ops::{Matrix, product};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;
use turnwise_nearest::highest;

/// Largest set that is compared pairwise. For larger sets, an HNSW graph finds approximate neighbors.
const EXACT_LIMIT: usize = 8_192;

/// Number of rows per block of scores.
const BLOCK: usize = 256;

/// Computes the dot products of all pairs, block by block.
///
/// `take` receives the index of the first vector of a block, and one row of scores per vector of the block.
fn blocks(vectors: &Vectors, take: &mut dyn FnMut(usize, &[f32])) {
    let (count, dim) = (vectors.len(), vectors.dim());
    let all = Matrix::new(vectors.flat(), dim).transposed();
    let mut scores = vec![0.0; BLOCK.min(count) * count];
    for (block, rows) in vectors.flat().chunks(BLOCK * dim).enumerate() {
        let scores = &mut scores[..rows.len() / dim * count];
        product(Matrix::new(rows, dim), all, scores, false);
        take(block * BLOCK, scores);
    }
}

/// Calls `take` for each vector in order, with the index of the vector and the dot products with all vectors.
pub(super) fn rows(vectors: &Vectors, take: &mut dyn FnMut(usize, &[f32])) {
    blocks(vectors, &mut |first, scores| {
        scores.chunks_exact(vectors.len()).enumerate().for_each(|(n, scores)| take(first + n, scores));
    });
}

/// Returns the nearest neighbors of each vector, the nearest first: exact for small sets, approximate for large sets.
pub(super) fn nearest_of_many(vectors: &Vectors, nearest: usize) -> Result<Vec<Vec<u32>>> {
    match vectors.len() <= EXACT_LIMIT {
        true => Ok(self::nearest(vectors, nearest)),
        false => graph::nearest(vectors, nearest),
    }
}

/// Returns the exact nearest neighbors of each vector, the nearest first.
pub(super) fn nearest(vectors: &Vectors, nearest: usize) -> Vec<Vec<u32>> {
    let count = vectors.len();
    let mut lists: Vec<Vec<u32>> = Vec::with_capacity(count);
    blocks(vectors, &mut |first, scores| {
        let best_of = |(n, scores): (usize, &[f32])| highest(scores, first + n, nearest, f32::NEG_INFINITY);
        lists.par_extend(scores.par_chunks_exact(count).enumerate().map(best_of));
    });
    lists
}

/// Returns the mutual nearest neighbors of each vector. In such a pair, each vector is among the `near` nearest of the
/// other.
pub(super) fn mutual(vectors: &Vectors, near: usize) -> Vec<Vec<u32>> {
    mutual_of(&nearest(vectors, near), near)
}

/// Returns the mutual nearest neighbors from lists of neighbors. Only the first `near` entries of each list count.
pub(super) fn mutual_of(lists: &[Vec<u32>], near: usize) -> Vec<Vec<u32>> {
    let first = |n: usize| lists[n].iter().take(near);
    let mutual_with = |n: usize| -> Vec<u32> {
        first(n).copied().filter(|other| first(*other as usize).any(|back| *back as usize == n)).collect()
    };
    (0..lists.len()).into_par_iter().map(mutual_with).collect()
}
