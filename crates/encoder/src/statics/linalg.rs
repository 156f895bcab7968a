//! Linear algebra of static encoders: truncated singular value decomposition (SVD) of a sparse matrix,
//! eigendecomposition of a small symmetric matrix, and reproducible random numbers.
//!
//! The SVD uses the randomized range finder with power iterations of Halko, Martinsson and Tropp. A random basis is
//! repeatedly multiplied by the matrix and its transpose, and then orthonormalized. The basis converges to the space of
//! the leading right singular vectors. An exact decomposition in this small space gives the singular vectors.
//!
//! This module never stores a dense matrix with as many rows as the input, so large corpora fit into memory. For a
//! given seed, the result is bitwise the same on any number of threads.
//!
//! The eigendecomposition uses Jacobi rotations: slow for large matrices, but accurate and always convergent.

use rayon::prelude::*;
use turnwise_core::random::hash64;

use crate::statics::panels::{Panel, Panels, WIDTH};

/// Accuracy of [`truncated_svd`]. More effort takes more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Number of basis vectors in addition to the requested components. With more basis vectors, the last components
    /// converge faster.
    pub oversampling: usize,
    /// Number of multiplications of the basis by the matrix and its transpose. The last multiplication is part of the
    /// final decomposition, after the power iterations.
    pub iterations: usize,
}

impl Effort {
    /// High accuracy: the difference from the exact result is negligible.
    pub const THOROUGH: Effort = Effort { oversampling: 32, iterations: 10 };
    /// Same effort as the defaults of scikit-learn's `TruncatedSVD`: ten extra vectors and five power iterations. The
    /// last components are less accurate than with [`Effort::THOROUGH`].
    pub const SCIKIT: Effort = Effort { oversampling: 10, iterations: 7 };
}

/// Singular values below this fraction of the largest singular value are rounding errors.
const NEGLIGIBLE: f64 = 1e-6;

