//! How like each other dialogues are, learned from the dialogues alone: what an encoder can be taught without labels.
//!
//! Two views are joined: the vectors of the encoder as it is, and a few topics of the words (TF-IDF and SVD). Dialogues
//! that are among each other's nearest in both together are taken to be about the same; what still differs between them
//! is what the encoder sees and should not (names, numbers, turns of phrase). A linear map makes those directions short
//! (within-class whitening, shrunk towards the identity), and the main axes of what is left are how an encoder should see
//! dialogues. Cosines there are the teacher, and beside them those of the words, the more the better the words are found
//! to tell topics: an encoder that learns from both sees more than either.

mod head;

use crate::neighbors;
use turnwise_core::{
    error::{Error, Result},
    vectors::normalize,
};
use turnwise_encoder::Vectors;

/// How a teacher is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Nearest dialogues that are looked at.
    pub neighbours: usize,
    /// How far the map is drawn towards the identity.
    pub shrinkage: f64,
    /// Axes that are kept.
    pub axes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { neighbours: 10, shrinkage: 0.1, axes: 24 }
    }
}

/// Dialogues by their number, as a teacher sees them.
pub struct Teacher {
    vectors: Vectors,
    neighbours: Vec<Vec<u32>>,
    weight: f64,
}

impl Teacher {
    /// Learns from the vectors of dialogues: what they mean to the encoder, and by their words (both with a row a
    /// dialogue; of any length, centred here).
    pub fn learn(meaning: &Vectors, words: &Vectors, settings: Settings) -> Result<Self> {
        if meaning.len() != words.len() {
            return Err(Error::Internal("two views of different dialogues".to_owned()));
        }
        if meaning.len() < 4 * settings.neighbours {
            let (count, least) = (meaning.len(), 4 * settings.neighbours);
            return Err(Error::data(format!("too few dialogues to learn which are alike: {count}"))
                .with_hint(format!("it takes {least} at least, and goes well with a thousand")));
        }
        let (meaning, words) = (centred(meaning), centred(words));
        let weight = agreement(&meaning, &words, settings.neighbours);
        let pairs = neighbors::mutual(&joined(&meaning, &words, weight), settings.neighbours);
        if pairs.iter().all(Vec::is_empty) {
            return Err(Error::data("no two dialogues are alike: nothing can be learned from them"));
        }
        let head = head::learn(&meaning, &pairs, settings.shrinkage, settings.axes);
        let vectors = joined(&centred(&head.apply(&meaning)), &words, said_by_words(weight));
        let neighbours = neighbors::mutual(&vectors, settings.neighbours);
        Ok(Teacher { vectors, neighbours, weight })
    }

    /// How many dialogues it knows.
    pub fn len(&self) -> usize {
        self.vectors.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// What words count in finding out which are alike, from 0 to 1.
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Those that are among each other's nearest.
    pub fn neighbours(&self, dialogue: usize) -> &[u32] {
        &self.neighbours[dialogue]
    }

    /// The cosine of two dialogues.
    pub fn likeness(&self, a: usize, b: usize) -> f32 {
        self.vectors.row(a).iter().zip(self.vectors.row(b)).map(|(a, b)| a * b).sum()
    }
}

/// What words count: the part of the pairs that are near by their words that are near by meaning, too, where chance would
/// have one in eighty. Where the words of a corpus do not tell its topics, they agree with nothing.
fn agreement(meaning: &Vectors, words: &Vectors, neighbours: usize) -> f64 {
    let pairs = neighbors::mutual(words, neighbours);
    let (mut near, mut all) = (0usize, 0usize);
    let most = (meaning.len() / 80).max(1);
    neighbors::rows(meaning, &mut |n, scores| {
        if pairs[n].is_empty() {
            return;
        }
        let mut others: Vec<f32> = scores.to_vec();
        others[n] = f32::NEG_INFINITY;
        let (_, least, _) = others.select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
        let least = *least;
        all += pairs[n].len();
        near += pairs[n].iter().filter(|other| scores[**other as usize] >= least).count();
    });
    if all == 0 { 0.0 } else { near as f64 / all as f64 }
}

/// What words count in the teaching: nothing where they hardly agree with meaning, all from 0.55 on, where they tell topics
/// that the encoder, which keeps what it knew, lacks. Found by trials on two corpora (0.58 and 0.32): `docs/training.md`.
fn said_by_words(weight: f64) -> f64 {
    (4.0 * (weight - 0.3)).clamp(0.0, 1.0)
}

/// Rows of length 1 whose mean is nothing, made of length 1 again.
fn centred(vectors: &Vectors) -> Vectors {
    let mut made = vectors.clone();
    made.normalize();
    let mut mean = vec![0f64; made.dim()];
    made.rows().for_each(|row| mean.iter_mut().zip(row).for_each(|(m, v)| *m += f64::from(*v)));
    let count = made.len().max(1) as f64;
    for n in 0..made.len() {
        let row = made.row_mut(n);
        row.iter_mut().zip(&mean).for_each(|(v, m)| *v -= (m / count) as f32);
        normalize(row);
    }
    made
}

/// Vectors whose products are the weighted sum of those of both views.
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
