//! The best of the documents that an expression of Tantivy's query language finds.

use tantivy::{
    DocId,
    query::{EnableScoring, Query},
};

use super::{
    Selected,
    best::{Best, Wanted},
    side::Seen,
};

/// The documents of each segment that score no less than the `k`th best of all, in their order.
pub(super) fn best(
    seen: &Seen,
    query: &dyn Query,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Vec<(DocId, f32)>>> {
    let weight = query.weight(EnableScoring::enabled_from_searcher(&seen.searcher))?;
    let mut best = Best::of(k);
    for (n, segment) in seen.searcher.segment_readers().iter().enumerate() {
        let wanted = Wanted::of(segment, selected.map(|selected| selected.segment(n)));
        best.begin_segment();
        // Tantivy leaves out what scores no more than it is told; what ties with the last is wanted.
        weight.for_each_pruning(best.least().next_down(), segment, &mut |doc, score| {
            if wanted.holds(doc) {
                best.offer(doc, score);
            }
            best.least().next_down()
        })?;
    }
    Ok(best.finish())
}
