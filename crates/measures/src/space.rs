//! Alignment and uniformity of unit vectors (Wang and Isola 2020), and the adjusted alignment of dial2vec.

use rayon::prelude::*;
use turnwise_nearest::products;

use turnwise_core::Vectors;

/// Alignment and uniformity of labeled vectors. Both are based on squared distances; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Space {
    /// Mean squared distance of the pairs that share a label.
    pub alignment: f64,
    /// The alignment minus the mean squared distance of the pairs that share no label (dial2vec, equation 8).
    pub adjusted_alignment: f64,
    /// Logarithm of the mean of e^(−2 · squared distance) over all pairs of different items.
    pub uniformity: f64,
}

/// Computes alignment and uniformity over all pairs of unit vectors. `same(a, b)` is true if items a and b share a
/// label.
///
/// Returns `None` if no pair shares a label, or if all pairs share a label.
pub fn space(vectors: &Vectors, same: impl Fn(usize, usize) -> bool + Sync) -> Option<Space> {
    // The sums of the rows are added in order, so the result does not depend on the number of threads.
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
