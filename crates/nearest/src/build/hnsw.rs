//! Builds the graph with the crate hnsw_rs.
//!
//! hnsw_rs panics or aborts if a parameter is too large, or if a distance is NaN or negative. The parent module checks
//! the parameters. This module computes distances between rows of 8-bit codes. These distances are never NaN or
//! negative.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hnsw_rs::{anndists::dist::distances::Distance, prelude::Hnsw};
use rayon::prelude::*;

use crate::{
    Metric, Progress, Result, Step,
    build::{BuildOptions, Codes, mixed},
    codes::PairDistance,
    distances::Dispatch,
    graph::{BuiltNode, Graph},
};

const REPORT_EVERY: usize = 64;
const LEVELS: usize = 16;

/// Builds the graph. The points are inserted in the order `near`, in which similar points follow each other.
///
/// hnsw_rs stores a point in several heap allocations, and reads all of them for each neighbor. In the order `near`,
/// most neighbors of a point are in the cache. In random order, a build spends a third of its time waiting for memory.
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
        return Err(crate::build::interrupted());
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

/// Distance between two rows of codes, for hnsw_rs. After its codes, each row contains its bias and its squared norm.
///
/// hnsw_rs passes the query row first. The bias is read from this row, because the other rows are at random addresses.
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

    /// Returns the bias of a row if `number` is 0, or its squared norm if `number` is 1.
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

/// Maximum number of rows in a group that is not split further.
const SMALL: usize = 4;
/// A split chooses two rows that are far apart. The second is the farthest from the first among this number of random
/// rows.
const POLE_CANDIDATES: u64 = 16;
/// Two halves are processed in parallel if each has at least this number of rows.
const PARALLEL: usize = 4096;

/// Returns the row numbers of the codes in an order in which similar rows follow each other.
///
/// Recursively splits the rows into halves. For each split, chooses two rows that are far apart (the poles). The half
/// of the rows that is nearer to the first pole comes first. The order does not depend on the number of threads.
pub(super) fn locality_order(codes: &Codes) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..codes.len() as u32).collect();
    halve(codes, &mut rows, &mut Vec::new(), 1);
    rows
}

/// Splits rows into halves, recursively. `keyed` is a buffer. `seed` is unique for each half and determines the random
/// choices in this half.
fn halve(codes: &Codes, rows: &mut [u32], keyed: &mut Vec<(f32, u32)>, seed: u64) {
    if rows.len() <= SMALL {
        return;
    }
    let any = |n: u64| rows[(mixed(mixed(seed) ^ n) % rows.len() as u64) as usize];
    let one = any(0);
    let distance = |n: u64| (codes.distance(one, any(n)), any(n));
    let Some((_, other)) = (1..=POLE_CANDIDATES).map(distance).max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return;
    };
    keyed.clear();
    keyed.extend(rows.iter().map(|row| (codes.distance(one, *row) - codes.distance(other, *row), *row)));
    let middle = rows.len() / 2;
    keyed.select_nth_unstable_by(middle, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (row, (_, keyed)) in rows.iter_mut().zip(keyed.iter()) {
        *row = *keyed;
    }
    let (left, right) = rows.split_at_mut(middle);
    if middle < PARALLEL {
        halve(codes, left, keyed, 2 * seed);
        halve(codes, right, keyed, 2 * seed + 1);
    } else {
        rayon::join(
            || halve(codes, left, keyed, 2 * seed),
            || halve(codes, right, &mut Vec::new(), 2 * seed + 1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metric, Points, distances::Dispatch};

    #[test]
    fn near_points_follow_each_other_and_none_is_lost() {
        // A thousand points on a line, in random order.
        let vectors: Vec<[f32; 2]> = (0..1000u64).map(|n| [(n * 617 % 1000) as f32, 1.0]).collect();
        let mut points = Points::new(Metric::L2, 2).unwrap();
        for (row, vector) in vectors.iter().enumerate() {
            points.push(row as u32, vector).unwrap();
        }
        let all: Vec<u32> = (0..1000).collect();
        let codes = Codes::new(&points, &all, Dispatch::portable());
        let order = locality_order(&codes);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, all);
        let step = |order: &[u32]| {
            let at = |row: u32| vectors[row as usize][0];
            order.windows(2).map(|pair| (at(pair[0]) - at(pair[1])).abs()).sum::<f32>() / 999.0
        };
        assert!(step(&order) < 20.0 && step(&all) > 300.0, "{} {}", step(&order), step(&all));
    }

    #[test]
    fn the_order_does_not_depend_on_the_number_of_threads() {
        let vectors: Vec<[f32; 3]> =
            (0..20_000u64).map(|n| [1, 2, 3].map(|k| (mixed(3 * n + k) >> 40) as f32)).collect();
        let mut points = Points::new(Metric::L2, 3).unwrap();
        for (row, vector) in vectors.iter().enumerate() {
            points.push(row as u32, vector).unwrap();
        }
        let all: Vec<u32> = (0..points.len() as u32).collect();
        let codes = Codes::new(&points, &all, Dispatch::best());
        let orders = [1, 4].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| locality_order(&codes))
        });
        assert_eq!(orders[0], orders[1]);
    }
}
