//! Evaluates filters on the facts in the index (see [`turnwise_corpus::filter::Facts`]). Each distinct fact is tested
//! once, then the documents with matching facts are selected. A record is read only if its facts cannot decide the
//! filter.

use std::sync::Arc;

use tantivy::{
    DocId, SegmentReader,
    columnar::{Column, StrColumn},
};

use super::{Lexical, side, side::Side};
use crate::{
    admitted::{self, Admitted, Span},
    vectors::Kind,
};
use turnwise_core::{
    error::{Result, caught},
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::{Change, Position, Snapshot};

/// Result of a filter, as documents of the index and as records.
pub struct Selected {
    /// For each segment of the kind's index, one bit per document.
    documents: Vec<Vec<u64>>,
    /// Accepted items by sequence number, including records that are not indexed yet.
    pub admitted: Arc<Admitted>,
}

impl Selected {
    pub(super) fn segment(&self, n: usize) -> &[u64] {
        self.documents.get(n).map_or(&[], Vec::as_slice)
    }
}

pub(super) fn holds(bits: &[u64], doc: DocId) -> bool {
    bits.get(doc as usize / 64).is_some_and(|word| word >> (doc % 64) & 1 == 1)
}

impl Lexical {
    /// Evaluates a filter. Returns `None` if the two indexes are at different positions or belong to another
    /// log; then the records must be tested.
    pub fn select(&self, snapshot: &Snapshot, filter: &Filter, kind: Kind) -> Result<Option<Selected>> {
        let (Some(a), Some(b)) = (self.utterances.progress(), self.dialogues.progress()) else {
            return Ok(None);
        };
        if a != b || a.log != snapshot.log_id() || a.at > snapshot.end() {
            return Ok(None);
        }
        let run = Run { lexical: self, snapshot, filter, kind, behind: a.at };
        caught(|| run.run()).unwrap_or_else(|| Err(self.dialogues.is_damaged())).map(Some)
    }
}

/// Documents of the index and items of the records that were selected so far.
struct Found {
    documents: Vec<Vec<u64>>,
    admitted: Admitted,
}

struct Run<'a> {
    lexical: &'a Lexical,
    snapshot: &'a Snapshot,
    filter: &'a Filter,
    kind: Kind,
    /// Log position that the index has reached.
    behind: Position,
}

/// A dialogue, and the conditions that the facts of the dialogue (not of its turns) meet.
#[derive(Clone, Copy)]
struct DialogueEntry {
    seq: Seq,
    last: u32,
    outcome: Outcome,
}

/// Two sets of the filter's conditions, one bit per condition: `fit` has the conditions that a fact meets, and
/// `unknown` has the conditions that the facts cannot decide.
#[derive(Clone, Copy, Default)]
struct Outcome {
    fit: u64,
    unknown: u64,
}

impl Outcome {
    fn and(self, more: Outcome) -> Outcome {
        Outcome { fit: self.fit | more.fit, unknown: self.unknown | more.unknown }
    }
}

