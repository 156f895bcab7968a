//! Segmentation of Chinese text into words of the jieba dictionary.

use std::sync::OnceLock;

use jieba_rs::Jieba;

use super::{Token, bigrams, push};

/// Splits a run of Han characters into dictionary words. Shorter words within a long word are also terms, so that a
/// short query matches the long word. A run that contains Kana or Hangul is split into bigrams instead. The arguments
/// are those of `cut` in [`super::scan`].
pub(super) fn words(text: &str, letters: &[usize], end: usize, tokens: &mut Vec<Token>) {
    let run = &text[letters[0]..end];
    if !run.chars().all(is_han) {
        return bigrams(text, letters, end, tokens);
    }
    let border = |n: usize| letters.get(n).copied().unwrap_or(end);
    // Jieba returns character offsets, which are indexes into `letters`.
    let mut ranges: Vec<_> = dictionary()
        .cut_for_search(run, true)
        .into_iter()
        .map(|word| border(word.start)..border(word.end))
        .filter(|range| !range.is_empty())
        .collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup();
    ranges.into_iter().for_each(|range| push(text, range, tokens));
}

/// Returns the dictionary. The first call loads it, which is slow.
fn dictionary() -> &'static Jieba {
    static DICTIONARY: OnceLock<Jieba> = OnceLock::new();
    DICTIONARY.get_or_init(Jieba::new)
}

fn is_han(c: char) -> bool {
    // The caller passes only Han, Kana and Hangul. A character that is neither Kana nor Hangul is therefore Han.
    !matches!(c, '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{Analyzer, Token};

    fn analyze(name: &str, text: &str) -> Vec<Token> {
        name.parse::<Analyzer>().unwrap().analyze(text)
    }

    fn terms(name: &str, text: &str) -> Vec<String> {
        analyze(name, text).into_iter().map(|token| token.term).collect()
    }

    #[test]
    fn chinese_is_split_into_words_and_other_text_as_by_default() {
        assert_eq!(terms("jieba-1", "我要申请退款"), ["我要", "申请", "退款"]);
        assert_eq!(terms("jieba-1", "订单A12已发货, thanks"), ["订单", "a12", "已", "发货", "thanks"]);
        assert_eq!(terms("jieba-1+stem-en", "退款 deliveries"), ["退款", "deliveri"]);
        assert_eq!("jieba-1+stem-en".parse::<Analyzer>().unwrap().to_string(), "jieba-1+stem-en");
        // Words within a long word are also terms.
        assert_eq!(terms("jieba-1", "中华人民共和国")[0], "中华");
        assert!(terms("jieba-1", "中华人民共和国").contains(&"中华人民共和国".to_owned()));
        // The dictionary does not cover Kana and Hangul.
        assert_eq!(terms("jieba-1", "食べる"), terms("mixed-1", "食べる"));
        assert_eq!(terms("jieba-1", "한국어"), terms("mixed-1", "한국어"));
    }

    proptest! {
        #[test]
        fn ranges_are_within_the_text_and_cover_every_letter(text in "[一-龥a-z，ぁ-ん ]{0,40}") {
            let tokens = analyze("jieba-1", &text);
            let mut last = 0;
            for token in &tokens {
                prop_assert!(text.get(token.range.clone()).is_some());
                prop_assert!(token.range.start >= last && !token.term.is_empty());
                last = token.range.start;
            }
            for (at, _) in text.char_indices().filter(|(_, c)| *c != ' ' && *c != '，') {
                prop_assert!(tokens.iter().any(|token| token.range.contains(&at)), "{text} at {at}");
            }
        }
    }
}
