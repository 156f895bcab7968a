//! Text analysis: turns a text into index terms. Documents and queries use the same analysis.
//!
//! The default analyzer, `mixed-1`, works as follows:
//!
//! * Terms are normalized to NFKC and lower case. Matching therefore ignores case, character width, and whether
//!   an accent is a separate character.
//! * Han, Kana and Hangul text is split into overlapping character bigrams.
//! * Other text is split into words. Each word is one term, without apostrophes: `don't` becomes `dont`.
//!
//! [`Analyzer`] selects an analysis by its name. An index stores this name. [`Analyzer::detect`] selects it by the language
//! of texts: [`Analyzer::query_terms`] leaves out the function words of this language, such as `the`.
//!
//! ```
//! use turnwise_text::Analyzer;
//!
//! let analyzer: Analyzer = "mixed-1+stem-en".parse()?;
//! assert_eq!(analyzer.terms("Deliveries aren't late: 退款"), ["arent", "deliveri", "late", "退款"]);
//! # Ok::<(), turnwise_core::Error>(())
//! ```

mod analyzer;
mod counter;
pub mod dates;
mod detect;
#[cfg(feature = "jieba")]
mod dictionary;
mod function_words;
mod stem;

pub use analyzer::{Analyzer, AnalyzerChoice};
pub use counter::TermCounter;

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;

use turnwise_core::script::is_unspaced;

/// Name of the default analyzer. An index stores the name of its analyzer, because queries must use the same analyzer.
pub const ANALYZER: &str = "mixed-1";

/// Maximum length of a word in characters. Longer words are split.
const MAX_WORD_CHARS: usize = 100;

/// A term and its position in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The term: a normalized word, stem, dictionary word, bigram or single character.
    pub term: String,
    /// Byte range of the term in the original text.
    pub range: Range<usize>,
}

/// Analyzes a text with the default analyzer. Returns the terms in order of appearance.
pub fn analyze(text: &str) -> Vec<Token> {
    Analyzer::default().analyze(text)
}

/// Returns a key that is equal for texts with the same words, which differ only in case, spaces and punctuation. The key of
/// a text without words is the text itself.
pub fn words_key(text: &str) -> String {
    let terms: Vec<String> = analyze(text).into_iter().map(|token| token.term).collect();
    if terms.is_empty() { text.trim().to_owned() } else { terms.join(" ") }
}

/// Splits a text into words. Calls `cut` to split each run of characters from scripts without word spaces.
///
/// The arguments of `cut` are the text, the byte offset of each character in the run, the byte offset of the run's end,
/// and the output.
fn scan(text: &str, cut: impl Fn(&str, &[usize], usize, &mut Vec<Token>)) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        if is_unspaced(c) {
            let mut letters = vec![start];
            let mut end = start + c.len_utf8();
            while let Some((at, next)) = chars.next_if(|(_, next)| is_unspaced(*next)) {
                letters.push(at);
                end = at + next.len_utf8();
            }
            cut(text, &letters, end, &mut tokens);
        } else if is_word(c) {
            let mut end = start + c.len_utf8();
            let mut length = 1;
            while let Some(&(at, next)) = chars.peek() {
                let inner_apostrophe = is_apostrophe(next)
                    && text[at + next.len_utf8()..]
                        .chars()
                        .next()
                        .is_some_and(|after| is_word(after) && !is_unspaced(after));
                let fits = (is_word(next) && !is_unspaced(next)) || inner_apostrophe;
                if !fits || length >= MAX_WORD_CHARS {
                    break;
                }
                chars.next();
                length += 1;
                end = at + next.len_utf8();
            }
            push(text, start..end, &mut tokens);
        }
    }
    tokens
}

/// Splits a run of characters into overlapping bigrams. A run of one character is a term by itself. The arguments are
/// those of `cut` in [`scan`].
fn bigrams(text: &str, letters: &[usize], end: usize, tokens: &mut Vec<Token>) {
    let border = |n: usize| letters.get(n).copied().unwrap_or(end);
    match letters.len() {
        1 => push(text, letters[0]..end, tokens),
        n => (0..n - 1).for_each(|i| push(text, letters[i]..border(i + 2), tokens)),
    }
}

/// Splits a text into words. In scripts without word spaces, each character is a token. Only baseline rankers of the
/// benchmarks use this function.
pub fn words_and_letters(text: &str) -> Vec<Token> {
    scan(text, |text, letters, end, tokens| {
        let border = |n: usize| letters.get(n).copied().unwrap_or(end);
        (0..letters.len()).for_each(|n| push(text, letters[n]..border(n + 1), tokens));
    })
}

fn push(text: &str, range: Range<usize>, tokens: &mut Vec<Token>) {
    let raw = &text[range.clone()];
    let term = if raw.is_ascii() {
        raw.bytes().filter(|b| *b != b'\'').map(|b| b.to_ascii_lowercase() as char).collect()
    } else {
        raw.nfkc().filter(|c| !is_apostrophe(*c)).flat_map(char::to_lowercase).collect::<String>()
    };
    if !term.is_empty() {
        tokens.push(Token { term, range });
    }
}

fn is_word(c: char) -> bool {
    // Combining marks belong to the letter before them.
    c.is_alphanumeric() || c == '_' || unicode_normalization::char::is_combining_mark(c)
}

fn is_apostrophe(c: char) -> bool {
    c == '\'' || c == '\u{2019}'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(text: &str) -> Vec<String> {
        analyze(text).into_iter().map(|t| t.term).collect()
    }

    #[test]
    fn texts_with_the_same_words_have_the_same_key() {
        for (a, b) in
            [("You're welcome!", "you\u{2019}re  welcome"), ("OK.", "ok"), (" :) ", ":)"), ("退款。", "退款")]
        {
            assert_eq!(words_key(a), words_key(b), "{a}");
        }
        for (a, b) in [("yes", "no"), (":)", ":("), ("at 2 pm", "at 3 pm"), ("", "?"), ("退款", "退货")] {
            assert_ne!(words_key(a), words_key(b), "{a}");
        }
    }

    #[test]
    fn words_bigrams_and_mixed_text() {
        assert_eq!(
            terms("I don't LIKE the café's Wi-Fi!"),
            ["i", "dont", "like", "the", "cafés", "wi", "fi"]
        );
        assert_eq!(terms("退款申请"), ["退款", "款申", "申请"]);
        assert_eq!(terms("订单A12已发"), ["订单", "a12", "已发"]);
        assert_eq!(terms("好"), ["好"]);
        assert_eq!(terms("ＡＢＣ ﬁne e\u{301}"), ["abc", "fine", "é"]);
        assert_eq!(terms("'quoted' rock'n'roll '"), ["quoted", "rocknroll"]);
        assert_eq!(terms("… — !"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn ranges_are_within_the_text_and_terms_are_not_empty(text in ".{0,60}") {
            let mut last = 0;
            for token in analyze(&text) {
                prop_assert!(text.get(token.range.clone()).is_some());
                prop_assert!(token.range.start >= last && !token.term.is_empty());
                last = token.range.start;
            }
        }
    }
}