impl Run<'_> {
    fn run(&self) -> Result<Selected> {
        let whole = self.kind == Kind::Dialogues;
        let mut dialogues = self.dialogues(whole)?;
        let tail = self.tail()?;
        let spans = dialogues.iter().flatten().map(|own| match self.kind {
            Kind::Dialogues => Span { seq: own.seq, bits: 1 },
            Kind::Utterances => Span { seq: own.seq, bits: own.last },
        });
        let spans =
            spans.chain(tail.iter().map(|(seq, d)| Span { seq: *seq, bits: admitted::span(self.kind, d) }));
        let mut found = Found { documents: Vec::new(), admitted: Admitted::over(spans) };
        match whole {
            true => self.select_dialogues(&dialogues, &mut found)?,
            false => {
                let mut all: Vec<DialogueEntry> = dialogues.drain(..).flatten().collect();
                all.sort_unstable_by_key(|own| own.seq);
                self.select_turns(&all, &mut found)?;
            }
        }
        for (seq, dialogue) in &tail {
            admitted::admit(self.filter, self.kind, *seq, dialogue, &mut |seq, turn| {
                found.admitted.admit(seq, turn);
            });
        }
        Ok(Selected { documents: found.documents, admitted: Arc::new(found.admitted) })
    }

    /// Reads the records that are newer than the index. Indexed dialogues that were replaced or deleted since then
    /// keep their old sequence number in the result. No live record has that number.
    fn tail(&self) -> Result<Vec<(Seq, Box<Dialogue>)>> {
        let mut tail = Vec::new();
        let mut changes = self.snapshot.changes(self.behind);
        while let Some(change) = changes.next_change() {
            if let Change::Put { dialogue, live: true } = change?
                && let Some(seq) = self.snapshot.seq_of(dialogue.id.key())
            {
                tail.push((seq, dialogue));
            }
        }
        Ok(tail)
    }

    fn segments<'b>(&self, side: &'b Side) -> Result<&'b [SegmentReader]> {
        Ok(side.state()?.searcher.segment_readers())
    }

    /// Returns the dialogues of each segment in document order, without deleted ones.
    fn dialogues(&self, whole: bool) -> Result<Vec<Vec<DialogueEntry>>> {
        let side = &self.lexical.dialogues;
        let failed = |e: tantivy::TantivyError| side::failed(&side.folder, &e);
        let always = self.needing_records(whole);
        let mut all = Vec::new();
        for segment in self.segments(side)? {
            let columns = Columns::open(segment).map_err(failed)?;
            let facts = self.facts(&columns, whole).map_err(failed)?;
            let ids = self.ids(&columns).map_err(failed)?;
            let outcome = |doc| {
                let id = columns.dialogues.as_ref().and_then(|column| column.ords().first(doc));
                let id = id.and_then(|ord| ids.get(ord as usize)).copied().unwrap_or_default();
                always.and(Outcome { fit: id, unknown: 0 }).and(columns.outcome(doc, &facts))
            };
            let own =
                |doc| DialogueEntry { seq: columns.seq(doc), last: columns.last(doc), outcome: outcome(doc) };
            all.push(segment.doc_ids_alive().map(own).collect());
        }
        Ok(all)
    }

    fn select_dialogues(&self, dialogues: &[Vec<DialogueEntry>], found: &mut Found) -> Result<()> {
        for (segment, own) in self.segments(&self.lexical.dialogues)?.iter().zip(dialogues) {
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut ids = Ids::of(&self.lexical.dialogues, segment);
            for (doc, own) in segment.doc_ids_alive().zip(own) {
                let is = match self.filter.decide(own.outcome.fit, own.outcome.unknown) {
                    Some(is) => is,
                    None => match self.record(own.seq, &mut ids, doc)? {
                        Some(dialogue) => self.filter.matches(dialogue),
                        None => false,
                    },
                };
                if is {
                    bits[doc as usize / 64] |= 1 << (doc % 64);
                    found.admitted.admit(own.seq, None);
                }
            }
            found.documents.push(bits);
        }
        Ok(())
    }

    fn select_turns(&self, dialogues: &[DialogueEntry], found: &mut Found) -> Result<()> {
        let side = &self.lexical.utterances;
        let failed = |e: tantivy::TantivyError| side::failed(&side.folder, &e);
        let always = self.needing_records(false);
        let open = (0..self.filter.tests()).filter(|test| !self.filter.tests_id(*test));
        let open = Outcome { fit: 0, unknown: open.fold(0, |bits, test| bits | 1 << test) };
        for segment in self.segments(side)? {
            let columns = Columns::open(segment).map_err(failed)?;
            let facts = self.facts(&columns, false).map_err(failed)?;
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut ids = Ids::of(side, segment);
            // Turns of a dialogue are usually adjacent: keep the last result.
            let mut last: Option<(DialogueEntry, Option<bool>)> = None;
            for doc in segment.doc_ids_alive() {
                let seq = columns.seq(doc);
                let (own, decided) = match last.filter(|(own, _)| own.seq == seq) {
                    Some(known) => known,
                    None => {
                        let Ok(at) = dialogues.binary_search_by_key(&seq, |own| own.seq) else { continue };
                        let own = dialogues[at];
                        let outcome = own.outcome.and(open);
                        *last.insert((own, self.filter.decide(outcome.fit, outcome.unknown)))
                    }
                };
                let is = decided.or_else(|| {
                    let outcome = own.outcome.and(always).and(columns.outcome(doc, &facts));
                    self.filter.decide(outcome.fit, outcome.unknown)
                });
                let turn = columns.turn(doc);
                let is = match is {
                    Some(is) => is,
                    None => self.record(seq, &mut ids, doc)?.is_some_and(|dialogue| {
                        let turn = dialogue.turns.iter().find(|t| t.number == turn);
                        turn.is_some_and(|turn| self.filter.matches_turn(dialogue, turn))
                    }),
                };
                if is {
                    bits[doc as usize / 64] |= 1 << (doc % 64);
                    found.admitted.admit(seq, Some(turn));
                }
            }
            found.documents.push(bits);
        }
        Ok(())
    }

    /// Returns the conditions that only a record can decide.
    fn needing_records(&self, whole: bool) -> Outcome {
        let tests = (0..self.filter.tests()).filter(|test| self.filter.needs_record(*test, whole));
        Outcome { fit: 0, unknown: tests.fold(0, |bits, test| bits | 1 << test) }
    }

    /// Evaluates each distinct fact of a segment; indexed by term ordinal.
    fn facts(&self, columns: &Columns, whole: bool) -> tantivy::Result<Vec<Outcome>> {
        let Some(column) = &columns.facts else { return Ok(Vec::new()) };
        let mut outcome = vec![Outcome::default(); column.dictionary().num_terms()];
        for test in 0..self.filter.tests() {
            for name in self.filter.fact_names(test, whole) {
                let mut stream = column.dictionary().prefix_range(&name).into_stream()?;
                while stream.advance() {
                    let value =
                        stream.key().get(name.len()..).and_then(|value| std::str::from_utf8(value).ok());
                    let outcome = &mut outcome[stream.term_ord() as usize];
                    match value.map_or(Some(false), |value| self.filter.fact_matches(test, value)) {
                        Some(fits) => outcome.fit |= u64::from(fits) << test,
                        None => outcome.unknown |= 1 << test,
                    }
                }
            }
        }
        Ok(outcome)
    }

    /// For each dialogue id of a segment, returns the id conditions of the filter that it meets.
    fn ids(&self, columns: &Columns) -> tantivy::Result<Vec<u64>> {
        let tests: Vec<usize> = (0..self.filter.tests()).filter(|test| self.filter.tests_id(*test)).collect();
        let Some(column) = columns.dialogues.as_ref().filter(|_| !tests.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut fit = Vec::with_capacity(column.dictionary().num_terms());
        let mut stream = column.dictionary().stream()?;
        while stream.advance() {
            let id = String::from_utf8_lossy(stream.key());
            fit.push(
                tests
                    .iter()
                    .fold(0, |bits, test| bits | u64::from(self.filter.id_matches(*test, &id)) << test),
            );
        }
        Ok(fit)
    }

    fn record<'b>(&self, seq: Seq, ids: &'b mut Ids<'_>, doc: DocId) -> Result<Option<&'b Dialogue>> {
        if ids.read.as_ref().is_none_or(|(read, _)| *read != seq) {
            ids.read = None;
            if let Some(id) = ids.name(doc)?
                && let Some((now, dialogue)) = self.snapshot.record(id.key())?
                && now == seq
            {
                ids.read = Some((seq, dialogue));
            }
        }
        Ok(ids.read.as_ref().map(|(_, dialogue)| dialogue))
    }
}

