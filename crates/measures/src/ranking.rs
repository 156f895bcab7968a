//! Retrieval measures of one ranking, defined as in trec_eval.

/// Usual value of [`Ranking::level`]: every grade above 0 counts as relevant.
pub const RELEVANT: i32 = 1;

/// Ranking of documents for one query, with the relevance judgments of the query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// Grade of each document, best document first; `None` if the document was not judged.
    pub grades: Vec<Option<i32>>,
    /// All grades above 0 in the judgments of the query, in any order. This includes the grades of documents that are
    /// not in the ranking.
    pub given: Vec<i32>,
    /// Number of documents that were judged as not relevant, including those that are not in the ranking. Only bpref
    /// uses this number.
    pub judged_not: usize,
    /// Lowest grade that counts as relevant; must be at least 1.
    pub level: i32,
}

impl Ranking {
    /// Creates a ranking of judged documents from flags: true for a relevant document, best document first.
    pub fn of_flags(relevant: impl IntoIterator<Item = bool>) -> Self {
        let grades: Vec<Option<i32>> = relevant.into_iter().map(|r| Some(i32::from(r))).collect();
        let given: Vec<i32> = grades.iter().filter_map(|g| g.filter(|g| *g > 0)).collect();
        Ranking { judged_not: grades.len() - given.len(), grades, given, level: RELEVANT }
    }

    fn is_relevant(&self, grade: Option<i32>) -> bool {
        grade.is_some_and(|grade| grade >= self.level)
    }

    /// Returns a flag for each ranked document: true if it is relevant.
    fn flags(&self) -> impl Iterator<Item = bool> + '_ {
        self.grades.iter().map(|grade| self.is_relevant(*grade))
    }

    /// Number of relevant documents, including those that are not in the ranking.
    pub fn relevant(&self) -> usize {
        self.given.iter().filter(|grade| **grade >= self.level).count()
    }

    /// Number of relevant documents among the first `k`.
    pub fn found(&self, k: usize) -> usize {
        self.flags().take(k).filter(|relevant| *relevant).count()
    }

    /// Average precision at `k`: the mean of the precisions at the ranks of all relevant documents.
    ///
    /// Relevant documents that are not among the first `k` count as 0. Returns 0 if no document is relevant.
    pub fn average_precision(&self, k: usize) -> f64 {
        let mut found = 0;
        let mut sum = 0.0;
        for (at, relevant) in self.flags().take(k).enumerate() {
            if relevant {
                found += 1;
                sum += f64::from(found) / (at + 1) as f64;
            }
        }
        ratio(sum, self.relevant())
    }

    /// Reciprocal rank of the first relevant document; 0 if the ranking contains no relevant document.
    pub fn reciprocal_rank(&self) -> f64 {
        self.flags().position(|relevant| relevant).map_or(0.0, |at| 1.0 / (at + 1) as f64)
    }

    /// Precision at `k`. If the ranking is shorter than `k`, missing documents count as not relevant.
    pub fn precision(&self, k: usize) -> f64 {
        ratio(self.found(k) as f64, k)
    }

    /// Recall at `k`: the fraction of the relevant documents that are among the first `k`; 0 if no document is
    /// relevant.
    pub fn recall(&self, k: usize) -> f64 {
        ratio(self.found(k) as f64, self.relevant())
    }

    /// Success at `k`: 1 if at least one of the first `k` documents is relevant, else 0.
    pub fn success(&self, k: usize) -> f64 {
        f64::from(u8::from(self.found(k) > 0))
    }

    /// R-precision: precision at `R`, the number of relevant documents.
    pub fn r_precision(&self) -> f64 {
        self.precision(self.relevant())
    }

    /// nDCG at `k`: the discounted cumulative gain of the first `k` documents, divided by that of the ideal order.
    ///
    /// The gain of a document is its grade; `level` has no effect. Negative and missing grades count as 0.
    pub fn ndcg(&self, k: usize) -> f64 {
        let gain = |grades: &mut dyn Iterator<Item = i32>| -> f64 {
            grades.enumerate().map(|(at, grade)| f64::from(grade.max(0)) / ((at + 2) as f64).log2()).sum()
        };
        let mut ideal = self.given.clone();
        ideal.sort_unstable_by(|a, b| b.cmp(a));
        let best = gain(&mut ideal.into_iter().take(k));
        if best == 0.0 {
            return 0.0;
        }
        gain(&mut self.grades.iter().take(k).map(|grade| grade.unwrap_or(0))) / best
    }

    /// bpref: the mean score of all relevant documents. The score of a relevant document is 1 minus a penalty, or 0 if
    /// the document is not in the ranking.
    ///
    /// The penalty of a relevant document grows with the number of documents above it that were judged as not relevant.
    /// Documents without a judgment are ignored.
    pub fn bpref(&self) -> f64 {
        let relevant = self.relevant();
        let least = self.judged_not.min(relevant) as f64;
        let (mut not, mut sum) = (0usize, 0.0);
        for grade in &self.grades {
            match grade {
                Some(_) if self.is_relevant(*grade) => {
                    sum += if not == 0 { 1.0 } else { 1.0 - not.min(relevant) as f64 / least };
                }
                // As in trec_eval, a negative grade means "not judged".
                Some(grade) if *grade >= 0 => not += 1,
                _ => {}
            }
        }
        ratio(sum, relevant)
    }

    /// Interpolated precision: the highest precision at any rank at which the recall is at least `recall`; 0 if there
    /// is no such rank.
    ///
    /// As in trec_eval, a rank qualifies if ⌊`recall` · R + 0.9⌋ of the R relevant documents are at this rank or above
    /// it.
    pub fn interpolated_precision(&self, recall: f64) -> f64 {
        let needed = (self.relevant() as f64 * recall + 0.9) as usize;
        let mut found = 0usize;
        let mut best: f64 = 0.0;
        for (at, relevant) in self.flags().enumerate() {
            found += usize::from(relevant);
            if found >= needed && (relevant || needed == 0) {
                best = best.max(found as f64 / (at + 1) as f64);
            }
        }
        best
    }
}

