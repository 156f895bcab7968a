//! Context CCA: a linear layer that gives similar vectors to utterances with similar contexts. It is learned in closed
//! form by canonical correlation analysis (CCA).
//!
//! The context of an utterance is its neighboring turns. `x` is the vector of an utterance and `y` the mean vector of
//! its context. The linear prediction of the whitened `y` from `x` is `Sy^-½ Syx Sx^-1 x`, with the covariances `S`.
//! The mean variance is added to the diagonals of `Sx` and `Sy` (shrinkage). The layer combines the original vector
//! with this prediction:
//!
//! `W = ((1 - strength)·1 + strength·t²·G)^½`, `G = Sx^-1 Sxy Sy^-1 Syx Sx^-1`, applied to `x - mean`.
//!
//! The factor `t` makes the mean squared norm of the predictions equal to that of the original vectors. The dot product
//! after the layer is thus a weighted sum of two dot products: of the original vectors and of their predictions.
//! Properties that do not predict the context, such as the length of a sentence, get a lower weight.
//!
//! The singular values of `Sx^-½ Sxy Sy^-½` are the canonical correlations between utterances and contexts. The random
//! baseline is computed in the same way, with the contexts of other utterances. Only sums over a corpus are stored, so
//! a corpus can have any size.

#[cfg(test)]
mod tests;

use super::{
    objectives::{Definition, definition::Role},
    scatter,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Vectors, statics::linalg};

pub static CONTEXT_CCA: Definition = Definition {
    name: "context-cca",
    former_name: Some("surroundings"),
    about: "utterances: those with similar turns before and after them get similar vectors; a linear layer in closed form, no \
            training steps",
    role: Role::Main,
    ..Definition::DEFAULT
};

/// Weight of the identity matrix in the shrunk covariances, from 0 to 1.
const SHRINKAGE: f64 = 0.5;

/// Minimum number of utterances with a context.
const MIN_PAIRS: f64 = 200.0;

/// Number of power iterations for the largest singular value.
const ITERATIONS: usize = 300;

/// Sums over the utterances of one corpus and their contexts.
pub struct Sums {
    dim: usize,
    context: usize,
    /// Number of utterances with at least one context turn.
    pairs: f64,
    /// Sum of the utterance vectors.
    own: Vec<f64>,
    /// Sum of the context vectors.
    around: Vec<f64>,
    /// Sum of the outer products of utterance vectors with themselves.
    own_own: Vec<f64>,
    /// Sum of the outer products of context vectors with themselves.
    around_around: Vec<f64>,
    /// Sum of the outer products of utterance vectors with their context vectors.
    own_around: Vec<f64>,
    /// Sum of the outer products of utterance vectors with context vectors of other utterances.
    own_elsewhere: Vec<f64>,
}

impl Sums {
    /// Creates empty sums for vectors with `dim` dimensions and `context` context turns on each side.
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

    /// Adds dialogues. `vectors` has the vectors of all their turns, and `turns` the number of turns of each dialogue.
    pub fn add(&mut self, vectors: &Vectors, turns: &[usize]) {
        let (own, mut around) = self.pairs_of(vectors, turns);
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
        add(&mut self.own_own, &scatter::gram(&own, self.dim));
        add(&mut self.around_around, &scatter::gram(&around, self.dim));
        add(&mut self.own_around, &scatter::cross_product(&own, &around, self.dim));
        // A shift by half of the rows combines utterances with contexts of other dialogues.
        around.rotate_left(pairs / 2 * self.dim);
        add(&mut self.own_elsewhere, &scatter::cross_product(&own, &around, self.dim));
    }

