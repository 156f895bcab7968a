//! Comparable cosines of different models.
//!
//! With all-MiniLM-L6-v2, the cosines of two random texts spread widely, with a standard deviation of 0.09 to 0.19. With
//! other models, such as multilingual-e5-small, they are all close to 0.8. In a sum with BM25 scores, such cosines would
//! hardly count. Fusion therefore stretches them to the usual spread.

use schemars::JsonSchema;
use serde::Serialize;

use turnwise_core::Result;
use turnwise_index::{engine::Engine, vectors::Kind};

/// Standard deviation of the cosines of random pairs that fusion expects at least.
const USUAL_DEVIATION: f32 = 0.09;

/// Median cosine of random pairs from which cosines are stretched. Below it, the cosines of random texts are near 0, and
/// their small spread is no fault of the model.
const HIGH_MEDIAN: f32 = 0.5;

/// Maximum factor.
const MAX_FACTOR: f32 = 8.0;

/// Linear map of cosines: `center + factor * (cosine - center)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Stretch {
    /// Median cosine of random pairs of texts, which stays the same.
    pub center: f32,
    /// Factor, from 1 (cosines stay the same) to 8.
    pub factor: f32,
}

impl Default for Stretch {
    fn default() -> Self {
        Stretch { center: 0.0, factor: 1.0 }
    }
}

impl Stretch {
    /// Returns the stretch for a query that is compared like an item of kind `from` with items of kind `to`. If the spread
    /// of the cosines is unknown, they stay the same.
    pub(super) fn of(engine: &dyn Engine, from: Kind, to: Kind) -> Result<Self> {
        Ok(engine.spread(from, to)?.map_or_else(Stretch::default, Stretch::to_usual))
    }

    fn to_usual((center, deviation): (f32, f32)) -> Self {
        let factor = USUAL_DEVIATION / deviation;
        // Equal vectors have no spread.
        let narrow = center >= HIGH_MEDIAN && factor.is_finite();
        Stretch { center, factor: if narrow { factor.clamp(1.0, MAX_FACTOR) } else { 1.0 } }
    }

    /// Returns the stretched cosine.
    pub(super) fn apply(self, cosine: f32) -> f32 {
        // Exactly the same number if there is nothing to stretch.
        if self.factor == 1.0 { cosine } else { self.center + self.factor * (cosine - self.center) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_cosines_are_stretched_to_the_usual_spread() {
        let narrow = Stretch::to_usual((0.8, 0.03));
        assert!((narrow.factor - 3.0).abs() < 1e-5);
        assert!((narrow.apply(0.83) - narrow.apply(0.8) - 0.09).abs() < 1e-5);
        assert!((narrow.apply(0.8) - 0.8).abs() < 1e-6);
        for spread in [(0.2, 0.15), (0.2, 0.05), (0.8, 0.0), (0.2, f32::NAN)] {
            assert_eq!(Stretch::to_usual(spread).apply(0.37), 0.37, "{spread:?}");
        }
        assert_eq!(Stretch::to_usual((0.9, 1e-6)).factor, MAX_FACTOR);
    }
}
