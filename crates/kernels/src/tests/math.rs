//! Compares vector functions with reference functions in f64.

use crate::{
    math,
    network::Activation,
    norm::{AddNorm, PaddedNorm},
    reference,
    simd::{Kernel, Simd, SimdLevel, at_level},
    tile::Activate,
};

fn activated<S: Simd>(activation: Activation, numbers: &[f32]) -> Vec<f32> {
    let mut numbers = numbers.to_vec();
    let columns = numbers.len();
    // SAFETY: the level is available; the row has `columns` numbers.
    unsafe { S::enter(Activate { out: (numbers.as_mut_ptr(), columns), rows: 1, columns, activation }) };
    numbers
}

struct Exp<'a>(&'a mut [f32]);

impl<S: Simd> Kernel<S> for Exp<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for part in self.0.chunks_exact_mut(S::LANES) {
            // SAFETY: a chunk is one vector.
            unsafe { S::store(part.as_mut_ptr(), math::exp::<S, 1>([S::load(part.as_ptr())])[0]) }
        }
    }
}

fn exponentials<S: Simd>(numbers: &[f32]) -> Vec<f32> {
    let mut numbers = numbers.to_vec();
    // SAFETY: the level is available.
    unsafe { S::enter(Exp(&mut numbers)) };
    numbers
}

#[test]
fn exponentials_have_a_relative_error_below_3e_7() {
    let numbers: Vec<f32> = (0..32_000).map(|i| i as f32 / 32_000.0 * 170.0 - 86.0).collect();
    for level in SimdLevel::here() {
        for (x, e) in numbers.iter().zip(at_level!(level, exponentials::<_>(&numbers))) {
            let expected = f64::from(*x).exp();
            assert!((f64::from(e) / expected - 1.0).abs() < 3e-7, "{level}: e^{x} = {e}");
        }
        let ends = at_level!(level, exponentials::<_>(&[f32::NEG_INFINITY, -1e30, -100.0, 0.0].repeat(4)));
        assert!(ends[..3].iter().all(|e| *e < 1e-37), "{ends:?}");
        assert!((ends[3] - 1.0).abs() < 2e-7);
    }
}

#[test]
fn activations_agree_with_the_reference() {
    let mut numbers: Vec<f32> = (0..48_000).map(|i| i as f32 / 48_000.0 * 24.0 - 12.0).collect();
    numbers.extend([0.0, -0.0, 1e-20, -1e-20, 1e4, -1e4, 1e30, -1e30].repeat(2));
    for level in SimdLevel::here() {
        for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Relu] {
            for (x, y) in numbers.iter().zip(at_level!(level, activated::<_>(activation, &numbers))) {
                let expected = reference::activate(activation, f64::from(*x));
                let off = (f64::from(y) - expected).abs();
                assert!(
                    off <= 1e-7 * expected.abs() + 1e-7,
                    "{activation:?} at {level}: f({x}) = {y}, not {expected}"
                );
            }
        }
    }
}

fn normed<S: Simd>(x: &[f32], y: Option<&[f32]>, stride: usize, norm: &PaddedNorm) -> Vec<f32> {
    let mut x = x.to_vec();
    // SAFETY: the level is available.
    unsafe { AddNorm { x: &mut x, y, stride, norm }.run::<S>() };
    x
}

#[test]
fn norms_keep_padding_at_zero() {
    for width in [1, 5, 16, 17, 30, 32] {
        let stride = 32;
        let filled = |f: &dyn Fn(usize) -> f32| -> Vec<f32> {
            (0..2 * stride).map(|i| if i % stride < width { f(i) } else { 0.0 }).collect()
        };
        // Far from zero: a variance computed from sums of squares would have no correct digits here.
        let x = filled(&|i| 1000.0 + (i * 7 % 11) as f32);
        let y = filled(&|i| (i * 5 % 13) as f32);
        let norm = PaddedNorm {
            width,
            weight: filled(&|i| 1.0 + i as f32 / 50.0)[..stride].to_vec(),
            bias: filled(&|i| i as f32 / 10.0)[..stride].to_vec(),
            epsilon: 1e-5,
        };
        for level in SimdLevel::here() {
            let got = at_level!(level, normed::<_>(&x, Some(&y), stride, &norm));
            for row in 0..2 {
                let at = row * stride..row * stride + width;
                let sums: Vec<f64> =
                    x[at.clone()].iter().zip(&y[at.clone()]).map(|(x, y)| f64::from(x + y)).collect();
                let mean = sums.iter().sum::<f64>() / width as f64;
                let variance = sums.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                for (i, v) in sums.iter().enumerate() {
                    let expected = (v - mean) / (variance + 1e-5).sqrt() * f64::from(norm.weight[i])
                        + f64::from(norm.bias[i]);
                    let off = (f64::from(got[row * stride + i]) - expected).abs();
                    assert!(off < 2e-4, "{level}, width {width}: {off}");
                }
                assert!(got[row * stride + width..(row + 1) * stride].iter().all(|v| *v == 0.0));
            }
        }
    }
}
