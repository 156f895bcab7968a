//! Alignment and uniformity of unit vectors (Wang and Isola 2020), and adjusted alignment (dial2vec).

use rayon::prelude::*;
use turnwise_nearest::products;

use turnwise_core::Vectors;

/// Alignment and uniformity of unit vectors, computed from Euclidean distances. Lower values are better.
///
/// A positive pair is a pair of vectors that should be close, for example because their items have the same label.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Space {
    /// Mean squared distance of the positive pairs.
    pub alignment: f64,
    /// Alignment minus the mean squared distance of all other pairs (equation 8 of dial2vec).
    pub adjusted_alignment: f64,
    /// Natural logarithm of the mean of e^(−2 · squared distance) over all pairs.
    pub uniformity: f64,
}

/// Computes alignment and uniformity over all pairs of unit vectors.
///
/// `same(a, b)` returns whether the vectors in rows `a` and `b` are a positive pair. It is called only with a > b. The
/// result is `None` if no pair is positive or if every pair is positive.
pub fn space(vectors: &Vectors, same: impl Fn(usize, usize) -> bool + Sync) -> Option<Space> {
    // The sums are computed per row and added in row order, so the result does not depend on the number of threads.
    let rows: Vec<[f64; 5]> = (0..vectors.len())
        .into_par_iter()
        .map_init(Vec::new, |cosines, a| {
            products(vectors.row(a), &vectors.flat()[..a * vectors.dim()], vectors.dim(), cosines);
            let mut sums = [0.0; 5];
            for (b, cosine) in cosines.iter().enumerate() {
                let distance = f64::from(2.0 - 2.0 * cosine).max(0.0);
                let at = if same(a, b) { 0 } else { 2 };
                sums[at] += distance;
                sums[at + 1] += 1.0;
                sums[4] += (-2.0 * distance).exp();
            }
            sums
        })
        .collect();
    let mut sums = [0.0; 5];
    rows.iter().for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, part)| *sum += part));
    let [same_sum, same_pairs, other_sum, other_pairs, spread] = sums;
    (same_pairs > 0.0 && other_pairs > 0.0).then(|| Space {
        alignment: same_sum / same_pairs,
        adjusted_alignment: same_sum / same_pairs - other_sum / other_pairs,
        uniformity: (spread / (same_pairs + other_pairs)).ln(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[[f32; 2]]) -> Vectors {
        Vectors::from_flat(2, rows.concat()).unwrap_or(Vectors::new(2))
    }

    #[test]
    fn equal_vectors_with_the_same_label_are_aligned() {
        let label = [1, 1, 2];
        let vectors = rows(&[[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]);
        let space = space(&vectors, |a, b| label[a] == label[b]).unwrap();
        assert_eq!((space.alignment, space.adjusted_alignment), (0.0, -4.0));
        assert!((space.uniformity - ((1.0 + 2.0 * (-8f64).exp()) / 3.0).ln()).abs() < 1e-9);
    }

    #[test]
    fn pairs_of_both_kinds_are_needed() {
        let vectors = rows(&[[1.0, 0.0], [0.0, 1.0]]);
        assert_eq!(space(&vectors, |_, _| true), None);
        assert_eq!(space(&vectors, |_, _| false), None);
        assert_eq!(space(&Vectors::new(2), |_, _| true), None);
    }
}
