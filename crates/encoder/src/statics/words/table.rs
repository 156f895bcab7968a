//! A table of words and their vectors.

use std::collections::{HashMap, hash_map::Entry};

use turnwise_core::script::is_unspaced;

/// Maximum length, in characters, of words that are looked up in text of scripts without spaces, such as Chinese. Longer
/// entries are not words and would only cost time.
const MOST_LETTERS: usize = 32;

/// Word vectors in file order. Common files are sorted by descending word frequency.
#[derive(Debug, Clone, Default)]
pub struct WordTable {
    dim: usize,
    rows: HashMap<Box<str>, u32>,
    vectors: Vec<f32>,
    /// Position of each word in the file, starting at 1.
    ranks: Vec<u32>,
    /// Number of words in the file.
    places: u32,
    /// Number of letters of the longest word in a script without spaces.
    longest: usize,
}

impl WordTable {
    /// Creates an empty table for vectors with `dim` dimensions.
    pub fn new(dim: usize) -> Self {
        WordTable { dim, ..WordTable::default() }
    }

    /// Adds a word. Returns `false` and changes nothing if the word is already there. The vector must have the width
    /// of the table, and all elements must be finite.
    pub fn push(&mut self, word: &str, vector: &[f32]) -> bool {
        assert_eq!(vector.len(), self.dim, "the vector has the wrong width");
        self.places += 1;
        let row = self.rows.len() as u32;
        match self.rows.entry(word.into()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(row);
                self.vectors.extend_from_slice(vector);
                self.ranks.push(self.places);
                if word.chars().all(is_unspaced) {
                    self.longest = self.longest.max(word.chars().count().min(MOST_LETTERS));
                }
                true
            }
        }
    }

    /// Skips a word of the file. The ranks of later words still count this word.
    pub(super) fn pass(&mut self) {
        self.places += 1;
    }

    /// Width of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Returns the row of a word. The word must match exactly.
    pub fn row_of(&self, word: &str) -> Option<u32> {
        self.rows.get(word).copied()
    }

    /// Vector of a row.
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.vectors[row as usize * self.dim..][..self.dim]
    }

    /// All vectors, in row-major order.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// Words in the order of their rows.
    pub fn words(&self) -> Vec<&str> {
        let mut words = vec![""; self.len()];
        self.rows.iter().for_each(|(word, row)| words[*row as usize] = word);
        words
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Probability of each word by Zipf's law: the second word of the file is half as probable as the first,
    /// and so on.
    pub(super) fn zipf(&self) -> Vec<f64> {
        let sum: f64 = (1..=self.places).map(|rank| 1.0 / f64::from(rank)).sum();
        self.ranks.iter().map(|rank| 1.0 / (f64::from(*rank) * sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_duplicate_is_kept_and_ranks_are_file_positions() {
        let mut t = WordTable::new(1);
        assert!(t.push("a", &[1.0]));
        assert!(!t.push("a", &[2.0]));
        t.pass();
        assert!(t.push("订单", &[3.0]));
        assert_eq!((t.len(), t.longest(), t.words()), (2, 2, vec!["a", "订单"]));
        assert_eq!(t.vector(t.row_of("a").unwrap()), [1.0]);
        let p = t.zipf();
        assert!((p[0] / p[1] - 4.0).abs() < 1e-12);
        assert!((p[0] - 1.0 / (1.0 + 0.5 + 1.0 / 3.0 + 0.25)).abs() < 1e-12);
    }
}
