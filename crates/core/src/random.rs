//! Numbers that look like chance and belong to a seed: the same on every machine.

/// A well mixed number of a seed and a place (SplitMix64's finaliser, twice), so that threads can draw in any order.
pub fn mixed(seed: u64, place: u64) -> u64 {
    let mix = |z: u64| {
        let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(seed) ^ place)
}

/// One number after the other.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// A seed has many streams.
    pub fn new(seed: u64, stream: u64) -> Self {
        Random { seed: mixed(seed, stream), drawn: 0 }
    }

    /// Sixty-four of them.
    pub fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mixed(self.seed, self.drawn)
    }

    /// From 0 up to, but not, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 up to, but not, `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The upper half of the product: off from even by at most end / 2^64.
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Puts things into any order, each as likely as the others.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_belong_to_seed_and_stream() {
        let of = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..60_000).map(|_| random.below(6)).collect::<Vec<_>>()
        };
        let drawn = of(1, 0);
        for side in 0..6 {
            let count = drawn.iter().filter(|d| **d == side).count();
            assert!((9_500..10_500).contains(&count), "{side}: {count}");
        }
        assert_eq!(drawn, of(1, 0));
        assert_ne!(drawn, of(1, 1));
        assert_ne!(drawn, of(2, 0));
    }

    #[test]
    fn shuffling_gives_every_order_as_often() {
        let mut counts = std::collections::BTreeMap::new();
        let mut random = Random::new(7, 0);
        for _ in 0..24_000 {
            let mut things = [0, 1, 2, 3];
            random.shuffle(&mut things);
            *counts.entry(things).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
