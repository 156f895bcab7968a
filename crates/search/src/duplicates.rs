//! What is there more than once: utterances or dialogues that are the same, or nearly so.
//!
//! Two belong together if the cosine of their vectors reaches a threshold, and so does whoever belongs to one of them: a
//! group is a connected component. Equal texts have one vector with many owners, so that five thousand times "thank you" is
//! one point to compare, and a group by itself.
//!
//! Up to some thousand different vectors, every pair is looked at. Beyond that the graph is asked for the neighbours of each
//! vector; what it misses of a pair, it mostly finds by way of a third.

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

use turnwise_core::error::{Error, Result};
use turnwise_corpus::filter::Filter;
use turnwise_index::{
    dense::{DenseReader, Near, Sweep},
    vectors::Kind,
};
use turnwise_store::Snapshot;

/// Every pair of so many vectors is looked at, which takes a second or two.
const FEW: usize = 8_192;
/// The neighbours of a vector that are joined with it at most; the others are neighbours of these.
const MOST_NEIGHBOURS: usize = 256;
/// Vectors that are compared at once: as many as fit into the processor's nearer caches.
const BLOCK: usize = 128;
/// So many blocks are looked at before what was found is joined, so that little of it is held at a time.
const AT_ONCE: usize = 64;
/// Cosines are rounded: that of two equal vectors may be less than 1 by so much.
const ROUNDING: f32 = 1e-6;

/// What is looked for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Utterances or dialogues.
    pub kind: Kind,
    /// The cosine from which two belong together.
    pub threshold: f32,
    /// How many groups are given, the largest first.
    pub limit: usize,
    /// How many different texts of a group are shown.
    pub shown: usize,
    /// Whether every pair is looked at, whatever it takes.
    pub exact: bool,
    /// Only utterances, or dialogues, that fit.
    pub filter: Option<&'a Filter>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Duplicates {
    /// Utterances or dialogues that were looked at.
    pub looked_at: u64,
    /// Different vectors among them.
    pub different: u64,
    /// Whether every pair was looked at.
    pub exact: bool,
    /// How many groups there are.
    pub groups_found: u64,
    /// How many utterances or dialogues are in a group.
    pub in_groups: u64,
    /// The largest groups: size descending, then their greatest id descending.
    pub groups: Vec<Group>,
}

/// Utterances or dialogues that are nearly the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// How many there are.
    pub size: u64,
    /// In how many dialogues.
    pub dialogues: u64,
    /// Different vectors among them.
    pub different: u64,
    /// The most frequent ones; the others are compared with the first.
    pub members: Vec<Member>,
}

/// Some of a group that have the same vector.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// How many there are.
    pub count: u64,
    /// The cosine with the first of the group.
    pub similarity: f32,
    /// The greatest ids, descending.
    pub ids: Vec<String>,
    /// The title of the first one's dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How many turns the first one's dialogue has, where dialogues are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// What the first one says; of a dialogue, the first thing that a user says.
    pub text: String,
}

/// Finds what is there more than once. Deterministic at any number of threads.
pub fn duplicates(
    snapshot: &Snapshot,
    dense: &DenseReader,
    wanted: &Wanted<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Duplicates> {
    find(snapshot, dense, wanted, FEW, stop)
}

fn find(
    snapshot: &Snapshot,
    dense: &DenseReader,
    wanted: &Wanted<'_>,
    few: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Duplicates> {
    if !(-1.0..=1.0).contains(&wanted.threshold) {
        return Err(Error::Input {
            message: format!("{} is no cosine", wanted.threshold),
            hint: Some("0.95 finds what is nearly the same, 1 what is the same".to_owned()),
        });
    }
    let sweep = Sweep::new(dense, snapshot, wanted.kind, wanted.filter)?;
    let exact = wanted.exact || sweep.len() <= few || sweep.built() == 0;
    let joined = join(&sweep, wanted.threshold - ROUNDING, exact, stop)?;
    let mut found = groups::gather(&sweep, joined, wanted)?;
    found.exact = exact;
    Ok(found)
}

/// Which vectors belong together.
fn join(sweep: &Sweep<'_>, threshold: f32, exact: bool, stop: &(dyn Fn() -> bool + Sync)) -> Result<Joined> {
    let stopped = AtomicBool::new(false);
    let go_on = || {
        if stop() {
            stopped.store(true, Ordering::Relaxed);
        }
        match stopped.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted { hint: None }),
            false => Ok(()),
        }
    };
    let mut joined = Joined::new(sweep.len());
    if !exact {
        for start in (0..sweep.len()).step_by(AT_ONCE * BLOCK) {
            let points = start..(start + AT_ONCE * BLOCK).min(sweep.len());
            let near = |near: &mut Near, point: usize| {
                go_on()?;
                Ok((point, sweep.near(point, threshold, MOST_NEIGHBOURS, near)?))
            };
            let found: Vec<(usize, Vec<usize>)> =
                points.into_par_iter().map_init(Near::default, near).collect::<Result<_>>()?;
            for (point, neighbours) in found {
                neighbours.into_iter().for_each(|other| {
                    joined.join(point, other);
                });
            }
        }
    }
    let from = if exact { 0 } else { sweep.built() };
    let blocks: Vec<Range<usize>> =
        (from..sweep.len()).step_by(BLOCK).map(|start| start..(start + BLOCK).min(sweep.len())).collect();
    for start in (0..blocks.len()).step_by(AT_ONCE) {
        let together = start..(start + AT_ONCE).min(blocks.len());
        let edges = |n: usize| of_block(sweep, &blocks[n..], threshold, joined.clone(), &go_on);
        let found: Vec<Vec<(usize, usize)>> = together.into_par_iter().map(edges).collect::<Result<_>>()?;
        for (a, b) in found.into_iter().flatten() {
            joined.join(a, b);
        }
    }
    Ok(joined)
}

/// The pairs of the first block and all of them that are near enough. Where everything is like everything, only those are
/// given that join what was apart.
fn of_block(
    sweep: &Sweep<'_>,
    blocks: &[Range<usize>],
    threshold: f32,
    mut joined: Joined,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Vec<(usize, usize)>> {
    let (mut a, mut b, mut cosines, mut edges) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let rows = blocks.first().cloned().unwrap_or_default();
    rows.clone().try_for_each(|point| sweep.vector(point, &mut a))?;
    for columns in blocks {
        go_on()?;
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

/// Sets that grow together (union-find). The least member stands for its set.
#[derive(Clone)]
struct Joined {
    parents: Vec<u32>,
}

impl Joined {
    fn new(count: usize) -> Self {
        Joined { parents: (0..count as u32).collect() }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] as usize != at {
            self.parents[at] = self.parents[self.parents[at] as usize];
            at = self.parents[at] as usize;
        }
        at
    }

    /// Joins the sets of two, and tells whether they were apart.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b) as u32;
        a != b
    }
}
