//! Text analyzers, which split text into terms. An analyzer is selected by its name.

use std::{fmt, ops::Range, str::FromStr};

use crate::{
    ANALYZER, Token, bigrams, scan,
    stem::{LANGUAGES, Language},
};
use turnwise_core::{Error, Result};

/// Name of the analyzer that splits Chinese text into dictionary words. It splits all other text as `mixed-1` does.
const JIEBA: &str = "jieba-1";

/// Separator between the base name and the language code in the name of an analyzer with stemming, such as
/// `mixed-1+stem-en`.
const STEM: &str = "+stem-";

/// Text analyzer, named `mixed-1` (default) or `jieba-1`. Either name can be followed by `+stem-LANGUAGE`.
///
/// An index stores the name of its analyzer. The same name must always produce the same terms, so a change that affects
/// the terms requires a new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Analyzer {
    segmentation: Segmentation,
    stem: Option<Language>,
}

/// Segmentation method for scripts without word spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Segmentation {
    /// Overlapping character bigrams.
    #[default]
    Bigrams,
    /// Dictionary words for runs of Han characters, and character bigrams for runs that contain Kana or Hangul.
    #[cfg(feature = "jieba")]
    Dictionary,
}

impl Analyzer {
    /// Returns the terms of a text with their positions, in order of appearance.
    pub fn analyze(&self, text: &str) -> Vec<Token> {
        let mut tokens = self.split(text);
        self.stem(&mut tokens);
        tokens
    }

    /// Replaces each term with its stem. Does nothing if the analyzer has no stemming.
    pub(crate) fn stem(&self, tokens: &mut [Token]) {
        if let Some(language) = self.stem {
            language.stem_all(tokens);
        }
    }

    /// Returns the terms of a query text with their positions, in order of appearance: all terms except the function
    /// words of the analyzer's language. If the text contains only function words, all of them are returned. An
    /// analyzer without stemming has no language and returns all terms.
    pub fn analyze_query(&self, text: &str) -> Vec<Token> {
        let mut tokens = self.split(text);
        if let Some(language) = self.stem {
            let is_content = |token: &Token| !language.is_function_word(&token.term);
            if tokens.iter().any(is_content) {
                tokens.retain(is_content);
            }
            language.stem_all(&mut tokens);
        }
        tokens
    }

    /// Returns whether a word is a function word of the analyzer's language, ignoring case. An analyzer without stemming
    /// has no language.
    pub fn is_function_word(&self, word: &str) -> bool {
        let tokens = self.split(word);
        let is_function_word =
            |language: Language| tokens.iter().all(|token| language.is_function_word(&token.term));
        !tokens.is_empty() && self.stem.is_some_and(is_function_word)
    }

    /// Splits a text into terms without stemming.
    pub(crate) fn split(&self, text: &str) -> Vec<Token> {
        match self.segmentation {
            Segmentation::Bigrams => scan(text, bigrams),
            #[cfg(feature = "jieba")]
            Segmentation::Dictionary => scan(text, super::dictionary::words),
        }
    }

    /// Returns the byte ranges where any of `terms` occurs in a text, in ascending order. `terms` must be terms from
    /// the same analyzer. Overlapping and adjacent ranges are merged.
    pub fn ranges(&self, text: &str, terms: &[String]) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for token in self.analyze(text).into_iter().filter(|token| terms.contains(&token.term)) {
            match ranges.last_mut() {
                Some(last) if token.range.start <= last.end => last.end = last.end.max(token.range.end),
                _ => ranges.push(token.range),
            }
        }
        ranges
    }

    /// Returns the distinct terms of a text, sorted.
    pub fn terms(&self, text: &str) -> Vec<String> {
        distinct(self.analyze(text))
    }

    /// Returns the distinct terms of a query text, sorted; see [`Analyzer::analyze_query`].
    pub fn query_terms(&self, text: &str) -> Vec<String> {
        distinct(self.analyze_query(text))
    }

    /// Returns the English name of the language that the analyzer stems; `None` without stemming.
    pub fn language(&self) -> Option<&'static str> {
        self.stem.map(Language::name)
    }

    /// Returns the same analyzer without stemming. Its terms are whole words.
    pub fn without_stemming(self) -> Self {
        self.with_language(None)
    }

    pub(super) fn with_language(self, stem: Option<Language>) -> Self {
        Analyzer { stem, ..self }
    }

    /// Returns a description of all valid analyzer names, for help texts.
    pub fn names() -> String {
        format!(
            "{ANALYZER} (words; character bigrams for scripts without spaces) or {JIEBA} (Chinese words by \
             dictionary; needs a build with `--features jieba`). Both can be followed by {STEM}LANGUAGE (stemming of \
             words in Latin script: {}). The 1 is a version",
            LANGUAGES.map(|(code, ..)| code).join(", ")
        )
    }
}

