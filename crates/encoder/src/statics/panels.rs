//! Tall matrices, stored in panels of eight columns.
//!
//! A row of a panel has the size of a cache line. In a product with a sparse matrix, threads work on separate panels.
//! The order of additions does not depend on the number of threads.

use rayon::prelude::*;

/// Number of columns of a panel.
pub(super) const WIDTH: usize = 8;

/// One panel: [`WIDTH`] columns, stored row by row.
pub(super) type Panel = Vec<[f64; WIDTH]>;

/// Threshold below which a column counts as linearly dependent. It applies to the squared norm of the residual, divided
/// by the squared norm of the column. A smaller residual is only rounding error.
const DEPENDENT: f64 = 1e-12;

/// A dense matrix with many rows, stored as panels. The last panel is padded with zero columns.
pub(super) struct Panels {
    pub rows: usize,
    pub cols: usize,
    panels: Vec<Panel>,
}

impl Panels {
    /// Builds a matrix. `number` returns the element in the given row and column.
    pub fn from_fn(rows: usize, cols: usize, number: impl Fn(usize, usize) -> f64 + Sync + Send) -> Self {
        let panels = (0..cols.div_ceil(WIDTH))
            .into_par_iter()
            .map(|p| {
                let row = |r| {
                    std::array::from_fn(|i| if p * WIDTH + i < cols { number(r, p * WIDTH + i) } else { 0.0 })
                };
                (0..rows).map(row).collect()
            })
            .collect();
        Panels { rows, cols, panels }
    }

    /// Applies `f` to every panel and returns the results as a matrix. Every panel that `f` returns must have `rows`
    /// rows.
    pub fn map(&self, rows: usize, f: impl Fn(&Panel) -> Panel + Sync + Send) -> Self {
        Panels { rows, cols: self.cols, panels: self.panels.par_iter().map(f).collect() }
    }

    /// Returns the element in the given row and column.
    pub fn at(&self, row: usize, col: usize) -> f64 {
        self.panels[col / WIDTH][row][col % WIDTH]
    }

    /// Multiplies the transpose of this matrix by another matrix of the same shape. Returns the product, a square
    /// matrix in row-major order.
    pub fn transposed_times(&self, other: &Panels) -> Vec<f64> {
        let n = self.panels.len();
        let blocks: Vec<[[f64; WIDTH]; WIDTH]> = (0..n * n)
            .into_par_iter()
            .map(|pair| {
                let mut sums = [[0.0; WIDTH]; WIDTH];
                for (x, y) in self.panels[pair / n].iter().zip(&other.panels[pair % n]) {
                    for (sums, x) in sums.iter_mut().zip(x) {
                        sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += x * y);
                    }
                }
                sums
            })
            .collect();
        let cols = self.cols;
        let at = |i: usize, j: usize| blocks[i / WIDTH * n + j / WIDTH][i % WIDTH][j % WIDTH];
        (0..cols * cols).map(|k| at(k / cols, k % cols)).collect()
    }

    /// Multiplies this matrix by a small matrix, given as a list of columns. Each column in the list must have as many
    /// elements as `self` has columns.
    pub fn times(&self, columns: &[Vec<f64>]) -> Self {
        let panels = columns
            .par_chunks(WIDTH)
            .map(|columns| {
                let factor = |col: usize| std::array::from_fn(|k| columns.get(k).map_or(0.0, |c| c[col]));
                let factors: Vec<[f64; WIDTH]> = (0..self.cols).map(factor).collect();
                let row = |r: usize| {
                    let mut sums = [0.0; WIDTH];
                    for (panel, factors) in self.panels.iter().zip(factors.chunks(WIDTH)) {
                        for (x, factors) in panel[r].iter().zip(factors) {
                            sums.iter_mut().zip(factors).for_each(|(sum, f)| *sum += x * f);
                        }
                    }
                    sums
                };
                (0..self.rows).map(row).collect()
            })
            .collect();
        Panels { rows: self.rows, cols: columns.len(), panels }
    }

    /// Returns orthonormal columns that span the same space as the columns of `self`. Linearly dependent columns are
    /// dropped.
    ///
    /// The method is Gram–Schmidt, computed from the Cholesky factor of the Gram matrix. There are two passes, because
    /// the second pass removes the rounding errors of the first pass.
    pub fn orthonormal(&self) -> Self {
        let once = self.times(&orthonormalizer(&self.transposed_times(self), self.cols));
        once.times(&orthonormalizer(&once.transposed_times(&once), once.cols))
    }
}

