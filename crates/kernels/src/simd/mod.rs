//! What the kernels need of a processor, and nothing more.
//!
//! Every kernel is written once, over [`Simd`]. An implementation is a list of one-line wrappers, so that two of them
//! differ in nothing that could be wrong in one and right in the other but those lines. A kernel is a [`Kernel`],
//! everything in it is inlined, and [`Simd::enter`] compiles it with the processor's features.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod level;
pub(super) mod portable;

pub use level::{SIMD_VARIABLE, SimdChoice, SimdLevel};

/// Calls a function with the type that stands for a level. A level that this kind of machine cannot have stands for the
/// portable one; it is never available, and so never chosen.
macro_rules! at_level {
    ($level:expr, $f:ident :: <_> ($($arg:expr),* $(,)?)) => {{
        use $crate::simd::{SimdLevel, portable::Portable};
        #[cfg(target_arch = "x86_64")]
        use $crate::simd::{avx2::Avx2, avx512::Avx512};
        match $level {
            SimdLevel::Portable => $f::<Portable<8, false, false>>($($arg),*),
            #[cfg(test)]
            SimdLevel::Wide => $f::<Portable<16, true, false>>($($arg),*),
            #[cfg(test)]
            SimdLevel::Squares => $f::<Portable<16, true, true>>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => $f::<Avx2>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => $f::<Avx512<false, false, false>>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni => $f::<Avx512<true, false, false>>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Bf16 => $f::<Avx512<true, true, false>>($($arg),*),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Amx => $f::<Avx512<true, true, true>>($($arg),*),
            #[cfg(not(target_arch = "x86_64"))]
            _ => $f::<Portable<8, false, false>>($($arg),*),
        }
    }};
}
pub(super) use at_level;

/// A piece of work that is compiled for one kind of processor.
pub(super) trait Kernel<S: Simd> {
    /// What it gives.
    type Output;

    /// Does it. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    ///
    /// The processor has the features of `S`, and the kernel's pointers are good for what it says it touches.
    unsafe fn call(self) -> Self::Output;
}

/// The side of a square: a square is so many rows of so many units of 32 bits.
pub(super) const SIDE: usize = 16;

/// The units of a square.
pub(super) const SQUARE: usize = SIDE * SIDE;

/// Which numbers squares are made of, and which of them are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Squared {
    /// Two of bf16 in a unit; sums are floats.
    Bf16,
    /// Four bytes in a unit, unsigned on the left and signed on the right; sums are whole numbers.
    Bytes,
    /// Floats, each as a sum of three of bf16: the number rounded, what that left rounded, and what is left then. Two in
    /// a unit, in three squares one after the other. Of the nine products those six are summed that matter to a float.
    Thirds,
}

impl Squared {
    /// How many squares stand for the numbers of one.
    pub const fn planes(self) -> usize {
        match self {
            Squared::Bf16 | Squared::Bytes => 1,
            Squared::Thirds => 3,
        }
    }

    /// How many numbers are in a unit.
    pub const fn in_unit(self) -> usize {
        match self {
            Squared::Bytes => 4,
            Squared::Bf16 | Squared::Thirds => 2,
        }
    }
}

/// Squares of rows, one or two one below the other, times two squares of columns side by side, step by step along both.
pub(super) struct Squares {
    /// The squares of the first rows, one step after the other.
    pub left: *const u32,
    /// Those of the rows below.
    pub low_left: *const u32,
    /// Those of the columns, in each step first the squares of both side by side for the first plane, row by row.
    pub right: *const u32,
    /// How many.
    pub steps: usize,
    /// Where the sums go, rows of two squares.
    pub to: *mut f32,
    /// Whether the sums begin here; else they go on from what is there.
    pub first: bool,
    /// What will be needed soon: [`LINES_AHEAD`] cache lines of it are fetched in each step, for each plane.
    pub ahead: *const u32,
}

/// The cache lines that are fetched ahead in a step, for each plane.
pub(super) const LINES_AHEAD: usize = 4;