fn ratio(sum: f64, count: usize) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flags(text: &str) -> Ranking {
        Ranking::of_flags(text.chars().map(|c| c == '+'))
    }

    #[test]
    fn measures_of_a_small_ranking() {
        let ranking = flags("-+-+");
        assert_eq!(ranking.average_precision(usize::MAX), (0.5 + 0.5) / 2.0);
        assert_eq!(ranking.reciprocal_rank(), 0.5);
        assert_eq!((ranking.precision(2), ranking.recall(2), ranking.success(1)), (0.5, 0.5, 0.0));
        assert_eq!(ranking.r_precision(), 0.5);
        assert_eq!((ranking.found(1), ranking.found(100)), (0, 2));
        let best = 1.0 + 1.0 / 3f64.log2();
        assert!((ranking.ndcg(10) - (1.0 / 3f64.log2() + 1.0 / 5f64.log2()) / best).abs() < 1e-12);
    }

    #[test]
    fn all_measures_are_zero_without_relevant_documents() {
        let ranking = flags("---");
        for value in [
            ranking.average_precision(10),
            ranking.reciprocal_rank(),
            ranking.precision(3),
            ranking.recall(3),
            ranking.ndcg(3),
            ranking.r_precision(),
            ranking.bpref(),
        ] {
            assert_eq!(value, 0.0);
        }
        assert_eq!(Ranking::default().ndcg(10), 0.0);
    }

    #[test]
    fn ndcg_uses_grades_and_recall_uses_the_level() {
        let mut ranking = Ranking {
            grades: vec![Some(1), None, Some(3), Some(0)],
            given: vec![3, 1, 2],
            judged_not: 1,
            level: 1,
        };
        let log = |rank: f64| (rank + 1.0).log2();
        let expected = (1.0 / log(1.0) + 3.0 / log(3.0)) / (3.0 / log(1.0) + 2.0 / log(2.0) + 1.0 / log(3.0));
        assert!((ranking.ndcg(10) - expected).abs() < 1e-12);
        assert_eq!((ranking.relevant(), ranking.recall(10)), (3, 2.0 / 3.0));
        ranking.level = 2;
        assert_eq!((ranking.relevant(), ranking.recall(10), ranking.reciprocal_rank()), (2, 0.5, 1.0 / 3.0));
    }

    proptest! {
        #[test]
        fn measures_are_between_0_and_1_and_the_best_order_has_1(mut relevant in proptest::collection::vec(any::<bool>(), 1..40), k in 1usize..50) {
            let ranking = Ranking::of_flags(relevant.iter().copied());
            for value in [ranking.average_precision(k), ranking.reciprocal_rank(), ranking.precision(k), ranking.recall(k),
                          ranking.ndcg(k), ranking.r_precision(), ranking.bpref(), ranking.interpolated_precision(0.5)] {
                prop_assert!((0.0..=1.0).contains(&value), "{value}");
            }
            relevant.sort_unstable_by(|a, b| b.cmp(a));
            let best = Ranking::of_flags(relevant.iter().copied());
            if best.relevant() > 0 {
                for value in [best.average_precision(usize::MAX), best.reciprocal_rank(), best.ndcg(k), best.r_precision()] {
                    prop_assert!((value - 1.0).abs() < 1e-12);
                }
            }
        }
    }
}
