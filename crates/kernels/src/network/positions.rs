//! Ways in which attention depends on the positions of tokens.

/// Rotary position embedding: attention rotates the queries and keys by angles that grow with the position of the token.
/// So the scores depend on the distance between two tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// Maximum number of tokens in a sequence.
    pub max_tokens: usize,
    /// Base of the angles. The elements `i` and `i + d/2` of a head of size `d` are rotated by
    /// `position / (divisor · base^(2i/d))`.
    pub base: f64,
    /// Base of the angles in layers with a window.
    pub window_base: f64,
    /// Divisor of all angles: 1, or more if the model was extended to longer sequences.
    pub divisor: f64,
}

impl Rotary {
    /// Returns the angles at a position, for half of the elements of a head of this size. `windowed` is true for layers
    /// with a window.
    pub fn angles(self, windowed: bool, head_size: usize, position: usize) -> impl Iterator<Item = f64> {
        let base = if windowed { self.window_base } else { self.base };
        let frequency = move |i: usize| base.powf((2 * i) as f64 / head_size as f64) * self.divisor;
        (0..head_size / 2).map(move |i| position as f64 / frequency(i))
    }
}

/// Linear bias (ALiBi): attention scores fall linearly with the distance between the query and the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearBias {
    /// Maximum number of tokens in a sequence.
    pub max_tokens: usize,
}

impl LinearBias {
    /// Returns the slope of each head: the number that is subtracted from the score for each token of distance.
    ///
    /// For `n` heads, a power of two, the slopes are `2^(-8k/n)` for `k` from 1 to `n`. For another number of heads, they
    /// are those of the next smaller power of two, followed by every second slope of the next larger one.
    pub fn slopes(heads: usize) -> Vec<f32> {
        let of_power = |n: usize| (1..=n).map(move |k| 2f64.powf(-8.0 * k as f64 / n as f64) as f32);
        let smaller = 1 << heads.max(1).ilog2();
        of_power(smaller).chain(of_power(2 * smaller).step_by(2)).take(heads).collect()
    }

    /// Returns the bias of a head with this slope at every distance, from `-(tokens - 1)` to `tokens - 1`.
    pub fn by_distance(slope: f32, tokens: usize) -> impl Iterator<Item = f32> {
        let most = tokens as isize - 1;
        (-most..=most).map(move |distance| -slope * distance.unsigned_abs() as f32)
    }
}

/// Relative position bias of MPNet: numbers that are added to the attention scores of every layer, by head and by the
/// distance between the query and the key.
#[derive(Debug, Clone, PartialEq)]
pub struct RelativeBias {
    /// Number of heads.
    pub heads: usize,
    /// Elements of the table: a row for each of the [`RelativeBias::BUCKETS`] groups of distances, with an element for
    /// each head.
    pub data: Vec<f32>,
}

impl RelativeBias {
    /// Number of groups of distances: 16 for keys before the query or at the same position, and 16 for keys after it.
    pub const BUCKETS: usize = 32;

    /// Returns the row of the table for a distance: the position of the key minus that of the query.
    ///
    /// Distances below 8 have rows of their own. The others are grouped on a logarithmic scale, two rows for each power
    /// of two; all distances of 91 and more share a row.
    pub fn bucket(distance: isize) -> usize {
        const SIDE: usize = RelativeBias::BUCKETS / 2;
        const EXACT: usize = SIDE / 2;
        let n = distance.unsigned_abs();
        // EXACT + 2·log₂(n / EXACT), rounded down.
        let far = || EXACT + (n * n).ilog2() as usize - 2 * EXACT.ilog2() as usize;
        let row = if n < EXACT { n } else { far().min(SIDE - 1) };
        if distance > 0 { SIDE + row } else { row }
    }

    /// Returns the bias of a head at every distance, from `-(tokens - 1)` to `tokens - 1`.
    pub fn by_distance(&self, head: usize, tokens: usize) -> impl Iterator<Item = f32> {
        let most = tokens as isize - 1;
        (-most..=most).map(move |distance| self.data[Self::bucket(distance) * self.heads + head])
    }

    /// Adds the gradient of the bias of a head at every distance (see [`RelativeBias::by_distance`]) to the gradient of
    /// the table.
    pub fn add_gradient(of_table: &mut [f32], head: usize, by_distance: &[f32]) {
        let heads = of_table.len() / Self::BUCKETS;
        let most = by_distance.len() as isize / 2;
        for (distance, gradient) in (-most..=most).zip(by_distance) {
            of_table[Self::bucket(distance) * heads + head] += gradient;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_linear_biases() {
        assert_eq!(LinearBias::slopes(8), [1, 2, 3, 4, 5, 6, 7, 8].map(|k| 0.5f32.powi(k)));
        let twelve = LinearBias::slopes(12);
        assert_eq!(twelve[..8], LinearBias::slopes(8));
        let more = [0.5, 1.5, 2.5, 3.5].map(|k: f32| 2f32.powf(-k));
        assert!(twelve[8..].iter().zip(more).all(|(a, b)| (a - b).abs() < 1e-7), "{twelve:?}");
        assert_eq!(LinearBias::by_distance(0.5, 3).collect::<Vec<_>>(), [-1.0, -0.5, 0.0, -0.5, -1.0]);
    }

    #[test]
    fn distances_are_grouped_as_by_mpnet() {
        // From `MPNetEncoder.relative_position_bucket` of transformers.
        let far = [8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 511];
        let rows = [8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15];
        for (distance, row) in (0..8).zip(0..8).chain(far.into_iter().zip(rows)) {
            assert_eq!(RelativeBias::bucket(-distance), row, "{distance}");
            assert_eq!(RelativeBias::bucket(distance), row + if distance > 0 { 16 } else { 0 }, "{distance}");
        }
        let bias = RelativeBias { heads: 2, data: (0..64).map(|i| i as f32).collect() };
        let of_second_head: Vec<f32> = bias.by_distance(1, 3).collect();
        assert_eq!(of_second_head, [2, 1, 0, 17, 18].map(|row| (2 * row + 1) as f32));
    }
}
