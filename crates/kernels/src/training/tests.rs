//! Compares each backward pass with finite differences of the forward pass. The sizes are not multiples of the number
//! of lanes.

use crate::{DistanceBias, network::RelativeBias, training::*};

/// Returns `n` pseudo-random numbers between -1 and 1.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Compares a gradient of `loss` with finite differences, for some elements of `x`. Panics if they do not agree.
fn check(x: &[f32], gradient: &[f32], loss: impl Fn(&[f32]) -> f64) {
    const STEP: f32 = 1.0 / 256.0;
    for i in (0..x.len()).step_by(1 + x.len() / 60) {
        let at = |by: f32| {
            let mut moved = x.to_vec();
            moved[i] += by;
            loss(&moved)
        };
        // Fourth-order differences are accurate even with large steps, which f32 needs.
        let slope = |h: f32| (at(h) - at(-h)) / (2.0 * f64::from(h));
        let expected = (4.0 * slope(STEP) - slope(2.0 * STEP)) / 3.0;
        let got = f64::from(gradient[i]);
        assert!((got - expected).abs() < 2e-3 * expected.abs().max(1.0), "{i}: {got} {expected}");
    }
}

#[test]
fn norm_gradients_agree_with_finite_differences() {
    let (rows, width, first) = (3, 37, 5);
    let (x, y, g) = (numbers(rows * width, 1), numbers(rows * width, 2), numbers(rows * width, 3));
    let (weight, bias) = (numbers(width, 4), numbers(width, 5));
    for dropout in [None, Some(Dropout::new(0.3, 9))] {
        let loss = |x: &[f32], y: &[f32], weight: &[f32], bias: &[f32]| {
            let mut out = vec![0.0; x.len()];
            add_norm(&AddNorm { weight, bias, epsilon: 1e-5, dropout }, first, x, y, &mut out);
            dot(&out, &g)
        };
        let norm = AddNorm { weight: &weight, bias: &bias, epsilon: 1e-5, dropout };
        let (mut grad_x, mut grad_y) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        let (mut grad_weight, mut grad_bias) = (vec![0.0; width], vec![0.0; width]);
        add_norm_backward(
            &norm,
            first,
            &x,
            &y,
            &g,
            &mut grad_x,
            &mut grad_y,
            &mut grad_weight,
            &mut grad_bias,
        );
        check(&x, &grad_x, |x| loss(x, &y, &weight, &bias));
        check(&y, &grad_y, |y| loss(&x, y, &weight, &bias));
        check(&weight, &grad_weight, |weight| loss(&x, &y, weight, &bias));
        check(&bias, &grad_bias, |bias| loss(&x, &y, &weight, bias));
        assert_eq!(dropout.is_some(), grad_y.contains(&0.0));
    }
}

#[test]
fn a_norm_agrees_with_its_formula() {
    let (x, weight, bias) = (numbers(40, 1), numbers(40, 2), numbers(40, 3));
    let mut out = vec![0.0; 40];
    add_norm(
        &AddNorm { weight: &weight, bias: &bias, epsilon: 0.1, dropout: None },
        0,
        &x,
        &[0.0; 40],
        &mut out,
    );
    let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / 40.0;
    let variance = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 40.0;
    for i in 0..40 {
        let unit = (f64::from(x[i]) - mean) / (variance + 0.1).sqrt();
        let expected = unit * f64::from(weight[i]) + f64::from(bias[i]);
        assert!((f64::from(out[i]) - expected).abs() < 1e-6);
    }
}

