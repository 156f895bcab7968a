//! Searching a graph file, and measuring the recall.

use std::{
    cmp::Ordering,
    sync::atomic::{self, AtomicUsize},
};

use rayon::prelude::*;

use crate::{
    Error, Metric, Progress, Result, Step,
    candidates::{ApproximateScan, Candidate, CodeDistances, EXPANDED, NodeDistance, Visited, descend, walk},
    codes::{Quantizer, bias},
    distances::{Distances, Task},
    exact::{self, ExactScan, ExactScans},
    file::Header,
    graph_file::{GraphFile, SearchCodes},
    nibbles::NibbleDistances,
    points::prepare_vector,
};

/// If at most this number of nodes is allowed, [`SearchMethod::Auto`] scores all of them exactly.
const EXACT_SCAN: usize = 256;
/// Cost of one candidate of a beam search, as the number of nodes that an approximate scan compares with the query in
/// the same time. Measured with `benchmarks/nearest.rs --scan`.
const SCANNED_PER_CANDIDATE: usize = 32;
/// Minimum number of candidates to score exactly per requested hit. More than one is needed, because quantized
/// distances are approximate.
const SCORED_PER_HIT: usize = 2;

/// Parameters of a search.
#[derive(Clone, Copy)]
pub struct SearchOptions<'a> {
    /// Maximum number of hits.
    pub k: usize,
    /// Minimum number of candidates in the beam search. With more candidates, the recall is higher and the search is
    /// slower.
    pub ef: usize,
    /// Number of best candidates that are scored exactly. A value less than `2 · k` counts as `2 · k`.
    pub rerank: usize,
    /// Nodes that may be found; `None` for all.
    pub filter: Option<&'a NodeSet>,
    /// If true, scores all allowed nodes exactly, instead of finding candidates first.
    pub exact: bool,
    /// Method that finds candidates. Only benchmarks and tests set it.
    pub method: SearchMethod,
}

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        SearchOptions { k: 10, ef: 128, rerank: 32, filter: None, exact: false, method: SearchMethod::Auto }
    }
}

/// Method that finds the candidates for exact scoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMethod {
    /// Beam search or scan, whichever is estimated to be faster. If at most 256 nodes are allowed, all of them are
    /// scored exactly instead.
    Auto,
    /// Beam search in the graph.
    BeamSearch,
    /// Scan of the quantized vectors of all allowed nodes.
    Scan,
}

/// A node that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Number of the node in the graph.
    pub node: u32,
    /// Exact score from the original vectors: the cosine, the inner product or the negated distance.
    pub score: f32,
}

impl Hit {
    /// Compares two hits by descending score, then by ascending node number.
    pub(crate) fn order(&self, other: &Hit) -> Ordering {
        other.score.total_cmp(&self.score).then(self.node.cmp(&other.node))
    }
}

/// Filter: the set of nodes that a search may find.
#[derive(Debug, Clone)]
pub struct NodeSet {
    words: Vec<u64>,
    count: usize,
    nodes: usize,
}

impl NodeSet {
    /// Creates a filter that allows a node if `holds` returns `true` for at least one of its rows.
    pub fn rows(graph: &GraphFile, holds: impl Fn(u32) -> bool) -> Self {
        let mut words = vec![0u64; graph.nodes().div_ceil(64)];
        let mut count = 0;
        for node in 0..graph.nodes() as u32 {
            if graph.rows(node).iter().any(|row| holds(*row)) {
                words[node as usize / 64] |= 1 << (node % 64);
                count += 1;
            }
        }
        NodeSet { words, count, nodes: graph.nodes() }
    }

