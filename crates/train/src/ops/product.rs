//! Parallel matrix products on the CPU.
//!
//! One thread sums each element of the result in a fixed order, so the result does not depend on the number of threads.

use gemm::{Parallelism, gemm};

/// A row-major matrix, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Creates a matrix with `columns` columns.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        let rows = numbers.len() / columns.max(1);
        assert!(numbers.len() == rows * columns);
        Matrix { numbers, rows, columns, transposed: false }
    }

    /// Returns the transpose.
    pub(crate) fn transposed(self) -> Self {
        Matrix { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Column stride and row stride.
    fn strides(&self) -> (isize, isize) {
        match self.transposed {
            false => (1, self.columns as isize),
            true => (self.rows as isize, 1),
        }
    }
}

/// Computes `out = left · right`, or `out += left · right` if `add` is true.
pub(crate) fn product(left: Matrix, right: Matrix, out: &mut [f32], add: bool) {
    assert!(left.columns == right.rows && out.len() == left.rows * right.columns);
    let ((left_cs, left_rs), (right_cs, right_rs)) = (left.strides(), right.strides());
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // SAFETY: the assertion above checks the sizes, and the strides follow from them.
    unsafe {
        gemm(
            left.rows,
            right.columns,
            left.columns,
            out.as_mut_ptr(),
            1,
            right.columns as isize,
            add,
            left.numbers.as_ptr(),
            left_cs,
            left_rs,
            right.numbers.as_ptr(),
            right_cs,
            right_rs,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
