//! Products of matrices on the CPU, on all threads. Each number is summed by one thread in one order, so that it does not
//! hang on how many there are.

use gemm::{Parallelism, gemm};

/// A matrix whose rows lie one behind the other, or its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// Of rows of `columns` numbers.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        let rows = numbers.len() / columns.max(1);
        assert!(numbers.len() == rows * columns);
        Matrix { numbers, rows, columns, transposed: false }
    }

    /// The transpose.
    pub(crate) fn transposed(self) -> Self {
        Matrix { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// From column to column, and from row to row.
    fn strides(&self) -> (isize, isize) {
        match self.transposed {
            false => (1, self.columns as isize),
            true => (self.rows as isize, 1),
        }
    }
}

/// `out = left · right`, added to what is there if asked for.
pub(crate) fn product(left: Matrix, right: Matrix, out: &mut [f32], add: bool) {
    assert!(left.columns == right.rows && out.len() == left.rows * right.columns);
    let ((left_cs, left_rs), (right_cs, right_rs)) = (left.strides(), right.strides());
    let threads = rayon::current_num_threads();
    let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
    // SAFETY: the sizes were compared, and the strides follow from them.
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