    /// Creates a filter that allows some nodes. Nodes that do not exist are ignored.
    pub fn new(graph: &GraphFile, allowed: impl IntoIterator<Item = u32>) -> Self {
        let nodes = graph.nodes();
        let mut words = vec![0u64; nodes.div_ceil(64)];
        for node in allowed.into_iter().filter(|node| (*node as usize) < nodes) {
            words[node as usize / 64] |= 1 << (node % 64);
        }
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        NodeSet { words, count, nodes }
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

/// Buffers that consecutive searches can reuse, to allocate less memory.
#[derive(Default)]
pub struct Scratch {
    query: Vec<f32>,
    wide: Vec<f32>,
    signed: Vec<i8>,
    row: Vec<u8>,
    visited: Visited,
    candidates: Vec<Candidate>,
}

impl GraphFile {
    /// Replaces `out` with the nodes nearest to a query, the best first. If the metric is the cosine, a zero query has
    /// no hits.
    ///
    /// Returns an error if the query has the wrong length or contains a number that is not finite. Also returns an
    /// error if the filter comes from a graph with a different number of nodes.
    pub fn search(
        &self,
        query: &[f32],
        options: &SearchOptions,
        scratch: &mut Scratch,
        out: &mut Vec<Hit>,
    ) -> Result<()> {
        out.clear();
        let usable = prepare_vector(self.header.metric, self.header.dim, query, &mut scratch.query)
            .map_err(|what| Error::input(format!("the query: {what}")))?;
        // The code below accesses nodes without bounds checks.
        if options.filter.is_some_and(|filter| filter.nodes != self.nodes()) {
            return Err(Error::input("the filter belongs to a different graph".to_owned()));
        }
        let allowed = options.filter.map_or(self.nodes(), NodeSet::count);
        let k = options.k.min(allowed);
        if !usable || k == 0 {
            return Ok(());
        }
        if !options.exact && (options.method != SearchMethod::Auto || allowed > EXACT_SCAN) {
            let scored = options.rerank.max(k.saturating_mul(SCORED_PER_HIT));
            // If few nodes are allowed, a beam search needs more candidates to find enough allowed nodes.
            let ef = options.ef.max(scored).saturating_mul(self.nodes()).div_ceil(allowed);
            let method = match options.method {
                SearchMethod::Auto if ef.saturating_mul(SCANNED_PER_CANDIDATE) < allowed => {
                    SearchMethod::BeamSearch
                }
                method => method,
            };
            let plan = Plan { filter: options.filter, beam: method == SearchMethod::BeamSearch, ef, scored };
            self.find_approximately(&plan, scratch, out);
            out.truncate(k);
            if out.len() == k {
                return Ok(());
            }
            out.clear();
        }
        let Scratch { query, wide, .. } = scratch;
        self.level.run(ExactScan { graph: self, query, k, filter: options.filter, wide, out });
        Ok(())
    }

    /// Finds candidates by their quantized vectors, scores the best candidates exactly, and adds them to `out`.
    fn find_approximately(&self, plan: &Plan, scratch: &mut Scratch, out: &mut Vec<Hit>) {
        let quantizer = match self.header.metric {
            // For Euclidean distances, the query must be quantized with the scale of the vectors. For inner products,
            // it can have its own scale, which is finer.
            Metric::L2 => Quantizer { scale: self.header.scale },
            _ => Quantizer::of_query(&scratch.query),
        };
        let mut signed = std::mem::take(&mut scratch.signed);
        quantizer.signed(&scratch.query, &mut signed);
        match self.search_codes() {
            SearchCodes::Nibbles(nibbles) => {
                self.candidates(NibbleDistances::new(nibbles, &signed), plan, scratch)
            }
            SearchCodes::Codes(codes) => {
                let mut row = std::mem::take(&mut scratch.row);
                row.clear();
                row.extend(signed.iter().map(|number| *number as u8 ^ 128));
                let (norms, bias, stride) = (self.norms(), bias(&row), self.stride);
                self.candidates(CodeDistances { codes, norms, row: &row, bias, stride }, plan, scratch);
                scratch.row = row;
            }
        }
        scratch.signed = signed;
        let Scratch { query, wide, candidates, .. } = scratch;
        let best = candidates.iter().map(|c| c.node & !EXPANDED);
        let best = best.filter(|node| plan.filter.is_none_or(|filter| filter.holds(*node)));
        out.extend(best.take(plan.scored).map(|node| Hit { node, score: 0.0 }));
        self.level.run(Score { graph: self, query, wide, out });
    }

    fn candidates(&self, distances: impl NodeDistance, plan: &Plan, scratch: &mut Scratch) {
        let Scratch { visited, candidates, .. } = scratch;
        if plan.beam {
            visited.begin(self.nodes());
            self.level.run(BeamSearch { graph: self, distances, ef: plan.ef, visited, candidates });
        } else {
            let (nodes, filter, keep) = (self.nodes(), plan.filter, plan.scored);
            self.level.run(ApproximateScan { distances, nodes, filter, keep, candidates });
        }
    }
}

/// Method and number of candidates of an approximate search.
struct Plan<'a> {
    filter: Option<&'a NodeSet>,
    beam: bool,
    ef: usize,
    scored: usize,
}

struct Score<'a> {
    graph: &'a GraphFile,
    query: &'a [f32],
    wide: &'a mut Vec<f32>,
    out: &'a mut Vec<Hit>,
}

