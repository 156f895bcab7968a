//! A linear map that makes short what differs between dialogues that are alike.

use crate::{
    ops::{Matrix, product},
    scatter::{inverse_root, within},
};
use turnwise_encoder::{Vectors, statics::eigen};

/// The map: a row a kept axis.
pub(super) struct Head {
    axes: Vectors,
}

/// Learns it from vectors and, for each, those that are like it. `W` is the scatter of their differences, its mean variance
/// 1, drawn towards the identity; the map is `W^-½`, turned to the main axes of the vectors behind it.
pub(super) fn learn(vectors: &Vectors, alike: &[Vec<u32>], shrinkage: f64, axes: usize) -> Head {
    let dim = vectors.dim();
    let mut differences = Vec::new();
    for (n, others) in alike.iter().enumerate() {
        // Each pair once.
        for other in others.iter().filter(|other| **other as usize > n) {
            let pair = vectors.row(n).iter().zip(vectors.row(*other as usize));
            differences.extend(pair.map(|(a, b)| a - b));
        }
    }
    let mut scatter = within(&differences, dim);
    let trace: f64 = (0..dim).map(|i| scatter[i * dim + i]).sum();
    let scale = if trace > 0.0 { dim as f64 / trace } else { 0.0 };
    for (n, number) in scatter.iter_mut().enumerate() {
        let own = if n % (dim + 1) == 0 { shrinkage } else { 0.0 };
        *number = (1.0 - shrinkage) * *number * scale + own;
    }
    let white: Vec<f32> = inverse_root(scatter, dim).into_iter().map(|number| number as f32).collect();
    let white = Vectors::from_flat(dim, white).unwrap_or_default();
    let behind = through(vectors, &white);
    let turned = eigen::symmetric(within(behind.flat(), dim), dim);
    // Each axis as a row over the numbers that go in: `W^-½` is symmetric.
    let mut made = Vectors::new(dim);
    for axis in turned.vectors.iter().take(axes.min(dim)) {
        let row =
            (0..dim).map(|i| (0..dim).map(|j| f64::from(white.row(i)[j]) * axis[j]).sum::<f64>() as f32);
        made.push(&row.collect::<Vec<f32>>());
    }
    Head { axes: made }
}

impl Head {
    /// Vectors as seen through it.
    pub(super) fn apply(&self, vectors: &Vectors) -> Vectors {
        through(vectors, &self.axes)
    }
}

/// The products of vectors with the rows of a map.
fn through(vectors: &Vectors, map: &Vectors) -> Vectors {
    let mut out = Vectors::zeros(vectors.len(), map.len());
    let mut numbers = vec![0.0; vectors.len() * map.len()];
    let (left, right) = (Matrix::new(vectors.flat(), vectors.dim()), Matrix::new(map.flat(), map.dim()));
    product(left, right.transposed(), &mut numbers, false);
    for (n, row) in numbers.chunks_exact(map.len()).enumerate() {
        out.row_mut(n).copy_from_slice(row);
    }
    out
}
