//! Splitting of texts into terms for lexical rankers.

use std::{fmt, str::FromStr};

use unicode_normalization::UnicodeNormalization;

use turnwise_core::error::{Error, Result};
use turnwise_text::{Analyzer, words_and_letters};

/// Method of splitting a text into terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// Terms as an analyzer of the lexical index returns them.
    Analyzed(Analyzer),
    /// Words and bigrams of words. Text in a script without spaces is split into single characters instead of words, as
    /// in papers on Chinese.
    Pairs,
    /// Characters and bigrams of characters, without whitespace.
    Letters,
    /// Words of at least two characters and bigrams of these words, as in scikit-learn with `ngram_range=(1, 2)`.
    Scikit,
}

impl Default for Terms {
    fn default() -> Self {
        Terms::Analyzed(Analyzer::default())
    }
}

impl Terms {
    /// Returns the display name of a ranker that uses these terms. `ranker` is the name of the ranker with the default
    /// terms.
    pub(super) fn named(self, ranker: &str) -> String {
        match self == Terms::default() {
            true => ranker.to_owned(),
            false => format!("{ranker} {self}"),
        }
    }

    /// Splits a text into terms.
    pub fn of(self, text: &str) -> Vec<String> {
        let words_and_letters: Vec<String> = match self {
            Terms::Analyzed(analyzer) => {
                return analyzer.analyze(text).into_iter().map(|token| token.term).collect();
            }
            Terms::Pairs => words_and_letters(text).into_iter().map(|token| token.term).collect(),
            Terms::Letters => text
                .nfkc()
                .flat_map(char::to_lowercase)
                .filter(|letter| !letter.is_whitespace())
                .map(String::from)
                .collect(),
            Terms::Scikit => {
                let in_word = |c: char| c.is_alphanumeric() || c == '_';
                let lower = text.to_lowercase();
                let words = lower.split(|c| !in_word(c)).filter(|word| word.chars().nth(1).is_some());
                words.map(str::to_owned).collect()
            }
        };
        let between = if self == Terms::Scikit { " " } else { "" };
        let pairs: Vec<String> = words_and_letters.windows(2).map(|pair| pair.join(between)).collect();
        words_and_letters.into_iter().chain(pairs).collect()
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Terms::Analyzed(analyzer) => analyzer.fmt(f),
            Terms::Pairs => f.write_str("pairs"),
            Terms::Letters => f.write_str("letters"),
            Terms::Scikit => f.write_str("scikit"),
        }
    }
}

impl FromStr for Terms {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "pairs" => Ok(Terms::Pairs),
            "letters" => Ok(Terms::Letters),
            "scikit" => Ok(Terms::Scikit),
            analyzer => analyzer.parse().map(Terms::Analyzed).map_err(|e| match e {
                Error::UnknownName { kind, name, hint } => {
                    let more = "pairs, letters and scikit are also valid";
                    let hint = hint.map_or_else(|| more.to_owned(), |hint| format!("{hint}; {more}"));
                    Error::UnknownName { kind, name, hint: Some(hint) }
                }
                other => other,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_all_kinds() {
        assert_eq!(Terms::default().of("Card lost? 退款申请"), ["card", "lost", "退款", "款申", "申请"]);
        assert_eq!(Terms::Pairs.of("Lost, 退款!"), ["lost", "退", "款", "lost退", "退款"]);
        assert_eq!(Terms::Letters.of("A b!"), ["a", "b", "!", "ab", "b!"]);
        assert_eq!(Terms::Scikit.of("It's a Card, ok"), ["it", "card", "ok", "it card", "card ok"]);
        assert!(Terms::Pairs.of("").is_empty());
        for name in ["pairs", "letters", "scikit", "mixed-1+stem-en"] {
            assert_eq!(name.parse::<Terms>().unwrap().to_string(), name);
        }
        assert!("pears".parse::<Terms>().is_err());
    }
}
