//! The graph by the crate hnsw_rs.
//!
//! It is kept from what ends or panics it: parameters beyond its tables, vectors that are not numbers, distances below 0.
//! It sees rows of codes, for which neither can happen, and a distance of ours.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hnsw_rs::{anndists::dist::distances::Distance, prelude::Hnsw};
use rayon::prelude::*;

use super::{BuildOptions, Codes, codes::Apart};
use crate::{
    Metric, Progress, Result, Step,
    distances::Dispatch,
    graph::{Built, Graph},
};

/// After so many points somebody is asked and told.
const SOME: usize = 64;
/// Levels that its tables have room for.
const LEVELS: usize = 16;

/// Points come in the order `near`, each behind some that are near to it. hnsw_rs keeps a point in several pieces of the heap
/// and goes to each of them to learn who a neighbour is: waiting for that was a third of the work. Of the last point's
/// neighbourhood most is still in the caches, and lies together because it was made one after the other.
pub(super) fn build(
    codes: &Codes,
    near: &[u32],
    options: &BuildOptions,
    watch: &dyn Progress,
) -> Result<Graph> {
    let n = codes.len();
    let distance = CodeDistance { stride: codes.stride, metric: codes.metric, level: codes.level };
    let hnsw: Hnsw<'_, u8, CodeDistance> = Hnsw::new(options.m, n.max(1), LEVELS, options.ef, distance);
    // The first point must be there before others are inserted at the same time.
    let insert = |point: u32| hnsw.insert((&distance.row(codes, point), point as usize));
    let (stopped, some) = (AtomicBool::new(false), AtomicUsize::new(0));
    if let Some((first, others)) = near.split_first() {
        insert(*first);
        others.par_iter().enumerate().for_each(|(at, point)| {
            if at.is_multiple_of(SOME) && watch.stop() {
                stopped.store(true, Ordering::Relaxed);
            }
            if !stopped.load(Ordering::Relaxed) {
                insert(*point);
            }
            if at.is_multiple_of(SOME) {
                let done = some.fetch_add(1, Ordering::Relaxed) + 1;
                watch.done(Step::Linking, (done * SOME).min(n), n);
            }
        });
    }
    if stopped.into_inner() {
        return Err(crate::progress::stopped());
    }
    let mut built: Vec<Built> = (0..n).map(|_| Built { level: 0, neighbours: Vec::new() }).collect();
    let indexation = hnsw.get_point_indexation();
    for level in 0..LEVELS {
        for point in indexation.get_layer_iterator(level) {
            let neighbours = point.get_neighborhood_id();
            let ids = |list: Vec<hnsw_rs::prelude::Neighbour>| list.iter().map(|n| n.d_id as u32).collect();
            built[point.get_origin_id()] =
                Built { level, neighbours: neighbours.into_iter().map(ids).collect() };
        }
    }
    Ok(Graph::assemble(&built, options.m))
}

/// Distances of rows of codes, each with its bias and its squared length behind it. hnsw_rs gives the row that it comes with
/// first: of the others, which lie anywhere, what is behind is not read if it is not needed.
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
    fn behind(&self, row: &[u8], number: usize) -> u32 {
        row[self.stride + 4 * number..][..4].try_into().map_or(0, u32::from_le_bytes)
    }
}

impl Distance<u8> for CodeDistance {
    fn eval(&self, a: &[u8], b: &[u8]) -> f32 {
        let norms = (self.metric == Metric::L2).then(|| self.behind(a, 1) + self.behind(b, 1));
        let bias = self.behind(a, 0) as i32;
        self.level.run(Apart { a: &a[..self.stride], bias, b: &b[..self.stride], norms })
    }
}
