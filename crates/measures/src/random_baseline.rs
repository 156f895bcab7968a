//! Random baseline of ranking measures: the exact mean of each measure over all orders of the documents, computed
//! without sampling.

/// Random ranking of `all` documents, of which `relevant` are relevant. The methods return expected values of measures.
///
/// All values are 0 if no document is relevant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomBaseline {
    /// Number of ranked documents.
    pub all: usize,
    /// Number of relevant documents; at most `all`.
    pub relevant: usize,
}

impl RandomBaseline {
    fn prevalence(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.relevant as f64 / self.all as f64 }
    }

    /// Expected average precision at `k`: relevant documents after the first `k` count as 0.
    pub fn average_precision(self, k: usize) -> f64 {
        if self.relevant == 0 {
            return 0.0;
        }
        let others = if self.all > 1 { (self.relevant - 1) as f64 / (self.all - 1) as f64 } else { 0.0 };
        // Expected precision at a rank whose document is relevant.
        let at = |rank: usize| (1.0 + (rank - 1) as f64 * others) / rank as f64;
        (1..=self.all.min(k)).map(at).sum::<f64>() / self.all as f64
    }

    /// Expected reciprocal rank of the first relevant document.
    pub fn reciprocal_rank(self) -> f64 {
        let mut sum = 0.0;
        // Probability that no document before this rank is relevant.
        let mut none = 1.0;
        for rank in 1..=self.all {
            let left = self.all - rank + 1;
            let this = self.relevant as f64 / left as f64;
            sum += none * this.min(1.0) / rank as f64;
            none *= (1.0 - this).max(0.0);
        }
        sum
    }

    /// Expected precision at `k`. If there are fewer than `k` documents, the missing documents count as not relevant.
    pub fn precision(self, k: usize) -> f64 {
        self.prevalence() * self.all.min(k) as f64 / k.max(1) as f64
    }

    /// Expected recall at `k`: `k` divided by the number of documents, and at most 1.
    pub fn recall(self, k: usize) -> f64 {
        if self.relevant == 0 { 0.0 } else { self.all.min(k) as f64 / self.all as f64 }
    }

    /// Expected nDCG at `k`, with the same gain for every relevant document.
    pub fn ndcg(self, k: usize) -> f64 {
        let gains = |ranks: usize| (1..=ranks).map(|rank| 1.0 / ((rank + 1) as f64).log2()).sum::<f64>();
        let best = gains(self.relevant.min(k));
        if best == 0.0 { 0.0 } else { self.prevalence() * gains(self.all.min(k)) / best }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranking::Ranking;

    /// Returns the mean of a measure over all orders. An order is a bit pattern with a 1 for each relevant document.
    fn mean_over_orders(baseline: RandomBaseline, measure: impl Fn(&Ranking) -> f64) -> f64 {
        let orders = (0u32..1 << baseline.all).filter(|bits| bits.count_ones() as usize == baseline.relevant);
        let values: Vec<f64> = orders
            .map(|bits| measure(&Ranking::of_flags((0..baseline.all).map(|at| bits >> at & 1 == 1))))
            .collect();
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn the_baseline_is_the_mean_over_all_orders() {
        for (all, relevant) in [(1, 1), (1, 0), (5, 2), (9, 9), (10, 1), (11, 4)] {
            let baseline = RandomBaseline { all, relevant };
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{baseline:?}: {a} {b}");
            for k in [1, 3, 100] {
                near(baseline.average_precision(k), mean_over_orders(baseline, |r| r.average_precision(k)));
                near(baseline.precision(k), mean_over_orders(baseline, |r| r.precision(k)));
                near(baseline.recall(k), mean_over_orders(baseline, |r| r.recall(k)));
                near(baseline.ndcg(k), mean_over_orders(baseline, |r| r.ndcg(k)));
            }
            near(baseline.reciprocal_rank(), mean_over_orders(baseline, Ranking::reciprocal_rank));
        }
        let nothing = RandomBaseline { all: 0, relevant: 0 };
        assert_eq!(
            (nothing.average_precision(9), nothing.reciprocal_rank(), nothing.precision(3)),
            (0.0, 0.0, 0.0)
        );
    }
}
