//! Approximate nearest neighbors with an HNSW graph.

use rayon::prelude::*;
use turnwise_nearest::{Ask, BuildOptions, Metric, Points, Scratch};

use turnwise_core::error::Result;
use turnwise_encoder::Vectors;

/// Number of search candidates (`ef`) per requested neighbor.
const EF_FACTOR: usize = 8;

/// Returns the approximate nearest neighbors of each vector, the nearest first. Only one of several equal vectors
/// is listed.
pub(super) fn nearest(vectors: &Vectors, nearest: usize) -> Result<Vec<Vec<u32>>> {
    let mut points = Points::new(Metric::Cosine, vectors.dim())?;
    for (n, row) in vectors.rows().enumerate() {
        points.push(n as u32, row)?;
    }
    let frozen = points.frozen(&BuildOptions::default())?;
    // The vector itself is among the hits, so request one more.
    let ask = Ask { k: nearest + 1, ef: EF_FACTOR * nearest, rerank: 2 * (nearest + 1), ..Ask::default() };
    let nearest_of = |(scratch, hits): &mut (Scratch, Vec<_>), n: usize| -> Result<Vec<u32>> {
        frozen.search(vectors.row(n), &ask, scratch, hits)?;
        let rows = hits.iter().map(|hit| frozen.rows(hit.node));
        let others = rows.filter(|rows| !rows.contains(&(n as u32))).filter_map(|rows| rows.first().copied());
        Ok(others.take(nearest).collect())
    };
    (0..vectors.len()).into_par_iter().map_init(Default::default, nearest_of).collect()
}
