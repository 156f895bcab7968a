//! The turns of a dialogue around its candidates: their vectors, and the words of the query in them.

use std::{borrow::Cow, collections::HashMap};

use super::titles::TITLE_WEIGHT;
use turnwise_core::TurnNo;
use turnwise_corpus::SpokenTurn;

/// Weights of an utterance and its neighbors: the distance in turns, the weight in the dense score, and the weight in
/// the lexical score. Chosen on questions about long conversations (`benchmarks/README.md`).
pub(super) const NEIGHBORS: [(isize, f32, f32); 7] = [
    (-3, 0.0, 0.4),
    (-2, 0.25, 0.6),
    (-1, 0.5, 0.8),
    (0, 1.0, 1.0),
    (1, 0.4, 0.6),
    (2, 0.2, 0.4),
    (3, 0.0, 0.2),
];

/// Number of turns before and after an utterance whose vectors count.
pub(super) const TURNS_BEFORE: usize = 2;
pub(super) const TURNS_AFTER: usize = 2;

/// Returns for an utterance and its neighbors the distance in turns and the weight of their words.
pub(super) fn word_weight() -> impl Iterator<Item = (isize, f32)> {
    NEIGHBORS.iter().map(|(distance, _, weight)| (*distance, *weight))
}

/// Highest score of a term in an utterance, its neighbors and the title.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BestWord {
    pub(super) score: f32,
    /// Weight of the text with this score: 1 for the utterance, lower for a neighbor or the title.
    pub(super) weight: f32,
    /// Position of the turn with this score. `None` for the title.
    pub(super) turn: Option<usize>,
}

/// Vector of a turn.
pub(super) struct TurnVector<'a> {
    values: Cow<'a, [f32]>,
    /// Euclidean length of the vector.
    length: f32,
}

impl<'a> From<Cow<'a, [f32]>> for TurnVector<'a> {
    fn from(values: Cow<'a, [f32]>) -> Self {
        TurnVector { length: dot(&values, &values).sqrt(), values }
    }
}

/// The turns of a dialogue, and the data of its candidates.
pub(super) struct Conversation<'a, 't> {
    /// The turns with text. Other turns are not neighbors of any turn.
    pub(super) turns: Vec<&'t SpokenTurn<'t>>,
    /// Vectors by position in `turns`. Contains the candidates and their neighbors, if they have a vector.
    pub(super) vectors: HashMap<usize, TurnVector<'a>>,
    /// For each candidate of the lexical list, by position in `turns`: the score of each term. If the terms are not
    /// known, one number, the total score.
    pub(super) words: HashMap<usize, Vec<f32>>,
    /// Weighted score of each term in the title. Empty if the title contains none.
    pub(super) title: Vec<f32>,
    /// True if the query names a speaker of the dialogue.
    pub(super) participant: bool,
}

impl<'t> Conversation<'_, 't> {
    pub(super) fn new(turns: &'t [SpokenTurn<'t>]) -> Self {
        Conversation {
            turns: turns.iter().filter(|turn| !turn.text.trim().is_empty()).collect(),
            vectors: HashMap::new(),
            words: HashMap::new(),
            title: Vec::new(),
            participant: false,
        }
    }

    /// Returns the position of a turn among the turns with text.
    pub(super) fn position(&self, turn: Option<TurnNo>) -> Option<usize> {
        let turn = turn?;
        self.turns.binary_search_by_key(&turn, |known| known.number).ok()
    }

    pub(super) fn neighbor(&self, at: usize, distance: isize) -> Option<usize> {
        at.checked_add_signed(distance).filter(|at| *at < self.turns.len())
    }

    /// Returns the cosine of a query vector with the weighted sum of the unit vectors of a turn and its neighbors.
    pub(super) fn cosine(&self, at: usize, query: &[f32]) -> Option<f32> {
        self.vectors.get(&at)?;
        let weights = NEIGHBORS.iter().filter(|(_, weight, _)| *weight > 0.0);
        let weights = weights
            .filter_map(|(distance, weight, _)| self.neighbor(at, *distance).map(|place| (place, *weight)));
        Some(self.sum_cosine(weights, query))
    }

    /// Returns the cosine of a vector with the weighted sum of the unit vectors of some turns. Turns without a vector are
    /// left out.
    pub(super) fn sum_cosine(&self, weights: impl Iterator<Item = (usize, f32)>, query: &[f32]) -> f32 {
        let mut sum = vec![0.0f32; query.len()];
        for (place, weight) in weights {
            let Some(TurnVector { values, length }) = self.vectors.get(&place) else { continue };
            if values.len() == sum.len() && *length > 0.0 {
                let weight = weight / length;
                sum.iter_mut().zip(values.iter()).for_each(|(sum, v)| *sum += weight * v);
            }
        }
        let lengths = (dot(&sum, &sum) * dot(query, query)).sqrt();
        if lengths > 0.0 { dot(&sum, query) / lengths } else { 0.0 }
    }

    /// Returns for each term its highest score in a turn, its neighbors and the title. If the terms are not known, returns
    /// the highest total score.
    pub(super) fn best_words(&self, at: usize) -> Vec<BestWord> {
        let of_title = |score: &f32| BestWord { score: *score, weight: TITLE_WEIGHT, turn: None };
        let mut best: Vec<BestWord> = self.title.iter().map(of_title).collect();
        for (distance, _, weight) in NEIGHBORS {
            let Some(place) = self.neighbor(at, distance) else { continue };
            let Some(words) = self.words.get(&place) else { continue };
            best.resize(best.len().max(words.len()), BestWord::default());
            for (best, score) in best.iter_mut().zip(words) {
                let score = score * weight;
                if score > best.score || score == best.score && distance == 0 {
                    *best = BestWord { score, weight, turn: Some(place) };
                }
            }
        }
        best
    }
}

/// Returns the dot product of two vectors of equal length. Several sums run in parallel, so that the compiler can use
/// SIMD instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for n in 0..LANES {
            sums[n] += a[n] * b[n];
        }
    }
    sums.iter().sum::<f32>() + rest
}
