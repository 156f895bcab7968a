//! Exact top k of one index: scores descending, then ids descending. Ties with the last hit are sorted in the same
//! way.
//!
//! Tantivy's own collector breaks ties by position in the index. Here, all ties with the last hit are kept, and
//! then sorted by id.

use tantivy::{DocId, SegmentReader, Term, columnar::Column, query::Query, schema::Field};

use super::{Selected, expression, names::Names, side::SearchState, sum};
use turnwise_core::ids::Seq;

/// Columns with the ids of a segment's documents.
pub(super) struct Columns {
    dialogues: Option<Names>,
    turns: Column<u64>,
    seqs: Column<u64>,
}

impl Columns {
    pub(super) fn open(segment: &SegmentReader) -> tantivy::Result<Self> {
        let columns = segment.fast_fields();
        Ok(Columns {
            dialogues: columns.str("dialogue")?.map(Names::of),
            turns: columns.u64("turn")?,
            seqs: columns.u64("seq")?,
        })
    }

    /// Returns the ordinal of the dialogue and the turn. Within a segment, ordinals are in the order of the ids.
    fn id(&self, doc: DocId) -> (u64, u32) {
        let dialogue = self.dialogues.as_ref().and_then(|names| names.number(doc));
        (dialogue.unwrap_or(0), self.turns.first(doc).unwrap_or(0) as u32)
    }
}

/// A document found by a search.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) score: f32,
    pub(super) dialogue: String,
    pub(super) turn: u32,
    pub(super) seq: Seq,
}

/// Returns the `k` best selected documents. `terms` is set if the query is a plain sum over terms.
pub(super) fn best(
    state: &SearchState,
    query: &dyn Query,
    terms: Option<&[Term]>,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Found>> {
    if k == 0 {
        return Ok(Vec::new());
    }
    let found = match terms {
        Some(terms) => sum::best(state, terms, k, selected)?,
        None => expression::best(state, query, k, selected)?,
    };
    let chosen = choose(state, &found, k);
    name(state, &chosen, k)
}

/// A candidate whose dialogue id is not read yet.
struct Chosen {
    score: f32,
    segment: usize,
    dialogue: u64,
    turn: u32,
    seq: Seq,
}

/// Returns the `k` best documents, and all documents that tie with the last of them.
fn choose(state: &SearchState, found: &[Vec<(DocId, f32)>], k: usize) -> Vec<Chosen> {
    let mut all = Vec::new();
    for (segment, documents) in found.iter().enumerate() {
        let columns = &state.columns[segment];
        let mut own: Vec<Chosen> = documents
            .iter()
            .map(|(doc, score)| {
                let (dialogue, turn) = columns.id(*doc);
                let seq = Seq(columns.seqs.first(*doc).unwrap_or_default());
                Chosen { score: *score, segment, dialogue, turn, seq }
            })
            .collect();
        // Within a segment, ordinals are in id order, so at most k documents are needed.
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

/// Reads the ids of the dialogues and sorts the hits.
fn name(state: &SearchState, chosen: &[Chosen], k: usize) -> tantivy::Result<Vec<Found>> {
    let mut named = Vec::with_capacity(chosen.len());
    for (segment, columns) in state.columns.iter().enumerate() {
        let mut own: Vec<&Chosen> = chosen.iter().filter(|chosen| chosen.segment == segment).collect();
        let Some(names) = columns.dialogues.as_ref().filter(|_| !own.is_empty()) else { continue };
        own.sort_unstable_by_key(|chosen| chosen.dialogue);
        let numbers: Vec<u64> = own.iter().map(|chosen| chosen.dialogue).collect();
        let mut own = own.into_iter();
        names.each(&numbers, |bytes| {
            named.extend(own.next().map(|chosen| Found {
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

/// Returns the query's terms of a field.
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
