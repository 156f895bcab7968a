//! Top-k search for expressions in Tantivy's query language.

use tantivy::{
    DocId,
    query::{EnableScoring, Query},
};

use super::{
    Selected,
    best::{Best, Wanted},
    side::SearchState,
};

/// Returns, for each segment, the documents that score at least as high as the `k`th best document of all segments.
/// They are in document order.
pub(super) fn best(
    state: &SearchState,
    query: &dyn Query,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Vec<(DocId, f32)>>> {
    let weight = query.weight(EnableScoring::enabled_from_searcher(&state.searcher))?;
    let mut best = Best::of(k);
    for (n, segment) in state.searcher.segment_readers().iter().enumerate() {
        let wanted = Wanted::of(segment, selected.map(|selected| selected.segment(n)));
        best.begin_segment();
        // Tantivy skips scores equal to the threshold. Lower it a little to keep ties with the last hit.
        weight.for_each_pruning(best.least().next_down(), segment, &mut |doc, score| {
            if wanted.holds(doc) {
                best.offer(doc, score);
            }
            best.least().next_down()
        })?;
    }
    Ok(best.finish())
}
