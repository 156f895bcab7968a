//! Scores by the vectors themselves, and the search that looks at all of them.

use half::f16;

use crate::{
    Error, Hit, Metric, Result,
    distances::{Dispatch, Distances, Task},
    frozen::{Frozen, Vectors},
    points::prepared,
    search::Allowed,
};

/// Scores vectors that are in no graph as a graph scores its own: the same vector has the same score, to the bit.
pub struct Scorer {
    metric: Metric,
    query: Vec<f32>,
    vector: Vec<f32>,
    level: Dispatch,
}

impl Scorer {
    /// For a query; `None` if it has no direction, so that it is near to nothing.
    pub fn new(metric: Metric, query: &[f32]) -> Result<Option<Self>> {
        let mut prepared_query = Vec::new();
        let usable = prepared(metric, query.len(), query, &mut prepared_query);
        let usable = usable.map_err(|what| Error::input(format!("the query: {what}")))?;
        let level = Dispatch::best();
        Ok(usable.then_some(Scorer { metric, query: prepared_query, vector: Vec::new(), level }))
    }

    /// The score of a vector; `None` if it has no direction.
    pub fn score(&mut self, vector: &[f32]) -> Result<Option<f32>> {
        let usable =
            prepared(self.metric, self.query.len(), vector, &mut self.vector).map_err(Error::input)?;
        Ok(usable
            .then(|| self.level.run(One { metric: self.metric, query: &self.query, vector: &self.vector })))
    }
}

/// The score of two vectors of the same length.
struct One<'a> {
    metric: Metric,
    query: &'a [f32],
    vector: &'a [f32],
}

impl Task for One<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Distances>(self) -> f32 {
        // SAFETY: both have been brought to the same length by `prepared`.
        unsafe { pair::<S>(self.metric, self.query.as_ptr(), self.vector.as_ptr(), self.query.len()) }
    }
}

/// As the metric has it.
///
/// # Safety
///
/// Both must have so many numbers.
#[inline(always)]
unsafe fn pair<S: Distances>(metric: Metric, a: *const f32, b: *const f32, length: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match metric {
            Metric::L2 => -S::floats::<true>(a, b, length).sqrt(),
            _ => S::floats::<false>(a, b, length),
        }
    }
}

/// The score of one node, as the metric has it. Inlined into loops.
///
/// # Safety
///
/// The node must be one of the graph's, and the query of its width.
#[inline(always)]
pub(crate) unsafe fn score<S: Distances>(
    frozen: &Frozen,
    vectors: Vectors<'_>,
    query: &[f32],
    node: u32,
    wide: &mut [f32],
) -> f32 {
    let dim = frozen.header.dim;
    // SAFETY: the caller's promise.
    unsafe {
        let vector = match vectors {
            Vectors::F32(flat) => flat.as_ptr().add(node as usize * dim),
            Vectors::F16(flat) => {
                widen(flat.get_unchecked(node as usize * dim..(node as usize + 1) * dim), wide);
                wide.as_ptr()
            }
        };
        pair::<S>(frozen.header.metric, query.as_ptr(), vector, dim)
    }
}

/// Asks for a node's vector.
#[inline(always)]
pub(crate) fn prefetch<S: Distances>(frozen: &Frozen, vectors: Vectors<'_>, node: u32) {
    let (start, bytes) = match vectors {
        Vectors::F32(flat) => (flat.as_ptr().cast::<u8>(), frozen.header.dim * 4),
        Vectors::F16(flat) => (flat.as_ptr().cast::<u8>(), frozen.header.dim * 2),
    };
    S::prefetch_all(start.wrapping_add(node as usize * bytes), bytes);
}

#[inline(always)]
fn widen(from: &[f16], to: &mut [f32]) {
    half::slice::HalfFloatSliceExt::convert_to_f32_slice(from, to);
}

/// Looks at all nodes that are allowed.
pub(crate) struct Scan<'a> {
    pub(crate) frozen: &'a Frozen,
    pub(crate) query: &'a [f32],
    pub(crate) k: usize,
    pub(crate) allowed: Option<&'a Allowed>,
    pub(crate) wide: &'a mut Vec<f32>,
    pub(crate) out: &'a mut Vec<Hit>,
}

impl Task for Scan<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Scan { frozen, query, k, allowed, wide, out } = self;
        wide.resize(frozen.header.dim, 0.0);
        let vectors = frozen.originals();
        let mut best = Best { k, hits: out };
        let everyone = 0..if allowed.is_some() { 0 } else { frozen.nodes() as u32 };
        for node in everyone.chain(allowed.iter().flat_map(|allowed| allowed.nodes())) {
            // SAFETY: nodes below the number of nodes, and the query has been checked.
            let score = unsafe { score::<S>(frozen, vectors, query, node, wide) };
            best.offer(Hit { node, score });
        }
        best.finish();
    }
}

/// Looks at all nodes for several queries at once: each vector is fetched once, not once a query.
pub(crate) struct Scans<'a> {
    pub(crate) frozen: &'a Frozen,
    /// Prepared, each with its best.
    pub(crate) queries: &'a mut [(Vec<f32>, Vec<Hit>)],
    pub(crate) k: usize,
}

impl Task for Scans<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Scans { frozen, queries, k } = self;
        let (vectors, mut wide) = (frozen.originals(), vec![0.0; frozen.header.dim]);
        for node in 0..frozen.nodes() as u32 {
            for (query, hits) in queries.iter_mut() {
                // SAFETY: nodes below the number of nodes, and the queries are vectors of the graph.
                let score = unsafe { score::<S>(frozen, vectors, query, node, &mut wide) };
                Best { k, hits }.offer(Hit { node, score });
            }
        }
        for (_, hits) in queries {
            Best { k, hits }.finish();
        }
    }
}

/// The best so far: twice as many as wanted are gathered before the lesser half is dropped.
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
