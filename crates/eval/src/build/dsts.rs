//! Sentence pairs for human annotation. Random sentences are rarely similar (Cer et al., 2017). Therefore, the
//! sentences of a pair either are nearest neighbors according to a ranker, or have the same intent.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, Write},
};

use crate::{
    data::Sentence,
    rank::{Items, Pool, Progress, Ranker, Step},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_nearest::highest;

/// Number of nearest neighbors of a sentence from which the second sentence of a pair is drawn.
const NEAREST: usize = 10;
/// Maximum number of draws per requested pair.
const DRAWS: usize = 50;
/// Placeholder for the score of a pair that is not annotated yet.
pub const UNSCORED: &str = "?";

/// Sentence pair with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// First sentence.
    pub a: String,
    /// Second sentence.
    pub b: String,
    /// Origin of the pair: the name of the ranker by which the sentences are neighbors, or `intent`.
    pub by: String,
}

/// Sampler of sentence pairs. It uses several sampling methods, and each method contributes the same number of pairs. A
/// ranker is a method that contributes nearest neighbors. If sentences have intents, another method contributes pairs
/// with the same intent.
pub struct Drawing {
    pool: Pool,
    /// Indices of the sentences of each intent that has at least two sentences.
    intents: Vec<Vec<usize>>,
    wanted: usize,
    /// Number of sampling methods: one per ranker, and one for intents if there are any.
    methods: usize,
    /// Number of sampling methods that are finished.
    finished: usize,
    seed: u64,
    taken: HashSet<(usize, usize)>,
    pairs: Vec<Pair>,
}

impl Drawing {
    /// Creates a sampler of `wanted` pairs. Removes duplicate sentences. Returns an error if no pairs are possible.
    pub fn new(sentences: &[Sentence], rankers: usize, wanted: usize, seed: u64) -> Result<Self> {
        let (mut seen, mut texts) = (HashSet::new(), Vec::new());
        let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for sentence in sentences.iter().filter(|s| seen.insert(s.text.as_str())) {
            if let Some(intent) = &sentence.intent {
                members.entry(intent).or_default().push(texts.len());
            }
            texts.push(sentence.text.clone());
        }
        let intents: Vec<Vec<usize>> = members.into_values().filter(|of| of.len() > 1).collect();
        let methods = rankers + usize::from(!intents.is_empty());
        if texts.len() < 2 || methods == 0 {
            return Err(Error::data(format!("{} different sentences: no pairs are possible", texts.len()))
                .with_hint("pairs are drawn from the utterances of dialogues or from labeled sentences"));
        }
        let pool = Pool::of(Items::Texts(texts));
        let (taken, pairs) = (HashSet::new(), Vec::new());
        Ok(Drawing { pool, intents, wanted, methods, finished: 0, seed, taken, pairs })
    }

    /// Draws pairs of a random sentence and one of its nearest neighbors. `ranker` finds the neighbors. Only sentences
    /// with a score above 0 count as neighbors.
    pub fn draw_neighbors(&mut self, ranker: &dyn Ranker, watch: &dyn Progress) -> Result<()> {
        let pool = std::mem::replace(&mut self.pool, Pool::of(Items::Texts(Vec::new())));
        let scorer = ranker.prepare(&pool, watch)?;
        let all = pool.documents.len();
        let documents: Vec<u32> = (0..all as u32).collect();
        let mut scores = Vec::new();
        let draw_pair = |random: &mut Random| {
            let sentence = random.below(all);
            scorer.scores(sentence, &documents, &mut scores)?;
            let nearest = highest(&scores, sentence, NEAREST, 0.0);
            Ok(nearest.get(random.below(NEAREST)).map(|neighbor| (sentence, *neighbor as usize)))
        };
        let drawn = self.draw(&ranker.name(), &pool, watch, draw_pair);
        drop(scorer);
        self.pool = pool;
        drawn
    }

    /// Draws pairs with the same intent if there are intents. Returns all pairs in random order, which hides the origin
    /// of a pair from annotators.
    pub fn finish(mut self, watch: &dyn Progress) -> Result<Vec<Pair>> {
        let intents = std::mem::take(&mut self.intents);
        if !intents.is_empty() {
            let pool = self.pool.clone();
            self.draw("intent", &pool, watch, |random| {
                let of = &intents[random.below(intents.len())];
                Ok(Some((of[random.below(of.len())], of[random.below(of.len())])))
            })?;
        }
        Random::new(self.seed, u64::MAX).shuffle(&mut self.pairs);
        Ok(self.pairs)
    }

