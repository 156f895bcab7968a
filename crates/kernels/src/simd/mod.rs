//! SIMD abstraction: the vector operations that the kernels need.
//!
//! Every kernel is written once, generic over [`Simd`]. An implementation of [`Simd`] consists mostly of one-line
//! wrappers of intrinsics, which makes errors easy to find. A kernel implements [`Kernel`]. All its code is inlined
//! into [`Simd::enter`], which is compiled with the processor's features.
//!
//! AMX tiles are called squares in this crate, because "tile" means the block of a product that is kept in vector
//! registers (see `tile`).

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
pub(super) mod portable;

pub use crate::precision::{SIMD_VARIABLE, SimdChoice, SimdLevel};

/// Calls a generic function with the [`Simd`] type of a level. Levels of other architectures map to the portable
/// type: they are never available, so they are never chosen.
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

/// Defines unsafe functions of one expression each, which are inlined into kernels.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)? { $body:expr })*) => { $(
        #[inline(always)]
        // Some of the expressions need no unsafe code.
        #[allow(unused_unsafe)]
        unsafe fn $name($($arg: $kind),*) $(-> $out)? {
            // SAFETY: the caller guarantees the processor's features and the pointers.
            unsafe { $body }
        }
    )* };
}
pub(super) use operations;

/// Computation that is compiled for one SIMD level.
pub(super) trait Kernel<S: Simd> {
    type Output;

    /// Runs the kernel. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    ///
    /// The processor has the features of `S`, and the kernel's pointers are valid for the memory it accesses.
    unsafe fn call(self) -> Self::Output;
}

/// Side of a square (AMX tile): a square has this many rows of this many 32-bit units.
pub(super) const SIDE: usize = 16;

/// Number of 32-bit units in a square (AMX tile).
pub(super) const SQUARE: usize = SIDE * SIDE;

/// Number format of squares (AMX tiles).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Squared {
    /// Two bf16 elements per unit; the sums are f32.
    Bf16,
    /// Four bytes per unit, unsigned in the left operand and signed in the right one. Sums are 32-bit integers.
    Bytes,
    /// f32 elements, split into sums of three bf16 terms: the rounded element, the rounded remainder, and the rest.
    /// Each term is stored in its own square (a plane), with two elements per unit. Of the nine products of planes,
    /// the six that affect an f32 result are summed.
    Thirds,
}

impl Squared {
    /// Returns the number of planes: squares that together represent one square of elements.
    pub const fn planes(self) -> usize {
        match self {
            Squared::Bf16 | Squared::Bytes => 1,
            Squared::Thirds => 3,
        }
    }

    /// Returns the number of elements per 32-bit unit.
    pub const fn in_unit(self) -> usize {
        match self {
            Squared::Bytes => 4,
            Squared::Bf16 | Squared::Thirds => 2,
        }
    }
}

/// Operands of a product of AMX tiles: one or two squares of rows times two squares of columns, summed over steps.
pub(super) struct Squares {
    /// Squares (AMX tiles) of the first 16 rows: one square for each step and plane.
    pub left: *const u32,
    /// Squares (AMX tiles) of the next 16 rows. Not read if only one square of rows is multiplied.
    pub low_left: *const u32,
    /// Two squares (AMX tiles) of columns for each step and plane. Their rows are stored side by side.
    pub right: *const u32,
    /// Number of steps. A step multiplies one square (AMX tile) of every 16 rows by two squares of columns.
    pub steps: usize,
    /// Output memory for the sums. A row has the width of two squares (AMX tiles).
    pub to: *mut f32,
    /// True if the sums start at zero. Otherwise they continue from the partial sums in `to`.
    pub first: bool,
    /// Memory to prefetch: [`LINES_AHEAD`] cache lines for each plane in each step.
    pub ahead: *const u32,
}

/// Number of cache lines that a step prefetches for each plane.
pub(super) const LINES_AHEAD: usize = 4;

