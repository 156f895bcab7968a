//! Which analysis: a value with a name, so that an index can remember it and a user can ask for it.

use std::{fmt, ops::Range, str::FromStr};

use crate::{ANALYZER, Token, pairs, scan, stem::Language};
use turnwise_core::error::{Error, Result};

/// Chinese words by dictionary, all else as `mixed-1`.
const BY_DICTIONARY: &str = "jieba-1";

/// Between the base and the language of an analyzer that stems.
const STEM: &str = "+stem-";

/// An analysis, and its name: `mixed-1`, `jieba-1`, and either with `+stem-LANGUAGE`.
///
/// The name stands for the terms: what changes the terms of any text gets another name. The default is `mixed-1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Analyzer {
    unspaced: Unspaced,
    stem: Option<Language>,
}

/// What becomes of scripts that are written without spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Unspaced {
    /// Overlapping pairs of letters.
    #[default]
    Pairs,
    /// Han by the dictionary; pairs for Kana, Hangul and what is mixed with them.
    #[cfg(feature = "jieba")]
    Dictionary,
}

impl Analyzer {
    /// The terms of a text, in order.
    pub fn analyze(&self, text: &str) -> Vec<Token> {
        let mut tokens = match self.unspaced {
            Unspaced::Pairs => scan(text, pairs),
            #[cfg(feature = "jieba")]
            Unspaced::Dictionary => scan(text, super::dictionary::words),
        };
        if let Some(language) = self.stem {
            language.stem_all(&mut tokens);
        }
        tokens
    }

    /// The bytes of a text that stand for one of these terms; what overlaps, as pairs of letters do, is one.
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

    /// The different terms of a text, sorted.
    pub fn terms(&self, text: &str) -> Vec<String> {
        let mut terms: Vec<String> = self.analyze(text).into_iter().map(|token| token.term).collect();
        terms.sort_unstable();
        terms.dedup();
        terms
    }

    /// What a name can be, in words.
    pub fn names() -> String {
        let languages: Vec<&str> = Language::ALL.iter().map(|language| language.code()).collect();
        format!(
            "{ANALYZER} (words as they stand, pairs of letters where a script has no spaces) or {BY_DICTIONARY} \
             (Chinese words by dictionary, if turnwise was built with it), either with {STEM}LANGUAGE behind it \
             (stems of Latin words: {})",
            languages.join(", ")
        )
    }
}

impl FromStr for Unspaced {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            ANALYZER => Ok(Unspaced::Pairs),
            #[cfg(feature = "jieba")]
            BY_DICTIONARY => Ok(Unspaced::Dictionary),
            #[cfg(not(feature = "jieba"))]
            BY_DICTIONARY => Err(Error::Unavailable {
                message: format!("this turnwise was built without the dictionary of `{BY_DICTIONARY}`"),
                hint: Some("build it with `--features jieba`".to_owned()),
            }),
            other => Err(Error::unknown_name("analyzer", other, [ANALYZER, BY_DICTIONARY])),
        }
    }
}

impl FromStr for Analyzer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let Some((base, rest)) = name.split_once('+') else {
            return Ok(Analyzer { unspaced: name.parse()?, stem: None });
        };
        let unspaced = base.parse()?;
        match name[base.len()..].strip_prefix(STEM) {
            Some(code) => Ok(Analyzer { unspaced, stem: Some(code.parse()?) }),
            None => Err(Error::unknown_name("addition to an analyzer", rest, ["stem-en"])),
        }
    }
}

impl fmt::Display for Analyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unspaced {
            Unspaced::Pairs => ANALYZER,
            #[cfg(feature = "jieba")]
            Unspaced::Dictionary => BY_DICTIONARY,
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
    fn a_name_comes_back_as_it_was() {
        for name in ["mixed-1", "mixed-1+stem-en", "mixed-1+stem-tr"] {
            assert_eq!(name.parse::<Analyzer>().unwrap().to_string(), name);
        }
        assert_eq!(Analyzer::default().to_string(), ANALYZER);
    }

    #[test]
    fn an_unknown_name_is_told_with_the_near_ones() {
        let (class, message, hint) = refused("mixd-1");
        assert_eq!((class, message.as_str()), (Class::Input, "unknown analyzer `mixd-1`"));
        assert_eq!(hint.as_deref(), Some("did you mean `mixed-1`?"));
        assert_eq!(refused("mixed-1+stm-en").2.as_deref(), Some("did you mean `stem-en`?"));
        let (_, message, hint) = refused("mixed-1+stem-xx");
        assert_eq!(message, "unknown language of stems `xx`");
        assert!(hint.unwrap().starts_with("known: da, de, en, "), "{message}");
        for name in ["", "+", "mixed-1+", "+stem-en", "mixed-1+stem-", "mixed-1+stem-en+stem-de"] {
            assert_eq!(refused(name).0, Class::Input, "{name}");
        }
    }

    #[test]
    fn stems_are_of_latin_words_only() {
        assert_eq!(
            terms("mixed-1+stem-en", "Deliveries delivered, customers' A12s 退款申请 доставки"),
            ["deliveri", "deliv", "custom", "a12s", "退款", "款申", "申请", "доставки"]
        );
        assert_eq!(terms("mixed-1+stem-de", "Lieferungen"), ["liefer"]);
        assert_eq!(terms("mixed-1+stem-fr", "retardées"), ["retard"]);
    }

    #[test]
    fn different_terms_are_sorted_and_there_once() {
        assert_eq!(Analyzer::default().terms("b a B"), ["a", "b"]);
    }

    #[cfg(not(feature = "jieba"))]
    #[test]
    fn without_the_dictionary_its_analyzer_is_not_to_be_had() {
        let (class, message, hint) = refused("jieba-1+stem-en");
        assert_eq!((class, hint.as_deref()), (Class::Unavailable, Some("build it with `--features jieba`")));
        assert!(message.contains("`jieba-1`"), "{message}");
    }

    proptest! {
        #[test]
        fn every_analyzer_keeps_the_ranges_of_the_words(text in ".{0,60}", language in 0..Language::ALL.len()) {
            let name = format!("mixed-1+stem-{}", Language::ALL[language].code());
            let plain = text::analyze(&text);
            let stemmed = name.parse::<Analyzer>().unwrap().analyze(&text);
            prop_assert_eq!(plain.len(), stemmed.len());
            for (a, b) in plain.iter().zip(&stemmed) {
                prop_assert_eq!(&a.range, &b.range);
                prop_assert!(!b.term.is_empty());
            }
        }

        #[test]
        fn latin_words_are_stemmed_without_a_panic(word in "[a-zà-ÿāăąćčďđēęěğıłńňőœřśşšťůűźżž]{1,30}", language in 0..Language::ALL.len()) {
            let name = format!("mixed-1+stem-{}", Language::ALL[language].code());
            prop_assert!(terms(&name, &word).iter().all(|term| !term.is_empty()));
        }
    }
}