    /// Draws the pairs of one sampling method with `draw`. Stops if there are enough pairs, or after [`DRAWS`] draws
    /// per pair.
    fn draw(
        &mut self,
        by: &str,
        pool: &Pool,
        watch: &dyn Progress,
        mut draw: impl FnMut(&mut Random) -> Result<Option<(usize, usize)>>,
    ) -> Result<()> {
        // If the number of pairs is not divisible by the number of methods, the first methods draw one more pair.
        let share = self.wanted / self.methods + usize::from(self.finished < self.wanted % self.methods);
        let mut random = Random::new(self.seed, self.finished as u64);
        self.finished += 1;
        let before = self.pairs.len();
        for _ in 0..DRAWS * share {
            let done = self.pairs.len() - before;
            watch.done(Step::Ranking, done, share);
            if done == share {
                break;
            }
            watch.check()?;
            let Some((a, b)) = draw(&mut random)?.filter(|(a, b)| a != b) else { continue };
            if self.taken.insert((a.min(b), a.max(b))) {
                let text = |n: usize| pool.documents.text(n).into_owned();
                self.pairs.push(Pair { a: text(a), b: text(b), by: by.to_owned() });
            }
        }
        Ok(())
    }
}

/// Writes pairs in the format of `sts.txt`, with placeholders for the scores.
pub fn write_pairs(pairs: &[Pair], out: &mut dyn Write) -> io::Result<()> {
    let cell = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    pairs.iter().try_for_each(|pair| writeln!(out, "{UNSCORED}\t{}\t{}", cell(&pair.a), cell(&pair.b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::{Bm25, Tfidf};

    fn drawn(sentences: &[Sentence], rankers: &[&dyn Ranker], wanted: usize, seed: u64) -> Result<Vec<Pair>> {
        let mut drawing = Drawing::new(sentences, rankers.len(), wanted, seed)?;
        rankers.iter().try_for_each(|ranker| drawing.draw_neighbors(*ranker, &()))?;
        drawing.finish(&())
    }

    fn sentences() -> Vec<Sentence> {
        let of = |word: &str, n: usize| Sentence {
            text: format!("{word} number {n} of {}", n / 4),
            intent: Some(word.to_owned()),
        };
        (0..40).map(|n| of("card", n)).chain((0..40).map(|n| of("parcel", n))).collect()
    }

    #[test]
    fn pairs_are_drawn_in_equal_parts_and_none_twice() {
        let (bm25, tfidf) = (Bm25::default(), Tfidf::default());
        let of_seed = |seed| drawn(&sentences(), &[&bm25, &tfidf], 31, seed).unwrap();
        let pairs = of_seed(7);
        let by = |name: &str| pairs.iter().filter(|pair| pair.by == name).count();
        assert_eq!((by(&bm25.name()), by(&tfidf.name()), by("intent")), (11, 10, 10));
        let both = |pair: &Pair| {
            let mut both = [pair.a.clone(), pair.b.clone()];
            both.sort();
            both
        };
        assert!(pairs.iter().all(|pair| pair.a != pair.b));
        assert_eq!(pairs.iter().map(both).collect::<HashSet<_>>().len(), 31);
        assert_eq!(pairs, of_seed(7));
        assert_ne!(pairs, of_seed(8));
        let word = |text: &str| text.split(' ').next().unwrap().to_owned();
        assert!(pairs.iter().filter(|p| p.by == "intent").all(|p| word(&p.a) == word(&p.b)));
        // The pairs are shuffled, not grouped by sampling method.
        assert!(pairs[..11].iter().any(|p| p.by == "intent"));
    }

    #[test]
    fn a_neighbor_is_among_the_nearest() {
        let bm25 = Bm25::default();
        let texts: Vec<String> = sentences().into_iter().map(|s| s.text).collect();
        let pool = Pool::of(Items::Texts(texts));
        let scorer = bm25.prepare(&pool, &()).unwrap();
        let all: Vec<u32> = (0..80).collect();
        for pair in drawn(&sentences(), &[&bm25], 60, 7).unwrap().iter().filter(|pair| pair.by != "intent") {
            let at = |text: &str| (0..80).find(|n| pool.documents.text(*n) == text).unwrap();
            let (sentence, neighbor) = (at(&pair.a), at(&pair.b));
            let mut scores = Vec::new();
            scorer.scores(sentence, &all, &mut scores).unwrap();
            let mut naive: Vec<usize> = (0..80).filter(|n| *n != sentence && scores[*n] > 0.0).collect();
            naive.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
            assert!(naive[..NEAREST].contains(&neighbor), "{pair:?}");
        }
    }

    #[test]
    fn few_sentences_give_few_pairs() {
        let three: Vec<Sentence> =
            ["a b", "a c", "a b"].map(|text| Sentence { text: text.to_owned(), intent: None }).into();
        let bm25 = Bm25::default();
        let pairs = drawn(&three, &[&bm25], 9, 1).unwrap();
        assert_eq!(pairs.len(), 1, "{pairs:?}");
        assert!(drawn(&three[..1], &[&bm25], 9, 1).is_err());
        assert!(drawn(&three, &[], 9, 1).is_err());
    }
}
