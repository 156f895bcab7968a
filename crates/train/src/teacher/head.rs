//! Within-class whitening: a linear projection that shrinks the directions in which similar dialogues differ.

use crate::{
    ops::{Matrix, product},
    scatter::{gram, inverse_root},
};
use turnwise_encoder::{Vectors, statics::linalg};

/// Learns the projection from vectors and, for each vector, the indices of similar vectors. Returns a matrix with one
/// row per output axis.
///
/// `W` is the scatter matrix of the differences between similar vectors, scaled to a mean variance of 1 and shrunk
/// toward the identity. The projection multiplies by `W^-½`, and then projects to at most `axes` principal axes.
pub(super) fn learn(vectors: &Vectors, similar: &[Vec<u32>], shrinkage: f64, axes: usize) -> Vectors {
    let dim = vectors.dim();
    let mut differences = Vec::new();
    for (n, others) in similar.iter().enumerate() {
        // Each pair is in the lists of both vectors.
        for other in others.iter().filter(|other| **other as usize > n) {
            let pair = vectors.row(n).iter().zip(vectors.row(*other as usize));
            differences.extend(pair.map(|(a, b)| a - b));
        }
    }
    let mut scatter = gram(&differences, dim);
    let trace: f64 = (0..dim).map(|i| scatter[i * dim + i]).sum();
    let scale = if trace > 0.0 { dim as f64 / trace } else { 0.0 };
    for (n, number) in scatter.iter_mut().enumerate() {
        let own = if n % (dim + 1) == 0 { shrinkage } else { 0.0 };
        *number = (1.0 - shrinkage) * *number * scale + own;
    }
    let white: Vec<f32> = inverse_root(scatter, dim).into_iter().map(|number| number as f32).collect();
    let white = Vectors::from_flat(dim, white).unwrap_or_default();
    let whitened = project(vectors, &white);
    let principal = linalg::symmetric_eigen(gram(whitened.flat(), dim), dim);
    // Express each axis in the input dimensions. `W^-½` is symmetric.
    let mut rows = Vectors::new(dim);
    for axis in principal.vectors.iter().take(axes.min(dim)) {
        let row =
            (0..dim).map(|i| (0..dim).map(|j| f64::from(white.row(i)[j]) * axis[j]).sum::<f64>() as f32);
        rows.push(&row.collect::<Vec<f32>>());
    }
    rows
}

/// Returns the dot products of vectors with the rows of a projection matrix.
pub(super) fn project(vectors: &Vectors, map: &Vectors) -> Vectors {
    let mut out = Vectors::zeros(vectors.len(), map.len());
    let mut numbers = vec![0.0; vectors.len() * map.len()];
    let (left, right) = (Matrix::new(vectors.flat(), vectors.dim()), Matrix::new(map.flat(), map.dim()));
    product(left, right.transposed(), &mut numbers, false);
    for (n, row) in numbers.chunks_exact(map.len()).enumerate() {
        out.row_mut(n).copy_from_slice(row);
    }
    out
}
