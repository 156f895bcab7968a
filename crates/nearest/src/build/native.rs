//! Our own builder: the same graph whatever the number of threads.
//!
//! Nodes come in the order of falling levels, in batches of at most a fiftieth of what is there. Every node of a batch
//! looks for its neighbours in the graph as it was before the batch, all of them at the same time; then the lists of
//! those that were chosen take the batch in, each list by itself. Nothing is locked, and nothing depends on who is first.

use rayon::prelude::*;

use super::{BuildOptions, Codes, mixed};
use crate::{
    Progress, Result, Step,
    distances::{Distances, Task},
    graph::{Graph, Links, NONE},
    nibbles::{Nibbles, Rough},
    walk::{ByCodes, Candidate, DONE, Lists, Marks, Near, descend, walk},
};

/// A batch is at most this part of the nodes that are there,
const PART: usize = 50;
/// and at most so many.
const MOST: usize = 4_000;

/// The codes are in the order of the nodes (see [`order`]). With nibbles, a new node finds its neighbours by them; which of those it takes is told by codes.
pub(super) fn build(
    codes: &Codes,
    nibbles: Option<&Nibbles>,
    order: &[u32],
    options: &BuildOptions,
    watch: &dyn Progress,
) -> Result<Graph> {
    let level_of: Vec<usize> = order.iter().map(|point| level(*point, options.m)).collect();
    let top = level_of.first().copied().unwrap_or(0);
    let links = |level: usize| {
        let nodes = level_of.iter().take_while(|l| **l >= level).count();
        Links::empty(nodes, if level == 0 { 2 * options.m } else { options.m })
    };
    let mut growing =
        Growing { codes, nibbles, links: (0..=top).map(links).collect(), level_of, ef: options.ef };
    let mut done = 1;
    while done < codes.len() {
        if watch.stop() {
            return Err(crate::progress::stopped());
        }
        let batch = done..codes.len().min(done + (done / PART).clamp(1, MOST));
        growing.take_in(batch.clone());
        done = batch.end;
        watch.done(Step::Linking, done, codes.len());
    }
    Ok(Graph { points: (0..codes.len() as u32).collect(), levels: growing.links })
}

/// The order in which points become nodes: that of falling levels.
pub(super) fn order(points: usize, m: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..points as u32).collect();
    order.sort_by_key(|point| std::cmp::Reverse(level(*point, m)));
    order
}

