//! Counting of terms in many texts.

use std::collections::HashMap;

use crate::{Analyzer, Token};

/// Counts given terms in many texts. Remembers the words of the texts, so that each word is stemmed only once.
#[derive(Debug)]
pub struct TermCounter<'a> {
    analyzer: Analyzer,
    terms: &'a [String],
    /// For each word before stemming, the index of its term in `terms`; `None` if it is another term.
    words: HashMap<String, Option<usize>>,
}

impl<'a> TermCounter<'a> {
    /// Creates a counter of `terms`, which must be sorted terms of the analyzer.
    pub fn new(analyzer: Analyzer, terms: &'a [String]) -> Self {
        TermCounter { analyzer, terms, words: HashMap::new() }
    }

    /// Returns how often a text contains each of the terms.
    pub fn count(&mut self, text: &str) -> Vec<u32> {
        let mut counts = vec![0; self.terms.len()];
        if self.terms.is_empty() {
            return counts;
        }
        for token in self.analyzer.split(text) {
            let term = match self.words.get(&token.term) {
                Some(known) => *known,
                None => {
                    let word = token.term.clone();
                    let term = self.term(token);
                    *self.words.entry(word).or_insert(term)
                }
            };
            if let Some(n) = term {
                counts[n] += 1;
            }
        }
        counts
    }

    fn term(&self, token: Token) -> Option<usize> {
        let mut tokens = [token];
        self.analyzer.stem(&mut tokens);
        self.terms.binary_search(&tokens[0].term).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_those_of_the_analyzer(
            texts in proptest::collection::vec("[aeilst ]{0,30}|[a-zA-Z退款 ']{0,20}", 1..8),
            name in proptest::sample::select(vec!["mixed-1", "mixed-1+stem-en"]),
        ) {
            let analyzer: Analyzer = name.parse().unwrap();
            let terms = analyzer.terms(&texts[0]);
            let mut counter = TermCounter::new(analyzer, &terms);
            for text in &texts {
                let tokens = analyzer.analyze(text);
                let of = |term: &String| tokens.iter().filter(|token| token.term == *term).count() as u32;
                prop_assert_eq!(counter.count(text), terms.iter().map(of).collect::<Vec<_>>());
            }
        }
    }
}
