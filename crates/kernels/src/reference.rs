//! Reference implementation of the encoder for tests: plain loops in f64.

use crate::{
    Sequence,
    network::{
        Activation, Layer, Linear, LinearBias, Network, Norm, NormKind, NormOrder, RelativeBias, Rotary,
        Shape,
    },
};

type Rows = Vec<Vec<f64>>;

fn linear(l: &Linear, rows: &Rows) -> Rows {
    let output = |row: &Vec<f64>, o: usize| {
        let weights = &l.weight[o * l.inputs..(o + 1) * l.inputs];
        weights.iter().zip(row).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(l.bias[o])
    };
    rows.iter().map(|row| (0..l.outputs).map(|o| output(row, o)).collect()).collect()
}

fn norm(n: &Norm, shape: &Shape, rows: &mut Rows) {
    rows.iter_mut().for_each(|row| norm_row(n, shape, row));
}

fn norm_row(n: &Norm, shape: &Shape, row: &mut [f64]) {
    let (count, epsilon) = (row.len() as f64, shape.norm_epsilon);
    let mean = match shape.norm_kind {
        NormKind::Layer => row.iter().sum::<f64>() / count,
        NormKind::Rms => 0.0,
    };
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    for (i, x) in row.iter_mut().enumerate() {
        let unit = (*x - mean) / (variance + f64::from(epsilon)).sqrt();
        *x = unit * f64::from(n.weight[i]) + f64::from(n.bias[i]);
    }
}

fn add(rows: &mut Rows, more: &Rows) {
    for (row, more) in rows.iter_mut().zip(more) {
        row.iter_mut().zip(more).for_each(|(x, y)| *x += y);
    }
}

/// Computes the error function: by a power series if `|x|` is below 3, else by a continued fraction.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..120 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..80).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (a + f));
        1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + fraction)
    };
    value.copysign(x)
}

/// Applies an activation function to `x`.
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::Relu => x.max(0.0),
        Activation::Silu => x / (1.0 + (-x).exp()),
    }
}

/// Rotates the heads of queries or keys.
fn rotate(rows: &mut Rows, heads: usize, (rotary, windowed): (Rotary, bool), positions: &[usize]) {
    for (row, position) in rows.iter_mut().zip(positions) {
        let size = row.len() / heads;
        for head in row.chunks_exact_mut(size) {
            for (i, angle) in rotary.angles(windowed, size, *position).enumerate() {
                let (x, y) = (head[i], head[i + size / 2]);
                head[i] = x * angle.cos() - y * angle.sin();
                head[i + size / 2] = y * angle.cos() + x * angle.sin();
            }
        }
    }
}

fn attention(network: &Network, layer: &Layer, x: &Rows, positions: &[usize]) -> Rows {
    let (shape, bias) = (&network.shape, network.relative_bias.as_ref());
    let (heads, size, group) = (shape.heads, shape.head_size, shape.heads / shape.key_heads);
    let [mut q, mut k, v] = [&layer.query, &layer.key, &layer.value].map(|l| linear(l, x));
    for (rows, n) in [&mut q, &mut k].into_iter().zip(layer.head_norms.iter().flatten()) {
        rows.iter_mut().flat_map(|row| row.chunks_exact_mut(size)).for_each(|head| norm_row(n, shape, head));
    }
    if let Some(rotary) = network.shape.rotary {
        let rotary = (rotary, layer.window.is_some());
        rotate(&mut q, heads, rotary, positions);
        rotate(&mut k, shape.key_heads, rotary, positions);
    }
    let mut context = vec![vec![0.0; q[0].len()]; q.len()];
    for head in 0..heads {
        let part = 0..size;
        let (first, first_key) = (head * size, head / group * size);
        for (i, query) in q.iter().enumerate() {
            let score = |(j, key): (usize, &Vec<f64>)| {
                if layer.window.is_some_and(|window| i.abs_diff(j) > window) || (shape.causal && j > i) {
                    return f64::NEG_INFINITY;
                }
                let dot: f64 = part.clone().map(|c| query[first + c] * key[first_key + c]).sum();
                let row = RelativeBias::bucket(j as isize - i as isize);
                let bias = bias.map_or(0.0, |bias| f64::from(bias.data[row * heads + head]));
                let linear = match shape.linear_bias {
                    Some(_) => f64::from(LinearBias::slopes(heads)[head]) * i.abs_diff(j) as f64,
                    None => 0.0,
                };
                dot / (size as f64).sqrt() + bias - linear
            };
            let scores: Vec<f64> = k.iter().enumerate().map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            for c in part.clone() {
                let weighted = |(s, value): (&f64, &Vec<f64>)| (s - most).exp() / sum * value[first_key + c];
                context[i][first + c] = scores.iter().zip(&v).map(weighted).sum();
            }
        }
    }
    linear(&layer.attention_output, &context)
}