/// The level of a point: falling geometrically, by a hash of its number.
fn level(point: u32, m: usize) -> usize {
    let uniform = ((mixed(u64::from(point)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    // hnsw_rs has 16 levels; so many are never needed.
    ((-uniform.ln() * (1.0 / (m as f64).ln())) as usize).min(15)
}

/// The graph while it grows.
struct Growing<'a> {
    codes: &'a Codes,
    nibbles: Option<&'a Nibbles>,
    links: Vec<Links>,
    level_of: Vec<usize>,
    ef: usize,
}

/// What a thread needs for a node.
#[derive(Default)]
struct Scratch {
    marks: Marks,
    signed: Vec<i8>,
    candidates: Vec<Candidate>,
    chosen: Vec<u32>,
}

impl Growing<'_> {
    fn take_in(&mut self, batch: std::ops::Range<usize>) {
        let found: Vec<Vec<Vec<u32>>> = batch
            .clone()
            .into_par_iter()
            .with_min_len(4)
            .map_init(Scratch::default, |scratch, node| {
                self.codes.level.run(Find { growing: self, node: node as u32, scratch })
            })
            .collect();
        for level in 0..=self.level_of[batch.start] {
            // (who was chosen, by whom)
            let mut chosen: Vec<(u32, u32)> = Vec::new();
            for (node, lists) in batch.clone().zip(&found) {
                let Some(list) = lists.get(level) else { continue };
                self.links[level].of_mut(node as u32)[..list.len()].copy_from_slice(list);
                chosen.extend(list.iter().map(|neighbour| (*neighbour, node as u32)));
            }
            chosen.sort_unstable();
            let groups: Vec<&[(u32, u32)]> = chosen.chunk_by(|a, b| a.0 == b.0).collect();
            let lists: Vec<(u32, Vec<u32>)> = groups
                .into_par_iter()
                .with_min_len(16)
                .map_init(Scratch::default, |scratch, group| {
                    let node = group[0].0;
                    let task = Join { growing: self, level, node, others: group, scratch };
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

    /// Of candidates, the nearest first, those that are nearer to the node than to any that was chosen before: neighbours in
    /// different directions. Distances leave out the length of the one they are from, which `own` adds.
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
            let near = self.codes.near(node);
            let mut in_another_direction = true;
            for other in chosen.iter() {
                // SAFETY: all are nodes.
                if unsafe { near.apart::<S>(*other) } + others < candidate.apart + own {
                    in_another_direction = false;
                    break;
                }
            }
            if in_another_direction {
                chosen.push(node);
            }
        }
    }

    fn own(&self, node: u32) -> f32 {
        self.codes.distance_norms().get(node as usize).map_or(0.0, |norm| *norm as f32)
    }
}

/// The neighbours of a node that is not yet in the graph, level by level.
struct Find<'a> {
    growing: &'a Growing<'a>,
    node: u32,
    scratch: &'a mut Scratch,
}

impl Task for Find<'_> {
    type Output = Vec<Vec<u32>>;

    #[inline(always)]
    fn run<S: Distances>(self) -> Vec<Vec<u32>> {
        let Find { growing, node, scratch } = self;
        let near = growing.codes.near(node);
        let Some(nibbles) = growing.nibbles else { return growing.find::<S>(node, &near, &near, scratch) };
        let mut signed = std::mem::take(&mut scratch.signed);
        signed.clear();
        signed.extend(near.row.iter().map(|code| (*code ^ 128) as i8));
        let lists = growing.find::<S>(node, &Rough::new(nibbles.bytes(), &signed), &near, scratch);
        scratch.signed = signed;
        lists
    }
}

impl Growing<'_> {
    /// Walks by one kind of nearness, and chooses by the other.
    #[inline(always)]
    fn find<S: Distances>(
        &self,
        node: u32,
        walked: &impl Near,
        near: &ByCodes<'_>,
        scratch: &mut Scratch,
    ) -> Vec<Vec<u32>> {
        let Scratch { marks, candidates, chosen, .. } = scratch;
        let nodes = self.codes.len();
        let level = self.level_of[node as usize];
        let mut at = 0;
        for level in (level + 1..self.links.len()).rev() {
            // SAFETY: node 0 is there before all others, and lists hold nodes only.
            at = unsafe { descend::<S>(self.lists(level), nodes, walked, at) };
        }
        let mut lists = vec![Vec::new(); level + 1];
        for level in (0..=level).rev() {
            marks.begin(nodes);
            // SAFETY: as above, and the marks have been begun.
            unsafe { walk::<S>(self.lists(level), walked, at, self.ef, marks, candidates) };
            for candidate in candidates.iter_mut() {
                candidate.node &= !DONE;
                // SAFETY: candidates are nodes.
                candidate.apart = unsafe { near.apart::<S>(candidate.node) };
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

/// The list of a node that others have chosen: with them, or the best of all if they are too many.
struct Join<'a> {
    growing: &'a Growing<'a>,
    level: usize,
    node: u32,
    others: &'a [(u32, u32)],
    scratch: &'a mut Scratch,
}

impl Task for Join<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run<S: Distances>(self) -> Vec<u32> {
        let Join { growing, level, node, others, scratch } = self;
        let Scratch { candidates, chosen, .. } = scratch;
        let links = &growing.links[level];
        let mut all = links.of(node).to_vec();
        all.extend(others.iter().map(|(_, other)| *other));
        if all.len() <= links.width {
            return all;
        }
        let near = growing.codes.near(node);
        candidates.clear();
        for node in all {
            // SAFETY: all are nodes.
            candidates.push(Candidate { apart: unsafe { near.apart::<S>(node) }, node });
        }
        candidates.sort_unstable_by(Candidate::order);
        growing.choose::<S>(growing.own(node), candidates, links.width, chosen);
        chosen.clone()
    }
}
