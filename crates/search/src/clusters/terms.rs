//! Characteristic terms of clusters.
//!
//! The weight of a term is a class-based TF-IDF (c-TF-IDF) over dialogues:
//!
//! ```text
//! weight(term, cluster) = p · ln(p / q) · ln(1 / q)    p: fraction of the cluster's dialogues that contain the term
//!                                                      q: fraction of all dialogues that contain the term
//! ```
//!
//! It is high for terms that are frequent in the cluster and rare elsewhere. For terms in nearly all dialogues, `p
//! ≈ q ≈ 1`, so the weight is near 0. No stop word list is needed, in any language.
//!
//! Terms without a letter are ignored. Terms in only one dialogue of a cluster are also ignored, unless the cluster
//! has only one dialogue.

use std::collections::HashMap;

use serde::Serialize;

use turnwise_corpus::Dialogue;
use turnwise_text::Analyzer;

/// A term that distinguishes a cluster from the others.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Term {
    /// The term, as the analyzer returns it.
    pub term: String,
    /// The c-TF-IDF weight (see the module).
    pub weight: f64,
    /// Fraction of the cluster's dialogues that contain the term.
    pub here: f64,
    /// Fraction of all dialogues that contain the term.
    pub everywhere: f64,
}

/// Returns the distinct terms of a dialogue, without terms that contain no letter.
pub(super) fn terms_of(dialogue: &Dialogue, analyzer: &Analyzer) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    for turn in &dialogue.turns {
        let tokens = analyzer.analyze(&turn.text).into_iter().map(|token| token.term);
        terms.extend(tokens.filter(|term| term.chars().any(char::is_alphabetic)));
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// Number of dialogues per term and cluster.
pub(super) struct Counts {
    terms: HashMap<String, Vec<(u32, u32)>>,
    sizes: Vec<u32>,
}

impl Counts {
    pub(super) fn new(clusters: usize) -> Self {
        Counts { terms: HashMap::new(), sizes: vec![0; clusters] }
    }

    /// Counts the terms of a dialogue.
    pub(super) fn add(&mut self, cluster: u32, terms: Vec<String>) {
        self.sizes[cluster as usize] += 1;
        for term in terms {
            let counts = self.terms.entry(term).or_default();
            match counts.iter_mut().find(|(c, _)| *c == cluster) {
                Some((_, count)) => *count += 1,
                None => counts.push((cluster, 1)),
            }
        }
    }

    /// Returns the `top` terms of each cluster, by descending weight and then alphabetically.
    pub(super) fn best(self, top: usize) -> Vec<Vec<Term>> {
        let all: u32 = self.sizes.iter().sum();
        let mut best: Vec<Vec<Term>> = vec![Vec::new(); self.sizes.len()];
        for (term, counts) in self.terms {
            let everywhere = counts.iter().map(|(_, n)| *n).sum::<u32>();
            let everywhere = f64::from(everywhere) / f64::from(all);
            for (cluster, count) in counts {
                let size = self.sizes[cluster as usize];
                let here = f64::from(count) / f64::from(size);
                if (count > 1 || size == 1) && here > everywhere {
                    let weight = here * (here / everywhere).ln() * (1.0 / everywhere).ln();
                    best[cluster as usize].push(Term { term: term.clone(), weight, here, everywhere });
                }
            }
        }
        for terms in &mut best {
            terms.sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.term.cmp(&b.term)));
            terms.truncate(top);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn terms(texts: &[&str]) -> Vec<String> {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for text in texts {
            dialogue.push("", Role::User, *text);
        }
        terms_of(&dialogue, &Analyzer::default())
    }

    #[test]
    fn common_terms_are_not_characteristic() {
        let mut counts = Counts::new(2);
        counts.add(0, terms(&["the card is lost", "I lost the card, the card!"]));
        counts.add(0, terms(&["the card is 5 days late", "thank you"]));
        counts.add(0, terms(&["is the new card there"]));
        counts.add(1, terms(&["the train is late", "thank you"]));
        counts.add(1, terms(&["is there the train at 5"]));
        let best = counts.best(3);
        let names = |n: usize| best[n].iter().map(|t| t.term.as_str()).collect::<Vec<_>>();
        // "lost" is in one dialogue only, "is" and "the" are in all, "5" has no letter.
        assert_eq!((names(0), names(1)), (vec!["card"], vec!["train"]));
        let card = &best[0][0];
        assert_eq!((card.here, card.everywhere), (1.0, 0.6));
        assert!((card.weight - (1.0f64 / 0.6).ln().powi(2)).abs() < 1e-9);
    }

    #[test]
    fn a_cluster_of_one_dialogue_has_terms() {
        let mut counts = Counts::new(2);
        counts.add(0, terms(&["退款"]));
        counts.add(1, terms(&["订单", "a b"]));
        counts.add(1, terms(&["订单", "b a"]));
        let best = counts.best(2);
        let names = |n: usize| best[n].iter().map(|t| t.term.as_str()).collect::<Vec<_>>();
        assert_eq!((names(0), names(1)), (vec!["退款"], vec!["a", "b"]));
        assert!(Counts::new(0).best(3).is_empty());
    }
}
