//! TF-IDF and truncated SVD (latent semantic analysis): fitted on the corpus itself, with nothing to download.
//!
//! The defaults (words without pairs, sublinear counts, centred projections) were the best of a few trials on SGD dev and
//! BANKING77. What they give there, `cargo test --test corpora static_encoders -- --nocapture` prints. Fewer dimensions
//! suit dialogues, more suit utterances.

use std::{collections::HashMap, path::Path};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    compose::{self, Compose, Composed},
    folder::{self, Contents, Tensor},
    svd::{self, Sparse},
    vocabulary,
};
use crate::{DialogueOptions, Encoded, Encoder, Fingerprint, TextOptions, fingerprint::Fingerprinter};
use turnwise_core::{
    error::{Error, Result},
    vectors::normalize,
};
use turnwise_corpus::Dialogue;
use turnwise_text::ANALYZER;

/// The name of this kind in the folder of an encoder.
pub(super) const KIND: &str = "tfidf-svd";

/// A projection that is shorter says nothing of the text but rounding.
const NOTHING: f64 = 1e-6;

/// How an encoder is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TfidfSettings {
    /// The width of the vectors; a small corpus gives fewer.
    pub dim: usize,
    /// A term must stand in so many documents. If none does, all are taken.
    pub min_documents: u32,
    /// Of more terms, those that stand in most documents are kept.
    pub max_terms: usize,
    /// Whether a term's count enters as 1 + ln(count) instead of as it is.
    pub sublinear: bool,
    /// Whether projections are scaled to length 1 and the corpus' mean is taken away from them.
    pub centre: bool,
    /// Whether vectors have length 1.
    pub normalize: bool,
    /// Another seed gives slightly different vectors.
    pub seed: u64,
}

impl Default for TfidfSettings {
    fn default() -> Self {
        TfidfSettings {
            dim: 128,
            min_documents: 2,
            max_terms: 50_000,
            sublinear: true,
            centre: true,
            normalize: false,
            seed: 0,
        }
    }
}

/// What an encoder was fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TfidfFit {
    /// Documents.
    pub documents: usize,
    /// Those without any of the terms that were kept.
    pub without_terms: usize,
    /// Different terms in the documents.
    pub terms_seen: usize,
    /// Those that were kept.
    pub terms: usize,
}

/// A fitted encoder.
pub struct TfidfSvd {
    settings: TfidfSettings,
    fit: TfidfFit,
    dim: usize,
    terms: Vec<Box<str>>,
    columns: HashMap<Box<str>, u32>,
    idf: Vec<f32>,
    /// A row a term.
    components: Vec<f32>,
    mean: Vec<f32>,
    fingerprint: Fingerprint,
}

