//! What an utterance is for shows in what is said around it: a linear layer, learned from dialogues without a step of
//! gradients, under which utterances are the more alike the more alike their surroundings are.
//!
//! Of every turn its vector `x` is put beside the mean `y` of the vectors of the turns next to it. What `x` tells of `y`, by a
//! linear map and with the directions of `y` made equally long, is `Sy^-½ Syx Sx^-1 x`, with the covariances drawn half of
//! the way to the identity. Two utterances are to be alike by what they are and by what they tell: the layer is
//!
//! `W = ((1 - strength)·1 + strength·t²·G)^½`, `G = Sx^-1 Sxy Sy^-1 Syx Sx^-1`, of `x - mean`,
//!
//! where `t` makes both parts equally long over all utterances. The dot product of two vectors behind it is that of the vectors before
//! it, and that of what they tell, by these shares. What two vectors share that has nothing to do with the dialogue, such as the length
//! of a sentence, tells nothing of other turns, and counts less.
//!
//! How much is told is found on the way: the correlations of canonical correlation analysis are the singular values of
//! `Sx^-½ Sxy Sy^-½`, and those of what chance tells are the same with the turns around another utterance. Only sums are kept,
//! so that a corpus may be of any length.

#[cfg(test)]
mod tests;

use super::scatter;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Vectors, statics::eigen};

/// How far covariances are drawn towards the identity.
const SHRINKAGE: f64 = 0.5;

/// Utterances beside what is said around them, at least, for something to be learned.
const LEAST: f64 = 200.0;

/// Rounds in which the greatest of what chance tells is found.
const ROUNDS: usize = 300;

/// Sums over the utterances of one corpus, and what is said around them.
pub struct Sums {
    dim: usize,
    context: usize,
    /// Utterances with something around them.
    pairs: f64,
    own: Vec<f64>,
    around: Vec<f64>,
    own_own: Vec<f64>,
    around_around: Vec<f64>,
    own_around: Vec<f64>,
    /// With what is said around another.
    own_elsewhere: Vec<f64>,
}

impl Sums {
    /// Of vectors of that width; so many turns before and after one are around it.
    pub fn new(dim: usize, context: usize) -> Self {
        let (vector, matrix) = (vec![0.0; dim], vec![0.0; dim * dim]);
        Sums {
            dim,
            context,
            pairs: 0.0,
            own: vector.clone(),
            around: vector,
            own_own: matrix.clone(),
            around_around: matrix.clone(),
            own_around: matrix.clone(),
            own_elsewhere: matrix,
        }
    }

    /// Adds dialogues: the vectors of their turns one after the other, and how many turns each has.
    pub fn add(&mut self, vectors: &Vectors, turns: &[usize]) {
        let (own, mut around) = self.beside(vectors, turns);
        let pairs = own.len() / self.dim.max(1);
        if pairs == 0 {
            return;
        }
        self.pairs += pairs as f64;
        for (sums, rows) in [(&mut self.own, &own), (&mut self.around, &around)] {
            for row in rows.chunks_exact(self.dim) {
                sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += f64::from(*number));
            }
        }
        add(&mut self.own_own, &scatter::within(&own, self.dim));
        add(&mut self.around_around, &scatter::within(&around, self.dim));
        add(&mut self.own_around, &scatter::between(&own, &around, self.dim));
        // Half of all further on: another dialogue, where there are several.
        around.rotate_left(pairs / 2 * self.dim);
        add(&mut self.own_elsewhere, &scatter::between(&own, &around, self.dim));
    }

    /// The vectors of the turns that have something around them, and the means of what they have.
    fn beside(&self, vectors: &Vectors, turns: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let (mut own, mut around) = (Vec::new(), Vec::new());
        let mut begin = 0;
        for count in turns {
            for turn in (0..*count).filter(|_| *count > 1) {
                let nearby = turn.saturating_sub(self.context)..(turn + self.context + 1).min(*count);
                let others = (nearby.len() - 1) as f32;
                own.extend_from_slice(vectors.row(begin + turn));
                let mean = around.len();
                around.resize(mean + self.dim, 0.0);
                for other in nearby.filter(|other| *other != turn) {
                    let row = vectors.row(begin + other);
                    around[mean..].iter_mut().zip(row).for_each(|(mean, number)| *mean += number / others);
                }
            }
            begin += count;
        }
        (own, around)
    }
}

fn add(sums: &mut [f64], more: &[f64]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// What was learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// A row an output.
    pub weight: Vec<f32>,
    /// A number an output.
    pub bias: Vec<f32>,
    /// How much each canonical direction tells of what is said around, from 1 (all) to 0, falling.
    pub told: Vec<f64>,
    /// How much the most telling direction tells of what is said elsewhere.
    pub by_chance: f64,
}

