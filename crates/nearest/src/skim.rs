//! Approximate scan: compares the query with all allowed nodes by their quantized vectors.

use crate::{
    distances::{Distances, Task},
    search::Allowed,
    walk::{Candidate, NodeDistance},
};

/// Number of nodes to prefetch ahead, if the nodes are not consecutive.
const AHEAD: usize = 8;

/// Finds the nearest `keep` allowed nodes. The order of `candidates` is undefined.
pub(crate) struct Skim<'a, N> {
    pub(crate) near: N,
    pub(crate) nodes: usize,
    pub(crate) allowed: Option<&'a Allowed>,
    pub(crate) keep: usize,
    pub(crate) candidates: &'a mut Vec<Candidate>,
}

impl<N: NodeDistance> Task for Skim<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Skim { near, nodes, allowed, keep, candidates } = self;
        candidates.clear();
        let mut best = Best { candidates, keep, worst: f32::INFINITY };
        // Loops instead of closures: a closure is compiled without the processor's features, so its intrinsics are
        // calls.
        match allowed {
            None => {
                for node in 0..nodes as u32 {
                    // SAFETY: all numbers below `nodes` are nodes.
                    best.offer(Candidate { distance: unsafe { near.distance::<S>(node) }, node });
                }
            }
            Some(allowed) => {
                let mut later = allowed.nodes().skip(AHEAD);
                for node in allowed.nodes() {
                    if let Some(node) = later.next() {
                        near.prefetch::<S>(node);
                    }
                    // SAFETY: `allowed` contains only nodes.
                    best.offer(Candidate { distance: unsafe { near.distance::<S>(node) }, node });
                }
            }
        }
        best.drop_others();
    }
}

/// Best candidates so far. The list grows to twice its final size before the worse half is dropped.
struct Best<'a> {
    candidates: &'a mut Vec<Candidate>,
    keep: usize,
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
