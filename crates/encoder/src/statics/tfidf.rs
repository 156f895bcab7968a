//! TF-IDF with truncated SVD (latent semantic analysis), fitted on the corpus itself.
//!
//! The defaults (single words, sublinear counts, centered projections) gave the best results in a few trials on the
//! data sets SGD (dev) and BANKING77. To repeat the trials, run `cargo test --test corpora static_encoders --
//! --nocapture`. Dialogues need fewer dimensions than utterances.

use std::{collections::HashMap, path::Path};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_core::{
    error::{Error, Result},
    vectors::normalize,
};

use crate::{
    Encoder,
    statics::{
        compose::{self, Composed, Properties, StaticEncoder},
        folder::{self, Contents, Tensor},
        linalg::{self, Effort, Sparse},
    },
};

/// Name of this kind of encoder in `turnwise.json`.
pub(super) const KIND: &str = "tfidf-svd";

/// Projections with a norm below this value are rounding errors and are treated as zero.
const MIN_LENGTH: f64 = 1e-6;

/// Settings for fitting a TF-IDF encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TfidfSettings {
    /// Width of the vectors. A small corpus can produce fewer dimensions.
    pub dim: usize,
    /// Minimum document frequency: a term is kept if at least this many documents contain the term. If no term reaches
    /// this minimum, 1 is used instead.
    pub min_documents: u32,
    /// Maximum number of terms. The terms with the highest document frequency are kept.
    pub max_terms: usize,
    /// If true, term counts are replaced with 1 + ln(count).
    pub sublinear: bool,
    /// If true, each projection is L2-normalized, and then the mean of all projections of the corpus is subtracted.
    #[serde(rename = "centre")]
    pub center: bool,
    /// If true, vectors are L2-normalized.
    pub normalize: bool,
    /// Random seed of the SVD. Different seeds produce slightly different vectors.
    pub seed: u64,
}

impl Default for TfidfSettings {
    fn default() -> Self {
        TfidfSettings {
            dim: 128,
            min_documents: 2,
            max_terms: 50_000,
            sublinear: true,
            center: true,
            normalize: false,
            seed: 0,
        }
    }
}

/// Statistics of the corpus that a TF-IDF encoder was fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TfidfFit {
    /// Number of documents in the corpus.
    pub documents: usize,
    /// Number of documents without any kept term.
    pub without_terms: usize,
    /// Number of distinct terms in the documents.
    pub terms_seen: usize,
    /// Number of kept terms.
    pub terms: usize,
}

/// A fitted TF-IDF encoder.
pub struct TfidfSvd {
    properties: Properties,
    settings: TfidfSettings,
    pub(super) fit: TfidfFit,
    terms: Vec<Box<str>>,
    /// Row of each term in `components`.
    rows: HashMap<Box<str>, u32>,
    idf: Vec<f32>,
    /// Projection matrix, with one row per term.
    components: Vec<f32>,
    /// Mean of the projections of the corpus; zero if projections are not centered.
    mean: Vec<f32>,
}

/// Fits an encoder on documents. The documents should be similar to the inputs that will be encoded: utterances, or
/// whole dialogues (see [`super::document`]). The documents are read once and not kept in memory.
///
/// Fails if the documents contain no words, or if `dim` or `max_terms` is 0.
pub fn fit_tfidf(documents: impl Iterator<Item = String>, settings: &TfidfSettings) -> Result<TfidfSvd> {
    if settings.dim == 0 || settings.max_terms == 0 {
        return Err(Error::input("at least one dimension and one term are required"));
    }
    let counted = compose::count(documents);
    let documents = counted.rows.len();
    if counted.terms.is_empty() {
        let message = match documents {
            0 => "no documents to fit an encoder on".to_owned(),
            n => format!("no encoder can be fitted: the {n} documents contain no words"),
        };
        return Err(Error::data(message).with_hint("use a corpus with texts"));
    }
    let mut selected = compose::select(&counted, settings.min_documents, settings.max_terms);
    if selected.terms.is_empty() {
        selected = compose::select(&counted, 1, settings.max_terms);
    }
    // Smoothed IDF: computed as if there were one more document, which contains every term.
    let idf = |with: &u32| (((1 + documents) as f64 / (1 + with) as f64).ln() + 1.0) as f32;
    let idf: Vec<f32> = selected.documents_with.iter().map(idf).collect();
    let terms_seen = counted.terms.len();
    let matrix = selected.matrix(&counted.rows, |row| weigh(row, &idf, settings.sublinear));
    drop(counted);
    let svd = linalg::truncated_svd(&matrix, settings.dim, Effort::THOROUGH, settings.seed);
    let fit = TfidfFit {
        documents,
        without_terms: documents - matrix.rows(),
        terms_seen,
        terms: selected.terms.len(),
    };
    let dim = svd.values.len();
    let mean = match settings.center {
        true => mean_projection(&matrix, &svd.components, dim),
        false => vec![0.0; dim],
    };
    Ok(TfidfSvd::new(*settings, fit, selected.terms, idf, svd.components, mean))
}

