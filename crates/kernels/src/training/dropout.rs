//! Dropout that depends only on a key and an index, so that the backward pass uses the same mask as the forward pass.

/// Dropout: sets elements to 0 with a given probability, and scales the other elements to keep the expected value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    key: [u32; 2],
    /// An element is dropped if its random bits are below this threshold.
    threshold: u32,
    scale: f32,
}

impl Dropout {
    /// Creates dropout with a probability from 0 to 0.999; larger values are limited to 0.999. The key is the random
    /// seed of the mask.
    pub fn new(probability: f32, key: u64) -> Self {
        let probability = f64::from(probability.clamp(0.0, 0.999));
        Dropout {
            key: [key as u32, (key >> 32) as u32],
            threshold: (probability * 4_294_967_296.0) as u32,
            scale: (1.0 / (1.0 - probability)) as f32,
        }
    }

    /// Returns dropout with the same probability and an independent mask for a group of elements.
    #[must_use]
    pub fn of(self, group: u32) -> Self {
        Dropout {
            key: [self.key[0] ^ mix(group.wrapping_add(0x9e37_79b9)), self.key[1].wrapping_add(group)],
            ..self
        }
    }

    /// Returns the factor for the element at an index: 0 if the element is dropped.
    #[inline(always)]
    pub fn factor(&self, index: u32) -> f32 {
        let bits = mix(mix(index ^ self.key[0]).wrapping_add(self.key[1]));
        if bits >= self.threshold { self.scale } else { 0.0 }
    }
}

/// Finalizer of MurmurHash3.
#[inline(always)]
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dropped_part_matches_the_probability_and_keys_are_independent() {
        let dropped = |d: Dropout| (0..100_000).map(|n| d.factor(n) == 0.0).collect::<Vec<_>>();
        let count = |d: &[bool]| d.iter().filter(|d| **d).count();
        let (a, b) = (dropped(Dropout::new(0.1, 1)), dropped(Dropout::new(0.1, 2)));
        assert!((9_700..10_300).contains(&count(&a)), "{}", count(&a));
        for other in [b, dropped(Dropout::new(0.1, 1).of(7)), dropped(Dropout::new(0.1, 1 << 32))] {
            // Two independent patterns with p = 0.1 both drop about one number in a hundred.
            let both = a.iter().zip(&other).filter(|(a, b)| **a && **b).count();
            assert!((800..1_200).contains(&both), "{both}");
        }
        assert_eq!(count(&dropped(Dropout::new(0.0, 1))), 0);
        assert!((Dropout::new(0.2, 1).factor(3).max(Dropout::new(0.2, 1).factor(4)) - 1.25).abs() < 1e-6);
    }
}
