//! What a ranking in any order would have, on average over all orders: exactly, not by drawing.

/// Of `relevant` among `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomBaseline {
    /// How many are ranked.
    pub all: usize,
    /// How many of them are relevant.
    pub relevant: usize,
}

impl RandomBaseline {
    fn part(self) -> f64 {
        if self.all == 0 { 0.0 } else { self.relevant as f64 / self.all as f64 }
    }

    /// Average precision, as far as `k`.
    pub fn average_precision(self, k: usize) -> f64 {
        if self.relevant == 0 {
            return 0.0;
        }
        let others = if self.all > 1 { (self.relevant - 1) as f64 / (self.all - 1) as f64 } else { 0.0 };
        // At each place: that it is relevant, and how many of those before are, too.
        let at = |place: usize| (1.0 + (place - 1) as f64 * others) / place as f64;
        (1..=self.all.min(k)).map(at).sum::<f64>() / self.all as f64
    }

    /// The reciprocal rank.
    pub fn reciprocal_rank(self) -> f64 {
        let mut sum = 0.0;
        // That none has come before.
        let mut none = 1.0;
        for place in 1..=self.all {
            let left = self.all - place + 1;
            let this = self.relevant as f64 / left as f64;
            sum += none * this.min(1.0) / place as f64;
            none *= (1.0 - this).max(0.0);
        }
        sum
    }

    /// Precision of the first `k`, of which there are always `k`.
    pub fn precision(self, k: usize) -> f64 {
        self.part() * self.all.min(k) as f64 / k.max(1) as f64
    }

    /// Recall of the first `k`.
    pub fn recall(self, k: usize) -> f64 {
        if self.relevant == 0 { 0.0 } else { self.all.min(k) as f64 / self.all as f64 }
    }

    /// Normalised discounted gain of the first `k`, where all that are relevant are equally so.
    pub fn ndcg(self, k: usize) -> f64 {
        let gains = |places: usize| (1..=places).map(|place| 1.0 / ((place + 1) as f64).log2()).sum::<f64>();
        let best = gains(self.relevant.min(k));
        if best == 0.0 { 0.0 } else { self.part() * gains(self.all.min(k)) / best }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranking::Ranking;

    /// All orders of so many, each a bit pattern.
    fn mean_over_orders(chance: RandomBaseline, measure: impl Fn(&Ranking) -> f64) -> f64 {
        let orders = (0u32..1 << chance.all).filter(|bits| bits.count_ones() as usize == chance.relevant);
        let values: Vec<f64> = orders
            .map(|bits| measure(&Ranking::of_flags((0..chance.all).map(|place| bits >> place & 1 == 1))))
            .collect();
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn it_is_the_mean_over_all_orders() {
        for (all, relevant) in [(1, 1), (1, 0), (5, 2), (9, 9), (10, 1), (11, 4)] {
            let chance = RandomBaseline { all, relevant };
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{chance:?}: {a} {b}");
            for k in [1, 3, 100] {
                near(chance.average_precision(k), mean_over_orders(chance, |r| r.average_precision(k)));
                near(chance.precision(k), mean_over_orders(chance, |r| r.precision(k)));
                near(chance.recall(k), mean_over_orders(chance, |r| r.recall(k)));
                near(chance.ndcg(k), mean_over_orders(chance, |r| r.ndcg(k)));
            }
            near(chance.reciprocal_rank(), mean_over_orders(chance, Ranking::reciprocal_rank));
        }
        let nothing = RandomBaseline { all: 0, relevant: 0 };
        assert_eq!(
            (nothing.average_precision(9), nothing.reciprocal_rank(), nothing.precision(3)),
            (0.0, 0.0, 0.0)
        );
    }
}
