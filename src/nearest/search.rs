//! Searching a frozen graph.

use std::cmp::Ordering;

use crate::{
    Error, Metric, Result,
    exact::{self, Scan},
    frozen::{Frozen, Walked},
    nibbles::Rough,
    points::prepared,
    quantizer::Quantizer,
    simd::{Simd, Task},
    walk::{ByCodes, Candidate, DONE, Marks, Near, descend, walk},
};

/// Looking at all of so few nodes is exact and takes no longer than a walk.
const FEW: usize = 2_000;
/// What a walk costs, in nodes that a scan could look at: for each of its candidates.
const SCANNED_PER_CANDIDATE: usize = 8;

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// How many.
    pub k: usize,
    /// How many candidates are kept while walking: more finds more, and takes longer.
    pub ef: usize,
    /// For how many of the best candidates the exact score is worked out.
    pub rerank: usize,
    /// Only these.
    pub allowed: Option<&'a Allowed>,
    /// Whether all are looked at, whatever it takes.
    pub exact: bool,
    /// Whether the graph is walked even where looking at all is faster; for measuring.
    pub walk: bool,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask { k: 10, ef: 64, rerank: 32, allowed: None, exact: false, walk: false }
    }
}

/// A node that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Which.
    pub node: u32,
    /// Its cosine, its inner product, or its negated distance, by the vectors themselves.
    pub score: f32,
}

impl Hit {
    /// Scores descending, then nodes ascending.
    pub(crate) fn order(&self, other: &Hit) -> Ordering {
        other.score.total_cmp(&self.score).then(self.node.cmp(&other.node))
    }
}

/// Nodes that may be found.
#[derive(Debug, Clone)]
pub struct Allowed {
    words: Vec<u64>,
    count: usize,
}

impl Allowed {
    /// Those with a row that a condition holds for.
    pub fn rows(frozen: &Frozen, holds: impl Fn(u32) -> bool) -> Self {
        let mut words = vec![0u64; frozen.nodes().div_ceil(64)];
        let mut count = 0;
        for node in 0..frozen.nodes() as u32 {
            if frozen.rows(node).iter().any(|row| holds(*row)) {
                words[node as usize / 64] |= 1 << (node % 64);
                count += 1;
            }
        }
        Allowed { words, count }
    }

    /// How many.
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

/// What a search needs besides the graph; kept, a search allocates nothing.
#[derive(Default)]
pub struct Scratch {
    query: Vec<f32>,
    wide: Vec<f32>,
    signed: Vec<i8>,
    marks: Marks,
    candidates: Vec<Candidate>,
}

impl Frozen {
    /// The nodes nearest to a query, scores descending, into `out`. A query without a direction finds nothing by the
    /// cosine.
    pub fn search(&self, query: &[f32], ask: &Ask, scratch: &mut Scratch, out: &mut Vec<Hit>) -> Result<()> {
        out.clear();
        let usable = prepared(self.header.metric, self.header.dim, query, &mut scratch.query)
            .map_err(|what| Error::Input(format!("the query: {what}")))?;
        let there = ask.allowed.map_or(self.nodes(), Allowed::count);
        let k = ask.k.min(there);
        if !usable || k == 0 {
            return Ok(());
        }
        // Where few are allowed, a walk must see many to find enough of them.
        let wanted = ask.ef.max(k).max(ask.rerank);
        let ef = wanted.saturating_mul(self.nodes()).div_ceil(there);
        let few = there <= FEW || ef.saturating_mul(SCANNED_PER_CANDIDATE) >= there;
        if !ask.exact && (ask.walk || !few) {
            self.walk(ask, ef, k, scratch, out)?;
            if out.len() == k {
                return Ok(());
            }
            out.clear();
        }
        let Scratch { query, wide, .. } = scratch;
        self.level.run(Scan { frozen: self, query, k, allowed: ask.allowed, wide, out });
        Ok(())
    }

    fn walk(&self, ask: &Ask, ef: usize, k: usize, scratch: &mut Scratch, out: &mut Vec<Hit>) -> Result<()> {
        let quantizer = match self.header.metric {
            // Distances need query and vectors on one scale; a product does not, and a scale of its own is finer.
            Metric::L2 => self.quantizer(),
            _ => Quantizer::of_query(&scratch.query),
        };
        quantizer.signed(&scratch.query, &mut scratch.signed);
        scratch.marks.begin(self.nodes());
        self.level.run(Walk { frozen: self, ef, k, rerank: ask.rerank, allowed: ask.allowed, scratch, out });
        Ok(())
    }
}

/// One walk through the graph.
struct Walk<'a> {
    frozen: &'a Frozen,
    ef: usize,
    k: usize,
    rerank: usize,
    allowed: Option<&'a Allowed>,
    scratch: &'a mut Scratch,
    out: &'a mut Vec<Hit>,
}

impl Task for Walk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Walk { frozen, ef, k, rerank, allowed, scratch, out } = self;
        let Scratch { query, wide, signed, marks, candidates } = scratch;
        match frozen.walked() {
            Walked::Nibbles(nibbles) => {
                nearest::<S>(frozen, &Rough::new(nibbles, signed), ef, marks, candidates);
            }
            Walked::Codes(codes) => {
                let bias = 128 * signed.iter().map(|s| i32::from(*s)).sum::<i32>();
                let near = ByCodes { codes, norms: frozen.norms(), signed, bias, stride: frozen.stride };
                nearest::<S>(frozen, &near, ef, marks, candidates);
            }
        }
        // The best of the walk, and of those the best by the vectors themselves.
        let vectors = frozen.originals();
        wide.resize(frozen.header.dim, 0.0);
        let best = candidates.iter().map(|c| c.node & !DONE);
        let best = best.filter(|node| allowed.is_none_or(|allowed| allowed.holds(*node)));
        for node in best.take(rerank.max(k)) {
            exact::prefetch::<S>(frozen, vectors, node);
            out.push(Hit { node, score: 0.0 });
        }
        for hit in out.iter_mut() {
            // SAFETY: candidates are nodes of the graph, and the query has been checked.
            hit.score = unsafe { exact::score::<S>(frozen, vectors, query, hit.node, wide) };
        }
        out.sort_unstable_by(Hit::order);
        out.truncate(k);
    }
}

/// From the first node down to the level of all, and there to the nearest.
#[inline(always)]
fn nearest<S: Simd>(
    frozen: &Frozen,
    near: &impl Near,
    ef: usize,
    marks: &mut Marks,
    candidates: &mut Vec<Candidate>,
) {
    let mut start = 0;
    for level in (1..frozen.levels()).rev() {
        // SAFETY: node 0 is there, as the graph is not empty, and so is what is found on the way.
        start = unsafe { descend::<S>(frozen.lists(level), frozen.nodes(), near, start) };
    }
    // SAFETY: as above; the marks have been begun for these nodes.
    unsafe { walk::<S>(frozen.lists(0), near, start, ef, marks, candidates) };
}
