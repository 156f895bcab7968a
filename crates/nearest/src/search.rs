//! Searching a graph file, and measuring the recall.

use std::{
    cmp::Ordering,
    sync::atomic::{self, AtomicUsize},
};

use rayon::prelude::*;

use crate::{
    Error, Metric, Progress, Result, Step,
    candidates::{Candidate, CodeDistances, DONE, Marks, NodeDistance, Skim, descend, walk},
    codes::{Quantizer, bias},
    distances::{Distances, Task},
    exact::{self, Scan, Scans},
    file::Header,
    graph_file::{Frozen, Walked},
    nibbles::NibbleDistances,
    points::prepared,
};

/// Maximum number of nodes that are always scanned exactly.
const EXACT_SCAN: usize = 256;
/// Number of nodes that an approximate scan compares in the time that a beam search takes per candidate. Measured
/// with `benchmarks/nearest.rs --scan`.
const SKIMMED_PER_CANDIDATE: usize = 32;
/// Minimum number of candidates to score exactly for each requested hit, because the quantized distances are
/// approximate.
const SCORED_PER_HIT: usize = 2;

/// Parameters of a search.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Number of hits.
    pub k: usize,
    /// Number of candidates in the beam search. More candidates give a higher recall and a slower search.
    pub ef: usize,
    /// Number of best candidates that are scored exactly.
    pub rerank: usize,
    /// Nodes that may be found; all by default.
    pub allowed: Option<&'a Allowed>,
    /// Whether to score all allowed nodes exactly.
    pub exact: bool,
    /// Method that finds candidates; for benchmarks.
    pub way: Way,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask { k: 10, ef: 128, rerank: 32, allowed: None, exact: false, way: Way::Faster }
    }
}

/// Method that finds candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The method that is estimated to be faster.
    Faster,
    /// Beam search in the graph.
    Walk,
    /// Approximate scan of all allowed nodes.
    Skim,
}

/// A node that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The node.
    pub node: u32,
    /// Exact score from the original vectors: the cosine, the inner product or the negated distance.
    pub score: f32,
}

impl Hit {
    /// Orders by descending score, then by ascending node.
    pub(crate) fn order(&self, other: &Hit) -> Ordering {
        other.score.total_cmp(&self.score).then(self.node.cmp(&other.node))
    }
}

/// Filter: the set of nodes that a search may find.
#[derive(Debug, Clone)]
pub struct Allowed {
    words: Vec<u64>,
    count: usize,
    /// Number of nodes in the graph of the filter.
    nodes: usize,
}

impl Allowed {
    /// Creates a filter of the nodes that have at least one row for which `holds` returns `true`.
    pub fn rows(frozen: &Frozen, holds: impl Fn(u32) -> bool) -> Self {
        let mut words = vec![0u64; frozen.nodes().div_ceil(64)];
        let mut count = 0;
        for node in 0..frozen.nodes() as u32 {
            if frozen.rows(node).iter().any(|row| holds(*row)) {
                words[node as usize / 64] |= 1 << (node % 64);
                count += 1;
            }
        }
        Allowed { words, count, nodes: frozen.nodes() }
    }

    /// Returns the number of allowed nodes.
    pub fn count(&self) -> usize {
        self.count
    }

    fn holds(&self, node: u32) -> bool {
        self.words.get(node as usize / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(n, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                (bit < 64).then_some(n as u32 * 64 + bit)
            })
        })
    }
}

/// Buffers of a search. If they are reused, a search allocates no memory.
#[derive(Default)]
pub struct Scratch {
    query: Vec<f32>,
    wide: Vec<f32>,
    signed: Vec<i8>,
    row: Vec<u8>,
    marks: Marks,
    candidates: Vec<Candidate>,
}

