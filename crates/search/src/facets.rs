//! Facets: counts of dialogues for each value of a field, such as domain, role or language.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::Searcher;
use turnwise_core::{Error, Result};
use turnwise_corpus::filter::{FactNames, Facts, Filter};
use turnwise_index::{SearchModes, lexical::Counts, vectors::Kind};
use turnwise_store::Snapshot;

/// Names of the fields whose values the HTTP API counts by default.
pub const DEFAULT_FACETS: [&str; 5] = ["domain", "intent", "role", "language", "source"];

/// Names of the supported fields. The metadata fields `meta.KEY` are also supported.
const SUPPORTED: [&str; 9] =
    ["domain", "intent", "role", "language", "source", "corpus", "thread", "speaker", "title"];

/// Counts of dialogues for each value of the requested fields.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Facets {
    /// Number of dialogues that match the filter.
    pub dialogues: u64,
    /// One facet for each requested field, in the order of the request.
    pub facets: Vec<Facet>,
}

/// A field with its most frequent values.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Facet {
    /// Name of the field, as in filters.
    pub field: String,
    /// Number of distinct values, including those that are not returned.
    pub different: usize,
    /// The most frequent values, sorted by descending number of dialogues, then by value.
    pub values: Vec<FacetValue>,
}

/// A value of a field, with the number of dialogues that have it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FacetValue {
    /// The value as text.
    pub value: String,
    /// Number of dialogues that match the filter and have this value, either in the dialogue itself or in a turn.
    pub dialogues: u64,
}

impl Searcher {
    /// For each value of each field, counts the dialogues that have the value and match the filter. Without a filter,
    /// all dialogues match. Values longer than 1024 bytes are ignored. An empty speaker name is counted as a value.
    ///
    /// Returns at most `limit` values per field, the most frequent ones. Returns an error if a field is not supported
    /// or the engine is remote.
    pub fn facets(&self, filter: Option<&Filter>, fields: &[String], limit: usize) -> Result<Facets> {
        let unknown = |field: &&String| {
            !SUPPORTED.contains(&field.as_str()) && field.strip_prefix("meta.").is_none_or(str::is_empty)
        };
        if let Some(field) = fields.iter().find(unknown) {
            return Err(Error::unknown_name("facet field", field, SUPPORTED.into_iter().chain(["meta.KEY"])));
        }
        let names: Vec<FactNames> = fields.iter().map(|field| FactNames::of(field)).collect::<Result<_>>()?;
        let index = self.embedded("counting dialogues by field values")?;
        let modes = SearchModes { dense: false, lexical: true };
        let filtered = filter.map(|filter| index.filtered(filter, Kind::Dialogues, modes)).transpose()?;
        let selected = filtered.as_deref().and_then(|filtered| filtered.selected());
        // The lexical index can count if there is no filter, or if it can evaluate the filter.
        let indexed = match (index.lexical(), filter.is_some() == selected.is_some()) {
            (Ok(lexical), true) => lexical.facets(index.snapshot(), &names, selected)?,
            _ => None,
        };
        let counts = match indexed {
            Some(counts) => counts,
            None => count_in_records(index.snapshot(), filter, &names)?,
        };
        Ok(Facets {
            dialogues: match &filtered {
                Some(filtered) => filtered.admitted().count(),
                None => index.snapshot().totals().dialogues,
            },
            facets: fields.iter().zip(counts).map(|(field, values)| facet(field, values, limit)).collect(),
        })
    }
}

/// Counts the dialogues for each value of each field by reading all records. Used if the lexical index cannot count
/// them.
fn count_in_records(snapshot: &Snapshot, filter: Option<&Filter>, names: &[FactNames]) -> Result<Counts> {
    let mut counts: Counts = vec![HashMap::new(); names.len()];
    for dialogue in snapshot.dialogues() {
        let dialogue = dialogue?;
        if filter.is_some_and(|filter| !filter.matches(&dialogue)) {
            continue;
        }
        let facts = Facts::of_dialogue(&dialogue);
        for (names, counts) in names.iter().zip(&mut counts) {
            let mut values: Vec<&str> = facts.iter().filter_map(|fact| names.value(fact)).collect();
            values.sort_unstable();
            values.dedup();
            values.iter().for_each(|value| *counts.entry((*value).to_owned()).or_default() += 1);
        }
    }
    Ok(counts)
}

fn facet(field: &str, values: HashMap<String, u64>, limit: usize) -> Facet {
    let different = values.len();
    let mut values: Vec<FacetValue> =
        values.into_iter().map(|(value, dialogues)| FacetValue { value, dialogues }).collect();
    values.sort_by(|a, b| b.dialogues.cmp(&a.dialogues).then_with(|| a.value.cmp(&b.value)));
    values.truncate(limit);
    Facet { field: field.to_owned(), different, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::DialogueId;
    use turnwise_corpus::{Dialogue, Role};
    use turnwise_index::lexical::Lexical;
    use turnwise_store::{Prepared, Store};

    #[test]
    fn index_and_records_give_the_same_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open_or_create(dir.path(), "test").unwrap();
        let put = |store: &mut Store, n: usize| {
            let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
            dialogue.domains =
                ["hotels", "trains", "food"][..n % 4].iter().map(|d| (*d).to_owned()).collect();
            dialogue.source = format!("s{}", n % 2);
            dialogue.intents = vec!["book".to_owned()];
            dialogue.metadata.insert("stars".to_owned(), serde_json::json!([n % 3, "many"]));
            dialogue.push("ann", Role::User, "a room");
            dialogue.turns[0].intent = Some(["book", "ask"][n % 2].to_owned());
            if n.is_multiple_of(5) {
                dialogue.push("bot", Role::Agent, "no");
            }
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        };
        (0..40).for_each(|n| put(&mut store, n));
        store.commit(None).unwrap();
        let root = dir.path();
        Lexical::update(None, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
        // Dialogues that changed after the last index update are counted correctly too.
        (30..50).for_each(|n| put(&mut store, n));
        store.delete(&DialogueId::new("d1").unwrap()).unwrap();
        store.commit(None).unwrap();
        let searcher = Searcher::open(root).unwrap();
        let fields = ["domain", "intent", "role", "source", "meta.stars"].map(str::to_owned);
        let names: Vec<FactNames> = fields.iter().map(|field| FactNames::of(field).unwrap()).collect();
        for filter in
            [None, Some("domain=hotels"), Some("role=agent or meta.stars=2"), Some("text~room and source=s1")]
        {
            let filter: Option<Filter> = filter.map(|text| text.parse().unwrap());
            let counted = searcher.facets(filter.as_ref(), &fields, 100).unwrap();
            let snapshot = searcher.embedded("test").unwrap().snapshot();
            let read = count_in_records(snapshot, filter.as_ref(), &names).unwrap();
            let read: Vec<Facet> = fields.iter().zip(read).map(|(field, v)| facet(field, v, 100)).collect();
            assert_eq!(counted.facets, read, "{filter:?}");
            assert!(counted.dialogues > 5);
        }
        let all = searcher.facets(None, &fields, 1).unwrap();
        assert_eq!(all.dialogues, 49);
        assert_eq!(all.facets[1].values, [FacetValue { value: "book".to_owned(), dialogues: 49 }]);
        assert_eq!(all.facets[1].different, 2);
        let e = searcher.facets(None, &["domian".to_owned()], 5).unwrap_err();
        assert!(e.hint().unwrap().contains("did you mean `domain`"), "{e}");
    }
}
