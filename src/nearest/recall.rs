//! How much of what is nearest a search finds.

use rayon::prelude::*;

use crate::{Ask, Frozen, Result, Scratch};

/// Recall, measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recall {
    /// Of the `k` nearest by looking at all, the part that was found.
    pub recall: f64,
    /// How many were looked for.
    pub k: usize,
    /// How many queries.
    pub queries: usize,
}

/// Measures recall with some of the graph's own vectors as queries, spread evenly over all; each must find its neighbours
/// besides itself.
pub fn measure(frozen: &Frozen, ask: &Ask, queries: usize) -> Result<Recall> {
    let nodes = frozen.nodes();
    let queries = queries.min(nodes);
    let k = ask.k.min(nodes.saturating_sub(1));
    if queries == 0 || k == 0 {
        return Ok(Recall { recall: 1.0, k, queries: 0 });
    }
    let found = (0..queries)
        .into_par_iter()
        .map_init(
            || (Scratch::default(), Vec::new(), Vec::new()),
            |(scratch, nearest, found), n| {
                let node = (n * nodes / queries) as u32;
                let query = frozen.vector(node);
                let ask = Ask { k: k + 1, ..*ask };
                frozen.search(&query, &Ask { exact: true, ..ask }, scratch, nearest)?;
                frozen.search(&query, &ask, scratch, found)?;
                // The score of the k-th decides: which of several equally near ones is found does not matter.
                let others = nearest.iter().filter(|hit| hit.node != node).take(k);
                let Some(least) = others.map(|hit| hit.score).reduce(f32::min) else { return Ok(k) };
                Ok(found.iter().filter(|hit| hit.node != node && hit.score >= least).take(k).count())
            },
        )
        .try_reduce(|| 0, |a, b| Ok(a + b))?;
    Ok(Recall { recall: found as f64 / (k * queries) as f64, k, queries })
}
