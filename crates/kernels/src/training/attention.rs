//! Self-attention within one sequence: forward and backward pass.
//!
//! The backward pass computes the attention weights again, so the forward pass saves nothing.

use crate::{
    attention::DistanceBias,
    network::RelativeBias,
    training::{Dropout, LANES, activation, sum, vectorized},
};

/// Input of attention for one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a> {
    /// Queries, keys and values of all heads: one row of `3 · width` elements per token.
    pub projected: &'a [f32],
    /// Number of heads.
    pub heads: usize,
    /// Total width of all heads.
    pub width: usize,
    /// Dropout of the attention weights.
    pub dropout: Option<Dropout>,
    /// Bias of the scores by distance, if the network has one.
    pub bias: Option<&'a DistanceBias>,
}

/// Number of query tokens that are processed together (a group). They share the loaded keys and values.
const GROUP: usize = 4;

/// Buffers for the attention of one head. Rows are padded with zeros to a multiple of [`LANES`].
struct Workspace {
    /// Padded length of a row with one element per token.
    row: usize,
    /// Padded length of a row with one element per column of the head.
    column: usize,
    /// Keys and values, transposed: one row per column of the head.
    keys_by_column: Vec<f32>,
    values_by_column: Vec<f32>,
    /// Keys and values: one row per token.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Scaled queries of the tokens of the current group.
    queries: Vec<f32>,
    /// Attention weights of the tokens of the current group, before dropout.
    weights: Vec<f32>,
    /// Attention weights of the tokens of the current group, after dropout.
    used: Vec<f32>,
    /// Output rows of the tokens of the current group.
    out: Vec<f32>,
}

/// Additional buffers that only the backward pass needs.
struct BackwardWorkspace {
    /// Gradients with respect to the keys and the values: one row per token.
    grad_keys: Vec<f32>,
    grad_values: Vec<f32>,
    /// Gradients with respect to the output rows of the tokens of the current group.
    gradients: Vec<f32>,
    /// Gradients with respect to the attention weights of the current group, later replaced by those with respect to
    /// the scores.
    weight_gradients: Vec<f32>,
    /// Gradients with respect to the bias of the current head, by distance.
    grad_bias: Vec<f32>,
}

impl Workspace {
    fn new(tokens: usize, size: usize) -> Self {
        let (row, column) = (tokens.next_multiple_of(LANES), size.next_multiple_of(LANES));
        let [keys_by_column, values_by_column] = [row * size; 2].map(|n| vec![0.0; n]);
        let [keys, values] = [tokens * column; 2].map(|n| vec![0.0; n]);
        let [weights, used] = [GROUP * row; 2].map(|n| vec![0.0; n]);
        let [queries, out] = [GROUP * column; 2].map(|n| vec![0.0; n]);
        Workspace { row, column, keys_by_column, values_by_column, keys, values, queries, weights, used, out }
    }
}

/// For each `t < T`, computes `out[t]`, the sum of `a[t][c] · rows[c]` over all `c < count`. The rows of `out` and
/// `rows` have `row` elements. `a` has `GROUP` rows.
#[inline(always)]
fn combine<const T: usize>(out: &mut [f32], a: &[f32], rows: &[f32], row: usize, count: usize) {
    let (a_row, blocks) = (a.len() / GROUP, row / LANES);
    let (out, rows) = (out.as_chunks_mut::<LANES>().0, rows.as_chunks::<LANES>().0);
    for block in 0..blocks {
        let mut sums = [[0.0f32; LANES]; T];
        for c in 0..count {
            let x = &rows[c * blocks + block];
            for t in 0..T {
                let a = a[t * a_row + c];
                for lane in 0..LANES {
                    sums[t][lane] += a * x[lane];
                }
            }
        }
        for t in 0..T {
            out[t * blocks + block] = sums[t];
        }
    }
}

/// For each `j < count`, adds the sum of `a[t][j] · x[t]` over all `t < T` to `to[j]`. The rows of `to` and `x` have
/// `row` elements. `a` has `GROUP` rows.
#[inline(always)]
fn add_outer<const T: usize>(to: &mut [f32], a: &[f32], x: &[f32], row: usize, count: usize) {
    let (a_row, blocks) = (a.len() / GROUP, row / LANES);
    let (to, x) = (to.as_chunks_mut::<LANES>().0, x.as_chunks::<LANES>().0);
    for block in 0..blocks {
        let mut own = [[0.0f32; LANES]; T];
        for t in 0..T {
            own[t] = x[t * blocks + block];
        }
        for j in 0..count {
            let to = &mut to[j * blocks + block];
            let mut sums = *to;
            for t in 0..T {
                let a = a[t * a_row + j];
                for lane in 0..LANES {
                    sums[lane] += a * own[t][lane];
                }
            }
            *to = sums;
        }
    }
}