/// The columns of a segment that filters need.
struct Columns {
    dialogues: Option<StrColumn>,
    facts: Option<StrColumn>,
    turns: Column<u64>,
    seqs: Column<u64>,
    lasts: Column<u64>,
}

impl Columns {
    fn open(segment: &SegmentReader) -> tantivy::Result<Self> {
        let columns = segment.fast_fields();
        Ok(Columns {
            dialogues: columns.str("dialogue")?,
            facts: columns.str("facts")?,
            turns: columns.u64("turn")?,
            seqs: columns.u64("seq")?,
            lasts: columns.u64("last")?,
        })
    }

    fn seq(&self, doc: DocId) -> Seq {
        Seq(self.seqs.first(doc).unwrap_or_default())
    }

    fn last(&self, doc: DocId) -> u32 {
        self.lasts.first(doc).unwrap_or_default() as u32
    }

    fn turn(&self, doc: DocId) -> TurnNo {
        TurnNo(self.turns.first(doc).unwrap_or_default() as u32)
    }

    fn outcome(&self, doc: DocId, facts: &[Outcome]) -> Outcome {
        let Some(column) = &self.facts else { return Outcome::default() };
        column
            .ords()
            .values_for_doc(doc)
            .filter_map(|ord| facts.get(ord as usize))
            .fold(Outcome::default(), |all, outcome| all.and(*outcome))
    }
}

/// Ids of a segment's dialogues, with the last record read.
struct Ids<'a> {
    side: &'a Side,
    segment: &'a SegmentReader,
    read: Option<(Seq, Dialogue)>,
}

impl<'a> Ids<'a> {
    fn of(side: &'a Side, segment: &'a SegmentReader) -> Self {
        Ids { side, segment, read: None }
    }

    fn name(&self, doc: DocId) -> Result<Option<DialogueId>> {
        let failed = |e: tantivy::TantivyError| side::failed(&self.side.folder, &e);
        let Some(column) = self.segment.fast_fields().str("dialogue").map_err(failed)? else {
            return Ok(None);
        };
        let mut name = String::new();
        let there = column.ords().first(doc).map(|ord| column.ord_to_str(ord, &mut name)).transpose();
        let there = there.map_err(|e| failed(e.into()))?;
        (there == Some(true)).then(|| DialogueId::new(name)).transpose()
    }
}
