use proptest::prelude::*;

use super::*;

struct Codes<'a>(&'a [u8], &'a [u8]);

impl Task for Codes<'_> {
    type Output = (i32, i32);

    #[inline(always)]
    fn run<D: Distances>(self) -> Self::Output {
        let signed: Vec<i8> = self.1.iter().map(|c| (*c ^ 128) as i8).collect();
        let bias = 128 * signed.iter().map(|s| i32::from(*s)).sum::<i32>();
        // SAFETY: the rows have this length.
        unsafe {
            (
                D::code_dot(self.0.as_ptr(), self.1.as_ptr(), bias, self.0.len()),
                D::nibble_dot(self.0.as_ptr(), signed.as_ptr(), self.0.len()),
            )
        }
    }
}

struct Floats<'a>(&'a [f32], &'a [f32]);

impl Task for Floats<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<D: Distances>(self) -> (f32, f32) {
        // SAFETY: the rows have this length.
        unsafe {
            (
                D::floats::<false>(self.0.as_ptr(), self.1.as_ptr(), self.0.len()),
                D::floats::<true>(self.0.as_ptr(), self.1.as_ptr(), self.0.len()),
            )
        }
    }
}

/// Codes; the extremes are frequent.
fn code() -> impl Strategy<Value = u8> {
    prop_oneof![Just(1), Just(255), 1..=255u8]
}

proptest! {
    #[test]
    fn code_products_are_identical_at_every_level(
        pairs in (1usize..=20).prop_flat_map(|steps| proptest::collection::vec((code(), code()), steps * CODE_STEP)),
    ) {
        let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
        let signed = |c: &u8| i64::from(*c) - 128;
        let dot: i64 = a.iter().zip(&b).map(|(a, b)| signed(a) * signed(b)).sum();
        // The first half of `a` serves as the nibbles.
        let nibble = |at: usize| i64::from(a[at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15);
        let rough: i64 = b.iter().enumerate().map(|(at, b)| nibble(at) * signed(b)).sum();
        for level in SimdLevel::here() {
            let expected = (dot as i32, rough as i32);
            prop_assert_eq!(Dispatch::at(level).run(Codes(&a, &b)), expected, "{:?}", level);
        }
    }

    #[test]
    fn float_products_agree_at_every_level(pairs in proptest::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..300)) {
        let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let dot: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let difference: f64 = a.iter().zip(&b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        for level in SimdLevel::here() {
            let (d, a) = Dispatch::at(level).run(Floats(&a, &b));
            prop_assert!((f64::from(d) - dot).abs() < 1e-4 && (f64::from(a) - difference).abs() < 1e-4, "{:?}", level);
        }
    }
}