impl Frozen {
    /// Searches the nodes nearest to a query and writes them to `out`, the best first.
    ///
    /// If the metric is the cosine, a zero vector finds nothing. Returns an error if the query is not a valid vector
    /// for this graph, or if the filter belongs to a different graph.
    pub fn search(&self, query: &[f32], ask: &Ask, scratch: &mut Scratch, out: &mut Vec<Hit>) -> Result<()> {
        out.clear();
        let usable = prepared(self.header.metric, self.header.dim, query, &mut scratch.query)
            .map_err(|what| Error::input(format!("the query: {what}")))?;
        // The code below accesses nodes without bounds checks.
        if ask.allowed.is_some_and(|allowed| allowed.nodes != self.nodes()) {
            return Err(Error::input("the filter belongs to a different graph".to_owned()));
        }
        let there = ask.allowed.map_or(self.nodes(), Allowed::count);
        let k = ask.k.min(there);
        if !usable || k == 0 {
            return Ok(());
        }
        if !ask.exact && (ask.way != Way::Faster || there > EXACT_SCAN) {
            let scored = ask.rerank.max(k.saturating_mul(SCORED_PER_HIT));
            // If few nodes are allowed, a beam search needs more candidates to find enough of them.
            let ef = ask.ef.max(scored).saturating_mul(self.nodes()).div_ceil(there);
            let way = match ask.way {
                Way::Faster if ef.saturating_mul(SKIMMED_PER_CANDIDATE) < there => Way::Walk,
                Way::Faster => Way::Skim,
                way => way,
            };
            let find = Find { allowed: ask.allowed, walk: way == Way::Walk, ef, scored };
            self.roughly(&find, scratch, out);
            out.truncate(k);
            if out.len() == k {
                return Ok(());
            }
            out.clear();
        }
        let Scratch { query, wide, .. } = scratch;
        self.level.run(Scan { frozen: self, query, k, allowed: ask.allowed, wide, out });
        Ok(())
    }

    /// Finds candidates by their quantized vectors, and scores the best of them exactly.
    fn roughly(&self, find: &Find, scratch: &mut Scratch, out: &mut Vec<Hit>) {
        let quantizer = match self.header.metric {
            // For distances, the query needs the scale of the vectors. For products it can have its own, finer scale.
            Metric::L2 => self.quantizer(),
            _ => Quantizer::of_query(&scratch.query),
        };
        let mut signed = std::mem::take(&mut scratch.signed);
        quantizer.signed(&scratch.query, &mut signed);
        match self.walked() {
            Walked::Nibbles(nibbles) => {
                self.candidates(NibbleDistances::new(nibbles, &signed), find, scratch)
            }
            Walked::Codes(codes) => {
                let mut row = std::mem::take(&mut scratch.row);
                row.clear();
                row.extend(signed.iter().map(|number| *number as u8 ^ 128));
                let (norms, bias) = (self.norms(), bias(&row));
                self.candidates(
                    CodeDistances { codes, norms, row: &row, bias, stride: self.stride },
                    find,
                    scratch,
                );
                scratch.row = row;
            }
        }
        scratch.signed = signed;
        let Scratch { query, wide, candidates, .. } = scratch;
        let best = candidates.iter().map(|c| c.node & !DONE);
        let best = best.filter(|node| find.allowed.is_none_or(|allowed| allowed.holds(*node)));
        out.extend(best.take(find.scored).map(|node| Hit { node, score: 0.0 }));
        self.level.run(Score { frozen: self, query, wide, out });
    }

    fn candidates(&self, near: impl NodeDistance, find: &Find, scratch: &mut Scratch) {
        let Scratch { marks, candidates, .. } = scratch;
        if find.walk {
            marks.begin(self.nodes());
            self.level.run(Walk { frozen: self, near, ef: find.ef, marks, candidates });
        } else {
            let (nodes, allowed, keep) = (self.nodes(), find.allowed, find.scored);
            self.level.run(Skim { near, nodes, allowed, keep, candidates });
        }
    }
}

/// Plan of a search: the method, the number of candidates, and how many of them to score.
struct Find<'a> {
    allowed: Option<&'a Allowed>,
    walk: bool,
    ef: usize,
    scored: usize,
}

/// Task that scores hits exactly and sorts them.
struct Score<'a> {
    frozen: &'a Frozen,
    query: &'a [f32],
    wide: &'a mut Vec<f32>,
    out: &'a mut Vec<Hit>,
}