/// Vectors of 32-bit lanes and what can be done with them.
///
/// # Safety
///
/// All functions but `enter` may be called only from within a kernel, on a processor that has the features; those that
/// take pointers need them valid for one vector (`LANES` numbers), without need for alignment.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// The same vectors with the fewest features: where they are enough, less code is compiled.
    type Base: Simd;
    /// The same vectors with those features that whole numbers make use of.
    type Whole: Simd;
    /// `LANES` 32-bit floats.
    type F32: Copy;
    /// `LANES` 32-bit integers, or as many groups of smaller numbers.
    type I32: Copy;
    /// Sums of products of bytes before they are widened.
    type Bytes: Copy;

    /// Lanes of a vector.
    const LANES: usize;
    /// Vectors side by side in a tile of a product.
    const VECTORS: usize;
    /// Rows of such a tile.
    const ROWS: usize;
    /// Rows of such a tile where bytes are multiplied.
    const BYTE_ROWS: usize;
    /// The largest code of an activation in bytes.
    const BYTE_MAX: f32;
    /// How many products of groups of four bytes are summed in 16 bits before they are widened; 1 if they never are.
    const BYTE_CHAIN: usize;
    /// Whether pairs of bf16 are multiplied as such, instead of being widened to f32 first.
    const BF16: bool;
    /// Whether whole squares are multiplied at once, by [`Simd::squares`].
    const SQUARES: bool;

    /// Readies the thread for [`Simd::squares`], until `end_squares`.
    unsafe fn begin_squares();
    /// Gives back what was taken for squares.
    unsafe fn end_squares();
    /// Writes the sums of the products of one square of rows, or of `TWO`. May be called from outside of a kernel.
    unsafe fn squares<const TWO: bool>(numbers: Squared, squares: Squares);

    /// Runs a kernel with the processor's features.
    ///
    /// # Safety
    ///
    /// As [`Kernel::call`].
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output;

    /// All lanes the same.
    unsafe fn splat(x: f32) -> Self::F32;
    /// Reads.
    unsafe fn load(from: *const f32) -> Self::F32;
    /// Writes.
    unsafe fn store(to: *mut f32, v: Self::F32);
    /// Sum.
    unsafe fn add(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Difference.
    unsafe fn sub(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Product.
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Quotient.
    unsafe fn div(a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a·b + c`.
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// The larger; of a NaN and a number, either.
    unsafe fn max(a: Self::F32, b: Self::F32) -> Self::F32;
    /// The smaller.
    unsafe fn min(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Without the sign.
    unsafe fn abs(a: Self::F32) -> Self::F32;
    /// The nearest whole number.
    unsafe fn round(a: Self::F32) -> Self::F32;
    /// 2 to a whole number from -126 to 127.
    unsafe fn power_of_two(a: Self::F32) -> Self::F32;
    /// The first `n` lanes, and `other` in the rest.
    unsafe fn first(n: usize, v: Self::F32, other: Self::F32) -> Self::F32;
    /// The sum of all lanes.
    unsafe fn total(v: Self::F32) -> f32;
    /// The largest lane.
    unsafe fn largest(v: Self::F32) -> f32;
    /// Writes the square of `LANES × LANES` numbers that begins at `from` transposed.
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..Self::LANES {
            for column in 0..Self::LANES {
                // SAFETY: the caller vouches for both squares.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }

    /// Asks for a cache line that will be needed soon; the address may be any.
    unsafe fn fetch(line: *const u32);
    /// All lanes 0.
    unsafe fn izero() -> Self::I32;
    /// One unit of 32 bits in all lanes.
    unsafe fn spread(from: *const u32) -> Self::I32;
    /// Reads.
    unsafe fn iload(from: *const u32) -> Self::I32;
    /// Writes.
    unsafe fn istore(to: *mut u32, v: Self::I32);
    /// As floats, rounded.
    unsafe fn to_float(v: Self::I32) -> Self::F32;
    /// Sums the products of the two 16-bit integers of each lane; onto `sum`, where that is one operation.
    unsafe fn begin_shorts(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Adds them to the sums from which they began, where they are not yet.
    unsafe fn end_shorts(sum: Self::I32, products: Self::I32) -> Self::I32;

    /// Begins a chain of products of bytes with those of the four unsigned bytes of each lane of `a` and the four
    /// signed ones of `b`. Where products need no widening, it goes on from `sum` at once.
    unsafe fn begin_bytes(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Adds more such products.
    unsafe fn dot_bytes(chain: Self::Bytes, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Adds the chain to the sums of 32 bits from which it began.
    unsafe fn end_bytes(sum: Self::I32, chain: Self::Bytes) -> Self::I32;

    /// The lower bf16 of each lane.
    unsafe fn bf16_low(v: Self::I32) -> Self::F32;
    /// The upper one.
    unsafe fn bf16_high(v: Self::I32) -> Self::F32;
    /// Adds the products of the two bf16 of each lane.
    unsafe fn dot_bf16(sum: Self::F32, a: Self::I32, b: Self::I32) -> Self::F32;

    /// Two numbers a lane, rounded to bf16.
    unsafe fn pair_bf16(low: Self::F32, high: Self::F32) -> Self::I32;
    /// Rounded to bf16.
    unsafe fn round_bf16(v: Self::F32) -> Self::F32;

    /// Writes the lanes rounded to 16-bit integers; they are within ±32767.
    unsafe fn store_shorts(to: *mut i16, v: Self::F32);
    /// Writes the lanes rounded to bytes; they are within 0 and 255.
    unsafe fn store_bytes(to: *mut u8, v: Self::F32);
    /// Writes the lanes rounded to bf16.
    unsafe fn store_bf16(to: *mut u16, v: Self::F32);
}