/// Runs `$body` for each group of [`GROUP`] tokens, and then for each of the remaining tokens alone. `$first` is the
/// first token of the group, and the constant `$size` is the number of its tokens.
macro_rules! each_group {
    ($tokens:expr, $first:ident, $size:ident, $body:expr) => {
        let whole = $tokens / GROUP * GROUP;
        for $first in (0..whole).step_by(GROUP) {
            const $size: usize = GROUP;
            $body;
        }
        for $first in whole..$tokens {
            const $size: usize = 1;
            $body;
        }
    };
}

impl Attended<'_> {
    fn tokens(&self) -> usize {
        self.projected.len() / (3 * self.width)
    }

    fn size(&self) -> usize {
        self.width / self.heads
    }

    /// Returns the offset in `projected` of the query (`part` 0), key (1) or value (2) of a token for a head.
    #[inline(always)]
    fn place(&self, token: usize, part: usize, head: usize) -> usize {
        token * 3 * self.width + part * self.width + head * self.size()
    }

    /// Copies the keys (`part` 1) or values (2) of a head to `by_token`, one row per token. If `by_column` is not
    /// `None`, also writes the transposed matrix to it: one row of length `row` per column.
    #[inline(always)]
    fn gather(
        &self,
        part: usize,
        head: usize,
        by_token: &mut [f32],
        by_column: Option<&mut [f32]>,
        row: usize,
    ) {
        let (tokens, size) = (self.tokens(), self.size());
        let column = by_token.len() / tokens;
        for token in 0..tokens {
            let at = self.place(token, part, head);
            by_token[token * column..][..size].copy_from_slice(&self.projected[at..at + size]);
        }
        let Some(by_column) = by_column else { return };
        for token in 0..tokens {
            for c in 0..size {
                by_column[c * row + token] = by_token[token * column + c];
            }
        }
    }

    /// Computes the attention weights of `T` tokens starting at `first`, before and after dropout.
    #[inline(always)]
    fn compute_weights<const T: usize>(&self, first: usize, head: usize, workspace: &mut Workspace) {
        let (tokens, size, row) = (self.tokens(), self.size(), workspace.row);
        let scale = 1.0 / (size as f32).sqrt();
        for t in 0..T {
            let at = self.place(first + t, 0, head);
            let to = &mut workspace.queries[t * workspace.column..][..size];
            for (to, from) in to.iter_mut().zip(&self.projected[at..at + size]) {
                *to = from * scale;
            }
        }
        combine::<T>(&mut workspace.weights, &workspace.queries, &workspace.keys_by_column, row, size);
        for t in 0..T {
            let weights = &mut workspace.weights[t * row..][..row];
            if let Some(bias) = self.bias {
                let bias = bias.row(head, first + t, tokens);
                weights.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
            }
            let mut most = f32::MIN;
            for weight in &weights[..tokens] {
                most = if *weight > most { *weight } else { most };
            }
            for block in weights.as_chunks_mut::<LANES>().0 {
                for weight in block {
                    *weight = activation::exp(*weight - most);
                }
            }
            weights[tokens..].fill(0.0);
            let inverse = 1.0 / sum(row, |j| weights[j]);
            for block in weights.as_chunks_mut::<LANES>().0 {
                for weight in block {
                    *weight *= inverse;
                }
            }
            let used = &mut workspace.used[t * row..][..row];
            match self.dropout {
                Some(dropout) => {
                    let first = ((head * tokens + first + t) * tokens) as u32;
                    let blocks =
                        used.as_chunks_mut::<LANES>().0.iter_mut().zip(weights.as_chunks::<LANES>().0);
                    for (block, (used, weights)) in blocks.enumerate() {
                        for lane in 0..LANES {
                            let place = first.wrapping_add((block * LANES + lane) as u32);
                            used[lane] = weights[lane] * dropout.factor(place);
                        }
                    }
                }
                None => used.copy_from_slice(weights),
            }
        }
    }

    /// Computes the attention output of `T` tokens starting at `first`, for one head.
    #[inline(always)]
    fn attend_group<const T: usize>(
        &self,
        first: usize,
        head: usize,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) {
        self.compute_weights::<T>(first, head, workspace);
        combine::<T>(&mut workspace.out, &workspace.used, &workspace.values, workspace.column, self.tokens());
        let size = self.size();
        for t in 0..T {
            let to = &mut out[(first + t) * self.width + head * size..][..size];
            to.copy_from_slice(&workspace.out[t * workspace.column..][..size]);
        }
    }

    /// Writes the gradients with respect to the queries of `T` tokens starting at `first`. Adds the contribution of
    /// these tokens to the gradients with respect to all keys and values.
    #[inline(always)]
    fn backward_group<const T: usize>(
        &self,
        (first, head): (usize, usize),
        gradient: &[f32],
        workspace: &mut Workspace,
        back: &mut BackwardWorkspace,
        grad_projected: &mut [f32],
    ) {
        self.compute_weights::<T>(first, head, workspace);
        let (tokens, size, row, column) = (self.tokens(), self.size(), workspace.row, workspace.column);
        for t in 0..T {
            let from = &gradient[(first + t) * self.width + head * size..][..size];
            back.gradients[t * column..][..size].copy_from_slice(from);
        }
        // Gradients with respect to the attention weights after dropout.
        combine::<T>(&mut back.weight_gradients, &back.gradients, &workspace.values_by_column, row, size);
        for t in 0..T {
            // Gradients with respect to the scores. Dropout multiplies the gradient of a weight by the same factor as
            // the weight.
            let weight_gradients = &mut back.weight_gradients[t * row..][..row];
            let (weights, used) = (&workspace.weights[t * row..][..row], &workspace.used[t * row..][..row]);
            let mean = sum(row, |j| weight_gradients[j] * used[j]);
            let blocks = weights.as_chunks::<LANES>().0.iter().zip(used.as_chunks::<LANES>().0);
            for (weight_gradients, (weights, used)) in
                weight_gradients.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks)
            {
                for lane in 0..LANES {
                    weight_gradients[lane] = weight_gradients[lane] * used[lane] - weights[lane] * mean;
                }
            }
            if self.bias.is_some() {
                let to = &mut back.grad_bias[tokens - 1 - (first + t)..];
                to.iter_mut().zip(&weight_gradients[..tokens]).for_each(|(to, from)| *to += from);
            }
        }
        combine::<T>(&mut workspace.out, &back.weight_gradients, &workspace.keys, column, tokens);
        let scale = 1.0 / (size as f32).sqrt();
        for t in 0..T {
            let at = self.place(first + t, 0, head);
            let grad_query = &workspace.out[t * column..][..size];
            for (to, from) in grad_projected[at..at + size].iter_mut().zip(grad_query) {
                *to = from * scale;
            }
        }
        add_outer::<T>(&mut back.grad_keys, &back.weight_gradients, &workspace.queries, column, tokens);
        add_outer::<T>(&mut back.grad_values, &workspace.used, &back.gradients, column, tokens);
    }
}

