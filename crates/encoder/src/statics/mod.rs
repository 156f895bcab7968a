//! Static encoders: the vector of a text is computed from its words, without a neural network.
//!
//! * [`TfidfSvd`]: TF-IDF and truncated SVD, fitted on the corpus itself ([`fit_tfidf`]).
//! * [`WordEncoder`]: the average of word vectors from a GloVe or word2vec file, optionally weighted by smooth inverse
//!   frequency (SIF).
//!
//! Both kinds are saved as folders. [`open`] opens such a folder.

use std::path::Path;

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

use crate::Encoder;

pub use tfidf::{TfidfFit, TfidfSettings, TfidfSvd, fit_tfidf};
pub use words::{WordEncoder, WordTable};

mod compose;
mod folder;
pub mod linalg;
mod panels;
#[cfg(test)]
mod tests;
mod tfidf;
pub mod words;

/// Possible values of `kind` in `turnwise.json`, the file that describes an encoder.
const KINDS: [&str; 2] = [tfidf::KIND, words::KIND];

/// Returns true if a folder contains a static encoder.
pub fn is_static(folder: &Path) -> bool {
    folder::kind(folder).is_some_and(|kind| KINDS.contains(&kind.as_str()))
}

/// Opens a saved [`TfidfSvd`] or [`WordEncoder`]. Fails if a file is damaged, or if the folder was written by an
/// incompatible version.
pub fn open(folder: &Path) -> Result<Box<dyn Encoder>> {
    let contents = folder::open(folder)?;
    match contents.kind() {
        tfidf::KIND => Ok(Box::new(TfidfSvd::from_contents(contents)?)),
        words::KIND => Ok(Box::new(WordEncoder::from_contents(contents)?)),
        other => Err(Error::unknown_name("kind of static encoder", other, KINDS)),
    }
}

/// Joins the turns of a dialogue into one text. Use it to fit an encoder on whole dialogues.
pub fn document(dialogue: &Dialogue) -> String {
    let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
    texts.join("\n")
}
