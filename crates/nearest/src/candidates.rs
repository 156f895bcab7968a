//! Two methods that find candidates by their quantized vectors: a beam search in the graph, and a scan of all allowed
//! nodes. The native builder uses the beam search too.

use std::cmp::Ordering;

use crate::{
    distances::{Distances, Task},
    search::NodeSet,
};

/// Bit in [`Candidate::node`] that marks a candidate whose neighbors have been visited.
pub(crate) const EXPANDED: u32 = 1 << 31;

/// Cost of clearing one 64-bit word at a random address, as a number of consecutive words cleared in the same time.
const CLEARED_PER_WORD: usize = 8;

/// Visited node, and its distance from the query.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// Distance from the query; smaller is nearer.
    pub(crate) distance: f32,
    /// The node. During a beam search, its top bit may be [`EXPANDED`].
    pub(crate) node: u32,
}

impl Candidate {
    pub(crate) fn order(&self, other: &Candidate) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.node.cmp(&other.node))
    }
}

/// Set of visited nodes: one bit per node, so that it fits into the cache.
#[derive(Default)]
pub(crate) struct Visited {
    bits: Vec<u64>,
    nodes: usize,
    /// Visited nodes, in the order of the visits.
    seen: Vec<u32>,
}

impl Visited {
    /// Clears the set for a new search in a graph with `nodes` nodes.
    pub(crate) fn begin(&mut self, nodes: usize) {
        // If the last search visited a large part of the nodes, clearing the whole set is faster.
        if self.nodes != nodes || self.bits.len() <= CLEARED_PER_WORD * self.seen.len() {
            self.bits.clear();
            self.bits.resize(nodes.div_ceil(64), 0);
            self.nodes = nodes;
        } else {
            self.seen.iter().for_each(|node| self.bits[*node as usize / 64] = 0);
        }
        self.seen.clear();
    }
}

/// Computes the distances between one query and the nodes of a graph.
pub(crate) trait NodeDistance {
    /// Returns the distance of a node from the query; smaller is nearer.
    ///
    /// # Safety
    ///
    /// The node must be in the graph.
    unsafe fn distance<S: Distances>(&self, node: u32) -> f32;

    fn prefetch<S: Distances>(&self, node: u32);
}

/// Distances between a query and the nodes of a graph, computed from 8-bit codes.
#[derive(Clone, Copy)]
pub(crate) struct CodeDistances<'a> {
    pub(crate) codes: &'a [u8],
    /// Squared norms of the nodes' codes, for Euclidean distances. If empty, a distance is the negated inner product.
    pub(crate) norms: &'a [u32],
    pub(crate) row: &'a [u8],
    /// 128 times the sum of the query's signed codes.
    pub(crate) bias: i32,
    /// Bytes per row of codes.
    pub(crate) stride: usize,
}

impl NodeDistance for CodeDistances<'_> {
    #[inline(always)]
    unsafe fn distance<S: Distances>(&self, node: u32) -> f32 {
        // SAFETY: there is a row of codes for each node.
        unsafe {
            let row = self.codes.as_ptr().add(node as usize * self.stride);
            let dot = S::code_dot(row, self.row.as_ptr(), self.bias, self.stride);
            // The squared norm of the query is left out, because it is the same for all nodes.
            match self.norms.get(node as usize) {
                None => -dot as f32,
                Some(norm) => *norm as f32 - 2.0 * dot as f32,
            }
        }
    }

    #[inline(always)]
    fn prefetch<S: Distances>(&self, node: u32) {
        S::prefetch_all(self.codes.as_ptr().wrapping_add(node as usize * self.stride), self.stride);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Lists<'a> {
    pub(crate) flat: &'a [u32],
    pub(crate) width: usize,
}

impl<'a> Lists<'a> {
    /// Returns the neighbor list of a node, including unused entries at the end. Returns an empty list if the node is
    /// not on this level.
    #[inline(always)]
    pub(crate) fn of(self, node: u32) -> &'a [u32] {
        self.flat.get(node as usize * self.width..(node as usize + 1) * self.width).unwrap_or(&[])
    }

    #[inline(always)]
    fn prefetch<S: Distances>(self, node: u32) {
        let list = self.flat.as_ptr().wrapping_add(node as usize * self.width);
        S::prefetch_all(list.cast(), self.width * 4);
    }
}

/// Greedy search on one level: starts at `at`, repeatedly moves to the neighbor nearest to the query, and stops if no
/// neighbor is nearer than the current node. Returns this node. `nodes` is the number of nodes of the graph.
///
/// # Safety
///
/// `at` must be a node, and there must be codes for `nodes` nodes.
#[inline(always)]
pub(crate) unsafe fn descend<S: Distances>(
    lists: Lists<'_>,
    nodes: usize,
    distances: &impl NodeDistance,
    mut at: u32,
) -> u32 {
    // SAFETY: guaranteed by the caller; neighbors are compared with the number of nodes.
    let mut distance = unsafe { distances.distance::<S>(at) };
    loop {
        let before = at;
        let list = lists.of(at);
        let list = &list[..list.iter().position(|n| *n as usize >= nodes).unwrap_or(list.len())];
        for neighbor in list {
            distances.prefetch::<S>(*neighbor);
        }
        for neighbor in list {
            // SAFETY: the caller guarantees codes for all nodes; neighbors are compared with the number of nodes.
            let this = unsafe { distances.distance::<S>(*neighbor) };
            if this < distance {
                (distance, at) = (this, *neighbor);
            }
        }
        if at == before {
            return at;
        }
    }
}

