//! Counting of the terms of a corpus.

use std::collections::HashMap;

use rayon::prelude::*;

use super::svd::Sparse;
use turnwise_text as text;

/// Number of documents analyzed at a time.
const CHUNK: usize = 4096;

/// Term counts: one row per document, one column per term.
#[derive(Default)]
pub(super) struct TermCounts {
    /// Terms in the order of their columns.
    pub terms: Vec<Box<str>>,
    /// Number of documents that contain each term.
    pub documents_with: Vec<u32>,
    /// Term counts of every document. A document without terms has an empty row.
    pub rows: Rows,
}

/// Pairs of column and count, for all documents.
#[derive(Default)]
pub(super) struct Rows {
    ends: Vec<usize>,
    entries: Vec<(u32, u32)>,
}

impl Rows {
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Iterates over the rows.
    pub fn iter(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.entries[std::mem::replace(&mut start, *end)..*end])
    }
}

/// Returns the terms of one document (given as several texts) with their counts, in alphabetical order.
pub(super) fn counts(texts: &[&str]) -> Vec<(String, u32)> {
    let mut terms: Vec<String> = texts.iter().flat_map(|t| text::analyze(t)).map(|t| t.term).collect();
    terms.sort_unstable();
    let mut counted: Vec<(String, u32)> = Vec::new();
    for term in terms {
        match counted.last_mut() {
            Some((last, count)) if *last == term => *count += 1,
            _ => counted.push((term, 1)),
        }
    }
    counted
}

/// Counts the terms of all documents.
pub(super) fn count(mut documents: impl Iterator<Item = String>) -> TermCounts {
    let mut columns: HashMap<Box<str>, u32> = HashMap::new();
    let mut counted = TermCounts::default();
    loop {
        let chunk: Vec<String> = documents.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            break;
        }
        let analyzed: Vec<_> = chunk.par_iter().map(|text| counts(&[text])).collect();
        for terms in analyzed {
            for (term, count) in terms {
                let column = match columns.get(term.as_str()) {
                    Some(column) => *column,
                    None => {
                        let column = columns.len() as u32;
                        columns.insert(term.into_boxed_str(), column);
                        counted.documents_with.push(0);
                        column
                    }
                };
                counted.documents_with[column as usize] += 1;
                counted.rows.entries.push((column, count));
            }
            counted.rows.ends.push(counted.rows.entries.len());
        }
    }
    counted.terms = vec![Box::default(); columns.len()];
    columns.into_iter().for_each(|(term, column)| counted.terms[column as usize] = term);
    counted
}

/// The kept terms, by descending document frequency.
pub(super) struct Kept {
    pub terms: Vec<Box<str>>,
    pub documents_with: Vec<u32>,
    /// New column index of each old column.
    new: Vec<Option<u32>>,
}

/// Keeps the terms with a document frequency of at least `least`. If there are more than `most` terms, keeps those
/// with the highest document frequency.
pub(super) fn keep(counted: &TermCounts, least: u32, most: usize) -> Kept {
    let mut order: Vec<usize> =
        (0..counted.terms.len()).filter(|c| counted.documents_with[*c] >= least).collect();
    // The columns must not depend on the order of the documents or of the hash map.
    order.sort_unstable_by(|a, b| {
        let known = |c: &usize| counted.documents_with[*c];
        known(b).cmp(&known(a)).then_with(|| counted.terms[*a].cmp(&counted.terms[*b]))
    });
    order.truncate(most);
    let mut new = vec![None; counted.terms.len()];
    order.iter().enumerate().for_each(|(column, old)| new[*old] = Some(column as u32));
    Kept {
        terms: order.iter().map(|c| counted.terms[*c].clone()).collect(),
        documents_with: order.iter().map(|c| counted.documents_with[*c]).collect(),
        new,
    }
}

impl Kept {
    /// Returns the matrix of the kept terms. `weigh` receives the columns and counts of a row, in column order.
    pub fn matrix(&self, rows: &Rows, weigh: impl Fn(&[(u32, u32)]) -> Vec<(u32, f32)>) -> Sparse {
        let mut matrix = Sparse::new(self.terms.len());
        let mut row = Vec::new();
        for entries in rows.iter() {
            row.clear();
            row.extend(entries.iter().filter_map(|(old, count)| Some((self.new[*old as usize]?, *count))));
            row.sort_unstable();
            if !row.is_empty() {
                matrix.push(weigh(&row));
            }
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_counted_and_kept_by_document_frequency() {
        let texts = ["b a b", "a c", "", "A d d d"];
        let counted = count(texts.iter().map(|t| (*t).to_owned()));
        assert_eq!((counted.terms.len(), counted.rows.len()), (4, 4));
        let all = keep(&counted, 1, 9);
        let names = |kept: &Kept| kept.terms.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["a", "b", "c", "d"]);
        assert_eq!(all.documents_with, [3, 1, 1, 1]);
        assert_eq!(names(&keep(&counted, 2, 9)), ["a"]);
        assert_eq!(names(&keep(&counted, 1, 2)), ["a", "b"]);
        let matrix = all.matrix(&counted.rows, |row| row.iter().map(|(c, n)| (*c, *n as f32)).collect());
        assert_eq!(matrix.rows(), 3, "a document without terms has no row");
        assert_eq!(matrix.row(0), (&[0, 1][..], &[1.0, 2.0][..]));
        assert_eq!(matrix.row(2), (&[0, 3][..], &[1.0, 3.0][..]));
    }
}
