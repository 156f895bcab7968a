//! Vector operations of nearest-neighbor search: dot products of 8-bit and 4-bit codes, and dot products and squared
//! distances of floats. Like the encoder's kernels, they are compiled for each [`SimdLevel`] and chosen at run time.
//!
//! A code is a number from −127 to 127, stored as a byte with a bias of 128: 1 is −127, 128 is 0, 255 is 127. A row
//! of codes is padded to a multiple of 64 with the byte 128, which does not change a product.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::marker::PhantomData;

use crate::simd::{self, SimdLevel};

/// Granularity of a row of codes: the row length is a multiple of this number.
pub const CODE_STEP: usize = 64;

/// Vector operations for one kind of processor.
///
/// # Safety
///
/// All functions read `length` elements from each pointer; a nibble is half a byte. The processor must support the
/// instructions.
#[allow(clippy::missing_safety_doc)]
pub trait Distances: Copy + Send + Sync {
    /// Returns the dot product of two rows of codes. `bias` is 128 × the sum of the values in `other` (bytes minus
    /// 128). `length` is a multiple of 64.
    unsafe fn code_dot(codes: *const u8, other: *const u8, bias: i32, length: usize) -> i32;

    /// Returns the dot product of nibbles with signed integers from −127 to 127. A block of 32 bytes in `nibbles`
    /// belongs to 64 integers: the lower halves of the bytes to the first 32 integers, the upper halves to the other
    /// 32. `length` is the number of nibbles, a multiple of 64.
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32;

    /// Returns the dot product of two vectors, or their squared distance with `SQUARED_DISTANCE`. Any length is
    /// allowed.
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32;

    /// Prefetches the cache line of an address.
    fn prefetch(address: *const u8);

    /// Prefetches all cache lines of a block of memory. (With `step_by`, this small loop took a tenth of the time of
    /// a search.)
    #[inline(always)]
    fn prefetch_all(start: *const u8, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            Self::prefetch(start.wrapping_add(at));
            at += 64;
        }
    }
}

/// Task that is written once and compiled for each SIMD level. `run` should be `#[inline(always)]`.
pub trait Task {
    /// Result of the task.
    type Output;
    /// Runs the task with the given operations.
    fn run<D: Distances>(self) -> Self::Output;
}

/// SIMD level that tasks run with. It is always a level that this processor supports.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch(SimdLevel);

impl Dispatch {
    /// Returns the fastest level of this processor.
    pub fn best() -> Self {
        Dispatch(SimdLevel::best())
    }

    /// Returns the portable level, which is the reference in tests.
    pub fn portable() -> Self {
        Dispatch(SimdLevel::Portable)
    }

    /// Returns the given level if this processor supports it, else the fastest level.
    pub fn at(level: SimdLevel) -> Self {
        if level.available() { Dispatch(level) } else { Dispatch::best() }
    }

    /// Runs a task.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: a `Dispatch` is always a level that the processor supports; the task guarantees its pointers.
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

/// Kernel that runs a task with the operations `D`.
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
