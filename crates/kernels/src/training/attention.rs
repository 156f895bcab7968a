//! Attention of the tokens of one sequence to each other, with the way back.
//!
//! Nothing is kept for the way back: scores are made again from queries and keys.

use super::{Dropout, LANES, scalar, sum, vectorised};

/// A sequence of tokens that attend to each other.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a> {
    /// A row a token: queries, keys and values of all heads, side by side.
    pub projected: &'a [f32],
    /// How many heads.
    pub heads: usize,
    /// Their width, all together.
    pub width: usize,
    /// What is done to the weights.
    pub dropout: Option<Dropout>,
}

/// Tokens that are worked on at the same time: what is loaded for one serves all.
const TOGETHER: usize = 4;

/// What one head works on. Rows are filled up to whole vectors, with zeros.
struct Room {
    /// The length of a row over the tokens, and of one over the columns of the head.
    row: usize,
    column: usize,
    /// Keys and values, a row a column of the head.
    keys_by_column: Vec<f32>,
    values_by_column: Vec<f32>,
    /// The same, a row a token.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Of the tokens that are worked on: queries, multiplied already, and the weights as they are and as they are used.
    queries: Vec<f32>,
    weights: Vec<f32>,
    used: Vec<f32>,
    /// What a row over the columns is made in.
    out: Vec<f32>,
}

/// What the way back needs besides.
struct Back {
    /// Gradients of keys and values, a row a token.
    of_keys: Vec<f32>,
    of_values: Vec<f32>,
    /// Gradients of what the tokens that are worked on took, and of their weights.
    gradients: Vec<f32>,
    slopes: Vec<f32>,
}

impl Room {
    fn new(tokens: usize, size: usize) -> Self {
        let (row, column) = (tokens.next_multiple_of(LANES), size.next_multiple_of(LANES));
        let [keys_by_column, values_by_column] = [row * size; 2].map(|n| vec![0.0; n]);
        let [keys, values] = [tokens * column; 2].map(|n| vec![0.0; n]);
        let [weights, used] = [TOGETHER * row; 2].map(|n| vec![0.0; n]);
        let [queries, out] = [TOGETHER * column; 2].map(|n| vec![0.0; n]);
        Room { row, column, keys_by_column, values_by_column, keys, values, queries, weights, used, out }
    }
}

impl Back {
    fn new(room: &Room) -> Self {
        let [of_keys, of_values] = [room.keys.len(); 2].map(|n| vec![0.0; n]);
        let (gradients, slopes) = (vec![0.0; room.queries.len()], vec![0.0; room.weights.len()]);
        Back { of_keys, of_values, gradients, slopes }
    }
}

