//! Measures of the agreement between a clustering and class labels. Normalized mutual information and the adjusted Rand
//! index are defined as in scikit-learn.

use std::collections::{BTreeMap, BTreeSet};

/// Contingency table: the number of items for each pair of a cluster and a label.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Number of items of each pair: one row per cluster, one column per label.
    counts: Vec<Vec<u64>>,
    /// Number of items: the sum of all counts.
    total: u64,
}

impl Table {
    /// Creates the table of a clustering. `clusters[i]` and `labels[i]` are the cluster id and the label id of item
    /// `i`. Ids can be any numbers.
    ///
    /// Both slices must have the same length.
    pub fn new(clusters: &[usize], labels: &[usize]) -> Self {
        let numbered = |ids: &[usize]| -> BTreeMap<usize, usize> {
            let distinct: BTreeSet<usize> = ids.iter().copied().collect();
            distinct.into_iter().zip(0..).collect()
        };
        let (rows, columns) = (numbered(clusters), numbered(labels));
        let mut counts = vec![vec![0; columns.len()]; rows.len()];
        for (cluster, label) in clusters.iter().zip(labels) {
            counts[rows[cluster]][columns[label]] += 1;
        }
        Table { counts, total: clusters.len().min(labels.len()) as u64 }
    }

    fn row_sums(&self) -> Vec<u64> {
        self.counts.iter().map(|row| row.iter().sum()).collect()
    }

    fn column_sums(&self) -> Vec<u64> {
        let width = self.counts.first().map_or(0, Vec::len);
        (0..width).map(|column| self.counts.iter().map(|row| row[column]).sum()).collect()
    }

    /// Purity: the fraction of items that have the most frequent label of their cluster. Returns 0 if there are no
    /// items.
    pub fn purity(&self) -> f64 {
        let majority: u64 = self.counts.iter().filter_map(|row| row.iter().max()).sum();
        ratio(majority as f64, self.total as f64)
    }

    /// Normalized mutual information: the mutual information divided by the arithmetic mean of the entropies of the
    /// clusters and of the labels.
    ///
    /// Like scikit-learn, returns 1 if there is at most one cluster and at most one label.
    pub fn nmi(&self) -> f64 {
        let (rows, columns) = (self.row_sums(), self.column_sums());
        if rows.len() <= 1 && columns.len() <= 1 {
            return 1.0;
        }
        let total = self.total as f64;
        let entropy = |counts: &[u64]| -> f64 {
            counts.iter().filter(|c| **c > 0).map(|c| -(*c as f64 / total) * (*c as f64 / total).ln()).sum()
        };
        let mut information = 0.0;
        for (row, row_sum) in self.counts.iter().zip(&rows) {
            for (count, column_sum) in row.iter().zip(&columns).filter(|(count, _)| **count > 0) {
                let joint = *count as f64;
                information += joint / total * (joint * total / (*row_sum as f64 * *column_sum as f64)).ln();
            }
        }
        ratio(information.max(0.0), (entropy(&rows) + entropy(&columns)) / 2.0)
    }

    /// Adjusted Rand index: 1 if clusters and labels divide the items in the same way, about 0 for a random clustering.
    /// It can be negative.
    pub fn ari(&self) -> f64 {
        let pairs = |n: u64| n as f64 * (n as f64 - 1.0) / 2.0;
        let both: f64 = self.counts.iter().flatten().map(|c| pairs(*c)).sum();
        let in_rows: f64 = self.row_sums().into_iter().map(pairs).sum();
        let in_columns: f64 = self.column_sums().into_iter().map(pairs).sum();
        let expected = ratio(in_rows * in_columns, pairs(self.total));
        let maximum = (in_rows + in_columns) / 2.0;
        if maximum == expected { 1.0 } else { (both - expected) / (maximum - expected) }
    }

