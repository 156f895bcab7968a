//! The conversation before a query.
//!
//! "So when do I get it back?" says little alone: the turns before it tell what it is about. A search with context
//! therefore looks for turns that are similar to the query, and that come after turns similar to those before the query.
//! The less the query says, the more the turns before it count.

use std::collections::{BTreeMap, HashMap, HashSet};

use turnwise_core::{IdKey, Result, TurnNo, vectors::normalize};
use turnwise_corpus::filter::Filter;
use turnwise_encoder::Vectors;
use turnwise_index::{
    engine::{Candidate, KeywordQuery, Prefetch, Version, View},
    vectors::Kind,
};
use turnwise_text::Analyzer;

/// Maximum number of turns before the query, and before a candidate, that are compared.
pub(super) const EARLIER_TURNS: usize = 5;

/// Weight of the turns before a query that says as much as a text can.
const WEIGHT: f32 = 0.42;

/// Number of content words with which a text says half as much as a text can.
const HALF_CONTENT: f32 = 3.0;

/// Least content of a query. It limits the weight of the turns before it.
const MIN_QUERY_CONTENT: f32 = 0.25;

/// Least content of a turn before the query, so that turns without content words count, too.
const MIN_TURN_CONTENT: f32 = 0.05;

/// The turns before a query, in the form that the search needs.
pub(super) struct EarlierTurns {
    /// Vector of the query alone.
    pub(super) query: Vec<f32>,
    /// Weighted sum of the unit vectors of the turns, of length 1.
    pub(super) vector: Vec<f32>,
    /// Weight of the turns before the query; the query itself has the weight 1.
    pub(super) weight: f32,
    /// Share of each turn in the vector, in the order of the turns.
    pub(super) shares: Vec<f32>,
    /// Weight of a turn relative to the turn after it.
    pub(super) decay: f32,
    words: KeywordQuery,
}

/// Result lists for the turns before the query.
#[derive(Default)]
pub(super) struct EarlierLists {
    dense: Vec<Candidate>,
    bm25: Vec<Candidate>,
}

impl EarlierTurns {
    /// Creates the context of a query. The last row of `vectors` is the query, and the other rows are the turns before
    /// it, like `texts`. `keywords` converts a text to a keyword query.
    pub(super) fn new(
        texts: &[&str],
        mut vectors: Vectors,
        decay: f32,
        analyzer: Analyzer,
        keywords: impl Fn(&str) -> KeywordQuery,
    ) -> Self {
        let contents: Vec<f32> = texts.iter().map(|text| content(text, analyzer)).collect();
        let last = texts.len() - 1;
        let weight = |n: usize| decay.powi((last - 1 - n) as i32) * contents[n].max(MIN_TURN_CONTENT);
        let mut shares: Vec<f32> = (0..last).map(weight).collect();
        let sum: f32 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
        vectors.normalize();
        let mut vector = vec![0.0; vectors.dim()];
        for (n, share) in shares.iter().enumerate() {
            vector.iter_mut().zip(vectors.row(n)).for_each(|(sum, v)| *sum += share * v);
        }
        normalize(&mut vector);
        EarlierTurns {
            query: vectors.row(last).to_vec(),
            vector,
            weight: WEIGHT / contents[last].max(MIN_QUERY_CONTENT),
            shares,
            decay,
            words: keywords(&texts[..last].join("\n")),
        }
    }

    /// Returns the vector with which the dense search finds candidates: the query with the turns before it.
    pub(super) fn combined(&self) -> Vec<f32> {
        self.query.iter().zip(&self.vector).map(|(query, earlier)| query + self.weight * earlier).collect()
    }

    /// Returns the weights of the turns and the query in [`EarlierTurns::combined`], scaled to a sum of 1.
    pub(super) fn weights(&self) -> Vec<f32> {
        let earlier = self.shares.iter().map(|share| share * self.weight);
        earlier.chain([1.0]).map(|weight| weight / (1.0 + self.weight)).collect()
    }

    /// Finds turns that are similar to the turns before the query.
    pub(super) fn find(&self, view: &dyn View, depth: usize, exact: bool) -> Result<EarlierLists> {
        let dense = view.nearest(Kind::Utterances, &self.vector, depth, exact)?.found;
        let bm25 = match self.words.is_empty() {
            true => Vec::new(),
            false => view.keyword_search(Kind::Utterances, &self.words, depth)?.found,
        };
        Ok(EarlierLists { dense, bm25 })
    }
}

