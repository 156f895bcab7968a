//! Duplicate detection: finds groups of utterances or dialogues that are equal or nearly equal.
//!
//! Two items are connected if the cosine of their vectors reaches a threshold. A group is a connected component with
//! at least two items. Items with equal texts share one vector. For example, 5000 occurrences of "thank you" form a
//! group, but only one vector is compared.
//!
//! If there are at most 8192 distinct vectors, or no HNSW graph, all pairs are compared. Otherwise, the neighbors of
//! each vector are searched in the graph. This search is approximate and can miss a pair. The two vectors of a missed
//! pair are usually connected through a third vector.

mod groups;
#[cfg(test)]
pub(super) mod tests;

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use rayon::prelude::*;
use serde::Serialize;
use turnwise_nearest::products;

use turnwise_core::{Error, Result};
use turnwise_corpus::filter::Filter;
use turnwise_index::{
    dense::{DenseReader, DistinctVectors, NeighborBuffers},
    vectors::Kind,
};
use turnwise_store::Snapshot;

/// Maximum number of vectors for which all pairs are compared by default. This takes a second or two.
const MAX_EXHAUSTIVE: usize = 8_192;
/// Maximum number of neighbors per graph search. More distant neighbors are usually connected to the vector through the
/// neighbors that were found.
const MAX_NEIGHBORS: usize = 256;
/// Number of vectors per block. Vectors are compared block by block, because a block fits into the CPU caches.
const BLOCK: usize = 128;
/// Number of blocks that are compared before the resulting pairs are joined. Limits memory use.
const BLOCKS_PER_ROUND: usize = 64;
/// Amount by which the threshold is lowered, because rounding can make the cosine of equal vectors slightly less than
/// 1.
const ROUNDING: f32 = 1e-6;

/// Options of duplicate detection.
#[derive(Debug, Clone)]
pub struct DuplicateOptions<'a> {
    /// Kind of the items: utterances or dialogues.
    pub kind: Kind,
    /// Minimum cosine at which two items count as duplicates, from -1 to 1.
    pub threshold: f32,
    /// Maximum number of groups to return. The largest groups are returned.
    pub limit: usize,
    /// Maximum number of members to return per group. 0 counts as 1.
    pub shown: usize,
    /// Whether to compare all pairs even if there are many vectors. By default, large sets use the HNSW graph.
    pub exact: bool,
    /// Filter for the items to compare; `None` for all items.
    pub filter: Option<&'a Filter>,
}

/// Result of duplicate detection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Duplicates {
    /// Number of items compared. Items without a vector or with a zero vector are skipped.
    pub looked_at: u64,
    /// Number of distinct vectors of the compared items. A vector counts twice if it belongs both to items in the graph
    /// and to items added after the last build of the graph.
    pub different: u64,
    /// True if all pairs were compared. False if approximate search in the HNSW graph was used.
    pub exact: bool,
    /// Total number of groups, including groups that are not returned.
    pub groups_found: u64,
    /// Total number of items in all groups, including groups that are not returned.
    pub in_groups: u64,
    /// The largest groups, sorted by size, then by the greatest id in the group, both in descending order.
    pub groups: Vec<Group>,
}

/// A group of equal or nearly equal items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Number of items in the group.
    pub size: u64,
    /// Number of dialogues that contain items of the group.
    pub dialogues: u64,
    /// Number of distinct vectors in the group, counted as in [`Duplicates::different`].
    pub different: u64,
    /// The largest members, sorted by descending number of items. A member is all items with the same vector. The first
    /// member represents the group.
    pub members: Vec<Member>,
}

/// All items of a group that have the same vector. Items that were added after the last build of the graph form
/// separate members.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// Number of items in this member.
    pub count: u64,
    /// Cosine of the vector of this member with the vector of the first member of the group, from −1 to 1.
    pub similarity: f32,
    /// Ids of at most three items of this member: the greatest ids, in descending order.
    pub ids: Vec<String>,
    /// Title of the dialogue of the first item in `ids`, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Number of turns of the first dialogue in `ids`; `None` if the items are utterances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// Text of the first item in `ids`. For a dialogue, its first user turn with text, else its first turn with text.
    pub text: String,
}

