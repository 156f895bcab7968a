//! Compares products with plain loops. Only rounding errors are allowed.

use proptest::prelude::*;

use crate::{
    Precision,
    codes::CodeBuffers,
    pack::{GRAIN, Packed},
    product::{Out, even_parts, even_tiles, product},
    simd::{Simd, SimdLevel, at_level},
    spread::Team,
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

/// Computes a product, and the allowed rounding error of each element.
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
    // SAFETY: the level is available, and the team has one thread.
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
            // Quantization works on the range of all numbers, so its float error depends on the range.
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
    // Vectors of maximum norm in the same direction, largest numbers of one sign, and all weight in one number.
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
