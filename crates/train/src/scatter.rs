//! Functions for small square matrices in f64, row-major: Gram matrices, matrix powers and products.

use super::ops::{Matrix, product};
use turnwise_encoder::statics::linalg;

/// Returns `leftᵀ·right` for two matrices with one vector of `dim` elements per row.
pub(super) fn cross_product(left: &[f32], right: &[f32], dim: usize) -> Vec<f64> {
    let mut out = vec![0.0; dim * dim];
    product(Matrix::new(left, dim).transposed(), Matrix::new(right, dim), &mut out, false);
    out.into_iter().map(f64::from).collect()
}

/// Returns the Gram matrix `XᵀX` of a matrix `X` with one vector per row.
pub(super) fn gram(rows: &[f32], dim: usize) -> Vec<f64> {
    cross_product(rows, rows, dim)
}

/// Returns `A^-½` for a symmetric positive definite matrix `A`.
pub(super) fn inverse_root(matrix: Vec<f64>, dim: usize) -> Vec<f64> {
    map_eigenvalues(matrix, dim, |value| 1.0 / value.max(1e-9).sqrt())
}

/// Returns `A^½` for a symmetric positive semidefinite matrix `A`.
pub(super) fn root(matrix: Vec<f64>, dim: usize) -> Vec<f64> {
    map_eigenvalues(matrix, dim, |value| value.max(0.0).sqrt())
}

/// Applies a function to the eigenvalues of a symmetric matrix, and returns the resulting matrix.
fn map_eigenvalues(matrix: Vec<f64>, dim: usize, f: impl Fn(f64) -> f64) -> Vec<f64> {
    let eigen = linalg::symmetric_eigen(matrix, dim);
    let values: Vec<f64> = eigen.values.iter().map(|value| f(*value)).collect();
    let mut out = vec![0.0; dim * dim];
    for (value, vector) in values.iter().zip(&eigen.vectors) {
        for (row, own) in out.chunks_exact_mut(dim).zip(vector) {
            row.iter_mut().zip(vector).for_each(|(out, other)| *out += value * own * other);
        }
    }
    out
}

/// Returns the product `a·b` of two square matrices.
pub(super) fn times(a: &[f64], b: &[f64], dim: usize) -> Vec<f64> {
    let mut out = vec![0.0; dim * dim];
    for (row, out) in a.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        for (left, right) in row.iter().zip(b.chunks_exact(dim)) {
            out.iter_mut().zip(right).for_each(|(out, right)| *out += left * right);
        }
    }
    out
}

/// Returns the transpose of a square matrix.
pub(super) fn transposed(a: &[f64], dim: usize) -> Vec<f64> {
    (0..dim * dim).map(|at| a[at % dim * dim + at / dim]).collect()
}

/// Returns the mean of the diagonal: the mean variance if `a` is a covariance matrix.
pub(super) fn mean_variance(a: &[f64], dim: usize) -> f64 {
    a.iter().step_by(dim + 1).sum::<f64>() / dim as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_functions_of_small_matrices() {
        let a = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(times(&a, &[0.0, 1.0, 1.0, 0.0], 2), [2.0, 1.0, 4.0, 3.0]);
        assert_eq!(transposed(&a, 2), [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(mean_variance(&a, 2), 2.5);
        let rows = [1.0, 2.0, 0.0, 1.0];
        assert_eq!(gram(&rows, 2), [1.0, 2.0, 2.0, 5.0]);
        assert_eq!(cross_product(&rows, &[1.0, 0.0, 3.0, 4.0], 2), [1.0, 0.0, 5.0, 4.0]);
        let symmetric = vec![3.0, 1.0, 1.0, 2.0];
        let inverse = inverse_root(symmetric.clone(), 2);
        let one = times(&times(&inverse, &symmetric, 2), &inverse, 2);
        assert!(one.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{one:?}");
        let twice = root(symmetric.clone(), 2);
        let whole = times(&twice, &twice, 2);
        assert!(whole.iter().zip(&symmetric).all(|(a, b)| (a - b).abs() < 1e-12), "{whole:?}");
    }
}