/// A sparse matrix in row-major order (CSR).
#[derive(Debug, Clone, Default)]
pub struct Sparse {
    cols: usize,
    /// End of each row in `indices` and `values`.
    ends: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl Sparse {
    /// Creates a matrix without rows.
    pub fn new(cols: usize) -> Self {
        Sparse { cols, ..Sparse::default() }
    }

    /// Adds a row, given as column indices and values. Panics if an index is not less than the number of columns.
    pub fn push(&mut self, row: impl IntoIterator<Item = (u32, f32)>) {
        for (index, value) in row {
            assert!((index as usize) < self.cols, "column index out of range");
            self.indices.push(index);
            self.values.push(value);
        }
        self.ends.push(self.indices.len());
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// Returns the column indices and values of row `n`.
    pub fn row(&self, n: usize) -> (&[u32], &[f32]) {
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.indices[start..self.ends[n]], &self.values[start..self.ends[n]])
    }

    /// Returns the dense transpose. Use it only for a matrix with few rows.
    fn transposed(&self) -> Panels {
        let mut dense = vec![0.0; self.rows() * self.cols];
        for (n, row) in dense.chunks_exact_mut(self.cols.max(1)).enumerate() {
            let (indices, values) = self.row(n);
            indices.iter().zip(values).for_each(|(col, value)| row[*col as usize] += f64::from(*value));
        }
        Panels::from_fn(self.cols, self.rows(), |r, c| dense[c * self.cols + r])
    }

    /// Multiplies the Gram matrix (the transpose of this matrix times this matrix) by one panel of columns.
    fn gram_times(&self, panel: &Panel) -> Panel {
        let mut out = vec![[0.0; WIDTH]; self.cols];
        for n in 0..self.rows() {
            let (indices, values) = self.row(n);
            let mut sums = [0.0; WIDTH];
            for (index, value) in indices.iter().zip(values) {
                let value = f64::from(*value);
                sums.iter_mut().zip(&panel[*index as usize]).for_each(|(sum, x)| *sum += value * x);
            }
            for (index, value) in indices.iter().zip(values) {
                let value = f64::from(*value);
                out[*index as usize].iter_mut().zip(&sums).for_each(|(y, sum)| *y += value * sum);
            }
        }
        out
    }
}

/// The largest singular values and their right singular vectors.
#[derive(Debug, Clone)]
pub struct Svd {
    /// Singular values in descending order; fewer than requested if the matrix has a smaller rank.
    pub values: Vec<f64>,
    /// Right singular vectors in row-major order: one row per column of the decomposed matrix, one column per singular
    /// value.
    pub components: Vec<f32>,
}

/// Computes the `dim` largest singular values and their right singular vectors. The sign of each vector is chosen so
/// that the element with the largest absolute value is positive.
pub fn truncated_svd(matrix: &Sparse, dim: usize, effort: Effort, seed: u64) -> Svd {
    // The rank of a matrix exceeds neither the number of rows nor the number of columns.
    let dim = dim.min(matrix.rows()).min(matrix.cols);
    let q = range(matrix, dim.saturating_add(effort.oversampling), effort.iterations, seed);
    let y = q.map(matrix.cols, |panel| matrix.gram_times(panel));
    let n = q.cols;
    let projected = q.transposed_times(&y);
    let averaged = (0..n * n).map(|k| (projected[k] + projected[k % n * n + k / n]) / 2.0).collect();
    let found = symmetric_eigen(averaged, n);
    let values: Vec<f64> = found.values.iter().map(|v| v.max(0.0).sqrt()).collect();
    let kept = values.iter().take(dim).take_while(|v| **v > NEGLIGIBLE * values[0]).count();
    let right = q.times(&found.vectors[..kept]);
    let signs: Vec<f64> = (0..kept).into_par_iter().map(|c| sign(&right, c)).collect();
    let components =
        (0..matrix.cols).flat_map(|r| (0..kept).map(move |c| (r, c))).map(|(r, c)| signs[c] * right.at(r, c));
    Svd { components: components.map(|v| v as f32).collect(), values: values[..kept].to_vec() }
}

/// Returns an orthonormal basis with at most `max_columns` columns. The basis approximates the space of the leading
/// right singular vectors.
fn range(matrix: &Sparse, max_columns: usize, iterations: usize, seed: u64) -> Panels {
    if matrix.rows() <= max_columns.min(matrix.cols) {
        return matrix.transposed().orthonormal();
    }
    if matrix.cols <= max_columns {
        return Panels::from_fn(matrix.cols, matrix.cols, |r, c| f64::from(u8::from(r == c)));
    }
    let mut q = Panels::from_fn(matrix.cols, max_columns, |r, c| normal(seed, (r * max_columns + c) as u64))
        .orthonormal();
    for _ in 1..iterations {
        q = q.map(matrix.cols, |panel| matrix.gram_times(panel)).orthonormal();
    }
    q
}

/// Returns the sign (1 or -1) of the element with the largest absolute value in a column. A singular vector is unique
/// only up to the sign; the product of the vector and the returned sign is unique.
fn sign(matrix: &Panels, col: usize) -> f64 {
    let greatest = (0..matrix.rows)
        .map(|r| matrix.at(r, col))
        .fold(0.0f64, |a, b| if b.abs() > a.abs() { b } else { a });
    if greatest < 0.0 { -1.0 } else { 1.0 }
}

/// Maximum number of sweeps. A sweep rotates every pair of rows once. Usually, six to ten sweeps are enough for
/// convergence.
const SWEEPS: usize = 60;

/// Eigenvalues and eigenvectors of a symmetric matrix.
pub struct Eigen {
    /// Eigenvalues, in descending order.
    pub values: Vec<f64>,
    /// One L2-normalized eigenvector per eigenvalue.
    pub vectors: Vec<Vec<f64>>,
}

/// Computes the eigenvalues and eigenvectors of a symmetric matrix with `n` rows. `a` is in row-major order.
pub fn symmetric_eigen(mut a: Vec<f64>, n: usize) -> Eigen {
    // Row k of `v` becomes eigenvector k, so that a rotation changes two contiguous rows.
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    let total: f64 = a.iter().map(|x| x * x).sum();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n).flat_map(|i| &a[i * n..i * n + i]).map(|x| x * x).sum();
        if off <= 1e-30 * total {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| a[j * n + j].total_cmp(&a[i * n + i]).then(i.cmp(j)));
    Eigen {
        values: order.iter().map(|i| a[i * n + i]).collect(),
        vectors: order.iter().map(|i| v[i * n..(i + 1) * n].to_vec()).collect(),
    }
}

