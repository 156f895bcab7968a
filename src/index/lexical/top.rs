//! The best documents of one index, exactly: score descending, then id descending, also at the last place.
//!
//! Tantivy's own collector settles ties by the place in the index, and its sums of three and more terms are not the
//! same for equal documents, because it adds them up in an order that changes on the way. So here everything that is
//! within rounding of the last place is kept, scored again in one order, and told apart by the ids.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use tantivy::{
    DocId, DocSet, SegmentReader, TERMINATED, Term,
    columnar::{Column, StrColumn},
    postings::Postings,
    query::{Bm25Weight, EnableScoring, Query},
    schema::{Field, IndexRecordOption},
};

use super::{Selected, select, side::Seen};
use crate::ids::Seq;

/// The ids of a segment's documents, without its document store.
pub(super) struct Columns {
    dialogues: Option<StrColumn>,
    turns: Column<u64>,
    seqs: Column<u64>,
}

impl Columns {
    pub(super) fn open(segment: &SegmentReader) -> tantivy::Result<Self> {
        let columns = segment.fast_fields();
        Ok(Columns {
            dialogues: columns.str("dialogue")?,
            turns: columns.u64("turn")?,
            seqs: columns.u64("seq")?,
        })
    }

    /// The dialogue as a number that grows with its id within the segment, and the turn.
    fn id(&self, doc: DocId) -> (u64, u32) {
        let dialogue = self.dialogues.as_ref().and_then(|column| column.ords().first(doc));
        (dialogue.unwrap_or(0), self.turns.first(doc).unwrap_or(0) as u32)
    }
}

/// A document that was found.
#[derive(Debug, PartialEq)]
pub(super) struct Best {
    pub(super) score: f32,
    pub(super) dialogue: String,
    pub(super) turn: u32,
    pub(super) seq: Seq,
}