fn distinct(tokens: Vec<Token>) -> Vec<String> {
    let mut terms: Vec<String> = tokens.into_iter().map(|token| token.term).collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// Name of the choice [`AnalyzerChoice::Detect`].
const AUTO: &str = "auto";

/// Choice of an analyzer: by its name, or by the language of the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnalyzerChoice {
    /// The default analyzer with stemming in the language of the texts; see [`Analyzer::detect`].
    Detect,
    /// The given analyzer.
    Named(Analyzer),
}

impl From<Analyzer> for AnalyzerChoice {
    fn from(analyzer: Analyzer) -> Self {
        AnalyzerChoice::Named(analyzer)
    }
}

impl FromStr for AnalyzerChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            AUTO => Ok(AnalyzerChoice::Detect),
            name => name.parse().map(AnalyzerChoice::Named),
        }
    }
}

impl FromStr for Segmentation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            ANALYZER => Ok(Segmentation::Bigrams),
            #[cfg(feature = "jieba")]
            JIEBA => Ok(Segmentation::Dictionary),
            #[cfg(not(feature = "jieba"))]
            JIEBA => {
                let message = format!("this turnwise was built without the dictionary of `{JIEBA}`");
                Err(Error::unavailable(message).with_hint("build it with `--features jieba`"))
            }
            other => Err(Error::unknown_name("analyzer", other, [ANALYZER, JIEBA])),
        }
    }
}

impl FromStr for Analyzer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let Some((base, rest)) = name.split_once('+') else {
            return Ok(Analyzer { segmentation: name.parse()?, stem: None });
        };
        let segmentation = base.parse()?;
        match name[base.len()..].strip_prefix(STEM) {
            Some(code) => Ok(Analyzer { segmentation, stem: Some(code.parse()?) }),
            None => Err(Error::unknown_name("analyzer suffix", rest, ["stem-en"])),
        }
    }
}

