//! Evaluates filters that need certain ids, speakers or times (see [`Needed`]) without testing every document. Searches for
//! utterances use such filters for the names and dates in a query, so they must be fast in a large index.

use std::{
    io,
    ops::Range,
    sync::{Arc, OnceLock},
};

use tantivy::{
    DocId, DocSet, SegmentReader, TERMINATED, TantivyError, Term,
    columnar::{Dictionary, StrColumn, TermOrdHit},
    schema::IndexRecordOption,
};

use super::{
    select::{Run, Selected},
    side::Side,
    top::Columns,
};
use crate::{
    admitted::{self, Admitted},
    vectors::Kind,
};
use turnwise_core::error::Result;
use turnwise_corpus::{
    Time,
    filter::{FactNames, Filter, Needed},
};

/// Reading a record takes about as long as testing the facts of this number of documents. If too many records would have
/// to be read, all documents are tested by their facts.
const DOCUMENTS_PER_RECORD: u64 = 256;
/// Number of records that are read in any case.
const FEW_RECORDS: u64 = 64;

/// The documents of a segment by their facts (field values) in one field.
pub(super) struct FactDocuments {
    /// Ordinal of the first fact of the field.
    first: u64,
    /// For each fact, the end of its documents in `documents`.
    ends: Vec<u32>,
    documents: Vec<DocId>,
}

impl FactDocuments {
    fn of(facts: &StrColumn, field: &FactNames, documents: DocId) -> io::Result<Self> {
        let ordinals = ordinals(facts.dictionary(), field.range())?;
        let count = ordinals.end.saturating_sub(ordinals.start) as usize;
        let of_field = |doc| facts.ords().values_for_doc(doc).filter(|ordinal| ordinals.contains(ordinal));
        // The number of documents of each fact, then the start of its documents, then their end.
        let mut ends = vec![0u32; count];
        (0..documents).flat_map(of_field).for_each(|ordinal| ends[(ordinal - ordinals.start) as usize] += 1);
        let mut total = 0;
        for end in &mut ends {
            (*end, total) = (total, total + *end);
        }
        let mut sorted = vec![0; total as usize];
        for doc in 0..documents {
            for ordinal in of_field(doc) {
                let end = &mut ends[(ordinal - ordinals.start) as usize];
                sorted[*end as usize] = doc;
                *end += 1;
            }
        }
        Ok(FactDocuments { first: ordinals.start, ends, documents: sorted })
    }

    /// Returns the documents with the fact that has this ordinal.
    fn get(&self, ordinal: u64) -> &[DocId] {
        let Some(at) = ordinal.checked_sub(self.first).map(|at| at as usize) else { return &[] };
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let (Some(start), Some(end)) = (start, self.ends.get(at)) else { return &[] };
        self.documents.get(start as usize..*end as usize).unwrap_or_default()
    }
}

/// The facts of a segment in one field.
struct Facts<'a> {
    names: FactNames,
    column: &'a StrColumn,
    documents: &'a FactDocuments,
}

impl<'a> Facts<'a> {
    /// Returns `None` if the segment has no facts. `documents` caches the documents of this field.
    fn of(
        segment: &SegmentReader,
        columns: &'a Columns,
        field: &str,
        documents: &'a OnceLock<FactDocuments>,
    ) -> tantivy::Result<Option<Self>> {
        let Some(column) = &columns.facts else { return Ok(None) };
        let names = FactNames::of(field).map_err(|e| TantivyError::InternalError(e.to_string()))?;
        let documents = match documents.get() {
            Some(documents) => documents,
            None => {
                let new = FactDocuments::of(column, &names, segment.max_doc())?;
                documents.get_or_init(|| new)
            }
        };
        Ok(Some(Facts { names, column, documents }))
    }

    /// Returns the facts of the days from `from` to `to`. The days are those of the times in UTC, as they are written in the
    /// facts.
    fn days(&self, from: Option<Time>, to: Option<Time>) -> Range<String> {
        // Times in RFC 3339 and UTC sort like the points in time, but not within a second, and not before the year 0.
        let day =
            |time: Time| Some(time.to_string().get(..10)?.to_owned()).filter(|day| !day.starts_with('-'));
        let all = self.names.range();
        let start = from.and_then(day).map_or(all.start, |day| self.names.time(&day));
        let end = to.and_then(day).map_or(all.end, |day| self.names.time(&format!("{day}~")));
        start..end
    }
}

/// Returns the ordinals of the terms in a range.
fn ordinals(dictionary: &Dictionary, terms: Range<String>) -> io::Result<Range<u64>> {
    let first_from = |term: &str| -> io::Result<u64> {
        Ok(match dictionary.term_ord_or_next(term)? {
            TermOrdHit::Exact(ordinal) | TermOrdHit::Next(ordinal) => {
                ordinal.min(dictionary.num_terms() as u64)
            }
        })
    };
    Ok(first_from(&terms.start)?..first_from(&terms.end)?)
}

/// A document, and the conditions of the filter that it certainly meets, one bit per condition.
type PossibleMatch = (DocId, u64);

