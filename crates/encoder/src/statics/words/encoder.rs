//! Encoder that averages word vectors.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{
    WordTable, lookup,
    sif::{self, Known},
};
use crate::{
    DialogueOptions, Encoded, Encoder, Fingerprint, TextOptions,
    fingerprint::Fingerprinter,
    statics::{
        compose::{self, Compose, Composed},
        folder::{self, Contents, Description, Tensor},
    },
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_text::ANALYZER;

/// Name of this kind in `turnwise.json`.
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
    settings: Settings,
    about: About,
    table: WordTable,
    /// One weight per word; empty if all weights are equal.
    weights: Vec<f32>,
    /// Common component that is removed from every vector, if any.
    common: Option<Vec<f32>>,
    fingerprint: Fingerprint,
}

impl WordEncoder {
    /// Creates an encoder that computes the plain average of word vectors.
    pub fn mean(table: WordTable) -> Self {
        let settings = Settings { sif: None, normalize: false };
        WordEncoder::new(settings, About { documents: 0 }, table, Vec::new(), None)
    }

    /// Creates a SIF encoder with the weights a / (a + p). The probability p follows from a word's position in
    /// the file (Zipf's law). `a` is about 1e-3.
    pub fn sif(table: WordTable, a: f64) -> Result<Self> {
        check(a)?;
        let weights = sif::weights(&table.zipf(), a);
        let settings = Settings { sif: Some(a), normalize: false };
        Ok(WordEncoder::new(settings, About { documents: 0 }, table, weights, None))
    }

    /// Fits a SIF encoder: the weights are a / (a + p), with the probability p of a word in the documents. The first
    /// singular vector of the document vectors is removed from every vector. The singular vector is computed once and
    /// stored, so a vector does not depend on other inputs.
    pub fn fit_sif(table: WordTable, a: f64, documents: impl Iterator<Item = String>) -> Result<Self> {
        check(a)?;
        let known = Known::of(&table, documents);
        if known.words() == 0 {
            let message = format!("none of the words in {} documents has a vector", known.documents);
            return Err(Error::data(message).with_hint("use word vectors for the language of the documents"));
        }
        let weights = sif::weights(&known.probabilities(&table), a);
        let common = known.common(&table, &weights);
        let settings = Settings { sif: Some(a), normalize: false };
        Ok(WordEncoder::new(settings, About { documents: known.documents }, table, weights, Some(common)))
    }

    /// Enables or disables L2 normalization of the vectors.
    #[must_use]
    pub fn normalized(mut self, normalize: bool) -> Self {
        self.settings.normalize = normalize;
        self.fingerprint = self.compute_fingerprint();
        self
    }

    fn new(
        settings: Settings,
        about: About,
        table: WordTable,
        weights: Vec<f32>,
        common: Option<Vec<f32>>,
    ) -> Self {
        let fingerprint = Fingerprinter::new(KIND).finish();
        let mut encoder = WordEncoder { settings, about, table, weights, common, fingerprint };
        encoder.fingerprint = encoder.compute_fingerprint();
        encoder
    }

    /// The words and their vectors.
    pub fn table(&self) -> &WordTable {
        &self.table
    }

    /// Saves the encoder to a folder. An existing static encoder in the folder is replaced.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let description = Description {
            kind: KIND.to_owned(),
            analysis: ANALYZER.to_owned(),
            settings: folder::to_json(&self.settings)?,
            about: folder::to_json(&self.about)?,
        };
        let (rows, dim) = (self.table.len(), self.table.dim());
        let mut tensors = vec![Tensor::new("vectors", vec![rows, dim], self.table.vectors())];
        if self.settings.sif.is_some() {
            tensors.push(Tensor::new("weights", vec![rows], &self.weights));
        }
        if let Some(common) = &self.common {
            tensors.push(Tensor::new("common", vec![dim], common));
        }
        folder::save(folder, description, self.table.words().into_iter(), &tensors)
    }

    pub(in crate::statics) fn from_contents(contents: Contents) -> Result<Self> {
        let settings: Settings = contents.settings()?;
        let about = contents.about()?;
        let (dim, vectors) = contents.rows("vectors", contents.words.len())?;
        let weights = match settings.sif {
            Some(_) => contents.vector("weights", contents.words.len())?,
            None => Vec::new(),
        };
        let common = match contents.has("common")? {
            true => Some(contents.vector("common", dim)?),
            false => None,
        };
        let mut table = WordTable::new(dim);
        for (word, vector) in contents.words.iter().zip(vectors.chunks_exact(dim)) {
            if !table.push(word, vector) {
                return Err(contents.damaged(format!("the word `{word}` is duplicated")));
            }
        }
        Ok(WordEncoder::new(settings, about, table, weights, common))
    }

    fn compute_fingerprint(&self) -> Fingerprint {
        let mut f = Fingerprinter::new(KIND);
        f.text("analysis", ANALYZER).text("dim", self.table.dim()).text("normalize", self.settings.normalize);
        f.part("words", self.table.words().join("\n").as_bytes());
        f.part("vectors", &folder::bytes_of(self.table.vectors()));
        f.part("weights", &folder::bytes_of(&self.weights));
        if let Some(common) = &self.common {
            f.part("common", &folder::bytes_of(common));
        }
        f.finish()
    }
}

fn check(a: f64) -> Result<()> {
    match a.is_finite() && a > 0.0 {
        true => Ok(()),
        false => Err(Error::input(format!("SIF's parameter a is {a}; it must be greater than 0"))
            .with_hint("the usual value is 0.001")),
    }
}

impl Compose for WordEncoder {
    fn width(&self) -> usize {
        self.table.dim()
    }

    fn compose(&self, texts: &[&str]) -> Composed {
        let rows: Vec<u32> = texts.iter().flat_map(|text| lookup::rows(&self.table, text)).collect();
        let mut vector = sif::average(&self.table, &self.weights, &rows);
        if let Some(common) = &self.common {
            let along: f64 = vector.iter().zip(common).map(|(v, c)| v * f64::from(*c)).sum();
            vector.iter_mut().zip(common).for_each(|(v, c)| *v -= along * f64::from(*c));
        }
        Composed { vector, words: rows.len() as u64 }
    }

    fn finish(&self, vector: &mut [f64]) {
        if self.settings.normalize {
            compose::to_length_one(vector);
        }
    }
}

impl Encoder for WordEncoder {
    fn name(&self) -> &str {
        match (self.settings.sif, &self.common) {
            (None, _) => "word vectors, averaged",
            (Some(_), None) => "word vectors, SIF by Zipf's law",
            (Some(_), Some(_)) => "word vectors, SIF fitted on a corpus",
        }
    }

    fn dim(&self) -> usize {
        self.table.dim()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn normalizes(&self) -> bool {
        self.settings.normalize
    }

    fn describe(&self) -> String {
        format!("{} words, f32 on cpu, {} threads", self.table.len(), rayon::current_num_threads())
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
