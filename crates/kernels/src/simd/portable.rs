//! Portable level: vectors are plain arrays, and the compiler vectorizes their loops.

use crate::simd::{Kernel, SIDE, SQUARE, Simd, Squared, Squares, operations};

/// Portable SIMD level with `N` lanes. If `NATIVE` is true, it emulates operations of the newest processors. If
/// `SQUARES` is true, it emulates AMX tiles.
#[derive(Clone, Copy)]
pub(crate) struct Portable<const N: usize, const NATIVE: bool, const SQUARES: bool>;

/// `N` elements, aligned like a vector.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Lanes<T, const N: usize>([T; N]);

#[inline(always)]
fn map<T: Copy, U: Copy + Default, const N: usize>(a: Lanes<T, N>, f: impl Fn(T) -> U) -> Lanes<U, N> {
    let mut out = [U::default(); N];
    for i in 0..N {
        out[i] = f(a.0[i]);
    }
    Lanes(out)
}

#[inline(always)]
fn zip<T: Copy + Default, const N: usize>(
    a: Lanes<T, N>,
    b: Lanes<T, N>,
    f: impl Fn(T, T) -> T,
) -> Lanes<T, N> {
    let mut out = [T::default(); N];
    for i in 0..N {
        out[i] = f(a.0[i], b.0[i]);
    }
    Lanes(out)
}

#[inline(always)]
fn sum_of<const N: usize>(
    sum: Lanes<i32, N>,
    a: Lanes<i32, N>,
    b: Lanes<i32, N>,
    f: impl Fn(i32, i32) -> i32,
) -> Lanes<i32, N> {
    let mut out = sum;
    for i in 0..N {
        out.0[i] = out.0[i].wrapping_add(f(a.0[i], b.0[i]));
    }
    out
}

#[inline(always)]
fn float(bits: i32) -> f32 {
    f32::from_bits(bits as u32)
}

impl<const N: usize, const NATIVE: bool, const SQUARES: bool> Simd for Portable<N, NATIVE, SQUARES> {
    type Base = Portable<N, NATIVE, false>;
    type Whole = Portable<N, NATIVE, false>;
    type F32 = Lanes<f32, N>;
    type I32 = Lanes<i32, N>;
    type Bytes = Lanes<i32, N>;

    const LANES: usize = N;
    const VECTORS: usize = if NATIVE { 3 } else { 1 };
    // The emulation has only the tile sizes that the tests need, because each size takes long to compile.
    const ROWS: usize = if NATIVE { 2 } else { 4 };
    const BYTE_ROWS: usize = Self::ROWS;
    const BYTE_MAX: f32 = 255.0;
    const BYTE_CHAIN: usize = 1;
    const BF16: bool = NATIVE;
    const SQUARES: bool = SQUARES;

    unsafe fn begin_squares() {}
    unsafe fn end_squares() {}
    unsafe fn squares<const TWO: bool>(numbers: Squared, squares: Squares) {
        let planes = numbers.planes();
        for row in 0..if TWO { 2 * SIDE } else { SIDE } {
            let left = if row < SIDE { squares.left } else { squares.low_left };
            for column in 0..2 * SIDE {
                // Returns the pairs of units to multiply, from plane `a` of the left operand and plane `b` of the right
                // operand.
                let pairs = |a: usize, b: usize| {
                    (0..squares.steps * SIDE).map(move |unit| {
                        let (step, unit) = (unit / SIDE, unit % SIDE);
                        let left = left.wrapping_add((step * planes + a) * SQUARE + row % SIDE * SIDE + unit);
                        let right = squares
                            .right
                            .wrapping_add(2 * ((step * planes + b) * SQUARE + unit * SIDE) + column);
                        // SAFETY: the caller guarantees the memory of the AMX tiles.
                        unsafe { (left.read(), right.read()) }
                    })
                };
                let halves = |sum: f32, (a, b): (u32, u32)| {
                    let product = |a: u32, b: u32| float(a as i32) * float(b as i32);
                    sum + product(a & 0xFFFF_0000, b & 0xFFFF_0000) + product(a << 16, b << 16)
                };
                let place = squares.to.wrapping_add(row * 2 * SIDE + column);
                // SAFETY: the caller guarantees the memory of the sums.
                let begun = if squares.first { 0.0 } else { unsafe { place.read() } };
                let sum = match numbers {
                    Squared::Bf16 => pairs(0, 0).fold(begun, halves),
                    Squared::Thirds => {
                        let planes = [(1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)];
                        planes.into_iter().flat_map(|(a, b)| pairs(a, b)).fold(begun, halves)
                    }
                    Squared::Bytes => {
                        f32::from_bits(pairs(0, 0).fold(begun.to_bits() as i32, |sum, (a, b)| {
                            let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
                            sum + products.map(|(a, b)| i32::from(a) * i32::from(b as i8)).sum::<i32>()
                        }) as u32)
                    }
                };
                // SAFETY: the caller guarantees the memory of the sums.
                unsafe { place.write(sum) };
            }
        }
    }

