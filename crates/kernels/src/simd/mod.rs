//! SIMD abstraction: the vector operations that the kernels need.
//!
//! Every kernel is written once, generic over [`Simd`]. An implementation of [`Simd`] consists mostly of one-line
//! wrappers of intrinsics, which makes errors easy to find. A kernel implements [`Kernel`]. All code of a kernel is
//! inlined into [`Simd::enter`], which is compiled with the processor's features.
//!
//! In the identifiers of this crate, an AMX tile is called a square. The word "tile" alone means the block of a product
//! that is kept in vector registers (see the module `tile`).

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod portable;

pub use crate::precision::{SIMD_VARIABLE, SimdChoice, SimdLevel};

/// Calls a generic function with the [`Simd`] type of a level. Levels of other architectures map to the portable
/// type: they are never available, so they are never chosen.
macro_rules! at_level {
    ($level:expr, $f:ident :: <_> ($($arg:expr),* $(,)?)) => {{
        use $crate::simd::{SimdLevel, portable::Portable};
        #[cfg(target_arch = "aarch64")]
        use $crate::simd::neon::Neon;
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
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => $f::<Neon<false, false>>($($arg),*),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::NeonDot => $f::<Neon<true, false>>($($arg),*),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::NeonBf16 => $f::<Neon<true, true>>($($arg),*),
            _ => $f::<Portable<8, false, false>>($($arg),*),
        }
    }};
}
pub(super) use at_level;

/// Defines unsafe functions that consist of one expression each and are inlined into kernels.
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

/// Computation that is compiled for the SIMD level of `S`.
pub(super) trait Kernel<S: Simd> {
    type Output;

    /// Runs the kernel. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`, and the kernel's pointers must be valid for the memory that it
    /// accesses.
    unsafe fn call(self) -> Self::Output;
}

/// Number of rows of an AMX tile, and number of 32-bit units in each of its rows.
pub(super) const SIDE: usize = 16;

/// Number of 32-bit units in an AMX tile.
pub(super) const SQUARE: usize = SIDE * SIDE;

/// Number format of the elements in AMX tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Squared {
    /// Two bf16 elements per unit; the sums are f32.
    Bf16,
    /// Four bytes per unit, unsigned in the left operand and signed in the right one. Sums are 32-bit integers.
    Bytes,
    /// f32 elements, each split into a sum of three bf16 terms: the rounded element, the rounded remainder, and the
    /// rest. Each term is stored in a separate AMX tile (a plane), with two elements per unit. Of the nine products of
    /// planes, the six that affect an f32 result are summed.
    Thirds,
}

impl Squared {
    /// Returns the number of planes, the AMX tiles that together represent one tile of elements.
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

/// Operands of a product of AMX tiles: one or two tiles of rows times two tiles of columns, summed over steps.
pub(super) struct Squares {
    /// AMX tiles of the first 16 rows: one tile for each step and plane.
    pub left: *const u32,
    /// AMX tiles of the next 16 rows. Not read if only one tile of rows is multiplied.
    pub low_left: *const u32,
    /// AMX tiles of the columns: two tiles for each step and plane. The rows of the two tiles are stored side by side.
    pub right: *const u32,
    /// Number of steps. A step multiplies one AMX tile of every 16 rows by two tiles of columns.
    pub steps: usize,
    /// Output memory for the sums. A row has the width of two AMX tiles.
    pub to: *mut f32,
    /// True if the sums start at zero. If false, they start from the partial sums in `to`.
    pub first: bool,
    /// Memory to prefetch: each step prefetches [`LINES_AHEAD`] cache lines for each plane.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub ahead: *const u32,
}

/// Number of cache lines per plane that each step of a product of AMX tiles prefetches.
pub(super) const LINES_AHEAD: usize = 4;

/// SIMD level: vectors of 32-bit lanes and their operations.
///
/// # Safety
///
/// A processor with the features of the level is required. All functions except `enter` and the three functions for AMX
/// tiles may be called only from a kernel. Pointers must be valid for one vector (`LANES` elements); they need not be
/// aligned.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Simd: Copy + Send + Sync + 'static {
    /// SIMD type with the same vectors and the fewest features. Kernels that need no other features use this type,
    /// which reduces the amount of compiled code.
    type Base: Simd;
    /// SIMD type with the same vectors, and with the features that products of integers need.
    type Whole: Simd;
    /// Vector of `LANES` 32-bit floats.
    type F32: Copy;
    /// Vector of `LANES` 32-bit integers, or of `LANES` groups of 8-bit or 16-bit elements.
    type I32: Copy;
    /// Vector of sums of products of bytes, before they are widened to 32 bits.
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
    /// Code that [`Simd::store_bytes`] stores as the byte 0. If it is not 0, the bytes of activations are signed.
    const BYTE_ZERO: f32 = 0.0;
    /// Length of a byte chain: number of four-byte dot products that are summed in 16 bits before the sum is widened.
    /// 1 if all sums have 32 bits.
    const BYTE_CHAIN: usize;
    /// True if pairs of bf16 are multiplied directly. If false, they are widened to f32 first.
    const BF16: bool;
    /// True if products are computed with AMX tiles, by [`Simd::squares`].
    const SQUARES: bool;

