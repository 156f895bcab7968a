//! Who is near whom.

mod graph;
#[cfg(test)]
mod tests;
pub mod words;

use rayon::prelude::*;

use crate::ops::{Matrix, product};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;

/// So many are compared each with each; of more, a graph finds nearly all that are near.
const EXACTLY: usize = 8_192;

/// Rows whose scores are made together.
const BLOCK: usize = 256;

/// Gives the products of vectors with all, block by block: the number of a block's first vector, and a row a vector.
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

/// Gives the products of every vector with all, one after the other.
pub(super) fn rows(vectors: &Vectors, take: &mut dyn FnMut(usize, &[f32])) {
    blocks(vectors, &mut |first, scores| {
        scores.chunks_exact(vectors.len()).enumerate().for_each(|(n, scores)| take(first + n, scores));
    });
}

/// For each vector its nearest, the best first: all of them where that can be looked at, nearly all else.
pub(super) fn nearest_of_many(vectors: &Vectors, nearest: usize) -> Result<Vec<Vec<u32>>> {
    match vectors.len() <= EXACTLY {
        true => Ok(self::nearest(vectors, nearest)),
        false => graph::nearest(vectors, nearest),
    }
}

/// For each vector its nearest, the best first.
pub(super) fn nearest(vectors: &Vectors, nearest: usize) -> Vec<Vec<u32>> {
    let count = vectors.len();
    let mut lists: Vec<Vec<u32>> = Vec::with_capacity(count);
    blocks(vectors, &mut |first, scores| {
        let of = |(n, scores): (usize, &[f32])| best(scores, first + n, nearest, f32::NEG_INFINITY);
        lists.par_extend(scores.par_chunks_exact(count).enumerate().map(of));
    });
    lists
}

/// For each vector, those that are among its nearest and that it is among the nearest of.
pub(super) fn mutual(vectors: &Vectors, near: usize) -> Vec<Vec<u32>> {
    mutual_of(&nearest(vectors, near), near)
}

/// The same by lists of who is near whom: of those that are among the first of each other's.
pub(super) fn mutual_of(lists: &[Vec<u32>], near: usize) -> Vec<Vec<u32>> {
    let first = |n: usize| lists[n].iter().take(near);
    let of = |n: usize| -> Vec<u32> {
        first(n).copied().filter(|other| first(*other as usize).any(|back| *back as usize == n)).collect()
    };
    (0..lists.len()).into_par_iter().map(of).collect()
}

/// The places of the best scores, the best first, of those above a bound and without one's own. Of equals the first.
pub fn best(scores: &[f32], own: usize, nearest: usize, above: f32) -> Vec<u32> {
    let mut places: Vec<u32> =
        (0..scores.len() as u32).filter(|n| *n as usize != own && scores[*n as usize] > above).collect();
    let better = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if places.len() > nearest {
        places.select_nth_unstable_by(nearest, better);
        places.truncate(nearest);
    }
    places.sort_unstable_by(better);
    places
}
