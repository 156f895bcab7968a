//! Number formats of matrix products: the data types of both operands, and the multiplication step.

use crate::simd::{Simd, operations};

/// Number format of a product. The operands consist of units of one 32-bit, two 16-bit or four 8-bit elements.
pub(super) trait Format<S: Simd>: 'static {
    /// Vector of accumulators.
    type Sum: Copy;

    /// Number of rows of a tile.
    const ROWS: usize = S::ROWS;
    /// Maximum number of 32-bit units of a column that are multiplied at a time. With this limit, a panel of columns
    /// fits into the L1 cache.
    const DEPTH: usize = 384;
    /// Number of units that one step reads from each row of the left operand.
    const LEFT: usize = 1;
    /// Number of units that one step reads from each column of the right operand.
    const RIGHT: usize = 1;

    /// Returns a vector of accumulators that are zero.
    unsafe fn zero() -> Self::Sum;
    /// Multiplies `M` rows by `V` vectors of columns for one step, and adds the products to `sums`. The rows are
    /// `stride` units apart.
    unsafe fn step<const M: usize, const V: usize>(
        sums: &mut [[Self::Sum; V]; M],
        left: *const u32,
        stride: usize,
        right: *const u32,
    );
    /// Converts a vector of sums to floats.
    unsafe fn value(sum: Self::Sum) -> S::F32;
    /// Reads partial sums that `store` has written.
    unsafe fn load(from: *const f32) -> Self::Sum;
    /// Writes partial sums.
    unsafe fn store(to: *mut f32, sum: Self::Sum);
}

/// Format with 32-bit floats in both operands.
pub(super) struct F32;

impl<S: Simd> Format<S> for F32 {
    type Sum = S::F32;

    #[inline(always)]
    unsafe fn step<const M: usize, const V: usize>(
        sums: &mut [[S::F32; V]; M],
        left: *const u32,
        stride: usize,
        right: *const u32,
    ) {
        // SAFETY: the caller guarantees that one unit of each row and `V` vectors of columns are readable.
        unsafe {
            let mut columns = [S::splat(0.0); V];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = S::load(right.add(v * S::LANES).cast());
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let number = S::splat(left.add(m * stride).cast::<f32>().read());
                for v in 0..V {
                    sums[v] = S::fma(number, columns[v], sums[v]);
                }
            }
        }
    }

    operations! {
        fn zero() -> S::F32 { S::splat(0.0) }
        fn value(sum: S::F32) -> S::F32 { sum }
        fn load(from: *const f32) -> S::F32 { S::load(from) }
        fn store(to: *mut f32, sum: S::F32) { S::store(to, sum) }
    }
}

/// Format with weights in bf16. The left operand is bf16 if the processor has bf16 multiplication, else f32.
pub(super) struct Bf16;

impl<S: Simd> Format<S> for Bf16 {
    type Sum = S::F32;

    // Columns that are widened to f32 need twice as many registers, so tiles have fewer rows.
    const ROWS: usize = if S::BF16 { S::ROWS } else { S::ROWS * 2 / 3 };
    const LEFT: usize = if S::BF16 { 1 } else { 2 };

    #[inline(always)]
    unsafe fn step<const M: usize, const V: usize>(
        sums: &mut [[S::F32; V]; M],
        left: *const u32,
        stride: usize,
        right: *const u32,
    ) {
        // SAFETY: the caller guarantees that `LEFT` units of each row and `V` vectors of columns are readable.
        unsafe {
            let mut columns = [S::izero(); V];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = S::iload(right.add(v * S::LANES));
            }
            if S::BF16 {
                for (m, sums) in sums.iter_mut().enumerate() {
                    let pair = S::spread(left.add(m * stride));
                    for v in 0..V {
                        sums[v] = S::dot_bf16(sums[v], pair, columns[v]);
                    }
                }
            } else {
                let mut one = [S::splat(0.0); V];
                for which in 0..2 {
                    for v in 0..V {
                        one[v] = if which == 0 { S::bf16_low(columns[v]) } else { S::bf16_high(columns[v]) };
                    }
                    for (m, sums) in sums.iter_mut().enumerate() {
                        let number = S::splat(left.add(m * stride + which).cast::<f32>().read());
                        for v in 0..V {
                            sums[v] = S::fma(number, one[v], sums[v]);
                        }
                    }
                }
            }
        }
    }

    operations! {
        fn zero() -> S::F32 { S::splat(0.0) }
        fn value(sum: S::F32) -> S::F32 { sum }
        fn load(from: *const f32) -> S::F32 { S::load(from) }
        fn store(to: *mut f32, sum: S::F32) { S::store(to, sum) }
    }
}