/// Applies the Jacobi rotation that makes the element of `a` at (p, q) zero. `v` accumulates the rotations.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    rows(a, n, p, q, c, s);
    for row in a.chunks_exact_mut(n) {
        (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
    }
    a[p * n + q] = 0.0;
    a[q * n + p] = 0.0;
    rows(v, n, p, q, c, s);
}

fn rows(m: &mut [f64], n: usize, p: usize, q: usize, c: f64, s: f64) {
    let (upper, lower) = m.split_at_mut(q * n);
    for (x, y) in upper[p * n..(p + 1) * n].iter_mut().zip(&mut lower[..n]) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

/// Returns a random number from the standard normal distribution (Box–Muller transform). The number depends only on the
/// seed and the index.
pub(super) fn normal(seed: u64, index: u64) -> f64 {
    // Uniform random number with 53 bits. It is never 0, because the logarithm of 0 is infinite.
    let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (unit(hash64(seed, 2 * index)), unit(hash64(seed, 2 * index + 1)));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn truncated_svd(matrix: &Sparse, dim: usize, seed: u64) -> Svd {
        super::truncated_svd(matrix, dim, Effort::THOROUGH, seed)
    }

    fn sparse(rows: usize, cols: usize, number: impl Fn(usize, usize) -> f32) -> Sparse {
        let mut m = Sparse::new(cols);
        (0..rows)
            .for_each(|r| m.push((0..cols).map(|c| (c as u32, number(r, c))).filter(|(_, v)| *v != 0.0)));
        m
    }

    #[test]
    fn less_effort_is_exact_for_the_first_and_lower_for_the_last_value() {
        let m = sparse(300, 400, text_like);
        let (some, all) = (super::truncated_svd(&m, 30, Effort::SCIKIT, 1), truncated_svd(&m, 30, 1));
        assert!((some.values[0] / all.values[0] - 1.0).abs() < 1e-9);
        assert!(some.values[29] <= all.values[29] * (1.0 + 1e-9) && some.values[29] > 0.9 * all.values[29]);
    }

    #[test]
    fn dim_is_limited_by_the_rank() {
        let m = sparse(5, 4000, |r, c| if c % 5 <= r { (c % 7) as f32 } else { 0.0 });
        let (few, many) = (truncated_svd(&m, 5, 1), truncated_svd(&m, usize::MAX / 2, 1));
        assert_eq!((few.values.len(), &few.components), (5, &many.components));
    }

    /// Returns the eigendecomposition of the dense Gram matrix of `m`.
    fn exact(m: &Sparse) -> Eigen {
        let n = m.cols;
        let mut gram = vec![0.0; n * n];
        for r in 0..m.rows() {
            let (indices, values) = m.row(r);
            for (i, a) in indices.iter().zip(values) {
                for (j, b) in indices.iter().zip(values) {
                    gram[*i as usize * n + *j as usize] += f64::from(*a) * f64::from(*b);
                }
            }
        }
        symmetric_eigen(gram, n)
    }

    fn text_like(r: usize, c: usize) -> f32 {
        let x = normal(9, (r * 1000 + c) as u64);
        let topic = if r % 5 == c % 5 { 1.2 } else { -0.8 };
        if x + topic > 0.8 { ((x + topic) / (1.0 + c as f64 / 9.0)) as f32 } else { 0.0 }
    }

    #[test]
    fn it_agrees_with_the_exact_decomposition() {
        let m = sparse(120, 60, text_like);
        let (found, exact) = (truncated_svd(&m, 10, 7), exact(&m));
        assert_eq!(found.values.len(), 10);
        for k in 0..10 {
            assert!((found.values[k] / exact.values[k].sqrt() - 1.0).abs() < 1e-6, "value {k}");
            // Projection of the exact vector on the space of the computed vectors.
            let along = |f: usize| {
                (0..60).map(|r| f64::from(found.components[r * 10 + f]) * exact.vectors[k][r]).sum::<f64>()
            };
            let within: f64 = (0..10).map(|f| along(f).powi(2)).sum();
            assert!((within - 1.0).abs() < 1e-5, "vector {k} is outside the space: {within}");
            assert!((along(k).abs() - 1.0).abs() < 1e-4, "vector {k}");
        }
    }

    #[test]
    fn results_do_not_depend_on_threads_and_little_on_the_seed() {
        let m = sparse(200, 90, text_like);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| truncated_svd(&m, 20, 1))
        };
        let (one, four) = (with(1), with(4));
        assert_eq!(one.values, four.values);
        assert_eq!(one.components, four.components);
        let other = truncated_svd(&m, 20, 2);
        assert_ne!(one.components, other.components);
        for (a, b) in one.values.iter().zip(&other.values) {
            assert!((a / b - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn a_matrix_of_low_rank_has_few_values() {
        let m = sparse(40, 30, |r, c| ((r % 3 + 1) * (c + 1)) as f32);
        assert_eq!(truncated_svd(&m, 8, 0).values.len(), 1);
        assert_eq!(truncated_svd(&sparse(1, 5, |_, c| c as f32), 8, 0).values.len(), 1);
        assert!(truncated_svd(&sparse(4, 5, |_, _| 0.0), 8, 0).values.is_empty());
        assert!(truncated_svd(&Sparse::new(0), 8, 0).values.is_empty());
    }

    proptest! {
        #[test]
        fn values_agree_with_the_exact_decomposition(rows in 1usize..14, cols in 1usize..12, dim in 1usize..14, seed: u64) {
            let m = sparse(rows, cols, |r, c| normal(seed, (r * cols + c) as u64).max(0.0) as f32);
            let (found, exact) = (truncated_svd(&m, dim, seed), exact(&m));
            prop_assert!(found.values.len() <= dim.min(rows).min(cols));
            prop_assert_eq!(found.components.len(), cols * found.values.len());
            for (k, want) in exact.values.iter().take(dim).enumerate() {
                let value = found.values.get(k).copied().unwrap_or(0.0);
                prop_assert!((value - want.max(0.0).sqrt()).abs() < 1e-5 * exact.values[0].sqrt().max(1e-9));
            }
        }
    }

    #[test]
    fn a_known_matrix() {
        let e = symmetric_eigen(vec![2.0, 1.0, 1.0, 2.0], 2);
        assert!((e.values[0] - 3.0).abs() < 1e-12 && (e.values[1] - 1.0).abs() < 1e-12);
        assert!((e.vectors[0][0] - e.vectors[0][1]).abs() < 1e-12);
        assert!(symmetric_eigen(Vec::new(), 0).values.is_empty());
        assert_eq!(symmetric_eigen(vec![0.0; 9], 3).values, [0.0; 3]);
    }

    proptest! {
        #[test]
        fn the_decomposition_reconstructs_the_matrix(n in 1usize..9, numbers in prop::collection::vec(-5.0f64..5.0, 81)) {
            let at = |i: usize, j: usize| numbers[i.min(j) * 9 + i.max(j)];
            let a: Vec<f64> = (0..n * n).map(|k| at(k / n, k % n)).collect();
            let e = symmetric_eigen(a.clone(), n);
            prop_assert!(e.values.windows(2).all(|w| w[0] >= w[1]));
            for i in 0..n {
                for j in 0..n {
                    let sum: f64 = (0..n).map(|k| e.values[k] * e.vectors[k][i] * e.vectors[k][j]).sum();
                    prop_assert!((sum - a[i * n + j]).abs() < 1e-10);
                    let dot: f64 = (0..n).map(|k| e.vectors[i][k] * e.vectors[j][k]).sum();
                    prop_assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-10);
                }
            }
        }
    }

    #[test]
    fn numbers_are_normal_and_depend_on_seed_and_index() {
        let of = |seed| (0..20_000).map(|n| normal(seed, n)).collect::<Vec<_>>();
        let (one, two) = (of(1), of(2));
        let mean = |v: &[f64], f: &dyn Fn(f64) -> f64| v.iter().map(|x| f(*x)).sum::<f64>() / v.len() as f64;
        assert!(one.iter().all(|x| x.is_finite()));
        assert!(mean(&one, &|x| x).abs() < 0.03);
        assert!((mean(&one, &|x| x * x) - 1.0).abs() < 0.05);
        assert!((mean(&one, &|x| x.powi(4)) - 3.0).abs() < 0.3);
        assert_eq!(one, of(1));
        assert_ne!(one[..3], two[..3]);
    }
}
