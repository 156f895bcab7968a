//! The few operations on vectors that a search is made of, for each kind of processor.
//!
//! A code holds a number as a byte, biased by 128: 1 is −127, 128 is 0, 255 is 127. A row of codes is padded to a
//! multiple of 64 with 128, which adds nothing to a product.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// Rows of codes are a multiple of this long.
pub(crate) const CODE_STEP: usize = 64;

/// The kinds of processors that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Any.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 and its byte products (VNNI).
    Avx512Vnni,
}

/// Products, for one kind of processor.
///
/// # Safety
///
/// All functions read `length` elements from each pointer, where nibbles are half a byte; the processor must know the instructions.
pub(crate) trait Simd: Copy {
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

/// Something to do with one kind of processor's operations. `run` should be inlined into what calls it.
pub(crate) trait Task {
    type Output;
    fn run<S: Simd>(self) -> Self::Output;
}

impl Level {
    /// All, the slowest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512Vnni];

    /// The fastest that this processor knows.
    pub fn best() -> Self {
        Level::ALL.into_iter().rev().find(|level| level.is_there()).unwrap_or(Level::Portable)
    }

    /// Whether this processor knows it.
    pub fn is_there(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => {
                Level::Avx2.is_there()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The level, if this processor knows it; else the best that it knows.
    pub(crate) fn proven(self) -> Proven {
        Proven(if self.is_there() { self } else { Level::best() })
    }
}

/// A level that this processor knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proven(Level);

impl Proven {
    /// Runs a task.
    #[inline]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: the processor knows the instructions: nothing else makes a `Proven`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => unsafe { avx512::enter(task) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2::enter(task) },
            _ => task.run::<portable::Portable>(),
        }
    }
}

#[cfg(test)]
mod tests;
