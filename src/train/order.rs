//! Which example comes when: every one once an epoch, in an order that belongs to seed and epoch. So a run that goes on
//! needs to know nothing but its step.

use crate::{
    random::{Random, mixed},
    train::objectives::Place,
};

/// The examples of a run in their order.
pub struct Order {
    examples: Vec<Place>,
    seed: u64,
    epoch: u64,
    shuffled: Vec<u32>,
}

impl Order {
    /// Of these examples; there must be one.
    pub fn new(examples: Vec<Place>, seed: u64) -> Self {
        let mut order = Order { shuffled: Vec::new(), examples, seed, epoch: 0 };
        order.shuffle(0);
        order
    }

    /// Examples an epoch.
    pub fn len(&self) -> usize {
        self.examples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.examples.is_empty()
    }

    /// The example at a place in the run, with its own source of chance.
    pub fn at(&mut self, place: u64) -> (Place, Random) {
        let count = self.examples.len() as u64;
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
        Random::new(mixed(self.seed, epoch), u64::MAX).shuffle(&mut self.shuffled);
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
}
