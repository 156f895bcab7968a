//! k-means by the cosine: seeded (k-means++), and the same at any number of threads.
//!
//! Centres have length 1, so that the nearest is the one with the greatest product. Every sum is made in the order of the
//! items, whoever makes it.

use rayon::prelude::*;
use turnwise_nearest::products;

use super::Stop;
use turnwise_core::{
    error::Result,
    random::{Random, mixed},
    vectors::normalize,
};

/// Rounds of assigning and moving, at most.
const ROUNDS: usize = 40;
/// Which beginning is the best is found out on so many items, at most.
const TRIED_ON: usize = 16_384;
/// Items that a thread takes at a time.
const CHUNK: usize = 512;
/// Nearer than this is the same place.
const SAME: f32 = 1e-6;

/// What is put into clusters: vectors where they lie, and what brings each to length 1.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    pub(super) flat: &'a [f32],
    pub(super) dim: usize,
    pub(super) items: &'a [Item],
}

/// A vector of some length, not of none.
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

    /// The cosines of each item with each of some centres, as far as `f` wants to keep them.
    fn each<T: Send>(&self, centres: &[f32], f: impl Fn(usize, &mut [f32]) -> T + Sync) -> Vec<T> {
        let chunk = |chunk: usize| {
            let mut cosines = Vec::new();
            let of_item = |n: usize| {
                let (vector, scale) = self.vector(n);
                products(vector, centres, self.dim, &mut cosines);
                cosines.iter_mut().for_each(|c| *c *= scale);
                f(n, &mut cosines)
            };
            (chunk * CHUNK..((chunk + 1) * CHUNK).min(self.len())).map(of_item).collect::<Vec<T>>()
        };
        (0..self.len().div_ceil(CHUNK)).into_par_iter().flat_map_iter(chunk).collect()
    }

    /// The cosines with the nearest centre but one, for whoever wants to know how far apart clusters are.
    pub(super) fn second(&self, partition: &Partition) -> Vec<f32> {
        self.each(&partition.centres, |n, cosines| {
            cosines[partition.of[n] as usize] = f32::NEG_INFINITY;
            cosines.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        })
    }
}

/// Items in clusters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Partition {
    /// One after the other, of length 1.
    pub(super) centres: Vec<f32>,
    /// The cluster of each item.
    pub(super) of: Vec<u32>,
    /// Each item's cosine with its centre.
    pub(super) cosines: Vec<f32>,
    /// The items of each cluster, in their order; none is empty.
    pub(super) members: Vec<Vec<u32>>,
}

impl Partition {
    /// The sum of all cosines: the greater, the better.
    fn worth(&self) -> f64 {
        self.cosines.iter().map(|c| f64::from(*c)).sum()
    }
}

/// At most `k` clusters, fewer where there are fewer different items: the best of some beginnings.
pub(super) fn kmeans(
    items: Items<'_>,
    k: usize,
    seed: u64,
    restarts: usize,
    stop: Stop<'_>,
) -> Result<Partition> {
    let k = k.clamp(1, items.len().max(1));
    let sample = sample(items, TRIED_ON, seed);
    let tried = Items { items: &sample, ..items };
    let mut best: Option<Partition> = None;
    for n in 0..restarts.max(1) as u64 {
        let centres = seeded(tried, k, &mut Random::new(seed, n), stop)?;
        let found = lloyd(tried, centres, stop)?;
        if best.as_ref().is_none_or(|best| found.worth() > best.worth()) {
            best = Some(found);
        }
    }
    let centres = best.as_ref().map_or_else(Vec::new, |best| best.centres.clone());
    match best {
        Some(best) if sample.len() == items.len() => Ok(best),
        _ => lloyd(items, centres, stop),
    }
}

/// So many of the items, drawn by their places, in their order.
pub(super) fn sample(items: Items<'_>, most: usize, seed: u64) -> Vec<Item> {
    drawn(items.len(), most, seed).into_iter().map(|n| items.items[n]).collect()
}

/// So many of the numbers below `count`, ascending.
pub(super) fn drawn(count: usize, most: usize, seed: u64) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    let mut places: Vec<(u64, usize)> = (0..count).map(|n| (mixed(seed, n as u64), n)).collect();
    places.select_nth_unstable(most);
    let mut drawn: Vec<usize> = places[..most].iter().map(|(_, n)| *n).collect();
    drawn.sort_unstable();
    drawn
}

