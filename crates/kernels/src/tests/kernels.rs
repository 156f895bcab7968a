//! Compares matrix products with plain loops, and vector functions with f64 references. Rounding errors are allowed.

use proptest::prelude::*;

use crate::{
    Precision,
    codes::CodeBuffers,
    math,
    network::{Activation, NormKind},
    norm::{AddNorm, PaddedNorm},
    pack::{GRAIN, Packed},
    product::{Out, even_parts, even_tiles, product},
    reference,
    simd::{Kernel, Simd, SimdLevel, at_level},
    spread::Team,
    tile::Activate,
};

/// Operands of a product: `rows × inputs` times `inputs × outputs`.
#[derive(Debug, Clone)]
struct Case {
    rows: usize,
    inputs: usize,
    outputs: usize,
    left: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn new(rows: usize, inputs: usize, outputs: usize, mut x: impl FnMut() -> f32) -> Self {
        let mut draw = |n: usize| (0..n).map(|_| x()).collect::<Vec<f32>>();
        let (left, weights, bias) = (draw(rows * inputs), draw(inputs * outputs), draw(outputs));
        Case { rows, inputs, outputs, left, weights, bias }
    }
}

/// Computes a product with the kernels. Returns its elements, and the allowed rounding error of each element.
fn compute<S: Simd>(precision: Precision, case: &Case) -> (Vec<f32>, Vec<f64>) {
    let Case { rows, inputs, outputs, .. } = *case;
    let packed = Packed::new::<S>(precision, (inputs, outputs), &case.weights, &case.bias).unwrap();
    let stride = inputs.next_multiple_of(GRAIN);
    let mut padded = vec![0.0; rows * stride];
    for (to, from) in padded.chunks_exact_mut(stride).zip(case.left.chunks_exact(inputs)) {
        to[..inputs].copy_from_slice(from);
    }
    let mut buffers = CodeBuffers::default();
    let mut out = vec![f32::NAN; rows * packed.outputs];
    // SAFETY: the processor supports the level, and the team has one thread.
    let scales: Vec<f64> = unsafe {
        let left = buffers.prepare::<S>(precision, &padded, rows, (stride, stride));
        let to = Out { numbers: &mut out, rows, stride: packed.outputs };
        Team::with(1, |team| product::<S>(left, &packed, to, None, team));
        left.scales.iter().map(|s| f64::from(*s)).collect()
    };
    let mut allowed = Vec::new();
    for row in 0..rows {
        for output in 0..outputs {
            let pairs = || {
                let w = &case.weights[output * inputs..(output + 1) * inputs];
                let x = &case.left[row * inputs..(row + 1) * inputs];
                x.iter().zip(w).map(|(x, w)| (f64::from(x.abs()), f64::from(w.abs())))
            };
            // Quantization depends on the range of the numbers, so its rounding error in floats does, too.
            let range = pairs().fold((1e-30, 1e-30), |m: (f64, f64), p| (m.0.max(p.0), m.1.max(p.1)));
            let floats = 1e-6 * (inputs as f64 * range.0 * range.1 + 1.0);
            allowed.push(match precision {
                Precision::F32 => floats,
                Precision::Bf16 => floats + pairs().map(|(x, w)| x * w / 120.0).sum::<f64>(),
                _ => {
                    let (sx, sw) = (scales[row] * 0.501, f64::from(packed.scales[output]) * 0.501);
                    floats + pairs().map(|(x, w)| x * sw + w * sx + sx * sw).sum::<f64>()
                }
            });
        }
    }
    let narrow = out.chunks_exact(packed.outputs).flat_map(|row| row[..outputs].to_vec()).collect();
    (narrow, allowed)
}

fn check(case: &Case) {
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int16, Precision::Int8] {
            let (got, allowed) = at_level!(level, compute::<_>(precision, case));
            for (i, (got, allowed)) in got.iter().zip(allowed).enumerate() {
                let (row, output) = (i / case.outputs, i % case.outputs);
                let w = &case.weights[output * case.inputs..(output + 1) * case.inputs];
                let x = &case.left[row * case.inputs..(row + 1) * case.inputs];
                let sum: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let off = (f64::from(*got) - sum - f64::from(case.bias[output])).abs();
                assert!(
                    off <= allowed,
                    "{precision} at {level}: row {row}, output {output}: {off} > {allowed}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn products_agree_with_plain_loops(
        (rows, inputs, outputs) in (1usize..40, 1usize..90, 1usize..70),
        seed in any::<u64>(),
    ) {
        let mut state = seed;
        check(&Case::new(rows, inputs, outputs, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as f32 / 2f32.powi(30) - 1.0).powi(3)
        }));
    }
}

