//! Which documents a filter admits, told by their facts (see [`turnwise_corpus::filter::Facts`]): first which of the different
//! facts fit, then which documents have them. Only where facts do not decide is the record read.

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
    error::Result,
    ids::{DialogueId, Seq, TurnNo},
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_store::{Change, Position, Snapshot, records::caught};

/// What a filter admits, in both forms in which it is asked for.
pub struct Selected {
    /// For each segment of the kind's index, a bit for each document.
    documents: Vec<Vec<u64>>,
    /// The same by the records, with what the index has not taken in yet.
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
    /// What a filter admits; `None` if the index cannot tell, because a part of it is behind the other or it is of another
    /// log. Then the records can.
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

/// What has been found so far.
struct Found {
    documents: Vec<Vec<u64>>,
    admitted: Admitted,
}

struct Run<'a> {
    lexical: &'a Lexical,
    snapshot: &'a Snapshot,
    filter: &'a Filter,
    kind: Kind,
    /// Up to here the index has taken in the log.
    behind: Position,
}

/// A dialogue, and what its own facts say of a filter's conditions.
#[derive(Clone, Copy)]
struct Own {
    seq: Seq,
    last: u32,
    said: Said,
}

/// The conditions that some fact meets, and those of which nothing is known.
#[derive(Clone, Copy, Default)]
struct Said {
    fit: u64,
    unknown: u64,
}

impl Said {
    fn and(self, more: Said) -> Said {
        Said { fit: self.fit | more.fit, unknown: self.unknown | more.unknown }
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
            true => self.wholes(&dialogues, &mut found)?,
            false => {
                let mut all: Vec<Own> = dialogues.drain(..).flatten().collect();
                all.sort_unstable_by_key(|own| own.seq);
                self.turns(&all, &mut found)?;
            }
        }
        for (seq, dialogue) in &tail {
            admitted::admit(self.filter, self.kind, *seq, dialogue, &mut |seq, turn| {
                found.admitted.admit(seq, turn);
            });
        }
        Ok(Selected { documents: found.documents, admitted: Arc::new(found.admitted) })
    }

    /// What came since the index was built. What was replaced or deleted since is admitted as the record that it was, which
    /// is not there any more.
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
        Ok(side.seen()?.searcher.segment_readers())
    }

    /// The dialogues of each segment, in the order of the documents; deleted ones are left out.
    fn dialogues(&self, whole: bool) -> Result<Vec<Vec<Own>>> {
        let side = &self.lexical.dialogues;
        let failed = |e: tantivy::TantivyError| side::failed(&side.folder, &e);
        let always = self.needing_records(whole);
        let mut all = Vec::new();
        for segment in self.segments(side)? {
            let columns = Columns::open(segment).map_err(failed)?;
            let facts = self.facts(&columns, whole).map_err(failed)?;
            let ids = self.ids(&columns).map_err(failed)?;
            let said = |doc| {
                let id = columns.dialogues.as_ref().and_then(|column| column.ords().first(doc));
                let id = id.and_then(|ord| ids.get(ord as usize)).copied().unwrap_or_default();
                always.and(Said { fit: id, unknown: 0 }).and(columns.said(doc, &facts))
            };
            let own = |doc| Own { seq: columns.seq(doc), last: columns.last(doc), said: said(doc) };
            all.push(segment.doc_ids_alive().map(own).collect());
        }
        Ok(all)
    }

    fn wholes(&self, dialogues: &[Vec<Own>], found: &mut Found) -> Result<()> {
        for (segment, own) in self.segments(&self.lexical.dialogues)?.iter().zip(dialogues) {
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut ids = Ids::of(&self.lexical.dialogues, segment);
            for (doc, own) in segment.doc_ids_alive().zip(own) {
                let is = match self.filter.decide(own.said.fit, own.said.unknown) {
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

    fn turns(&self, dialogues: &[Own], found: &mut Found) -> Result<()> {
        let side = &self.lexical.utterances;
        let failed = |e: tantivy::TantivyError| side::failed(&side.folder, &e);
        let always = self.needing_records(false);
        let open = (0..self.filter.tests()).filter(|test| !self.filter.is_about_id(*test));
        let open = Said { fit: 0, unknown: open.fold(0, |bits, test| bits | 1 << test) };
        for segment in self.segments(side)? {
            let columns = Columns::open(segment).map_err(failed)?;
            let facts = self.facts(&columns, false).map_err(failed)?;
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut ids = Ids::of(side, segment);
            // Turns of a dialogue mostly follow each other.
            let mut last: Option<(Own, Option<bool>)> = None;
            for doc in segment.doc_ids_alive() {
                let seq = columns.seq(doc);
                let (own, decided) = match last.filter(|(own, _)| own.seq == seq) {
                    Some(known) => known,
                    None => {
                        let Ok(at) = dialogues.binary_search_by_key(&seq, |own| own.seq) else { continue };
                        let own = dialogues[at];
                        let said = own.said.and(open);
                        *last.insert((own, self.filter.decide(said.fit, said.unknown)))
                    }
                };
                let is = decided.or_else(|| {
                    let said = own.said.and(always).and(columns.said(doc, &facts));
                    self.filter.decide(said.fit, said.unknown)
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

    /// The conditions that no fact ever answers.
    fn needing_records(&self, whole: bool) -> Said {
        let tests = (0..self.filter.tests()).filter(|test| self.filter.needs_record(*test, whole));
        Said { fit: 0, unknown: tests.fold(0, |bits, test| bits | 1 << test) }
    }

    /// What each different fact of a segment says, by its number.
    fn facts(&self, columns: &Columns, whole: bool) -> tantivy::Result<Vec<Said>> {
        let Some(column) = &columns.facts else { return Ok(Vec::new()) };
        let mut said = vec![Said::default(); column.dictionary().num_terms()];
        for test in 0..self.filter.tests() {
            for name in self.filter.fact_names(test, whole) {
                let mut stream = column.dictionary().prefix_range(&name).into_stream()?;
                while stream.advance() {
                    let value =
                        stream.key().get(name.len()..).and_then(|value| std::str::from_utf8(value).ok());
                    let said = &mut said[stream.term_ord() as usize];
                    match value.map_or(Some(false), |value| self.filter.fact_fits(test, value)) {
                        Some(fits) => said.fit |= u64::from(fits) << test,
                        None => said.unknown |= 1 << test,
                    }
                }
            }
        }
        Ok(said)
    }

    /// Which conditions about the id each id of a segment meets.
    fn ids(&self, columns: &Columns) -> tantivy::Result<Vec<u64>> {
        let tests: Vec<usize> =
            (0..self.filter.tests()).filter(|test| self.filter.is_about_id(*test)).collect();
        let Some(column) = columns.dialogues.as_ref().filter(|_| !tests.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut fit = Vec::with_capacity(column.dictionary().num_terms());
        let mut stream = column.dictionary().stream()?;
        while stream.advance() {
            let id = String::from_utf8_lossy(stream.key());
            fit.push(
                tests.iter().fold(0, |bits, test| bits | u64::from(self.filter.id_fits(*test, &id)) << test),
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

/// The columns that filters need.
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

    fn said(&self, doc: DocId, facts: &[Said]) -> Said {
        let Some(column) = &self.facts else { return Said::default() };
        column
            .ords()
            .values_for_doc(doc)
            .filter_map(|ord| facts.get(ord as usize))
            .fold(Said::default(), |all, said| all.and(*said))
    }
}

/// The names of a segment's dialogues, and the record that was read last.
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
