//! Lookup of speaker names in the facts (field values) of the utterances.

use std::collections::BTreeSet;

use super::{
    Lexical,
    side::{DAMAGED, Side},
};
use crate::vectors::Kind;
use turnwise_core::error::Result;
use turnwise_corpus::filter::FactNames;

impl Lexical {
    /// Returns the names of speakers that are equal to `name` or start with `name` and a space, sorted. Returns at most
    /// `most` names. An empty `name` stands for all speakers.
    pub fn speakers(&self, name: &str, most: usize) -> Result<Vec<String>> {
        let side = self.side(Kind::Utterances);
        side.guarded(DAMAGED, || {
            let speaker = FactNames::of("speaker")?;
            let mut found = BTreeSet::new();
            let spaced = format!("{name} ");
            let starts: &[&str] = if name.is_empty() { &[""] } else { &[name, &spaced] };
            for start in starts {
                let exact = *start == name && !name.is_empty();
                read(side, &speaker.text(start), exact, most, |fact| {
                    found.extend(speaker.value(fact).map(str::to_owned));
                })
                .map_err(|e| side.failed(&e))?;
            }
            Ok(found.into_iter().take(most).collect())
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
