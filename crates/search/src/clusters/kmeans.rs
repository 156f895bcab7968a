//! Spherical k-means (by cosine) with k-means++ initialization.
//!
//! Centers are L2-normalized, so the nearest center of an item is the one with the greatest dot product. Every sum is
//! computed in the order of the items, so the result does not depend on the number of threads.

use rayon::prelude::*;
use turnwise_nearest::products;

use super::Stop;
use turnwise_core::{
    Result,
    random::{Random, hash64},
    vectors::normalize,
};

const MAX_ROUNDS: usize = 40;
/// Maximum size of the sample on which restarts are compared.
const RESTART_SAMPLE: usize = 16_384;
/// Number of items that a thread processes at a time.
const CHUNK: usize = 512;
/// Vectors with a distance (1 − cosine) below this value count as equal.
const EPSILON: f32 = 1e-6;

/// The items to cluster, and the matrix that has their vectors as rows.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    pub(super) flat: &'a [f32],
    pub(super) dim: usize,
    pub(super) items: &'a [Item],
}

/// An item to cluster: its row in the matrix, and the factor that L2-normalizes the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Item {
    pub(super) row: u32,
    pub(super) scale: f32,
}

impl<'a> Items<'a> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    fn vector(&self, n: usize) -> (&'a [f32], f32) {
        let Item { row, scale } = self.items[n];
        (&self.flat[row as usize * self.dim..][..self.dim], scale)
    }

    pub(super) fn unit(&self, n: usize) -> Vec<f32> {
        let (vector, scale) = self.vector(n);
        vector.iter().map(|v| v * scale).collect()
    }

    /// Calls `f` with the index of each item and its cosines with all centers, in parallel. Returns the results of `f`
    /// in the order of the items.
    fn each<T: Send>(&self, centers: &[f32], f: impl Fn(usize, &mut [f32]) -> T + Sync) -> Vec<T> {
        let chunk = |chunk: usize| {
            let mut cosines = Vec::new();
            let of_item = |n: usize| {
                let (vector, scale) = self.vector(n);
                products(vector, centers, self.dim, &mut cosines);
                cosines.iter_mut().for_each(|c| *c *= scale);
                f(n, &mut cosines)
            };
            (chunk * CHUNK..((chunk + 1) * CHUNK).min(self.len())).map(of_item).collect::<Vec<T>>()
        };
        (0..self.len().div_ceil(CHUNK)).into_par_iter().flat_map_iter(chunk).collect()
    }

    /// For each item, returns the cosine with the nearest center of a cluster to which the item does not belong. Used
    /// to compute the silhouette.
    pub(super) fn second(&self, partition: &Partition) -> Vec<f32> {
        self.each(&partition.centers, |n, cosines| {
            cosines[partition.of[n] as usize] = f32::NEG_INFINITY;
            cosines.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        })
    }
}

/// Result of k-means: the centers, and the cluster of each item.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Partition {
    /// L2-normalized centers, concatenated.
    pub(super) centers: Vec<f32>,
    /// Index of the cluster of each item.
    pub(super) of: Vec<u32>,
    /// Cosine of each item with the center of its cluster.
    pub(super) cosines: Vec<f32>,
    /// Indexes of the items of each cluster, in ascending order. No cluster is empty.
    pub(super) members: Vec<Vec<u32>>,
}

impl Partition {
    /// Returns the sum of the cosines of all items with their centers. Greater is better.
    fn total_cosine(&self) -> f64 {
        self.cosines.iter().map(|c| f64::from(*c)).sum()
    }
}

/// Groups the items into `k` clusters, or fewer if there are fewer than `k` distinct items. A `k` of 0 counts as 1.
///
/// Keeps the best of `restarts` runs. If there are more than [`RESTART_SAMPLE`] items, the runs use a sample. The best
/// centers are then refined on all items.
pub(super) fn kmeans(
    items: Items<'_>,
    k: usize,
    seed: u64,
    restarts: usize,
    stop: Stop<'_>,
) -> Result<Partition> {
    let k = k.clamp(1, items.len().max(1));
    let sample = sample(items, RESTART_SAMPLE, seed);
    let tried = Items { items: &sample, ..items };
    let mut best: Option<Partition> = None;
    for n in 0..restarts.max(1) as u64 {
        let centers = kmeans_plus_plus(tried, k, &mut Random::new(seed, n), stop)?;
        let found = lloyd(tried, centers, stop)?;
        if best.as_ref().is_none_or(|best| found.total_cosine() > best.total_cosine()) {
            best = Some(found);
        }
    }
    match best {
        Some(best) if sample.len() == items.len() => Ok(best),
        best => lloyd(items, best.map_or_else(Vec::new, |best| best.centers), stop),
    }
}

/// Returns a random sample of `limit` items, in their original order. Returns all items if there are at most `limit`.
pub(super) fn sample(items: Items<'_>, limit: usize, seed: u64) -> Vec<Item> {
    sample_indices(items.len(), limit, seed).into_iter().map(|n| items.items[n]).collect()
}

/// Returns a random sample of `limit` indices below `count`, in ascending order. Returns all indices if there are
/// at most `limit`.
pub(super) fn sample_indices(count: usize, limit: usize, seed: u64) -> Vec<usize> {
    if count <= limit {
        return (0..count).collect();
    }
    let mut hashes: Vec<(u64, usize)> = (0..count).map(|n| (hash64(seed, n as u64), n)).collect();
    hashes.select_nth_unstable(limit);
    let mut drawn: Vec<usize> = hashes[..limit].iter().map(|(_, n)| *n).collect();
    drawn.sort_unstable();
    drawn
}

