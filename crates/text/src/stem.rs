//! Snowball stemming of words in Latin script, so that `deliveries` and `delivery` match.

use std::str::FromStr;

use frostem::{Algorithm, Stemmer};

use crate::Token;
use turnwise_core::{Error, Result};

/// Language of a stemmer, stored as an index into [`LANGUAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Language(usize);

/// Language codes with their stemming algorithms, sorted by code. The codes are part of analyzer names.
pub(super) const LANGUAGES: [(&str, Algorithm); 14] = [
    ("da", Algorithm::Danish),
    ("de", Algorithm::German),
    ("en", Algorithm::English),
    ("es", Algorithm::Spanish),
    ("fi", Algorithm::Finnish),
    ("fr", Algorithm::French),
    ("hu", Algorithm::Hungarian),
    ("it", Algorithm::Italian),
    ("nl", Algorithm::Dutch),
    ("no", Algorithm::Norwegian),
    ("pt", Algorithm::Portuguese),
    ("ro", Algorithm::Romanian),
    ("sv", Algorithm::Swedish),
    ("tr", Algorithm::Turkish),
];

impl Language {
    pub(super) fn code(self) -> &'static str {
        LANGUAGES[self.0].0
    }

    /// Replaces each term with its stem. Terms that contain anything other than Latin letters are unchanged.
    pub(super) fn stem_all(self, tokens: &mut [Token]) {
        let stemmer = Stemmer::new(LANGUAGES[self.0].1);
        for token in tokens.iter_mut().filter(|token| token.term.chars().all(is_latin)) {
            let stem = stemmer.stem(&token.term);
            // Keep the word if its stem is empty, because a term must not be empty.
            if !stem.is_empty() && *stem != token.term {
                token.term = stem.into_owned();
            }
        }
    }
}

impl FromStr for Language {
    type Err = Error;

    fn from_str(code: &str) -> Result<Self> {
        let codes = LANGUAGES.iter().map(|(code, _)| *code);
        match codes.clone().position(|known| known == code) {
            Some(n) => Ok(Language(n)),
            None => Err(Error::unknown_name("stemming language", code, codes)),
        }
    }
}

/// Returns whether a character is a Latin letter. Returns false for `A` to `Z`, because terms are in lower case.
fn is_latin(c: char) -> bool {
    matches!(c, 'a'..='z' | '\u{df}'..='\u{f6}' | '\u{f8}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}
