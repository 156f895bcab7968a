//! Exact top k of one Tantivy index, sorted by descending score. Equal scores are sorted by descending id.
//!
//! Tantivy's own collector breaks ties by position in the index. Here, all hits that tie with the last hit are first
//! kept, and then sorted by id.

use std::{
    cmp::{self, Reverse},
    collections::BinaryHeap,
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tantivy::{
    DocId, DocSet, SegmentReader, Term,
    columnar::{Column, StrColumn},
    query::{EnableScoring, Query},
    schema::{Field, IndexRecordOption},
};

use super::{
    Selected,
    few::FactDocuments,
    select,
    side::SearchState,
    sum::{self, Sum},
};
use turnwise_core::ids::{Seq, TurnNo};

/// Columns of a segment: the values of the fields that are not searched as text.
pub(super) struct Columns {
    pub(super) dialogues: Option<Names>,
    pub(super) facts: Option<StrColumn>,
    /// Documents by speaker and by time, made at their first use.
    pub(super) by_speaker: OnceLock<FactDocuments>,
    pub(super) by_time: OnceLock<FactDocuments>,
    turns: Column<u64>,
    seqs: Column<u64>,
    lasts: Column<u64>,
}

impl Columns {
    pub(super) fn open(segment: &SegmentReader) -> tantivy::Result<Self> {
        let columns = segment.fast_fields();
        Ok(Columns {
            dialogues: columns.str("dialogue")?.map(Names::of),
            facts: columns.str("facts")?,
            by_speaker: OnceLock::new(),
            by_time: OnceLock::new(),
            turns: columns.u64("turn")?,
            seqs: columns.u64("seq")?,
            lasts: columns.u64("last")?,
        })
    }

    /// Returns the ordinal of a document's dialogue id, and the turn. Ordinals in a segment have the order of the ids.
    fn id(&self, doc: DocId) -> (u64, TurnNo) {
        let dialogue = self.dialogues.as_ref().and_then(|names| names.ordinal(doc));
        (dialogue.unwrap_or(0), self.turn(doc))
    }

    pub(super) fn turn(&self, doc: DocId) -> TurnNo {
        TurnNo(self.turns.first(doc).unwrap_or_default() as u32)
    }

    pub(super) fn seq(&self, doc: DocId) -> Seq {
        Seq(self.seqs.first(doc).unwrap_or_default())
    }

    pub(super) fn last(&self, doc: DocId) -> u32 {
        self.lasts.first(doc).unwrap_or_default() as u32
    }
}

/// A document found by a search. The turn is 0 for a whole dialogue.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) score: f32,
    pub(super) dialogue: String,
    pub(super) turn: TurnNo,
    pub(super) seq: Seq,
    /// Terms of the query that the document contains; see [`super::LexicalHit::terms`].
    pub(super) terms: Option<u64>,
}

/// Returns the `k` best selected documents. With `sum`, the score is the sum of its terms' scores, and `query` is not
/// used. With `marks_terms`, also finds the terms that each document contains.
pub(super) fn best(
    state: &SearchState,
    query: &dyn Query,
    sum: Option<&Sum>,
    k: usize,
    selected: Option<&Selected>,
    marks_terms: bool,
) -> tantivy::Result<Vec<Found>> {
    if k == 0 {
        return Ok(Vec::new());
    }
    let found = match sum {
        Some(sum) => sum::best(state, sum, k, selected)?,
        None => best_by_expression(state, query, k, selected)?,
    };
    let mut chosen = choose(state, &found, k);
    if let Some(sum) = sum.filter(|_| marks_terms) {
        mark_terms(state, &sum.terms, &mut chosen)?;
    }
    name(state, &chosen, k)
}

/// A found document, before its dialogue id is read.
struct Chosen {
    score: f32,
    segment: usize,
    doc: DocId,
    dialogue: u64,
    turn: TurnNo,
    seq: Seq,
    terms: Option<u64>,
}

