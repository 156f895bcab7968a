//! Data sets for semantic retrieval, built from sentences with intents.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::rank::{Bm25, Items, Pool, Progress, Ranker, Step, Terms, descending_ranks};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};

/// Method of selecting the positive and negative candidates of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum CandidateSelection {
    /// As in the text of DialogueCSE's paper: the candidates are the top 100 sentences by BM25. Candidates with a
    /// different intent are negative. The 30 best candidates with the same intent are positive.
    Text,
    /// As in DialogueCSE's released files: up to 30 random sentences with the same intent are positive. Of the
    /// sentences with a different intent, the top 40 by BM25 are negative.
    Released,
}

impl CandidateSelection {
    /// Returns the name that is used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CandidateSelection::Text => "text",
            CandidateSelection::Released => "released",
        }
    }
}

/// Number of candidates in [`CandidateSelection::Text`].
const CANDIDATES: usize = 100;
/// Maximum number of positive candidates, for both methods of [`CandidateSelection`].
const POSITIVE: usize = 30;
/// Number of negative candidates in [`CandidateSelection::Released`].
const NEGATIVE: usize = 40;

/// Data set for semantic retrieval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrievalSet {
    /// Sentences with their intents.
    pub sentences: Vec<(String, String)>,
    /// Positive and negative candidates of each sentence, as indices into `sentences`.
    pub lists: Vec<(Vec<u32>, Vec<u32>)>,
}

/// Selects the candidates of each sentence. `terms` is the method of splitting texts into terms for BM25. Returns an
/// error if there are fewer than two intents.
pub fn retrieval_set(
    sentences: Vec<(String, String)>,
    recipe: CandidateSelection,
    terms: Terms,
    seed: u64,
    watch: &dyn Progress,
) -> Result<RetrievalSet> {
    let mut members: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (n, (_, intent)) in sentences.iter().enumerate() {
        members.entry(intent).or_default().push(n as u32);
    }
    if members.len() < 2 {
        return Err(Error::data(format!(
            "{} sentences with {} intents: at least two intents are needed",
            sentences.len(),
            members.len()
        ))
        .with_hint("each sentence needs a label, and there must be at least two different labels"));
    }
    let pool = Pool::of(Items::Texts(sentences.iter().map(|(text, _)| text.clone()).collect()));
    let bm25 = Bm25 { terms, ..Bm25::default() };
    let scorer = bm25.prepare(&pool, watch)?;
    let all: Vec<u32> = (0..sentences.len() as u32).collect();
    let ranks = descending_ranks(&all.iter().map(u32::to_string).collect::<Vec<_>>());
    let chosen = |n: &u32| -> Result<(Vec<u32>, Vec<u32>)> {
        watch.check()?;
        let mut scores = Vec::new();
        scorer.scores(*n as usize, &all, &mut scores)?;
        let mut ranked: Vec<u32> = all.iter().copied().filter(|other| other != n).collect();
        let by_score = |a: &u32, b: &u32| {
            let (x, y) = (scores[*a as usize], scores[*b as usize]);
            y.total_cmp(&x).then_with(|| ranks[*a as usize].cmp(&ranks[*b as usize]))
        };
        ranked.sort_unstable_by(by_score);
        let intent = &sentences[*n as usize].1;
        let same = |other: &u32| sentences[*other as usize].1 == *intent;
        Ok(match recipe {
            CandidateSelection::Text => {
                ranked.truncate(CANDIDATES);
                let (mut positive, negative): (Vec<u32>, Vec<u32>) = ranked.into_iter().partition(same);
                positive.truncate(POSITIVE);
                (positive, negative)
            }
            CandidateSelection::Released => {
                let mut positive: Vec<u32> =
                    members[intent.as_str()].iter().copied().filter(|other| other != n).collect();
                Random::new(seed, u64::from(*n)).shuffle(&mut positive);
                positive.truncate(POSITIVE);
                (positive, ranked.into_iter().filter(|other| !same(other)).take(NEGATIVE).collect())
            }
        })
    };
    let lists: Vec<(Vec<u32>, Vec<u32>)> = all.par_iter().map(chosen).collect::<Result<_>>()?;
    watch.done(Step::Ranking, lists.len(), lists.len());
    drop(scorer);
    Ok(RetrievalSet { sentences, lists })
}

impl RetrievalSet {
    /// Returns the number of sentences without a positive candidate. The task does not use these sentences as queries.
    pub fn without_positive(&self) -> usize {
        self.lists.iter().filter(|(positive, _)| positive.is_empty()).count()
    }

    /// Writes the data set in the format of DialogueCSE's `select.txt`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let listed = |ids: &[u32]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        };
        let cell = |text: &str| text.replace(['\t', '\n', '\r'], " ");
        for (n, ((text, intent), (positive, negative))) in self.sentences.iter().zip(&self.lists).enumerate()
        {
            writeln!(
                out,
                "{n}\t{}\t{}\t{}\t{}",
                cell(text),
                cell(intent),
                listed(positive),
                listed(negative)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences() -> Vec<(String, String)> {
        let of =
            |intent: &str, word: &str, n: usize| (format!("{word} number {n} please"), intent.to_owned());
        (0..60).map(|n| of("a", "card", n)).chain((0..60).map(|n| of("b", "parcel", n))).collect()
    }

    #[test]
    fn the_papers_recipe_takes_the_top_100_by_bm25() {
        let set = retrieval_set(sentences(), CandidateSelection::Text, Terms::default(), 1, &()).unwrap();
        let (positive, negative) = &set.lists[0];
        // All 59 other cards rank above the parcels, except the parcel with the same number. Of the cards, 30 are kept.
        assert_eq!((positive.len(), negative.len()), (30, 41));
        assert!(positive.iter().all(|n| *n < 60 && *n != 0) && negative.iter().all(|n| *n >= 60));
        assert!(negative.contains(&60));
        assert_eq!(set.without_positive(), 0);
    }

    #[test]
    fn the_released_recipe_draws_thirty_and_takes_forty() {
        let set = |seed| {
            retrieval_set(sentences(), CandidateSelection::Released, Terms::default(), seed, &()).unwrap()
        };
        let (one, again, other) = (set(1), set(1), set(2));
        assert!(one.lists.iter().all(|(positive, negative)| (positive.len(), negative.len()) == (30, 40)));
        assert_eq!(one, again);
        assert_ne!(one.lists, other.lists);
        let mut out = Vec::new();
        one.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 120);
        assert_eq!(text.lines().next().unwrap().split('\t').count(), 5);
    }

    #[test]
    fn one_intent_is_an_error() {
        let one = vec![("a".to_owned(), "x".to_owned()), ("b".to_owned(), "x".to_owned())];
        let e = retrieval_set(one, CandidateSelection::Text, Terms::default(), 1, &()).unwrap_err();
        assert_eq!(e.to_string(), "2 sentences with 1 intents: at least two intents are needed");
    }
}