fn feed_forward(activation: Activation, layer: &Layer, x: &Rows) -> Rows {
    let mut inner = linear(&layer.intermediate, x);
    inner.iter_mut().flatten().for_each(|v| *v = activate(activation, *v));
    if let Some(gate) = &layer.gate {
        let factors = linear(gate, x);
        inner.iter_mut().flatten().zip(factors.iter().flatten()).for_each(|(v, factor)| *v *= factor);
    }
    linear(&layer.output, &inner)
}

/// Returns the hidden states of one sequence: after the embeddings, and after each layer.
pub fn states(network: &Network, sequence: &Sequence) -> Vec<Rows> {
    let (shape, e) = (&network.shape, &network.embeddings);
    let h = shape.hidden;
    let mut x: Rows = vec![vec![0.0; h]; sequence.len()];
    let counted: Vec<usize> = shape.positions(&sequence.ids).collect();
    for (i, row) in x.iter_mut().enumerate() {
        let id = |ids: &Option<Vec<u32>>, absent: usize| ids.as_ref().map_or(absent, |ids| ids[i] as usize);
        let given = sequence.positions.as_ref().map(|p| p[i] as usize + shape.first_position);
        let position = given.unwrap_or(counted[i]);
        let replaced = sequence.vectors.as_ref().and_then(|vectors| {
            let n = vectors.tokens.iter().position(|token| *token as usize == i)?;
            Some(&vectors.elements[n * h..][..h])
        });
        for (x, element) in row.iter_mut().zip(replaced.unwrap_or(&[])) {
            *x = f64::from(*element);
        }
        let tables = [
            (Some(&e.words).filter(|_| replaced.is_none()), sequence.ids[i] as usize),
            (e.positions.as_ref(), position),
            (e.types.as_ref(), id(&sequence.types, 0)),
            (e.turns.as_ref(), id(&sequence.turns, 0)),
            (e.roles.as_ref(), id(&sequence.roles, 0)),
        ];
        for (table, id) in tables {
            if let Some(table) = table {
                row.iter_mut().zip(&table.data[id * h..]).for_each(|(x, t)| *x += f64::from(*t));
            }
        }
    }
    e.norm.iter().for_each(|n| norm(n, shape, &mut x));
    let mut all = vec![x.clone()];
    let positions: Vec<usize> = match &sequence.positions {
        Some(positions) => positions.iter().map(|position| *position as usize).collect(),
        None => (0..sequence.len()).collect(),
    };
    let normed = |n: Option<&Norm>, mut rows: Rows| {
        n.iter().for_each(|n| norm(n, shape, &mut rows));
        rows
    };
    for layer in &network.layers {
        let (attention_norm, output_norm) = (layer.attention_norm.as_ref(), Some(&layer.output_norm));
        match shape.norm_order {
            NormOrder::After => {
                let attended = attention(network, layer, &x, &positions);
                add(&mut x, &attended);
                x = normed(attention_norm, x);
                let fed = feed_forward(shape.activation, layer, &x);
                add(&mut x, &fed);
                x = normed(output_norm, x);
            }
            NormOrder::Before => {
                let [after_attention, after_feed] = match &layer.result_norms {
                    Some([attention, feed]) => [Some(attention), Some(feed)],
                    None => [None; 2],
                };
                let input = normed(attention_norm, x.clone());
                add(&mut x, &normed(after_attention, attention(network, layer, &input, &positions)));
                let input = normed(output_norm, x.clone());
                add(&mut x, &normed(after_feed, feed_forward(shape.activation, layer, &input)));
            }
        }
        all.push(x.clone());
    }
    let last = all.pop().unwrap_or_default();
    all.push(normed(network.final_norm.as_ref(), last));
    all
}
