//! Encoder that averages word vectors.
//!
//! With smooth inverse frequency (Arora, Liang and Ma), rare words get more weight, and the component that all texts
//! have in common is removed.

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::error::{Error, Result};

use crate::statics::{
    compose::{Composed, Properties, StaticEncoder},
    folder::{self, Contents, Tensor},
    words::WordTable,
};

/// Name of this kind of encoder in `turnwise.json`.
pub(in crate::statics) const KIND: &str = "words";

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Parameter `a` of SIF. If `None`, all words have the same weight.
    sif: Option<f64>,
    normalize: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct About {
    /// Number of documents that the weights were fitted on.
    documents: usize,
}

/// Encoder that averages word vectors.
pub struct WordEncoder {
    properties: Properties,
    settings: Settings,
    about: About,
    table: WordTable,
    /// SIF weight of each word; empty if all words have the same weight.
    weights: Vec<f32>,
    /// Common component that SIF removes from every vector; empty if nothing is removed.
    common: Vec<f32>,
}

impl WordEncoder {
    /// Creates an encoder that computes the plain average of word vectors.
    pub fn mean(table: WordTable) -> Self {
        let settings = Settings { sif: None, normalize: false };
        WordEncoder::new(settings, About { documents: 0 }, table, Vec::new(), Vec::new())
    }

    /// Fits a SIF encoder with the weights a / (a + p). The probability p of a word is its relative frequency among the
    /// known words of the documents.
    ///
    /// The first singular vector of the document vectors is removed from every vector. This singular vector is computed
    /// once and stored, so the vector of an input does not depend on other inputs.
    ///
    /// Fails if `a` is not positive and finite, or if no word of the documents has a vector.
    pub fn fit_sif(table: WordTable, a: f64, documents: impl Iterator<Item = String>) -> Result<Self> {
        if !(a.is_finite() && a > 0.0) {
            return Err(Error::input(format!("SIF's parameter a is {a}; it must be greater than 0"))
                .with_hint("the usual value is 0.001"));
        }
        let known = Known::of(&table, documents);
        if known.rows.is_empty() {
            let message = format!("none of the words in {} documents has a vector", known.documents);
            return Err(Error::data(message).with_hint("use word vectors for the language of the documents"));
        }
        let weights = weights(&known.probabilities(&table), a);
        let common = known.common(&table, &weights);
        let settings = Settings { sif: Some(a), normalize: false };
        Ok(WordEncoder::new(settings, About { documents: known.documents }, table, weights, common))
    }

    fn new(settings: Settings, about: About, table: WordTable, weights: Vec<f32>, common: Vec<f32>) -> Self {
        let flags = [("normalize", settings.normalize)];
        let words = ("words", table.words().join("\n"));
        let tensors = tensors(&table, &weights, &common);
        let properties = Properties {
            name: match settings.sif {
                None => "word vectors, averaged",
                Some(_) => "word vectors, SIF fitted on a corpus",
            },
            size: format!("{} words", table.len()),
            dim: table.dim(),
            fingerprint: folder::fingerprint(KIND, table.dim(), &flags, &words, &tensors),
            normalize: settings.normalize,
        };
        WordEncoder { properties, settings, about, table, weights, common }
    }

    /// Saves the encoder to a folder. A static encoder in the folder is replaced. Fails if the folder contains anything
    /// else.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let tensors = tensors(&self.table, &self.weights, &self.common);
        folder::save(folder, KIND, &self.settings, &self.about, &self.table.words().join("\n"), &tensors)
    }

    pub(in crate::statics) fn from_contents(contents: Contents) -> Result<Self> {
        let settings: Settings = contents.settings()?;
        let about = contents.about()?;
        let (dim, vectors) = contents.matrix("vectors", contents.words.len())?;
        let (weights, common) = match settings.sif {
            Some(_) => (contents.vector("weights", contents.words.len())?, contents.vector("common", dim)?),
            None => (Vec::new(), Vec::new()),
        };
        let mut table = WordTable::new(dim);
        for (word, vector) in contents.words.iter().zip(vectors.chunks_exact(dim)) {
            if !table.push(word, vector) {
                return Err(contents.damaged(format!("the word `{word}` is duplicated")));
            }
        }
        Ok(WordEncoder::new(settings, about, table, weights, common))
    }
}

/// Returns the tensors of the encoder. They are saved to the folder and hashed into the fingerprint. `weights` is part
/// of every fingerprint, even if it is empty.
fn tensors<'a>(table: &'a WordTable, weights: &'a [f32], common: &'a [f32]) -> Vec<Tensor<'a>> {
    let mut tensors =
        vec![Tensor::matrix("vectors", table.len(), table.vectors()), Tensor::vector("weights", weights)];
    if !common.is_empty() {
        tensors.push(Tensor::vector("common", common));
    }
    tensors
}

impl StaticEncoder for WordEncoder {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn compose(&self, texts: &[&str]) -> Composed {
        let rows: Vec<u32> = texts.iter().flat_map(|text| super::rows(&self.table, text)).collect();
        let mut vector = average(&self.table, &self.weights, &rows);
        let along: f64 = vector.iter().zip(&self.common).map(|(v, c)| v * f64::from(*c)).sum();
        vector.iter_mut().zip(&self.common).for_each(|(v, c)| *v -= along * f64::from(*c));
        Composed { vector, words: rows.len() as u64 }
    }
}

const CHUNK: usize = 4096;
/// Maximum number of documents from which the common component is computed. These documents are evenly spaced in the
/// corpus.
const SAMPLE: usize = 100_000;
/// Maximum number of power iterations. If one component dominates, a few iterations are enough.
const STEPS: usize = 500;