impl Task for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Score { graph, query, wide, out } = self;
        let vectors = graph.originals();
        wide.resize(graph.header.dim, 0.0);
        for hit in out.iter() {
            exact::prefetch::<S>(graph, vectors, hit.node);
        }
        for hit in out.iter_mut() {
            // SAFETY: candidates are nodes of the graph, and the query has been checked.
            hit.score = unsafe { exact::score::<S>(graph, vectors, query, hit.node, wide) };
        }
        out.sort_unstable_by(Hit::order);
    }
}

struct BeamSearch<'a, N> {
    graph: &'a GraphFile,
    distances: N,
    ef: usize,
    visited: &'a mut Visited,
    candidates: &'a mut Vec<Candidate>,
}

impl<N: NodeDistance> Task for BeamSearch<'_, N> {
    type Output = ();

    /// Descends greedily from node 0 on the top level to level 0, and runs the beam search on level 0.
    #[inline(always)]
    fn run<S: Distances>(self) {
        let BeamSearch { graph, distances, ef, visited, candidates } = self;
        let mut start = 0;
        for level in (1..graph.levels()).rev() {
            // SAFETY: the graph is not empty, so node 0 exists; `descend` returns only nodes.
            start = unsafe { descend::<S>(graph.lists(level), graph.nodes(), &distances, start) };
        }
        // SAFETY: `start` is a node of the graph, and `visited.begin` has been called with the number of nodes.
        unsafe { walk::<S>(graph.lists(0), &distances, start, ef, visited, candidates) };
    }
}

/// Result of a recall measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recall {
    /// Fraction of the `k` nearest vectors that the search found, averaged over the queries.
    pub recall: f64,
    /// Number of nearest vectors that the search should find per query.
    pub k: usize,
    /// Number of queries.
    pub queries: usize,
}

/// Number of queries per exact scan. With up to 512 dimensions, the query vectors fit into an L1 cache of 32 KiB.
const QUERIES_PER_SCAN: usize = 16;

/// Measures the recall of a search, compared with an exact scan. The queries are at most `queries` vectors of the
/// graph, spread evenly. The query itself does not count as a hit. `filter` and `exact` in `options` are ignored.
///
/// If there are no queries or no neighbors to find, the recall is 1. If `progress` cancels, the result is
/// [`Error::Interrupted`].
pub fn measure(
    graph: &GraphFile,
    options: &SearchOptions,
    queries: usize,
    progress: &dyn Progress,
) -> Result<Recall> {
    let nodes = graph.nodes();
    let queries = queries.min(nodes);
    let k = options.k.min(nodes.saturating_sub(1));
    if queries == 0 || k == 0 {
        return Ok(Recall { recall: 1.0, k, queries: 0 });
    }
    let sample: Vec<u32> = (0..queries).map(|n| (n * nodes / queries) as u32).collect();
    let options = SearchOptions { k: k + 1, exact: false, filter: None, ..*options };
    let done = AtomicUsize::new(0);
    let found = sample
        .par_chunks(QUERIES_PER_SCAN)
        .map(|sample| {
            if progress.stop() {
                return Err(crate::build::interrupted());
            }
            let mut exact = Vec::new();
            for node in sample {
                // The query is prepared as in a search, so that the scores are identical.
                let mut query = Vec::new();
                let Header { metric, dim, .. } = graph.header;
                prepare_vector(metric, dim, &graph.vector(*node), &mut query).map_err(Error::input)?;
                exact.push((query, Vec::new()));
            }
            graph.level.run(ExactScans { graph, queries: &mut exact, k: k + 1 });
            let (mut scratch, mut hits, mut found) = (Scratch::default(), Vec::new(), 0);
            for (node, (_, nearest)) in sample.iter().zip(&exact) {
                graph.search(&graph.vector(*node), &options, &mut scratch, &mut hits)?;
                // A hit counts if it scores at least as high as the k-th nearest vector, so the order of ties does not
                // matter.
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