/// Sets the terms that each document contains.
fn mark_terms(state: &SearchState, terms: &[Term], chosen: &mut [Chosen]) -> tantivy::Result<()> {
    chosen.sort_unstable_by_key(|chosen| (chosen.segment, chosen.doc));
    for own in chosen.chunk_by_mut(|a, b| a.segment == b.segment) {
        let segment = state.searcher.segment_reader(own[0].segment as u32);
        own.iter_mut().for_each(|chosen| chosen.terms = Some(0));
        for (n, term) in terms.iter().take(u64::BITS as usize).enumerate() {
            let index = segment.inverted_index(term.field())?;
            let Some(mut postings) = index.read_postings(term, IndexRecordOption::Basic)? else { continue };
            for chosen in &mut *own {
                let at = if postings.doc() < chosen.doc { postings.seek(chosen.doc) } else { postings.doc() };
                if at == chosen.doc {
                    chosen.terms = chosen.terms.map(|terms| terms | 1 << n);
                }
            }
        }
    }
    Ok(())
}

/// Returns the `k` best documents, and documents with the same score as the last of them. At most `k` documents of each
/// segment are returned, including those with equal scores.
fn choose(state: &SearchState, found: &[Vec<(DocId, f32)>], k: usize) -> Vec<Chosen> {
    let mut all = Vec::new();
    for (segment, documents) in found.iter().enumerate() {
        let columns = &state.columns[segment];
        let mut own: Vec<Chosen> = documents
            .iter()
            .map(|(doc, score)| {
                let (dialogue, turn) = columns.id(*doc);
                let seq = columns.seq(*doc);
                Chosen { score: *score, segment, doc: *doc, dialogue, turn, seq, terms: None }
            })
            .collect();
        // Within a segment, ordinals have the order of the ids, so at most k documents are needed.
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

/// Reads the ids of the dialogues, and returns the `k` best documents in their final order.
fn name(state: &SearchState, chosen: &[Chosen], k: usize) -> tantivy::Result<Vec<Found>> {
    let mut named = Vec::with_capacity(chosen.len());
    for (segment, columns) in state.columns.iter().enumerate() {
        let mut own: Vec<&Chosen> = chosen.iter().filter(|chosen| chosen.segment == segment).collect();
        let Some(names) = columns.dialogues.as_ref().filter(|_| !own.is_empty()) else { continue };
        own.sort_unstable_by_key(|chosen| chosen.dialogue);
        let ordinals: Vec<u64> = own.iter().map(|chosen| chosen.dialogue).collect();
        let mut own = own.into_iter();
        names.each(&ordinals, |bytes| {
            named.extend(own.next().map(|chosen| Found {
                score: chosen.score,
                dialogue: String::from_utf8_lossy(bytes).into_owned(),
                turn: chosen.turn,
                seq: chosen.seq,
                terms: chosen.terms,
            }));
        })?;
    }
    named.sort_unstable_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| (&b.dialogue, b.turn).cmp(&(&a.dialogue, a.turn)))
    });
    named.truncate(k);
    Ok(named)
}

/// Returns the terms that the query searches in `field`, sorted.
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

/// The documents of a segment that a search may return: not deleted, and selected by the filter if there is one.
pub(super) struct SelectedDocuments<'a> {
    segment: &'a SegmentReader,
    selected: Option<&'a [u64]>,
}

impl<'a> SelectedDocuments<'a> {
    pub(super) fn of(segment: &'a SegmentReader, selected: Option<&'a [u64]>) -> Self {
        SelectedDocuments { segment, selected }
    }

    pub(super) fn holds(&self, doc: DocId) -> bool {
        self.selected.is_none_or(|selected| select::holds(selected, doc))
            && self.segment.alive_bitset().is_none_or(|alive| alive.is_alive(doc))
    }
}

/// Collector of the best documents, segment by segment.
pub(super) struct Best {
    k: usize,
    scores: BinaryHeap<Reverse<Score>>,
    found: Vec<Vec<(DocId, f32)>>,
    /// When this number of documents is collected from the current segment, those below the `k`th best score are
    /// removed.
    limit: usize,
}

