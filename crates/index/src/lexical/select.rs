//! Evaluates filters on the facts (field values) in the index (see [`turnwise_corpus::filter::Facts`]). Each distinct
//! fact of a segment is tested once. A record is read only if its facts cannot decide the filter. A filter on ids, speakers
//! or times, which accepts few items, is evaluated only on the documents that have them (see `few.rs`).

use std::sync::Arc;

use tantivy::DocId;

use super::{
    Lexical,
    side::{DAMAGED, Side},
    top::Columns,
};
use crate::{
    admitted::{self, Admitted},
    vectors::Kind,
};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::{Change, Position, Snapshot};

/// Result of a filter, in two forms: as documents of the index, and as items by sequence number.
pub struct Selected {
    /// For each segment of the Tantivy index, one bit per document: 1 if the filter accepts the document.
    pub(super) documents: Vec<Vec<u64>>,
    /// Accepted items by sequence number, including items of records that are not indexed yet.
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
    /// Evaluates a filter by the facts (field values) in the index. Returns `None` if the two Tantivy indexes have
    /// different log positions, belong to a different log, or are newer than the snapshot. The caller must then test
    /// each record.
    pub fn select(&self, snapshot: &Snapshot, filter: &Filter, kind: Kind) -> Result<Option<Selected>> {
        let [Some(a), Some(b)] = self.sides.each_ref().map(Side::progress) else { return Ok(None) };
        if a != b || a.log != snapshot.log_id() || a.at > snapshot.end() {
            return Ok(None);
        }
        let run = Run { lexical: self, snapshot, filter, kind, reached: a.at };
        self.side(Kind::Dialogues).guarded(DAMAGED, || run.run()).map(Some)
    }
}

pub(super) struct Run<'a> {
    pub(super) lexical: &'a Lexical,
    snapshot: &'a Snapshot,
    pub(super) filter: &'a Filter,
    pub(super) kind: Kind,
    reached: Position,
}

/// A dialogue, and the outcome of the filter's conditions on the facts of the dialogue. In a search for utterances, the
/// facts of the turns are excluded.
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
    /// Returns an outcome that marks the conditions with the numbers in `tests` as unknown.
    fn unknown(tests: impl Iterator<Item = usize>) -> Self {
        Outcome { fit: 0, unknown: tests.fold(0, |bits, test| bits | 1 << test) }
    }

    /// Returns the combined outcome of all facts of a document. `facts` is the result of [`Run::facts`].
    fn of(columns: &Columns, doc: DocId, facts: &[Outcome]) -> Self {
        let Some(column) = &columns.facts else { return Outcome::default() };
        column
            .ords()
            .values_for_doc(doc)
            .filter_map(|ord| facts.get(ord as usize))
            .fold(Outcome::default(), |all, outcome| all.and(*outcome))
    }

    fn and(self, more: Outcome) -> Outcome {
        Outcome { fit: self.fit | more.fit, unknown: self.unknown | more.unknown }
    }
}