/// Beam search on one level: repeatedly expands the nearest candidate that is not expanded yet, by visiting its
/// neighbors. Stops if all candidates are expanded. At the end, `candidates` holds the nearest visited nodes, at most
/// `ef`, sorted by ascending distance.
///
/// # Safety
///
/// `start` must be a node. `visited.begin` must have been called with the number of nodes that have codes.
#[inline(always)]
pub(crate) unsafe fn walk<S: Distances>(
    lists: Lists<'_>,
    distances: &impl NodeDistance,
    start: u32,
    ef: usize,
    visited: &mut Visited,
    candidates: &mut Vec<Candidate>,
) {
    const AHEAD: usize = 8;
    let Visited { bits, nodes, seen } = visited;
    let nodes = *nodes;
    candidates.clear();
    candidates.reserve(ef + 1);
    bits[start as usize / 64] |= 1 << (start % 64);
    seen.push(start);
    // SAFETY: guaranteed by the caller. Neighbors are compared with the number of nodes, and each node has codes.
    candidates.push(Candidate { distance: unsafe { distances.distance::<S>(start) }, node: start });
    let mut at = 0;
    while at < candidates.len() {
        let node = candidates[at].node;
        if node & EXPANDED != 0 {
            at += 1;
            continue;
        }
        candidates[at].node |= EXPANDED;
        // The next candidate is probably expanded next, unless one of the neighbors is nearer.
        if let Some(next) = candidates[at + 1..].iter().find(|c| c.node & EXPANDED == 0) {
            lists.prefetch::<S>(next.node);
        }
        let before = seen.len();
        for neighbor in lists.of(node) {
            // `NONE`, which marks the end of the list, is larger than any node number.
            if *neighbor as usize >= nodes {
                break;
            }
            let (word, bit) = (&mut bits[*neighbor as usize / 64], 1 << (neighbor % 64));
            if *word & bit == 0 {
                *word |= bit;
                seen.push(*neighbor);
            }
        }
        let fresh = &seen[before..];
        for neighbor in fresh.iter().take(AHEAD) {
            distances.prefetch::<S>(*neighbor);
        }
        let mut first = at + 1;
        for n in 0..fresh.len() {
            if let Some(later) = fresh.get(n + AHEAD) {
                distances.prefetch::<S>(*later);
            }
            // SAFETY: the caller guarantees codes for all nodes; neighbors are compared with the number of nodes.
            let distance = unsafe { distances.distance::<S>(fresh[n]) };
            if candidates.len() >= ef {
                if candidates.last().is_some_and(|last| distance >= last.distance) {
                    continue;
                }
                candidates.pop();
            }
            let place = candidates.partition_point(|c| c.distance < distance);
            candidates.insert(place, Candidate { distance, node: fresh[n] });
            if place <= first {
                lists.prefetch::<S>(fresh[n]);
                first = place;
            }
        }
        at = first;
    }
}

/// Prefetch distance of a scan with a filter, in nodes.
const AHEAD: usize = 8;

/// Task that finds the `keep` nearest allowed nodes by computing the distances of all allowed nodes.
pub(crate) struct ApproximateScan<'a, N> {
    pub(crate) distances: N,
    pub(crate) nodes: usize,
    /// The allowed nodes; `None` for all.
    pub(crate) filter: Option<&'a NodeSet>,
    pub(crate) keep: usize,
    /// Receives the found nodes, in no particular order.
    pub(crate) candidates: &'a mut Vec<Candidate>,
}

impl<N: NodeDistance> Task for ApproximateScan<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let ApproximateScan { distances, nodes, filter, keep, candidates } = self;
        candidates.clear();
        let mut best = Best { candidates, keep, worst: f32::INFINITY };
        // This code uses loops instead of closures. A closure is compiled without the processor's features, so its
        // intrinsics would not be inlined.
        match filter {
            None => {
                for node in 0..nodes as u32 {
                    // SAFETY: all numbers below `nodes` are nodes.
                    best.offer(Candidate { distance: unsafe { distances.distance::<S>(node) }, node });
                }
            }
            Some(filter) => {
                let mut later = filter.nodes().skip(AHEAD);
                for node in filter.nodes() {
                    if let Some(node) = later.next() {
                        distances.prefetch::<S>(node);
                    }
                    // SAFETY: `filter` contains only nodes.
                    best.offer(Candidate { distance: unsafe { distances.distance::<S>(node) }, node });
                }
            }
        }
        best.drop_others();
    }
}

/// Collector of the `keep` best candidates. When the list has `2 · keep` candidates, the worse half is dropped.
struct Best<'a> {
    candidates: &'a mut Vec<Candidate>,
    keep: usize,
    /// Distance of the farthest candidate that was kept the last time that candidates were dropped. A new candidate is
    /// skipped if it is not nearer.
    worst: f32,
}

impl Best<'_> {
    #[inline(always)]
    fn offer(&mut self, candidate: Candidate) {
        if candidate.distance < self.worst {
            self.candidates.push(candidate);
            if self.candidates.len() >= 2 * self.keep {
                self.drop_others();
            }
        }
    }

    #[inline(never)]
    fn drop_others(&mut self) {
        if self.candidates.len() > self.keep {
            let (_, last, _) = self.candidates.select_nth_unstable_by(self.keep - 1, Candidate::order);
            self.worst = last.distance;
            self.candidates.truncate(self.keep);
        }
    }
}
