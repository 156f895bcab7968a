//! Languages: Snowball stemming of words in Latin script, so that `deliveries` and `delivery` match, and function words.

use std::str::FromStr;

use frostem::{Algorithm, Stemmer};

use crate::{Token, function_words::FUNCTION_WORDS};
use turnwise_core::{Error, Result};

/// Language that can be stemmed, stored as an index into [`LANGUAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Language(usize);

/// Language codes with their English names and stemming algorithms, sorted by code. The codes are part of analyzer
/// names.
pub(super) const LANGUAGES: [(&str, &str, Algorithm); 14] = [
    ("da", "Danish", Algorithm::Danish),
    ("de", "German", Algorithm::German),
    ("en", "English", Algorithm::English),
    ("es", "Spanish", Algorithm::Spanish),
    ("fi", "Finnish", Algorithm::Finnish),
    ("fr", "French", Algorithm::French),
    ("hu", "Hungarian", Algorithm::Hungarian),
    ("it", "Italian", Algorithm::Italian),
    ("nl", "Dutch", Algorithm::Dutch),
    ("no", "Norwegian", Algorithm::Norwegian),
    ("pt", "Portuguese", Algorithm::Portuguese),
    ("ro", "Romanian", Algorithm::Romanian),
    ("sv", "Swedish", Algorithm::Swedish),
    ("tr", "Turkish", Algorithm::Turkish),
];

impl Language {
    /// Returns the language at a position in [`LANGUAGES`].
    pub(super) fn nth(n: usize) -> Self {
        assert!(n < LANGUAGES.len());
        Language(n)
    }

    pub(super) fn code(self) -> &'static str {
        LANGUAGES[self.0].0
    }

    /// Returns the English name of the language.
    pub(super) fn name(self) -> &'static str {
        LANGUAGES[self.0].1
    }

    /// Returns true if an unstemmed term is a function word of the language.
    pub(super) fn is_function_word(self, term: &str) -> bool {
        FUNCTION_WORDS[self.0].binary_search(&term).is_ok()
    }

    /// Replaces each term with its stem. Terms that contain anything other than Latin letters are unchanged.
    pub(super) fn stem_all(self, tokens: &mut [Token]) {
        let stemmer = Stemmer::new(LANGUAGES[self.0].2);
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
        let codes = LANGUAGES.iter().map(|(code, ..)| *code);
        match codes.clone().position(|known| known == code) {
            Some(n) => Ok(Language(n)),
            None => Err(Error::unknown_name("stemming language", code, codes)),
        }
    }
}

/// Returns whether a character is a Latin letter. Returns false for `A` to `Z`, because terms are in lower case.
pub(super) fn is_latin(c: char) -> bool {
    matches!(c, 'a'..='z' | '\u{df}'..='\u{f6}' | '\u{f8}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}
