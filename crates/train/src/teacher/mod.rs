//! Teacher: dialogue similarities that are learned without labels. An encoder can be trained to reproduce them.
//!
//! A teacher combines two views of a dialogue: the vector of the untrained encoder, and a topic vector of its words
//! (TF-IDF and SVD). Mutual nearest neighbors in the combined view are assumed to have the same topic. Differences
//! between such neighbors (names, numbers, phrasing) are noise that the encoder should ignore.
//!
//! Within-class whitening, shrunk toward the identity, reduces the variance of the encoder vectors in the directions of
//! this noise. The similarity of two dialogues is a weighted sum of two cosines: that of the whitened vectors on their
//! principal axes, and that of the word vectors. The weight depends on how well the two views agree.

use crate::{
    neighbors,
    ops::{Matrix, product},
    scatter::{gram, inverse_root},
};
use turnwise_core::{
    error::{Error, Result},
    vectors::normalize,
};
use turnwise_encoder::{Vectors, statics::linalg};

/// Settings for fitting a [`Teacher`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Maximum number of mutual nearest neighbors of a dialogue.
    pub neighbors: usize,
    /// Shrinkage of the whitening toward the identity, from 0 to 1.
    pub shrinkage: f64,
    /// Maximum number of principal axes of the whitened encoder vectors.
    pub axes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { neighbors: 10, shrinkage: 0.1, axes: 24 }
    }
}

/// Similarities of dialogues, and the mutual nearest neighbors of each dialogue. An encoder learns to reproduce the
/// similarities.
pub struct Teacher {
    /// Vector of each dialogue. The dot products of the vectors are the similarities.
    vectors: Vectors,
    /// Mutual nearest neighbors of each dialogue.
    neighbors: Vec<Vec<u32>>,
    agreement: f64,
}

impl Teacher {
    /// Learns from two views of the dialogues: encoder vectors (`meaning`) and word-based vectors.
    ///
    /// Both views have one row per dialogue and need not be normalized. Returns an error if there are too few
    /// dialogues, or if no two dialogues are similar.
    pub fn learn(meaning: &Vectors, words: &Vectors, settings: Settings) -> Result<Self> {
        if meaning.len() != words.len() {
            return Err(Error::Internal("the two views have different numbers of dialogues".to_owned()));
        }
        if meaning.len() < 4 * settings.neighbors {
            let (count, least) = (meaning.len(), 4 * settings.neighbors);
            return Err(Error::data(format!("too few dialogues to train a teacher: {count}"))
                .with_hint(format!("at least {least} are needed; use about a thousand for good results")));
        }
        let (meaning, words) = (centered(meaning), centered(words));
        let agreement = agreement(&meaning, &words, settings.neighbors);
        let pairs = neighbors::mutual(&joined(&meaning, &words, agreement), settings.neighbors);
        if pairs.iter().all(Vec::is_empty) {
            return Err(Error::data("a teacher cannot be trained: no two dialogues are similar"));
        }
        let axes = learn_whitening(&meaning, &pairs, settings.shrinkage, settings.axes);
        let vectors = joined(&centered(&project(&meaning, &axes)), &words, word_weight(agreement));
        let neighbors = neighbors::mutual(&vectors, settings.neighbors);
        Ok(Teacher { vectors, neighbors, agreement })
    }

    pub fn len(&self) -> usize {
        self.vectors.len()
    }

    /// Agreement between encoder vectors and word vectors, from 0 to 1. The first search for neighbors uses this number
    /// as the weight of the words.
    pub fn agreement(&self) -> f64 {
        self.agreement
    }

    /// Weight of the words in the similarities of the teacher, from 0 to 1. The encoder vectors have the remaining
    /// weight.
    pub fn word_weight(&self) -> f64 {
        word_weight(self.agreement)
    }

    /// Mutual nearest neighbors of a dialogue.
    pub fn neighbors(&self, dialogue: usize) -> &[u32] {
        &self.neighbors[dialogue]
    }

    /// Similarity of two dialogues, from -1 to 1.
    pub fn cosine(&self, a: usize, b: usize) -> f32 {
        self.vectors.row(a).iter().zip(self.vectors.row(b)).map(|(a, b)| a * b).sum()
    }
}

/// Computes the agreement of the two views: the fraction of mutual neighbors by words that are also similar by encoder
/// vectors.
///
/// A dialogue is similar if it is among the nearest 1/80 of all dialogues, so the random baseline is about 1/80. The
/// agreement is low if the words of a corpus do not reflect its topics.
fn agreement(meaning: &Vectors, words: &Vectors, neighbors: usize) -> f64 {
    let pairs = neighbors::mutual(words, neighbors);
    let (mut near, mut all) = (0usize, 0usize);
    let nearest = (meaning.len() / 80).max(1);
    neighbors::rows(meaning, &mut |n, scores| {
        if pairs[n].is_empty() {
            return;
        }
        let mut others: Vec<f32> = scores.to_vec();
        others[n] = f32::NEG_INFINITY;
        let (_, threshold, _) = others.select_nth_unstable_by(nearest - 1, |a, b| b.total_cmp(a));
        let threshold = *threshold;
        all += pairs[n].len();
        near += pairs[n].iter().filter(|other| scores[**other as usize] >= threshold).count();
    });
    if all == 0 { 0.0 } else { near as f64 / all as f64 }
}

