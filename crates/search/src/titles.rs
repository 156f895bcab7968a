//! Titles of dialogues in a search.
//!
//! The words of a title count for its dialogue, and with context fusion also for each of its turns, like the words of a
//! neighbor. In a large index, the best candidates of the whole index may contain no turn of the dialogue whose title
//! was meant. Dialogues whose titles contain several words of the query are therefore searched once more.

use std::collections::HashSet;

use super::{coverage::MAX_TERMS, find::Lists, query::Query};
use turnwise_core::Result;
use turnwise_index::{
    engine::{Candidate, View},
    vectors::Kind,
};
use turnwise_text::Analyzer;

/// Weight of the words of a title, compared with those of the utterance or the dialogue.
pub(super) const TITLE_WEIGHT: f32 = 0.5;

/// Minimum number of titles to search for.
const MIN_TITLES: usize = 256;

/// Maximum number of dialogues that are searched once more because of their titles. More dialogues with equally good
/// titles mean that the words are not special.
const MAX_NAMED: usize = 20;

impl Lists {
    /// Adds the dialogues whose titles contain words of the query.
    pub(super) fn add_titles(&mut self, view: &dyn View, query: &Query, depth: usize) -> Result<()> {
        let Some(words) = query.words.as_ref().filter(|words| query.in_titles && !words.is_empty()) else {
            return Ok(());
        };
        let most = depth.max(MIN_TITLES);
        let mut found = view.title_search(words, most)?.found;
        if let Some(last) =
            found.get(most - 1).map(|last| last.score).filter(|_| query.kind == Kind::Utterances)
        {
            // Further titles may be as good as the last one. It would be arbitrary to count only some of them.
            found.retain(|title| title.score > last);
        }
        self.titles = found;
        Ok(())
    }

    /// Returns the ids of the dialogues with the best titles, if these contain at least two words of the query, or at
    /// least half of its words.
    pub(super) fn named_dialogues(
        &self,
        view: &dyn View,
        query: &Query,
        analyzer: Analyzer,
    ) -> Result<Vec<String>> {
        let (Some(best), Some(words)) = (self.titles.first(), &query.words) else { return Ok(Vec::new()) };
        let best: Vec<&Candidate> =
            self.titles.iter().take_while(|title| title.score == best.score).collect();
        if best.len() > MAX_NAMED {
            return Ok(Vec::new());
        }
        let mut named = Vec::new();
        for title in best {
            let is_named = |common: usize| common >= 2 || 2 * common >= words.terms.len();
            let known = title.terms.filter(|_| words.terms.len() <= MAX_TERMS);
            if known.is_some_and(|terms| !is_named(terms.count_ones() as usize)) {
                continue;
            }
            let Some((_, dialogue)) = view.record(title.dialogue)? else { continue };
            let common = || {
                let terms: HashSet<String> =
                    dialogue.title.iter().flat_map(|title| analyzer.query_terms(title)).collect();
                words.terms.iter().filter(|term| terms.contains(*term)).count()
            };
            if known.is_some() || is_named(common()) {
                named.push(dialogue.id.to_string());
            }
        }
        Ok(named)
    }
}
