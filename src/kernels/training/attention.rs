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

/// What one head works on. Rows over the tokens are filled up to whole vectors, with zeros.
struct Room {
    /// The length of such a row.
    row: usize,
    /// Keys and values, a row a column of the head.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// The weights of a token, as they are and as they are used.
    weights: Vec<f32>,
    used: Vec<f32>,
    /// Gradients of the weights.
    slopes: Vec<f32>,
}

impl Room {
    fn new(tokens: usize, size: usize) -> Self {
        let row = tokens.next_multiple_of(LANES);
        let [keys, values] = [row * size; 2].map(|n| vec![0.0; n]);
        let [weights, used, slopes] = [row; 3].map(|n| vec![0.0; n]);
        Room { row, keys, values, weights, used, slopes }
    }
}

/// `to += a·x`.
#[inline(always)]
fn add(to: &mut [f32], a: f32, x: &[f32]) {
    let ((to, to_rest), (x, x_rest)) = (to.as_chunks_mut::<LANES>(), x.as_chunks::<LANES>());
    for (to, x) in to.iter_mut().zip(x) {
        for lane in 0..LANES {
            to[lane] += a * x[lane];
        }
    }
    for (to, x) in to_rest.iter_mut().zip(x_rest) {
        *to += a * x;
    }
}

/// `out[j] = Σ a[c]·rows[c][j]`, for rows of whole vectors.
#[inline(always)]
fn combine(out: &mut [f32], a: &[f32], scale: f32, rows: &[f32]) {
    let row = out.len();
    for (block, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut sums = [0.0f32; LANES];
        for (c, a) in a.iter().enumerate() {
            let (a, at) = (a * scale, c * row + block * LANES);
            let x = &rows[at..at + LANES];
            for lane in 0..LANES {
                sums[lane] += a * x[lane];
            }
        }
        *out = sums;
    }
}

impl Attended<'_> {
    fn tokens(&self) -> usize {
        self.projected.len() / (3 * self.width)
    }

    /// Where the part (0: queries, 1: keys, 2: values) of a head begins, of a token.
    #[inline(always)]
    fn place(&self, token: usize, part: usize, head: usize) -> usize {
        token * 3 * self.width + part * self.width + head * (self.width / self.heads)
    }

    #[inline(always)]
    fn by_column(&self, part: usize, head: usize, row: usize, out: &mut [f32]) {
        let size = self.width / self.heads;
        for token in 0..self.tokens() {
            let at = self.place(token, part, head);
            for (c, number) in self.projected[at..at + size].iter().enumerate() {
                out[c * row + token] = *number;
            }
        }
    }

    /// The weights that a token gives to all.
    #[inline(always)]
    fn weigh(&self, token: usize, head: usize, room: &mut Room) {
        let (tokens, size) = (self.tokens(), self.width / self.heads);
        let at = self.place(token, 0, head);
        let weights = &mut room.weights[..];
        combine(weights, &self.projected[at..at + size], 1.0 / (size as f32).sqrt(), &room.keys);
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
        let inverse = 1.0 / sum(room.row, |j| weights[j]);
        for block in weights.as_chunks_mut::<LANES>().0 {
            for weight in block {
                *weight *= inverse;
            }
        }
        match self.dropout {
            Some(dropout) => {
                let first = ((head * tokens + token) * tokens) as u32;
                let blocks =
                    room.used.as_chunks_mut::<LANES>().0.iter_mut().zip(weights.as_chunks::<LANES>().0);
                for (block, (used, weights)) in blocks.enumerate() {
                    for lane in 0..LANES {
                        let place = first.wrapping_add((block * LANES + lane) as u32);
                        used[lane] = weights[lane] * dropout.factor(place);
                    }
                }
            }
            None => room.used.copy_from_slice(weights),
        }
    }
}

/// Writes what each token takes from all: a row of all heads.
pub fn attend(of: &Attended, out: &mut [f32]) {
    let (tokens, size) = (of.tokens(), of.width / of.heads);
    assert!(of.projected.len() == tokens * 3 * of.width && out.len() == tokens * of.width);
    let mut room = Room::new(tokens, size);
    vectorised(
        #[inline(always)]
        || {
            for head in 0..of.heads {
                of.by_column(1, head, room.row, &mut room.keys);
                for token in 0..tokens {
                    of.weigh(token, head, &mut room);
                    let at = token * of.width + head * size;
                    let out = &mut out[at..at + size];
                    out.fill(0.0);
                    for (j, weight) in room.used[..tokens].iter().enumerate() {
                        let at = of.place(j, 2, head);
                        add(out, *weight, &of.projected[at..at + size]);
                    }
                }
            }
        },
    );
}

/// Writes the gradient of queries, keys and values.
pub fn attend_backward(of: &Attended, gradient: &[f32], of_projected: &mut [f32]) {
    let (tokens, size) = (of.tokens(), of.width / of.heads);
    assert!(gradient.len() == tokens * of.width && of_projected.len() == of.projected.len());
    let mut room = Room::new(tokens, size);
    let mut of_query = vec![0.0; size];
    let scale = 1.0 / (size as f32).sqrt();
    vectorised(
        #[inline(always)]
        || {
            of_projected.fill(0.0);
            for head in 0..of.heads {
                of.by_column(1, head, room.row, &mut room.keys);
                of.by_column(2, head, room.row, &mut room.values);
                for token in 0..tokens {
                    of.weigh(token, head, &mut room);
                    let at = token * of.width + head * size;
                    let gradient = &gradient[at..at + size];
                    // Of the weights as they were used.
                    combine(&mut room.slopes, gradient, 1.0, &room.values);
                    // Of the scores: what dropout did to a weight it does to its gradient.
                    let (slopes, weights, used) = (&mut room.slopes[..], &room.weights[..], &room.used[..]);
                    let mean = sum(room.row, |j| slopes[j] * used[j]);
                    let blocks = weights.as_chunks::<LANES>().0.iter().zip(used.as_chunks::<LANES>().0);
                    for (slopes, (weights, used)) in slopes.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks)
                    {
                        for lane in 0..LANES {
                            slopes[lane] = (slopes[lane] * used[lane] - weights[lane] * mean) * scale;
                        }
                    }
                    let at = of.place(token, 0, head);
                    let query = &of.projected[at..at + size];
                    of_query.fill(0.0);
                    for j in 0..tokens {
                        let (slope, used, key, value) =
                            (slopes[j], used[j], of.place(j, 1, head), of.place(j, 2, head));
                        add(&mut of_query, slope, &of.projected[key..key + size]);
                        add(&mut of_projected[key..key + size], slope, query);
                        add(&mut of_projected[value..value + size], used, gradient);
                    }
                    of_projected[at..at + size].copy_from_slice(&of_query);
                }
            }
        },
    );
}