/// Finds groups of duplicate utterances or dialogues. The result does not depend on the number of threads. Returns an
/// error if the threshold is not between -1 and 1, or if `stop` returns true.
pub fn duplicates(
    snapshot: &Snapshot,
    dense: &DenseReader,
    wanted: &DuplicateOptions<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Duplicates> {
    find(snapshot, dense, wanted, MAX_EXHAUSTIVE, stop)
}

fn find(
    snapshot: &Snapshot,
    dense: &DenseReader,
    wanted: &DuplicateOptions<'_>,
    max_exhaustive: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Duplicates> {
    if !(-1.0..=1.0).contains(&wanted.threshold) {
        let message = format!("the threshold must be from -1 to 1, not {}", wanted.threshold);
        return Err(Error::input(message).with_hint("0.95 finds near-duplicates, 1 finds exact duplicates"));
    }
    let sweep = DistinctVectors::new(dense, snapshot, wanted.kind, wanted.filter)?;
    let exact = wanted.exact || sweep.len() <= max_exhaustive || sweep.built() == 0;
    let joined = join(&sweep, wanted.threshold - ROUNDING, exact, stop)?;
    let mut found = groups::gather(&sweep, joined, wanted)?;
    found.exact = exact;
    Ok(found)
}

/// Joins vectors into sets: the vectors of a pair are in the same set if their cosine reaches the threshold. If `exact`
/// is false, pairs with at least one vector in the graph are found by approximate search.
fn join(
    sweep: &DistinctVectors<'_>,
    threshold: f32,
    exact: bool,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<UnionFind> {
    let stopped = AtomicBool::new(false);
    let check_stop = || {
        if stop() {
            stopped.store(true, Ordering::Relaxed);
        }
        match stopped.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted { hint: None }),
            false => Ok(()),
        }
    };
    let mut joined = UnionFind::new(sweep.len());
    if !exact {
        for start in (0..sweep.len()).step_by(BLOCKS_PER_ROUND * BLOCK) {
            let points = start..(start + BLOCKS_PER_ROUND * BLOCK).min(sweep.len());
            let near = |near: &mut NeighborBuffers, point: usize| {
                check_stop()?;
                Ok((point, sweep.near(point, threshold, MAX_NEIGHBORS, near)?))
            };
            let found: Vec<(usize, Vec<usize>)> =
                points.into_par_iter().map_init(NeighborBuffers::default, near).collect::<Result<_>>()?;
            for (point, neighbors) in found {
                neighbors.into_iter().for_each(|other| _ = joined.join(point, other));
            }
        }
    }
    let from = if exact { 0 } else { sweep.built() };
    let blocks: Vec<Range<usize>> =
        (from..sweep.len()).step_by(BLOCK).map(|start| start..(start + BLOCK).min(sweep.len())).collect();
    for start in (0..blocks.len()).step_by(BLOCKS_PER_ROUND) {
        let together = start..(start + BLOCKS_PER_ROUND).min(blocks.len());
        let edges = |n: usize| block_edges(sweep, &blocks[n..], threshold, joined.clone(), &check_stop);
        let found: Vec<Vec<(usize, usize)>> = together.into_par_iter().map(edges).collect::<Result<_>>()?;
        for (a, b) in found.into_iter().flatten() {
            joined.join(a, b);
        }
    }
    Ok(joined)
}

/// Compares the vectors of the first block with the vectors of all blocks, including the first. Returns the pairs that
/// reach the threshold and join two separate sets of `joined`. Omits other pairs, which limits memory use if nearly all
/// items are similar.
fn block_edges(
    sweep: &DistinctVectors<'_>,
    blocks: &[Range<usize>],
    threshold: f32,
    mut joined: UnionFind,
    check_stop: &dyn Fn() -> Result<()>,
) -> Result<Vec<(usize, usize)>> {
    let (mut a, mut b, mut cosines, mut edges) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let rows = blocks.first().cloned().unwrap_or_default();
    rows.clone().try_for_each(|point| sweep.vector(point, &mut a))?;
    for columns in blocks {
        check_stop()?;
        b.clear();
        columns.clone().try_for_each(|point| sweep.vector(point, &mut b))?;
        products(&a, &b, sweep.dim(), &mut cosines);
        for (row, of_row) in rows.clone().zip(cosines.chunks_exact(columns.len())) {
            for (column, cosine) in columns.clone().zip(of_row) {
                if *cosine >= threshold && joined.join(row, column) {
                    edges.push((row, column));
                }
            }
        }
    }
    Ok(edges)
}

/// Disjoint sets of vector numbers (union-find). The smallest number in a set represents the set.
#[derive(Clone)]
struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    fn new(count: usize) -> Self {
        UnionFind { parents: (0..count as u32).collect() }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] as usize != at {
            self.parents[at] = self.parents[self.parents[at] as usize];
            at = self.parents[at] as usize;
        }
        at
    }

    /// Joins the sets that contain the vectors `a` and `b`. Returns true if `a` and `b` were in separate sets.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b) as u32;
        a != b
    }
}
