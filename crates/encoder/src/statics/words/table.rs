//! Words and their vectors.

use std::collections::{HashMap, hash_map::Entry};

use turnwise_core::script::is_unspaced;

/// A longer word of a script without spaces is no word, and looking for it would only take time.
const MOST_LETTERS: usize = 32;

/// Words with a vector each, in the order of the file, which for all common files is that of their frequency.
#[derive(Debug, Clone, Default)]
pub struct WordTable {
    dim: usize,
    rows: HashMap<Box<str>, u32>,
    vectors: Vec<f32>,
    /// The place in the file of each word, counted from 1.
    ranks: Vec<u32>,
    /// How many places the file has.
    places: u32,
    /// The letters of the longest word of a script without spaces.
    longest: usize,
}

impl WordTable {
    /// No words yet.
    pub fn new(dim: usize) -> Self {
        WordTable { dim, ..WordTable::default() }
    }

    /// Adds a word; `false` if it was there, and then nothing changes. The vector must have the table's width and
    /// finite numbers.
    pub fn push(&mut self, word: &str, vector: &[f32]) -> bool {
        assert_eq!(vector.len(), self.dim, "a vector of another width");
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

    /// Passes over a word of the file, so that those after it keep their rank.
    pub(super) fn pass(&mut self) {
        self.places += 1;
    }

    /// The width of the vectors.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How many words.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// The row of a word, exactly as it is written.
    pub fn row_of(&self, word: &str) -> Option<u32> {
        self.rows.get(word).copied()
    }

    /// The vector of a row.
    pub fn vector(&self, row: u32) -> &[f32] {
        &self.vectors[row as usize * self.dim..][..self.dim]
    }

    /// All vectors, row after row.
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// The words by row.
    pub fn words(&self) -> Vec<&str> {
        let mut words = vec![""; self.len()];
        self.rows.iter().for_each(|(word, row)| words[*row as usize] = word);
        words
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// How probable each word is by Zipf's law: the second word of the file half as probable as the first, and so on.
    pub(super) fn zipf(&self) -> Vec<f64> {
        let sum: f64 = (1..=self.places).map(|rank| 1.0 / f64::from(rank)).sum();
        self.ranks.iter().map(|rank| 1.0 / (f64::from(*rank) * sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_wins_and_ranks_are_places_in_the_file() {
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
