//! Walking through a graph towards a row of codes: what searching and building share.

use std::cmp::Ordering;

use crate::distances::Distances;

/// Marks a candidate whose neighbours have been looked at.
pub(crate) const DONE: u32 = 1 << 31;

/// So many words are wiped in the time in which one is looked for.
const WIPED: usize = 8;

/// A node on the way.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// Smaller is nearer.
    pub(crate) apart: f32,
    pub(crate) node: u32,
}

impl Candidate {
    /// The nearest first, of equally near ones the first.
    pub(crate) fn order(&self, other: &Candidate) -> Ordering {
        self.apart.total_cmp(&other.apart).then(self.node.cmp(&other.node))
    }
}

/// Which nodes a walk has come by: a bit each, as few bytes as can be, since nodes come by in no order.
#[derive(Default)]
pub(crate) struct Marks {
    bits: Vec<u64>,
    nodes: usize,
    /// Those that came by, in their order.
    seen: Vec<u32>,
}

impl Marks {
    /// Begins another walk among so many nodes.
    pub(crate) fn begin(&mut self, nodes: usize) {
        // Wiping all is the faster way where a walk has come by many of few nodes.
        if self.nodes != nodes || self.bits.len() <= WIPED * self.seen.len() {
            self.bits.clear();
            self.bits.resize(nodes.div_ceil(64), 0);
            self.nodes = nodes;
        } else {
            self.seen.iter().for_each(|node| self.bits[*node as usize / 64] = 0);
        }
        self.seen.clear();
    }
}

/// How far nodes are from what is looked for.
pub(crate) trait Near {
    /// Smaller is nearer.
    ///
    /// # Safety
    ///
    /// The node must be one of the graph's.
    unsafe fn apart<S: Distances>(&self, node: u32) -> f32;

    /// Asks for what `apart` will read.
    fn prefetch<S: Distances>(&self, node: u32);
}

/// By codes, to one row of codes.
#[derive(Clone, Copy)]
pub(crate) struct ByCodes<'a> {
    pub(crate) codes: &'a [u8],
    /// Squared lengths of the rows, where the distance is asked for and not the product.
    pub(crate) norms: &'a [u32],
    /// The one row, and 128 times the sum of what it stands for.
    pub(crate) row: &'a [u8],
    pub(crate) bias: i32,
    pub(crate) stride: usize,
}

impl Near for ByCodes<'_> {
    #[inline(always)]
    unsafe fn apart<S: Distances>(&self, node: u32) -> f32 {
        // SAFETY: there is a row of codes for each node.
        unsafe {
            let row = self.codes.as_ptr().add(node as usize * self.stride);
            let dot = S::code_dot(row, self.row.as_ptr(), self.bias, self.stride);
            // Only the distance has lengths. The query's own adds the same to all, and is left out.
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

/// The lists of one level.
#[derive(Clone, Copy)]
pub(crate) struct Lists<'a> {
    pub(crate) flat: &'a [u32],
    pub(crate) width: usize,
}

impl<'a> Lists<'a> {
    #[inline(always)]
    pub(crate) fn of(self, node: u32) -> &'a [u32] {
        self.flat.get(node as usize * self.width..(node as usize + 1) * self.width).unwrap_or(&[])
    }

    /// Asks for a node's list.
    #[inline(always)]
    fn prefetch<S: Distances>(self, node: u32) {
        let list = self.flat.as_ptr().wrapping_add(node as usize * self.width);
        S::prefetch_all(list.cast(), self.width * 4);
    }
}

/// On one level, always to the neighbour that is nearer, until none is. `nodes` is how many there are.
///
/// # Safety
///
/// `at` must be a node, and there must be codes for `nodes` nodes.
#[inline(always)]
pub(crate) unsafe fn descend<S: Distances>(
    lists: Lists<'_>,
    nodes: usize,
    near: &impl Near,
    mut at: u32,
) -> u32 {
    // SAFETY: the caller's promise; neighbours are compared with the number of nodes.
    let mut apart = unsafe { near.apart::<S>(at) };
    loop {
        let before = at;
        let list = lists.of(at);
        let list = &list[..list.iter().position(|n| *n as usize >= nodes).unwrap_or(list.len())];
        for neighbour in list {
            near.prefetch::<S>(*neighbour);
        }
        for neighbour in list {
            // SAFETY: as above.
            let this = unsafe { near.apart::<S>(*neighbour) };
            if this < apart {
                (apart, at) = (this, *neighbour);
            }
        }
        if at == before {
            return at;
        }
    }
}

/// Looks, on one level, at the neighbours of the nearest candidate that has not been done, until all have. The nearest
/// `ef` nodes that were seen are left in `candidates`, the nearest first.
///
/// # Safety
///
/// `start` must be a node, marks must have been begun for as many nodes as there are codes.
#[inline(always)]
pub(crate) unsafe fn walk<S: Distances>(
    lists: Lists<'_>,
    near: &impl Near,
    start: u32,
    ef: usize,
    marks: &mut Marks,
    candidates: &mut Vec<Candidate>,
) {
    /// So far ahead codes are fetched.
    const AHEAD: usize = 8;
    let Marks { bits, nodes, seen } = marks;
    let nodes = *nodes;
    candidates.clear();
    candidates.reserve(ef + 1);
    bits[start as usize / 64] |= 1 << (start % 64);
    seen.push(start);
    // SAFETY: the caller's promise; a neighbour has a mark, and there are as many marks as codes.
    candidates.push(Candidate { apart: unsafe { near.apart::<S>(start) }, node: start });
    let mut at = 0;
    while at < candidates.len() {
        let node = candidates[at].node;
        if node & DONE != 0 {
            at += 1;
            continue;
        }
        candidates[at].node |= DONE;
        // Likely the next, unless a neighbour is nearer.
        if let Some(next) = candidates[at + 1..].iter().find(|c| c.node & DONE == 0) {
            lists.prefetch::<S>(next.node);
        }
        let before = seen.len();
        for neighbour in lists.of(node) {
            // Behind the last neighbour stands what is no node.
            if *neighbour as usize >= nodes {
                break;
            }
            let (word, bit) = (&mut bits[*neighbour as usize / 64], 1 << (neighbour % 64));
            if *word & bit == 0 {
                *word |= bit;
                seen.push(*neighbour);
            }
        }
        let fresh = &seen[before..];
        for neighbour in fresh.iter().take(AHEAD) {
            near.prefetch::<S>(*neighbour);
        }
        let mut first = at + 1;
        for n in 0..fresh.len() {
            if let Some(later) = fresh.get(n + AHEAD) {
                near.prefetch::<S>(*later);
            }
            // SAFETY: as above.
            let apart = unsafe { near.apart::<S>(fresh[n]) };
            if candidates.len() >= ef {
                if candidates.last().is_some_and(|last| apart >= last.apart) {
                    continue;
                }
                candidates.pop();
            }
            let place = candidates.partition_point(|c| c.apart < apart);
            candidates.insert(place, Candidate { apart, node: fresh[n] });
            if place <= first {
                lists.prefetch::<S>(fresh[n]);
                first = place;
            }
        }
        at = first;
    }
}
