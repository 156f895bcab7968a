//! Post-processing of vectors: centering, or whitening (Su et al., 2021).

use rayon::prelude::*;

use turnwise_encoder::Vectors;

/// Transformation of all vectors before they are compared. It uses statistics of the documents' vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Postprocess {
    /// Leaves the vectors unchanged.
    #[default]
    None,
    /// Subtracts the mean of the documents' vectors.
    Centered,
    /// Subtracts the mean of the documents' vectors, and transforms the vectors so that their covariance is the
    /// identity matrix.
    Whitened,
}

/// Regularization of the covariance matrix: fraction of the mean variance that is added to the variance of each
/// dimension. Without it, the matrix is singular if there are fewer vectors than dimensions.
const RIDGE: f64 = 1e-6;

/// Statistics of the documents' vectors that a [`Postprocess`] needs.
pub(super) struct Learned {
    mean: Vec<f64>,
    /// Lower Cholesky factor of the covariance matrix; `None` if the vectors are only centered. Forward substitution
    /// with this factor whitens a vector. Whitening by eigenvectors would result in other axes, but in the same
    /// cosines.
    triangle: Option<Vec<f64>>,
}

impl Postprocess {
    /// Computes the statistics of the documents' vectors. Returns `None` for [`Postprocess::None`].
    pub(super) fn learn(self, vectors: &Vectors) -> Option<Learned> {
        let mean = match self {
            Postprocess::None => return None,
            _ => mean(vectors),
        };
        let triangle =
            (self == Postprocess::Whitened).then(|| triangle(covariance(vectors, &mean), mean.len()));
        Some(Learned { mean, triangle })
    }
}

fn mean(vectors: &Vectors) -> Vec<f64> {
    let mut sum = vec![0.0f64; vectors.dim()];
    vectors.rows().for_each(|row| sum.iter_mut().zip(row).for_each(|(s, v)| *s += f64::from(*v)));
    sum.iter().map(|s| s / vectors.len().max(1) as f64).collect()
}

/// Returns the regularized covariance matrix. Each row is summed in the order of the vectors, so the result does not
/// depend on the number of threads.
fn covariance(vectors: &Vectors, mean: &[f64]) -> Vec<f64> {
    let dim = mean.len();
    let of_row = |i: usize| {
        let mut row = vec![0.0; dim];
        for vector in vectors.rows() {
            let own = f64::from(vector[i]) - mean[i];
            for ((sum, v), m) in row.iter_mut().zip(vector).zip(mean) {
                *sum += own * (f64::from(*v) - m);
            }
        }
        row.iter_mut().for_each(|sum| *sum /= vectors.len().max(1) as f64);
        row
    };
    let rows: Vec<Vec<f64>> = (0..dim).into_par_iter().map(of_row).collect();
    let mut all = rows.concat();
    let ridge = RIDGE * (0..dim).map(|i| all[i * dim + i]).sum::<f64>() / dim.max(1) as f64;
    (0..dim).for_each(|i| all[i * dim + i] += ridge.max(f64::MIN_POSITIVE));
    all
}

/// Computes the Cholesky factor of the symmetric matrix `a`, which has `n` rows. The factor is in the lower triangle of
/// the returned matrix.
fn triangle(mut a: Vec<f64>, n: usize) -> Vec<f64> {
    for i in 0..n {
        for j in 0..=i {
            let product: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let left = a[i * n + j] - product;
            a[i * n + j] = if i == j { left.max(f64::MIN_POSITIVE).sqrt() } else { left / a[j * n + j] };
        }
    }
    a
}

impl Learned {
    /// Transforms vectors and L2-normalizes them.
    pub(super) fn apply(&self, vectors: &mut Vectors) {
        let dim = self.mean.len();
        let moved: Vec<Vec<f32>> = (0..vectors.len())
            .into_par_iter()
            .map(|n| {
                let mut row: Vec<f64> =
                    vectors.row(n).iter().zip(&self.mean).map(|(v, m)| f64::from(*v) - m).collect();
                if let Some(triangle) = &self.triangle {
                    for i in 0..dim {
                        let known: f64 =
                            triangle[i * dim..i * dim + i].iter().zip(&row).map(|(a, b)| a * b).sum();
                        row[i] = (row[i] - known) / triangle[i * dim + i];
                    }
                }
                row.into_iter().map(|v| v as f32).collect()
            })
            .collect();
        moved.iter().enumerate().for_each(|(n, row)| vectors.row_mut(n).copy_from_slice(row));
        vectors.normalize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::random::Random;

    fn skewed(n: usize) -> Vectors {
        let mut random = Random::new(1, 0);
        let mut draw = || random.below(2001) as f32 / 1000.0 - 1.0;
        let mut vectors = Vectors::new(3);
        for _ in 0..n {
            let (a, b, c) = (draw(), draw(), draw());
            vectors.push(&[1.0 + 3.0 * a, a + 0.5 * b, 0.1 * c - a]);
        }
        vectors
    }

    #[test]
    fn whitened_vectors_have_the_identity_as_covariance() {
        let vectors = skewed(400);
        let learned = Postprocess::Whitened.learn(&vectors).unwrap();
        // Do not use `apply`, because it normalizes the vectors, which changes their covariance.
        let whiten = |row: &[f32]| -> Vec<f64> {
            let triangle = learned.triangle.as_ref().unwrap();
            let mut row: Vec<f64> = row.iter().zip(&learned.mean).map(|(v, m)| f64::from(*v) - m).collect();
            for i in 0..3 {
                let known: f64 = (0..i).map(|k| triangle[i * 3 + k] * row[k]).sum();
                row[i] = (row[i] - known) / triangle[i * 3 + i];
            }
            row
        };
        let white: Vec<Vec<f64>> = vectors.rows().map(whiten).collect();
        for i in 0..3 {
            for j in 0..3 {
                let covariance = white.iter().map(|row| row[i] * row[j]).sum::<f64>() / 400.0;
                assert!((covariance - f64::from(u8::from(i == j))).abs() < 1e-3, "{i} {j} {covariance}");
            }
        }
        let mut moved = vectors.clone();
        learned.apply(&mut moved);
        for (row, white) in moved.rows().zip(&white) {
            let length = white.iter().map(|v| v * v).sum::<f64>().sqrt();
            assert!(row.iter().zip(white).all(|(a, b)| (f64::from(*a) - b / length).abs() < 1e-5));
        }
    }

    #[test]
    fn centered_vectors_have_zero_mean_and_few_vectors_can_be_whitened() {
        let vectors = skewed(50);
        assert!(Postprocess::None.learn(&vectors).is_none());
        let learned = Postprocess::Centered.learn(&vectors).unwrap();
        let mut sum = [0.0; 3];
        vectors.rows().for_each(|row| (0..3).for_each(|i| sum[i] += f64::from(row[i]) - learned.mean[i]));
        assert!(sum.iter().all(|s| s.abs() < 1e-6), "{sum:?}");
        for n in 1..4 {
            let mut few = skewed(n);
            Postprocess::Whitened.learn(&few).unwrap().apply(&mut few);
            assert!(few.flat().iter().all(|v| v.is_finite()));
        }
    }
}
