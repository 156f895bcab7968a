//! How vectors of length 1 lie: near to what belongs to them, and spread out (Wang and Isola; dial2vec's adjustment).

use rayon::prelude::*;
use turnwise_nearest::products;

use turnwise_core::Vectors;

/// What pairs of labelled vectors tell. All numbers are squared distances or made of them, and smaller is better.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Space {
    /// The mean squared distance of two that have a label in common.
    pub alignment: f64,
    /// The same less that of two that have none in common (dial2vec, equation 8).
    pub adjusted_alignment: f64,
    /// The logarithm of the mean of e^(−2 · squared distance), over all pairs of different items.
    pub uniformity: f64,
}

/// Of all pairs of vectors, which have length 1. `None` where there is no pair with a common label, or none without.
pub fn space(vectors: &Vectors, same: impl Fn(usize, usize) -> bool + Sync) -> Option<Space> {
    // Rows are summed up one by one, so that the sums do not depend on the threads.
    let rows: Vec<[f64; 5]> = (0..vectors.len())
        .into_par_iter()
        .map_init(Vec::new, |cosines, a| {
            products(vectors.row(a), &vectors.flat()[..a * vectors.dim()], vectors.dim(), cosines);
            let mut sums = [0.0; 5];
            for (b, cosine) in cosines.iter().enumerate() {
                let apart = f64::from(2.0 - 2.0 * cosine).max(0.0);
                let at = if same(a, b) { 0 } else { 2 };
                sums[at] += apart;
                sums[at + 1] += 1.0;
                sums[4] += (-2.0 * apart).exp();
            }
            sums
        })
        .collect();
    let mut sums = [0.0; 5];
    rows.iter().for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, part)| *sum += part));
    let [near, near_pairs, far, far_pairs, spread] = sums;
    (near_pairs > 0.0 && far_pairs > 0.0).then(|| Space {
        alignment: near / near_pairs,
        adjusted_alignment: near / near_pairs - far / far_pairs,
        uniformity: (spread / (near_pairs + far_pairs)).ln(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[[f32; 2]]) -> Vectors {
        Vectors::from_flat(2, rows.concat()).unwrap_or(Vectors::new(2))
    }

    #[test]
    fn what_belongs_together_and_lies_together_is_aligned() {
        let label = [1, 1, 2];
        let vectors = rows(&[[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]);
        let space = space(&vectors, |a, b| label[a] == label[b]).unwrap();
        assert_eq!((space.alignment, space.adjusted_alignment), (0.0, -4.0));
        assert!((space.uniformity - ((1.0 + 2.0 * (-8f64).exp()) / 3.0).ln()).abs() < 1e-9);
    }

    #[test]
    fn without_pairs_of_both_kinds_nothing_is_told() {
        let vectors = rows(&[[1.0, 0.0], [0.0, 1.0]]);
        assert_eq!(space(&vectors, |_, _| true), None);
        assert_eq!(space(&vectors, |_, _| false), None);
        assert_eq!(space(&Vectors::new(2), |_, _| true), None);
    }
}
