//! Automatic choice of the number of clusters.
//!
//! Several cluster counts are tried on a sample, up to the square root of the number of items and at most
//! [`MAX_CLUSTERS`]. Each clustering is evaluated by the simplified silhouette. This is the mean over the items of
//! `(b − a) / max(a, b)`, where `a` is the distance (1 − cosine) from the item's own center and `b` is the distance
//! from the nearest other center. An item alone in its cluster has the value 0.
//!
//! The silhouette is often best for two clusters, which is not useful for a topic map. Therefore, the largest cluster
//! count with a silhouette of at least [`NEARLY_BEST`] times the best silhouette is taken. This count is the first
//! peak.
//!
//! If the topics belong to a few distant groups, such as languages, the silhouette falls with more clusters and then
//! rises again to a second peak. The second peak is preferred if its silhouette is at least [`SECOND_PEAK_RISE`] times
//! the lowest silhouette before it, and at least [`SECOND_PEAK_MIN`] times the silhouette of the first peak.
//!
//! Finally, more counts near the chosen peak are tried. The result is the count near the peak with the best silhouette.

use serde::Serialize;

use super::{
    Stop,
    kmeans::{Items, Partition, kmeans, sample},
};
use turnwise_core::Result;

/// Maximum number of items in the sample on which cluster counts are tried.
const SAMPLE: usize = 2_000;
/// Maximum number of clusters to try. A topic map with more clusters would be unreadable.
const MAX_CLUSTERS: usize = 100;
/// A silhouette counts as nearly best if it is at least this fraction of the best silhouette.
const NEARLY_BEST: f64 = 0.9;
/// Minimum ratio of the silhouette of a second peak to the lowest silhouette before the peak. Smaller rises can be
/// random.
const SECOND_PEAK_RISE: f64 = 1.2;
/// Minimum ratio of the silhouette of a second peak to that of the first peak.
const SECOND_PEAK_MIN: f64 = 0.5;
/// Number of k-means restarts for each cluster count.
const RESTARTS: usize = 3;
/// Maximum number of further cluster counts to try near the peak. The further counts are between the previous and the
/// next tried count.
const REFINEMENTS: usize = 8;

/// A tried number of clusters, with the silhouette of the clustering.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Tried {
    /// Number of clusters.
    pub k: usize,
    /// Simplified silhouette, measured on a sample: near 1 if the clusters are well separated, near 0 if they are not.
    pub silhouette: f64,
}

/// Chooses the number of clusters. Also returns the tried cluster counts in ascending order. If there are at most three
/// items, tries nothing: returns 1, or 0 if there are no items.
pub(super) fn choose(items: Items<'_>, seed: u64, stop: Stop<'_>) -> Result<(usize, Vec<Tried>)> {
    let most = items.len().isqrt().min(MAX_CLUSTERS);
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
    let at = second_peak(&tried[first..]).map_or(first, |second| first + second);
    let below = at.checked_sub(1).map_or(1, |before| tried[before].k);
    let above = tried.get(at + 1).map_or(most + 1, |next| next.k);
    let chosen = tried[at].k;
    let step = (above - below).div_ceil(REFINEMENTS);
    for k in (below + 1..above).step_by(step).filter(|k| *k != chosen) {
        attempt(k, &mut tried)?;
    }
    let about = tried.iter().filter(|t| (below + 1..above).contains(&t.k));
    let best = about.max_by(|a, b| a.silhouette.total_cmp(&b.silhouette).then(b.k.cmp(&a.k)));
    let chosen = best.map_or(chosen, |t| t.k);
    tried.sort_by_key(|t| t.k);
    Ok((chosen, tried))
}

/// Returns the index of the last entry with a nearly best silhouette (see [`NEARLY_BEST`]).
fn nearly_best(tried: &[Tried]) -> usize {
    let best = tried.iter().map(|t| t.silhouette).fold(f64::NEG_INFINITY, f64::max);
    tried.iter().rposition(|t| t.silhouette >= best - best.abs() * (1.0 - NEARLY_BEST)).unwrap_or(0)
}

/// Finds a second peak of the silhouette; `tried` starts at the first peak. Returns the index of the last entry whose
/// silhouette is nearly as good as that of the second peak. Returns `None` if the silhouette does not rise enough
/// again.
fn second_peak(tried: &[Tried]) -> Option<usize> {
    let best = tried.first()?.silhouette;
    let mut lowest = best;
    let risen = tried.iter().enumerate().filter(|(_, t)| {
        lowest = lowest.min(t.silhouette);
        lowest > 0.0 && t.silhouette >= lowest * SECOND_PEAK_RISE && t.silhouette >= best * SECOND_PEAK_MIN
    });
    let (highest, _) = risen.max_by(|(_, a), (_, b)| a.silhouette.total_cmp(&b.silhouette))?;
    Some(highest + nearly_best(&tried[highest..]))
}

/// Returns the cluster counts to try, from 2 up to at most `most`. They increase by 1 at first, later by about 25%.
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
