//! Word vectors, read from GloVe and word2vec files, and an encoder that averages them.

use std::collections::{HashMap, hash_map::Entry};

use turnwise_core::script::is_unspaced;
use turnwise_text as text;
use unicode_normalization::UnicodeNormalization;

pub use encoder::WordEncoder;
pub use read::{WordFormat, WordReading, read_words};

pub(super) use encoder::KIND;

mod encoder;
mod formats;
mod read;

/// Maximum length of a word, in characters, when segmenting text in scripts without spaces, such as Chinese. Longer
/// entries of a table are ignored. They are not real words, and looking for them would only take time.
const MAX_LETTERS: usize = 32;

/// Table of word vectors. The words have the order of the file; most files are sorted by descending word frequency.
#[derive(Debug, Clone, Default)]
pub struct WordTable {
    dim: usize,
    rows: HashMap<Box<str>, u32>,
    vectors: Vec<f32>,
    /// Length of the longest word in a script without spaces, in characters; at most [`MAX_LETTERS`].
    longest: usize,
}

impl WordTable {
    /// Creates an empty table for vectors with `dim` dimensions.
    pub fn new(dim: usize) -> Self {
        WordTable { dim, ..WordTable::default() }
    }

    /// Adds a word. Returns `false` and changes nothing if the table already has the word. All elements of the vector
    /// must be finite. Panics if the vector does not have the width of the table.
    pub fn push(&mut self, word: &str, vector: &[f32]) -> bool {
        assert_eq!(vector.len(), self.dim, "the vector has the wrong width");
        let row = self.rows.len() as u32;
        match self.rows.entry(word.into()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(row);
                self.vectors.extend_from_slice(vector);
                if word.chars().all(is_unspaced) {
                    self.longest = self.longest.max(word.chars().count().min(MAX_LETTERS));
                }
                true
            }
        }
    }

    /// Returns the width of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the row of a word; `None` if the table does not contain exactly this word.
    pub fn row_of(&self, word: &str) -> Option<u32> {
        self.rows.get(word).copied()
    }

    /// Returns the vector in the given row.
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.vectors[row as usize * self.dim..][..self.dim]
    }

    /// Returns all vectors, in row-major order.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// Returns the words in the order of their rows.
    pub fn words(&self) -> Vec<&str> {
        let mut words = vec![""; self.len()];
        self.rows.iter().for_each(|(word, row)| words[*row as usize] = word);
        words
    }
}

/// Splits a text into words, and returns their row numbers in the table. Words that are not in the table are left out.
///
/// A word is looked up in three forms: as analyzed for search (lower case, without apostrophes), in lower case, and
/// exactly as written. The first of these forms that the table contains is used. In a script without spaces, text is
/// segmented greedily. At each letter, the longest matching word of the table is taken. A letter that starts no word is
/// skipped.
pub(super) fn rows(table: &WordTable, text: &str) -> Vec<u32> {
    let mut rows = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let unspaced = is_unspaced(first);
        let end = rest.find(|c| is_unspaced(c) != unspaced).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        match unspaced {
            true => segment(table, run, &mut rows),
            false => rows.extend(
                text::analyze(run).iter().filter_map(|t| look_up(table, &t.term, &run[t.range.clone()])),
            ),
        }
        rest = after;
    }
    rows
}

fn look_up(table: &WordTable, term: &str, written: &str) -> Option<u32> {
    let lower = || table.row_of(&written.to_lowercase());
    table.row_of(term).or_else(lower).or_else(|| table.row_of(written))
}

fn segment(table: &WordTable, run: &str, rows: &mut Vec<u32>) {
    let normal: String = run.nfkc().collect();
    let mut rest = normal.as_str();
    while let Some(first) = rest.chars().next() {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).take(table.longest);
        let found = ends.filter_map(|end| Some((end, table.row_of(&rest[..end])?))).last();
        let (end, row) = found.map_or((first.len_utf8(), None), |(end, row)| (end, Some(row)));
        rows.extend(row);
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_duplicate_is_kept() {
        let mut t = WordTable::new(1);
        assert!(t.push("a", &[1.0]));
        assert!(!t.push("a", &[2.0]));
        assert!(t.push("订单", &[3.0]));
        assert_eq!((t.len(), t.longest, t.words()), (2, 2, vec!["a", "订单"]));
        assert_eq!(t.vector(t.row_of("a").unwrap()), [1.0]);
    }

    fn table(words: &[&str]) -> WordTable {
        let mut t = WordTable::new(1);
        words.iter().for_each(|w| assert!(t.push(w, &[0.0])));
        t
    }

    fn found(words: &[&str], text: &str) -> Vec<String> {
        let t = table(words);
        rows(&t, text).into_iter().map(|row| words[row as usize].to_owned()).collect()
    }

    #[test]
    fn words_are_found_in_lower_case_first() {
        assert_eq!(found(&["paris", "Paris", "in"], "Paris, IN Rome"), ["paris", "in"]);
        assert_eq!(found(&["Paris"], "PARIS Paris paris"), ["Paris"]);
        assert_eq!(found(&["don't", "can't"], "I DON'T, can\u{2019}t"), ["don't"]);
        assert_eq!(found(&["dont", "don't"], "don't"), ["dont"]);
    }

    #[test]
    fn unspaced_scripts_are_cut_greedily() {
        let words = ["我", "要", "退款", "申请", "退款申请", "请"];
        assert_eq!(found(&words, "我要退款申请书"), ["我", "要", "退款申请"]);
        assert_eq!(found(&words, "退,申请abc请"), ["申请", "请"]);
        assert_eq!(found(&["订单", "a12"], "订单A12已发"), ["订单", "a12"]);
        assert_eq!(found(&["a"], "没有"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn segmentation_takes_the_longest_word_at_every_letter(text in "[甲乙丙丁]{0,12}", words in prop::collection::hash_set("[甲乙丙]{1,4}", 0..8)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let letters: Vec<char> = text.chars().collect();
            let (mut at, mut want) = (0, Vec::new());
            while at < letters.len() {
                let longest = (at + 1..=letters.len()).rev().map(|end| letters[at..end].iter().collect::<String>());
                match longest.into_iter().find(|w| words.contains(&w.as_str())) {
                    Some(word) => {
                        at += word.chars().count();
                        want.push(word);
                    }
                    None => at += 1,
                }
            }
            prop_assert_eq!(found(&words, &text), want);
        }

        #[test]
        fn any_text_can_be_looked_up(text in ".{0,60}") {
            prop_assert!(rows(&table(&["a", "é", "订"]), &text).iter().all(|row| *row < 3));
        }
    }
}