/// The `k` best documents, of those that are selected. `terms` are those of a query that is nothing but a sum over terms; they are scored again.
pub(super) fn best(
    seen: &Seen,
    query: &dyn Query,
    terms: Option<&[Term]>,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Best>> {
    if k == 0 {
        return Ok(Vec::new());
    }
    let mut candidates = Candidates::new(k, terms.map_or(1, <[Term]>::len));
    let weight = query.weight(EnableScoring::enabled_from_searcher(&seen.searcher))?;
    let mut found = Vec::new();
    for (n, segment) in seen.searcher.segment_readers().iter().enumerate() {
        candidates.begin_segment();
        let alive = segment.alive_bitset();
        let selected = selected.map(|selected| selected.segment(n));
        weight.for_each_pruning(candidates.floor, segment, &mut |doc, score| {
            let wanted = selected.is_none_or(|selected| select::holds(selected, doc));
            if wanted && alive.is_none_or(|alive| alive.is_alive(doc)) {
                candidates.offer(doc, score);
            }
            candidates.floor
        })?;
        found.push(std::mem::take(&mut candidates.documents));
    }
    for (n, documents) in found.iter_mut().enumerate() {
        documents.retain(|(_, score)| *score > candidates.floor);
        // Two numbers have the same sum in either order.
        if let Some(terms) = terms.filter(|terms| terms.len() > 2) {
            score_again(seen, n, terms, documents)?;
        }
    }
    let chosen = choose(seen, &found, k);
    name(seen, &chosen, k)
}

/// What may be among the `k` best, segment by segment.
struct Candidates {
    k: usize,
    /// How far two sums of the same numbers can be apart, as a part of them.
    rounding: f32,
    /// The `k` best scores so far.
    scores: BinaryHeap<Reverse<Score>>,
    /// What scores more than this is a candidate.
    floor: f32,
    documents: Vec<(DocId, f32)>,
    /// At so many documents those below the floor are thrown out.
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

impl Candidates {
    fn new(k: usize, terms: usize) -> Self {
        Candidates {
            k,
            rounding: (terms + 8) as f32 * 4.0 * f32::EPSILON,
            scores: BinaryHeap::new(),
            floor: f32::MIN,
            documents: Vec::new(),
            limit: 0,
        }
    }

    fn begin_segment(&mut self) {
        self.documents.clear();
        self.limit = self.k.saturating_mul(2).max(1024);
    }

    fn offer(&mut self, doc: DocId, score: f32) {
        self.documents.push((doc, score));
        if self.scores.len() < self.k {
            self.scores.push(Reverse(Score(score)));
        } else if let Some(mut least) = self.scores.peek_mut()
            && score > least.0.0
        {
            least.0.0 = score;
        }
        if self.scores.len() == self.k
            && let Some(Reverse(Score(least))) = self.scores.peek()
        {
            self.floor = least - (least.abs() * self.rounding).max(f32::MIN_POSITIVE);
        }
        if self.documents.len() >= self.limit {
            let floor = self.floor;
            self.documents.retain(|(_, score)| *score > floor);
            self.limit = self.limit.max(self.documents.len() * 2);
        }
    }
}

/// BM25 over the terms in one order, so that equal documents have equal scores. The documents are in their order.
fn score_again(
    seen: &Seen,
    segment: usize,
    terms: &[Term],
    documents: &mut [(DocId, f32)],
) -> tantivy::Result<()> {
    let mut sums = vec![0.0f64; documents.len()];
    let reader = seen.searcher.segment_reader(segment as u32);
    for term in terms {
        let field = term.field();
        let Some(mut postings) =
            reader.inverted_index(field)?.read_postings(term, IndexRecordOption::WithFreqs)?
        else {
            continue;
        };
        let weight = Bm25Weight::for_terms(&seen.searcher, std::slice::from_ref(term))?;
        let norms = reader.get_fieldnorms_reader(field)?;
        for ((doc, _), sum) in documents.iter().zip(&mut sums) {
            let at = match postings.doc() {
                at if at < *doc => postings.seek(*doc),
                at => at,
            };
            if at == *doc {
                *sum += f64::from(weight.score(norms.fieldnorm_id(*doc), postings.term_freq()));
            }
            if at == TERMINATED {
                break;
            }
        }
    }
    for ((_, score), sum) in documents.iter_mut().zip(sums) {
        *score = sum as f32;
    }
    Ok(())
}

/// A candidate, still without the name of its dialogue.
struct Chosen {
    score: f32,
    segment: usize,
    dialogue: u64,
    turn: u32,
    seq: Seq,
}

/// The `k` best and what ties with the last of them.
fn choose(seen: &Seen, found: &[Vec<(DocId, f32)>], k: usize) -> Vec<Chosen> {
    let mut all = Vec::new();
    for (segment, documents) in found.iter().enumerate() {
        let columns = &seen.columns[segment];
        let mut own: Vec<Chosen> = documents
            .iter()
            .map(|(doc, score)| {
                let (dialogue, turn) = columns.id(*doc);
                let seq = Seq(columns.seqs.first(*doc).unwrap_or_default());
                Chosen { score: *score, segment, dialogue, turn, seq }
            })
            .collect();
        // Within a segment the numbers of the dialogues are in the order of their ids: no more than k can be wanted.
        own.sort_unstable_by(|a, b| {
            b.score.total_cmp(&a.score).then_with(|| (b.dialogue, b.turn).cmp(&(a.dialogue, a.turn)))
        });
        own.truncate(k);
        all.append(&mut own);
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    if let Some(last) = all.get(k - 1).map(|last| last.score) {
        all.retain(|chosen| chosen.score >= last);
    }
    all
}

/// Reads the names of the dialogues, and brings all into the final order.
fn name(seen: &Seen, chosen: &[Chosen], k: usize) -> tantivy::Result<Vec<Best>> {
    let mut named = Vec::with_capacity(chosen.len());
    for (segment, columns) in seen.columns.iter().enumerate() {
        let mut own: Vec<&Chosen> = chosen.iter().filter(|chosen| chosen.segment == segment).collect();
        let Some(dialogues) = columns.dialogues.as_ref().filter(|_| !own.is_empty()) else { continue };
        own.sort_unstable_by_key(|chosen| chosen.dialogue);
        let numbers: Vec<u64> = own.iter().map(|chosen| chosen.dialogue).collect();
        let mut own = own.into_iter();
        dialogues.dictionary().sorted_ords_to_term_cb(&numbers, |bytes| {
            named.extend(own.next().map(|chosen| Best {
                score: chosen.score,
                dialogue: String::from_utf8_lossy(bytes).into_owned(),
                turn: chosen.turn,
                seq: chosen.seq,
            }));
        })?;
    }
    named.sort_unstable_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| (&b.dialogue, b.turn).cmp(&(&a.dialogue, a.turn)))
    });
    named.truncate(k);
    Ok(named)
}

/// A field's terms, as a query has them.
pub(super) fn terms_of(query: &dyn Query, field: Field) -> Vec<String> {
    let mut terms = Vec::new();
    query.query_terms(&mut |term, _| {
        if term.field() == field {
            terms.extend(term.value().as_str().map(str::to_owned));
        }
    });
    terms.sort_unstable();
    terms.dedup();
    terms
}
