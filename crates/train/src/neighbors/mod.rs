//! Nearest neighbors of vectors and texts.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rayon::prelude::*;

use crate::ops::{Matrix, product};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;
use turnwise_nearest::{BuildOptions, Metric, Points, Scratch, SearchOptions, highest};

/// Maximum number of vectors that are compared pairwise. Larger sets of vectors are searched with an HNSW graph.
const EXACT_LIMIT: usize = 8_192;

/// Number of vectors per block. One matrix product compares a block with all vectors.
const BLOCK: usize = 256;

/// The candidate list (`ef`) of a graph search for N neighbors has N times this number of entries.
const EF_FACTOR: usize = 8;

/// Computes the dot products of all pairs of vectors, block by block.
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

/// Calls `take` for each vector in order, with the index of the vector and its dot products with all vectors.
pub(super) fn rows(vectors: &Vectors, take: &mut dyn FnMut(usize, &[f32])) {
    blocks(vectors, &mut |first, scores| {
        scores.chunks_exact(vectors.len()).enumerate().for_each(|(n, scores)| take(first + n, scores));
    });
}

/// Returns the `count` nearest neighbors of each vector, the nearest first. The search is exact for up to
/// [`EXACT_LIMIT`] vectors, otherwise approximate. The vectors must be unit vectors.
pub(super) fn nearest_of_many(vectors: &Vectors, count: usize) -> Result<Vec<Vec<u32>>> {
    match vectors.len() <= EXACT_LIMIT {
        true => Ok(nearest(vectors, count)),
        false => approximate(vectors, count),
    }
}

/// Returns the `count` exact nearest neighbors of each vector by dot product, the nearest first.
pub(super) fn nearest(vectors: &Vectors, count: usize) -> Vec<Vec<u32>> {
    let mut lists: Vec<Vec<u32>> = Vec::with_capacity(vectors.len());
    blocks(vectors, &mut |first, scores| {
        let best_of = |(n, scores): (usize, &[f32])| highest(scores, first + n, count, f32::NEG_INFINITY);
        lists.par_extend(scores.par_chunks_exact(vectors.len()).enumerate().map(best_of));
    });
    lists
}

/// Returns up to `count` approximate nearest neighbors of each vector by cosine similarity, the nearest first. A
/// duplicate of a vector is not a neighbor of that vector. Of neighbors that are equal to each other, lists only one.
fn approximate(vectors: &Vectors, count: usize) -> Result<Vec<Vec<u32>>> {
    let mut points = Points::new(Metric::Cosine, vectors.dim())?;
    for (n, row) in vectors.rows().enumerate() {
        points.push(n as u32, row)?;
    }
    let graph = points.build(&BuildOptions::default())?;
    // The vector itself is among the hits, so request one more hit.
    let options = SearchOptions {
        k: count + 1,
        ef: EF_FACTOR * count,
        rerank: 2 * (count + 1),
        ..SearchOptions::default()
    };
    let nearest_of = |(scratch, hits): &mut (Scratch, Vec<_>), n: usize| -> Result<Vec<u32>> {
        graph.search(vectors.row(n), &options, scratch, hits)?;
        let rows = hits.iter().map(|hit| graph.rows(hit.node));
        let others = rows.filter(|rows| !rows.contains(&(n as u32))).filter_map(|rows| rows.first().copied());
        Ok(others.take(count).collect())
    };
    (0..vectors.len()).into_par_iter().map_init(Default::default, nearest_of).collect()
}

/// Returns the mutual nearest neighbors of each vector. Two vectors are mutual neighbors if each is among the `count`
/// nearest neighbors of the other.
pub(super) fn mutual(vectors: &Vectors, count: usize) -> Vec<Vec<u32>> {
    mutual_of(&nearest(vectors, count), count)
}

/// Returns the mutual nearest neighbors of each vector. `lists` has the nearest neighbors of each vector, and only the
/// first `count` of each list are used.
pub(super) fn mutual_of(lists: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let first = |n: usize| lists[n].iter().take(count);
    let mutual_with = |n: usize| -> Vec<u32> {
        first(n).copied().filter(|other| first(*other as usize).any(|back| *back as usize == n)).collect()
    };
    (0..lists.len()).into_par_iter().map(mutual_with).collect()
}

// BM25 as in the search engine: Lucene's constants and IDF. Repeated query words count once.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Returns up to `count` nearest texts of each text, the nearest first. A text is a list of word ids.
///
/// Texts that share no word are not neighbors.
pub fn nearest_by_bm25(texts: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let words: Vec<Vec<(u32, u32)>> = texts.par_iter().map(|text| counted(text.clone())).collect();
    let postings = postings(&words);
    let mean = texts.iter().map(Vec::len).sum::<usize>() as f64 / texts.len().max(1) as f64;
    // The part of the BM25 denominator that depends on the length of a text.
    let saturation: Vec<f64> =
        texts.iter().map(|text| K1 * (1.0 - B + B * text.len() as f64 / mean.max(1e-9))).collect();
    let nearest_of = |scores: &mut Vec<f64>, n: usize| {
        scores.clear();
        scores.resize(texts.len(), 0.0);
        for (word, _) in &words[n] {
            let postings = &postings[word];
            let documents = postings.len() as f64;
            let idf = (1.0 + (texts.len() as f64 - documents + 0.5) / (documents + 0.5)).ln();
            for (text, frequency) in postings {
                let frequency = f64::from(*frequency);
                let weight = (idf * frequency / (frequency + saturation[*text as usize])) as f32;
                scores[*text as usize] += f64::from(weight);
            }
        }
        let scores: Vec<f32> = scores.iter().map(|score| *score as f32).collect();
        highest(&scores, n, count, 0.0)
    };
    (0..texts.len()).into_par_iter().map_init(Vec::new, nearest_of).collect()
}

/// Returns the words of a text with their frequencies, sorted by word.
fn counted(mut text: Vec<u32>) -> Vec<(u32, u32)> {
    text.sort_unstable();
    text.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

/// Returns the postings of each word: the texts that contain the word, with its frequency in each text.
fn postings(words: &[Vec<(u32, u32)>]) -> HashMap<u32, Vec<(u32, u32)>> {
    let mut postings: HashMap<u32, Vec<(u32, u32)>> = HashMap::new();
    for (n, words) in (0..).zip(words) {
        for (word, frequency) in words {
            postings.entry(*word).or_default().push((n, *frequency));
        }
    }
    postings
}
