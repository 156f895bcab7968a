//! Smooth inverse frequency (Arora, Liang and Ma): rare words get more weight, and the common component of all
//! texts is removed.

use rayon::prelude::*;

use super::{WordTable, lookup};

/// Number of documents looked up at a time.
const CHUNK: usize = 4096;
/// Maximum number of documents, evenly spaced, used to compute the common component.
const SAMPLE: usize = 100_000;
/// Maximum number of power iterations. A few are enough if one component dominates.
const STEPS: usize = 500;

/// Returns the weight of each word.
pub(super) fn weights(probabilities: &[f64], a: f64) -> Vec<f32> {
    probabilities.iter().map(|p| (a / (a + p)) as f32).collect()
}

/// The known words of a set of documents.
pub(super) struct Known {
    pub documents: usize,
    rows: Vec<u32>,
    ends: Vec<usize>,
}

impl Known {
    pub fn of(table: &WordTable, mut documents: impl Iterator<Item = String>) -> Self {
        let mut known = Known { documents: 0, rows: Vec::new(), ends: Vec::new() };
        loop {
            let chunk: Vec<String> = documents.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return known;
            }
            known.documents += chunk.len();
            for rows in chunk.par_iter().map(|text| lookup::rows(table, text)).collect::<Vec<_>>() {
                if !rows.is_empty() {
                    known.rows.extend(rows);
                    known.ends.push(known.rows.len());
                }
            }
        }
    }

    /// Number of known words, with repetitions.
    pub fn words(&self) -> usize {
        self.rows.len()
    }

    /// Probability of each word of the table in the documents.
    pub fn probabilities(&self, table: &WordTable) -> Vec<f64> {
        let mut counts = vec![0u64; table.len()];
        self.rows.iter().for_each(|row| counts[*row as usize] += 1);
        let total = self.rows.len().max(1) as f64;
        counts.into_iter().map(|count| count as f64 / total).collect()
    }

    /// Returns the common component: the first singular vector of the document vectors.
    pub fn common(&self, table: &WordTable, weights: &[f32]) -> Vec<f32> {
        let dim = table.dim();
        let step = self.ends.len().div_ceil(SAMPLE).max(1);
        let chosen: Vec<usize> = (0..self.ends.len()).step_by(step).collect();
        // Chunks of fixed size, summed in order: the result does not depend on the number of threads.
        let parts = chosen.par_chunks(CHUNK).map(|chunk| {
            let mut products = vec![0.0; dim * dim];
            for n in chunk {
                let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
                let vector = average(table, weights, &self.rows[start..self.ends[*n]]);
                for (row, x) in products.chunks_exact_mut(dim).zip(&vector) {
                    row.iter_mut().zip(&vector).for_each(|(p, y)| *p += x * y);
                }
            }
            products
        });
        let mut products = vec![0.0; dim * dim];
        for part in parts.collect::<Vec<_>>() {
            products.iter_mut().zip(part).for_each(|(sum, p)| *sum += p);
        }
        first_axis(&products, dim).into_iter().map(|v| v as f32).collect()
    }
}

/// Weighted mean of word vectors.
pub(super) fn average(table: &WordTable, weights: &[f32], rows: &[u32]) -> Vec<f64> {
    let mut sum = vec![0.0; table.dim()];
    for row in rows {
        let weight = weights.get(*row as usize).map_or(1.0, |w| f64::from(*w));
        sum.iter_mut().zip(table.vector(*row)).for_each(|(s, v)| *s += weight * f64::from(*v));
    }
    let n = rows.len().max(1) as f64;
    sum.iter_mut().for_each(|s| *s /= n);
    sum
}

/// Eigenvector of the largest eigenvalue of a Gram matrix, by power iteration; zeros if the matrix is zero.
fn first_axis(products: &[f64], dim: usize) -> Vec<f64> {
    // The longest column is never orthogonal to the eigenvector.
    let column = |c: usize| (0..dim).map(move |r| products[r * dim + c]);
    let size = |c: usize| column(c).map(|v| v * v).sum::<f64>();
    let start = (0..dim).fold(0, |best, c| if size(c) > size(best) { c } else { best });
    let mut axis: Vec<f64> = column(start).collect();
    for _ in 0..STEPS {
        let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 || !length.is_finite() {
            return vec![0.0; dim];
        }
        axis.iter_mut().for_each(|v| *v /= length);
        let dot = |row: &[f64]| row.iter().zip(&axis).map(|(p, v)| p * v).sum::<f64>();
        let next: Vec<f64> = products.chunks_exact(dim).map(dot).collect();
        let value = next.iter().map(|v| v * v).sum::<f64>().sqrt();
        let moved = next.iter().zip(&axis).map(|(n, v)| (n / value - v).powi(2)).sum::<f64>();
        if value == 0.0 || moved < 1e-24 {
            break;
        }
        axis = next;
    }
    let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
    axis.iter_mut().for_each(|v| *v /= length);
    axis
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statics::{eigen, random::normal};

    #[test]
    fn the_first_axis_agrees_with_the_exact_decomposition() {
        let (n, dim) = (50, 7);
        let at = |r: usize, c: usize| normal(5, (r * dim + c) as u64) + if c == 2 { 1.5 } else { 0.2 };
        let mut products = vec![0.0; dim * dim];
        for r in 0..n {
            (0..dim * dim).for_each(|k| products[k] += at(r, k / dim) * at(r, k % dim));
        }
        let exact = &eigen::symmetric(products.clone(), dim).vectors[0];
        let cosine: f64 = first_axis(&products, dim).iter().zip(exact).map(|(a, b)| a * b).sum();
        assert!((cosine.abs() - 1.0).abs() < 1e-10);
        assert_eq!(first_axis(&[0.0; 9], 3), [0.0; 3]);
    }

    #[test]
    fn weights_fall_with_probability() {
        assert_eq!(weights(&[0.0, 1e-3, 0.1], 1e-3)[..2], [1.0, 0.5]);
    }
}
