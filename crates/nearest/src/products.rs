//! Inner products of all pairs of rows of two matrices.

use crate::distances::{Dispatch, Distances, Task};

/// Computes the inner product of each row of `a` with each row of `b`.
///
/// Both have rows of `dim` numbers; an incomplete last row is ignored. `out` is cleared and receives the products,
/// those of the first row of `a` first. A product depends only on its two rows.
pub fn products(a: &[f32], b: &[f32], dim: usize, out: &mut Vec<f32>) {
    out.clear();
    if dim > 0 {
        Dispatch::best().run(Products { a, b, dim, out });
    }
}

struct Products<'a> {
    a: &'a [f32],
    b: &'a [f32],
    dim: usize,
    out: &'a mut Vec<f32>,
}

impl Task for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Distances>(self) {
        let Products { a, b, dim, out } = self;
        out.reserve((a.len() / dim) * (b.len() / dim));
        for x in a.chunks_exact(dim) {
            for y in b.chunks_exact(dim) {
                // SAFETY: both rows have `dim` numbers, and the processor supports the level.
                out.push(unsafe { S::floats::<false>(x.as_ptr(), y.as_ptr(), dim) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_of_rows_are_multiplied() {
        for dim in [1, 7, 8, 40, 67] {
            let numbers = |rows: usize, salt: usize| -> Vec<f32> {
                (0..rows * dim).map(|n| ((n * 31 + salt) % 17) as f32 / 8.0 - 1.0).collect()
            };
            let (mut a, b) = (numbers(3, 5), numbers(4, 11));
            let expected: Vec<f32> = a
                .chunks(dim)
                .flat_map(|x| b.chunks(dim).map(|y| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>()))
                .collect();
            let mut found = vec![9.0];
            products(&a, &b, dim, &mut found);
            assert_eq!(found.len(), 12);
            assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() < 1e-4), "{dim}");
            // An incomplete row is ignored.
            a.pop();
            products(&a, &b, dim, &mut found);
            assert_eq!(found.len(), 8);
        }
        let mut out = vec![1.0];
        products(&[], &[1.0], 1, &mut out);
        assert!(out.is_empty());
        products(&[1.0], &[1.0], 0, &mut out);
        assert!(out.is_empty());
    }
}
