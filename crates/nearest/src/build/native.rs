//! Native HNSW builder. The graph does not depend on the number of threads.
//!
//! Nodes are inserted in batches, the nodes of the highest levels first. The neighbors of all nodes of a batch are
//! searched in parallel, in the graph without this batch. Then the neighbor lists of the found nodes are updated in
//! parallel. No locks are needed.

use rayon::prelude::*;

use crate::{
    Progress, Result, Step,
    build::{BuildOptions, Codes, mixed},
    candidates::{Candidate, CodeDistances, EXPANDED, Lists, NodeDistance, Visited, descend, walk},
    distances::{Distances, Task},
    graph::{Graph, Links, NONE},
    nibbles::{NibbleDistances, Nibbles},
};

/// The size of a batch is the number of nodes in the graph divided by this number, limited to the range from 1 to
/// [`MAX_BATCH`].
const BATCH_DIVISOR: usize = 50;
const MAX_BATCH: usize = 4_000;

/// Builds the graph. The codes must be in the order of the nodes (see [`order`]). Candidates for the neighbors of a new
/// node are found with `nibbles` (4-bit codes) if given, else with `codes`. The neighbors are chosen among the
/// candidates with the 8-bit `codes`.
pub(super) fn build(
    codes: &Codes,
    nibbles: Option<&Nibbles>,
    order: &[u32],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<Graph> {
    let level_of: Vec<usize> = order.iter().map(|point| level(*point, options.m)).collect();
    let top = level_of.first().copied().unwrap_or(0);
    let links = |level: usize| {
        let nodes = level_of.iter().take_while(|l| **l >= level).count();
        Links::empty(nodes, if level == 0 { 2 * options.m } else { options.m })
    };
    let mut builder =
        NativeBuilder { codes, nibbles, links: (0..=top).map(links).collect(), level_of, ef: options.ef };
    let mut done = 1;
    while done < codes.len() {
        if progress.stop() {
            return Err(crate::build::interrupted());
        }
        let batch = done..codes.len().min(done + (done / BATCH_DIVISOR).clamp(1, MAX_BATCH));
        builder.insert(batch.clone());
        done = batch.end;
        progress.done(Step::Linking, done, codes.len());
    }
    Ok(Graph { points: (0..codes.len() as u32).collect(), levels: builder.links })
}

/// Returns the points in the order of the nodes: sorted by level, the highest first.
pub(super) fn order(points: usize, m: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..points as u32).collect();
    order.sort_by_key(|point| std::cmp::Reverse(level(*point, m)));
    order
}

