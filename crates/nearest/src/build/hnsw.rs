//! Builds the graph with the crate hnsw_rs.
//!
//! hnsw_rs panics or aborts on parameters that exceed its tables, on NaN and on negative distances. The parameters
//! are checked before. It receives rows of codes and our own distance, so NaN and negative distances cannot occur.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hnsw_rs::{anndists::dist::distances::Distance, prelude::Hnsw};
use rayon::prelude::*;

use super::{BuildOptions, Codes, codes::PairDistance};
use crate::{
    Metric, Progress, Result, Step,
    distances::Dispatch,
    graph::{BuiltNode, Graph},
};

/// Number of points between two reports of progress.
const REPORT_EVERY: usize = 64;
/// Maximum number of levels in hnsw_rs.
const LEVELS: usize = 16;

/// Builds the graph. The points are inserted in the order `near`, which places near points one after the other.
///
/// hnsw_rs stores a point in several heap allocations, and reads all of them for each neighbor. In random order, a
/// third of the time was spent waiting for memory. In this order, most neighbors of a point are in the cache, and
/// close together in memory because they were allocated one after the other.
pub(super) fn build(
    codes: &Codes,
    near: &[u32],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Graph> {
    let n = codes.len();
    let distance = CodeDistance { stride: codes.stride, metric: codes.metric, level: codes.level };
    let hnsw: Hnsw<'_, u8, CodeDistance> = Hnsw::new(options.m, n.max(1), LEVELS, options.ef, distance);
    // hnsw_rs needs a first point before points can be inserted in parallel.
    let insert = |point: u32| hnsw.insert((&distance.row(codes, point), point as usize));
    let (stopped, reports) = (AtomicBool::new(false), AtomicUsize::new(0));
    if let Some((first, others)) = near.split_first() {
        insert(*first);
        others.par_iter().enumerate().for_each(|(at, point)| {
            if at.is_multiple_of(REPORT_EVERY) && progress.stop() {
                stopped.store(true, Ordering::Relaxed);
            }
            if !stopped.load(Ordering::Relaxed) {
                insert(*point);
            }
            if at.is_multiple_of(REPORT_EVERY) {
                let done = reports.fetch_add(1, Ordering::Relaxed) + 1;
                progress.done(Step::Linking, (done * REPORT_EVERY).min(n), n);
            }
        });
    }
    if stopped.into_inner() {
        return Err(crate::progress::stopped());
    }
    let mut built: Vec<BuiltNode> = (0..n).map(|_| BuiltNode { level: 0, neighbors: Vec::new() }).collect();
    let indexation = hnsw.get_point_indexation();
    for level in 0..LEVELS {
        for point in indexation.get_layer_iterator(level) {
            let neighbors = point.get_neighborhood_id();
            let ids = |list: Vec<hnsw_rs::prelude::Neighbour>| list.iter().map(|n| n.d_id as u32).collect();
            built[point.get_origin_id()] =
                BuiltNode { level, neighbors: neighbors.into_iter().map(ids).collect() };
        }
    }
    Ok(Graph::assemble(&built, options.m))
}

/// Distance of rows of codes. Each row is followed by its bias and its squared norm.
///
/// hnsw_rs passes the query row first. The bias is read only from this row, because the other rows are at random
/// addresses.
#[derive(Clone, Copy)]
struct CodeDistance {
    stride: usize,
    metric: Metric,
    level: Dispatch,
}

impl CodeDistance {
    fn row(&self, codes: &Codes, point: u32) -> Vec<u8> {
        let norm = codes.norms[point as usize].to_le_bytes();
        [codes.row(point), &codes.bias(point).to_le_bytes(), &norm].concat()
    }

    #[inline]
    fn trailer(&self, row: &[u8], number: usize) -> u32 {
        row[self.stride + 4 * number..][..4].try_into().map_or(0, u32::from_le_bytes)
    }
}

impl Distance<u8> for CodeDistance {
    fn eval(&self, a: &[u8], b: &[u8]) -> f32 {
        let norms = (self.metric == Metric::L2).then(|| self.trailer(a, 1) + self.trailer(b, 1));
        let bias = self.trailer(a, 0) as i32;
        self.level.run(PairDistance { a: &a[..self.stride], bias, b: &b[..self.stride], norms })
    }
}
