//! Order of the training examples, which is shuffled again in each epoch.
//!
//! The order depends only on the examples, the seed and the batch size. A resumed run needs only its step number.

use std::collections::BTreeMap;

use crate::objectives::TurnLocation;
use turnwise_core::random::{Random, hash64};

/// Order of the examples in a run. Each epoch has its own order, which depends on the seed and the epoch.
pub struct Order {
    examples: Vec<TurnLocation>,
    seed: u64,
    /// The epoch that `shuffled` belongs to.
    epoch: u64,
    /// Indices of the examples in the order of the epoch.
    shuffled: Vec<u32>,
    /// Batch size, and the corpus index of each example; `None` if a batch can mix corpora.
    by_corpus: Option<(usize, Vec<u32>)>,
}

impl Order {
    /// Creates the order. `examples` must not be empty.
    pub fn new(examples: Vec<TurnLocation>, seed: u64) -> Self {
        let mut order = Order { shuffled: Vec::new(), examples, seed, epoch: 0, by_corpus: None };
        order.shuffle(0);
        order
    }

    /// Makes every batch of `batch` examples come from one corpus.
    ///
    /// If the last batch of a corpus is incomplete, the epoch drops it. The shuffle decides which examples this batch
    /// has. If no corpus has enough examples for a batch, batches mix the corpora.
    pub fn by_corpus(self, batch: usize, corpus: impl Fn(TurnLocation) -> u32) -> Self {
        let corpora = self.examples.iter().map(|location| corpus(*location)).collect();
        let mut order = Order { by_corpus: Some((batch, corpora)), ..self };
        order.shuffle(0);
        order
    }

    /// Returns an example and its random number generator. `index` is the position in the run, over all epochs.
    pub fn at(&mut self, index: u64) -> (TurnLocation, Random) {
        let count = self.shuffled.len() as u64;
        let epoch = index / count;
        if epoch != self.epoch {
            self.shuffle(epoch);
        }
        let number = self.shuffled[(index % count) as usize];
        (self.examples[number as usize], Random::new(hash64(self.seed, epoch), u64::from(number)))
    }

    fn shuffle(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.shuffled = (0..self.examples.len() as u32).collect();
        // Each example uses its index as its random stream, so no example uses this stream.
        let mut random = Random::new(hash64(self.seed, epoch), u64::MAX);
        random.shuffle(&mut self.shuffled);
        if let Some((batch, corpora)) = &self.by_corpus {
            let batches = corpus_batches(&self.shuffled, *batch, corpora, &mut random);
            if !batches.is_empty() {
                self.shuffled = batches;
            }
        }
    }
}

/// Divides the examples of each corpus into complete batches. Returns the example indices, batch by batch, with the
/// batches in random order. `corpora` has the corpus index of each example.
fn corpus_batches(shuffled: &[u32], batch: usize, corpora: &[u32], random: &mut Random) -> Vec<u32> {
    let mut examples: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in shuffled {
        examples.entry(corpora[*number as usize]).or_default().push(*number);
    }
    let mut batches: Vec<&[u32]> =
        examples.values().flat_map(|numbers| numbers.chunks_exact(batch.max(1))).collect();
    random.shuffle(&mut batches);
    batches.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_visits_every_example_once_and_any_index_can_be_read() {
        let examples: Vec<TurnLocation> = (0..50).map(|n| TurnLocation { dialogue: n, turn: 0 }).collect();
        let all = |seed| {
            let mut order = Order::new(examples.clone(), seed);
            (0..120).map(|n| order.at(n)).map(|(p, mut r)| (p.dialogue, r.bits())).collect::<Vec<_>>()
        };
        let drawn = all(3);
        for epoch in drawn[..100].chunks(50) {
            let mut seen: Vec<u32> = epoch.iter().map(|(d, _)| *d).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..50).collect::<Vec<_>>());
        }
        assert!(drawn[..50] != drawn[50..100] && drawn != all(4));
        let mut order = Order::new(examples, 3);
        let (location, mut random) = order.at(77);
        assert_eq!((location.dialogue, random.bits()), drawn[77]);
    }

    #[test]
    fn each_batch_is_of_one_corpus() {
        let examples: Vec<TurnLocation> = (0..103).map(|n| TurnLocation { dialogue: n, turn: 0 }).collect();
        let corpus = |location: TurnLocation| u32::from(location.dialogue >= 30);
        let mut order = Order::new(examples.clone(), 3).by_corpus(8, corpus);
        // The first corpus has 3 batches and 6 remaining examples; the second has 9 batches and 1 remaining example.
        assert_eq!(order.shuffled.len(), 96);
        let mut left_over = Vec::new();
        for epoch in 0..3 {
            let locations: Vec<TurnLocation> = (0..96).map(|n| order.at(epoch * 96 + n).0).collect();
            let mut of_the_first = 0;
            for step in locations.chunks(8) {
                assert!(step.iter().all(|location| corpus(*location) == corpus(step[0])));
                of_the_first += usize::from(corpus(step[0]) == 0);
            }
            assert_eq!(of_the_first, 3);
            let mut seen: Vec<u32> = locations.iter().map(|location| location.dialogue).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 96);
            left_over.push((0..103).filter(|n| !seen.contains(n)).collect::<Vec<u32>>());
        }
        assert!(left_over[0] != left_over[1]);
        // No corpus has 80 examples, so the batches mix the corpora and no example is dropped.
        assert_eq!(Order::new(examples, 3).by_corpus(80, corpus).shuffled.len(), 103);
    }
}