    /// Prepares the thread for [`Simd::squares`]. The caller must call [`Simd::end_squares`] afterwards.
    unsafe fn begin_squares();
    /// Releases the resources that [`Simd::begin_squares`] acquired.
    unsafe fn end_squares();
    /// Multiplies one AMX tile of rows (two if `TWO` is true) by two tiles of columns. May be called outside a kernel.
    unsafe fn squares<const TWO: bool>(numbers: Squared, squares: Squares);

    /// Runs a kernel with the processor's features.
    ///
    /// # Safety
    ///
    /// The processor must have the features of this type, and the kernel's pointers must be valid.
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output;

    /// Returns a vector with all lanes set to `x`.
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
    /// Two to the power of each lane. The lanes must be whole numbers from -126 to 127.
    unsafe fn power_of_two(a: Self::F32) -> Self::F32;
    /// Returns the first `n` lanes of `v`, followed by the remaining lanes of `other`.
    unsafe fn first(n: usize, v: Self::F32, other: Self::F32) -> Self::F32;
    /// Sum of all lanes.
    unsafe fn total(v: Self::F32) -> f32;
    /// Largest lane.
    unsafe fn largest(v: Self::F32) -> f32;
    /// Transposes the `LANES × LANES` matrix at `from` and writes it to `to`. The strides are the row strides of the
    /// two matrices.
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
    /// In each lane, computes the dot product of the two 16-bit integers of `a` and those of `b`. If one instruction
    /// can also add `sum`, the result includes `sum`.
    unsafe fn begin_shorts(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::I32;
    /// Returns `sum` plus `products`. If `begin_shorts` has already added `sum`, returns `products`.
    unsafe fn end_shorts(sum: Self::I32, products: Self::I32) -> Self::I32;

    /// Starts a chain of dot products. In each lane, the first product is that of the four bytes of `a` (signed if
    /// [`Simd::BYTE_ZERO`] is not 0, else unsigned) and the four signed bytes of `b`. If all sums have 32 bits, the chain includes `sum`.
    unsafe fn begin_bytes(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Adds the dot product of four bytes per lane (see `begin_bytes`) to a chain.
    unsafe fn dot_bytes(chain: Self::Bytes, a: Self::I32, b: Self::I32) -> Self::Bytes;
    /// Ends a chain: returns its sums in 32 bits, including `sum`, which must be the same as for `begin_bytes`.
    unsafe fn end_bytes(sum: Self::I32, chain: Self::Bytes) -> Self::I32;

    /// Widens the lower bf16 of each lane to f32.
    unsafe fn bf16_low(v: Self::I32) -> Self::F32;
    /// Widens the upper bf16 of each lane to f32.
    unsafe fn bf16_high(v: Self::I32) -> Self::F32;
    /// In each lane, adds the dot product of the two bf16 elements of `a` and those of `b` to `sum`.
    unsafe fn dot_bf16(sum: Self::F32, a: Self::I32, b: Self::I32) -> Self::F32;

    /// Rounds two vectors to bf16 and packs them into the lower and upper halves of the lanes.
    unsafe fn pair_bf16(low: Self::F32, high: Self::F32) -> Self::I32;
    /// Rounds each lane to bf16. The result is still in f32.
    unsafe fn round_bf16(v: Self::F32) -> Self::F32;

    /// Writes the lanes, rounded to 16-bit integers. The values must be within ±32767.
    unsafe fn store_shorts(to: *mut i16, v: Self::F32);
    /// Writes the lanes, rounded to bytes, minus [`Simd::BYTE_ZERO`]. The values must be between 0 and 255.
    unsafe fn store_bytes(to: *mut u8, v: Self::F32);
    /// Writes the lanes, rounded to bf16.
    unsafe fn store_bf16(to: *mut u16, v: Self::F32);
}