/// Returns the highest level of a point. Levels are geometrically distributed and depend on a hash of the point number.
fn level(point: u32, m: usize) -> usize {
    let uniform = ((mixed(u64::from(point)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    // There are at most 16 levels, as in hnsw_rs. More levels are never needed.
    ((-uniform.ln() * (1.0 / (m as f64).ln())) as usize).min(15)
}

struct NativeBuilder<'a> {
    codes: &'a Codes,
    nibbles: Option<&'a Nibbles>,
    /// Neighbor lists of each level, starting at level 0.
    links: Vec<Links>,
    level_of: Vec<usize>,
    /// Number of candidates in the beam search that finds the neighbors of a new node.
    ef: usize,
}

#[derive(Default)]
struct Scratch {
    visited: Visited,
    signed: Vec<i8>,
    candidates: Vec<Candidate>,
    chosen: Vec<u32>,
}

impl NativeBuilder<'_> {
    fn insert(&mut self, batch: std::ops::Range<usize>) {
        let found: Vec<Vec<Vec<u32>>> = batch
            .clone()
            .into_par_iter()
            .with_min_len(4)
            .map_init(Scratch::default, |scratch, node| {
                self.codes.level.run(FindNeighbors { builder: self, node: node as u32, scratch })
            })
            .collect();
        for level in 0..=self.level_of[batch.start] {
            // Pairs of a chosen neighbor and the new node that chose it.
            let mut chosen: Vec<(u32, u32)> = Vec::new();
            for (node, lists) in batch.clone().zip(&found) {
                let Some(list) = lists.get(level) else { continue };
                self.links[level].of_mut(node as u32)[..list.len()].copy_from_slice(list);
                chosen.extend(list.iter().map(|neighbor| (*neighbor, node as u32)));
            }
            chosen.sort_unstable();
            let groups: Vec<&[(u32, u32)]> = chosen.chunk_by(|a, b| a.0 == b.0).collect();
            let lists: Vec<(u32, Vec<u32>)> = groups
                .into_par_iter()
                .with_min_len(16)
                .map_init(Scratch::default, |scratch, group| {
                    let node = group[0].0;
                    let task = AddNeighbors { builder: self, level, node, others: group, scratch };
                    (node, self.codes.level.run(task))
                })
                .collect();
            for (node, list) in lists {
                let places = self.links[level].of_mut(node);
                places.fill(NONE);
                places[..list.len()].copy_from_slice(&list);
            }
        }
    }

    fn lists(&self, level: usize) -> Lists<'_> {
        Lists { flat: &self.links[level].flat, width: self.links[level].width }
    }

    /// Replaces `chosen` with at most `most` neighbors of a node. Chooses them from `candidates`, which are sorted by
    /// distance from the node. Skips a candidate that is nearer to a chosen neighbor than to the node, so that
    /// neighbors are in different directions.
    ///
    /// `own` is the squared norm of the node. It is added to the distances in `candidates`, which do not include it.
    #[inline(always)]
    fn choose<S: Distances>(&self, own: f32, candidates: &[Candidate], most: usize, chosen: &mut Vec<u32>) {
        chosen.clear();
        let norms = self.codes.distance_norms();
        for candidate in candidates {
            if chosen.len() == most {
                break;
            }
            let node = candidate.node;
            let others = norms.get(node as usize).map_or(0.0, |norm| *norm as f32);
            let distances = self.codes.distances_from(node);
            let mut diverse = true;
            for other in chosen.iter() {
                // SAFETY: candidates are nodes of the graph.
                if unsafe { distances.distance::<S>(*other) } + others < candidate.distance + own {
                    diverse = false;
                    break;
                }
            }
            if diverse {
                chosen.push(node);
            }
        }
    }

    /// Returns the squared norm of a node's codes, or 0 if the metric is the inner product.
    fn own(&self, node: u32) -> f32 {
        self.codes.distance_norms().get(node as usize).map_or(0.0, |norm| *norm as f32)
    }

    /// Returns the neighbors of a node, one list for each of its levels. Finds candidates by the distances that
    /// `search` computes. Chooses the neighbors among the candidates by the more accurate `distances`.
    #[inline(always)]
    fn find<S: Distances>(
        &self,
        node: u32,
        search: &impl NodeDistance,
        distances: &CodeDistances<'_>,
        scratch: &mut Scratch,
    ) -> Vec<Vec<u32>> {
        let Scratch { visited, candidates, chosen, .. } = scratch;
        let nodes = self.codes.len();
        let level = self.level_of[node as usize];
        let mut at = 0;
        for level in (level + 1..self.links.len()).rev() {
            // SAFETY: node 0 exists from the start, and lists contain only nodes.
            at = unsafe { descend::<S>(self.lists(level), nodes, search, at) };
        }
        let mut lists = vec![Vec::new(); level + 1];
        for level in (0..=level).rev() {
            visited.begin(nodes);
            // SAFETY: `at` is a node, lists contain only nodes, and `visited.begin` has been called.
            unsafe { walk::<S>(self.lists(level), search, at, self.ef, visited, candidates) };
            for candidate in candidates.iter_mut() {
                candidate.node &= !EXPANDED;
                // SAFETY: candidates are nodes of the graph.
                candidate.distance = unsafe { distances.distance::<S>(candidate.node) };
            }
            candidates.sort_unstable_by(Candidate::order);
            at = candidates[0].node;
            let most = self.links[level].width;
            self.choose::<S>(self.own(node), candidates, most, chosen);
            lists[level].extend_from_slice(chosen);
        }
        lists
    }
}

struct FindNeighbors<'a> {
    builder: &'a NativeBuilder<'a>,
    node: u32,
    scratch: &'a mut Scratch,
}

impl Task for FindNeighbors<'_> {
    type Output = Vec<Vec<u32>>;

    #[inline(always)]
    fn run<S: Distances>(self) -> Vec<Vec<u32>> {
        let FindNeighbors { builder, node, scratch } = self;
        let distances = builder.codes.distances_from(node);
        let Some(nibbles) = builder.nibbles else {
            return builder.find::<S>(node, &distances, &distances, scratch);
        };
        let mut signed = std::mem::take(&mut scratch.signed);
        signed.clear();
        signed.extend(distances.row.iter().map(|code| (*code ^ 128) as i8));
        let lists =
            builder.find::<S>(node, &NibbleDistances::new(nibbles.bytes(), &signed), &distances, scratch);
        scratch.signed = signed;
        lists
    }
}

/// Task that returns the neighbor list of `node`, extended by new nodes. If the list is too long,
/// [`NativeBuilder::choose`] selects the neighbors to keep.
struct AddNeighbors<'a> {
    builder: &'a NativeBuilder<'a>,
    level: usize,
    node: u32,
    /// Pairs of `node` and a new node that chose `node` as a neighbor.
    others: &'a [(u32, u32)],
    scratch: &'a mut Scratch,
}

impl Task for AddNeighbors<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run<S: Distances>(self) -> Vec<u32> {
        let AddNeighbors { builder, level, node, others, scratch } = self;
        let Scratch { candidates, chosen, .. } = scratch;
        let links = &builder.links[level];
        let mut all = links.of(node).to_vec();
        all.extend(others.iter().map(|(_, other)| *other));
        if all.len() <= links.width {
            return all;
        }
        let distances = builder.codes.distances_from(node);
        candidates.clear();
        for node in all {
            // SAFETY: the neighbors and the new nodes are nodes of the graph.
            candidates.push(Candidate { distance: unsafe { distances.distance::<S>(node) }, node });
        }
        candidates.sort_unstable_by(Candidate::order);
        builder.choose::<S>(builder.own(node), candidates, links.width, chosen);
        chosen.clone()
    }
}
