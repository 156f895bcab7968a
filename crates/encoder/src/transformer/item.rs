//! Items: sequences for the network, with the rows of their states to pool.

use std::ops::Range;

use crate::{Part, Reduction, Sequence, folder::PoolingMode};

/// One sequence of an input.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// Index of the input. An input can have several items; their results are combined.
    pub(super) input: usize,
    pub(super) sequence: Sequence,
    /// For each pooling operation, the row ranges to pool.
    pub(super) pools: Vec<Vec<Part>>,
}

/// Returns the reduction of a pooling mode.
pub(super) fn reduction(mode: PoolingMode) -> Reduction {
    match mode {
        PoolingMode::Max => Reduction::Max,
        _ => Reduction::Sum,
    }
}

/// Returns the row ranges to pool in one window of an input. `rows` are the pooled tokens of this window. All windows
/// together have `total` pooled tokens; `before` of these are in earlier windows.
///
/// For the mean modes, the sum over the windows equals the pooling of the whole input. For the first or last token,
/// it is the mean over the windows, weighted by window size.
pub(super) fn parts(mode: PoolingMode, rows: Range<usize>, before: usize, total: usize) -> Vec<Part> {
    let total = total.max(1) as f32;
    let share = rows.len() as f32 / total;
    let one = |row: usize, weight: f32| vec![Part { rows: row..row + 1, weight }];
    if rows.is_empty() {
        return Vec::new();
    }
    match mode {
        PoolingMode::Cls => one(rows.start, share),
        PoolingMode::LastToken => one(rows.end - 1, share),
        PoolingMode::Mean => vec![Part { rows, weight: 1.0 / total }],
        PoolingMode::Max => vec![Part { rows, weight: 1.0 }],
        PoolingMode::MeanSqrtLen => vec![Part { rows, weight: 1.0 / total.sqrt() }],
        PoolingMode::WeightedMean => {
            let sum = total * (total + 1.0) / 2.0;
            let weight = |n: usize| (before + n + 1) as f32 / sum;
            rows.enumerate().map(|(n, row)| Part { rows: row..row + 1, weight: weight(n) }).collect()
        }
    }
}

/// Groups items into packs of similar length and at most `budget` tokens; a longer item gets its own pack. The
/// longest items come first, because a long pack at the end would keep one thread busy alone. Items without
/// tokens are left out: some tokenizers encode an empty text to no tokens.
pub(super) fn packs(items: &[Item], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).filter(|n| !items[*n].sequence.is_empty()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(items[*n].sequence.len()));
    let mut packs: Vec<Vec<usize>> = Vec::new();
    let mut filled = usize::MAX;
    for n in order {
        let length = items[n].sequence.len();
        if filled.saturating_add(length) > budget {
            packs.push(Vec::new());
            filled = 0;
        }
        filled += length;
        if let Some(pack) = packs.last_mut() {
            pack.push(n);
        }
    }
    packs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pooled(parts: &[Part], states: &[f32]) -> f32 {
        parts.iter().flat_map(|p| p.rows.clone().map(|r| p.weight * states[r])).sum()
    }

    proptest! {
        /// The sum over windows equals the pooling of the whole.
        #[test]
        fn windows_add_up(lengths in proptest::collection::vec(1usize..6, 1..5)) {
            let total: usize = lengths.iter().sum();
            let states: Vec<f32> = (0..total).map(|n| (n as f32 * 1.7).sin()).collect();
            for mode in [PoolingMode::Mean, PoolingMode::MeanSqrtLen, PoolingMode::WeightedMean] {
                let whole = pooled(&parts(mode, 0..total, 0, total), &states);
                let mut sum = 0.0;
                let mut before = 0;
                for length in &lengths {
                    sum += pooled(&parts(mode, 0..*length, before, total), &states[before..before + length]);
                    before += length;
                }
                prop_assert!((whole - sum).abs() < 1e-4, "{mode:?}: {whole} and {sum}");
            }
        }

        #[test]
        fn packs_hold_every_item_once(lengths in proptest::collection::vec(1usize..40, 0..60), budget in 1usize..100) {
            let items: Vec<Item> = lengths
                .iter()
                .map(|n| Item { input: 0, sequence: Sequence::new(vec![0; *n]), pools: Vec::new() })
                .collect();
            let packs = packs(&items, budget);
            let mut all: Vec<usize> = packs.iter().flatten().copied().collect();
            let ordered = all.windows(2).all(|w| lengths[w[0]] >= lengths[w[1]]);
            prop_assert!(ordered);
            all.sort_unstable();
            prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            for pack in &packs {
                let tokens: usize = pack.iter().map(|n| lengths[*n]).sum();
                prop_assert!(!pack.is_empty() && (tokens <= budget || pack.len() == 1));
            }
        }
    }

    #[test]
    fn one_window_is_the_plain_pooling() {
        let states = [1.0, 2.0, 6.0];
        let of = |mode| pooled(&parts(mode, 0..3, 0, 3), &states);
        assert_eq!(of(PoolingMode::Cls), 1.0);
        assert_eq!(of(PoolingMode::LastToken), 6.0);
        assert_eq!(of(PoolingMode::Mean), 3.0);
        assert!((of(PoolingMode::MeanSqrtLen) - 9.0 / 3f32.sqrt()).abs() < 1e-6);
        assert!((of(PoolingMode::WeightedMean) - 23.0 / 6.0).abs() < 1e-6);
        assert!(parts(PoolingMode::Cls, 0..0, 0, 0).is_empty());
    }
}
