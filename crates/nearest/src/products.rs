//! Every row of one matrix with every row of another, for whoever compares all with all.

use crate::distances::{Dispatch, Distances, Task};

/// The inner products of each row of `a` with each row of `b`, those of the first row of `a` first, into `out`. Both have
/// rows of `dim` numbers; what is left over of an incomplete row is not looked at. A product depends on its two rows alone.
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
                // SAFETY: both have `dim` numbers, and the processor knows what runs on it.
                out.push(unsafe { S::floats::<false>(x.as_ptr(), y.as_ptr(), dim) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_meets_every_row() {
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
            // An incomplete row is none.
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
