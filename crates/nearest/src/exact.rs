//! Exact scores of the nodes of a graph, and of vectors that are not in a graph. They are computed from vectors that
//! are not quantized.

use half::f16;

use crate::{
    Error, Hit, Metric, Result,
    distances::{Dispatch, Distances, Task},
    graph_file::{GraphFile, Vectors},
    points::prepare_vector,
    search::NodeSet,
};

/// Computes the scores of vectors that are not in a graph. A search in a graph file with f32 vectors returns the same
/// score for the same vector.
pub struct Scorer {
    metric: Metric,
    query: Vec<f32>,
    vector: Vec<f32>,
    level: Dispatch,
}

impl Scorer {
    /// Creates a scorer for a query. Returns `None` for a zero query if the metric is the cosine. Returns an error if a
    /// number of the query is not finite.
    pub fn new(metric: Metric, query: &[f32]) -> Result<Option<Self>> {
        let mut prepared_query = Vec::new();
        let usable = prepare_vector(metric, query.len(), query, &mut prepared_query);
        let usable = usable.map_err(|what| Error::input(format!("the query: {what}")))?;
        let level = Dispatch::best();
        Ok(usable.then_some(Scorer { metric, query: prepared_query, vector: Vec::new(), level }))
    }

    /// Returns the score of a vector, or `None` for a zero vector if the metric is the cosine. Returns an error if the
    /// vector and the query differ in length, or if a number is not finite.
    pub fn score(&mut self, vector: &[f32]) -> Result<Option<f32>> {
        let Scorer { metric, query, vector: prepared, level } = self;
        let usable = prepare_vector(*metric, query.len(), vector, prepared).map_err(Error::input)?;
        Ok(usable.then(|| level.run(One { metric: *metric, query, vector: prepared })))
    }
}

struct One<'a> {
    metric: Metric,
    query: &'a [f32],
    vector: &'a [f32],
}

impl Task for One<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Distances>(self) -> f32 {
        // SAFETY: `prepare_vector` has checked that both have the same length.
        unsafe { pair::<S>(self.metric, self.query.as_ptr(), self.vector.as_ptr(), self.query.len()) }
    }
}

/// Returns the score of two prepared vectors: their inner product, or their negated distance if the metric is L2.
///
/// # Safety
///
/// Both pointers must be valid for `length` numbers.
#[inline(always)]
unsafe fn pair<S: Distances>(metric: Metric, a: *const f32, b: *const f32, length: usize) -> f32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match metric {
            Metric::L2 => -S::floats::<true>(a, b, length).sqrt(),
            _ => S::floats::<false>(a, b, length),
        }
    }
}

/// Returns the exact score of a node. `wide` is a buffer for the conversion from f16. It has the length of a vector.
///
/// # Safety
///
/// The node must be in the graph, and the query must have the graph's number of dimensions.
#[inline(always)]
pub(crate) unsafe fn score<S: Distances>(
    graph: &GraphFile,
    vectors: Vectors<'_>,
    query: &[f32],
    node: u32,
    wide: &mut [f32],
) -> f32 {
    let dim = graph.header.dim;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let vector = match vectors {
            Vectors::F32(flat) => flat.as_ptr().add(node as usize * dim),
            Vectors::F16(flat) => {
                widen(flat.get_unchecked(node as usize * dim..(node as usize + 1) * dim), wide);
                wide.as_ptr()
            }
        };
        pair::<S>(graph.header.metric, query.as_ptr(), vector, dim)
    }
}

#[inline(always)]
pub(crate) fn prefetch<S: Distances>(graph: &GraphFile, vectors: Vectors<'_>, node: u32) {
    let (start, bytes) = match vectors {
        Vectors::F32(flat) => (flat.as_ptr().cast::<u8>(), graph.header.dim * 4),
        Vectors::F16(flat) => (flat.as_ptr().cast::<u8>(), graph.header.dim * 2),
    };
    S::prefetch_all(start.wrapping_add(node as usize * bytes), bytes);
}

#[inline(always)]
fn widen(from: &[f16], to: &mut [f32]) {
    half::slice::HalfFloatSliceExt::convert_to_f32_slice(from, to);
}

pub(crate) struct ExactScan<'a> {
    pub(crate) graph: &'a GraphFile,
    pub(crate) query: &'a [f32],
    pub(crate) k: usize,
    pub(crate) filter: Option<&'a NodeSet>,
    pub(crate) wide: &'a mut Vec<f32>,
    pub(crate) out: &'a mut Vec<Hit>,
}

