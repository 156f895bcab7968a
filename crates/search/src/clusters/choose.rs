//! How many clusters, where nobody says it.
//!
//! A few numbers up to the root of the number of items (and [`MOST`]) are tried on a sample. Each is judged by the
//! simplified silhouette: the mean over the items of `(b − a) / b`, where `a` is the distance (1 − cosine) from the item's
//! own centre and `b` that from the nearest other one; an item that is alone counts 0. That is often best for two clusters,
//! which nobody wants who looks for a map. So the largest number is taken whose silhouette is at least [`NEARLY`] of the
//! best, and then the best of the numbers about it. Where few groups lie far apart, languages for instance, and topics within
//! them, the silhouette falls and then rises again ([`RISES`]): the second height is taken then.

use serde::Serialize;

use super::{
    Stop,
    kmeans::{Items, Partition, kmeans, sample},
};
use turnwise_core::error::Result;

/// Items that are looked at.
const SAMPLE: usize = 2_000;
/// The most clusters that are tried: more are no map.
const MOST: usize = 100;
/// As good as the best is what comes so near to it.
const NEARLY: f64 = 0.9;
/// By how much it rises again where there are groups within groups: more than by chance.
const RISES: f64 = 1.2;
/// The least part of the best that the second height has.
const SECOND: f64 = 0.5;
/// Beginnings that are tried for each number.
const RESTARTS: usize = 3;
/// Numbers that are tried between one of the grid and its neighbours.
const ABOUT: usize = 8;

/// A number of clusters that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Tried {
    /// How many clusters.
    pub k: usize,
    /// Their silhouette: 1 where all are far apart, 0 where they are not.
    pub silhouette: f64,
}

/// The number of clusters to make, and what was tried, growing.
pub(super) fn choose(items: Items<'_>, seed: u64, stop: Stop<'_>) -> Result<(usize, Vec<Tried>)> {
    let most = items.len().isqrt().min(MOST);
    if most < 2 {
        return Ok((items.len().min(1), Vec::new()));
    }
    let sample = sample(items, SAMPLE, seed ^ 1);
    let items = Items { items: &sample, ..items };
    let mut tried: Vec<Tried> = Vec::new();
    let attempt = |k: usize, tried: &mut Vec<Tried>| -> Result<()> {
        let partition = kmeans(items, k, seed, RESTARTS, stop)?;
        tried.push(Tried { k, silhouette: silhouette(items, &partition) });
        Ok(())
    };
    for k in grid(most) {
        attempt(k, &mut tried)?;
    }
    let first = nearly_best(&tried);
    let at = second_height(&tried[first..]).map_or(first, |second| first + second);
    let below = at.checked_sub(1).map_or(1, |before| tried[before].k);
    let above = tried.get(at + 1).map_or(most + 1, |next| next.k);
    let chosen = tried[at].k;
    let step = (above - below).div_ceil(ABOUT);
    for k in (below + 1..above).step_by(step).filter(|k| *k != chosen) {
        attempt(k, &mut tried)?;
    }
    let about = tried.iter().filter(|t| (below + 1..above).contains(&t.k));
    let best = about.max_by(|a, b| a.silhouette.total_cmp(&b.silhouette).then(b.k.cmp(&a.k)));
    let chosen = best.map_or(chosen, |t| t.k);
    tried.sort_by_key(|t| t.k);
    Ok((chosen, tried))
}

/// The place of the largest number that is about as good as the best.
fn nearly_best(tried: &[Tried]) -> usize {
    let best = tried.iter().map(|t| t.silhouette).fold(f64::NEG_INFINITY, f64::max);
    tried.iter().rposition(|t| t.silhouette >= best - best.abs() * (1.0 - NEARLY)).unwrap_or(0)
}

/// Of silhouettes from the best on, the place where they have risen again the farthest.
fn second_height(tried: &[Tried]) -> Option<usize> {
    let best = tried.first()?.silhouette;
    let mut lowest = best;
    let risen = tried.iter().enumerate().filter(|(_, t)| {
        lowest = lowest.min(t.silhouette);
        lowest > 0.0 && t.silhouette >= lowest * RISES && t.silhouette >= best * SECOND
    });
    let (highest, _) = risen.max_by(|(_, a), (_, b)| a.silhouette.total_cmp(&b.silhouette))?;
    Some(highest + nearly_best(&tried[highest..]))
}

/// From 2 on, one by one at first, then in steps of a quarter.
fn grid(most: usize) -> Vec<usize> {
    let mut grid = vec![2];
    let mut next = 3;
    while next <= most {
        grid.push(next);
        next = (next + 1).max(next * 5 / 4);
    }
    grid
}

fn silhouette(items: Items<'_>, partition: &Partition) -> f64 {
    if partition.members.len() < 2 {
        return 0.0;
    }
    let second = items.second(partition);
    let of = |n: usize| {
        let (a, b) = (1.0 - f64::from(partition.cosines[n]), 1.0 - f64::from(second[n]));
        let alone = partition.members[partition.of[n] as usize].len() == 1;
        if alone || a.max(b) <= 0.0 { 0.0 } else { (b - a) / a.max(b) }
    };
    (0..items.len()).map(of).sum::<f64>() / items.len() as f64
}
