//! Which example comes when: every one once an epoch, in an order that belongs to seed and epoch. So a run that goes on
//! needs to know nothing but its step.

use std::collections::BTreeMap;

use crate::objectives::Place;
use turnwise_core::random::{Random, mixed};

/// The examples of a run in their order.
pub struct Order {
    examples: Vec<Place>,
    seed: u64,
    epoch: u64,
    shuffled: Vec<u32>,
    apart: Option<Apart>,
}

/// Steps whose examples are all of one corpus.
struct Apart {
    /// Examples a step.
    batch: usize,
    /// The corpus of each example.
    corpora: Vec<u32>,
}

impl Order {
    /// Of these examples; there must be one.
    pub fn new(examples: Vec<Place>, seed: u64) -> Self {
        let mut order = Order { shuffled: Vec::new(), examples, seed, epoch: 0, apart: None };
        order.shuffle(0);
        order
    }

    /// The same, each `batch` of them of one corpus. What is left over of a corpus waits for the next epoch, where others
    /// will be; where no corpus has as many, they are mixed after all.
    pub fn apart(self, batch: usize, corpus: impl Fn(Place) -> u32) -> Self {
        let corpora = self.examples.iter().map(|place| corpus(*place)).collect();
        let mut order = Order { apart: Some(Apart { batch, corpora }), ..self };
        order.shuffle(0);
        order
    }

    /// Examples an epoch.
    pub fn len(&self) -> usize {
        self.shuffled.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shuffled.is_empty()
    }

    /// The example at a place in the run, with its own source of chance.
    pub fn at(&mut self, place: u64) -> (Place, Random) {
        let count = self.shuffled.len() as u64;
        let epoch = place / count;
        if epoch != self.epoch {
            self.shuffle(epoch);
        }
        let number = self.shuffled[(place % count) as usize];
        (self.examples[number as usize], Random::new(mixed(self.seed, epoch), u64::from(number)))
    }

    fn shuffle(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.shuffled = (0..self.examples.len() as u32).collect();
        // Another stream than any example's.
        let mut random = Random::new(mixed(self.seed, epoch), u64::MAX);
        random.shuffle(&mut self.shuffled);
        if let Some(apart) = &self.apart {
            let steps = apart.steps(&self.shuffled, &mut random);
            if !steps.is_empty() {
                self.shuffled = steps;
            }
        }
    }
}

impl Apart {
    /// Whole steps of one corpus each, in an order by chance; of each the examples in the order that they have.
    fn steps(&self, shuffled: &[u32], random: &mut Random) -> Vec<u32> {
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for number in shuffled {
            of.entry(self.corpora[*number as usize]).or_default().push(*number);
        }
        let mut steps: Vec<&[u32]> =
            of.values().flat_map(|numbers| numbers.chunks_exact(self.batch.max(1))).collect();
        random.shuffle(&mut steps);
        steps.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_comes_once_an_epoch_and_the_same_from_anywhere() {
        let examples: Vec<Place> = (0..50).map(|n| Place { dialogue: n, turn: 0 }).collect();
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
        let (place, mut random) = order.at(77);
        assert_eq!((place.dialogue, random.bits()), drawn[77]);
    }
    #[test]
    fn steps_apart_are_of_one_corpus_and_of_each_as_often_as_it_has_examples() {
        let examples: Vec<Place> = (0..103).map(|n| Place { dialogue: n, turn: 0 }).collect();
        let corpus = |place: Place| u32::from(place.dialogue >= 30);
        let mut order = Order::new(examples.clone(), 3).apart(8, corpus);
        // 3 steps of the one and 9 of the other; six and one are left over.
        assert_eq!(order.len(), 96);
        let mut left_over = Vec::new();
        for epoch in 0..3 {
            let places: Vec<Place> = (0..96).map(|n| order.at(epoch * 96 + n).0).collect();
            let mut of_the_first = 0;
            for step in places.chunks(8) {
                assert!(step.iter().all(|place| corpus(*place) == corpus(step[0])));
                of_the_first += usize::from(corpus(step[0]) == 0);
            }
            assert_eq!(of_the_first, 3);
            let mut seen: Vec<u32> = places.iter().map(|place| place.dialogue).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 96);
            left_over.push((0..103).filter(|n| !seen.contains(n)).collect::<Vec<u32>>());
        }
        assert!(left_over[0] != left_over[1]);
        // Too few of each: mixed, and all of them.
        assert_eq!(Order::new(examples, 3).apart(80, corpus).len(), 103);
    }
}