/// Returns the columns of the inverse Cholesky factor of the Gram matrix `products` = AᵀA, without linearly dependent
/// columns. If A is multiplied by these columns, the product has orthonormal columns.
fn orthonormalizer(products: &[f64], n: usize) -> Vec<Vec<f64>> {
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for j in 0..n {
        // Subtract from column j its projection onto each kept column. Columns are represented by their coefficients.
        let mut column = vec![0.0; n];
        column[j] = 1.0;
        let of = |a: &[f64]| -> f64 { (0..=j).map(|i| a[i] * products[i * n + j]).sum() };
        for kept in &columns {
            let along = of(kept);
            column.iter_mut().zip(kept).for_each(|(c, k)| *c -= along * k);
        }
        let length: f64 =
            (0..=j).map(|i| column[i] * (0..=j).map(|k| products[i * n + k] * column[k]).sum::<f64>()).sum();
        if length > DEPENDENT * products[j * n + j] {
            let length = length.sqrt();
            column.iter_mut().for_each(|c| *c /= length);
            columns.push(column);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statics::linalg::normal;

    #[test]
    fn products_match_the_definition() {
        let a = Panels::from_fn(30, 11, |r, c| normal(1, (r * 11 + c) as u64));
        let gram = a.transposed_times(&a);
        let columns: Vec<Vec<f64>> =
            (0..3).map(|k| (0..11).map(|c| normal(2, k * 11 + c)).collect()).collect();
        let product = a.times(&columns);
        assert_eq!((product.rows, product.cols), (30, 3));
        for i in 0..11 {
            for j in 0..11 {
                let sum: f64 = (0..30).map(|r| a.at(r, i) * a.at(r, j)).sum();
                assert!((gram[i * 11 + j] - sum).abs() < 1e-12);
            }
        }
        for r in 0..30 {
            for (k, column) in columns.iter().enumerate() {
                let sum: f64 = (0..11).map(|c| a.at(r, c) * column[c]).sum();
                assert!((product.at(r, k) - sum).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn dependent_columns_are_dropped_and_the_rest_is_orthonormal() {
        // Columns with very different norms. One is nearly parallel to another, one is a sum, and one is zero.
        let number = |r: usize, c: usize| normal(3, (r * 20 + c) as u64);
        let a = Panels::from_fn(50, 12, |r, c| match c {
            4 => 1e6 * number(r, 0) + 1e2 * number(r, 4),
            7 => number(r, 1) + number(r, 2),
            9 => 0.0,
            c => number(r, c) * 10f64.powi(c as i32 - 5),
        });
        let q = a.orthonormal();
        assert_eq!(q.cols, 10);
        let gram = q.transposed_times(&q);
        for (k, value) in gram.iter().enumerate() {
            let want = f64::from(u8::from(k / 10 == k % 10));
            assert!((value - want).abs() < 1e-12, "{k}: {value}");
        }
        // Every original column is a linear combination of the new columns.
        for c in 0..12 {
            let along: Vec<f64> = (0..10).map(|k| (0..50).map(|r| q.at(r, k) * a.at(r, c)).sum()).collect();
            for r in 0..50 {
                let sum: f64 = (0..10).map(|k| along[k] * q.at(r, k)).sum();
                let size: f64 = (0..50).map(|r| a.at(r, c).powi(2)).sum::<f64>().sqrt();
                assert!((sum - a.at(r, c)).abs() <= 1e-9 * size);
            }
        }
    }
}
