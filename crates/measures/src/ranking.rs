//! Measures of one ranking, by the definitions of trec_eval.

/// A grade from which on a document counts as relevant.
pub const RELEVANT: i32 = 1;

/// A ranking with what was judged of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// The grade of each document, the first of the ranking first; `None` where nobody judged it.
    pub grades: Vec<Option<i32>>,
    /// All grades over 0 that were given for the query, found or not.
    pub given: Vec<i32>,
    /// How many documents were judged and found not relevant.
    pub judged_not: usize,
    /// From which grade on a document is relevant.
    pub level: i32,
}

impl Ranking {
    /// A ranking in which everything is judged: relevant or not.
    pub fn of_flags(relevant: impl IntoIterator<Item = bool>) -> Self {
        let grades: Vec<Option<i32>> = relevant.into_iter().map(|r| Some(i32::from(r))).collect();
        let given: Vec<i32> = grades.iter().filter_map(|g| g.filter(|g| *g > 0)).collect();
        Ranking { judged_not: grades.len() - given.len(), grades, given, level: RELEVANT }
    }

    fn is_relevant(&self, grade: Option<i32>) -> bool {
        grade.is_some_and(|grade| grade >= self.level)
    }

    /// Whether each document is relevant, in the order of the ranking.
    fn flags(&self) -> impl Iterator<Item = bool> + '_ {
        self.grades.iter().map(|grade| self.is_relevant(*grade))
    }

    /// How many are relevant, found or not.
    pub fn relevant(&self) -> usize {
        self.given.iter().filter(|grade| **grade >= self.level).count()
    }

    /// How many of the first `k` are relevant.
    pub fn found(&self, k: usize) -> usize {
        self.flags().take(k).filter(|relevant| *relevant).count()
    }

    /// The mean, over all that are relevant, of the precision at each one's place (0 for those not found), as far as `k`.
    pub fn average_precision(&self, k: usize) -> f64 {
        let mut found = 0;
        let mut sum = 0.0;
        for (place, relevant) in self.flags().take(k).enumerate() {
            if relevant {
                found += 1;
                sum += f64::from(found) / (place + 1) as f64;
            }
        }
        part(sum, self.relevant())
    }

    /// One over the place of the first that is relevant, 0 if none is.
    pub fn reciprocal_rank(&self) -> f64 {
        self.flags().position(|relevant| relevant).map_or(0.0, |place| 1.0 / (place + 1) as f64)
    }

    /// What part of the first `k` is relevant. There are always `k`: those that are missing are not.
    pub fn precision(&self, k: usize) -> f64 {
        part(self.found(k) as f64, k)
    }

    /// What part of what is relevant is among the first `k`.
    pub fn recall(&self, k: usize) -> f64 {
        part(self.found(k) as f64, self.relevant())
    }

    /// 1 if one of the first `k` is relevant.
    pub fn success(&self, k: usize) -> f64 {
        f64::from(u8::from(self.found(k) > 0))
    }

    /// Precision at as many places as there are relevant documents.
    pub fn r_precision(&self) -> f64 {
        self.precision(self.relevant())
    }

    /// The gain of the first `k`, each divided by the logarithm of its place, over what the best order would have.
    pub fn ndcg(&self, k: usize) -> f64 {
        let gain = |grades: &mut dyn Iterator<Item = i32>| -> f64 {
            grades
                .enumerate()
                .map(|(place, grade)| f64::from(grade.max(0)) / ((place + 2) as f64).log2())
                .sum()
        };
        let mut ideal = self.given.clone();
        ideal.sort_unstable_by(|a, b| b.cmp(a));
        let best = gain(&mut ideal.into_iter().take(k));
        if best == 0.0 {
            return 0.0;
        }
        gain(&mut self.grades.iter().take(k).map(|grade| grade.unwrap_or(0))) / best
    }

    /// Of the relevant ones, how few that were judged not to be stand before them.
    pub fn bpref(&self) -> f64 {
        let relevant = self.relevant();
        let least = self.judged_not.min(relevant) as f64;
        let (mut not, mut sum) = (0usize, 0.0);
        for grade in &self.grades {
            match grade {
                Some(_) if self.is_relevant(*grade) => {
                    sum += if not == 0 { 1.0 } else { 1.0 - not.min(relevant) as f64 / least };
                }
                // Below 0 stands for not judged.
                Some(grade) if *grade >= 0 => not += 1,
                _ => {}
            }
        }
        part(sum, relevant)
    }

    /// The greatest precision at any place from where this part of what is relevant has been found.
    pub fn interpolated_precision(&self, recall: f64) -> f64 {
        let needed = (self.relevant() as f64 * recall + 0.9) as usize;
        let mut found = 0usize;
        let mut best: f64 = 0.0;
        for (place, relevant) in self.flags().enumerate() {
            found += usize::from(relevant);
            if found >= needed && (relevant || needed == 0) {
                best = best.max(found as f64 / (place + 1) as f64);
            }
        }
        best
    }
}

fn part(sum: f64, of: usize) -> f64 {
    if of == 0 { 0.0 } else { sum / of as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flags(text: &str) -> Ranking {
        Ranking::of_flags(text.chars().map(|c| c == '+'))
    }

    #[test]
    fn a_ranking_by_hand() {
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
    fn without_anything_relevant_all_is_zero() {
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
    fn grades_weigh_in_gains_and_count_from_a_level_on() {
        let mut ranking = Ranking {
            grades: vec![Some(1), None, Some(3), Some(0)],
            given: vec![3, 1, 2],
            judged_not: 1,
            level: 1,
        };
        let log = |place: f64| (place + 1.0).log2();
        let expected = (1.0 / log(1.0) + 3.0 / log(3.0)) / (3.0 / log(1.0) + 2.0 / log(2.0) + 1.0 / log(3.0));
        assert!((ranking.ndcg(10) - expected).abs() < 1e-12);
        assert_eq!((ranking.relevant(), ranking.recall(10)), (3, 2.0 / 3.0));
        ranking.level = 2;
        assert_eq!((ranking.relevant(), ranking.recall(10), ranking.reciprocal_rank()), (2, 0.5, 1.0 / 3.0));
    }

    proptest! {
        #[test]
        fn measures_lie_between_0_and_1_and_the_best_order_has_1(mut relevant in proptest::collection::vec(any::<bool>(), 1..40), k in 1usize..50) {
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
