//! Eigendecomposition of small symmetric matrices by Jacobi rotations: slow for large matrices, but exact and
//! always convergent.

/// Maximum number of sweeps. Convergence is quadratic and usually takes six to ten sweeps.
const SWEEPS: usize = 60;

/// Eigenvalues and eigenvectors of a symmetric matrix.
pub struct Eigen {
    /// Eigenvalues, in descending order.
    pub values: Vec<f64>,
    /// One L2-normalized eigenvector per eigenvalue.
    pub vectors: Vec<Vec<f64>>,
}

/// Decomposes a symmetric matrix with `n` rows, in row-major order.
pub fn symmetric(mut a: Vec<f64>, n: usize) -> Eigen {
    // Row k of `v` becomes eigenvector k. So a rotation changes two contiguous rows.
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

/// Applies the rotation that makes the element at (p, q) zero.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_known_matrix() {
        let e = symmetric(vec![2.0, 1.0, 1.0, 2.0], 2);
        assert!((e.values[0] - 3.0).abs() < 1e-12 && (e.values[1] - 1.0).abs() < 1e-12);
        assert!((e.vectors[0][0] - e.vectors[0][1]).abs() < 1e-12);
        assert!(symmetric(Vec::new(), 0).values.is_empty());
        assert_eq!(symmetric(vec![0.0; 9], 3).values, [0.0; 3]);
    }

    proptest! {
        #[test]
        fn the_decomposition_reconstructs_the_matrix(n in 1usize..9, numbers in prop::collection::vec(-5.0f64..5.0, 81)) {
            let at = |i: usize, j: usize| numbers[i.min(j) * 9 + i.max(j)];
            let a: Vec<f64> = (0..n * n).map(|k| at(k / n, k % n)).collect();
            let e = symmetric(a.clone(), n);
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
}