/// Returns the SIF weight `a / (a + p)` for each probability `p` of a word.
pub(super) fn weights(probabilities: &[f64], a: f64) -> Vec<f32> {
    probabilities.iter().map(|p| (a / (a + p)) as f32).collect()
}

/// Words of a set of documents, as row numbers of the word table. Words without a vector are left out.
pub(super) struct Known {
    pub documents: usize,
    rows: Vec<u32>,
    ends: Vec<usize>,
}

impl Known {
    pub fn of(table: &WordTable, mut documents: impl Iterator<Item = String>) -> Self {
        let mut known = Known { documents: 0, rows: Vec::new(), ends: Vec::new() };
        loop {
            let chunk: Vec<String> = documents.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return known;
            }
            known.documents += chunk.len();
            for rows in chunk.par_iter().map(|text| super::rows(table, text)).collect::<Vec<_>>() {
                if !rows.is_empty() {
                    known.rows.extend(rows);
                    known.ends.push(known.rows.len());
                }
            }
        }
    }

    /// Returns the relative frequency of each word of the table among the known words of the documents.
    pub fn probabilities(&self, table: &WordTable) -> Vec<f64> {
        let mut counts = vec![0u64; table.len()];
        self.rows.iter().for_each(|row| counts[*row as usize] += 1);
        let total = self.rows.len().max(1) as f64;
        counts.into_iter().map(|count| count as f64 / total).collect()
    }

    /// Returns the common component: the first singular vector of the document vectors.
    pub fn common(&self, table: &WordTable, weights: &[f32]) -> Vec<f32> {
        let dim = table.dim();
        let step = self.ends.len().div_ceil(SAMPLE).max(1);
        let chosen: Vec<usize> = (0..self.ends.len()).step_by(step).collect();
        // Chunks have a fixed size and are summed in order, so the result does not depend on the number of threads.
        let parts = chosen.par_chunks(CHUNK).map(|chunk| {
            let mut products = vec![0.0; dim * dim];
            for n in chunk {
                let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
                let vector = average(table, weights, &self.rows[start..self.ends[*n]]);
                for (row, x) in products.chunks_exact_mut(dim).zip(&vector) {
                    row.iter_mut().zip(&vector).for_each(|(p, y)| *p += x * y);
                }
            }
            products
        });
        let mut products = vec![0.0; dim * dim];
        for part in parts.collect::<Vec<_>>() {
            products.iter_mut().zip(part).for_each(|(sum, p)| *sum += p);
        }
        first_axis(&products, dim).into_iter().map(|v| v as f32).collect()
    }
}

/// Returns the mean of the weighted word vectors in the given rows of the table; zeros if `rows` is empty. If `weights`
/// is empty, every word has the weight 1.
pub(super) fn average(table: &WordTable, weights: &[f32], rows: &[u32]) -> Vec<f64> {
    let mut sum = vec![0.0; table.dim()];
    for row in rows {
        let weight = weights.get(*row as usize).map_or(1.0, |w| f64::from(*w));
        sum.iter_mut().zip(table.vector(*row)).for_each(|(s, v)| *s += weight * f64::from(*v));
    }
    let n = rows.len().max(1) as f64;
    sum.iter_mut().for_each(|s| *s /= n);
    sum
}

/// Returns the eigenvector for the largest eigenvalue of a Gram matrix, computed by power iteration. Returns zeros for
/// a zero matrix.
fn first_axis(products: &[f64], dim: usize) -> Vec<f64> {
    // Start from the column with the largest norm, because it is very unlikely to be orthogonal to the eigenvector.
    let column = |c: usize| (0..dim).map(move |r| products[r * dim + c]);
    let size = |c: usize| column(c).map(|v| v * v).sum::<f64>();
    let start = (0..dim).fold(0, |best, c| if size(c) > size(best) { c } else { best });
    let mut axis: Vec<f64> = column(start).collect();
    for _ in 0..STEPS {
        let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 || !length.is_finite() {
            return vec![0.0; dim];
        }
        axis.iter_mut().for_each(|v| *v /= length);
        let dot = |row: &[f64]| row.iter().zip(&axis).map(|(p, v)| p * v).sum::<f64>();
        let next: Vec<f64> = products.chunks_exact(dim).map(dot).collect();
        let value = next.iter().map(|v| v * v).sum::<f64>().sqrt();
        let moved = next.iter().zip(&axis).map(|(n, v)| (n / value - v).powi(2)).sum::<f64>();
        if value == 0.0 || moved < 1e-24 {
            break;
        }
        axis = next;
    }
    let length = axis.iter().map(|v| v * v).sum::<f64>().sqrt();
    axis.iter_mut().for_each(|v| *v /= length);
    axis
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statics::linalg::{self, normal};

    #[test]
    fn the_first_axis_agrees_with_the_exact_decomposition() {
        let (n, dim) = (50, 7);
        let at = |r: usize, c: usize| normal(5, (r * dim + c) as u64) + if c == 2 { 1.5 } else { 0.2 };
        let mut products = vec![0.0; dim * dim];
        for r in 0..n {
            (0..dim * dim).for_each(|k| products[k] += at(r, k / dim) * at(r, k % dim));
        }
        let exact = &linalg::symmetric_eigen(products.clone(), dim).vectors[0];
        let cosine: f64 = first_axis(&products, dim).iter().zip(exact).map(|(a, b)| a * b).sum();
        assert!((cosine.abs() - 1.0).abs() < 1e-10);
        assert_eq!(first_axis(&[0.0; 9], 3), [0.0; 3]);
    }

    #[test]
    fn weights_fall_with_probability() {
        assert_eq!(weights(&[0.0, 1e-3, 0.1], 1e-3)[..2], [1.0, 0.5]);
    }
}
