//! Attention of the tokens of one sequence to each other, with the way back.
//!
//! Nothing is kept for the way back: scores are made again from queries and keys.

use super::{Dropout, scalar, sum, vectorised};

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

/// What one head works on.
struct Room {
    /// Keys and values by column.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// A row of weights, as they are and as they are used.
    weights: Vec<f32>,
    used: Vec<f32>,
    /// Gradients of a row of weights.
    slopes: Vec<f32>,
}

impl Room {
    fn new(tokens: usize, size: usize) -> Self {
        let [keys, values] = [tokens * size; 2].map(|n| vec![0.0; n]);
        let [weights, used, slopes] = [tokens; 3].map(|n| vec![0.0; n]);
        Room { keys, values, weights, used, slopes }
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
    fn by_column(&self, part: usize, head: usize, out: &mut [f32]) {
        let (tokens, size) = (self.tokens(), self.width / self.heads);
        for token in 0..tokens {
            let at = self.place(token, part, head);
            for c in 0..size {
                out[c * tokens + token] = self.projected[at + c];
            }
        }
    }

    /// The weights that a token gives to all.
    #[inline(always)]
    fn weigh(&self, token: usize, head: usize, room: &mut Room) {
        let (tokens, size) = (self.tokens(), self.width / self.heads);
        let at = self.place(token, 0, head);
        let query = &self.projected[at..at + size];
        let weights = &mut room.weights[..tokens];
        let scale = 1.0 / (size as f32).sqrt();
        weights.fill(0.0);
        for c in 0..size {
            let (q, keys) = (query[c] * scale, &room.keys[c * tokens..(c + 1) * tokens]);
            for j in 0..tokens {
                weights[j] += q * keys[j];
            }
        }
        let mut most = f32::MIN;
        for j in 0..tokens {
            most = if weights[j] > most { weights[j] } else { most };
        }
        for j in 0..tokens {
            weights[j] = scalar::exp(weights[j] - most);
        }
        let inverse = 1.0 / sum(tokens, |j| weights[j]);
        for j in 0..tokens {
            weights[j] *= inverse;
        }
        let used = &mut room.used[..tokens];
        match self.dropout {
            Some(dropout) => {
                let first = ((head * tokens + token) * tokens) as u32;
                for j in 0..tokens {
                    used[j] = weights[j] * dropout.factor(first.wrapping_add(j as u32));
                }
            }
            None => used.copy_from_slice(weights),
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
                of.by_column(1, head, &mut room.keys);
                for token in 0..tokens {
                    of.weigh(token, head, &mut room);
                    let at = token * of.width + head * size;
                    let out = &mut out[at..at + size];
                    out.fill(0.0);
                    for j in 0..tokens {
                        let (weight, at) = (room.used[j], of.place(j, 2, head));
                        let value = &of.projected[at..at + size];
                        for c in 0..size {
                            out[c] += weight * value[c];
                        }
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
    let scale = 1.0 / (size as f32).sqrt();
    vectorised(
        #[inline(always)]
        || {
            of_projected.fill(0.0);
            for head in 0..of.heads {
                of.by_column(1, head, &mut room.keys);
                of.by_column(2, head, &mut room.values);
                for token in 0..tokens {
                    of.weigh(token, head, &mut room);
                    let at = token * of.width + head * size;
                    let gradient = &gradient[at..at + size];
                    // Of the values, and of the weights as they were used.
                    let slopes = &mut room.slopes[..tokens];
                    slopes.fill(0.0);
                    for c in 0..size {
                        let (g, values) = (gradient[c], &room.values[c * tokens..(c + 1) * tokens]);
                        for j in 0..tokens {
                            slopes[j] += g * values[j];
                        }
                    }
                    for j in 0..tokens {
                        let (weight, at) = (room.used[j], of.place(j, 2, head));
                        let of_value = &mut of_projected[at..at + size];
                        for c in 0..size {
                            of_value[c] += weight * gradient[c];
                        }
                    }
                    // Of the scores: what dropout did to a weight it does to its gradient.
                    let (weights, used) = (&room.weights[..tokens], &room.used[..tokens]);
                    let mean = sum(tokens, |j| slopes[j] * used[j]);
                    for j in 0..tokens {
                        slopes[j] = (slopes[j] * used[j] - weights[j] * mean) * scale;
                    }
                    let at = of.place(token, 0, head);
                    for j in 0..tokens {
                        let (slope, key) = (slopes[j], of.place(j, 1, head));
                        for c in 0..size {
                            of_projected[at + c] += slope * of.projected[key + c];
                        }
                        for c in 0..size {
                            of_projected[key + c] += slope * of.projected[at + c];
                        }
                    }
                }
            }
        },
    );
}
