//! Rotary position embedding: rotates the queries and keys of attention.

use crate::{
    network::{Rotary, Shape},
    pack::GRAIN,
    simd::{Kernel, Simd},
};

/// Cosines and sines of the angles at every position.
pub(super) struct RotationTable {
    /// Number of angles at a position, which is half of the size of a head.
    half: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

impl RotationTable {
    /// Computes the table for the positions below the maximum number of tokens. `windowed` is true for layers with a
    /// window.
    pub fn new(shape: &Shape, rotary: Rotary, windowed: bool) -> Self {
        let size = shape.head_size;
        let angles: Vec<f64> =
            (0..rotary.max_tokens).flat_map(|position| rotary.angles(windowed, size, position)).collect();
        RotationTable {
            half: size / 2,
            cosines: angles.iter().map(|angle| angle.cos() as f32).collect(),
            sines: angles.iter().map(|angle| angle.sin() as f32).collect(),
        }
    }
}

/// Rotations for the tokens of a batch.
pub(super) struct Rotation<'a> {
    pub table: &'a RotationTable,
    /// Position of each token.
    pub positions: &'a [u32],
}

/// Kernel that rotates heads of rows. Each head is a vector of two halves; the elements with the same index in both halves
/// are rotated together.
pub(super) struct Rotate<'a> {
    pub rows: &'a mut [f32],
    pub stride: usize,
    /// Number of rows.
    pub tokens: usize,
    /// Number of heads at the start of a row, and their padded width.
    pub heads: (usize, usize),
    pub rotation: &'a Rotation<'a>,
}

impl Rotate<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
    pub unsafe fn run<S: Simd>(self) {
        let Rotation { table, positions } = self.rotation;
        let (count, width) = self.heads;
        assert!(self.rows.len() >= self.tokens * self.stride && positions.len() >= self.tokens);
        assert!(count * width <= self.stride && 2 * table.half <= width && width.is_multiple_of(GRAIN));
        let most = positions[..self.tokens].iter().max().map_or(0, |most| *most as usize + 1);
        assert!(most * table.half <= table.cosines.len());
        // SAFETY: the caller guarantees the processor features; the asserts check the lengths.
        unsafe { S::enter(self) }
    }
}

impl<S: Simd> Kernel<S> for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Rotation { table, positions } = self.rotation;
        let half = table.half;
        let whole = half / S::LANES * S::LANES;
        for token in 0..self.tokens {
            let at = positions[token] as usize * half;
            let (cosines, sines) = (&table.cosines[at..at + half], &table.sines[at..at + half]);
            for head in 0..self.heads.0 {
                let head = &mut self.rows[token * self.stride + head * self.heads.1..][..2 * half];
                let (first, second) = head.split_at_mut(half);
                for i in (0..whole).step_by(S::LANES) {
                    // SAFETY: all slices have `half` elements.
                    unsafe {
                        let (x, y) = (S::load(first[i..].as_ptr()), S::load(second[i..].as_ptr()));
                        let (c, s) = (S::load(cosines[i..].as_ptr()), S::load(sines[i..].as_ptr()));
                        S::store(first[i..].as_mut_ptr(), S::sub(S::mul(x, c), S::mul(y, s)));
                        S::store(second[i..].as_mut_ptr(), S::fma(x, s, S::mul(y, c)));
                    }
                }
                for i in whole..half {
                    let (x, y) = (first[i], second[i]);
                    first[i] = x * cosines[i] - y * sines[i];
                    second[i] = x * sines[i] + y * cosines[i];
                }
            }
        }
    }
}
