//! Static encoders: a text's vector is made of its words, and nothing needs to be downloaded.
//!
//! * [`TfidfSvd`]: TF-IDF and truncated SVD, fitted on the corpus itself ([`fit_tfidf`]).
//! * [`WordEncoder`]: word vectors from a file in GloVe's or word2vec's formats, averaged, or weighted by how rare a
//!   word is (SIF).
//!
//! Either is saved as one folder; [`open`] gives it back.

use std::path::Path;

mod compose;
pub mod eigen;
mod folder;
mod panels;
mod random;
pub mod svd;
mod tensors;
#[cfg(test)]
mod tests;
mod tfidf;
mod vocabulary;
pub mod words;

pub use tfidf::{TfidfFit, TfidfSettings, TfidfSvd, fit_tfidf};
pub use words::{WordEncoder, WordTable};

use crate::Encoder;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// The kinds that a folder may hold.
const KINDS: [&str; 2] = [tfidf::KIND, words::KIND];

/// Whether a folder holds a static encoder.
pub fn is_static(folder: &Path) -> bool {
    folder::kind(folder).is_some_and(|kind| KINDS.contains(&kind.as_str()))
}

/// Opens a saved encoder, whichever kind it is.
pub fn open(folder: &Path) -> Result<Box<dyn Encoder>> {
    let contents = folder::open(folder)?;
    match contents.kind.as_str() {
        tfidf::KIND => Ok(Box::new(TfidfSvd::from_contents(contents)?)),
        words::KIND => Ok(Box::new(WordEncoder::from_contents(contents)?)),
        other => Err(Error::unknown_name("kind of static encoder", other, KINDS)),
    }
}

/// The text of a whole dialogue as one document, for fitting on dialogues.
pub fn document(dialogue: &Dialogue) -> String {
    let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
    texts.join("\n")
}