impl Run<'_> {
    /// Evaluates the filter on the documents with the values that it needs. Returns `None` if it needs no such values, or if
    /// too many records would have to be read.
    pub(super) fn few(&self) -> Result<Option<Selected>> {
        let Some(needed) = self.filter.needed() else { return Ok(None) };
        let only_ids = needed.iter().all(|value| matches!(value, Needed::Id { .. }));
        if self.kind == Kind::Dialogues && !only_ids {
            return Ok(None);
        }
        let side = self.lexical.side(self.kind);
        let state = side.state()?;
        let segments = || state.searcher.segment_readers().iter().zip(&state.columns);
        let candidates =
            segments().map(|(segment, columns)| candidates(side, segment, columns, self.filter, &needed));
        let candidates =
            candidates.collect::<tantivy::Result<Vec<Vec<PossibleMatch>>>>().map_err(|e| side.failed(&e))?;
        let decided = |(_, fit): &PossibleMatch| self.filter.decide(*fit, !*fit);
        let records = candidates.iter().zip(&state.columns).map(|(candidates, columns)| {
            let undecided = candidates.iter().filter(|candidate| decided(candidate).is_none());
            // The turns of a dialogue are usually adjacent, and its record is read once.
            undecided.map(|(doc, _)| columns.seq(*doc)).collect::<Vec<_>>().chunk_by(|a, b| a == b).count()
        });
        let limit = FEW_RECORDS.max(state.searcher.num_docs() / DOCUMENTS_PER_RECORD);
        if records.sum::<usize>() as u64 > limit {
            return Ok(None);
        }
        let (mut documents, mut items) = (Vec::new(), Vec::new());
        for ((segment, columns), candidates) in segments().zip(candidates) {
            let mut bits = vec![0u64; (segment.max_doc() as usize).div_ceil(64)];
            let mut last = None;
            for candidate in candidates {
                let (doc, _) = candidate;
                let seq = columns.seq(doc);
                let turn = (self.kind == Kind::Utterances).then(|| columns.turn(doc));
                let is = match decided(&candidate) {
                    Some(is) => is,
                    None => self.matches_record(seq, turn, columns, doc, &mut last)?,
                };
                if is {
                    bits[doc as usize / 64] |= 1 << (doc % 64);
                    items.push((seq, turn));
                }
            }
            documents.push(bits);
        }
        for (seq, dialogue) in self.tail()? {
            admitted::admit(self.filter, self.kind, seq, &dialogue, &mut |seq, turn| items.push((seq, turn)));
        }
        Ok(Some(Selected { documents, admitted: Arc::new(Admitted::of_few(items)) }))
    }
}

/// Returns the documents of a segment with one of the needed values, sorted and without deleted ones.
fn candidates(
    side: &Side,
    segment: &SegmentReader,
    columns: &Columns,
    filter: &Filter,
    needed: &[Needed<'_>],
) -> tantivy::Result<Vec<PossibleMatch>> {
    let mut found: Vec<PossibleMatch> = Vec::new();
    for value in needed {
        match value {
            Needed::Id { test, id } => {
                let term = Term::from_field_text(side.fields.dialogue, id);
                let index = segment.inverted_index(side.fields.dialogue)?;
                let Some(mut postings) = index.read_postings(&term, IndexRecordOption::Basic)? else {
                    continue;
                };
                while postings.doc() != TERMINATED {
                    found.push((postings.doc(), 1 << test));
                    postings.advance();
                }
            }
            Needed::Speaker { test, name } => {
                let Some(facts) = Facts::of(segment, columns, "speaker", &columns.by_speaker)? else {
                    continue;
                };
                // Of a long name, the index knows only that it is long.
                for (fact, fit) in [(facts.names.text(name), 1 << test), (facts.names.long(), 0)] {
                    if let Some(ordinal) = facts.column.dictionary().term_ord(fact)? {
                        found.extend(facts.documents.get(ordinal).iter().map(|doc| (*doc, fit)));
                    }
                }
            }
            Needed::Time { tests, from, to } => {
                let Some(facts) = Facts::of(segment, columns, "time", &columns.by_time)? else { continue };
                let fit = tests.iter().fold(0, |bits, test| bits | 1 << test);
                let dictionary = facts.column.dictionary();
                let days = facts.days(*from, *to);
                let mut times = dictionary.range().ge(days.start).lt(days.end).into_stream()?;
                while times.advance() {
                    let fact = std::str::from_utf8(times.key()).ok();
                    let value = fact.and_then(|fact| facts.names.encoded(fact));
                    if value.is_some_and(|value| {
                        tests.iter().all(|test| filter.fact_matches(*test, value) == Some(true))
                    }) {
                        found.extend(facts.documents.get(times.term_ord()).iter().map(|doc| (*doc, fit)));
                    }
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 |= if same { next.1 } else { 0 };
        same
    });
    found.retain(|(doc, _)| segment.alive_bitset().is_none_or(|alive| alive.is_alive(*doc)));
    Ok(found)
}