/// Returns the weight of the words in the similarities of the teacher. The weight is 0 up to an agreement of 0.3. From
/// there, it rises linearly to 1 at an agreement of 0.55.
///
/// With a high agreement, the words add topics that the encoder does not know. Both limits were tuned on two corpora,
/// with agreements of 0.58 and 0.32: see `docs/training.md`.
fn word_weight(agreement: f64) -> f64 {
    (4.0 * (agreement - 0.3)).clamp(0.0, 1.0)
}

/// Normalizes the rows, subtracts their mean and normalizes them again.
fn centered(vectors: &Vectors) -> Vectors {
    let mut out = vectors.clone();
    out.normalize();
    let mut mean = vec![0f64; out.dim()];
    out.rows().for_each(|row| mean.iter_mut().zip(row).for_each(|(m, v)| *m += f64::from(*v)));
    let count = out.len().max(1) as f64;
    for n in 0..out.len() {
        let row = out.row_mut(n);
        row.iter_mut().zip(&mean).for_each(|(v, m)| *v -= (m / count) as f32);
        normalize(row);
    }
    out
}

/// Scales and concatenates the two views. A dot product of two rows of the result is the weighted sum of the dot
/// products in the views. The words have the weight `weight`.
fn joined(meaning: &Vectors, words: &Vectors, weight: f64) -> Vectors {
    let mut both = Vectors::new(meaning.dim() + words.dim());
    let (of_meaning, of_words) = ((1.0 - weight).sqrt() as f32, weight.sqrt() as f32);
    for (meaning, words) in meaning.rows().zip(words.rows()) {
        let row = meaning.iter().map(|v| v * of_meaning).chain(words.iter().map(|v| v * of_words));
        both.push(&row.collect::<Vec<f32>>());
    }
    both
}

#[cfg(test)]
mod tests;

/// Learns the whitening projection of vectors. `similar` has, for each vector, the indices of similar vectors. Returns
/// a matrix with one row per output axis.
///
/// `W` is the scatter matrix of the differences between similar vectors. The matrix is scaled to a mean variance of 1
/// and shrunk toward the identity. The projection multiplies by `W^-½`, and then projects to at most `axes` principal
/// axes.
fn learn_whitening(vectors: &Vectors, similar: &[Vec<u32>], shrinkage: f64, axes: usize) -> Vectors {
    let dim = vectors.dim();
    let mut differences = Vec::new();
    for (n, others) in similar.iter().enumerate() {
        // Each pair is in the lists of both vectors: use it only once.
        for other in others.iter().filter(|other| **other as usize > n) {
            let pair = vectors.row(n).iter().zip(vectors.row(*other as usize));
            differences.extend(pair.map(|(a, b)| a - b));
        }
    }
    let mut scatter = gram(&differences, dim);
    let trace: f64 = (0..dim).map(|i| scatter[i * dim + i]).sum();
    let scale = if trace > 0.0 { dim as f64 / trace } else { 0.0 };
    for (n, number) in scatter.iter_mut().enumerate() {
        let own = if n % (dim + 1) == 0 { shrinkage } else { 0.0 };
        *number = (1.0 - shrinkage) * *number * scale + own;
    }
    let white: Vec<f32> = inverse_root(scatter, dim).into_iter().map(|number| number as f32).collect();
    let white = Vectors::from_flat(dim, white).unwrap_or_default();
    let whitened = project(vectors, &white);
    let principal = linalg::symmetric_eigen(gram(whitened.flat(), dim), dim);
    // Express each axis in the input dimensions. `W^-½` is symmetric.
    let mut rows = Vectors::new(dim);
    for axis in principal.vectors.iter().take(axes.min(dim)) {
        let row =
            (0..dim).map(|i| (0..dim).map(|j| f64::from(white.row(i)[j]) * axis[j]).sum::<f64>() as f32);
        rows.push(&row.collect::<Vec<f32>>());
    }
    rows
}

/// Returns, for each vector, its dot products with the rows of the projection matrix `map`.
fn project(vectors: &Vectors, map: &Vectors) -> Vectors {
    let mut out = Vectors::zeros(vectors.len(), map.len());
    let mut numbers = vec![0.0; vectors.len() * map.len()];
    let (left, right) = (Matrix::new(vectors.flat(), vectors.dim()), Matrix::new(map.flat(), map.dim()));
    product(left, right.transposed(), &mut numbers, false);
    for (n, row) in numbers.chunks_exact(map.len()).enumerate() {
        out.row_mut(n).copy_from_slice(row);
    }
    out
}
