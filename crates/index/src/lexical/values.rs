//! Lookup of speaker names, times and other facts (field values) of documents.

use std::collections::BTreeSet;

use tantivy::Term;

use super::{
    Lexical,
    side::{DAMAGED, Side},
};
use crate::{speakers::spellings, vectors::Kind};
use turnwise_core::error::Result;
use turnwise_corpus::filter::FactNames;

impl Lexical {
    /// Returns the names of speakers that are equal to `name` or start with `name` and a space, in usual upper and lower
    /// case, sorted. Returns at most `most` names.
    pub fn speakers(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let starts = spellings(name).into_iter().flat_map(|name| [(format!("{name} "), false), (name, true)]);
        self.speakers_from(starts, most)
    }

    /// Returns the names of all speakers, sorted. Returns at most `most` names.
    pub fn all_speakers(&self, most: usize) -> Result<Vec<String>> {
        self.speakers_from([(String::new(), false)], most)
    }

    /// Returns the names of speakers that start with one of the texts, or that are equal to it if its flag is true.
    fn speakers_from(
        &self,
        starts: impl IntoIterator<Item = (String, bool)>,
        most: usize,
    ) -> Result<Vec<String>> {
        let side = self.side(Kind::Utterances);
        side.guarded(DAMAGED, || {
            let speaker = FactNames::of("speaker")?;
            let mut found = BTreeSet::new();
            for (start, exact) in starts {
                read(side, &speaker.text(&start), exact, most, |fact| {
                    found.extend(speaker.value(fact).map(str::to_owned));
                })
                .map_err(|e| side.failed(&e))?;
            }
            Ok(found.into_iter().take(most).collect())
        })
    }

    /// Returns those of the terms that no utterance and no title contains.
    pub fn absent_terms(&self, terms: &[String]) -> Result<Vec<String>> {
        let mut absent = terms.to_vec();
        for side in &self.sides {
            for field in [Some(side.fields.text), side.fields.title].into_iter().flatten() {
                let count = |term: &String| {
                    let searcher = &side.state()?.searcher;
                    searcher.doc_freq(&Term::from_field_text(field, term)).map_err(|e| side.failed(&e))
                };
                side.guarded(DAMAGED, || {
                    let counts = absent.iter().map(count).collect::<Result<Vec<u64>>>()?;
                    let mut counts = counts.into_iter();
                    absent.retain(|_| counts.next() == Some(0));
                    Ok(())
                })?;
            }
        }
        Ok(absent)
    }

    /// Returns whether a document of a kind has a value of a field.
    pub(super) fn has_fact(&self, kind: Kind, field: &str) -> Result<bool> {
        let side = self.side(kind);
        side.guarded(DAMAGED, || {
            let mut found = false;
            let start = FactNames::of(field)?.text("");
            read(side, &start, false, 1, |_| found = true).map_err(|e| side.failed(&e))?;
            Ok(found)
        })
    }

    /// Returns whether an utterance has a time in a range. `after` is the first time after the range. Both are the start of
    /// a time in RFC 3339, such as `2026-03-02`.
    pub fn has_time(&self, first: &str, after: &str) -> Result<bool> {
        let side = self.side(Kind::Utterances);
        side.guarded(DAMAGED, || {
            let time = FactNames::of("time")?;
            let Ok(state) = side.state() else { return Ok(false) };
            for facts in state.columns.iter().filter_map(|columns| columns.facts.as_ref()) {
                // The facts are sorted, and times in RFC 3339 and UTC sort like the points in time.
                let range = facts.dictionary().range().ge(time.time(first)).lt(time.time(after)).limit(1);
                let mut found = range.into_stream().map_err(|e| side.failed(&e.into()))?;
                if found.advance() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }
}

/// Calls `each` with the facts that start with `start`, or that are equal to it if `exact` is true. Reads at most
/// `most` facts of each segment.
fn read(
    side: &Side,
    start: &str,
    exact: bool,
    most: usize,
    mut each: impl FnMut(&str),
) -> tantivy::Result<()> {
    let Ok(state) = side.state() else { return Ok(()) };
    for columns in &state.columns {
        let Some(facts) = &columns.facts else { continue };
        if exact {
            if facts.dictionary().term_ord(start)?.is_some() {
                each(start);
            }
            continue;
        }
        let mut stream = facts.dictionary().range().ge(start).limit(most as u64).into_stream()?;
        for _ in 0..most {
            if !stream.advance() {
                break;
            }
            match std::str::from_utf8(stream.key()) {
                Ok(fact) if fact.starts_with(start) => each(fact),
                _ => break,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexical::tests::{catch_up, empty_index, put};
    use turnwise_corpus::Dialogue;
    use turnwise_store::Prepared;

    #[test]
    fn speakers_and_times_of_utterances_are_found() {
        let (dir, mut store) = empty_index();
        put(&mut store, "without-time", "hello");
        catch_up(&mut store, dir.path());
        assert!(!Lexical::open(dir.path()).unwrap().has_time("0001-01-01", "9999-12-31").unwrap());

        let dated = r#"{"id": "dated", "time": "2026-03-02T23:30:00-01:00", "turns": [
            {"speaker": "Ann Smith", "text": "in UTC, this is on 3 March"},
            {"speaker": "Annabel", "text": "later", "time": "2026-04-01"}]}"#;
        store.put(&Prepared::new(&serde_json::from_str::<Dialogue>(dated).unwrap()).unwrap()).unwrap();
        catch_up(&mut store, dir.path());
        let lexical = Lexical::open(dir.path()).unwrap();
        for (first, after, expected) in [
            ("2026-03-02", "2026-03-03", false),
            ("2026-03-03", "2026-03-04", true),
            ("2026-03-04", "2026-04-01", false),
            ("2026-04-01", "2026-04-02", true),
            ("2026-04-02", "2027-01-01", false),
            ("2025-01-01", "2027-01-01", true),
        ] {
            assert_eq!(lexical.has_time(first, after).unwrap(), expected, "{first} to {after}");
        }
        assert_eq!(lexical.all_speakers(9).unwrap(), ["Ann Smith", "Annabel", "a"]);
        for name in ["Ann", "ann", "ANN SMITH"] {
            assert_eq!(lexical.speakers(name, 9).unwrap(), ["Ann Smith"], "{name}");
        }
        assert_eq!(lexical.speakers("Annab", 9).unwrap(), [""; 0]);
    }
}