/// Learns the layer from corpora, each about its own mean: what is common to one is not what its dialogues tell. What
/// utterances tell counts `strength`, what they are the rest.
pub fn learn(corpora: &[Sums], strength: f64) -> Result<Layer> {
    let dim = corpora.first().map_or(0, |sums| sums.dim);
    let pairs: f64 = corpora.iter().map(|sums| sums.pairs).sum();
    if pairs < LEAST {
        return Err(Error::data(format!(
            "too few utterances with others around them to learn from: {pairs}"
        ))
        .with_hint(format!(
            "it takes {LEAST} at least, in dialogues of more than one turn, and goes well with some thousands"
        )));
    }
    let whole = |matrix: fn(&Sums) -> &[f64], left: fn(&Sums) -> &[f64], right: fn(&Sums) -> &[f64]| {
        let mut joined = vec![0.0; dim * dim];
        for sums in corpora.iter().filter(|sums| sums.pairs > 0.0) {
            let (left, right) = (left(sums), right(sums));
            for (at, (joined, sum)) in joined.iter_mut().zip(matrix(sums)).enumerate() {
                *joined += (sum - left[at / dim] * right[at % dim] / sums.pairs) / pairs;
            }
        }
        joined
    };
    let spread = whole(|s| &s.own_own, |s| &s.own, |s| &s.own);
    let own = drawn(spread.clone(), dim);
    let around = drawn(whole(|s| &s.around_around, |s| &s.around, |s| &s.around), dim);
    let (own, around) = (scatter::inverse_root(own, dim), scatter::inverse_root(around, dim));
    let whitened = |cross: Vec<f64>| scatter::times(&scatter::times(&own, &cross, dim), &around, dim);
    let cross = whitened(whole(|s| &s.own_around, |s| &s.own, |s| &s.around));
    let elsewhere = whitened(whole(|s| &s.own_elsewhere, |s| &s.own, |s| &s.around));
    let told_of = scatter::times(&cross, &scatter::transposed(&cross, dim), dim);
    let found = eigen::symmetric(told_of.clone(), dim);
    let told: Vec<f64> = found.values.iter().map(|value| value.max(0.0).sqrt()).collect();
    let by_chance = greatest(&elsewhere, dim);
    if told.first().is_none_or(|most| *most <= by_chance) {
        return Err(Error::data("what is said around utterances tells nothing of them in these dialogues")
            .with_hint(
                "are their turns in order, and more than one each? `turnwise corpus show` shows them",
            ));
    }
    let telling = scatter::times(&scatter::times(&own, &told_of, dim), &own, dim);
    let weight = scatter::root(mixed(telling, &spread, dim, strength), dim);
    let mean: Vec<f64> =
        (0..dim).map(|at| corpora.iter().map(|sums| sums.own[at]).sum::<f64>() / pairs).collect();
    let bias =
        weight.chunks_exact(dim).map(|row| -row.iter().zip(&mean).map(|(a, b)| a * b).sum::<f64>() as f32);
    let bias = bias.collect();
    Ok(Layer { weight: weight.into_iter().map(|number| number as f32).collect(), bias, told, by_chance })
}

/// The identity and a metric by their shares, equally long over vectors that are spread so.
fn mixed(mut metric: Vec<f64>, spread: &[f64], dim: usize, share: f64) -> Vec<f64> {
    let before = scatter::mean_variance(spread, dim);
    let after = scatter::mean_variance(&scatter::times(&metric, spread, dim), dim).max(1e-12);
    for (at, number) in metric.iter_mut().enumerate() {
        let one = if at % (dim + 1) == 0 { 1.0 } else { 0.0 };
        *number = (1.0 - share) * one + share * *number * before / after;
    }
    metric
}

/// A covariance about its mean variance, drawn towards the identity.
fn drawn(mut covariance: Vec<f64>, dim: usize) -> Vec<f64> {
    // What says the same everywhere has none.
    let scale = scatter::mean_variance(&covariance, dim).max(1e-12);
    for (at, number) in covariance.iter_mut().enumerate() {
        let own = if at % (dim + 1) == 0 { SHRINKAGE } else { 0.0 };
        *number = (1.0 - SHRINKAGE) * *number / scale + own;
    }
    // Its scale is given back: how much one tells of the other does not hang on it.
    covariance.iter_mut().for_each(|number| *number *= scale / (1.0 - SHRINKAGE));
    covariance
}

/// The greatest singular value of a matrix.
fn greatest(matrix: &[f64], dim: usize) -> f64 {
    let columns = scatter::transposed(matrix, dim);
    let dot = |rows: &[f64], vector: &[f64]| -> Vec<f64> {
        rows.chunks_exact(dim).map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
    };
    let mut vector: Vec<f64> = (0..dim).map(|n| 1.0 + (n as f64).sin()).collect();
    let mut length = 0.0;
    for _ in 0..ROUNDS {
        vector = dot(&columns, &dot(matrix, &vector));
        length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 {
            return 0.0;
        }
        vector.iter_mut().for_each(|v| *v /= length);
    }
    length.sqrt()
}