    /// Returns the vectors of all turns that have a context, and the mean vectors of their contexts.
    fn pairs_of(&self, vectors: &Vectors, turns: &[usize]) -> (Vec<f32>, Vec<f32>) {
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

/// Linear layer that is learned in closed form from utterances and their contexts.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Weight matrix, one row per output.
    pub weight: Vec<f32>,
    /// Bias, one element per output.
    pub bias: Vec<f32>,
    /// Canonical correlations between utterances and their contexts, from 0 to 1, in descending order.
    pub correlations: Vec<f64>,
    /// Random baseline: the largest correlation between utterances and unrelated contexts.
    pub baseline: f64,
}

/// Learns the layer from several corpora. Each corpus is centered on its own mean, so that its overall topic has no
/// effect. Returns an error if there are too few contexts, or if no correlation exceeds the random baseline.
///
/// `strength` is the weight of the context prediction, from 0 to 1. The weight of the original vectors is `1 -
/// strength`.
pub fn learn(corpora: &[Sums], strength: f64) -> Result<Layer> {
    let dim = corpora.first().map_or(0, |sums| sums.dim);
    let pairs: f64 = corpora.iter().map(|sums| sums.pairs).sum();
    if pairs < MIN_PAIRS {
        return Err(Error::data(format!("too few utterances with context turns: {pairs}")).with_hint(format!(
            "at least {MIN_PAIRS} are needed, in dialogues with several turns; use a few thousand for good results"
        )));
    }
    // Covariance over all corpora, each centered on its own means.
    let covariance = |matrix: fn(&Sums) -> &[f64], left: fn(&Sums) -> &[f64], right: fn(&Sums) -> &[f64]| {
        let mut total = vec![0.0; dim * dim];
        for sums in corpora.iter().filter(|sums| sums.pairs > 0.0) {
            let (left, right) = (left(sums), right(sums));
            for (at, (total, sum)) in total.iter_mut().zip(matrix(sums)).enumerate() {
                *total += (sum - left[at / dim] * right[at % dim] / sums.pairs) / pairs;
            }
        }
        total
    };
    let own_covariance = covariance(|s| &s.own_own, |s| &s.own, |s| &s.own);
    let own = shrunk(own_covariance.clone(), dim);
    let around = shrunk(covariance(|s| &s.around_around, |s| &s.around, |s| &s.around), dim);
    let (own, around) = (scatter::inverse_root(own, dim), scatter::inverse_root(around, dim));
    let whitened = |cross: Vec<f64>| scatter::times(&scatter::times(&own, &cross, dim), &around, dim);
    let cross = whitened(covariance(|s| &s.own_around, |s| &s.own, |s| &s.around));
    let elsewhere = whitened(covariance(|s| &s.own_elsewhere, |s| &s.own, |s| &s.around));
    let squared = scatter::times(&cross, &scatter::transposed(&cross, dim), dim);
    let eigen = linalg::symmetric_eigen(squared.clone(), dim);
    let correlations: Vec<f64> = eigen.values.iter().map(|value| value.max(0.0).sqrt()).collect();
    let baseline = largest_singular_value(&elsewhere, dim);
    if correlations.first().is_none_or(|largest| *largest <= baseline) {
        return Err(Error::data("utterances do not predict their context turns in these dialogues")
            .with_hint(
                "check that the turns are in order and that dialogues have several turns: `turnwise corpus show`",
            ));
    }
    let metric = scatter::times(&scatter::times(&own, &squared, dim), &own, dim);
    let weight = scatter::root(mixed(metric, &own_covariance, dim, strength), dim);
    let mean: Vec<f64> =
        (0..dim).map(|at| corpora.iter().map(|sums| sums.own[at]).sum::<f64>() / pairs).collect();
    let bias =
        weight.chunks_exact(dim).map(|row| -row.iter().zip(&mean).map(|(a, b)| a * b).sum::<f64>() as f32);
    let bias = bias.collect();
    let weight = weight.into_iter().map(|number| number as f32).collect();
    Ok(Layer { weight, bias, correlations, baseline })
}

/// Returns the weighted sum of the identity and the matrix `metric`, which has the weight `share`. First scales
/// `metric`, so that vectors with the given covariance keep their mean squared norm.
fn mixed(mut metric: Vec<f64>, covariance: &[f64], dim: usize, share: f64) -> Vec<f64> {
    let before = scatter::mean_variance(covariance, dim);
    let after = scatter::mean_variance(&scatter::times(&metric, covariance, dim), dim).max(1e-12);
    for (at, number) in metric.iter_mut().enumerate() {
        let one = if at % (dim + 1) == 0 { 1.0 } else { 0.0 };
        *number = (1.0 - share) * one + share * *number * before / after;
    }
    metric
}

/// Shrinks a covariance matrix: adds its mean variance, times `SHRINKAGE / (1 - SHRINKAGE)`, to the diagonal.
fn shrunk(mut covariance: Vec<f64>, dim: usize) -> Vec<f64> {
    // Identical vectors have no variance: avoid a division by zero.
    let scale = scatter::mean_variance(&covariance, dim).max(1e-12);
    for (at, number) in covariance.iter_mut().enumerate() {
        let own = if at % (dim + 1) == 0 { SHRINKAGE } else { 0.0 };
        *number = (1.0 - SHRINKAGE) * *number / scale + own;
    }
    // Restore the original scale of the covariance, so that the canonical correlations are at most 1.
    covariance.iter_mut().for_each(|number| *number *= scale / (1.0 - SHRINKAGE));
    covariance
}

/// Computes the largest singular value of a matrix by power iteration.
fn largest_singular_value(matrix: &[f64], dim: usize) -> f64 {
    let columns = scatter::transposed(matrix, dim);
    let dot = |rows: &[f64], vector: &[f64]| -> Vec<f64> {
        rows.chunks_exact(dim).map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
    };
    let mut vector: Vec<f64> = (0..dim).map(|n| 1.0 + (n as f64).sin()).collect();
    let mut length = 0.0;
    for _ in 0..ITERATIONS {
        vector = dot(&columns, &dot(matrix, &vector));
        length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 {
            return 0.0;
        }
        vector.iter_mut().for_each(|v| *v /= length);
    }
    length.sqrt()
}
