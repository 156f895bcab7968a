//! Facet counts: the number of dialogues per field value, computed from the lexical index.

use std::collections::HashMap;

use tantivy::SegmentReader;

use super::{Lexical, Selected, select, side::DAMAGED};
use crate::vectors::Kind;
use turnwise_core::error::Result;
use turnwise_corpus::filter::FactNames;
use turnwise_store::Snapshot;

/// For each field, its values and the number of dialogues with each value.
pub type Counts = Vec<HashMap<String, u64>>;

impl Lexical {
    /// For each field, counts the selected dialogues with each value. Without a selection, counts all dialogues.
    /// Returns `None` if the index is not up to date with the snapshot.
    pub fn facets(
        &self,
        snapshot: &Snapshot,
        fields: &[FactNames],
        selected: Option<&Selected>,
    ) -> Result<Option<Counts>> {
        if !self.is_current(snapshot) {
            return Ok(None);
        }
        let side = self.side(Kind::Dialogues);
        side.guarded(DAMAGED, || {
            let mut counts: Counts = vec![HashMap::new(); fields.len()];
            for (n, segment) in side.state()?.searcher.segment_readers().iter().enumerate() {
                let admits = |doc| selected.is_none_or(|selected| select::holds(selected.segment(n), doc));
                add(segment, fields, &admits, &mut counts).map_err(|e| side.failed(&e))?;
            }
            Ok(Some(counts))
        })
    }
}

fn add(
    segment: &SegmentReader,
    fields: &[FactNames],
    admits: &dyn Fn(tantivy::DocId) -> bool,
    counts: &mut Counts,
) -> tantivy::Result<()> {
    let Some(column) = segment.fast_fields().str("facts")? else { return Ok(()) };
    // Map each fact to a number for its field and value. The same value of a dialogue and of a turn are two facts,
    // which share one number.
    let mut numbers: HashMap<(usize, String), u32> = HashMap::new();
    let mut values: Vec<Option<u32>> = Vec::with_capacity(column.dictionary().num_terms());
    let mut stream = column.dictionary().stream()?;
    while stream.advance() {
        let fact = std::str::from_utf8(stream.key()).unwrap_or_default();
        let found = fields.iter().enumerate().find_map(|(n, names)| Some((n, names.value(fact)?)));
        values.push(found.map(|(field, value)| {
            let next = numbers.len() as u32;
            *numbers.entry((field, value.to_owned())).or_insert(next)
        }));
    }
    let mut times = vec![0u64; numbers.len()];
    let mut own: Vec<u32> = Vec::new();
    for doc in segment.doc_ids_alive().filter(|doc| admits(*doc)) {
        own.clear();
        own.extend(
            column.ords().values_for_doc(doc).filter_map(|ord| values.get(ord as usize).copied().flatten()),
        );
        own.sort_unstable();
        own.dedup();
        own.iter().for_each(|value| times[*value as usize] += 1);
    }
    for ((field, value), number) in numbers {
        let times = times[number as usize];
        if times > 0 {
            *counts[field].entry(value).or_default() += times;
        }
    }
    Ok(())
}