impl Task for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Score { frozen, query, wide, out } = self;
        let vectors = frozen.originals();
        wide.resize(frozen.header.dim, 0.0);
        for hit in out.iter() {
            exact::prefetch::<S>(frozen, vectors, hit.node);
        }
        for hit in out.iter_mut() {
            // SAFETY: candidates are nodes of the graph, and the query has been checked.
            hit.score = unsafe { exact::score::<S>(frozen, vectors, query, hit.node, wide) };
        }
        out.sort_unstable_by(Hit::order);
    }
}

/// Task for one search through all levels of the graph.
struct Walk<'a, N> {
    frozen: &'a Frozen,
    near: N,
    ef: usize,
    marks: &'a mut Marks,
    candidates: &'a mut Vec<Candidate>,
}

impl<N: NodeDistance> Task for Walk<'_, N> {
    type Output = ();

    /// Descends greedily from node 0 to level 0, and runs the beam search there.
    #[inline(always)]
    fn run<S: Distances>(self) {
        let Walk { frozen, near, ef, marks, candidates } = self;
        let mut start = 0;
        for level in (1..frozen.levels()).rev() {
            // SAFETY: the graph is not empty, so node 0 exists; `descend` returns only nodes.
            start = unsafe { descend::<S>(frozen.lists(level), frozen.nodes(), &near, start) };
        }
        // SAFETY: as above; `marks.begin` has been called for these nodes.
        unsafe { walk::<S>(frozen.lists(0), &near, start, ef, marks, candidates) };
    }
}

/// Result of a recall measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recall {
    /// Fraction of the `k` nearest vectors that the search found, from 0 to 1.
    pub recall: f64,
    /// Number of nearest vectors per query.
    pub k: usize,
    /// Number of queries.
    pub queries: usize,
}

/// Number of queries per exact scan. Their vectors fit into the fastest cache.
const QUERIES_PER_SCAN: usize = 16;

/// Measures recall against an exact scan.
///
/// The queries are vectors of the graph, spread evenly over all nodes. The query itself does not count as a hit.
/// `progress` is notified and can cancel the measurement.
pub fn measure(frozen: &Frozen, ask: &Ask, queries: usize, progress: &dyn Progress) -> Result<Recall> {
    let nodes = frozen.nodes();
    let queries = queries.min(nodes);
    let k = ask.k.min(nodes.saturating_sub(1));
    if queries == 0 || k == 0 {
        return Ok(Recall { recall: 1.0, k, queries: 0 });
    }
    let sample: Vec<u32> = (0..queries).map(|n| (n * nodes / queries) as u32).collect();
    let ask = Ask { k: k + 1, exact: false, allowed: None, ..*ask };
    let done = AtomicUsize::new(0);
    let found = sample
        .par_chunks(QUERIES_PER_SCAN)
        .map(|sample| {
            if progress.stop() {
                return Err(crate::build::stopped());
            }
            let mut exact = Vec::new();
            for node in sample {
                // Prepared like in a search, so that the scores are identical.
                let mut query = Vec::new();
                let Header { metric, dim, .. } = frozen.header;
                prepared(metric, dim, &frozen.vector(*node), &mut query).map_err(Error::input)?;
                exact.push((query, Vec::new()));
            }
            frozen.level.run(Scans { frozen, queries: &mut exact, k: k + 1 });
            let (mut scratch, mut hits, mut found) = (Scratch::default(), Vec::new(), 0);
            for (node, (_, nearest)) in sample.iter().zip(&exact) {
                frozen.search(&frozen.vector(*node), &ask, &mut scratch, &mut hits)?;
                // A hit counts if it scores at least as high as the k-th nearest vector, so ties do not matter.
                let others = nearest.iter().filter(|hit| hit.node != *node).take(k);
                let Some(least) = others.map(|hit| hit.score).reduce(f32::min) else { continue };
                found += hits.iter().filter(|hit| hit.node != *node && hit.score >= least).take(k).count();
            }
            let done = done.fetch_add(sample.len(), atomic::Ordering::Relaxed) + sample.len();
            progress.done(Step::Measuring, done, queries);
            Ok(found)
        })
        .try_reduce(|| 0, |a, b| Ok(a + b))?;
    Ok(Recall { recall: found as f64 / (k * queries) as f64, k, queries })
}