#[test]
fn long_rows_are_computed_in_blocks() {
    let mut n = 0u32;
    check(&Case::new(70, 3100, 20, || {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (n >> 16) as f32 / 32768.0 - 1.0
    }));
}

#[test]
fn no_sum_overflows_or_saturates() {
    // The patterns include parallel vectors of maximum norm, large numbers of only one sign, and vectors with a single
    // nonzero number.
    let patterns: [fn(usize) -> f32; 7] = [
        |_| 1.0,
        |_| -1.0,
        |i| if i % 2 == 0 { 1.0 } else { -1.0 },
        |i| if i % 4 < 2 { 1.0 } else { -1.0 },
        |i| if i == 5 { 1.0 } else { 0.0 },
        |i| if i < 16 { 1.0 } else { -0.01 },
        |i| if i % 4 < 2 { 1e30 } else { 1e28 },
    ];
    for inputs in [16, 100, 4096] {
        let mut weights = Vec::new();
        for pattern in patterns {
            weights.extend((0..inputs).map(|i| pattern(i).min(1e4)));
        }
        let left: Vec<f32> = patterns[..6].iter().flat_map(|p| (0..inputs).map(p)).collect();
        let bias = vec![0.0; 7];
        check(&Case { rows: 6, inputs, outputs: 7, left, weights, bias });
    }
}

#[test]
fn zeros_stay_zeros() {
    check(&Case::new(3, 20, 20, || 0.0));
}

#[test]
fn ranges_are_split_evenly_into_few_parts() {
    let parts = |n: usize, most: usize| even_parts(3..3 + n, most).map(|p| p.len()).collect::<Vec<_>>();
    assert_eq!(parts(13, 6), [4, 4, 5]);
    assert_eq!(parts(12, 6), [6, 6]);
    assert_eq!(parts(0, 6), [0usize; 0]);
    assert_eq!(even_parts(3..16, 6).last(), Some(11..16));
    assert_eq!(even_tiles(3..16, 6).collect::<Vec<_>>(), [(1, 5, 3), (2, 4, 8)]);
    assert_eq!(even_tiles(3..15, 6).collect::<Vec<_>>(), [(2, 6, 3)]);
    assert_eq!(even_tiles(3..3, 6).count(), 0);
}

fn activated<S: Simd>(activation: Activation, numbers: &[f32]) -> Vec<f32> {
    let mut numbers = numbers.to_vec();
    let columns = numbers.len();
    // SAFETY: the processor supports the level; the row has `columns` numbers.
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
    // SAFETY: the processor supports the level.
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
    // SAFETY: the processor supports the level.
    unsafe { AddNorm { x: &mut x, y, to: None, stride, norm }.run::<S>() };
    x
}

#[test]
fn norms_keep_padding_at_zero() {
    for width in [1, 5, 16, 17, 30, 32] {
        let stride = 32;
        let filled = |f: &dyn Fn(usize) -> f32| -> Vec<f32> {
            (0..2 * stride).map(|i| if i % stride < width { f(i) } else { 0.0 }).collect()
        };
        // The numbers are far from zero. A variance computed from sums of squares would have no correct digits.
        let x = filled(&|i| 1000.0 + (i * 7 % 11) as f32);
        let y = filled(&|i| (i * 5 % 13) as f32);
        let norm = |kind| PaddedNorm {
            width,
            weight: filled(&|i| 1.0 + i as f32 / 50.0)[..stride].to_vec(),
            bias: filled(&|i| i as f32 / 10.0)[..stride].to_vec(),
            epsilon: 1e-5,
            kind,
        };
        let both = [NormKind::Layer, NormKind::Rms].map(norm);
        for (level, norm) in SimdLevel::here().flat_map(|level| both.iter().map(move |norm| (level, norm))) {
            let got = at_level!(level, normed::<_>(&x, Some(&y), stride, norm));
            for row in 0..2 {
                let at = row * stride..row * stride + width;
                let sums: Vec<f64> =
                    x[at.clone()].iter().zip(&y[at.clone()]).map(|(x, y)| f64::from(x + y)).collect();
                let mean = match norm.kind {
                    NormKind::Layer => sums.iter().sum::<f64>() / width as f64,
                    NormKind::Rms => 0.0,
                };
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
