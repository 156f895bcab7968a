//! Reference implementation of the encoder for tests: plain loops in f64.

use crate::{
    Sequence,
    network::{Activation, Linear, Network, Norm, RelativeBias},
};

type Rows = Vec<Vec<f64>>;

fn linear(l: &Linear, rows: &Rows) -> Rows {
    let output = |row: &Vec<f64>, o: usize| {
        let weights = &l.weight[o * l.inputs..(o + 1) * l.inputs];
        weights.iter().zip(row).map(|(w, x)| f64::from(*w) * x).sum::<f64>() + f64::from(l.bias[o])
    };
    rows.iter().map(|row| (0..l.outputs).map(|o| output(row, o)).collect()).collect()
}

fn norm(n: &Norm, epsilon: f32, rows: &mut Rows) {
    for row in rows {
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        for (i, x) in row.iter_mut().enumerate() {
            let unit = (*x - mean) / (variance + f64::from(epsilon)).sqrt();
            *x = unit * f64::from(n.weight[i]) + f64::from(n.bias[i]);
        }
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
    }
}

fn attention(heads: usize, bias: Option<&RelativeBias>, q: &Rows, k: &Rows, v: &Rows) -> Rows {
    let size = q[0].len() / heads;
    let mut context = vec![vec![0.0; q[0].len()]; q.len()];
    for head in 0..heads {
        let part = head * size..(head + 1) * size;
        for (i, query) in q.iter().enumerate() {
            let score = |(j, key): (usize, &Vec<f64>)| {
                let dot: f64 = part.clone().map(|c| query[c] * key[c]).sum();
                let row = RelativeBias::bucket(j as isize - i as isize);
                let bias = bias.map_or(0.0, |bias| f64::from(bias.data[row * heads + head]));
                dot / (size as f64).sqrt() + bias
            };
            let scores: Vec<f64> = k.iter().enumerate().map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            for c in part.clone() {
                context[i][c] =
                    scores.iter().zip(v).map(|(s, value)| (s - most).exp() / sum * value[c]).sum();
            }
        }
    }
    context
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
            (Some(&e.positions), position),
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
    norm(&e.norm, shape.norm_epsilon, &mut x);
    let mut all = vec![x.clone()];
    for layer in &network.layers {
        let context = attention(
            shape.heads,
            network.relative_bias.as_ref(),
            &linear(&layer.query, &x),
            &linear(&layer.key, &x),
            &linear(&layer.value, &x),
        );
        add(&mut x, &linear(&layer.attention_output, &context));
        norm(&layer.attention_norm, shape.norm_epsilon, &mut x);
        let mut inner = linear(&layer.intermediate, &x);
        inner.iter_mut().flatten().for_each(|v| *v = activate(shape.activation, *v));
        add(&mut x, &linear(&layer.output, &inner));
        norm(&layer.output_norm, shape.norm_epsilon, &mut x);
        all.push(x.clone());
    }
    all
}