    /// Clustering accuracy: the fraction of correct items under the best one-to-one assignment of clusters to labels.
    ///
    /// Items in a cluster without an assigned label count as wrong. Returns 0 if there are no items.
    pub fn accuracy(&self) -> f64 {
        ratio(best_assignment(&self.counts) as f64, self.total as f64)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// Chooses at most one cell from each row and each column so that the sum of the chosen cells is as large as possible.
/// Returns this sum.
///
/// Implements the Hungarian method: shortest augmenting paths with potentials, one row at a time.
fn best_assignment(counts: &[Vec<u64>]) -> u64 {
    let (rows, columns) = (counts.len(), counts.first().map_or(0, Vec::len));
    if rows > columns {
        let transposed: Vec<Vec<u64>> =
            (0..columns).map(|column| counts.iter().map(|row| row[column]).collect()).collect();
        return if columns == 0 { 0 } else { best_assignment(&transposed) };
    }
    let cost = |row: usize, column: usize| -(counts[row][column] as i64);
    // Rows and columns are numbered from 1. Each augmenting path starts at a virtual column 0.
    let (mut row_potential, mut column_potential) = (vec![0i64; rows + 1], vec![0i64; columns + 1]);
    let mut owner = vec![0usize; columns + 1];
    for row in 1..=rows {
        let mut previous = vec![0usize; columns + 1];
        let mut slack = vec![i64::MAX; columns + 1];
        let mut used = vec![false; columns + 1];
        owner[0] = row;
        let mut at = 0;
        while owner[at] != 0 {
            used[at] = true;
            let (mut delta, mut next) = (i64::MAX, 0);
            for column in (1..=columns).filter(|column| !used[*column]) {
                let reduced =
                    cost(owner[at] - 1, column - 1) - row_potential[owner[at]] - column_potential[column];
                if reduced < slack[column] {
                    (slack[column], previous[column]) = (reduced, at);
                }
                if slack[column] < delta {
                    (delta, next) = (slack[column], column);
                }
            }
            for column in 0..=columns {
                if used[column] {
                    row_potential[owner[column]] += delta;
                    column_potential[column] -= delta;
                } else {
                    slack[column] = slack[column].saturating_sub(delta);
                }
            }
            at = next;
        }
        while at != 0 {
            owner[at] = owner[previous[at]];
            at = previous[at];
        }
    }
    (1..=columns)
        .filter(|column| owner[*column] != 0)
        .map(|column| counts[owner[column] - 1][column - 1])
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_perfect_clustering_scores_1() {
        let labels = [0, 0, 1, 1, 2];
        let table = Table::new(&[5, 5, 9, 9, 7], &labels);
        assert_eq!((table.purity(), table.accuracy()), (1.0, 1.0));
        assert!((table.nmi() - 1.0).abs() < 1e-12 && (table.ari() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_single_cluster_has_no_information() {
        let table = Table::new(&[0, 0, 0, 0], &[0, 0, 1, 2]);
        assert_eq!((table.purity(), table.accuracy(), table.nmi(), table.ari()), (0.5, 0.5, 0.0, 0.0));
        let nothing = Table::new(&[], &[]);
        assert_eq!((nothing.purity(), nothing.accuracy()), (0.0, 0.0));
    }

    #[test]
    fn accuracy_uses_each_label_once_and_purity_does_not() {
        let table = Table::new(&[0, 0, 1, 1, 1], &[3, 3, 3, 3, 4]);
        assert_eq!((table.purity(), table.accuracy()), (0.8, 0.6));
    }

    /// Returns the largest sum over all assignments of rows to columns. Only uses rows with an index of at least `row`,
    /// and columns that are not `taken`.
    fn naive(counts: &[Vec<u64>], row: usize, taken: &mut Vec<bool>) -> u64 {
        if row == counts.len() {
            return 0;
        }
        let mut best = naive(counts, row + 1, taken);
        for column in 0..taken.len() {
            if !taken[column] {
                taken[column] = true;
                best = best.max(counts[row][column] + naive(counts, row + 1, taken));
                taken[column] = false;
            }
        }
        best
    }

    proptest! {
        #[test]
        fn the_assignment_is_optimal(rows in 1usize..6, columns in 1usize..6, numbers in proptest::collection::vec(0u64..20, 25)) {
            let counts: Vec<Vec<u64>> = (0..rows).map(|r| (0..columns).map(|c| numbers[r * 5 + c]).collect()).collect();
            prop_assert_eq!(best_assignment(&counts), naive(&counts, 0, &mut vec![false; columns]));
        }
    }
}
