//! Collector for the top k documents, including all ties with the last one.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use tantivy::{DocId, SegmentReader};

use super::select;

/// The documents of a segment that may be returned.
pub(super) struct Wanted<'a> {
    segment: &'a SegmentReader,
    selected: Option<&'a [u64]>,
}

impl<'a> Wanted<'a> {
    pub(super) fn of(segment: &'a SegmentReader, selected: Option<&'a [u64]>) -> Self {
        Wanted { segment, selected }
    }

    pub(super) fn holds(&self, doc: DocId) -> bool {
        self.selected.is_none_or(|selected| select::holds(selected, doc))
            && self.segment.alive_bitset().is_none_or(|alive| alive.is_alive(doc))
    }
}

/// Candidates for the top `k`, segment by segment.
pub(super) struct Best {
    k: usize,
    /// The `k` best scores so far.
    scores: BinaryHeap<Reverse<Score>>,
    /// Documents of each segment, with their scores.
    found: Vec<Vec<(DocId, f32)>>,
    /// Number of documents in the last segment at which documents below the threshold are removed.
    limit: usize,
}

#[derive(PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Best {
    pub(super) fn of(k: usize) -> Self {
        Best { k, scores: BinaryHeap::new(), found: Vec::new(), limit: 0 }
    }

    pub(super) fn begin_segment(&mut self) {
        self.found.push(Vec::new());
        self.limit = self.k.saturating_mul(2).max(1024);
    }

    /// Minimum score of the top k so far.
    pub(super) fn least(&self) -> f32 {
        match self.scores.peek() {
            Some(Reverse(Score(least))) if self.scores.len() == self.k => *least,
            _ => f32::MIN,
        }
    }

    pub(super) fn offer(&mut self, doc: DocId, score: f32) {
        if score < self.least() {
            return;
        }
        if self.scores.len() < self.k {
            self.scores.push(Reverse(Score(score)));
        } else if let Some(mut least) = self.scores.peek_mut()
            && score > least.0.0
        {
            least.0.0 = score;
        }
        let least = self.least();
        if let Some(documents) = self.found.last_mut() {
            documents.push((doc, score));
            if documents.len() >= self.limit {
                documents.retain(|(_, score)| *score >= least);
                self.limit = self.limit.max(documents.len() * 2);
            }
        }
    }

    /// Returns the documents of each segment that score at least as high as the `k`th best, in the order in
    /// which they were added.
    pub(super) fn finish(mut self) -> Vec<Vec<(DocId, f32)>> {
        let least = self.least();
        self.found.iter_mut().for_each(|documents| documents.retain(|(_, score)| *score >= least));
        self.found
    }
}