/// Computes self-attention. Writes the attention output to `out`: one row per token, with the outputs of the heads
/// concatenated.
pub fn attend(of: &Attended, out: &mut [f32]) {
    let (tokens, size) = (of.tokens(), of.size());
    assert!(of.projected.len() == tokens * 3 * of.width && out.len() == tokens * of.width);
    assert!(of.bias.is_none_or(|bias| bias.fits(of.heads, tokens)));
    if tokens == 0 {
        return;
    }
    let mut workspace = Workspace::new(tokens, size);
    vectorized(
        #[inline(always)]
        || {
            for head in 0..of.heads {
                of.gather(1, head, &mut workspace.keys, Some(&mut workspace.keys_by_column), workspace.row);
                of.gather(2, head, &mut workspace.values, None, workspace.row);
                each_group!(tokens, first, T, of.attend_group::<T>(first, head, &mut workspace, out));
            }
        },
    );
}

/// Writes the gradients with respect to the queries, keys and values to `grad_projected`, in the layout of
/// [`Attended::projected`]. `gradient` is the gradient with respect to the attention output. If there is a bias, adds the
/// gradient with respect to the table of [`RelativeBias`] to `grad_bias`.
pub fn attend_backward(
    of: &Attended,
    gradient: &[f32],
    grad_projected: &mut [f32],
    grad_bias: Option<&mut [f32]>,
) {
    let (tokens, size) = (of.tokens(), of.size());
    assert!(gradient.len() == tokens * of.width && grad_projected.len() == of.projected.len());
    assert!(of.bias.is_none_or(|bias| bias.fits(of.heads, tokens)));
    let mut grad_bias = grad_bias.filter(|_| of.bias.is_some());
    if tokens == 0 {
        return;
    }
    let mut workspace = Workspace::new(tokens, size);
    let mut back = BackwardWorkspace {
        grad_keys: vec![0.0; workspace.keys.len()],
        grad_values: vec![0.0; workspace.keys.len()],
        gradients: vec![0.0; workspace.queries.len()],
        weight_gradients: vec![0.0; workspace.weights.len()],
        grad_bias: if of.bias.is_some() { vec![0.0; 2 * tokens - 1] } else { Vec::new() },
    };
    vectorized(
        #[inline(always)]
        || {
            for head in 0..of.heads {
                of.gather(1, head, &mut workspace.keys, Some(&mut workspace.keys_by_column), workspace.row);
                let values_by_column = Some(&mut workspace.values_by_column[..]);
                of.gather(2, head, &mut workspace.values, values_by_column, workspace.row);
                back.grad_keys.fill(0.0);
                back.grad_values.fill(0.0);
                back.grad_bias.fill(0.0);
                each_group!(tokens, first, T, {
                    let group = (first, head);
                    of.backward_group::<T>(group, gradient, &mut workspace, &mut back, grad_projected)
                });
                if let Some(of_table) = &mut grad_bias {
                    RelativeBias::add_gradient(of_table, head, &back.grad_bias);
                }
                for token in 0..tokens {
                    for (part, from) in [(1, &back.grad_keys), (2, &back.grad_values)] {
                        let at = of.place(token, part, head);
                        grad_projected[at..at + size]
                            .copy_from_slice(&from[token * workspace.column..][..size]);
                    }
                }
            }
        },
    );
}