impl TfidfSvd {
    fn new(
        settings: TfidfSettings,
        fit: TfidfFit,
        terms: Vec<Box<str>>,
        idf: Vec<f32>,
        components: Vec<f32>,
        mean: Vec<f32>,
    ) -> Self {
        let dim = mean.len();
        let flags = [
            ("sublinear", settings.sublinear),
            ("centre", settings.center),
            ("normalize", settings.normalize),
        ];
        let words = ("terms", terms.join("\n"));
        let tensors = tensors(terms.len(), &idf, &components, &mean);
        let properties = Properties {
            name: "TF-IDF + SVD",
            size: format!("{} terms", terms.len()),
            dim,
            fingerprint: folder::fingerprint(KIND, dim, &flags, &words, &tensors),
            normalize: settings.normalize,
        };
        let rows = terms.iter().enumerate().map(|(n, term)| (term.clone(), n as u32)).collect();
        TfidfSvd { properties, settings, fit, terms, rows, idf, components, mean }
    }

    /// Returns notes for the user if the vectors have fewer dimensions than requested, or if some documents contain
    /// none of the kept terms.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.dim() < self.settings.dim {
            notes.push(format!(
                "the vectors have {} dimensions, not {}: {} documents with {} terms do not support more",
                self.dim(),
                self.settings.dim,
                self.fit.documents,
                self.fit.terms
            ));
        }
        if self.fit.without_terms > 0 {
            notes.push(format!(
                "{} of {} documents contain none of the kept terms",
                self.fit.without_terms, self.fit.documents
            ));
        }
        notes
    }

    /// Saves the encoder to a folder. A static encoder in the folder is replaced. Fails if the folder contains anything
    /// else.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let tensors = tensors(self.terms.len(), &self.idf, &self.components, &self.mean);
        folder::save(folder, KIND, &self.settings, &self.fit, &self.terms.join("\n"), &tensors)
    }

    pub(super) fn from_contents(contents: Contents) -> Result<Self> {
        let settings = contents.settings()?;
        let fit = contents.about()?;
        let terms = contents.words.len();
        let (dim, components) = contents.matrix("components", terms)?;
        let idf = contents.vector("idf", terms)?;
        let mean = contents.vector("mean", dim)?;
        Ok(TfidfSvd::new(settings, fit, contents.words, idf, components, mean))
    }
}

/// Returns the tensors of the encoder. They are saved to the folder and hashed into the fingerprint.
fn tensors<'a>(terms: usize, idf: &'a [f32], components: &'a [f32], mean: &'a [f32]) -> [Tensor<'a>; 3] {
    [
        Tensor::vector("idf", idf),
        Tensor::matrix("components", terms, components),
        Tensor::vector("mean", mean),
    ]
}

/// Projects a row of TF-IDF weights with `components`. If `unit` is true, L2-normalizes the projection. Returns `None`
/// if the projection is zero within rounding error.
fn project(
    components: &[f32],
    dim: usize,
    (indices, values): (&[u32], &[f32]),
    unit: bool,
) -> Option<Vec<f64>> {
    let mut out = vec![0.0; dim];
    for (column, value) in indices.iter().zip(values) {
        let row = &components[*column as usize * dim..][..dim];
        out.iter_mut().zip(row).for_each(|(o, c)| *o += f64::from(*value) * f64::from(*c));
    }
    let length = out.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length < MIN_LENGTH {
        return None;
    }
    if unit {
        out.iter_mut().for_each(|v| *v /= length);
    }
    Some(out)
}

/// Returns the mean of the L2-normalized projections of all rows. The sum is computed in chunks of fixed size, so the
/// mean does not depend on the number of threads.
fn mean_projection(matrix: &Sparse, components: &[f32], dim: usize) -> Vec<f32> {
    let starts: Vec<usize> = (0..matrix.rows()).step_by(4096).collect();
    let sums: Vec<Vec<f64>> = starts
        .par_iter()
        .map(|start| {
            let mut sum = vec![0.0; dim];
            for n in *start..(start + 4096).min(matrix.rows()) {
                if let Some(projected) = project(components, dim, matrix.row(n), true) {
                    sum.iter_mut().zip(projected).for_each(|(s, p)| *s += p);
                }
            }
            sum
        })
        .collect();
    let mean = |k: usize| sums.iter().map(|s| s[k]).sum::<f64>() / matrix.rows().max(1) as f64;
    (0..dim).map(|k| mean(k) as f32).collect()
}

/// Returns the L2-normalized TF-IDF weights of a row.
fn weigh(row: &[(u32, u32)], idf: &[f32], sublinear: bool) -> Vec<(u32, f32)> {
    let weight = |column: u32, count: u32| {
        let count = f64::from(count);
        let tf = if sublinear { 1.0 + count.ln() } else { count };
        (tf * f64::from(idf[column as usize])) as f32
    };
    let mut weights: Vec<f32> = row.iter().map(|(column, count)| weight(*column, *count)).collect();
    normalize(&mut weights);
    row.iter().map(|(column, _)| *column).zip(weights).collect()
}

impl StaticEncoder for TfidfSvd {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn compose(&self, texts: &[&str]) -> Composed {
        let counts = compose::counts(texts);
        let known = counts.iter().filter_map(|(term, count)| Some((*self.rows.get(term.as_str())?, *count)));
        let mut row: Vec<(u32, u32)> = known.collect();
        row.sort_unstable();
        let (indices, values): (Vec<u32>, Vec<f32>) =
            weigh(&row, &self.idf, self.settings.sublinear).into_iter().unzip();
        match project(&self.components, self.dim(), (&indices, &values), self.settings.center) {
            None => Composed { vector: vec![0.0; self.dim()], words: 0 },
            Some(mut vector) => {
                vector.iter_mut().zip(&self.mean).for_each(|(v, m)| *v -= f64::from(*m));
                Composed { vector, words: row.iter().map(|(_, count)| u64::from(*count)).sum() }
            }
        }
    }
}
