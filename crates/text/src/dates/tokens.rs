//! Splits a text into the words, numbers and punctuation that matter for dates.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;

use super::{
    phrases::phrase,
    words::{self, MAX_LENGTH, Word},
};
use turnwise_core::script::is_unspaced;

/// A word, number or punctuation character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Number of at most four digits. `ordinal` is set for `8th` and similar forms.
    Number { value: i16, digits: u8, ordinal: bool },
    /// A word that can be part of a date.
    Word(Word),
    /// Any other word or code.
    Other,
    /// Any other character except spaces.
    Sign(char),
}

#[derive(Debug, Clone, Copy)]
struct Token {
    kind: Kind,
    start: usize,
    end: usize,
}

/// The tokens of a text.
pub(super) struct Tokens<'t> {
    text: &'t str,
    list: Vec<Token>,
    has_french: bool,
    has_germanic: bool,
}

impl<'t> Tokens<'t> {
    /// Splits a text. Returns `None` if it cannot contain a date: it has no number, and no word that every date without a
    /// number has.
    pub(super) fn new(text: &'t str) -> Option<Self> {
        // About a word and a space for each token.
        let mut tokens =
            Tokens { text, list: Vec::with_capacity(text.len() / 4), has_french: false, has_germanic: false };
        tokens.scan().then_some(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn kind(&self, n: usize) -> Option<Kind> {
        self.list.get(n).map(|token| token.kind)
    }

    pub(super) fn word(&self, n: usize) -> Option<Word> {
        match self.kind(n)? {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns the word before a token.
    pub(super) fn word_before(&self, n: usize) -> Option<Word> {
        self.word(n.checked_sub(1)?)
    }

    pub(super) fn is_sign(&self, n: usize, sign: char) -> bool {
        self.kind(n) == Some(Kind::Sign(sign))
    }

    /// Returns whether the text has frequent words of French, and none of German or Dutch.
    pub(super) fn is_french(&self) -> bool {
        self.has_french && !self.has_germanic
    }

    /// Returns the text of a token.
    pub(super) fn text(&self, n: usize) -> &'t str {
        self.list.get(n).map_or("", |token| &self.text[token.start..token.end])
    }

    /// Returns whether a token begins with an uppercase letter.
    pub(super) fn is_capitalized(&self, n: usize) -> bool {
        self.text(n).chars().next().is_some_and(char::is_uppercase)
    }

    /// Returns whether there is no space between a token and the token before it.
    pub(super) fn is_attached(&self, n: usize) -> bool {
        let before = n.checked_sub(1).and_then(|n| self.list.get(n));
        before.zip(self.list.get(n)).is_some_and(|(before, token)| before.end == token.start)
    }

    /// Returns the byte range of the tokens from `first` up to, but not including, `end`.
    pub(super) fn range(&self, first: usize, end: usize) -> Range<usize> {
        let start = self.list.get(first).map_or(self.text.len(), |token| token.start);
        let end = end.checked_sub(1).and_then(|n| self.list.get(n)).map_or(start, |token| token.end);
        start..end.max(start)
    }

    /// Returns whether the tokens from `first` to `last` stand alone. They do not if they are part of an amount, a
    /// decimal number, a time, a path or a code.
    pub(super) fn stands_alone(&self, first: usize, last: usize) -> bool {
        let is_text =
            |n: usize| matches!(self.kind(n), Some(Kind::Number { .. } | Kind::Word(_) | Kind::Other));
        let before = match first.checked_sub(1).map(|n| (n, self.kind(n))) {
            Some((n, Some(Kind::Sign(sign)))) if self.is_attached(first) => match sign {
                '$' | '€' | '£' | '¥' | '#' | '@' | '=' | '+' | '\\' | '/' | '_' | '&' => false,
                '.' | ',' | ':' | '-' => !(n > 0 && self.is_attached(n) && is_text(n - 1)),
                _ => true,
            },
            _ => true,
        };
        let after = match self.kind(last + 1) {
            Some(Kind::Sign(sign)) if self.is_attached(last + 1) => match sign {
                '$' | '€' | '£' | '%' | '@' | '=' | '+' | '\\' | '/' | '_' | '&' => false,
                '.' | ',' | ':' | '-' => !(self.is_attached(last + 2) && is_text(last + 2)),
                _ => true,
            },
            _ => true,
        };
        before && after
    }

    /// Splits the text into the list. Returns whether it can contain a date.
    fn scan(&mut self) -> bool {
        let text = self.text;
        let bytes = text.as_bytes();
        let mut found = false;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let start = at;
            let kind = if byte.is_ascii_alphabetic() {
                at = self.word_end(at);
                word(&text[start..at])
            } else if byte.is_ascii_digit() {
                at += 1;
                while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                    at += 1;
                }
                let digits = at - start;
                // The time of `2023-05-08T10:00` is not part of the date.
                let is_time = digits == 2
                    && self.list.last().is_some_and(|token| token.kind == Kind::Sign('-'))
                    && bytes.get(at) == Some(&b'T');
                let end = if is_time { at } else { self.word_end(at) };
                let suffix = &text[at..end];
                at = end;
                number(&text[start..start + digits], suffix)
            } else if byte.is_ascii() {
                at += 1;
                match byte {
                    b' ' | b'\t' | b'\r' => continue,
                    sign => Kind::Sign(sign as char),
                }
            } else {
                let Some(c) = text[at..].chars().next() else { break };
                at += c.len_utf8();
                if is_unspaced(c) {
                    let before = text[..start].chars().next_back();
                    match phrase(&text[start..], before) {
                        Some((phrase, length)) => {
                            at = start + length;
                            Kind::Word(Word::Phrase(phrase))
                        }
                        None => match c {
                            '年' => Kind::Word(Word::YearSign),
                            '月' => Kind::Word(Word::MonthSign),
                            '日' | '号' | '號' => Kind::Word(Word::DaySign),
                            _ => Kind::Other,
                        },
                    }
                } else if let '０'..='９' = c {
                    while let Some(c @ '０'..='９') = text[at..].chars().next() {
                        at += c.len_utf8();
                    }
                    let digits: String = text[start..at].nfkc().take(5).collect();
                    number(&digits, "")
                } else if is_word(c) {
                    at = self.word_end(at);
                    word(&text[start..at])
                } else if c.is_whitespace() {
                    continue;
                } else {
                    Kind::Sign(c)
                }
            };
            found |= match kind {
                Kind::Number { .. } => true,
                Kind::Word(word) => {
                    self.has_french |= word == Word::French;
                    self.has_germanic |= word == Word::Germanic;
                    is_essential(word)
                }
                _ => false,
            };
            match self.list.last_mut() {
                // One token for a run of Chinese characters.
                Some(last) if kind == Kind::Other && last.kind == Kind::Other && last.end == start => {
                    last.end = at
                }
                _ => self.list.push(Token { kind, start, end: at }),
            }
        }
        found
    }

    /// Returns the end of the word that continues at a byte offset.
    fn word_end(&self, mut at: usize) -> usize {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(at) {
                Some(byte) if byte.is_ascii_alphanumeric() || *byte == b'_' => at += 1,
                Some(byte) if !byte.is_ascii() => match self.text[at..].chars().next() {
                    Some(c) if is_word(c) && !is_unspaced(c) => at += c.len_utf8(),
                    _ => return at,
                },
                _ => return at,
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || unicode_normalization::char::is_combining_mark(c)
}

/// Returns whether a date without a number can contain this word as its main word.
fn is_essential(word: Word) -> bool {
    use Word::*;
    matches!(
        word,
        Month(..)
            | Season(_)
            | Weekday(..)
            | Unit(_)
            | Offset(_)
            | Phrase(_)
            | PartOfDay
            | Hier
            | Morgen
            | Manana
    )
}

fn word(text: &str) -> Kind {
    // NFKC and lower case can change the length, but not from twice the maximum.
    if text.len() > 2 * MAX_LENGTH {
        return Kind::Other;
    }
    let meaning = if text.is_ascii() {
        // Most words are rejected here. For ASCII, the filter ignores case.
        if !words::may_have_meaning(text.as_bytes()) {
            return Kind::Other;
        }
        let mut buffer = [0; 2 * MAX_LENGTH];
        let lower = &mut buffer[..text.len()];
        lower.copy_from_slice(text.as_bytes());
        lower.make_ascii_lowercase();
        words::meaning(lower)
    } else if text.chars().next().is_some_and(|c| c < '\u{250}') {
        let lower: String = text.nfkc().flat_map(char::to_lowercase).collect();
        words::meaning(lower.as_bytes())
    } else {
        // A script without words in the list.
        None
    };
    meaning.map_or(Kind::Other, Kind::Word)
}

fn number(digits: &str, suffix: &str) -> Kind {
    const ORDINALS: &[&str] = &["st", "nd", "rd", "th", "er", "e", "ste", "de", "º", "ª", "o"];
    let ordinal = ORDINALS.iter().any(|ending| suffix.eq_ignore_ascii_case(ending));
    match digits.parse() {
        Ok(value) if digits.len() <= 4 && (suffix.is_empty() || ordinal) => {
            Kind::Number { value, digits: digits.len() as u8, ordinal }
        }
        _ => Kind::Other,
    }
}