/// Vectors of 32-bit lanes and their operations.
///
/// # Safety
///
/// All functions except `enter` may be called only from a kernel, on a processor with the features of the level.
/// Pointers must be valid for one vector (`LANES` elements); they need not be aligned.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// SIMD type with the same vectors and the fewest features. Kernels that need no other features use this type,
    /// which reduces the amount of compiled code.
    type Base: Simd;
    /// SIMD type with the same vectors, for products of integers.
    type Whole: Simd;
    /// `LANES` 32-bit floats.
    type F32: Copy;
    /// `LANES` 32-bit integers, or `LANES` groups of 8-bit or 16-bit elements.
    type I32: Copy;
    /// Sums of products of bytes, before they are widened to 32 bits.
    type Bytes: Copy;

    /// Number of 32-bit lanes of a vector.
    const LANES: usize;
    /// Width of a product's tile, in vectors.
    const VECTORS: usize;
    /// Number of rows of a product's tile.
    const ROWS: usize;
    /// Number of rows of a tile in products of bytes.
    const BYTE_ROWS: usize;
    /// Largest byte code of an activation.
    const BYTE_MAX: f32;
    /// Length of a byte chain: number of four-byte dot products that are summed in 16 bits before the sum is widened.
    /// 1 if all sums have 32 bits.
    const BYTE_CHAIN: usize;
    /// True if pairs of bf16 are multiplied directly. Otherwise they are widened to f32 first.
    const BF16: bool;
    /// True if products use squares (AMX tiles), with [`Simd::squares`].
    const SQUARES: bool;

    /// Prepares the thread for [`Simd::squares`]. The caller must call [`Simd::end_squares`] afterwards.
    unsafe fn begin_squares();
    /// Releases the resources that [`Simd::begin_squares`] acquired.
    unsafe fn end_squares();
    /// Multiplies one square of rows (two with `TWO`) by two squares of columns. May be called outside a kernel.
    unsafe fn squares<const TWO: bool>(numbers: Squared, squares: Squares);

    /// Runs a kernel with the processor's features.
    ///
    /// # Safety
    ///
    /// The processor has the features of this type, and the kernel's pointers are valid.
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output;

    /// Sets all lanes to `x`.
    unsafe fn splat(x: f32) -> Self::F32;
    /// Reads `LANES` consecutive numbers.
    unsafe fn load(from: *const f32) -> Self::F32;
    /// Writes `LANES` consecutive numbers.
    unsafe fn store(to: *mut f32, v: Self::F32);
    /// Lane-wise sum.
    unsafe fn add(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise difference.
    unsafe fn sub(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise product.
    unsafe fn mul(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise quotient.
    unsafe fn div(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise `a·b + c`.
    unsafe fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// Lane-wise maximum. If an operand is a NaN, the result is either operand.
    unsafe fn max(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise minimum. If an operand is a NaN, the result is either operand.
    unsafe fn min(a: Self::F32, b: Self::F32) -> Self::F32;
    /// Lane-wise absolute value.
    unsafe fn abs(a: Self::F32) -> Self::F32;
    /// Rounds each lane to the nearest whole number.
    unsafe fn round(a: Self::F32) -> Self::F32;
    /// Two to the power of each lane, which is a whole number from -126 to 127.
    unsafe fn power_of_two(a: Self::F32) -> Self::F32;
    /// Keeps the first `n` lanes of `v`, and takes the other lanes from `other`.
    unsafe fn first(n: usize, v: Self::F32, other: Self::F32) -> Self::F32;
    /// Sum of all lanes.
    unsafe fn total(v: Self::F32) -> f32;
    /// Largest lane.
    unsafe fn largest(v: Self::F32) -> f32;
    /// Transposes the `LANES × LANES` matrix at `from` and writes it to `to`. Both strides are row strides.
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..Self::LANES {
            for column in 0..Self::LANES {
                // SAFETY: the caller guarantees both matrices.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }

    /// Prefetches the cache line at an address. The address may be invalid.
    unsafe fn fetch(line: *const u32);
    /// Returns a vector of zeros.
    unsafe fn izero() -> Self::I32;
    /// Reads one 32-bit unit into all lanes.
    unsafe fn spread(from: *const u32) -> Self::I32;
    /// Reads `LANES` consecutive 32-bit units.
    unsafe fn iload(from: *const u32) -> Self::I32;
    /// Writes `LANES` consecutive 32-bit units.
    unsafe fn istore(to: *mut u32, v: Self::I32);
    /// Converts integers to floats, with rounding.
    unsafe fn to_float(v: Self::I32) -> Self::F32;
    /// Computes the dot product of the two 16-bit integers in each lane. Adds `sum` to the result if one instruction
    /// does both.
    unsafe fn begin_shorts(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Adds `products` to `sum`, unless `begin_shorts` has already added `sum`.
    unsafe fn end_shorts(sum: Self::I32, products: Self::I32) -> Self::I32;

    /// Starts a chain with the dot product of the four unsigned bytes of each lane of `a` and the four signed bytes
    /// of `b`. The chain starts from `sum` if products need no widening.
    unsafe fn begin_bytes(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Adds the dot product of four bytes per lane (see `begin_bytes`) to a chain.
    unsafe fn dot_bytes(chain: Self::Bytes, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Ends a chain: returns the 32-bit sums, including the `sum` that `begin_bytes` received.
    unsafe fn end_bytes(sum: Self::I32, chain: Self::Bytes) -> Self::I32;

    /// Widens the lower bf16 of each lane to f32.
    unsafe fn bf16_low(v: Self::I32) -> Self::F32;
    /// Widens the upper bf16 of each lane to f32.
    unsafe fn bf16_high(v: Self::I32) -> Self::F32;
    /// Adds the dot product of the two bf16 elements in each lane of `a` and `b` to `sum`.
    unsafe fn dot_bf16(sum: Self::F32, a: Self::I32, b: Self::I32) -> Self::F32;

    /// Rounds two vectors to bf16 and packs them into the lower and upper halves of the lanes.
    unsafe fn pair_bf16(low: Self::F32, high: Self::F32) -> Self::I32;
    /// Rounds each lane to bf16.
    unsafe fn round_bf16(v: Self::F32) -> Self::F32;

    /// Writes the lanes, rounded to 16-bit integers. The values must be within ±32767.
    unsafe fn store_shorts(to: *mut i16, v: Self::F32);
    /// Writes the lanes, rounded to bytes. The values must be between 0 and 255.
    unsafe fn store_bytes(to: *mut u8, v: Self::F32);
    /// Writes the lanes, rounded to bf16.
    unsafe fn store_bf16(to: *mut u16, v: Self::F32);
}
