//! Seeded pseudo-random numbers, identical on every machine.

/// Hashes a seed and a position to 64 bits (two rounds of the SplitMix64 finalizer).
///
/// The function has no state, so threads can compute the hashes in any order.
pub fn hash64(seed: u64, position: u64) -> u64 {
    let mix = |z: u64| {
        let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(seed) ^ position)
}

/// Pseudo-random number generator. The same seed and stream number produce the same numbers on every platform.
#[derive(Debug, Clone)]
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// Creates a generator. Generators with the same seed but different stream numbers produce independent sequences.
    pub fn new(seed: u64, stream: u64) -> Self {
        Random { seed: hash64(seed, stream), drawn: 0 }
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.drawn += 1;
        hash64(self.seed, self.drawn)
    }

    /// Returns a uniform random number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform random number in `0..end`. `end` must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The result is the upper 64 bits of the 128-bit product. Its bias is at most end / 2^64.
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Shuffles a slice uniformly (Fisher-Yates).
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
    fn draws_are_uniform_and_depend_on_seed_and_stream() {
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
    fn every_permutation_is_equally_likely() {
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