#[test]
fn attention_gradients_agree_with_finite_differences() {
    let (tokens, heads, width) = (19, 3, 24);
    let projected = numbers(tokens * 3 * width, 1);
    let g = numbers(tokens * width, 2);
    let data = numbers(RelativeBias::BUCKETS * heads, 3);
    let with_dropout = Some(Dropout::new(0.2, 4));
    for (dropout, has_bias) in [(None, false), (with_dropout, false), (None, true), (with_dropout, true)] {
        let loss = |projected: &[f32], data: &[f32]| {
            let bias = DistanceBias::new(&RelativeBias { heads, data: data.to_vec() }, tokens + 5);
            let mut out = vec![0.0; tokens * width];
            let bias = has_bias.then_some(&bias);
            attend(&Attended { projected, heads, width, dropout, bias }, &mut out);
            dot(&out, &g)
        };
        let bias = DistanceBias::new(&RelativeBias { heads, data: data.clone() }, tokens);
        let bias = has_bias.then_some(&bias);
        let (mut gradient, mut of_bias) = (vec![0.0; projected.len()], vec![0.0; data.len()]);
        let of = Attended { projected: &projected, heads, width, dropout, bias };
        attend_backward(&of, &g, &mut gradient, Some(&mut of_bias));
        check(&projected, &gradient, |projected| loss(projected, &data));
        check(&data, &of_bias, |data| loss(&projected, data));
        assert_eq!(of_bias.iter().any(|gradient| *gradient != 0.0), has_bias);
    }
}

#[test]
fn attention_is_a_weighted_mean_of_values() {
    let (tokens, heads, width) = (5, 2, 8);
    let projected = numbers(tokens * 3 * width, 7);
    let mut out = vec![0.0; tokens * width];
    attend(&Attended { projected: &projected, heads, width, dropout: None, bias: None }, &mut out);
    for token in 0..tokens {
        for head in 0..heads {
            let of = |t: usize, part: usize, c: usize| f64::from(projected[t * 24 + part * 8 + head * 4 + c]);
            let scores: Vec<f64> = (0..tokens)
                .map(|j| (0..4).map(|c| of(token, 0, c) * of(j, 1, c)).sum::<f64>() / 2.0)
                .map(f64::exp)
                .collect();
            for c in 0..4 {
                let expected =
                    (0..tokens).map(|j| scores[j] * of(j, 2, c)).sum::<f64>() / scores.iter().sum::<f64>();
                assert!((f64::from(out[token * width + head * 4 + c]) - expected).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn adamw_agrees_with_its_formula() {
    let (mut weights, start) = (numbers(21, 1), numbers(21, 1));
    let (mut mean, mut square) = (vec![0.0; 21], vec![0.0; 21]);
    let (mut w, mut m, mut v): (Vec<f64>, _, _) =
        (start.iter().map(|x| f64::from(*x)).collect(), vec![0.0f64; 21], vec![0.0f64; 21]);
    for step in 1..=5u64 {
        let gradient = numbers(21, 10 + step as u32);
        let with =
            AdamW { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.1, step, scale: 0.5 };
        adamw(&with, &mut weights, &gradient, &mut mean, &mut square);
        for i in 0..21 {
            let g = f64::from(gradient[i]) * 0.5;
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let (m, v) = (m[i] / (1.0 - 0.9f64.powi(step as i32)), v[i] / (1.0 - 0.999f64.powi(step as i32)));
            w[i] -= 0.01 * 0.1 * w[i] + 0.01 * m / (v.sqrt() + 1e-8);
        }
    }
    for i in 0..21 {
        assert!((f64::from(weights[i]) - w[i]).abs() < 1e-5, "{} {}", weights[i], w[i]);
    }
}

#[test]
fn the_dropped_part_matches_the_probability_and_keys_are_independent() {
    let dropped = |d: Dropout| (0..100_000).map(|n| d.factor(n) == 0.0).collect::<Vec<_>>();
    let count = |d: &[bool]| d.iter().filter(|d| **d).count();
    let (a, b) = (dropped(Dropout::new(0.1, 1)), dropped(Dropout::new(0.1, 2)));
    assert!((9_700..10_300).contains(&count(&a)), "{}", count(&a));
    for other in [b, dropped(Dropout::new(0.1, 1).of(7)), dropped(Dropout::new(0.1, 1 << 32))] {
        // If two masks with p = 0.1 are independent, both drop the same element in about one of a hundred cases.
        let both = a.iter().zip(&other).filter(|(a, b)| **a && **b).count();
        assert!((800..1_200).contains(&both), "{both}");
    }
    assert_eq!(count(&dropped(Dropout::new(0.0, 1))), 0);
    assert!((Dropout::new(0.2, 1).factor(3).max(Dropout::new(0.2, 1).factor(4)) - 1.25).abs() < 1e-6);
}