/// `out[t] = Σ a[t][c]·rows[c]` for `count` rows of whole vectors. Rows of `a` lie as far apart as there is room for.
#[inline(always)]
fn combine<const T: usize>(out: &mut [f32], a: &[f32], rows: &[f32], row: usize, count: usize) {
    let (a_row, blocks) = (a.len() / TOGETHER, row / LANES);
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

/// `to[j] += Σ a[t][j]·x[t]` for `count` rows of whole vectors.
#[inline(always)]
fn spread<const T: usize>(to: &mut [f32], a: &[f32], x: &[f32], row: usize, count: usize) {
    let (a_row, blocks) = (a.len() / TOGETHER, row / LANES);
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

impl Attended<'_> {
    fn tokens(&self) -> usize {
        self.projected.len() / (3 * self.width)
    }

    fn size(&self) -> usize {
        self.width / self.heads
    }

    /// Where the part (0: queries, 1: keys, 2: values) of a head begins, of a token.
    #[inline(always)]
    fn place(&self, token: usize, part: usize, head: usize) -> usize {
        token * 3 * self.width + part * self.width + head * self.size()
    }

    /// Lays out a part of a head: a row a token, and a row a column where that is asked for.
    #[inline(always)]
    fn lay_out(
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

    /// The weights that tokens give to all.
    #[inline(always)]
    fn weigh<const T: usize>(&self, first: usize, head: usize, room: &mut Room) {
        let (tokens, size, row) = (self.tokens(), self.size(), room.row);
        let scale = 1.0 / (size as f32).sqrt();
        for t in 0..T {
            let at = self.place(first + t, 0, head);
            let to = &mut room.queries[t * room.column..][..size];
            for (to, from) in to.iter_mut().zip(&self.projected[at..at + size]) {
                *to = from * scale;
            }
        }
        combine::<T>(&mut room.weights, &room.queries, &room.keys_by_column, row, size);
        for t in 0..T {
            let weights = &mut room.weights[t * row..][..row];
            let mut most = f32::MIN;
            for weight in &weights[..tokens] {
                most = if *weight > most { *weight } else { most };
            }
            for block in weights.as_chunks_mut::<LANES>().0 {
                for weight in block {
                    *weight = scalar::exp(*weight - most);
                }
            }
            weights[tokens..].fill(0.0);
            let inverse = 1.0 / sum(row, |j| weights[j]);
            for block in weights.as_chunks_mut::<LANES>().0 {
                for weight in block {
                    *weight *= inverse;
                }
            }
            let used = &mut room.used[t * row..][..row];
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

    /// What tokens take from all.
    #[inline(always)]
    fn take<const T: usize>(&self, first: usize, head: usize, room: &mut Room, out: &mut [f32]) {
        self.weigh::<T>(first, head, room);
        combine::<T>(&mut room.out, &room.used, &room.values, room.column, self.tokens());
        let size = self.size();
        for t in 0..T {
            let to = &mut out[(first + t) * self.width + head * size..][..size];
            to.copy_from_slice(&room.out[t * room.column..][..size]);
        }
    }

    /// Writes the gradients of tokens' queries, and adds to those of all keys and values.
    #[inline(always)]
    fn back<const T: usize>(
        &self,
        (first, head): (usize, usize),
        gradient: &[f32],
        room: &mut Room,
        back: &mut Back,
        of_projected: &mut [f32],
    ) {
        self.weigh::<T>(first, head, room);
        let (tokens, size, row, column) = (self.tokens(), self.size(), room.row, room.column);
        for t in 0..T {
            let from = &gradient[(first + t) * self.width + head * size..][..size];
            back.gradients[t * column..][..size].copy_from_slice(from);
        }
        // Of the weights as they were used.
        combine::<T>(&mut back.slopes, &back.gradients, &room.values_by_column, row, size);
        for t in 0..T {
            // Of the scores: what dropout did to a weight it does to its gradient.
            let slopes = &mut back.slopes[t * row..][..row];
            let (weights, used) = (&room.weights[t * row..][..row], &room.used[t * row..][..row]);
            let mean = sum(row, |j| slopes[j] * used[j]);
            let blocks = weights.as_chunks::<LANES>().0.iter().zip(used.as_chunks::<LANES>().0);
            for (slopes, (weights, used)) in slopes.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks) {
                for lane in 0..LANES {
                    slopes[lane] = slopes[lane] * used[lane] - weights[lane] * mean;
                }
            }
        }
        combine::<T>(&mut room.out, &back.slopes, &room.keys, column, tokens);
        let scale = 1.0 / (size as f32).sqrt();
        for t in 0..T {
            let at = self.place(first + t, 0, head);
            let of_query = &room.out[t * column..][..size];
            for (to, from) in of_projected[at..at + size].iter_mut().zip(of_query) {
                *to = from * scale;
            }
        }
        spread::<T>(&mut back.of_keys, &back.slopes, &room.queries, column, tokens);
        spread::<T>(&mut back.of_values, &room.used, &back.gradients, column, tokens);
    }
}

/// Writes what each token takes from all: a row of all heads.
pub fn attend(of: &Attended, out: &mut [f32]) {
    let (tokens, size) = (of.tokens(), of.size());
    assert!(of.projected.len() == tokens * 3 * of.width && out.len() == tokens * of.width);
    if tokens == 0 {
        return;
    }
    let mut room = Room::new(tokens, size);
    vectorised(
        #[inline(always)]
        || {
            for head in 0..of.heads {
                of.lay_out(1, head, &mut room.keys, Some(&mut room.keys_by_column), room.row);
                of.lay_out(2, head, &mut room.values, None, room.row);
                let whole = tokens / TOGETHER * TOGETHER;
                for first in (0..whole).step_by(TOGETHER) {
                    of.take::<TOGETHER>(first, head, &mut room, out);
                }
                for first in whole..tokens {
                    of.take::<1>(first, head, &mut room, out);
                }
            }
        },
    );
}

/// Writes the gradient of queries, keys and values.
pub fn attend_backward(of: &Attended, gradient: &[f32], of_projected: &mut [f32]) {
    let (tokens, size) = (of.tokens(), of.size());
    assert!(gradient.len() == tokens * of.width && of_projected.len() == of.projected.len());
    if tokens == 0 {
        return;
    }
    let mut room = Room::new(tokens, size);
    let mut back = Back::new(&room);
    vectorised(
        #[inline(always)]
        || {
            for head in 0..of.heads {
                of.lay_out(1, head, &mut room.keys, Some(&mut room.keys_by_column), room.row);
                of.lay_out(2, head, &mut room.values, Some(&mut room.values_by_column), room.row);
                back.of_keys.fill(0.0);
                back.of_values.fill(0.0);
                let whole = tokens / TOGETHER * TOGETHER;
                for first in (0..whole).step_by(TOGETHER) {
                    of.back::<TOGETHER>((first, head), gradient, &mut room, &mut back, of_projected);
                }
                for first in whole..tokens {
                    of.back::<1>((first, head), gradient, &mut room, &mut back, of_projected);
                }
                for token in 0..tokens {
                    for (part, from) in [(1, &back.of_keys), (2, &back.of_values)] {
                        let at = of.place(token, part, head);
                        of_projected[at..at + size].copy_from_slice(&from[token * room.column..][..size]);
                    }
                }
            }
        },
    );
}
