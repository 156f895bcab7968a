//! Dropout whose every decision is a function of a key and a place: the way back makes the same ones.

/// Numbers are set to 0 with a probability, and the others made larger, so that the mean stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    key: [u32; 2],
    /// A place is dropped where its bits are under this.
    under: u32,
    scale: f32,
}

impl Dropout {
    /// Drops with a probability from 0 up to, but not, 1; another key, other places.
    pub fn new(probability: f32, key: u64) -> Self {
        let probability = f64::from(probability.clamp(0.0, 0.999));
        Dropout {
            key: [key as u32, (key >> 32) as u32],
            under: (probability * 4_294_967_296.0) as u32,
            scale: (1.0 / (1.0 - probability)) as f32,
        }
    }

    /// The same, for another group of places.
    #[must_use]
    pub fn of(self, group: u32) -> Self {
        Dropout {
            key: [self.key[0] ^ mix(group.wrapping_add(0x9e37_79b9)), self.key[1].wrapping_add(group)],
            ..self
        }
    }

    /// What a number at a place is multiplied by.
    #[inline(always)]
    pub fn factor(&self, place: u32) -> f32 {
        let bits = mix(mix(place ^ self.key[0]).wrapping_add(self.key[1]));
        if bits >= self.under { self.scale } else { 0.0 }
    }
}

/// Murmur's finaliser.
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
    fn as_many_are_dropped_as_were_asked_for_and_others_with_another_key() {
        let dropped = |d: Dropout| (0..100_000).map(|n| d.factor(n) == 0.0).collect::<Vec<_>>();
        let count = |d: &[bool]| d.iter().filter(|d| **d).count();
        let (a, b) = (dropped(Dropout::new(0.1, 1)), dropped(Dropout::new(0.1, 2)));
        assert!((9_700..10_300).contains(&count(&a)), "{}", count(&a));
        for other in [b, dropped(Dropout::new(0.1, 1).of(7)), dropped(Dropout::new(0.1, 1 << 32))] {
            // Independent draws agree on about one place in a hundred.
            let both = a.iter().zip(&other).filter(|(a, b)| **a && **b).count();
            assert!((800..1_200).contains(&both), "{both}");
        }
        assert_eq!(count(&dropped(Dropout::new(0.0, 1))), 0);
        assert!((Dropout::new(0.2, 1).factor(3).max(Dropout::new(0.2, 1).factor(4)) - 1.25).abs() < 1e-6);
    }
}