impl Run<'_> {
    fn run(&self) -> Result<Selected> {
        if let Some(selected) = self.few()? {
            return Ok(selected);
        }
        let dialogues = self.dialogues()?;
        let tail = self.tail()?;
        let spans = dialogues.iter().flatten().map(|own| match self.kind {
            Kind::Dialogues => (own.seq, 1),
            Kind::Utterances => (own.seq, own.last),
        });
        let spans = spans.chain(tail.iter().map(|(seq, d)| (*seq, admitted::span(self.kind, d))));
        let mut admitted = Admitted::over(spans);
        let documents = match self.kind {
            Kind::Dialogues => self.select_dialogues(&dialogues, &mut admitted)?,
            Kind::Utterances => {
                let mut all: Vec<DialogueEntry> = dialogues.into_iter().flatten().collect();
                all.sort_unstable_by_key(|own| own.seq);
                self.select_turns(&all, &mut admitted)?
            }
        };
        for (seq, dialogue) in &tail {
            let mut found = |seq, turn| admitted.admit(seq, turn);
            admitted::admit(self.filter, self.kind, *seq, dialogue, &mut found);
        }
        Ok(Selected { documents, admitted: Arc::new(admitted) })
    }

    /// Returns the live records that are newer than the index.
    ///
    /// Indexed dialogues that were replaced or deleted later keep their old sequence numbers, and the filter can accept
    /// them. This is harmless, because no live record has one of these numbers.
    pub(super) fn tail(&self) -> Result<Vec<(Seq, Box<Dialogue>)>> {
        let mut tail = Vec::new();
        let mut changes = self.snapshot.changes(self.reached);
        while let Some(change) = changes.next_change() {
            if let Change::Put { dialogue, live: true } = change?
                && let Some(seq) = self.snapshot.seq_of(dialogue.id.key())
            {
                tail.push((seq, dialogue));
            }
        }
        Ok(tail)
    }

    /// Returns the dialogues of each segment in document order, without deleted ones.
    fn dialogues(&self) -> Result<Vec<Vec<DialogueEntry>>> {
        let side = self.lexical.side(Kind::Dialogues);
        let state = side.state()?;
        let always = self.needing_records(self.kind);
        let mut all = Vec::new();
        for (segment, columns) in state.searcher.segment_readers().iter().zip(&state.columns) {
            let facts = self.facts(columns, self.kind).map_err(|e| side.failed(&e))?;
            let ids = self.ids(columns).map_err(|e| side.failed(&e))?;
            let outcome = |doc| {
                let id = columns.dialogues.as_ref().and_then(|names| names.ordinal(doc));
                let id = id.and_then(|ordinal| ids.get(ordinal as usize)).copied().unwrap_or_default();
                always.and(Outcome { fit: id, unknown: 0 }).and(Outcome::of(columns, doc, &facts))
            };
            let own =
                |doc| DialogueEntry { seq: columns.seq(doc), last: columns.last(doc), outcome: outcome(doc) };
            all.push(segment.doc_ids_alive().map(own).collect());
        }
        Ok(all)
    }

    fn select_dialogues(
        &self,
        dialogues: &[Vec<DialogueEntry>],
        admitted: &mut Admitted,
    ) -> Result<Vec<Vec<u64>>> {
        let state = self.lexical.side(Kind::Dialogues).state()?;
        let mut documents = Vec::new();
        let segments = state.searcher.segment_readers().iter().zip(&state.columns);
        for ((segment, columns), own) in segments.zip(dialogues) {
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut last = None;
            for (doc, own) in segment.doc_ids_alive().zip(own) {
                let is = match self.filter.decide(own.outcome.fit, own.outcome.unknown) {
                    Some(is) => is,
                    None => self.matches_record(own.seq, None, columns, doc, &mut last)?,
                };
                if is {
                    bits[doc as usize / 64] |= 1 << (doc % 64);
                    admitted.admit(own.seq, None);
                }
            }
            documents.push(bits);
        }
        Ok(documents)
    }

    fn select_turns(&self, dialogues: &[DialogueEntry], admitted: &mut Admitted) -> Result<Vec<Vec<u64>>> {
        let side = self.lexical.side(Kind::Utterances);
        let state = side.state()?;
        let always = self.needing_records(Kind::Utterances);
        // The facts of a turn can meet any condition except a condition on the id.
        let open = Outcome::unknown((0..self.filter.tests()).filter(|test| !self.filter.tests_id(*test)));
        let mut documents = Vec::new();
        for (segment, columns) in state.searcher.segment_readers().iter().zip(&state.columns) {
            let facts = self.facts(columns, Kind::Utterances).map_err(|e| side.failed(&e))?;
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut last_record = None;
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
                    let outcome = own.outcome.and(always).and(Outcome::of(columns, doc, &facts));
                    self.filter.decide(outcome.fit, outcome.unknown)
                });
                let turn = columns.turn(doc);
                let is = match is {
                    Some(is) => is,
                    None => self.matches_record(seq, Some(turn), columns, doc, &mut last_record)?,
                };
                if is {
                    bits[doc as usize / 64] |= 1 << (doc % 64);
                    admitted.admit(seq, Some(turn));
                }
            }
            documents.push(bits);
        }
        Ok(documents)
    }

    /// Returns an outcome that marks a condition as unknown if only a record can decide the condition.
    fn needing_records(&self, kind: Kind) -> Outcome {
        let whole = kind == Kind::Dialogues;
        Outcome::unknown((0..self.filter.tests()).filter(|test| self.filter.needs_record(*test, whole)))
    }

    /// Evaluates the filter's conditions on each distinct fact of a segment. The result is indexed by the ordinal of
    /// the fact.
    fn facts(&self, columns: &Columns, kind: Kind) -> tantivy::Result<Vec<Outcome>> {
        let Some(column) = &columns.facts else { return Ok(Vec::new()) };
        let mut outcome = vec![Outcome::default(); column.dictionary().num_terms()];
        for test in 0..self.filter.tests() {
            for name in self.filter.fact_names(test, kind == Kind::Dialogues) {
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

    /// For each dialogue id of a segment, returns the id conditions of the filter that the id meets, one bit per
    /// condition. The result is indexed by the ordinal of the id. It is empty if the filter has no id conditions.
    fn ids(&self, columns: &Columns) -> tantivy::Result<Vec<u64>> {
        let tests: Vec<usize> = (0..self.filter.tests()).filter(|test| self.filter.tests_id(*test)).collect();
        let Some(names) = columns.dialogues.as_ref().filter(|_| !tests.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut fit = Vec::with_capacity(names.column.num_terms());
        let mut stream = names.column.dictionary().stream()?;
        while stream.advance() {
            let id = String::from_utf8_lossy(stream.key());
            let bit = |test: &usize| u64::from(self.filter.id_matches(*test, &id)) << test;
            fit.push(tests.iter().fold(0, |bits, test| bits | bit(test)));
        }
        Ok(fit)
    }

    /// Tests the filter on the record of a document: on a turn, or on the whole dialogue if `turn` is `None`. `last` is that
    /// of [`Run::record`].
    pub(super) fn matches_record(
        &self,
        seq: Seq,
        turn: Option<TurnNo>,
        columns: &Columns,
        doc: DocId,
        last: &mut Option<(Seq, Dialogue)>,
    ) -> Result<bool> {
        let Some(dialogue) = self.record(seq, columns, doc, last)? else { return Ok(false) };
        let Some(number) = turn else { return Ok(self.filter.matches(dialogue)) };
        let turn = dialogue.turns.iter().find(|turn| turn.number == number);
        Ok(turn.is_some_and(|turn| self.filter.matches_turn(dialogue, turn)))
    }

    /// Reads the record of a document's dialogue. Returns `None` if the snapshot does not contain the version of the
    /// dialogue that was indexed. `last` caches the last record that was read.
    fn record<'b>(
        &self,
        seq: Seq,
        columns: &Columns,
        doc: DocId,
        last: &'b mut Option<(Seq, Dialogue)>,
    ) -> Result<Option<&'b Dialogue>> {
        if last.as_ref().is_none_or(|(read, _)| *read != seq) {
            let failed = |e: std::io::Error| self.lexical.side(self.kind).failed(&e.into());
            let id = columns.dialogues.as_ref().map(|names| names.id(doc)).transpose().map_err(failed)?;
            let id = id.flatten().map(DialogueId::new).transpose()?;
            let record = id.map(|id| self.snapshot.record(id.key())).transpose()?;
            *last = record.flatten().filter(|(now, _)| *now == seq);
        }
        Ok(last.as_ref().map(|(_, dialogue)| dialogue))
    }
}
