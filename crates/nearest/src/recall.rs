//! Measuring the recall of a graph.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::{
    Ask, Error, Frozen, Progress, Result, Scratch, Step, exact::Scans, file::Header, points::prepared,
};

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
                return Err(crate::progress::stopped());
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
            let done = done.fetch_add(sample.len(), Ordering::Relaxed) + sample.len();
            progress.done(Step::Measuring, done, queries);
            Ok(found)
        })
        .try_reduce(|| 0, |a, b| Ok(a + b))?;
    Ok(Recall { recall: found as f64 / (k * queries) as f64, k, queries })
}