impl fmt::Display for Analyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.segmentation {
            Segmentation::Bigrams => ANALYZER,
            #[cfg(feature = "jieba")]
            Segmentation::Dictionary => JIEBA,
        })?;
        self.stem.map_or(Ok(()), |language| write!(f, "{STEM}{}", language.code()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{self as text};
    use turnwise_core::error::Class;

    fn terms(name: &str, text: &str) -> Vec<String> {
        name.parse::<Analyzer>().unwrap().analyze(text).into_iter().map(|t| t.term).collect()
    }

    fn refused(name: &str) -> (Class, String, Option<String>) {
        let e = name.parse::<Analyzer>().unwrap_err();
        (e.class(), e.to_string(), e.hint())
    }

    #[test]
    fn names_round_trip() {
        for name in ["mixed-1", "mixed-1+stem-en", "mixed-1+stem-tr"] {
            assert_eq!(name.parse::<Analyzer>().unwrap().to_string(), name);
        }
        assert_eq!(Analyzer::default().to_string(), ANALYZER);
    }

    #[test]
    fn an_unknown_name_gets_a_suggestion() {
        let (class, message, hint) = refused("mixd-1");
        assert_eq!((class, message.as_str()), (Class::Input, "unknown analyzer `mixd-1`"));
        assert_eq!(hint.as_deref(), Some("did you mean `mixed-1`?"));
        assert_eq!(refused("mixed-1+stm-en").2.as_deref(), Some("did you mean `stem-en`?"));
        let (_, message, hint) = refused("mixed-1+stem-xx");
        assert_eq!(message, "unknown stemming language `xx`");
        assert!(hint.unwrap().starts_with("known: da, de, en, "), "{message}");
        for name in ["", "+", "mixed-1+", "+stem-en", "mixed-1+stem-", "mixed-1+stem-en+stem-de"] {
            assert_eq!(refused(name).0, Class::Input, "{name}");
        }
    }

    #[test]
    fn only_latin_words_are_stemmed() {
        assert_eq!(
            terms("mixed-1+stem-en", "Deliveries delivered, customers' A12s 退款申请 доставки"),
            ["deliveri", "deliv", "custom", "a12s", "退款", "款申", "申请", "доставки"]
        );
        assert_eq!(terms("mixed-1+stem-de", "Lieferungen"), ["liefer"]);
        assert_eq!(terms("mixed-1+stem-fr", "retardées"), ["retard"]);
    }

    #[test]
    fn terms_are_sorted_and_distinct() {
        assert_eq!(Analyzer::default().terms("b a B"), ["a", "b"]);
    }

    #[test]
    fn queries_have_no_function_words_unless_they_have_no_other_words() {
        let query_terms = |name: &str, text: &str| name.parse::<Analyzer>().unwrap().query_terms(text);
        let text = "Where are my two deliveries? I don't see the deliveries, 退款";
        assert_eq!(query_terms("mixed-1+stem-en", text), ["deliveri", "see", "two", "退款"]);
        assert_eq!(query_terms("mixed-1+stem-en", "To be or not to be"), ["be", "not", "or", "to"]);
        assert_eq!(query_terms("mixed-1+stem-de", "Wo ist die Lieferung?"), ["liefer"]);
        assert_eq!(query_terms("mixed-1+stem-fr", "C'est où, l'eau ?"), ["leau"]);
        assert_eq!(query_terms("mixed-1", "where is the parcel"), ["is", "parcel", "the", "where"]);
        assert!(query_terms("mixed-1+stem-en", "…").is_empty());
        // Function words are compared before stemming: the stem of `willing` is `will`.
        assert_eq!(query_terms("mixed-1+stem-en", "will willing"), ["will"]);
        // Documents keep all terms.
        assert_eq!(terms("mixed-1+stem-en", "to be"), ["to", "be"]);
    }

    #[test]
    fn an_analyzer_is_chosen_by_name_or_detected() {
        assert_eq!("auto".parse::<AnalyzerChoice>().unwrap(), AnalyzerChoice::Detect);
        let named: AnalyzerChoice = "mixed-1+stem-de".parse().unwrap();
        assert_eq!(named, AnalyzerChoice::from("mixed-1+stem-de".parse::<Analyzer>().unwrap()));
        assert!("automatic".parse::<AnalyzerChoice>().is_err());
        let german: Analyzer = "mixed-1+stem-de".parse().unwrap();
        assert_eq!((german.language(), german.without_stemming()), (Some("German"), Analyzer::default()));
    }

    #[cfg(not(feature = "jieba"))]
    #[test]
    fn the_jieba_analyzer_needs_the_dictionary() {
        let (class, message, hint) = refused("jieba-1+stem-en");
        assert_eq!((class, hint.as_deref()), (Class::Unavailable, Some("build it with `--features jieba`")));
        assert!(message.contains("`jieba-1`"), "{message}");
    }

    proptest! {
        #[test]
        fn every_analyzer_keeps_the_ranges_of_the_words(text in ".{0,60}", language in 0..LANGUAGES.len()) {
            let name = format!("mixed-1+stem-{}", LANGUAGES[language].0);
            let plain = text::analyze(&text);
            let stemmed = name.parse::<Analyzer>().unwrap().analyze(&text);
            prop_assert_eq!(plain.len(), stemmed.len());
            for (a, b) in plain.iter().zip(&stemmed) {
                prop_assert_eq!(&a.range, &b.range);
                prop_assert!(!b.term.is_empty());
            }
        }

        #[test]
        fn latin_words_are_stemmed_without_a_panic(word in "[a-zà-ÿāăąćčďđēęěğıłńňőœřśşšťůűźżž]{1,30}", language in 0..LANGUAGES.len()) {
            let name = format!("mixed-1+stem-{}", LANGUAGES[language].0);
            prop_assert!(terms(&name, &word).iter().all(|term| !term.is_empty()));
        }
    }
}
