//! Looking at all of few nodes as a walk looks at its candidates: roughly, and at the best of them closely.

use crate::{
    distances::{Distances, Task},
    search::Allowed,
    walk::{Candidate, Near},
};

/// So far ahead is fetched what nodes need that do not lie next to each other.
const AHEAD: usize = 8;

/// Finds the nearest `keep` of the nodes that are allowed; what is left in `candidates` is in no order.
pub(crate) struct Skim<'a, N> {
    pub(crate) near: N,
    pub(crate) nodes: usize,
    pub(crate) allowed: Option<&'a Allowed>,
    pub(crate) keep: usize,
    pub(crate) candidates: &'a mut Vec<Candidate>,
}

impl<N: Near> Task for Skim<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Skim { near, nodes, allowed, keep, candidates } = self;
        candidates.clear();
        let mut best = Best { candidates, keep, worst: f32::INFINITY };
        // Loops and no closures: in these the processor's instructions would be left as calls.
        match allowed {
            None => {
                for node in 0..nodes as u32 {
                    // SAFETY: all below their number are nodes.
                    best.offer(Candidate { apart: unsafe { near.apart::<S>(node) }, node });
                }
            }
            Some(allowed) => {
                let mut later = allowed.nodes().skip(AHEAD);
                for node in allowed.nodes() {
                    if let Some(node) = later.next() {
                        near.prefetch::<S>(node);
                    }
                    // SAFETY: what is allowed are nodes.
                    best.offer(Candidate { apart: unsafe { near.apart::<S>(node) }, node });
                }
            }
        }
        best.drop_others();
    }
}

/// The best so far: twice as many as are kept are gathered before the others are dropped.
struct Best<'a> {
    candidates: &'a mut Vec<Candidate>,
    keep: usize,
    worst: f32,
}

impl Best<'_> {
    #[inline(always)]
    fn offer(&mut self, candidate: Candidate) {
        if candidate.apart < self.worst {
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
            self.worst = last.apart;
            self.candidates.truncate(self.keep);
        }
    }
}
