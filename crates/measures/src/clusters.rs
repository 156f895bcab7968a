//! How well clusters agree with labels, as scikit-learn tells it.

use std::collections::BTreeMap;

/// How often each label comes in each cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// A row a cluster, a column a label.
    counts: Vec<Vec<u64>>,
    all: u64,
}

impl Table {
    /// Of the cluster and the label of each item.
    pub fn new(clusters: &[usize], labels: &[usize]) -> Self {
        let numbered = |of: &[usize]| {
            let mut numbers = BTreeMap::new();
            of.iter().for_each(|o| {
                numbers.entry(*o).or_insert(0usize);
            });
            numbers.values_mut().enumerate().for_each(|(n, number)| *number = n);
            numbers
        };
        let (rows, columns) = (numbered(clusters), numbered(labels));
        let mut counts = vec![vec![0; columns.len()]; rows.len()];
        for (cluster, label) in clusters.iter().zip(labels) {
            counts[rows[cluster]][columns[label]] += 1;
        }
        Table { counts, all: clusters.len().min(labels.len()) as u64 }
    }

    fn rows(&self) -> Vec<u64> {
        self.counts.iter().map(|row| row.iter().sum()).collect()
    }

    fn columns(&self) -> Vec<u64> {
        let width = self.counts.first().map_or(0, Vec::len);
        (0..width).map(|column| self.counts.iter().map(|row| row[column]).sum()).collect()
    }

    /// What part of the items has the label that is most frequent in its cluster.
    pub fn purity(&self) -> f64 {
        let most: u64 = self.counts.iter().filter_map(|row| row.iter().max()).sum();
        ratio(most as f64, self.all as f64)
    }

    /// The mutual information over the mean of the two entropies. 1 where both say nothing, as scikit-learn has it.
    pub fn nmi(&self) -> f64 {
        let (rows, columns) = (self.rows(), self.columns());
        if rows.len() <= 1 && columns.len() <= 1 {
            return 1.0;
        }
        let all = self.all as f64;
        let entropy = |counts: &[u64]| -> f64 {
            counts.iter().filter(|c| **c > 0).map(|c| -(*c as f64 / all) * (*c as f64 / all).ln()).sum()
        };
        let mut information = 0.0;
        for (row, of_row) in self.counts.iter().zip(&rows) {
            for (count, of_column) in row.iter().zip(&columns).filter(|(count, _)| **count > 0) {
                let both = *count as f64;
                information += both / all * (both * all / (*of_row as f64 * *of_column as f64)).ln();
            }
        }
        ratio(information.max(0.0), (entropy(&rows) + entropy(&columns)) / 2.0)
    }

    /// The Rand index, adjusted for what chance would give.
    pub fn ari(&self) -> f64 {
        let pairs = |n: u64| n as f64 * (n as f64 - 1.0) / 2.0;
        let both: f64 = self.counts.iter().flatten().map(|c| pairs(*c)).sum();
        let of_rows: f64 = self.rows().into_iter().map(pairs).sum();
        let of_columns: f64 = self.columns().into_iter().map(pairs).sum();
        let by_chance = ratio(of_rows * of_columns, pairs(self.all));
        let most = (of_rows + of_columns) / 2.0;
        if most == by_chance { 1.0 } else { (both - by_chance) / (most - by_chance) }
    }

    /// What part of the items is right where each cluster stands for one label, chosen best (the Hungarian method).
    pub fn accuracy(&self) -> f64 {
        ratio(best_assignment(&self.counts) as f64, self.all as f64)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// The greatest sum that can be had of a table with at most one of each row and column: shortest augmenting paths with
/// potentials, a row at a time.
fn best_assignment(counts: &[Vec<u64>]) -> u64 {
    let (rows, columns) = (counts.len(), counts.first().map_or(0, Vec::len));
    if rows > columns {
        let turned: Vec<Vec<u64>> =
            (0..columns).map(|column| counts.iter().map(|row| row[column]).collect()).collect();
        return if columns == 0 { 0 } else { best_assignment(&turned) };
    }
    let cost = |row: usize, column: usize| -(counts[row][column] as i64);
    // Place 0 of each is nobody's, so that a path has somewhere to begin.
    let (mut of_row, mut of_column) = (vec![0i64; rows + 1], vec![0i64; columns + 1]);
    let mut owner = vec![0usize; columns + 1];
    for row in 1..=rows {
        let mut way = vec![0usize; columns + 1];
        let mut least = vec![i64::MAX; columns + 1];
        let mut used = vec![false; columns + 1];
        owner[0] = row;
        let mut at = 0;
        while owner[at] != 0 {
            used[at] = true;
            let (mut step, mut next) = (i64::MAX, 0);
            for column in (1..=columns).filter(|column| !used[*column]) {
                let this = cost(owner[at] - 1, column - 1) - of_row[owner[at]] - of_column[column];
                if this < least[column] {
                    (least[column], way[column]) = (this, at);
                }
                if least[column] < step {
                    (step, next) = (least[column], column);
                }
            }
            for column in 0..=columns {
                if used[column] {
                    of_row[owner[column]] += step;
                    of_column[column] -= step;
                } else {
                    least[column] = least[column].saturating_sub(step);
                }
            }
            at = next;
        }
        while at != 0 {
            owner[at] = owner[way[at]];
            at = way[at];
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
    fn clusters_that_are_the_labels_have_1() {
        let labels = [0, 0, 1, 1, 2];
        let table = Table::new(&[5, 5, 9, 9, 7], &labels);
        assert_eq!((table.purity(), table.accuracy()), (1.0, 1.0));
        assert!((table.nmi() - 1.0).abs() < 1e-12 && (table.ari() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_cluster_for_all_tells_nothing() {
        let table = Table::new(&[0, 0, 0, 0], &[0, 0, 1, 2]);
        assert_eq!((table.purity(), table.accuracy(), table.nmi(), table.ari()), (0.5, 0.5, 0.0, 0.0));
        let nothing = Table::new(&[], &[]);
        assert_eq!((nothing.purity(), nothing.accuracy()), (0.0, 0.0));
    }

    #[test]
    fn purity_may_name_a_label_twice_and_accuracy_may_not() {
        let table = Table::new(&[0, 0, 1, 1, 1], &[3, 3, 3, 3, 4]);
        assert_eq!((table.purity(), table.accuracy()), (0.8, 0.6));
    }

    /// By trying all.
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
        fn the_assignment_is_the_best_of_all(rows in 1usize..6, columns in 1usize..6, numbers in proptest::collection::vec(0u64..20, 25)) {
            let counts: Vec<Vec<u64>> = (0..rows).map(|r| (0..columns).map(|c| numbers[r * 5 + c]).collect()).collect();
            prop_assert_eq!(best_assignment(&counts), naive(&counts, 0, &mut vec![false; columns]));
        }
    }
}