/// Chooses initial centers by greedy k-means++. Candidates for a new center are random items, drawn with a probability
/// proportional to their distance from the nearest center. The candidate that most reduces the sum of these distances
/// becomes a center. Returns fewer than `k` centers if there are fewer distinct items.
fn kmeans_plus_plus(items: Items<'_>, k: usize, random: &mut Random, stop: Stop<'_>) -> Result<Vec<f32>> {
    let mut centers: Vec<f32> = Vec::new();
    let mut distances = vec![f32::INFINITY; items.len()];
    let draws = 2 + k.ilog2() as usize;
    while centers.len() < k * items.dim {
        stop.check()?;
        let mut best: Option<(f64, Vec<f32>, Vec<f32>)> = None;
        for _ in 0..draws {
            let Some(next) = draw(&distances, random) else { break };
            let center = items.unit(next);
            let left = items.each(&center, |n, cosines| {
                let now = (1.0 - cosines[0]).min(distances[n]);
                if now < EPSILON { 0.0 } else { now }
            });
            let sum = left.iter().map(|d| f64::from(*d)).sum();
            if best.as_ref().is_none_or(|(least, ..)| sum < *least) {
                best = Some((sum, center, left));
            }
        }
        // Stop if every item equals a center, because then no more items can be drawn.
        let Some((_, center, left)) = best else { break };
        centers.extend_from_slice(&center);
        distances = left;
    }
    Ok(centers)
}

/// Draws a random index with a probability proportional to its weight. If the weights are infinite, which means that
/// there is no center yet, the probabilities are equal. Returns `None` if all weights are 0.
fn draw(weights: &[f32], random: &mut Random) -> Option<usize> {
    if weights.first() == Some(&f32::INFINITY) {
        return Some((random.unit() * weights.len() as f64) as usize);
    }
    let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let mut left = random.unit() * sum;
    let mut last = None;
    for (n, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        last = Some(n);
        left -= f64::from(*weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Runs Lloyd's algorithm from the given centers until no item changes its cluster. Stops after at most [`MAX_ROUNDS`]
/// rounds.
fn lloyd(items: Items<'_>, mut centers: Vec<f32>, stop: Stop<'_>) -> Result<Partition> {
    let dim = items.dim;
    let mut before: Vec<u32> = Vec::new();
    let mut rounds = 0;
    loop {
        stop.check()?;
        let nearest = items.each(&centers, |_, cosines| {
            let mut best = (0u32, f32::NEG_INFINITY);
            for (c, cosine) in cosines.iter().enumerate() {
                if *cosine > best.1 {
                    best = (c as u32, *cosine);
                }
            }
            best
        });
        let (mut of, mut cosines): (Vec<u32>, Vec<f32>) = nearest.into_iter().unzip();
        let mut members = members(&of, centers.len() / dim.max(1));
        fill_empty(items, &mut centers, &mut of, &mut cosines, &mut members);
        rounds += 1;
        if of == before || rounds == MAX_ROUNDS {
            return Ok(without_empty(Partition { centers, of, cosines, members }, dim));
        }
        let moved: Vec<Vec<f32>> = members
            .par_iter()
            .enumerate()
            .map(|(c, members)| {
                let mut sum = vec![0.0f64; dim];
                for n in members {
                    let (vector, scale) = items.vector(*n as usize);
                    sum.iter_mut().zip(vector).for_each(|(s, v)| *s += f64::from(v * scale));
                }
                let mut center: Vec<f32> = sum.iter().map(|s| *s as f32).collect();
                normalize(&mut center);
                // If the vectors sum to 0, they have no mean direction, so keep the old center.
                match center.iter().any(|v| *v != 0.0) {
                    true => center,
                    false => centers[c * dim..(c + 1) * dim].to_vec(),
                }
            })
            .collect();
        centers = moved.concat();
        before = of;
    }
}

fn members(of: &[u32], clusters: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); clusters];
    of.iter().enumerate().for_each(|(n, c)| members[*c as usize].push(n as u32));
    members
}

/// Moves one item to each empty cluster: the item that is farthest from the center of its old cluster. This item
/// becomes the center of the cluster. Does not move an item that is alone in its cluster or equal to the center, so a
/// cluster can stay empty.
fn fill_empty(
    items: Items<'_>,
    centers: &mut [f32],
    of: &mut [u32],
    cosines: &mut [f32],
    members: &mut [Vec<u32>],
) {
    for empty in 0..members.len() {
        if !members[empty].is_empty() {
            continue;
        }
        let may = |n: &usize| members[of[*n] as usize].len() > 1 && cosines[*n] < 1.0 - EPSILON;
        let farthest = (0..items.len()).filter(may).min_by(|a, b| cosines[*a].total_cmp(&cosines[*b]));
        let Some(farthest) = farthest else { return };
        members[of[farthest] as usize].retain(|n| *n as usize != farthest);
        members[empty].push(farthest as u32);
        centers[empty * items.dim..(empty + 1) * items.dim].copy_from_slice(&items.unit(farthest));
        (of[farthest], cosines[farthest]) = (empty as u32, 1.0);
    }
}

fn without_empty(partition: Partition, dim: usize) -> Partition {
    let Partition { centers, cosines, members, .. } = partition;
    let kept: Vec<usize> = (0..members.len()).filter(|c| !members[*c].is_empty()).collect();
    let centers = kept.iter().flat_map(|c| centers[c * dim..(c + 1) * dim].iter().copied()).collect();
    let members: Vec<Vec<u32>> = kept.iter().map(|c| members[*c].clone()).collect();
    let mut of = vec![0; cosines.len()];
    for (c, members) in members.iter().enumerate() {
        members.iter().for_each(|n| of[*n as usize] = c as u32);
    }
    Partition { centers, of, cosines, members }
}