/// Fits an encoder on documents: whole dialogues (see [`super::document`]) or utterances, whichever it will be used
/// for. The documents are gone through once; what is kept of them is a few bytes for each of their terms.
pub fn fit_tfidf(documents: impl Iterator<Item = String>, settings: &TfidfSettings) -> Result<TfidfSvd> {
    if settings.dim == 0 || settings.max_terms == 0 {
        return Err(Error::input("an encoder needs at least one dimension and one term"));
    }
    let counted = vocabulary::count(documents);
    let documents = counted.rows.len();
    if counted.terms.is_empty() {
        let message = match documents {
            0 => "there are no documents to fit an encoder on".to_owned(),
            n => format!("there is not one word in {n} documents, so that no encoder can be fitted on them"),
        };
        return Err(Error::Data { message, hint: Some("give a corpus with texts".to_owned()) });
    }
    let mut kept = vocabulary::keep(&counted, settings.min_documents, settings.max_terms);
    if kept.terms.is_empty() {
        kept = vocabulary::keep(&counted, 1, settings.max_terms);
    }
    // Smoothed, as if one more document held every term.
    let idf = |with: &u32| (((1 + documents) as f64 / (1 + with) as f64).ln() + 1.0) as f32;
    let idf: Vec<f32> = kept.documents_with.iter().map(idf).collect();
    let terms_seen = counted.terms.len();
    let matrix = kept.matrix(&counted.rows, |row| weigh(row, &idf, settings.sublinear));
    drop(counted);
    let svd = svd::truncated(&matrix, settings.dim, settings.seed);
    let fit =
        TfidfFit { documents, without_terms: documents - matrix.rows(), terms_seen, terms: kept.terms.len() };
    let dim = svd.values.len();
    let mut encoder = TfidfSvd::new(*settings, fit, kept.terms, idf, svd.components, vec![0.0; dim]);
    if settings.centre {
        encoder.mean = encoder.mean_over(&matrix);
        encoder.fingerprint = encoder.take_fingerprint();
    }
    Ok(encoder)
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
        let columns = terms.iter().enumerate().map(|(n, term)| (term.clone(), n as u32)).collect();
        let fingerprint = Fingerprinter::new(KIND).finish();
        let dim = mean.len();
        let mut encoder = TfidfSvd { settings, fit, dim, terms, columns, idf, components, mean, fingerprint };
        encoder.fingerprint = encoder.take_fingerprint();
        encoder
    }

    /// How it was fitted.
    pub fn settings(&self) -> &TfidfSettings {
        &self.settings
    }

    /// What it was fitted on.
    pub fn fit(&self) -> &TfidfFit {
        &self.fit
    }

    /// What a user should be told about the fit, if anything.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.dim < self.settings.dim {
            notes.push(format!(
                "the vectors have {} dimensions, not {}: {} documents with {} terms have no more in them",
                self.dim, self.settings.dim, self.fit.documents, self.fit.terms
            ));
        }
        if self.fit.without_terms > 0 {
            notes.push(format!(
                "{} of {} documents hold none of the terms that were kept",
                self.fit.without_terms, self.fit.documents
            ));
        }
        notes
    }

    /// Writes it into a folder, which is replaced if it holds an encoder of this kind of encoders.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let description = folder::Description {
            kind: KIND.to_owned(),
            analysis: ANALYZER.to_owned(),
            settings: folder::to_json(&self.settings)?,
            about: folder::to_json(&self.fit)?,
        };
        let tensors = [
            Tensor::new("components", vec![self.terms.len(), self.dim], &self.components),
            Tensor::new("idf", vec![self.terms.len()], &self.idf),
            Tensor::new("mean", vec![self.dim], &self.mean),
        ];
        folder::save(folder, description, self.terms.iter().map(|t| &**t), &tensors)
    }

    pub(super) fn from_contents(contents: Contents) -> Result<Self> {
        let settings = contents.settings()?;
        let fit = contents.about()?;
        let terms = contents.words.len();
        let (dim, components) = contents.rows("components", terms)?;
        let idf = contents.vector("idf", terms)?;
        let mean = contents.vector("mean", dim)?;
        Ok(TfidfSvd::new(settings, fit, contents.words, idf, components, mean))
    }

    fn take_fingerprint(&self) -> Fingerprint {
        let mut f = Fingerprinter::new(KIND);
        f.text("analysis", ANALYZER).text("dim", self.dim);
        f.text("sublinear", self.settings.sublinear).text("centre", self.settings.centre);
        f.text("normalize", self.settings.normalize);
        f.part("terms", self.terms.join("\n").as_bytes());
        for (name, numbers) in [("idf", &self.idf), ("components", &self.components), ("mean", &self.mean)] {
            f.part(name, &folder::bytes_of(numbers));
        }
        f.finish()
    }

    /// The projection of a weighted row, scaled to length 1 where it will be centred; `None` if nothing is left of it.
    fn project(&self, indices: &[u32], values: &[f32]) -> Option<Vec<f64>> {
        let mut out = vec![0.0; self.dim];
        for (column, value) in indices.iter().zip(values) {
            let row = &self.components[*column as usize * self.dim..][..self.dim];
            out.iter_mut().zip(row).for_each(|(o, c)| *o += f64::from(*value) * f64::from(*c));
        }
        let length = out.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length < NOTHING {
            return None;
        }
        if self.settings.centre {
            out.iter_mut().for_each(|v| *v /= length);
        }
        Some(out)
    }

    /// The mean of all projections; added up in chunks of fixed size, so that threads change nothing.
    fn mean_over(&self, matrix: &Sparse) -> Vec<f32> {
        let starts: Vec<usize> = (0..matrix.rows()).step_by(4096).collect();
        let sums: Vec<Vec<f64>> = starts
            .par_iter()
            .map(|start| {
                let mut sum = vec![0.0; self.dim];
                for n in *start..(start + 4096).min(matrix.rows()) {
                    let (indices, values) = matrix.row(n);
                    if let Some(projected) = self.project(indices, values) {
                        sum.iter_mut().zip(projected).for_each(|(s, p)| *s += p);
                    }
                }
                sum
            })
            .collect();
        let mean = |k: usize| sums.iter().map(|s| s[k]).sum::<f64>() / matrix.rows().max(1) as f64;
        (0..self.dim).map(|k| mean(k) as f32).collect()
    }
}

/// TF-IDF weights of length 1.
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

impl Compose for TfidfSvd {
    fn width(&self) -> usize {
        self.dim
    }

    fn compose(&self, texts: &[&str]) -> Composed {
        let counts = vocabulary::counts(texts);
        let known =
            counts.iter().filter_map(|(term, count)| Some((*self.columns.get(term.as_str())?, *count)));
        let mut row: Vec<(u32, u32)> = known.collect();
        row.sort_unstable();
        let (indices, values): (Vec<u32>, Vec<f32>) =
            weigh(&row, &self.idf, self.settings.sublinear).into_iter().unzip();
        match self.project(&indices, &values) {
            None => Composed { vector: vec![0.0; self.dim], words: 0 },
            Some(mut vector) => {
                vector.iter_mut().zip(&self.mean).for_each(|(v, m)| *v -= f64::from(*m));
                Composed { vector, words: row.iter().map(|(_, count)| u64::from(*count)).sum() }
            }
        }
    }

    fn finish(&self, vector: &mut [f64]) {
        if self.settings.normalize {
            compose::to_length_one(vector);
        }
    }
}

impl Encoder for TfidfSvd {
    fn name(&self) -> &str {
        "TF-IDF + SVD"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn normalizes(&self) -> bool {
        self.settings.normalize
    }

    fn describe(&self) -> String {
        format!("{} terms, f32 on cpu, {} threads", self.terms.len(), rayon::current_num_threads())
    }

    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded> {
        compose::refuse_prompt(options.prompt.as_deref())?;
        Ok(compose::encode(self, texts))
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        compose::refuse_prompt(options.prompt.as_deref())?;
        Ok(compose::encode_dialogues(self, dialogues, options))
    }
}