impl EarlierLists {
    /// Returns the turns that follow the turns of these lists and match the filter. They are candidates of the search.
    pub(super) fn next_turns(&self, view: &dyn View, filter: Option<&Filter>) -> Result<Vec<Candidate>> {
        view.prefetch(Kind::Utterances, &self.dense, Prefetch::Records)?;
        view.prefetch(Kind::Utterances, &self.bm25, Prefetch::Records)?;
        // Each dialogue is read only once. A long one can have all candidates.
        let mut by_dialogue: BTreeMap<(Version, IdKey), Vec<&Candidate>> = BTreeMap::new();
        for candidate in self.dense.iter().chain(&self.bm25) {
            by_dialogue.entry((candidate.version, candidate.dialogue)).or_default().push(candidate);
        }
        let mut found = Vec::new();
        for ((version, key), members) in by_dialogue {
            let first = found.len();
            view.read_spoken(key, &mut |current, dialogue| {
                if current != version {
                    return Ok(());
                }
                let spoken: Vec<TurnNo> = dialogue
                    .turns
                    .iter()
                    .filter(|turn| !turn.text.trim().is_empty())
                    .map(|turn| turn.number)
                    .collect();
                for candidate in &members {
                    let Some(turn) = candidate.turn else { continue };
                    let next = spoken.partition_point(|number| *number <= turn);
                    found.extend(spoken.get(next).map(|next| Candidate {
                        turn: Some(*next),
                        score: 0.0,
                        ..**candidate
                    }));
                }
                Ok(())
            })?;
            if let Some(filter) = filter.filter(|_| found.len() > first) {
                let followers: HashSet<TurnNo> =
                    found[first..].iter().filter_map(|candidate| candidate.turn).collect();
                let record = view.record(key)?.filter(|(current, _)| *current == version);
                let admitted: HashSet<TurnNo> = record
                    .iter()
                    .flat_map(|(_, dialogue)| {
                        let turns = dialogue.turns.iter();
                        let wanted = turns.filter(|turn| followers.contains(&turn.number));
                        wanted.filter(|turn| filter.matches_turn(dialogue, turn)).map(|turn| turn.number)
                    })
                    .collect();
                let mut n = 0;
                found.retain(|candidate| {
                    n += 1;
                    n <= first || candidate.turn.is_some_and(|turn| admitted.contains(&turn))
                });
            }
        }
        Ok(found)
    }

    /// Returns the BM25 scores of the turns that contain words of the turns before the query.
    pub(super) fn word_scores(&self) -> HashMap<(Version, TurnNo), f32> {
        let scored = |found: &Candidate| Some(((found.version, found.turn?), found.score));
        self.bm25.iter().filter_map(scored).collect()
    }
}

/// Returns how much a text says, from 0 to 1, estimated from the number of its different content words.
fn content(text: &str, analyzer: Analyzer) -> f32 {
    let tokens = analyzer.analyze_query(text).into_iter();
    let content = tokens.filter(|token| !analyzer.is_function_word(&text[token.range.clone()]));
    let words = content.map(|token| token.term).collect::<HashSet<_>>().len() as f32;
    words / (words + HALF_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(texts: &[&str], decay: f32) -> EarlierTurns {
        let mut vectors = Vectors::new(texts.len());
        (0..texts.len()).for_each(|n| {
            let mut row = vec![0.0; texts.len()];
            row[n] = 2.0;
            vectors.push(&row);
        });
        let analyzer: Analyzer = "mixed-1+stem-en".parse().unwrap();
        EarlierTurns::new(texts, vectors, decay, analyzer, |text| {
            KeywordQuery::of_terms(analyzer.query_terms(text))
        })
    }

    #[test]
    fn a_turn_counts_by_its_content_and_its_distance() {
        let turns = earlier(&["the card was charged twice in april", "oh no", "when do I get it back"], 0.5);
        assert!(turns.shares[0] > turns.shares[1], "{:?}", turns.shares);
        assert!((turns.shares.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(turns.words.terms, ["april", "card", "charg", "oh", "twice"]);
        let equal = earlier(&["card refund", "card parcel", "card"], 0.5);
        assert!((equal.shares[1] - 2.0 * equal.shares[0]).abs() < 1e-6);
        let forgotten = earlier(&["card refund", "card parcel", "card"], 0.0);
        assert_eq!(forgotten.shares, [0.0, 1.0]);
        // Only function words: both turns count, by their distance.
        let empty = earlier(&["and then", "so what", "was it"], 0.5);
        assert!((empty.shares[1] - 2.0 * empty.shares[0]).abs() < 1e-6);
    }

    #[test]
    fn the_turns_before_a_query_count_more_the_less_the_query_says() {
        let weight = |query| earlier(&["card refund", query], 0.5).weight;
        let [vague, short, long] =
            ["and then", "card parcel", "card parcel refund hotel room flight ticket"].map(weight);
        assert!(vague > short && short > long && long > WEIGHT);
        assert_eq!(vague, WEIGHT / MIN_QUERY_CONTENT);
        let turns = earlier(&["card refund", "and then"], 0.5);
        assert_eq!(turns.combined(), [turns.weight, 1.0]);
    }
}