impl Task for ExactScan<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let ExactScan { graph, query, k, filter, wide, out } = self;
        wide.resize(graph.header.dim, 0.0);
        let vectors = graph.originals();
        let mut best = Best { k, hits: out };
        let all = 0..if filter.is_some() { 0 } else { graph.nodes() as u32 };
        for node in all.chain(filter.iter().flat_map(|filter| filter.nodes())) {
            // SAFETY: the nodes are below the number of nodes, and the query has been checked.
            let score = unsafe { score::<S>(graph, vectors, query, node, wide) };
            best.offer(Hit { node, score });
        }
        best.finish();
    }
}

/// Task that scores all nodes exactly for several queries. Each vector is read only once for all queries.
pub(crate) struct ExactScans<'a> {
    pub(crate) graph: &'a GraphFile,
    /// For each query, its prepared vector, and a list that receives its best hits.
    pub(crate) queries: &'a mut [(Vec<f32>, Vec<Hit>)],
    pub(crate) k: usize,
}

impl Task for ExactScans<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let ExactScans { graph, queries, k } = self;
        let (vectors, mut wide) = (graph.originals(), vec![0.0; graph.header.dim]);
        for node in 0..graph.nodes() as u32 {
            for (query, hits) in queries.iter_mut() {
                // SAFETY: the nodes are below the number of nodes, and the queries are vectors of the graph.
                let score = unsafe { score::<S>(graph, vectors, query, node, &mut wide) };
                Best { k, hits }.offer(Hit { node, score });
            }
        }
        for (_, hits) in queries {
            Best { k, hits }.finish();
        }
    }
}

/// Collector of the `k` best hits. When the list has `2 · k` hits, the worse half is dropped.
struct Best<'a> {
    k: usize,
    hits: &'a mut Vec<Hit>,
}

impl Best<'_> {
    #[inline(always)]
    fn offer(&mut self, hit: Hit) {
        if self.hits.len() >= self.k.max(1) * 2 {
            self.halve();
        }
        self.hits.push(hit);
    }

    #[inline(never)]
    fn halve(&mut self) {
        self.hits.select_nth_unstable_by(self.k.saturating_sub(1), Hit::order);
        self.hits.truncate(self.k);
    }

    fn finish(self) {
        self.hits.sort_unstable_by(Hit::order);
        self.hits.truncate(self.k);
    }
}

/// Computes the inner product of each row of `a` and each row of `b`. Replaces `out` with the products: one row of
/// products for each row of `a`. Rows have `dim` numbers; an incomplete last row is ignored. If `dim` is 0, `out`
/// becomes empty.
pub fn products(a: &[f32], b: &[f32], dim: usize, out: &mut Vec<f32>) {
    out.clear();
    if dim > 0 {
        Dispatch::best().run(Products { a, b, dim, out });
    }
}

struct Products<'a> {
    a: &'a [f32],
    b: &'a [f32],
    dim: usize,
    out: &'a mut Vec<f32>,
}

impl Task for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Products { a, b, dim, out } = self;
        out.reserve((a.len() / dim) * (b.len() / dim));
        for x in a.chunks_exact(dim) {
            for y in b.chunks_exact(dim) {
                // SAFETY: both rows have `dim` numbers, and the processor supports the level.
                out.push(unsafe { S::floats::<false>(x.as_ptr(), y.as_ptr(), dim) });
            }
        }
    }
}

/// Returns the indices of the `count` highest scores, the highest first. Ignores the index `own` and scores that are
/// not greater than `above`. Equal scores are sorted by ascending index.
pub fn highest(scores: &[f32], own: usize, count: usize, above: f32) -> Vec<u32> {
    let mut indices: Vec<u32> =
        (0..scores.len() as u32).filter(|n| *n as usize != own && scores[*n as usize] > above).collect();
    let better = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if indices.len() > count {
        indices.select_nth_unstable_by(count, better);
        indices.truncate(count);
    }
    indices.sort_unstable_by(better);
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_of_rows_are_multiplied() {
        for dim in [1, 7, 8, 40, 67] {
            let numbers = |rows: usize, salt: usize| -> Vec<f32> {
                (0..rows * dim).map(|n| ((n * 31 + salt) % 17) as f32 / 8.0 - 1.0).collect()
            };
            let (mut a, b) = (numbers(3, 5), numbers(4, 11));
            let expected: Vec<f32> = a
                .chunks(dim)
                .flat_map(|x| b.chunks(dim).map(|y| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>()))
                .collect();
            let mut found = vec![9.0];
            products(&a, &b, dim, &mut found);
            assert_eq!(found.len(), 12);
            assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() < 1e-4), "{dim}");
            // An incomplete row is ignored.
            a.pop();
            products(&a, &b, dim, &mut found);
            assert_eq!(found.len(), 8);
        }
        let mut out = vec![1.0];
        products(&[], &[1.0], 1, &mut out);
        assert!(out.is_empty());
        products(&[1.0], &[1.0], 0, &mut out);
        assert!(out.is_empty());
    }
}