#[derive(PartialEq)]
struct Score(f32);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
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

    /// Returns the `k`th best score so far; `f32::MIN` while there are fewer than `k`. A later document with a lower
    /// score is not among the best `k`.
    pub(super) fn least(&self) -> f32 {
        match self.scores.peek() {
            Some(Reverse(Score(least))) if self.scores.len() == self.k => *least,
            _ => f32::MIN,
        }
    }

    #[inline]
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

    /// Returns for each segment the documents that score at least as high as the `k`th best, in the order in which
    /// the documents were added.
    pub(super) fn finish(mut self) -> Vec<Vec<(DocId, f32)>> {
        let least = self.least();
        self.found.iter_mut().for_each(|documents| documents.retain(|(_, score)| *score >= least));
        self.found
    }
}

/// Returns for each segment, in document order, the documents that score at least as high as the `k`th best document
/// of all segments.
fn best_by_expression(
    state: &SearchState,
    query: &dyn Query,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Vec<(DocId, f32)>>> {
    let weight = query.weight(EnableScoring::enabled_from_searcher(&state.searcher))?;
    let mut best = Best::of(k);
    for (n, segment) in state.searcher.segment_readers().iter().enumerate() {
        let wanted = SelectedDocuments::of(segment, selected.map(|selected| selected.segment(n)));
        best.begin_segment();
        // Tantivy skips scores equal to the threshold. Lower the threshold a little to keep ties with the last hit.
        weight.for_each_pruning(best.least().next_down(), segment, &mut |doc, score| {
            if wanted.holds(doc) {
                best.offer(doc, score);
            }
            best.least().next_down()
        })?;
    }
    Ok(best.finish())
}

/// Approximate number of ids that must be decoded to read one id: the ids before it in the same dictionary block.
const READ_FOR_ONE: u64 = 500;

/// Dialogue ids of a segment, in a compressed dictionary. When searches have decoded about as many ids as the segment
/// has, all ids are decoded once and cached.
pub(super) struct Names {
    pub(super) column: StrColumn,
    decoded: AtomicU64,
    all: OnceLock<All>,
}

/// All ids, concatenated, and the end offset of each id.
struct All {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    fn of(column: StrColumn) -> Self {
        Names { column, decoded: AtomicU64::new(0), all: OnceLock::new() }
    }

    /// Returns the ordinal of a document's dialogue id. Ordinals have the order of the ids.
    pub(super) fn ordinal(&self, doc: DocId) -> Option<u64> {
        self.column.ords().first(doc)
    }

    pub(super) fn id(&self, doc: DocId) -> io::Result<Option<String>> {
        let mut id = String::new();
        let found = self.ordinal(doc).map(|ordinal| self.column.ord_to_str(ordinal, &mut id)).transpose()?;
        Ok((found == Some(true)).then_some(id))
    }

    /// Calls `name` with the id of each ordinal. The ordinals must be sorted.
    fn each(&self, ordinals: &[u64], mut name: impl FnMut(&[u8])) -> io::Result<()> {
        let some = (ordinals.len() as u64).saturating_mul(READ_FOR_ONE);
        let before = self.decoded.fetch_add(some, Ordering::Relaxed);
        if before < self.column.num_terms() as u64 {
            return self.column.dictionary().sorted_ords_to_term_cb(ordinals, name).map(|_| ());
        }
        let all = match self.all.get() {
            Some(all) => all,
            None => {
                let all = self.read_all()?;
                self.all.get_or_init(|| all)
            }
        };
        ordinals.iter().filter_map(|ordinal| all.get(*ordinal)).for_each(&mut name);
        Ok(())
    }

    fn read_all(&self) -> io::Result<All> {
        let mut all = All { bytes: Vec::new(), ends: Vec::with_capacity(self.column.num_terms()) };
        let mut names = self.column.dictionary().stream()?;
        while names.advance() {
            all.bytes.extend_from_slice(names.key());
            all.ends.push(all.bytes.len());
        }
        all.bytes.shrink_to_fit();
        Ok(all)
    }
}

impl All {
    fn get(&self, ordinal: u64) -> Option<&[u8]> {
        let ordinal = usize::try_from(ordinal).ok()?;
        let start = ordinal.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(ordinal)?)
    }
}