/// k-means++: each next centre is an item, drawn with a chance that grows with its distance from those before. Of a few
/// that are drawn, the one is taken that leaves the others nearest to a centre.
fn seeded(items: Items<'_>, k: usize, random: &mut Random, stop: Stop<'_>) -> Result<Vec<f32>> {
    let mut centres: Vec<f32> = Vec::new();
    let mut apart = vec![f32::INFINITY; items.len()];
    let draws = 2 + k.ilog2() as usize;
    while centres.len() < k * items.dim {
        stop.check()?;
        let mut best: Option<(f64, Vec<f32>, Vec<f32>)> = None;
        for _ in 0..draws {
            let Some(next) = draw(&apart, random) else { break };
            let centre = items.unit(next);
            let left = items.each(&centre, |n, cosines| {
                let now = (1.0 - cosines[0]).min(apart[n]);
                if now < SAME { 0.0 } else { now }
            });
            let sum = left.iter().map(|d| f64::from(*d)).sum();
            if best.as_ref().is_none_or(|(least, ..)| sum < *least) {
                best = Some((sum, centre, left));
            }
        }
        // Where nothing can be drawn, every item is a centre already.
        let Some((_, centre, left)) = best else { break };
        centres.extend_from_slice(&centre);
        apart = left;
    }
    Ok(centres)
}

/// A place, by weight; `None` where nothing has any.
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

/// Lloyd's rounds from given centres.
fn lloyd(items: Items<'_>, mut centres: Vec<f32>, stop: Stop<'_>) -> Result<Partition> {
    let dim = items.dim;
    let mut before: Vec<u32> = Vec::new();
    let mut rounds = 0;
    loop {
        stop.check()?;
        let nearest = items.each(&centres, |_, cosines| {
            let mut best = (0u32, f32::NEG_INFINITY);
            for (c, cosine) in cosines.iter().enumerate() {
                if *cosine > best.1 {
                    best = (c as u32, *cosine);
                }
            }
            best
        });
        let (mut of, mut cosines): (Vec<u32>, Vec<f32>) = nearest.into_iter().unzip();
        let mut members = members(&of, centres.len() / dim.max(1));
        fill_empty(items, &mut centres, &mut of, &mut cosines, &mut members);
        rounds += 1;
        if of == before || rounds == ROUNDS {
            return Ok(without_empty(Partition { centres, of, cosines, members }, dim));
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
                let mut centre: Vec<f32> = sum.iter().map(|s| *s as f32).collect();
                normalize(&mut centre);
                // Opposite items have no direction in common; then the centre stays.
                match centre.iter().any(|v| *v != 0.0) {
                    true => centre,
                    false => centres[c * dim..(c + 1) * dim].to_vec(),
                }
            })
            .collect();
        centres = moved.concat();
        before = of;
    }
}

fn members(of: &[u32], clusters: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); clusters];
    of.iter().enumerate().for_each(|(n, c)| members[*c as usize].push(n as u32));
    members
}

/// An empty cluster begins anew at the item that is farthest from its centre.
fn fill_empty(
    items: Items<'_>,
    centres: &mut [f32],
    of: &mut [u32],
    cosines: &mut [f32],
    members: &mut [Vec<u32>],
) {
    for empty in 0..members.len() {
        if !members[empty].is_empty() {
            continue;
        }
        let may = |n: &usize| members[of[*n] as usize].len() > 1 && cosines[*n] < 1.0 - SAME;
        let farthest = (0..items.len()).filter(may).min_by(|a, b| cosines[*a].total_cmp(&cosines[*b]));
        let Some(farthest) = farthest else { return };
        members[of[farthest] as usize].retain(|n| *n as usize != farthest);
        members[empty].push(farthest as u32);
        centres[empty * items.dim..(empty + 1) * items.dim].copy_from_slice(&items.unit(farthest));
        (of[farthest], cosines[farthest]) = (empty as u32, 1.0);
    }
}

fn without_empty(partition: Partition, dim: usize) -> Partition {
    let Partition { centres, cosines, members, .. } = partition;
    let kept: Vec<usize> = (0..members.len()).filter(|c| !members[*c].is_empty()).collect();
    let centres = kept.iter().flat_map(|c| centres[c * dim..(c + 1) * dim].iter().copied()).collect();
    let members: Vec<Vec<u32>> = kept.iter().map(|c| members[*c].clone()).collect();
    let mut of = vec![0; cosines.len()];
    for (c, members) in members.iter().enumerate() {
        members.iter().for_each(|n| of[*n as usize] = c as u32);
    }
    Partition { centres, of, cosines, members }
}
