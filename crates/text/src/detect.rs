//! Detection of the language of texts by their function words.

use std::collections::{BTreeMap, HashMap};

use crate::{
    Analyzer, Token, bigrams,
    function_words::FUNCTION_WORDS,
    scan,
    stem::{LANGUAGES, Language, is_latin},
};

/// Maximum number of texts that are read.
const MAX_TEXTS: usize = 4_000;
/// Maximum number of bytes that are read.
const MAX_BYTES: usize = 400_000;
/// Minimum number of words in Latin script.
const MIN_WORDS: usize = 20;
/// Minimum number of different function words.
const MIN_DISTINCT: usize = 5;
/// Minimum fraction of function words among the words in Latin script. In the sentences of the tests, the fraction is at
/// least 0.44 in the right language, and 0.33 in casual English chat. Estonian has 0.15 function words of Finnish;
/// Polish, Czech and Indonesian have at most 0.1 of any language.
const MIN_SHARE: f64 = 0.2;
/// Minimum fraction of the language among the function words of all languages. In the sentences of the tests, it is at
/// least 0.91, and 0.87 in casual English chat. Spanish has 0.42 of the function words in Catalan.
const MIN_LEAD: f64 = 0.6;
/// Number of iterations of [`mixture`].
const ITERATIONS: usize = 30;

impl Analyzer {
    /// Returns the default analyzer with stemming in the language of the texts. Without stemming if the texts are too
    /// short, are mainly in another script, have no clear main language, or are in a language that cannot be stemmed.
    /// Reads only the first texts.
    ///
    /// A very similar language is detected instead of a language that cannot be stemmed: Dutch instead of Afrikaans, and
    /// Portuguese instead of Galician.
    pub fn detect<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Analyzer::default().with_language(Language::detect(texts))
    }
}

impl Language {
    /// Returns the main language of the texts; `None` if it is not clear. Reads only the first texts.
    pub(super) fn detect<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut counts = Counts::default();
        for text in texts.into_iter().take(MAX_TEXTS) {
            counts.add(text.as_ref());
            if counts.bytes >= MAX_BYTES {
                break;
            }
        }
        counts.language()
    }
}

/// Set of languages, with one bit for each position in [`LANGUAGES`].
type Languages = u16;

/// Numbers of words in the texts read so far.
#[derive(Default)]
struct Counts {
    bytes: usize,
    /// Number of words in Latin script.
    latin: usize,
    /// Number of words in other scripts, and of character bigrams.
    other: usize,
    /// Number of occurrences of each function word, with the languages that have this word.
    function_words: HashMap<String, (Languages, u32)>,
}

impl Counts {
    fn add(&mut self, text: &str) {
        self.bytes += text.len();
        for Token { term, .. } in scan(text, bigrams) {
            if term.chars().all(is_latin) {
                self.latin += 1;
                match self.function_words.get_mut(&term) {
                    Some((_, count)) => *count += 1,
                    None => match languages_of(&term) {
                        0 => {}
                        languages => drop(self.function_words.insert(term, (languages, 1))),
                    },
                }
            } else if !term.is_ascii() {
                // ASCII terms that are not words are numbers and codes. They are part of any language.
                self.other += 1;
            }
        }
    }

    fn language(&self) -> Option<Language> {
        if self.latin < MIN_WORDS || self.latin < self.other {
            return None;
        }
        let weights = mixture(&self.function_words);
        let (best, weight) = weights.into_iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let own = self.function_words.values().filter(|(languages, _)| languages & (1 << best) != 0);
        let (distinct, occurrences) = own.fold((0, 0), |(n, sum), (_, count)| (n + 1, sum + count));
        let share = f64::from(occurrences) / self.latin as f64;
        (distinct >= MIN_DISTINCT && share >= MIN_SHARE && weight >= MIN_LEAD).then(|| Language::nth(best))
    }
}

/// Returns the languages that have a function word; 0 if there are none.
fn languages_of(word: &str) -> Languages {
    let has_word = |n: &usize| FUNCTION_WORDS[*n].binary_search(&word).is_ok();
    (0..LANGUAGES.len()).filter(has_word).fold(0, |languages, n| languages | (1 << n))
}

/// Estimates the fraction of each language among the function words: the maximum-likelihood weights of a mixture, by
/// expectation maximization.
///
/// Many words belong to several languages, above all in Danish and Norwegian, and in Spanish and Portuguese. Such a
/// word is divided among its languages in proportion to the current weights. The words of only one language therefore
/// decide.
fn mixture(function_words: &HashMap<String, (Languages, u32)>) -> [f64; LANGUAGES.len()] {
    const N: usize = LANGUAGES.len();
    // The result must not depend on the order of the hash map, so equal sets are combined and sorted.
    let mut sets: BTreeMap<Languages, u32> = BTreeMap::new();
    function_words.values().for_each(|(languages, count)| *sets.entry(*languages).or_default() += count);
    let total: f64 = sets.values().copied().map(f64::from).sum();
    let mut weights = [1.0 / N as f64; N];
    for _ in 0..ITERATIONS {
        let mut next = [0.0; N];
        for (languages, count) in &sets {
            let members = || (0..N).filter(|n| languages & (1 << n) != 0);
            let sum: f64 = members().map(|n| weights[n]).sum();
            if sum > 0.0 {
                members().for_each(|n| next[n] += f64::from(*count) * weights[n] / sum);
            }
        }
        weights = next.map(|weight| weight / total.max(1.0));
    }
    weights
}

#[cfg(test)]
mod tests;
