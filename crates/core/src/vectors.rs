//! Dense vectors in one contiguous buffer.

/// Row-major matrix of `f32`: one vector of `dim` numbers in each row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Vectors {
    dim: usize,
    data: Vec<f32>,
}

impl Vectors {
    /// Creates a matrix without rows.
    pub fn new(dim: usize) -> Self {
        Vectors { dim, data: Vec::new() }
    }

    /// Creates a matrix with `rows` rows of zeros.
    pub fn zeros(rows: usize, dim: usize) -> Self {
        Vectors::filled(rows, dim, 0.0)
    }

    /// Creates a matrix with `rows` rows. Every element is `value`.
    pub fn filled(rows: usize, dim: usize, value: f32) -> Self {
        Vectors { dim, data: vec![value; rows * dim] }
    }

    /// Creates a matrix from its elements in row-major order. Returns `None` if `dim` is 0, or if the number of
    /// elements is not a multiple of `dim`.
    pub fn from_flat(dim: usize, data: Vec<f32>) -> Option<Self> {
        (dim > 0 && data.len().is_multiple_of(dim)).then_some(Vectors { dim, data })
    }

    /// Returns the number of dimensions.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.data.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns row `n`, counted from 0. Panics if there are not enough rows.
    pub fn row(&self, n: usize) -> &[f32] {
        &self.data[n * self.dim..(n + 1) * self.dim]
    }

    /// Returns row `n`, counted from 0, as a mutable slice. Panics if there are not enough rows.
    pub fn row_mut(&mut self, n: usize) -> &mut [f32] {
        &mut self.data[n * self.dim..(n + 1) * self.dim]
    }

    /// Iterates over the rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.data.chunks_exact(self.dim.max(1))
    }

    /// Replaces each element that equals `old` with `new`.
    pub fn replace(&mut self, old: f32, new: f32) {
        self.data.iter_mut().filter(|v| **v == old).for_each(|v| *v = new);
    }

    /// Appends a row. Panics if its length is not `dim`.
    pub fn push(&mut self, row: &[f32]) {
        assert_eq!(row.len(), self.dim, "the row has a different number of dimensions");
        self.data.extend_from_slice(row);
    }

    /// Returns all elements in row-major order.
    pub fn flat(&self) -> &[f32] {
        &self.data
    }

    /// Scales every row to unit length. Rows that contain only zeros are unchanged.
    pub fn normalize(&mut self) {
        if self.dim > 0 {
            self.data.chunks_exact_mut(self.dim).for_each(normalize);
        }
    }

    /// Keeps the first `dim` numbers of every row (Matryoshka truncation). If the rows have at most `dim` numbers, the
    /// matrix is unchanged.
    #[must_use]
    pub fn truncate(self, dim: usize) -> Self {
        if dim >= self.dim {
            return self;
        }
        let data = self.rows().flat_map(|row| row[..dim].iter().copied()).collect();
        Vectors { dim, data }
    }
}

/// Scales a vector to unit length. A zero vector is unchanged.
pub fn normalize(row: &mut [f32]) {
    // `torch.nn.functional.normalize` uses the same minimum norm, so the results are equal for tiny vectors, too.
    let length = row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt().max(1e-12) as f32;
    row.iter_mut().for_each(|v| *v /= length);
}

/// Returns the cosine similarity of two vectors, or 0 if either is a zero vector.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { (dot(a, b) / lengths) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_normalized_and_truncated() {
        let mut v = Vectors::new(2);
        v.push(&[3.0, 4.0]);
        v.push(&[0.0, 0.0]);
        assert_eq!((v.len(), v.row(0), v.rows().len()), (2, &[3.0, 4.0][..], 2));
        v.normalize();
        assert_eq!(v.flat(), [0.6, 0.8, 0.0, 0.0]);
        assert_eq!(v.truncate(1).flat(), [0.6, 0.0]);
        assert!(Vectors::from_flat(3, vec![0.0; 4]).is_none());
        assert_eq!(Vectors::new(0).len(), 0);
    }

    #[test]
    fn cosine_with_a_zero_vector_is_zero() {
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 0.0]), 0.0);
        assert!((cosine(&[1.0, 1.0], &[2.0, 2.0]) - 1.0).abs() < 1e-6);
    }
}
