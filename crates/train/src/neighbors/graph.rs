//! Approximate nearest neighbors with an HNSW graph.

use rayon::prelude::*;
use turnwise_nearest::{BuildOptions, Metric, Points, Scratch, SearchOptions};

use turnwise_core::error::Result;
use turnwise_encoder::Vectors;

/// Number of search candidates (`ef`) per requested neighbor.
const EF_FACTOR: usize = 8;

/// Returns the approximate nearest neighbors of each vector, the nearest first. Of several equal vectors, only one is
/// listed.
pub(super) fn nearest(vectors: &Vectors, nearest: usize) -> Result<Vec<Vec<u32>>> {
    let mut points = Points::new(Metric::Cosine, vectors.dim())?;
    for (n, row) in vectors.rows().enumerate() {
        points.push(n as u32, row)?;
    }
    let graph = points.build(&BuildOptions::default())?;
    // The vector itself is among the hits, so request one more.
    let options = SearchOptions {
        k: nearest + 1,
        ef: EF_FACTOR * nearest,
        rerank: 2 * (nearest + 1),
        ..SearchOptions::default()
    };
    let nearest_of = |(scratch, hits): &mut (Scratch, Vec<_>), n: usize| -> Result<Vec<u32>> {
        graph.search(vectors.row(n), &options, scratch, hits)?;
        let rows = hits.iter().map(|hit| graph.rows(hit.node));
        let others = rows.filter(|rows| !rows.contains(&(n as u32))).filter_map(|rows| rows.first().copied());
        Ok(others.take(nearest).collect())
    };
    (0..vectors.len()).into_par_iter().map_init(Default::default, nearest_of).collect()
}