    // Not inlined, because compilation took minutes with all kernels in one function. At the other levels, kernels are
    // not inlined either.
    #[inline(never)]
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output {
        // SAFETY: the caller guarantees the pointers, and no feature is needed.
        unsafe { kernel.call() }
    }

    operations! {
        fn splat(x: f32) -> Self::F32 { Lanes([x; N]) }
        fn load(from: *const f32) -> Self::F32 { Lanes(from.cast::<[f32; N]>().read_unaligned()) }
        fn store(to: *mut f32, v: Self::F32) { to.cast::<[f32; N]>().write_unaligned(v.0) }
        fn add(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| a + b) }
        fn sub(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| a - b) }
        fn mul(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| a * b) }
        fn div(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| a / b) }
        fn fma(a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
            // Multiplication and addition are rounded separately. `mul_add` would call the C library if the compiler
            // cannot assume FMA.
            zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
        }
        fn max(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| if a > b { a } else { b }) }
        fn min(a: Self::F32, b: Self::F32) -> Self::F32 { zip(a, b, |a, b| if a < b { a } else { b }) }
        fn abs(a: Self::F32) -> Self::F32 { map(a, f32::abs) }
        fn round(a: Self::F32) -> Self::F32 {
            // Adding and subtracting 1.5 · 2²³ rounds to a whole number. This works because the kernels round only
            // small numbers.
            map(a, |x| (x + 12_582_912.0) - 12_582_912.0)
        }
        fn power_of_two(a: Self::F32) -> Self::F32 { map(a, |x| f32::from_bits(((x as i32 + 127) as u32) << 23)) }
        fn first(n: usize, v: Self::F32, other: Self::F32) -> Self::F32 {{
            let mut out = other;
            for i in 0..N {
                out.0[i] = if i < n { v.0[i] } else { other.0[i] };
            }
            out
        }}
        fn total(v: Self::F32) -> f32 { v.0.iter().sum() }
        fn largest(v: Self::F32) -> f32 { v.0.iter().fold(f32::NEG_INFINITY, |m, x| if *x > m { *x } else { m }) }

        fn fetch(_line: *const u32) {{}}
        fn izero() -> Self::I32 { Lanes([0; N]) }
        fn spread(from: *const u32) -> Self::I32 { Lanes([from.read_unaligned() as i32; N]) }
        fn iload(from: *const u32) -> Self::I32 { Lanes(from.cast::<[i32; N]>().read_unaligned()) }
        fn istore(to: *mut u32, v: Self::I32) { to.cast::<[i32; N]>().write_unaligned(v.0) }
        fn to_float(v: Self::I32) -> Self::F32 { map(v, |x| x as f32) }
        fn begin_shorts(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::I32 {
            sum_of(sum, a, b, |a, b| {
                let low = i32::from(a as i16) * i32::from(b as i16);
                low.wrapping_add((a >> 16) * (b >> 16))
            })
        }
        fn end_shorts(_sum: Self::I32, products: Self::I32) -> Self::I32 { products }

        fn begin_bytes(sum: Self::I32, a: Self::I32, b: Self::I32) -> Self::Bytes { Self::dot_bytes(sum, a, b) }
        fn dot_bytes(chain: Self::Bytes, a: Self::I32, b: Self::I32) -> Self::Bytes {
            sum_of(chain, a, b, |a, b| {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                (0..4).map(|i| i32::from(a[i]) * i32::from(b[i] as i8)).sum()
            })
        }
        fn end_bytes(_sum: Self::I32, chain: Self::Bytes) -> Self::I32 { chain }

        fn bf16_low(v: Self::I32) -> Self::F32 { map(v, |x| float(x << 16)) }
        fn bf16_high(v: Self::I32) -> Self::F32 { map(v, |x| float(x & !0xFFFF)) }
        fn dot_bf16(sum: Self::F32, a: Self::I32, b: Self::I32) -> Self::F32 {{
            let high = Self::fma(Self::bf16_high(a), Self::bf16_high(b), sum);
            Self::fma(Self::bf16_low(a), Self::bf16_low(b), high)
        }}

        fn pair_bf16(low: Self::F32, high: Self::F32) -> Self::I32 {{
            let bits = |x: f32| u32::from(half::bf16::from_f32(x).to_bits());
            let mut pairs = [0; N];
            for i in 0..N {
                pairs[i] = (bits(low.0[i]) | bits(high.0[i]) << 16) as i32;
            }
            Lanes(pairs)
        }}
        fn round_bf16(v: Self::F32) -> Self::F32 { map(v, |x| half::bf16::from_f32(x).to_f32()) }

        fn store_shorts(to: *mut i16, v: Self::F32) {
            to.cast::<[i16; N]>().write_unaligned(map(Self::round(v), |x| x as i16).0)
        }
        fn store_bytes(to: *mut u8, v: Self::F32) {
            to.cast::<[u8; N]>().write_unaligned(map(Self::round(v), |x| x as u8).0)
        }
        fn store_bf16(to: *mut u16, v: Self::F32) {
            to.cast::<[u16; N]>().write_unaligned(map(v, |x| half::bf16::from_f32(x).to_bits()).0)
        }
    }
}
