//! The vector operations of nearest-neighbor search: dot products of 8-bit and 4-bit codes, dot products and squared
//! distances of floats. Compiled for each [`SimdLevel`] and chosen at run time, as the kernels of the encoder are.
//!
//! A code holds a number as a byte, biased by 128: 1 is −127, 128 is 0, 255 is 127. A row of codes is padded to a
//! multiple of 64 with 128, which adds nothing to a product.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::marker::PhantomData;

use crate::simd::{self, SimdLevel};

/// The length of a row of codes is a multiple of this.
pub const CODE_STEP: usize = 64;

/// The operations, for one kind of processor.
///
/// # Safety
///
/// All functions read `length` elements from each pointer, where nibbles are half a byte; the processor must know the instructions.
#[allow(clippy::missing_safety_doc)]
pub trait Distances: Copy + Send + Sync {
    /// The product of two rows of codes. `bias` is 128 × the sum of what the other's codes stand for. `length` is a
    /// multiple of 64.
    unsafe fn code_dot(codes: *const u8, other: *const u8, bias: i32, length: usize) -> i32;

    /// The product of nibbles with signed numbers of at most 127 in size. Of each 64 numbers the first 32 are multiplied
    /// with the lower halves of 32 bytes, the others with the upper ones. `length` counts numbers and is a multiple of 64.
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32;

    /// Of two vectors of any length the squared distance, if `APART`, else the product.
    unsafe fn floats<const APART: bool>(a: *const f32, b: *const f32, length: usize) -> f32;

    /// Asks for the line of memory that holds an address.
    fn prefetch(address: *const u8);

    /// Asks for every line of some memory. (A `step_by` in so small a loop took a tenth of a walk.)
    #[inline(always)]
    fn prefetch_all(start: *const u8, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            Self::prefetch(start.wrapping_add(at));
            at += 64;
        }
    }
}

/// Work that is written once and compiled for each kind of processor. `run` should be `#[inline(always)]`.
pub trait Task {
    /// The result.
    type Output;
    /// Does the work.
    fn run<D: Distances>(self) -> Self::Output;
}

/// The instructions that tasks run with. Only levels that this processor supports can be held.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch(SimdLevel);

impl Dispatch {
    /// The fastest instructions of this processor.
    pub fn best() -> Self {
        Dispatch(SimdLevel::best())
    }

    /// Plain code that runs on every processor: the reference in tests.
    pub fn portable() -> Self {
        Dispatch(SimdLevel::Portable)
    }

    /// The given level if this processor supports it, else the fastest that it supports.
    pub fn at(level: SimdLevel) -> Self {
        if level.available() { Dispatch(level) } else { Dispatch::best() }
    }

    /// Runs a task.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: the processor supports the level, or there would be no such `Dispatch`; the task vouches for its
            // pointers.
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni | SimdLevel::Avx512Bf16 | SimdLevel::Amx => unsafe {
                <simd::avx512::Avx512<true, false, false> as simd::Simd>::enter(Call(
                    task,
                    PhantomData::<avx512::Avx512>,
                ))
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 | SimdLevel::Avx512 => unsafe {
                <simd::avx2::Avx2 as simd::Simd>::enter(Call(task, PhantomData::<avx2::Avx2>))
            },
            _ => task.run::<portable::Portable>(),
        }
    }
}

/// A task with the operations that it runs on, as a kernel.
struct Call<T, D>(T, PhantomData<D>);

impl<S: simd::Simd, T: Task, D: Distances> simd::Kernel<S> for Call<T, D> {
    type Output = T::Output;

    #[inline(always)]
    unsafe fn call(self) -> T::Output {
        self.0.run::<D>()
    }
}

#[cfg(test)]
mod tests;