/// Format with 16-bit integers in both operands.
pub(super) struct Int16;

impl<S: Simd> Format<S> for Int16 {
    type Sum = S::I32;

    const DEPTH: usize = 192;

    #[inline(always)]
    unsafe fn step<const M: usize, const V: usize>(
        sums: &mut [[S::I32; V]; M],
        left: *const u32,
        stride: usize,
        right: *const u32,
    ) {
        // SAFETY: the caller guarantees that one unit of each row and `V` vectors of columns are readable.
        unsafe {
            let mut columns = [S::izero(); V];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = S::iload(right.add(v * S::LANES));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let pair = S::spread(left.add(m * stride));
                // Computes all products first, then all sums. This hides more latency than alternating products and
                // sums.
                let mut products = [S::izero(); V];
                for v in 0..V {
                    products[v] = S::begin_shorts(sums[v], pair, columns[v]);
                }
                for v in 0..V {
                    sums[v] = S::end_shorts(sums[v], products[v]);
                }
            }
        }
    }

    operations! {
        fn zero() -> S::I32 { S::izero() }
        fn value(sum: S::I32) -> S::F32 { S::to_float(sum) }
        fn load(from: *const f32) -> S::I32 { S::iload(from.cast()) }
        fn store(to: *mut f32, sum: S::I32) { S::istore(to.cast(), sum) }
    }
}

/// Format with unsigned bytes in the left operand and signed bytes in the right operand.
pub(super) struct Int8;

impl<S: Simd> Format<S> for Int8 {
    type Sum = S::I32;

    const ROWS: usize = S::BYTE_ROWS;
    const DEPTH: usize = 192;
    const LEFT: usize = S::BYTE_CHAIN;
    const RIGHT: usize = S::BYTE_CHAIN;

    #[inline(always)]
    unsafe fn step<const M: usize, const V: usize>(
        sums: &mut [[S::I32; V]; M],
        left: *const u32,
        stride: usize,
        right: *const u32,
    ) {
        // SAFETY: the caller guarantees that `BYTE_CHAIN` units of each row and `BYTE_CHAIN · V` vectors of columns are
        // readable.
        unsafe {
            let mut chains = [[None; V]; M];
            for link in 0..S::BYTE_CHAIN {
                let mut columns = [S::izero(); V];
                for (v, column) in columns.iter_mut().enumerate() {
                    *column = S::iload(right.add((link * V + v) * S::LANES));
                }
                for (m, chains) in chains.iter_mut().enumerate() {
                    let four = S::spread(left.add(m * stride + link));
                    for v in 0..V {
                        chains[v] = Some(match chains[v] {
                            None => S::begin_bytes(sums[m][v], four, columns[v]),
                            Some(chain) => S::dot_bytes(chain, four, columns[v]),
                        });
                    }
                }
            }
            for (sums, chains) in sums.iter_mut().zip(chains) {
                for v in 0..V {
                    if let Some(chain) = chains[v] {
                        sums[v] = S::end_bytes(sums[v], chain);
                    }
                }
            }
        }
    }

    operations! {
        fn zero() -> S::I32 { S::izero() }
        fn value(sum: S::I32) -> S::F32 { S::to_float(sum) }
        fn load(from: *const f32) -> S::I32 { S::iload(from.cast()) }
        fn store(to: *mut f32, sum: S::I32) { S::istore(to.cast(), sum) }
    }
}
