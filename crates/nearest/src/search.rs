//! Searching a frozen graph.

use std::cmp::Ordering;

use crate::{
    Error, Metric, Result,
    distances::{Distances, Task},
    exact::{self, Scan},
    frozen::{Frozen, Walked},
    nibbles::Rough,
    points::prepared,
    quantizer::{Quantizer, bias},
    skim::Skim,
    walk::{ByCodes, Candidate, DONE, Marks, Near, descend, walk},
};

/// Looking closely at all of so few nodes is as fast as anything.
const FEW: usize = 256;
/// What a walk costs for each of its candidates, in nodes that could be skimmed meanwhile: measured, see
/// `benchmarks/nearest.rs --scan`.
const SKIMMED_PER_CANDIDATE: usize = 32;
/// At least so many candidates are scored for each that is wanted: what they are found by is rough.
const SCORED: usize = 2;

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
    /// By which way candidates are found; for measuring.
    pub way: Way,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask { k: 10, ef: 128, rerank: 32, allowed: None, exact: false, way: Way::Faster }
    }
}

/// How candidates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The faster of the two, by how many there are to look at.
    Faster,
    /// Through the graph.
    Walk,
    /// By looking, roughly, at all that are allowed.
    Skim,
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
    /// Of the graph it is for.
    nodes: usize,
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
        Allowed { words, count, nodes: frozen.nodes() }
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
    row: Vec<u8>,
    marks: Marks,
    candidates: Vec<Candidate>,
}

impl Frozen {
    /// The nodes nearest to a query, scores descending, into `out`. A query without a direction finds nothing by the
    /// cosine.
    pub fn search(&self, query: &[f32], ask: &Ask, scratch: &mut Scratch, out: &mut Vec<Hit>) -> Result<()> {
        out.clear();
        let usable = prepared(self.header.metric, self.header.dim, query, &mut scratch.query)
            .map_err(|what| Error::input(format!("the query: {what}")))?;
        // What follows reads nodes without asking whether they are there.
        if ask.allowed.is_some_and(|allowed| allowed.nodes != self.nodes()) {
            return Err(Error::input("what is allowed are nodes of another graph".to_owned()));
        }
        let there = ask.allowed.map_or(self.nodes(), Allowed::count);
        let k = ask.k.min(there);
        if !usable || k == 0 {
            return Ok(());
        }
        if !ask.exact && (ask.way != Way::Faster || there > FEW) {
            let scored = ask.rerank.max(k.saturating_mul(SCORED));
            // Where few are allowed, a walk must see many to find enough of them.
            let ef = ask.ef.max(scored).saturating_mul(self.nodes()).div_ceil(there);
            let way = match ask.way {
                Way::Faster if ef.saturating_mul(SKIMMED_PER_CANDIDATE) < there => Way::Walk,
                Way::Faster => Way::Skim,
                asked => asked,
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

    /// Finds candidates by what is read of each node, and scores the best of them.
    fn roughly(&self, find: &Find, scratch: &mut Scratch, out: &mut Vec<Hit>) {
        let quantizer = match self.header.metric {
            // Distances need query and vectors on one scale; a product does not, and a scale of its own is finer.
            Metric::L2 => self.quantizer(),
            _ => Quantizer::of_query(&scratch.query),
        };
        let mut signed = std::mem::take(&mut scratch.signed);
        quantizer.signed(&scratch.query, &mut signed);
        match self.walked() {
            Walked::Nibbles(nibbles) => self.candidates(Rough::new(nibbles, &signed), find, scratch),
            Walked::Codes(codes) => {
                let mut row = std::mem::take(&mut scratch.row);
                row.clear();
                row.extend(signed.iter().map(|number| *number as u8 ^ 128));
                let (norms, bias) = (self.norms(), bias(&row));
                self.candidates(
                    ByCodes { codes, norms, row: &row, bias, stride: self.stride },
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

    fn candidates(&self, near: impl Near, find: &Find, scratch: &mut Scratch) {
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

/// How candidates are found, and how many.
struct Find<'a> {
    allowed: Option<&'a Allowed>,
    walk: bool,
    ef: usize,
    scored: usize,
}

/// The exact scores of hits, and their order.
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

/// One walk through the graph.
struct Walk<'a, N> {
    frozen: &'a Frozen,
    near: N,
    ef: usize,
    marks: &'a mut Marks,
    candidates: &'a mut Vec<Candidate>,
}

impl<N: Near> Task for Walk<'_, N> {
    type Output = ();

    /// From the first node down to the level of all, and there to the nearest.
    #[inline(always)]
    fn run<S: Distances>(self) {
        let Walk { frozen, near, ef, marks, candidates } = self;
        let mut start = 0;
        for level in (1..frozen.levels()).rev() {
            // SAFETY: node 0 is there, as the graph is not empty, and so is what is found on the way.
            start = unsafe { descend::<S>(frozen.lists(level), frozen.nodes(), &near, start) };
        }
        // SAFETY: as above; the marks have been begun for these nodes.
        unsafe { walk::<S>(frozen.lists(0), &near, start, ef, marks, candidates) };
    }
}
